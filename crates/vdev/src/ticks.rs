//! One timer for all who wait for a leaf: it ticks while anybody waits.
//!
//! Time is counted in ticks of this process, not by the clock. A machine that was stopped or
//! starved for a minute has seen no ticks meanwhile. So no disk is blamed for that minute.
//!
//! Invariant: nobody waits without a task that ticks; that task ends at the first tick for which
//! nobody waits.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_sync::atomic::{AtomicU64, Ordering};
use aquifer_sync::{Mutex, PERMUTED};

/// Between two ticks. Where threads are permuted, minutes may pass while a disk's thread waits for
/// its turn: few ticks then, or nothing else gets one.
const TICK_MS: u64 = if PERMUTED { 10_000 } else { 50 };

/// The timer.
pub(crate) struct Ticks {
    pub(crate) world: Arc<dyn World>,
    passed: AtomicU64,
    waiters: Mutex<Waiters>,
}

#[derive(Default)]
struct Waiters {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
    ticks: bool,
}

impl Ticks {
    pub(crate) fn new(world: Arc<dyn World>) -> Arc<Self> {
        Arc::new(Ticks { world, passed: AtomicU64::new(0), waiters: Mutex::default() })
    }

    /// Ticks until nobody waits.
    async fn run(self: Arc<Self>) {
        loop {
            self.world.sleep(Duration::from_millis(TICK_MS)).await;
            let mut waiters = self.waiters.lock();
            self.passed.fetch_add(1, Ordering::Release);
            let wakers: Vec<Waker> = waiters.wakers.iter().flatten().cloned().collect();
            if wakers.is_empty() {
                waiters.ticks = false;
                return;
            }
            drop(waiters);
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

impl fmt::Debug for Ticks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticks")
    }
}

/// One who waits: woken at each tick until this is dropped.
pub(crate) struct Waiting {
    ticks: Arc<Ticks>,
    slot: usize,
    began: u64,
}

impl Waiting {
    /// Begins to wait.
    pub(crate) fn new(ticks: &Arc<Ticks>, context: &Context<'_>) -> Waiting {
        let mut waiters = ticks.waiters.lock();
        let slot = waiters.free.pop().unwrap_or(waiters.wakers.len());
        let waker = Some(context.waker().clone());
        match waiters.wakers.get_mut(slot) {
            Some(place) => *place = waker,
            None => waiters.wakers.push(waker),
        }
        let starts = !std::mem::replace(&mut waiters.ticks, true);
        drop(waiters);
        if starts {
            ticks.world.spawn("ticks", Box::pin(ticks.clone().run()));
        }
        let began = ticks.passed.load(Ordering::Acquire);
        Waiting { ticks: ticks.clone(), slot, began }
    }

    /// Polled again, perhaps by another task.
    pub(crate) fn renew(&self, context: &Context<'_>) {
        let mut waiters = self.ticks.waiters.lock();
        if let Some(Some(waker)) = waiters.wakers.get_mut(self.slot) {
            waker.clone_from(context.waker());
        }
    }

    /// How long it has waited at least.
    pub(crate) fn waited_ms(&self) -> u64 {
        let ticks = self.ticks.passed.load(Ordering::Acquire) - self.began;
        // The first one may have come at once.
        ticks.saturating_sub(1) * TICK_MS
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waiters = self.ticks.waiters.lock();
        let waker = waiters.wakers.get_mut(self.slot).and_then(Option::take);
        waiters.free.push(self.slot);
        drop(waiters);
        drop(waker);
    }
}
