//! What happened to one disk: each change with its bytes and the moments between which it was
//! carried out, each flush with those of its own.
//!
//! What holds: a change is durable from the end of a flush that began after the change had ended,
//! or from its own end if it was written through. Nothing else is: not what a flush met under way.

use std::collections::HashMap;
use std::sync::Arc;

/// Changes are of whole sectors.
pub const SECTOR_BYTES: usize = 4096;

/// A disk from its first byte on.
#[derive(Debug, Default)]
pub struct Tape {
    changes: Vec<Change>,
    flushes: Vec<Flush>,
    /// What a read finds: the change that ended last at this sector.
    newest: HashMap<u64, usize>,
}

/// A write, or a discard, which leaves zeros.
#[derive(Debug)]
pub struct Change {
    pub began: u64,
    /// None: the record ends before it.
    pub ended: Option<u64>,
    /// Durable when it has ended, without a flush.
    pub through: bool,
    pub first: u64,
    pub sectors: u64,
    /// None: zeros.
    data: Option<Arc<[u8]>>,
}

/// Of everything that had ended before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    pub began: u64,
    pub ended: u64,
}

impl Change {
    /// What it puts to a sector.
    pub fn sector(&self, sector: u64) -> &[u8] {
        let at = (sector - self.first) as usize * SECTOR_BYTES;
        self.data.as_ref().map_or(&ZEROS, |data| &data[at..at + SECTOR_BYTES])
    }
}

impl Tape {
    /// A disk that holds this from the beginning, for good.
    pub fn holding<'a>(sectors: impl Iterator<Item = (u64, &'a [u8])>) -> Self {
        let mut tape = Self::default();
        for (sector, content) in sectors {
            let number = tape.begin(0, (sector, 1), Some(content));
            tape.end(number, 0, true);
        }
        tape
    }

    /// A change of whole sectors begins; returns its number.
    pub fn begin(&mut self, began: u64, range: (u64, u64), bytes: Option<&[u8]>) -> usize {
        let (first, sectors) = range;
        let (data, through) = (bytes.map(Arc::from), false);
        self.changes.push(Change { began, ended: None, through, first, sectors, data });
        self.changes.len() - 1
    }

    /// It is carried out.
    pub fn end(&mut self, number: usize, ended: u64, through: bool) {
        let change = &mut self.changes[number];
        (change.ended, change.through) = (Some(ended), through);
        for sector in change.first..change.first + change.sectors {
            self.newest.insert(sector, number);
        }
    }

    /// A flush has ended.
    pub fn flushed(&mut self, flush: Flush) {
        self.flushes.push(flush);
    }

    /// What a sector holds now.
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

    /// What had ended before this moment is durable at `moment`, if no flush after `trusted` is
    /// believed.
    pub fn durable_before(&self, moment: u64, trusted: u64) -> u64 {
        let ended = self.flushes.iter().filter(|flush| flush.ended <= moment.min(trusted));
        ended.map(|flush| flush.began).max().unwrap_or(0)
    }
}

pub const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
