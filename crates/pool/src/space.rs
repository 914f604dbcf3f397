//! The pool's allocator behind its lock, and beside it what it has free.
//!
//! A sync keeps the lock while it puts away what a txg took and gave back, for a millisecond and
//! more. Who only asks how much is free, as every change does before it enters a txg, does not
//! wait for that.
//!
//! Invariants:
//! - `free_sectors` is what the allocator says whenever nobody holds the lock: whoever held it
//!   tells before letting go.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use aquifer_space::Allocator;
use parking_lot::{Mutex, MutexGuard};

/// The space of a pool.
#[derive(Debug)]
pub(crate) struct Space {
    allocator: Mutex<Allocator>,
    free_sectors: AtomicU64,
}

impl Space {
    pub(crate) fn new(allocator: Allocator) -> Self {
        let free_sectors = AtomicU64::new(allocator.space_use().free());
        Space { allocator: Mutex::new(allocator), free_sectors }
    }

    /// The allocator, for one caller at a time.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { allocator: self.allocator.lock(), free_sectors: &self.free_sectors }
    }

    /// Sectors that can be handed out, as of the last time that the lock was let go.
    pub(crate) fn free_sectors(&self) -> u64 {
        self.free_sectors.load(Ordering::Acquire)
    }
}

/// The allocator, locked.
pub(crate) struct Locked<'a> {
    allocator: MutexGuard<'a, Allocator>,
    free_sectors: &'a AtomicU64,
}

impl Deref for Locked<'_> {
    type Target = Allocator;

    fn deref(&self) -> &Allocator {
        &self.allocator
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Allocator {
        &mut self.allocator
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.free_sectors.store(self.allocator.space_use().free(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use aquifer_ondisk::Txg;
    use aquifer_ondisk::layout::Geometry;

    use super::*;

    #[test]
    fn what_is_free_is_told_when_the_lock_is_let_go_and_asked_without_it() {
        let space = Space::new(Allocator::new(&[Some(Geometry::new(0, 64, true))]));
        let before = space.free_sectors();
        let mut locked = space.lock();
        assert_eq!(before, locked.space_use().free());
        let ids = locked.wanted_loads(u64::MAX);
        ids.into_iter().for_each(|id| assert!(locked.begin_load(id).is_none()));
        let run = locked.allocate(Txg(1), 1, 8).unwrap();
        // The lock is held: nobody waits for it.
        assert_eq!(space.free_sectors(), before);
        drop(locked);
        assert_eq!(space.free_sectors(), before - run.sectors);
    }
}
