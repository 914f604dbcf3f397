//! The cache as its users see it: shards by the key's hash, each behind a mutex.
//!
//! Invariants:
//! - A key belongs to one shard for the cache's life; no operation holds two shards' locks.
//! - The shards' capacities sum to at most the cache's, so no byte is counted across shards.

use aquifer_sync::Mutex;

use crate::shard::{Arrival, Shard};
use crate::stats::Stats;
use crate::{Class, Key};

/// A read cache of values `V`, which are handles that are cheap to clone (an `Arc`, a page).
///
/// A value is dropped under its shard's lock, so `V`'s drop must not call the cache.
pub struct Cache<V> {
    shards: Box<[Line<Mutex<Shard<V>>>]>,
    /// The capacity. Held while the shards' capacities change, so that of two changes one is last
    /// in all shards.
    capacity_bytes: Mutex<u64>,
}

/// Keeps the lock of one shard out of the cache lines of another.
#[repr(align(128))]
struct Line<T>(T);

impl<V: Clone> Cache<V> {
    /// A cache that holds at most `capacity_bytes`, bookkeeping included. `shards` (16 to 64 for
    /// a few cores) is rounded to a power of two, and down until each has 4 MiB.
    pub fn new(capacity_bytes: u64, shards: u32) -> Self {
        let fitting = (capacity_bytes / SHARD_BYTES_MIN).clamp(1, u64::from(SHARDS_MAX));
        let count =
            u64::from(shards.clamp(1, SHARDS_MAX).next_power_of_two()).min(1 << fitting.ilog2());
        let shard = |_| Line(Mutex::new(Shard::new(capacity_bytes / count)));
        Cache {
            shards: (0..count).map(shard).collect(),
            capacity_bytes: Mutex::new(capacity_bytes),
        }
    }

    /// The value of `key`. Counts as a use.
    #[inline]
    pub fn get(&self, key: &Key) -> Option<V> {
        let hash = key.mixed();
        self.shard(key).lock().get(hash, key)
    }

    /// Looks up `count` keys from `first` on, neighbours written in one txg. Calls `found` with the
    /// number of each that is held, counted from `first`, and its value. Equivalent to `count`
    /// calls of [`Cache::get`], but neighbours cost one lock, and mostly one search, together.
    ///
    /// `found` runs under a shard's lock: it must not call the cache.
    pub fn get_run(&self, first: &Key, count: u64, mut found: impl FnMut(u64, &V)) {
        let mut done = 0;
        while done < count {
            let key = Key { place: first.place + done, ..*first };
            let some = (NEIGHBOURS - key.place % NEIGHBOURS).min(count - done);
            let each = |at, value: &V| found(done + at, value);
            self.shard(&key).lock().get_run(&key, some, each);
            done += some;
        }
    }

    /// Looks up keys that need not be neighbours. Calls `found` with the number of each that is
    /// held, in any order, and its value. Equivalent to a [`Cache::get`] of each, but the CPU waits
    /// for several of the cold cache lines of a search at a time.
    ///
    /// `found` runs under a shard's lock: it must not call the cache.
    pub fn get_each(&self, keys: &[Key], mut found: impl FnMut(usize, &V)) {
        let in_shard = |(at, key)| (self.shard_number(key), at, key);
        let mut order: Vec<(usize, usize, &Key)> = keys.iter().enumerate().map(in_shard).collect();
        order.sort_unstable_by_key(|(shard, at, _)| (*shard, *at));
        for some in order.chunk_by(|(left, ..), (right, ..)| left == right) {
            let Some((_, _, first)) = some.first() else { continue };
            let keys = some.iter().map(|(_, at, key)| (*at, *key));
            self.shard(first).lock().get_each(keys, &mut found);
        }
    }

    /// Whether a value of `key` is held. Does not count as a use.
    pub fn contains(&self, key: &Key) -> bool {
        let hash = key.mixed();
        self.shard(key).lock().contains(hash, key)
    }

    /// Inserts a value that was read, read ahead or written. `charge_bytes` is all the memory that
    /// the value keeps alive; the cache adds its own overhead. An existing value stays (it is the
    /// same: keys do not repeat), and one over 1/4 of a shard is refused.
    pub fn insert(&self, key: Key, value: V, charge_bytes: u32, class: Class) {
        let hash = key.mixed();
        let arrival = Arrival { key, value, charge_bytes, class, standing: None };
        self.shard(&key).lock().insert(hash, arrival);
    }

