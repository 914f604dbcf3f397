//! How a sync spreads its work over the time that it has.
//!
//! Left alone, a sync takes a processor and then the disks for itself, and whoever wants a stable
//! write meanwhile waits: the kernel completes it on that processor, which is given up at a tick of
//! its clock only, and the flush of a batch waits for all that the sync has put into the device's
//! cache. But the next txg needs its time to fill, and the sync may take that: it is done with its
//! data when the open txg is half full, or after [`SYNC_SPREAD_MS`]. Where somebody waits for the
//! txg nothing is spread, and slow disks are behind that plan anyway.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use aquifer_sync::atomic::{AtomicU64, Ordering};

use super::limits::{SYNC_DONE_AT_FILL, SYNC_LOOK_MS, SYNC_SPREAD_MS, SYNC_STEPS_PER_LOOK};
use crate::pool::Pool;
use crate::txg::share;

/// The plan of one sync.
#[derive(Debug)]
pub(crate) struct Spread {
    begun: Duration,
    /// What it writes, as far as is known when it begins.
    sectors: u64,
    handed_out: AtomicU64,
    steps: AtomicU64,
}

impl Spread {
    pub fn new(begun: Duration, dirty_bytes: u64) -> Spread {
        Spread {
            begun,
            sectors: dirty_bytes / 4096,
            handed_out: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        }
    }

    /// Sectors are on their way to disk.
    pub fn hands_out(&self, sectors: u64) {
        self.handed_out.fetch_add(sectors, Ordering::Relaxed);
    }

    /// A step is done: others have their turn, and if the sync is ahead of its plan, it waits.
    pub async fn step(&self, pool: &Pool) {
        let steps = self.steps.fetch_add(1, Ordering::Relaxed);
        if !steps.is_multiple_of(SYNC_STEPS_PER_LOOK) {
            return;
        }
        // The kernel's workers first, then what this sync has handed out.
        pool.world.yield_thread();
        turn_of_others().await;
        while self.is_ahead(pool) {
            pool.world.sleep(Duration::from_millis(SYNC_LOOK_MS)).await;
        }
    }

    fn is_ahead(&self, pool: &Pool) -> bool {
        let handed_out = self.handed_out.load(Ordering::Relaxed);
        let elapsed = pool.world.now().saturating_sub(self.begun).as_secs_f64();
        let time = elapsed / Duration::from_millis(SYNC_SPREAD_MS).as_secs_f64();
        let planned = time.max(pool.open_fill() / SYNC_DONE_AT_FILL);
        planned < 1.0 && share(handed_out, self.sectors) > planned && !pool.txgs.is_awaited()
    }
}

/// Lets the other tasks of this thread go on.
async fn turn_of_others() {
    let mut waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
