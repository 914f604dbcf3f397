//! Counters and sizes of the cache, for metrics and tests.

use std::ops::AddAssign;

use crate::Class;

/// One `T` for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerClass<T> {
    /// Of the tree nodes.
    pub node: T,
    /// Of the data.
    pub data: T,
}

impl<T> PerClass<T> {
    pub(crate) fn of_mut(&mut self, class: Class) -> &mut T {
        match class {
            Class::Node => &mut self.node,
            Class::Data => &mut self.data,
        }
    }
}

/// Counters (since the cache was made) and sizes (now) of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Gets that found a value.
    pub hits: u64,
    /// Values taken in: after a miss, written, or read ahead.
    pub inserts: u64,
    /// Inserts of values that had been evicted not long before.
    pub ghost_hits: u64,
    /// Values evicted for others or for a smaller capacity.
    pub evictions: u64,
    /// Values that `remove` or `replace` took out.
    pub removals: u64,
    /// Values held.
    pub entries: u64,
    /// Their charges and overhead.
    pub bytes: u64,
}

/// Counters (since the cache was made) and sizes (now) of the whole cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// By class.
    pub class: PerClass<ClassStats>,
    /// Gets that found nothing; the class of a missing block is unknown.
    pub misses: u64,
    /// Inserts refused because the value alone would sweep its shard.
    pub refused: u64,
    /// T1: charges and overhead of the values seen once lately.
    pub recent_bytes: u64,
    /// T2: charges and overhead of the values seen again.
    pub frequent_bytes: u64,
    /// ARC's p: the size that T1 is steered to.
    pub recent_target_bytes: u64,
    /// Keys remembered of evicted values.
    pub ghosts: u64,
    /// Everything held: values, overhead, ghosts.
    pub resident_bytes: u64,
    /// The limit that `resident_bytes` never exceeds.
    pub capacity_bytes: u64,
}

impl Stats {
    /// Gets that found a value, of both classes.
    pub fn hits(&self) -> u64 {
        self.class.node.hits + self.class.data.hits
    }
}

impl AddAssign for ClassStats {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.inserts += other.inserts;
        self.ghost_hits += other.ghost_hits;
        self.evictions += other.evictions;
        self.removals += other.removals;
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.class.node += other.class.node;
        self.class.data += other.class.data;
        self.misses += other.misses;
        self.refused += other.refused;
        self.recent_bytes += other.recent_bytes;
        self.frequent_bytes += other.frequent_bytes;
        self.recent_target_bytes += other.recent_target_bytes;
        self.ghosts += other.ghosts;
        self.resident_bytes += other.resident_bytes;
        self.capacity_bytes += other.capacity_bytes;
    }
}
