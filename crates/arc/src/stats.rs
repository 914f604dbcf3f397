//! Counters and sizes of the cache, for metrics and for tests.

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
    /// The one of `class`.
    pub fn of(&self, class: Class) -> &T {
        match class {
            Class::Node => &self.node,
            Class::Data => &self.data,
        }
    }

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
    /// Values taken in; after a miss, or written, or read ahead.
    pub inserts: u64,
    /// Values given up for others.
    pub evictions: u64,
    /// Values and ghosts taken out because their block was freed.
    pub removals: u64,
    /// Inserts of what had been evicted from T1 not long before.
    pub ghost_hits_recent: u64,
    /// Inserts of what had been evicted from T2 not long before.
    pub ghost_hits_frequent: u64,
    /// Values held.
    pub entries: u64,
    /// Keys held of evicted values.
    pub ghosts: u64,
    /// Cost of the values in T1, charge and overhead.
    pub recent_bytes: u64,
    /// Cost of the values in T2, charge and overhead.
    pub frequent_bytes: u64,
    /// ARC's p: what T1 should come to.
    pub recent_target_bytes: u64,
}

/// Counters (since the cache was made) and sizes (now) of the whole cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// By class.
    pub class: PerClass<ClassStats>,
    /// Gets that found nothing: the class of what is not there is not known.
    pub misses: u64,
    /// Inserts refused because the value alone would sweep a shard.
    pub refused: u64,
    /// Everything charged: values, overhead, ghosts.
    pub resident_bytes: u64,
    /// The cap.
    pub capacity_bytes: u64,
    /// What the nodes should come to; the rest is for data.
    pub node_target_bytes: u64,
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
        self.evictions += other.evictions;
        self.removals += other.removals;
        self.ghost_hits_recent += other.ghost_hits_recent;
        self.ghost_hits_frequent += other.ghost_hits_frequent;
        self.entries += other.entries;
        self.ghosts += other.ghosts;
        self.recent_bytes += other.recent_bytes;
        self.frequent_bytes += other.frequent_bytes;
        self.recent_target_bytes += other.recent_target_bytes;
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.class.node += other.class.node;
        self.class.data += other.class.data;
        self.misses += other.misses;
        self.refused += other.refused;
        self.resident_bytes += other.resident_bytes;
        self.capacity_bytes += other.capacity_bytes;
        self.node_target_bytes += other.node_target_bytes;
    }
}
