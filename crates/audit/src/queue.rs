//! Queue of lines that wait for a destination: bounded, and it says how much was left out where
//! that was.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::line::{Entry, Kind};

/// Lines that wait at most: some minutes of a busy administrator's scripts, some megabytes.
const WAITING_MAX: usize = 4096;

/// Entries in order, and places where some are missing.
#[derive(Debug, Default)]
pub(crate) struct Queue(VecDeque<Arc<Entry>>);

impl Queue {
    /// Takes an entry, if there is room. Else it is counted at this place.
    pub fn put(&mut self, entry: &Arc<Entry>) {
        if self.0.len() < WAITING_MAX {
            self.0.push_back(Arc::clone(entry));
            return;
        }
        let counted = self.0.pop_back().filter(|last| last.kind == Kind::Gap);
        // The last one gives its place for the count, and is one of those that are missing.
        let before = counted.map_or(1, |gap| gap.dropped);
        self.0.push_back(Arc::new(gap(before.saturating_add(1), entry.wall_ns)));
    }

    /// The next ones, at most so many.
    pub fn take(&mut self, most: usize) -> Vec<Arc<Entry>> {
        let count = most.min(self.0.len());
        self.0.drain(..count).collect()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many lines are left out now.
    pub fn dropped(&self) -> u64 {
        self.0.iter().map(|entry| entry.dropped).sum()
    }
}

fn gap(dropped: u64, wall_ns: u64) -> Entry {
    let why = "there was no room for these lines".into();
    Entry { kind: Kind::Gap, dropped, why, wall_ns, ..Entry::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted_where_it_would_be() {
        let mut queue = Queue::default();
        let entry = |at: usize| Arc::new(Entry { act: at.to_string(), ..Entry::default() });
        let put = |queue: &mut Queue, range: std::ops::Range<usize>| {
            range.for_each(|at| queue.put(&entry(at)));
        };
        put(&mut queue, 0..WAITING_MAX + 100);
        assert_eq!(queue.dropped(), 101);
        let first = queue.take(10);
        assert_eq!(first.len(), 10);
        // There is room behind the gap.
        put(&mut queue, 0..5);
        let all = queue.take(usize::MAX);
        let gap = all.iter().position(|entry| entry.kind == Kind::Gap).unwrap();
        assert_eq!((gap, all[gap].dropped), (WAITING_MAX - 11, 101));
        assert_eq!(all.len(), gap + 1 + 5);
        let lost: u64 = all.iter().map(|entry| entry.dropped).sum();
        let there = first.len() + all.iter().filter(|entry| entry.kind != Kind::Gap).count();
        assert_eq!(there as u64 + lost, (WAITING_MAX + 105) as u64, "each is there, or counted");
        assert!(queue.is_empty());
    }
}
