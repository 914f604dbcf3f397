//! The order of events, by a clock that clients and disks share. For each moment the tests know
//! what was promised before it, and what was sent.
//!
//! Invariants: no two readings of a clock are equal, and a cause has an earlier one than its
//! effect. A call is noted before it is sent, and an answer after it arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts events. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// The moment of an event that happens now.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The newest moment.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Events with their moments, in order. Without a clock it stays empty.
#[derive(Clone, Debug)]
pub struct Diary<T> {
    clock: Option<Clock>,
    entries: Vec<(u64, T)>,
}

impl<T> Default for Diary<T> {
    fn default() -> Self {
        Self { clock: None, entries: Vec::new() }
    }
}

impl<T> Diary<T> {
    /// An empty diary.
    pub fn new(clock: &Clock) -> Self {
        Self { clock: Some(clock.clone()), entries: Vec::new() }
    }

    /// Notes an event that happens now.
    pub fn note(&mut self, entry: impl FnOnce() -> T) {
        if let Some(clock) = &self.clock {
            self.entries.push((clock.tick(), entry()));
        }
    }

    /// The events up to `moment`.
    pub fn until(&self, moment: u64) -> impl Iterator<Item = &T> {
        let happened = self.entries.iter().take_while(move |(at, _)| *at <= moment);
        happened.map(|(_, entry)| entry)
    }

    /// Forgets the events after `moment`.
    pub fn rewind(&mut self, moment: u64) {
        self.entries.retain(|(at, _)| *at <= moment);
    }

    /// The moments of the entries that `is_wanted` selects.
    pub fn moments(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<u64> {
        let wanted = self.entries.iter().filter(|(_, entry)| is_wanted(entry));
        wanted.map(|(at, _)| *at).collect()
    }
}
