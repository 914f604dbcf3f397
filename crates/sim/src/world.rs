//! The simulated surroundings of the pool: virtual time, seeded randomness, tasks.
//!
//! Invariants:
//! - Time passes only in the executor: two reads of the clock in one poll are equal.
//! - `now` restarts at a reboot and continues over a kill, as a machine's monotonic clock does; the
//!   wall clock continues over both.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_blockio::world::Task;

use crate::clock::TimerTicket;
use crate::disk::device::nanoseconds;
use crate::machine::Shared;

#[cfg(test)]
mod tests;

/// A handle on the simulated world.
#[derive(Clone)]
pub struct SimWorld {
    shared: Arc<Shared>,
}

impl SimWorld {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        SimWorld { shared }
    }

    /// Other ready tasks may run before the caller continues.
    pub fn yield_now(&self) -> impl Future<Output = ()> + Send + use<> {
        YieldNow { yielded: false }
    }
}

impl World for SimWorld {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.machine.lock().clock.uptime_ns())
    }

    fn wall_ns(&self) -> u64 {
        let machine = self.shared.machine.lock();
        machine.wall_base_ns.wrapping_add(machine.clock.now_ns())
    }

    fn sleep(&self, delay: Duration) -> Task {
        let now_ns = self.shared.machine.lock().clock.now_ns();
        let deadline_ns = now_ns.saturating_add(nanoseconds(delay));
        Box::pin(Sleep { shared: Arc::clone(&self.shared), deadline_ns, timer: None })
    }

    fn random(&self) -> u64 {
        self.shared.machine.lock().random.next_u64()
    }

    fn spawn(&self, name: &'static str, task: Task) {
        self.shared.tasks.add(name, Some(task));
    }
}

impl fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimWorld")
    }
}

struct Sleep {
    shared: Arc<Shared>,
    deadline_ns: u64,
    timer: Option<TimerTicket>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = Arc::clone(&self.shared);
        let mut machine = shared.machine.lock();
        let clock = &mut machine.clock;
        let mut replaced = None;
        let passed = clock.now_ns() >= self.deadline_ns;
        if passed {
            replaced = self.timer.take().and_then(|ticket| clock.timer_cancel(ticket));
        } else {
            let mut runs = false;
            if let Some(ticket) = self.timer {
                (runs, replaced) = clock.timer_renew(ticket, context.waker());
            }
            if !runs {
                self.timer = Some(clock.timer_start(self.deadline_ns, context.waker().clone()));
            }
        }
        drop(machine);
        drop(replaced);
        if passed { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(ticket) = self.timer.take() {
            let waker = self.shared.machine.lock().clock.timer_cancel(ticket);
            drop(waker);
        }
    }
}

struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
