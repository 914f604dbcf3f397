//! Where the bytes of one shard go: values, overhead, ghosts.

use crate::slab::{CHUNK_SLOTS, Slot};

/// The cap of one shard and what follows from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// The cap, in bytes.
    pub capacity: u64,
    /// ARC's c: what the resident entries may cost together, in bytes.
    pub residents: u64,
    /// Ghosts that each class may keep.
    pub ghosts: u64,
    /// Charged once for a shard that holds anything: the last chunk's slack, the smallest table.
    pub base: u64,
    /// Charged for every entry, ghost or resident, in bytes.
    pub overhead: u32,
}

impl Budget {
    pub(crate) fn new<V>(capacity: u64) -> Self {
        let slot = size_of::<Slot<V>>() as u64;
        let base = slot * u64::from(CHUNK_SLOTS) + TABLE_BASE_BYTES;
        let overhead = u32::try_from(slot).expect("a value is a handle") + TABLE_ENTRY_BYTES;
        let rest = capacity.saturating_sub(base);
        let ghosts = rest / GHOST_SHARE / u64::from(overhead);
        let residents = rest - 2 * ghosts * u64::from(overhead);
        Budget { capacity, residents, ghosts, base, overhead }
    }

    /// The largest entry taken, in bytes: a larger one would sweep the shard.
    pub(crate) fn entry_cost_max(&self) -> u64 {
        self.residents / 4
    }
}

/// Ghosts of each class take at most this part of the capacity.
const GHOST_SHARE: u64 = 64;
const TABLE_ENTRY_BYTES: u32 = 32;
const TABLE_BASE_BYTES: u64 = 1024;
