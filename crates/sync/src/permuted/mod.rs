//! The types for tests of threads: every operation begins with a [`point`].
//!
//! Outside of a test's run there is no scheduler, and all of them behave as in service. So a test
//! may prepare things before its run, and a static may outlive it.
//!
//! The types have the names and methods that the engine uses; more are added when they are needed.

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

/// Whether threads are permuted. Structures that are large only for speed are then small, so that
/// tests reach all of them in few steps.
pub const PERMUTED: bool = true;

/// Lets another thread go on, if the scheduler wants that.
pub fn point() {
    if is_scheduled() && !std::thread::panicking() {
        // shuttle knows no time: a sleep is only a switch, and no hint that the thread has nothing
        // to do.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// The number of the calling thread: small and unique. It is the same in each run of a seed.
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

    /// Tries until it succeeds. Between two tries the thread sleeps, so that shuttle notices a
    /// deadlock.
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

    /// The lock was released: the first thread that comes gets it.
    fn wake(&self) {
        let waiters = std::mem::take(&mut *self.0.lock());
        waiters.iter().for_each(Waker::wake_by_ref);
    }
}
