//! How much of a sync is on its way to the devices at once.
//!
//! A sync could fill the queues of its devices, and whoever wants a few sectors meanwhile (a batch
//! of the intent log, a read) would wait behind all of it. So the sync keeps a window: it grows
//! while its writes come back soon and shrinks while they take long. A slow disk is kept busy by a
//! few writes, a fast one takes many before any of them waits.

use std::time::Duration;

use aquifer_sync::atomic::{AtomicUsize, Ordering};
use aquifer_sync::{Semaphore, SemaphorePermit};

use super::limits::{
    SYNC_WINDOW_SECTORS_FIRST, SYNC_WINDOW_SECTORS_MAX, SYNC_WINDOW_SECTORS_MIN,
    SYNC_WRITE_ALONE_MS, SYNC_WRITE_BESIDE_LOG_MS,
};

/// The window of a pool's syncs.
#[derive(Debug)]
pub(crate) struct Pace {
    room: Semaphore,
    sectors: AtomicUsize,
}

impl Pace {
    pub fn new() -> Pace {
        let sectors = SYNC_WINDOW_SECTORS_FIRST;
        Pace { room: Semaphore::new(sectors), sectors: AtomicUsize::new(sectors) }
    }

    /// Waits until a write of `count` sectors fits in the window.
    pub async fn enter(&self, count: usize) -> Option<SemaphorePermit<'_>> {
        let count = u32::try_from(count.min(SYNC_WINDOW_SECTORS_MIN)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.room.acquire_many(count).await.ok()
    }

    /// A write has come back after `took`. `log_beside`: batches of the log go to the same disks.
    pub fn leave(&self, permit: Option<SemaphorePermit<'_>>, took: Duration, log_beside: bool) {
        let Some(mut permit) = permit else { return };
        let long = if log_beside { SYNC_WRITE_BESIDE_LOG_MS } else { SYNC_WRITE_ALONE_MS };
        let order = Ordering::Relaxed;
        if took > Duration::from_millis(long) {
            // Counted first: two that come back at once must not shrink it below its least.
            let most = permit.num_permits() / 2;
            let less = |sectors: usize| sectors.saturating_sub(SYNC_WINDOW_SECTORS_MIN).min(most);
            let before = self.sectors.fetch_update(order, order, |now| Some(now - less(now)));
            let less = less(before.unwrap_or_else(|now| now));
            if let Some(gone) = permit.split(less) {
                gone.forget();
            }
        } else {
            let most = permit.num_permits().div_ceil(4);
            let more = |sectors: usize| SYNC_WINDOW_SECTORS_MAX.saturating_sub(sectors).min(most);
            let before = self.sectors.fetch_update(order, order, |now| Some(now + more(now)));
            self.room.add_permits(more(before.unwrap_or_else(|now| now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_how_long_writes_take() {
        aquifer_sim::Sim::new(1).run_until(shrink_and_grow()).unwrap();
    }

    async fn shrink_and_grow() {
        let pace = Pace::new();
        let longest = Duration::from_millis(SYNC_WRITE_BESIDE_LOG_MS);
        let slow = longest + Duration::from_millis(1);
        for _ in 0..200 {
            let permit = pace.enter(256).await;
            pace.leave(permit, slow, true);
        }
        assert_eq!(pace.room.available_permits(), SYNC_WINDOW_SECTORS_MIN);
        // As long as a write may take is not too long.
        let permit = pace.enter(4).await;
        pace.leave(permit, longest, true);
        assert_eq!(pace.room.available_permits(), SYNC_WINDOW_SECTORS_MIN + 1);
        // Never less than a write of any size needs.
        let permit = pace.enter(SYNC_WINDOW_SECTORS_MAX).await;
        pace.leave(permit, slow, true);
        for _ in 0..200 {
            let permit = pace.enter(256).await;
            // Not long where the log has disks of its own.
            pace.leave(permit, slow, false);
        }
        assert_eq!(pace.room.available_permits(), SYNC_WINDOW_SECTORS_MAX);
    }
}
