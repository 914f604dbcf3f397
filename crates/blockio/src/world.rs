//! The engine's surroundings beside disks: time, randomness, tasks.
//!
//! The engine starts no thread, reads no clock and knows no runtime. In service a `World` uses
//! tokio; in the simulator it uses one thread and one seed.

use std::future::Future;
use std::pin::Pin;
use std::task::Waker;
use std::time::Duration;

/// A future that can be handed to the world's executor.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Clock, randomness and executor of one pool.
pub trait World: Send + Sync {
    /// Monotonic time since an arbitrary start.
    fn now(&self) -> Duration;

    /// Wall-clock time in nanoseconds since 1970-01-01 UTC: for timestamps shown to people and
    /// clients, never for order.
    fn wall_ns(&self) -> u64;

    /// Completes once `delay` has passed.
    fn sleep(&self, delay: Duration) -> Task;

    /// Lets other threads of the machine run, the kernel's workers among them. A world that runs on
    /// one thread has none.
    fn yield_thread(&self) {}

    /// Wakes a task behind all others of its thread: those that are ready, and those that the
    /// network or a disk makes ready.
    fn wake_last(&self, waker: &Waker) {
        waker.wake_by_ref();
    }

    /// A random number: guids, seeds of hashes.
    fn random(&self) -> u64;

    /// Runs `task` to its end beside the caller, on the caller's runtime. `name` is for traces.
    fn spawn(&self, name: &'static str, task: Task);
}

/// Whole milliseconds.
pub fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
