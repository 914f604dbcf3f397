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
        self.pool.turn_of_others().await;
        while self.pool.sync_is_ahead() {
            self.pool.world.sleep(Duration::from_millis(SYNC_LOOK_MS)).await;
        }
    }
}

impl Pool {
    /// Lets others run: threads of the machine, the kernel's workers among them, then the other
    /// tasks of this thread.
    pub async fn turn_of_others(&self) {
        self.world.yield_thread();
        self.turn_of_tasks().await;
    }

    /// Lets the other tasks of this thread run. Where processors are busy, a thread that gives its
    /// own away may wait 100 us for it: this does not.
    async fn turn_of_tasks(&self) {
        let mut waited = false;
        poll_fn(|context| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            self.world.wake_last(context.waker());
            Poll::Pending
        })
        .await;
    }

    fn sync_is_ahead(&self) -> bool {
        let (fill, awaited) = self.open_look();
        self.flow.sync_is_ahead(self.world.now(), fill, awaited)
    }
}

/// Parts of a call, of some 20 us, between two turns of other threads.
const PARTS_OF_A_THREAD: u32 = 5;

/// A client's call that is carried out in parts. The other tasks of its thread have their turn
/// between two of them, and other threads of the machine now and then.
#[derive(Debug, Default)]
pub struct Parts {
    done: u32,
}

impl Parts {
    /// Ends a part.
    pub async fn step(&mut self, pool: &Pool) {
        self.done = self.done.wrapping_add(1);
        // While the disks do not answer, a call that is not done counts as one that waits for them:
        // its client hears "later" (NFS), although all that it wants may be in memory.
        if pool.is_silent() {
            return;
        }
        match self.done.is_multiple_of(PARTS_OF_A_THREAD) {
            true => pool.turn_of_others().await,
            false => pool.turn_of_tasks().await,
        }
    }
}

/// The longest turn: a client waits for it.
const TURN: Duration = Duration::from_micros(200);
/// Others that take less than this have nothing to do.
const NOTHING: Duration = Duration::from_micros(20);
/// Steps of a turn at most: a simulator's clock stands still while its tasks work.
const STEPS: usize = 64;

/// The longest rest between two turns beside clients: one that waited for disks left the processor
/// to others.
const REST_MAX: Duration = Duration::from_millis(2);

/// Long work that no client waits for: it is done in turns. Between two of them the other tasks of
/// its thread have as much time as the last one took, if they have use for it. While clients are at
/// work, on any thread, it rests: those that serve them want the processors.
#[derive(Debug)]
pub struct Turns {
    began: Duration,
    steps: usize,
}

impl Turns {
    /// The work begins.
    pub fn new(pool: &Pool) -> Turns {
        Turns { began: pool.world.now(), steps: 0 }
    }

    /// Ends a step of the work. Returns whether others had a turn.
    pub async fn step(&mut self, pool: &Pool) -> bool {
        self.steps += 1;
        let world = &pool.world;
        let mut now = world.now();
        let worked = now.saturating_sub(self.began);
        if self.steps < STEPS && worked < TURN {
            return false;
        }
        if !worked.is_zero() && pool.flow.clients_are_busy(now) {
            world.sleep(pool.flow.background_rest(worked).min(REST_MAX)).await;
            *self = Turns::new(pool);
            return true;
        }
        let mut given = Duration::ZERO;
        loop {
            pool.turn_of_others().await;
            let took = world.now().saturating_sub(now);
            (now, given) = (now + took, given + took);
            if took < NOTHING || given >= worked {
                break;
            }
        }
        *self = Turns { began: now, steps: 0 };
        true
    }
}
