//! Readers and the roots that they read, so that no place is reused while it is read.
//!
//! A reader takes a committed root and then its blocks, one read after the other, without any lock.
//! Three commits later those blocks could hold other data. That is worse than a wrong answer, which
//! a checksum would show. One side of a mirror may already hold the new content while the other
//! does not. The slow reader then finds one copy bad and the other good, and its *repair* would
//! overwrite the new data with the old.
//!
//! So every reader enters the current **epoch** before it looks at any root. After a commit no new
//! reader can find the blocks that its txg freed. Those frees are then noted with the epoch of that
//! moment, and the epoch advances. Held-back frees are reused only once no reader is left in their
//! epoch or an older one. Nothing waits for that: frees that this commit cannot release are
//! released by a later one. Writes of repairs count as readers until they are done, even if the
//! reader that caused the repair has gone.
//!
//! Entering costs one atomic increment in a shard of the thread's own.
//!
//! Rejected: before a repair, checking that the place is in use in the newest root, and reading the
//! good side once more. This needs nothing of readers. But a side that silently lost the new write
//! would still show the old content, and the repair would overwrite the only good copy. Also
//! rejected: carrying the reader's txg through every read. A cancelled reader would take its
//! protection away while its repair still writes.
//!
//! The cost: a reader that hangs keeps all later frees from being reused, up to the point of a full
//! pool. So no caller may wait for admission while it reads.

use std::collections::VecDeque;
use std::sync::Arc;

use aquifer_ondisk::Txg;
use aquifer_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use aquifer_sync::{Mutex, PERMUTED};

use crate::pool::Pool;

#[cfg(test)]
mod tests;

/// Number of separate epochs. A reader that outlasts that many commits keeps the epoch from
/// advancing. A little more freed space then stays unused, but the reader is never overlooked.
const SEATS: usize = 8;
const EPOCHS: u64 = SEATS as u64;
/// Shards, so that cores do not share a cache line.
const SHARDS: usize = if PERMUTED { 2 } else { 16 };

#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    readers: [AtomicUsize; SEATS],
}

#[derive(Debug)]
pub(crate) struct Readers {
    /// Never below `EPOCHS`, so that subtracting cannot underflow.
    epoch: AtomicU64,
    shards: [Shard; SHARDS],
    /// For each committed txg whose frees are held back: the last epoch whose readers may reach
    /// them. Changing the epoch and joining an older one need this lock too.
    retired: Mutex<VecDeque<(Txg, u64)>>,
}

/// Where a reader is counted.
#[derive(Debug, Clone, Copy)]
struct Seat {
    shard: usize,
    epoch: u64,
}

/// While it exists, nothing that was reachable when it was made is reused.
#[derive(Debug)]
pub struct Reading<'a> {
    readers: &'a Readers,
    seat: Seat,
}

/// Counterpart of [`Reading`] for a task that outlives its reader: while it exists, nothing that
/// its reader could reach is reused.
#[derive(Debug)]
pub(crate) struct Repairing {
    pool: Arc<Pool>,
    seat: Seat,
}

impl Readers {
    pub fn new() -> Self {
        Readers {
            epoch: AtomicU64::new(EPOCHS),
            shards: Default::default(),
            retired: Mutex::new(VecDeque::new()),
        }
    }

    fn count(&self, seat: Seat) -> Option<&AtomicUsize> {
        let index = usize::try_from(seat.epoch % EPOCHS).ok()?;
        self.shards.get(seat.shard)?.readers.get(index)
    }

    fn sit(&self, seat: Seat) {
        if let Some(count) = self.count(seat) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn leave(&self, seat: Seat) {
        if let Some(count) = self.count(seat) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn enter(&self) -> Seat {
        let shard = own_shard();
        loop {
            let seat = Seat { shard, epoch: self.epoch.load(Ordering::SeqCst) };
            self.sit(seat);
            // The epoch ended meanwhile, and a reader counted there might be overlooked: try again.
            if self.epoch.load(Ordering::SeqCst) == seat.epoch {
                return seat;
            }
            self.leave(seat);
        }
    }

    /// Joins the oldest epoch with readers, for a repair. The repair must count as long as its
    /// reader would have, and does not know that reader's epoch.
    fn enter_oldest(&self) -> Seat {
        let _unchanged = self.retired.lock();
        let epoch = self.epoch.load(Ordering::SeqCst);
        let oldest = (epoch - (EPOCHS - 1)..=epoch).find(|epoch| self.is_occupied(*epoch));
        let seat = Seat { shard: own_shard(), epoch: oldest.unwrap_or(epoch) };
        self.sit(seat);
        seat
    }

    fn is_occupied(&self, epoch: u64) -> bool {
        (0..SHARDS).any(|shard| {
            let count = self.count(Seat { shard, epoch });
            count.is_some_and(|count| count.load(Ordering::SeqCst) > 0)
        })
    }

    /// Notes that `txg` is on disk and that new readers find its roots.
    pub fn retire(&self, txg: Txg) {
        let mut retired = self.retired.lock();
        let epoch = self.epoch.load(Ordering::SeqCst);
        retired.push_back((txg, epoch));
        // The next epoch reuses the counters of an old one: they must be zero.
        if !self.is_occupied(epoch + 1) {
            self.epoch.store(epoch + 1, Ordering::SeqCst);
        }
    }

    /// The oldest txg whose frees some reader may still reach.
    pub fn oldest_read(&self) -> Option<Txg> {
        let mut retired = self.retired.lock();
        let epoch = self.epoch.load(Ordering::SeqCst);
        let oldest = (epoch - (EPOCHS - 1)..=epoch).find(|epoch| self.is_occupied(*epoch));
        let oldest = oldest.unwrap_or(u64::MAX);
        while retired.front().is_some_and(|(_, last)| *last < oldest) {
            retired.pop_front();
        }
        // Without readers no old block is read: the remaining entry was retired just now.
        retired.front().map(|(txg, _)| *txg)
    }

    /// Whether there is any reader or repair.
    pub fn is_busy(&self) -> bool {
        let epoch = self.epoch.load(Ordering::SeqCst);
        (epoch - (EPOCHS - 1)..=epoch).any(|epoch| self.is_occupied(epoch))
    }
}

fn own_shard() -> usize {
    aquifer_sync::thread_number() % SHARDS
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.readers.leave(self.seat);
    }
}

impl Drop for Repairing {
    fn drop(&mut self) {
        self.pool.readers.leave(self.seat);
    }
}

impl Pool {
    /// Begins to read. Take this before looking up any root or pointer, and keep it until the last
    /// block below it has been read: until then nothing that it may reach is reused.
    pub fn reading(&self) -> Reading<'_> {
        Reading { readers: &self.readers, seat: self.readers.enter() }
    }

    pub(crate) fn repairing(self: &Arc<Pool>) -> Repairing {
        Repairing { pool: self.clone(), seat: self.readers.enter_oldest() }
    }
}
