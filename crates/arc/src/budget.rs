//! How one shard's bytes are divided.
//!
//! Invariant: base + residents + ghosts x overhead <= capacity, and the structures really allocate
//! at most what is charged for them (`tests/memory.rs` counts it).

use crate::slab::{CHUNK_SLOTS, Slot};

/// The capacity of one shard and the limits that follow from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// All that the shard may hold, in bytes.
    pub capacity: u64,
    /// ARC's c: what the resident entries may cost together, in bytes.
    pub residents: u64,
    /// How many ghosts may be kept.
    pub ghosts: u64,
    /// Bytes that the nodes may cost before a new one is treated as data.
    pub nodes: u64,
    /// The largest cost of an entry, in bytes: a larger one would sweep the shard.
    pub entry: u64,
    /// Charged once if the shard holds anything: the slack of the last chunk, the smallest table.
    pub base: u64,
    /// Charged for each entry, resident or ghost, beside the value: slot and share of the table.
    pub overhead: u32,
}

impl Budget {
    pub(crate) fn new<V>(capacity: u64) -> Self {
        let slot = u32::try_from(size_of::<Slot<V>>()).expect("a value is a handle, not the bytes");
        let base = u64::from(slot) * u64::from(CHUNK_SLOTS) + TABLE_BASE_BYTES;
        let overhead = slot + TABLE_ENTRY_BYTES;
        let rest = capacity.saturating_sub(base);
        let ghosts = rest / GHOST_SHARE / u64::from(overhead);
        let residents = rest - ghosts * u64::from(overhead);
        let (nodes, entry) = (residents / 4 * 3, residents / 4);
        Budget { capacity, residents, ghosts, nodes, entry, base, overhead }
    }
}

/// Ghosts take at most 1/48: enough to remember as many 4 KiB entries as are resident, which is all
/// that ARC needs.
const GHOST_SHARE: u64 = 48;
/// A table of u32 takes 5 bytes a bucket. It doubles when 7/16 of its buckets are in use, or later:
/// at most 32/7 buckets an entry then, and `release` keeps it there. While it is rebuilt there is
/// a second one of half the size: 23 + 12 bytes. The rest is for the list of chunks.
const TABLE_ENTRY_BYTES: u32 = 36;
const TABLE_BASE_BYTES: u64 = 1024;
