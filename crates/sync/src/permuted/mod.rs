//! As tests of threads have it: every operation begins with a [`point`].
//!
//! Outside of a test's run, where no scheduler is, all of them do what they do in service. So a
//! test may prepare things before, and a static may outlive it.
//!
//! The types keep the names and methods that the engine uses; more are added when they are used.

pub mod atomic;
mod local;
mod locks;
mod notices;
mod once;

use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use shuttle::current::try_get_current_task;

pub use local::{LocalKey, NoThread};
pub use locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use notices::{
    AsyncMutex, AsyncMutexGuard, Notified, Notify, OwnedNotified, Semaphore, SemaphorePermit,
};
pub use once::OnceLock;
#[doc(hidden)]
pub use shuttle;

/// Whether threads are permuted. What is large for speed alone is small then, so that tests reach
/// all of it in few steps.
pub const PERMUTED: bool = true;

/// Here another thread may go on.
pub fn point() {
    if is_scheduled() && !std::thread::panicking() {
        // shuttle knows no time: a sleep is a switch, and no hint that there is nothing to do.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// The number of the calling thread: small, and its own. The same whenever a seed is run.
pub fn thread_number() -> usize {
    try_get_current_task().map_or(0, usize::from)
}

fn is_scheduled() -> bool {
    try_get_current_task().is_some()
}

/// Threads that wait for a lock.
#[derive(Default)]
struct Waiters(parking_lot::Mutex<Vec<Waker>>);

impl Waiters {
    const fn new() -> Self {
        Waiters(parking_lot::Mutex::new(Vec::new()))
    }

    /// Tries until it succeeds. Between two tries the thread sleeps, so that shuttle sees when all
    /// of them wait for each other.
    fn acquire<G>(&self, mut attempt: impl FnMut() -> Option<G>) -> G {
        point();
        let mut waited = None;
        loop {
            if let Some(guard) = attempt() {
                // A notice that came meanwhile woke this wait, not the future around it.
                waited.inspect(Waker::wake_by_ref);
                return guard;
            }
            let mut asleep = false;
            waited = Some(shuttle::future::block_on(poll_fn(|context| {
                if std::mem::replace(&mut asleep, true) {
                    return Poll::Ready(context.waker().clone());
                }
                self.0.lock().push(context.waker().clone());
                Poll::Pending
            })));
        }
    }

    /// The lock was let go: the first that comes has it.
    fn wake(&self) {
        let waiters = std::mem::take(&mut *self.0.lock());
        waiters.iter().for_each(Waker::wake_by_ref);
    }
}
