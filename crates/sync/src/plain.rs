//! The types in service: those of the libraries themselves.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use std::sync::OnceLock;
pub use std::sync::atomic;
pub use std::thread_local;

pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use tokio::sync::futures::{Notified, OwnedNotified};
pub use tokio::sync::{
    Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, Notify, Semaphore, SemaphorePermit,
};

/// Whether threads are permuted. Structures that are large only for speed are then small, so that
/// tests reach all of them in few steps.
pub const PERMUTED: bool = false;

/// The number of the calling thread: small and unique.
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    OWN.with(Cell::get)
}
