//! The pool's read cache: which verified, decompressed blocks stay in memory; and how much memory
//! caches have beside others ([`Memory`]).
//!
//! Pure policy: no I/O, no clock, no thread and no randomness of its own. The same calls give the
//! same answers.
//!
//! Invariants:
//! - Everything held (values, bookkeeping, ghosts) is charged, and never exceeds the capacity.
//! - A key names one content for ever: (place, `written`) never repeats. So an entry can become
//!   useless but never wrong, and correctness never needs an invalidation.
//! - No operation does more than a bounded number of steps for each entry that it must evict.
//!
//! # Policy
//! ARC (Megiddo and Modha, FAST 2003) in its clock form CAR (Bansal and Modha, FAST 2004), sized in
//! bytes, in shards by the key's hash. T1 holds entries seen once lately, T2 entries seen again, B1
//! and B2 the keys of those evicted from them (ghosts). A miss that finds its ghost moves the
//! target size of T1. A hit only marks its entry. With 1 M entries that costs half of moving it to
//! the front of a list, which touches three more cold cache lines. The clock's hand moves marked
//! entries on when room is needed.
//!
//! We add three rules. `tests/trace.rs` measures each, in device reads per client read
//! (`cargo test --release -p aquifer-arc --test trace -- --ignored --nocapture` prints the table):
//! - **Correlated references count once.** A hit soon after the entry came in marks nothing.
//!   Without this, a scan with read-ahead, or one that takes a 32 KiB extent in 4 KiB pieces, makes
//!   everything that it touches look frequent: 1.53 device reads instead of 1.19.
//! - **Nodes before data.** A leaf points at a hundred pages, so it is likelier to be wanted again
//!   than any of them. The hand passes a marked node twice. While nodes take less than 3/4 of the
//!   cache, it also passes an unmarked new one once. Marking nodes as data gives 0.95 device reads
//!   instead of 0.79 beside four scans, when the leaves would fit. Pinning nodes up to 3/4 gives
//!   0.70 instead of 0.00 after the workload has moved on. Splitting the cache between two ARCs by
//!   ghost hits ran away to the nodes (1.40 instead of 1.29). Inner nodes need no class of their
//!   own: they are wanted so often that the hand never finds them unmarked.
//! - **A rewritten block inherits** ([`Cache::replace`]): copy-on-write gives a hot leaf a new key
//!   with every txg. Without it 1.80 instead of 1.55 under mixed reads and writes.

mod budget;
mod cache;
mod memory;
mod shard;
mod shelf;
mod slab;
mod stats;

pub use cache::Cache;
pub use memory::{Memory, Share};
pub use shelf::{Owner, Room, Shelf, Verdict};
pub use stats::{ClassStats, PerClass, Stats};

/// The name of a block for the cache. Unique for ever: a place is written once in a txg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Pool address of the block's (of an uncompressed extent: the page's) first sector.
    pub place: u64,
    /// The txg in which it was written.
    pub written: u64,
}

/// The class of a block for the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A tree node, inner or leaf: a miss costs an I/O before the one for the data can start.
    Node,
    /// A page of a file or a decompressed extent.
    Data,
}
