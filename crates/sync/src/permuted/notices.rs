//! Asynchronous types: those of `tokio`, with a point before each operation and each poll of a
//! waiter.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync;

use super::point;

pub use tokio::sync::SemaphorePermit;

/// `tokio::sync::Notify`, permuted.
#[derive(Debug, Default)]
pub struct Notify(Arc<sync::Notify>);

impl Notify {
    /// As in `tokio`.
    pub fn new() -> Self {
        Notify::default()
    }

    /// As in `tokio`.
    pub fn notify_one(&self) {
        point();
        self.0.notify_one();
    }

    /// As in `tokio`.
    pub fn notify_waiters(&self) {
        point();
        self.0.notify_waiters();
    }

    /// As in `tokio`.
    pub fn notified(&self) -> Notified<'_> {
        point();
        Waiting(Box::pin(self.0.notified()))
    }

    /// As in `tokio`.
    pub fn notified_owned(self: Arc<Self>) -> OwnedNotified {
        point();
        Waiting(Box::pin(self.0.clone().notified_owned()))
    }
}

/// A wait for a [`Notify`].
pub type Notified<'a> = Waiting<sync::futures::Notified<'a>>;
/// A wait for a [`Notify`] that owns it.
pub type OwnedNotified = Waiting<sync::futures::OwnedNotified>;

/// A wait for a notice.
#[derive(Debug)]
pub struct Waiting<F>(Pin<Box<F>>);

impl Waiting<sync::futures::Notified<'_>> {
    /// As in `tokio`.
    pub fn enable(mut self: Pin<&mut Self>) -> bool {
        point();
        self.0.as_mut().enable()
    }
}

impl<F: Future> Future for Waiting<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        point();
        self.0.as_mut().poll(context)
    }
}

/// `tokio::sync::Mutex`, permuted.
#[derive(Default)]
pub struct AsyncMutex<T>(sync::Mutex<T>);

impl<T> AsyncMutex<T> {
    /// As in `tokio`.
    pub fn new(value: T) -> Self {
        AsyncMutex(sync::Mutex::new(value))
    }

    /// As in `tokio`.
    pub async fn lock(&self) -> AsyncMutexGuard<'_, T> {
        point();
        AsyncMutexGuard(self.0.lock().await)
    }

    /// As in `tokio`.
    ///
    /// # Errors
    /// Another task has the lock.
    pub fn try_lock(&self) -> Result<AsyncMutexGuard<'_, T>, sync::TryLockError> {
        point();
        self.0.try_lock().map(AsyncMutexGuard)
    }
}

impl<T: fmt::Debug> fmt::Debug for AsyncMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Guard of an [`AsyncMutex`].
#[derive(Debug)]
pub struct AsyncMutexGuard<'a, T>(sync::MutexGuard<'a, T>);

impl<T> Deref for AsyncMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for AsyncMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for AsyncMutexGuard<'_, T> {
    /// A point before the release.
    fn drop(&mut self) {
        point();
    }
}

/// `tokio::sync::Semaphore`, permuted.
#[derive(Debug)]
pub struct Semaphore(sync::Semaphore);

impl Semaphore {
    /// As in `tokio`.
    pub fn new(permits: usize) -> Self {
        Semaphore(sync::Semaphore::new(permits))
    }

    /// As in `tokio`.
    ///
    /// # Errors
    /// The semaphore is closed.
    pub async fn acquire_many(
        &self,
        permits: u32,
    ) -> Result<SemaphorePermit<'_>, sync::AcquireError> {
        point();
        self.0.acquire_many(permits).await
    }

    /// As in `tokio`.
    pub fn add_permits(&self, permits: usize) {
        point();
        self.0.add_permits(permits);
    }
}