    /// Inserts a block that was written to a new place instead of `old`. It inherits `old`'s
    /// standing, and `old` leaves, even if a snapshot still covers it. `value` makes the new value,
    /// from the old one if that was held.
    pub fn replace(
        &self,
        old: &Key,
        key: Key,
        value: impl FnOnce(Option<V>) -> V,
        charge_bytes: u32,
        class: Class,
    ) {
        let old_hash = old.mixed();
        let removed = self.shard(old).lock().remove(old_hash, old);
        let (old, standing) = removed.unzip();
        let (hash, value) = (key.mixed(), value(old));
        let arrival = Arrival { key, value, charge_bytes, class, standing };
        self.shard(&key).lock().insert(hash, arrival);
    }

    /// Forgets a block that was freed. Returns whether a value was held.
    pub fn remove(&self, key: &Key) -> bool {
        let hash = key.mixed();
        self.shard(key).lock().remove(hash, key).is_some()
    }

    /// Changes the capacity. On return the cache holds no more than that.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        let mut now_bytes = self.capacity_bytes.lock();
        if std::mem::replace(&mut *now_bytes, capacity_bytes) == capacity_bytes {
            return;
        }
        let each = capacity_bytes / self.shards.len() as u64;
        for shard in &self.shards {
            shard.0.lock().set_capacity(each);
        }
    }

    /// Everything held in bytes: values, bookkeeping, ghosts. Never over the capacity.
    pub fn resident_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().resident_bytes()).sum()
    }

    /// Counters and sizes; this asks the shards one after the other.
    pub fn stats(&self) -> Stats {
        let mut total = Stats::default();
        for shard in &self.shards {
            total += shard.0.lock().stats();
        }
        total
    }

    #[expect(clippy::indexing_slicing, reason = "the mask is one below a power of two")]
    #[inline]
    fn shard(&self, key: &Key) -> &Mutex<Shard<V>> {
        &self.shards[self.shard_number(key)].0
    }

    #[inline]
    fn shard_number(&self, key: &Key) -> usize {
        // Neighbours share a shard: blocks that came together leave together, and so does their
        // memory.
        let [byte, ..] = fold((key.place / NEIGHBOURS) ^ SEEDS.2, SEEDS.0).to_le_bytes();
        usize::from(byte) & (self.shards.len() - 1)
    }
}

/// A cache whose capacity follows what others leave it.
pub(crate) trait Shrinks: Send + Sync {
    /// Changes the capacity, if that is another one. On return it holds no more than that.
    fn resize(&self, capacity_bytes: u64);

    /// Its counters.
    fn counts(&self) -> Stats;
}

impl<V: Clone + Send> Shrinks for Cache<V> {
    fn resize(&self, capacity_bytes: u64) {
        self.set_capacity(capacity_bytes);
    }

    fn counts(&self) -> Stats {
        self.stats()
    }
}

impl Key {
    /// A 64-bit hash, the same in every run. Places are chosen by the allocator, not by clients.
    /// Four neighbours share the low bits, which choose a table's bucket: looked up in turn, they
    /// are found in one line of the CPU's cache. The top bits, a table's tags, tell them apart.
    #[inline]
    pub fn mixed(&self) -> u64 {
        let four = fold(fold((self.place / 4) ^ SEEDS.0, SEEDS.1) ^ self.written, SEEDS.2);
        four ^ ((self.place % 4) << 60)
    }
}

/// The two halves of the product, one over the other: every bit of `a` reaches every bit.
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Bits without structure: of the golden ratio and the roots of 2 and 3.
const SEEDS: (u64, u64, u64) =
    (0x9E37_79B9_7F4A_7C15, 0x6A09_E667_F3BC_C909, 0xBB67_AE85_84CA_A73B);
/// That many aligned sectors have their entries in one shard: mostly those of an extent, and as
/// many as pages in one block of memory. With more, the shards would not fill evenly.
const NEIGHBOURS: u64 = 16;
/// A shard that holds fewer entries would learn from noise.
const SHARD_BYTES_MIN: u64 = 4 << 20;
/// More locks would only spread what one shard could learn.
const SHARDS_MAX: u32 = 64;

#[cfg(test)]
mod tests;
