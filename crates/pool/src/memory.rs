//! A pool's part of the memory of its process ([`aquifer_arc::Memory`]).

use std::sync::Arc;

use aquifer_arc::{Memory, Share, Shelf};

use crate::pool::Pool;

/// Memory that a pool holds beside its read cache, which gives way to it.
#[derive(Debug)]
pub(crate) struct Shares {
    dirty: Share,
    bitmaps: Share,
    shelf: Arc<Shelf>,
    memory: Arc<Memory>,
}

impl Shares {
    pub fn new(memory: &Arc<Memory>) -> Shares {
        let (dirty, bitmaps) = (memory.share(), memory.share());
        Shares { dirty, bitmaps, shelf: memory.shelf(), memory: memory.clone() }
    }

    /// The memory of which they are parts.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// A change was let in: so much is dirty now, or about to be.
    pub fn dirty_grows_to(&self, bytes: u64) {
        self.dirty.grow_to(bytes);
    }

    /// Bitmaps in memory, in bytes.
    pub fn set_bitmaps(&self, bytes: u64) {
        self.bitmaps.set(bytes);
    }
}

/// Memory of one pool, in bytes. What it holds, up to two steps more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolMemory {
    /// For changes that are not on disk yet.
    pub dirty: u64,
    /// For bitmaps of metaslabs.
    pub bitmaps: u64,
    /// How often a change found no room in memory since the import; one that looks again counts
    /// again.
    pub waits: u64,
    /// Whether changes would have more if the process might take more.
    pub is_bound: bool,
}

impl Pool {
    /// Returns the memory that the pool holds beside its read cache.
    pub fn memory(&self) -> PoolMemory {
        let Shares { dirty, bitmaps, .. } = &self.shares;
        PoolMemory {
            dirty: dirty.charged_bytes(),
            bitmaps: bitmaps.charged_bytes(),
            waits: self.flow.memory_waits(),
            is_bound: self.flow.is_bound_by_memory(),
        }
    }

    /// Where the layers above keep what somebody may use again, with those of other pools.
    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.shares.shelf
    }

    /// A txg is on disk: what it held is free.
    pub(crate) fn settle_dirty(&self) {
        self.shares.dirty.settle(|| self.txgs.dirty_bytes());
    }
}
