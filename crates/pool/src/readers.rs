//! Who is reading under which root, so that no place is reused under a reader.
//!
//! A reader takes a committed root and then its blocks, one read after the other, without any lock.
//! Three commits later those blocks could be other data. That is worse than a wrong answer, which a
//! checksum would show: of a mirror one side may hold the new content already and the other not
//! yet, so the slow reader finds one copy bad and the other good, and its *repair* would overwrite
//! the new data with the old.
//!
//! So every reader enters the current **epoch** before it looks at any root. After a commit, when
//! no new reader can find what its txg freed, those frees are noted with the epoch of that moment,
//! and the epoch advances. Held-back frees are reused only once nobody is left in their epoch or an
//! older one. Nobody waits: what is not released by this commit is released by a later one. Writes
//! of repairs count as readers until they are done, even if the reader that asked has gone.
//!
//! Entering costs one atomic increment in a shard of the thread's own.
//!
//! Rejected: to check, before a repair, that the place is in use in the newest root, and to read
//! the good side once more. It needs nothing of readers, but a side that lost the new write without
//! saying so would still show the old content, and the only good copy would be overwritten.
//! Rejected too: to carry the reader's txg through every read. A reader that is cancelled would
//! take its protection away while the repair that it asked for still writes.
//!
//! The cost: a reader that hangs keeps what is freed meanwhile from being reused, up to the point
//! of a full pool. So nobody may wait for admission while reading.

use std::collections::VecDeque;
use std::sync::Arc;

use aquifer_ondisk::Txg;
use aquifer_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use aquifer_sync::{Mutex, PERMUTED};

use crate::pool::Pool;

#[cfg(test)]
mod tests;

/// Epochs told apart. A reader that outlasts as many commits keeps the epoch from advancing, and
/// so a little more from being reused, but is never overlooked.
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
    /// Never below `EPOCHS`, so that looking back needs no care.
    epoch: AtomicU64,
    shards: [Shard; SHARDS],
    /// Per committed txg whose frees are held back: the last epoch whose readers may know them.
    /// Locked also by whoever changes the epoch or joins an older one.
    retired: Mutex<VecDeque<(Txg, u64)>>,
}

/// Where somebody is counted.
#[derive(Debug, Clone, Copy)]
struct Seat {
    shard: usize,
    epoch: u64,
}

/// While it lives, nothing that was reachable when it was made is reused.
#[derive(Debug)]
pub struct Reading<'a> {
    readers: &'a Readers,
    seat: Seat,
}

/// The same for a task that outlives its reader.
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
            // Counted in an epoch that had ended meanwhile, it might be overlooked: once more.
            if self.epoch.load(Ordering::SeqCst) == seat.epoch {
                return seat;
            }
            self.leave(seat);
        }
    }

    /// Joins the oldest epoch in which anybody is left: for a repair, which must be counted as long
    /// as the reader that asked for it would have been, and does not know in which epoch that is.
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

    /// `txg` is on disk and its roots are the ones that new readers find.
    pub fn retire(&self, txg: Txg) {
        let mut retired = self.retired.lock();
        let epoch = self.epoch.load(Ordering::SeqCst);
        retired.push_back((txg, epoch));
        // The next epoch's counts are those of one long past: they must be empty.
        if !self.is_occupied(epoch + 1) {
            self.epoch.store(epoch + 1, Ordering::SeqCst);
        }
    }

    /// The oldest txg whose frees somebody may still read.
    pub fn oldest_read(&self) -> Option<Txg> {
        let mut retired = self.retired.lock();
        let epoch = self.epoch.load(Ordering::SeqCst);
        let oldest = (epoch - (EPOCHS - 1)..=epoch).find(|epoch| self.is_occupied(*epoch));
        let oldest = oldest.unwrap_or(u64::MAX);
        while retired.front().is_some_and(|(_, last)| *last < oldest) {
            retired.pop_front();
        }
        // Without any reader nothing of the past is read: what is left was retired just now.
        retired.front().map(|(txg, _)| *txg)
    }

    /// Whether anybody reads or repairs.
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
    /// Begins to read. To be taken before any root or pointer is looked up, and kept until the last
    /// block read by way of it has come: until then nothing that it may reach is reused.
    pub fn reading(&self) -> Reading<'_> {
        Reading { readers: &self.readers, seat: self.readers.enter() }
    }

    pub(crate) fn repairing(self: &Arc<Pool>) -> Repairing {
        Repairing { pool: self.clone(), seat: self.readers.enter_oldest() }
    }
}
