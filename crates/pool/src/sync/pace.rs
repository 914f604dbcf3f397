//! How a sync follows the plan of the flow.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use super::SyncContext;
use crate::flow::limits::{SYNC_LOOK_MS, SYNC_WRITES_MAX};
use crate::pool::Pool;

impl SyncContext {
    /// A step is done. Waits while more is on its way than memory should hold, and while the sync
    /// is ahead of its plan.
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

    /// A step is done: others have their turn, and if the sync is ahead of its plan, it waits.
    pub(super) async fn step(&self) {
        if !self.pool.flow.sync_stepped() {
            return;
        }
        // The kernel's workers first, then what this sync has handed out.
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
