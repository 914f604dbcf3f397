//! Locks that a thread waits for. Outside of a run they wait as in service.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{Waiters, is_scheduled};

/// `parking_lot::Mutex`, permuted.
#[derive(Default)]
pub struct Mutex<T> {
    waiters: Waiters,
    inner: parking_lot::Mutex<T>,
}

/// Guard of a [`Mutex`].
pub type MutexGuard<'a, T> = Guard<'a, parking_lot::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    /// As in `parking_lot`.
    pub const fn new(value: T) -> Self {
        Mutex { waiters: Waiters::new(), inner: parking_lot::Mutex::new(value) }
    }

    /// As in `parking_lot`.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let inner = match is_scheduled() {
            true => self.waiters.acquire(|| self.inner.try_lock()),
            false => self.inner.lock(),
        };
        Guard { inner, _wakes: Wakes(&self.waiters) }
    }

    /// As in `parking_lot`.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// `parking_lot::RwLock`, permuted.
#[derive(Default)]
pub struct RwLock<T> {
    waiters: Waiters,
    inner: parking_lot::RwLock<T>,
}

/// Read guard of an [`RwLock`].
pub type RwLockReadGuard<'a, T> = Guard<'a, parking_lot::RwLockReadGuard<'a, T>>;
/// Write guard of an [`RwLock`].
pub type RwLockWriteGuard<'a, T> = Guard<'a, parking_lot::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    /// As in `parking_lot`.
    pub const fn new(value: T) -> Self {
        RwLock { waiters: Waiters::new(), inner: parking_lot::RwLock::new(value) }
    }

    /// As in `parking_lot`.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let inner = match is_scheduled() {
            true => self.waiters.acquire(|| self.inner.try_read()),
            false => self.inner.read(),
        };
        Guard { inner, _wakes: Wakes(&self.waiters) }
    }

    /// As in `parking_lot`.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let inner = match is_scheduled() {
            true => self.waiters.acquire(|| self.inner.try_write()),
            false => self.inner.write(),
        };
        Guard { inner, _wakes: Wakes(&self.waiters) }
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A held lock. Dropping releases the lock first and then wakes the waiters: fields are dropped in
/// their order.
pub struct Guard<'a, G> {
    inner: G,
    _wakes: Wakes<'a>,
}

struct Wakes<'a>(&'a Waiters);

impl Drop for Wakes<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

impl<G: Deref> Deref for Guard<'_, G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guard<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

impl<G: fmt::Debug> fmt::Debug for Guard<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
