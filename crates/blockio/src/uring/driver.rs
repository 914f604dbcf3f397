//! The task that serves a ring: waits for the ring's descriptor in the runtime's reactor.
//!
//! Invariants:
//! - Readiness is cleared before completions are taken, so a completion that comes in between
//!   leaves the descriptor ready.
//! - When the task is dropped, finished or with its runtime, the ring is closed: every accepted
//!   operation gets an answer.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::ring::{PAUSE, Ring, Turn};

/// Makes a ring and starts its driver in `runtime`, which must be the current one.
#[expect(unsafe_code, reason = "the reactor must be told that the descriptor stays open")]
pub(super) fn launch(runtime: &Handle) -> io::Result<Arc<Ring>> {
    let ring = Arc::new(Ring::new()?);
    let descriptor = Descriptor(Arc::clone(&ring));
    // SAFETY: the descriptor is that of the ring, which it holds; a ring has the same one from its
    // making until it is dropped.
    let readiness = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    let driver = Driver { readiness: readiness?, ring: Arc::clone(&ring), wakers: Vec::new() };
    runtime.spawn(driver);
    Ok(ring)
}

struct Driver {
    readiness: AsyncFd<Descriptor>,
    ring: Arc<Ring>,
    /// Kept for its memory; empty between two turns.
    wakers: Vec<Waker>,
}

/// The ring's descriptor, open as long as this exists.
struct Descriptor(Arc<Ring>);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let turn = this.ring.turn(cx.waker(), &mut this.wakers);
            this.wakers.drain(..).for_each(Waker::wake);
            match turn {
                Turn::Finished => return Poll::Ready(()),
                Turn::Soon => {
                    // The kernel is out of memory for requests, and no operation of ours is under
                    // way whose end could wake us. So a pause of the thread does no further harm.
                    std::thread::sleep(PAUSE);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Turn::Wait => {}
            }
            match this.readiness.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                // The reactor is shutting down, and this task with it.
                Poll::Ready(Err(_)) => return Poll::Ready(()),
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.ring.close(DRAIN);
    }
}

/// How long a driver that ends with its runtime waits for the kernel.
const DRAIN: Duration = Duration::from_secs(10);
