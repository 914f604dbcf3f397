//! A bounded table of active entries.
//!
//! It chooses the entry that makes room with the clock algorithm. A hand goes round and takes the
//! first entry that was not used since it last came by. That is about the least recently used one,
//! at the cost of a bit.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::{Disk, DiskKey, Flow};
use crate::limits::TRAFFIC_ENTRIES_MIN;

type Index<K> = HashMap<K, usize, BuildHasherDefault<Mix>>;

/// The counts of a key.
pub(super) trait Counted: Clone {
    fn flow(&self) -> &Flow;
    /// Adds another meter's counts of the same key.
    fn join(&mut self, other: &Self);
}

#[derive(Debug)]
pub(super) struct Table<K, V> {
    index: Index<K>,
    entries: Vec<Box<Entry<K, V>>>,
    /// The index of the last request: calls of a connection come in batches.
    last: usize,
    /// The position of the hand.
    hand: usize,
    /// Entries that all tables of this kind may still take.
    left: Arc<AtomicUsize>,
    /// The counts of entries that made room.
    others: Flow,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    /// Used since the hand came by.
    used: bool,
}

impl<K: Hash + Eq + Copy, V: Counted> Table<K, V> {
    pub(super) fn new(left: &Arc<AtomicUsize>) -> Self {
        Table {
            index: Index::default(),
            entries: Vec::new(),
            last: 0,
            hand: 0,
            left: Arc::clone(left),
            others: Flow::default(),
        }
    }

    /// The entry of `key`; a `new` one, if there is none.
    pub(super) fn entry(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        let is_last = self.entries.get(self.last).is_some_and(|entry| entry.key == key);
        if !is_last {
            let found = self.index.get(&key).copied();
            self.last = found.unwrap_or_else(|| self.put(key, new()));
        }
        let place = self.last;
        let entry = self.entries.get_mut(place).expect("the index names places of the table");
        entry.used = true;
        &mut entry.value
    }

    /// Gives `key` a place, and returns its index.
    fn put(&mut self, key: K, value: V) -> usize {
        let entry = Entry { key, value, used: true };
        let place = if self.may_grow() {
            self.entries.push(Box::new(entry));
            self.entries.len() - 1
        } else {
            let place = self.idle();
            let old = self.entries.get_mut(place).expect("the hand stands in the table");
            self.index.remove(&old.key);
            self.others.add(old.value.flow());
            **old = entry;
            place
        };
        self.index.insert(key, place);
        place
    }

    fn may_grow(&self) -> bool {
        let take = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
            || self.entries.len() < TRAFFIC_ENTRIES_MIN
    }

    /// The index of an entry that was not used lately.
    fn idle(&mut self) -> usize {
        loop {
            let place = self.hand % self.entries.len();
            self.hand = place + 1;
            match self.entries.get_mut(place) {
                Some(entry) if entry.used => entry.used = false,
                _ => return place,
            }
        }
    }
}

/// The tables of all meters, added up.
#[derive(Debug)]
pub(super) struct Sums<K, V> {
    sums: HashMap<K, V>,
    others: Flow,
}

impl<K, V> Default for Sums<K, V> {
    fn default() -> Self {
        Sums { sums: HashMap::new(), others: Flow::default() }
    }
}

impl<K: Hash + Eq + Copy + Ordered, V: Counted> Sums<K, V> {
    /// Adds the table that `of` finds. It is locked for moments only: its owner serves calls.
    pub(super) fn add<T>(&mut self, tables: &Mutex<T>, of: impl Fn(&T) -> &Table<K, V>) {
        // `others` first: an entry that moves there later is missing, instead of counted twice.
        self.others.add(&of(&tables.lock()).others);
        let mut from = 0;
        loop {
            let copied: Vec<(K, V)> = {
                let tables = tables.lock();
                let some = of(&tables).entries.iter().skip(from).take(COPIED_AT_ONCE);
                some.map(|entry| (entry.key, entry.value.clone())).collect()
            };
            from += copied.len();
            if copied.is_empty() {
                return;
            }
            for (key, value) in copied {
                match self.sums.get_mut(&key) {
                    Some(sum) => sum.join(&value),
                    None => drop(self.sums.insert(key, value)),
                }
            }
        }
    }

    /// All sums, in the order of their keys.
    pub(super) fn end(self) -> (Vec<(K, V)>, Flow) {
        let mut sums: Vec<(K, V)> = self.sums.into_iter().collect();
        sums.sort_by_key(|(key, _)| key.order());
        (sums, self.others)
    }
}

/// An order for keys that have none of their own.
pub(super) trait Ordered {
    fn order(&self) -> (u128, u64);
}

impl Ordered for IpAddr {
    fn order(&self) -> (u128, u64) {
        match self {
            IpAddr::V4(address) => (u32::from(*address).into(), 4),
            IpAddr::V6(address) => ((*address).into(), 6),
        }
    }
}

impl Ordered for DiskKey {
    fn order(&self) -> (u128, u64) {
        (self.fs_guid.into(), self.object)
    }
}

impl Counted for Flow {
    fn flow(&self) -> &Flow {
        self
    }
    fn join(&mut self, other: &Self) {
        self.add(other);
    }
}

impl Counted for Disk {
    fn flow(&self) -> &Flow {
        &self.flow
    }
    fn join(&mut self, other: &Self) {
        self.shared |= other.shared || self.client != other.client;
        if other.flow.calls() > self.flow.calls() {
            self.client = other.client;
        }
        self.flow.add(&other.flow);
    }
}

/// A hash of a few words in a few instructions. Collisions in a table of hundreds gain an attacker
/// nothing.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // The upper bits of a product depend on all bits of its factors, and are needed in the
        // lower bits too.
        self.0.rotate_left(26)
    }
}

/// Entries that are copied under one lock: about 10 us.
const COPIED_AT_ONCE: usize = 32;
