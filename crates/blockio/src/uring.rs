//! The engine on io_uring: one ring for each thread and runtime, made when first needed.
//!
//! An operation uses the ring of the thread and the runtime that poll its future first. If there is
//! no such ring, that poll makes one, served by a driver task in that runtime. So every thread of
//! every runtime may start I/O, and a current-thread runtime has exactly one ring. Normally no
//! operation moves between threads. The future may move to another thread afterwards. The runtime
//! must have its I/O driver enabled.
//!
//! Where there can be no ring (no runtime, the kernel refuses one, the runtime is shutting down),
//! the operation goes through [`pread`](crate::pread) instead: slower, never lost.
//!
//! Invariants:
//! - An operation's memory belongs to its ring from the first poll until the kernel has answered.
//! - A ring outlives its thread: it retires when the thread ends, and its driver goes on until all
//!   accepted operations have ended.

mod driver;
mod flight;
mod ring;
mod slab;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::{Handle, Id};

pub(crate) use ring::UringOperation;

use crate::request::Request;
use ring::Ring;

/// Starts `request` on the ring of this thread and runtime, or gives it back if there is none.
pub(crate) fn start(request: Request) -> Result<UringOperation, Request> {
    let Ok(runtime) = Handle::try_current() else {
        return Err(request);
    };
    let ring = RINGS.try_with(|rings| rings.borrow_mut().of(&runtime));
    match ring {
        Ok(Some(ring)) => ring.start(request),
        _ => Err(request),
    }
}

/// Whether the kernel allows this process rings; tried once.
///
/// # Errors
/// The kernel's answer: `EPERM` where they are forbidden, `ENOSYS` where they do not exist.
pub(crate) fn available() -> Result<(), i32> {
    static ANSWER: OnceLock<Result<(), i32>> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let probed = ring::probe();
        probed.map_err(|error| error.raw_os_error().unwrap_or(libc::ENOSYS))
    })
}

thread_local! {
    static RINGS: RefCell<ThreadRings> = const { RefCell::new(ThreadRings(Vec::new())) };
}

/// The rings of one thread: one, unless it drives several runtimes.
struct ThreadRings(Vec<(Id, Arc<Ring>)>);

impl ThreadRings {
    /// The ring for `runtime`, made if there is none.
    fn of(&mut self, runtime: &Handle) -> Option<Arc<Ring>> {
        let id = runtime.id();
        let known = self.0.iter().find(|(of, ring)| *of == id && !ring.is_closed());
        if let Some((_, ring)) = known {
            return Some(Arc::clone(ring));
        }
        self.0.retain(|(_, ring)| !ring.is_closed());
        match driver::launch(runtime) {
            Ok(ring) => {
                self.0.push((id, Arc::clone(&ring)));
                Some(ring)
            }
            Err(error) => {
                static SAID: AtomicBool = AtomicBool::new(false);
                if !SAID.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "no io_uring on this thread: using blocking calls");
                }
                None
            }
        }
    }
}

impl Drop for ThreadRings {
    fn drop(&mut self) {
        for (_, ring) in self.0.drain(..) {
            ring.retire();
        }
    }
}

#[cfg(test)]
mod tests;
