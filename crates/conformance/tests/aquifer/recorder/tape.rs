//! The history of one disk: each change with its bytes and the moments of its begin and end, and
//! each flush with its own moments.
//!
//! Invariant: a flush makes a change durable, from the flush's end on, if it began after the change
//! had ended. A change that was written through is durable from its own end. No other change is
//! durable, not even one that was in progress during a flush.

use std::collections::HashMap;
use std::sync::Arc;

/// Changes are of whole sectors.
pub const SECTOR_BYTES: usize = 4096;

/// The history of a disk from its first byte on.
#[derive(Debug, Default)]
pub struct Tape {
    changes: Vec<Change>,
    flushes: Vec<Flush>,
    /// The content that a read finds: for each sector the change that ended last.
    newest: HashMap<u64, usize>,
}

/// A write, or a discard, which leaves zeros.
#[derive(Debug)]
pub struct Change {
    pub began: u64,
    /// `None`: the record ends before the change does.
    pub ended: Option<u64>,
    /// Durable when it has ended, without a flush.
    pub through: bool,
    pub first: u64,
    pub sectors: u64,
    /// None: zeros.
    data: Option<Arc<[u8]>>,
}

/// A flush of all changes that had ended before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    pub began: u64,
    pub ended: u64,
}

impl Change {
    /// The content that it gives a sector.
    pub fn sector(&self, sector: u64) -> &[u8] {
        let at = (sector - self.first) as usize * SECTOR_BYTES;
        self.data.as_ref().map_or(&ZEROS, |data| &data[at..at + SECTOR_BYTES])
    }
}

impl Tape {
    /// A disk that holds this durably from the beginning.
    pub fn holding<'a>(sectors: impl Iterator<Item = (u64, &'a [u8])>) -> Self {
        let mut tape = Self::default();
        for (sector, content) in sectors {
            let number = tape.begin(0, (sector, 1), Some(content));
            tape.end(number, 0, true);
        }
        tape
    }

    /// Begins a change of whole sectors; returns its number.
    pub fn begin(&mut self, began: u64, range: (u64, u64), bytes: Option<&[u8]>) -> usize {
        let (first, sectors) = range;
        let (data, through) = (bytes.map(Arc::from), false);
        self.changes.push(Change { began, ended: None, through, first, sectors, data });
        self.changes.len() - 1
    }

    /// Ends a change.
    pub fn end(&mut self, number: usize, ended: u64, through: bool) {
        let change = &mut self.changes[number];
        (change.ended, change.through) = (Some(ended), through);
        for sector in change.first..change.first + change.sectors {
            self.newest.insert(sector, number);
        }
    }

    /// Notes a flush that has ended.
    pub fn flushed(&mut self, flush: Flush) {
        self.flushes.push(flush);
    }

    /// The present content of a sector.
    pub fn read(&self, sector: u64) -> &[u8] {
        self.newest.get(&sector).map_or(&ZEROS, |number| self.changes[*number].sector(sector))
    }

    /// All changes, in the order in which they began.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// All flushes that have ended, in that order.
    pub fn flushes(&self) -> &[Flush] {
        &self.flushes
    }

    /// The moment such that changes that ended before it are durable at `moment`, if no flush after
    /// `trusted` counts.
    pub fn durable_before(&self, moment: u64, trusted: u64) -> u64 {
        let ended = self.flushes.iter().filter(|flush| flush.ended <= moment.min(trusted));
        ended.map(|flush| flush.began).max().unwrap_or(0)
    }
}

pub const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
