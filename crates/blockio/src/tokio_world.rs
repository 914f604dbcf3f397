//! `TokioWorld`: the [`World`] of a daemon.
//!
//! Invariants:
//! - The clock is monotonic and starts at zero when the world is made.
//! - A task that panics is reported: the world never loses one silently.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::world::{Task, World};

/// Clock, randomness and executor from tokio and the system.
#[derive(Debug)]
pub struct TokioWorld {
    start: Instant,
    /// The runtime for tasks that are spawned on a thread without one.
    home: Handle,
}

impl TokioWorld {
    /// A world whose home is the runtime `home`, which must have its timer enabled.
    pub fn new(home: Handle) -> Self {
        TokioWorld { start: Instant::now(), home }
    }
}

impl World for TokioWorld {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall_ns(&self) -> u64 {
        // A clock before 1970 or after 2554 is wrong. For timestamps shown to people the nearest
        // end is as good as any answer.
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            Err(_) => 0,
        }
    }

    fn sleep(&self, delay: Duration) -> Task {
        // Made at the first poll: a timer belongs to the runtime that waits for it.
        Box::pin(async move { tokio::time::sleep(delay).await })
    }

    fn yield_thread(&self) {
        std::thread::yield_now();
    }

    /// A task that is woken at once goes to the end of the queue. The runtime looks at sockets when
    /// that queue is empty, or after 61 tasks: with two tasks of 50 us that wake themselves, after
    /// 3 ms. One that yields is woken after that look.
    fn wake_last(&self, waker: &Waker) {
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(waker));
    }

    fn random(&self) -> u64 {
        match getrandom::u64() {
            Ok(random) => random,
            // Repeated guids would mix pools up: better to stop.
            Err(error) => panic!("the system gives no random numbers: {error}"),
        }
    }

    fn spawn(&self, name: &'static str, task: Task) {
        let task = async move {
            let guard = Report(name);
            task.await;
            drop(guard);
        };
        match Handle::try_current() {
            Ok(runtime) => runtime.spawn(task),
            Err(_) => self.home.spawn(task),
        };
    }
}

/// Says so if it is dropped by a panic.
struct Report(&'static str);

impl Drop for Report {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.0, "a task panicked: what it did is left undone");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Poll;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn time_passes_and_sleep_lasts() {
        let runtime = runtime();
        let world = TokioWorld::new(runtime.handle().clone());
        let nap = world.sleep(Duration::from_millis(20));
        let before = world.now();
        runtime.block_on(nap);
        assert!(world.now() - before >= Duration::from_millis(20));
        // 2020 to 2200: in nanoseconds, not in seconds or microseconds.
        assert!((1_577_836_800_000_000_000..7_258_118_400_000_000_000).contains(&world.wall_ns()));
        assert_ne!(world.random(), world.random());
    }

    /// A task that is always ready, beside one that waits for a socket.
    #[test]
    fn a_task_that_is_woken_last_lets_sockets_come_first() {
        let runtime = runtime();
        let world = TokioWorld::new(runtime.handle().clone());
        let (mut sender, receiver) = std::os::unix::net::UnixStream::pair().unwrap();
        receiver.set_nonblocking(true).unwrap();
        let came = Arc::new(AtomicBool::new(false));
        let turns = runtime.block_on(async {
            let receiver = tokio::net::UnixStream::from_std(receiver).unwrap();
            let seen = Arc::clone(&came);
            tokio::spawn(async move {
                receiver.readable().await.unwrap();
                seen.store(true, Ordering::Relaxed);
            });
            tokio::task::yield_now().await;
            sender.write_all(b"a call").unwrap();
            let mut turns = 0;
            poll_fn(|context| {
                if came.load(Ordering::Relaxed) {
                    return Poll::Ready(turns);
                }
                turns += 1;
                world.wake_last(context.waker());
                Poll::Pending
            })
            .await
        });
        assert!(turns <= 2, "{turns} turns");
    }

    #[test]
    fn tasks_run_beside_the_caller_and_from_outside() {
        let runtime = runtime();
        let world = TokioWorld::new(runtime.handle().clone());
        for outside in [true, false] {
            let ran = Arc::new(AtomicBool::new(false));
            let seen = Arc::clone(&ran);
            let task: Task = Box::pin(async move { seen.store(true, Ordering::Relaxed) });
            if outside {
                world.spawn("outside", task);
                runtime.block_on(tokio::task::yield_now());
            } else {
                runtime.block_on(async {
                    world.spawn("inside", task);
                    assert!(!ran.load(Ordering::Relaxed), "run by spawn itself");
                    tokio::task::yield_now().await;
                });
            }
            assert!(ran.load(Ordering::Relaxed));
        }
    }
}
