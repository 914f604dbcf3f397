//! The trace of one seed: a hash that is always on, and a story on demand.
//!
//! Invariants:
//! - The hash covers every step, every disk operation and every fate of a write, in order: two runs
//!   with one hash ran alike.
//! - The story is bounded: the oldest entries fall out first. It costs nothing while it is off.

use std::collections::VecDeque;

/// An event on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Action {
    /// `Disk::read`.
    Read,
    /// `Disk::write`.
    Write,
    /// `Disk::write_durable`.
    WriteDurable,
    /// `Disk::flush`.
    Flush,
    /// `Disk::discard`.
    Discard,
    /// The device went away.
    Vanish,
    /// The device came back.
    Return,
    /// The device stopped completing anything for a while.
    Stall,
    /// A durable sector was damaged at rest.
    Corrupt,
    /// A power cut decided over a sector of the volatile cache.
    Cut,
    /// The process was killed with this write in flight.
    Kill,
}

/// The result of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// Handed to the device, in flight from here on.
    Submitted,
    /// Completed as asked.
    Done,
    /// Completed with an I/O error.
    Failed,
    /// Failed because the device is gone.
    Gone,
    /// Acknowledged, stored nowhere.
    Phantom,
    /// Went to, or came from, another sector.
    Misdirected,
    /// The newest version survived whole.
    Kept,
    /// An older version than the newest survived.
    Older,
    /// A prefix of the write's sectors survived.
    Part,
    /// Survived in some of the 512-byte pieces.
    Torn,
    /// Nothing of it survived.
    Lost,
}

/// One line of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Virtual time since the start of the simulation, in nanoseconds.
    pub(crate) at_ns: u64,
    /// The disk's index, in the order in which disks were added.
    pub(crate) disk: usize,
    /// The event.
    pub(crate) action: Action,
    /// First sector; 0 for an event of the whole disk.
    pub(crate) sector: u64,
    /// Number of sectors; 0 for an event of the whole disk.
    pub(crate) count: u64,
    /// Its result.
    pub(crate) outcome: Outcome,
}

impl Entry {
    /// `time disk action sector count outcome`, the time in seconds.
    pub(crate) fn line(&self, disk: &str) -> String {
        let (seconds, rest) = (self.at_ns / 1_000_000_000, self.at_ns % 1_000_000_000);
        let Entry { action, sector, count, outcome, .. } = self;
        format!("{seconds:>6}.{rest:09} {disk} {action:?} {sector} {count} {outcome:?}\n")
    }
}

/// Hash and story of one seed.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    story: VecDeque<Entry>,
    entries_max: usize,
}

impl Trace {
    pub(crate) fn new(entries_max: usize) -> Self {
        Trace { hash: 0, story: VecDeque::with_capacity(entries_max), entries_max }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn story(&self) -> impl Iterator<Item = &Entry> {
        self.story.iter()
    }

    pub(crate) fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(23) ^ word).wrapping_mul(MIX);
    }

    pub(crate) fn note(&mut self, entry: Entry) {
        let kind = (u64::from(entry.action as u8) << 8) | u64::from(entry.outcome as u8);
        self.mix(entry.at_ns);
        self.mix(((entry.disk as u64) << 16) | kind);
        self.mix(entry.sector);
        self.mix(entry.count);
        if self.entries_max == 0 {
            return;
        }
        if self.story.len() == self.entries_max {
            self.story.pop_front();
        }
        self.story.push_back(entry);
    }
}

/// The golden ratio in 64 bits, odd: multiplication by it loses nothing.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
