//! How a sync keeps to the flow's plan.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use aquifer_sync::{Semaphore, SemaphorePermit};

use super::SyncContext;
use crate::flow::limits::{SYNC_LOOK_MS, SYNC_WINDOW_SECTORS_FIRST, SYNC_WRITES_MAX};
use crate::flow::{Flow, Resize, SyncWrite};
use crate::pool::Pool;

/// The window of a pool's syncs: the sectors that may be in progress at once.
#[derive(Debug)]
pub(crate) struct Window(Semaphore);

impl Window {
    pub fn new() -> Window {
        Window(Semaphore::new(SYNC_WINDOW_SECTORS_FIRST))
    }

    /// Waits until a write of `count` sectors fits.
    pub async fn enter(&self, flow: &Flow, count: usize) -> Option<SemaphorePermit<'_>> {
        let entry = u32::try_from(flow.window_entry(count)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.0.acquire_many(entry).await.ok()
    }

    /// Notes that a write of `count` sectors has ended after `took`.
    pub fn leave(
        &self,
        flow: &Flow,
        permit: Option<SemaphorePermit<'_>>,
        (count, took): (usize, Duration),
    ) {
        let Some(mut permit) = permit else { return };
        let write = SyncWrite { sectors: count as u64, entered: permit.num_permits(), took };
        match flow.sync_wrote(write) {
            Resize::Grow(more) => self.0.add_permits(more),
            Resize::Shrink(less) => {
                if let Some(gone) = permit.split(less) {
                    gone.forget();
                }
            }
        }
    }
}

impl SyncContext {
    /// Ends a step. Waits while writes in progress take too much memory, and while the sync is
    /// ahead of its plan.
    pub async fn pace(&self) {
        self.step().await;
        loop {
            let landed = self.flight.landed.notified();
            let writes = self.flight.state.lock().writes;
            if writes <= SYNC_WRITES_MAX {
                return;
            }
            landed.await;
        }
    }

    /// Ends a step: lets others run, and waits if the sync is ahead of its plan.
    pub(super) async fn step(&self) {
        if !self.pool.flow.sync_stepped() {
            return;
        }
        // The kernel's workers first, then the tasks of this sync.
        self.pool.world.yield_thread();
        turn_of_others().await;
        while self.pool.sync_is_ahead() {
            self.pool.world.sleep(Duration::from_millis(SYNC_LOOK_MS)).await;
        }
    }
}

impl Pool {
    fn sync_is_ahead(&self) -> bool {
        let (fill, awaited) = self.open_look();
        self.flow.sync_is_ahead(self.world.now(), fill, awaited)
    }
}

/// Lets the other tasks of this thread run.
pub async fn turn_of_others() {
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
