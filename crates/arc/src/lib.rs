//! The pool's read cache: which verified, decompressed blocks stay in memory.
//! Pure policy: no I/O, no clock, no thread, no randomness of its own.
mod budget;
mod cache;
mod shard;
mod slab;
mod stats;

pub use cache::Cache;
pub use stats::{ClassStats, PerClass, Stats};

/// What names a block for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Pool address of the first sector.
    pub place: u64,
    /// The txg in which it was written.
    pub written: u64,
}

/// What a block is to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A tree node.
    Node,
    /// A page or extent.
    Data,
}
