//! When things happened, by a clock that clients and disks share: of each moment it is known what
//! had been promised before it, and what had been sent.
//!
//! What holds: no two readings of a clock are the same, and what causes something has the earlier
//! one. What is sent is noted before that, what is answered after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what happens. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// The moment of something that happens now.
    pub fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The newest moment.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// What happened when, in that order. Without a clock it stays empty.
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
    /// An empty one.
    pub fn new(clock: &Clock) -> Self {
        Self { clock: Some(clock.clone()), entries: Vec::new() }
    }

    /// This happens now.
    pub fn note(&mut self, entry: impl FnOnce() -> T) {
        if let Some(clock) = &self.clock {
            self.entries.push((clock.tick(), entry()));
        }
    }

    /// What had happened by `moment`.
    pub fn until(&self, moment: u64) -> impl Iterator<Item = &T> {
        let happened = self.entries.iter().take_while(move |(at, _)| *at <= moment);
        happened.map(|(_, entry)| entry)
    }

    /// Forgets what came after `moment`.
    pub fn rewind(&mut self, moment: u64) {
        self.entries.retain(|(at, _)| *at <= moment);
    }

    /// When entries of a kind happened.
    pub fn moments(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<u64> {
        let wanted = self.entries.iter().filter(|(_, entry)| is_wanted(entry));
        wanted.map(|(at, _)| *at).collect()
    }
}
