//! The pool's allocator with its lock, and its free space for reading without the lock.
//!
//! A sync keeps the lock for a millisecond and more, while it enters what a txg took and freed.
//! Every change reads the free space before it enters a txg, and does not wait for that lock.
//!
//! Invariants:
//! - `free_sectors` and `held_sectors` are the allocator's values whenever the lock is free: the
//!   holder stores them before it releases the lock.
//! - Space that changes from held back to free is never counted in both: the value that is stored
//!   first is read last.

use std::ops::{Deref, DerefMut};

use aquifer_space::{Allocator, SpaceUse};
use aquifer_sync::atomic::{AtomicU64, Ordering};
use aquifer_sync::{Mutex, MutexGuard};

/// The space of a pool.
#[derive(Debug)]
pub(crate) struct Space {
    allocator: Mutex<Allocator>,
    told: Told,
}

/// The values that can be read without the lock.
#[derive(Debug)]
struct Told {
    free_sectors: AtomicU64,
    held_sectors: AtomicU64,
}

impl Told {
    fn tell(&self, use_: SpaceUse) {
        self.held_sectors.store(use_.held, Ordering::Release);
        self.free_sectors.store(use_.free(), Ordering::Release);
    }
}

impl Space {
    pub(crate) fn new(allocator: Allocator) -> Self {
        let told = Told { free_sectors: AtomicU64::new(0), held_sectors: AtomicU64::new(0) };
        told.tell(allocator.space_use());
        Space { allocator: Mutex::new(allocator), told }
    }

    /// The allocator, for one caller at a time.
    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { allocator: self.allocator.lock(), told: &self.told }
    }

    /// Sectors that can be allocated, as of the last release of the lock.
    pub(crate) fn free_sectors(&self) -> u64 {
        self.told.free_sectors.load(Ordering::Acquire)
    }

    /// Sectors that are freed but held back, as of then.
    pub(crate) fn held_sectors(&self) -> u64 {
        self.told.held_sectors.load(Ordering::Acquire)
    }

    /// Sectors that are free, or will be without further frees.
    pub(crate) fn coming_sectors(&self) -> u64 {
        let free = self.free_sectors();
        free + self.held_sectors()
    }
}

/// The allocator, locked.
pub(crate) struct Locked<'a> {
    allocator: MutexGuard<'a, Allocator>,
    told: &'a Told,
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
        self.told.tell(self.allocator.space_use());
    }
}

#[cfg(test)]
mod tests {
    use aquifer_ondisk::Txg;
    use aquifer_ondisk::config::Redundancy;
    use aquifer_ondisk::layout::Geometry;

    use super::*;

    #[test]
    fn what_is_free_is_told_when_the_lock_is_let_go_and_asked_without_it() {
        let space = Space::new(Allocator::new(&[Some(Geometry::new(0, 64, Redundancy::Mirror))]));
        let before = space.free_sectors();
        let mut locked = space.lock();
        assert_eq!(before, locked.space_use().free());
        let ids = locked.wanted_loads(u64::MAX);
        ids.into_iter().for_each(|id| assert!(locked.begin_load(id).is_none()));
        let run = locked.allocate(Txg(1), 1, 8).unwrap();
        // The lock is held, and this does not wait for it.
        assert_eq!(space.free_sectors(), before);
        drop(locked);
        assert_eq!(space.free_sectors(), before - run.sectors);
    }
}
