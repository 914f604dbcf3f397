//! Memory that connections share: leased in granules, first come, first served.
//!
//! Invariants:
//! - All leases together never hold more than the budget. A lease never uses more than it holds
//!   plus its allowance, except after [`Lease::force`], which is repaid before the lease takes
//!   more.
//! - A lease holds unneeded memory only up to a slack, and none when it uses none or others wait.
//! - A lease that waits for a budget holds none of it that another waiter for that same budget
//!   needs to go on: requests are leased before replies, never the other way.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use aquifer_pool::Share;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::limits::{GRANULE_BYTES, LEASE_SLACK_BYTES};

#[cfg(test)]
mod tests;

/// Bytes for one purpose of all connections.
#[derive(Debug)]
pub(crate) struct Budget {
    free: Arc<Semaphore>,
    granules: u32,
    waiting: AtomicUsize,
    /// How often a lease had to wait.
    waits: AtomicU64,
    /// Its part of the memory of the process. The read cache gives way to it.
    share: Option<Share>,
}

impl Budget {
    pub(crate) fn new(bytes: usize, share: Option<Share>) -> Arc<Self> {
        let granules = u32::try_from(bytes / GRANULE_BYTES).unwrap_or(u32::MAX);
        let free = Arc::new(Semaphore::new(usize::try_from(granules).unwrap_or(usize::MAX)));
        let (waiting, waits) = (AtomicUsize::new(0), AtomicU64::new(0));
        Arc::new(Budget { free, granules, waiting, waits, share })
    }

    /// Bytes that leases hold.
    pub(crate) fn held_bytes(&self) -> usize {
        let all = usize::try_from(self.granules).unwrap_or(usize::MAX);
        all.saturating_sub(self.free.available_permits()) * GRANULE_BYTES
    }

    /// More of it is leased, and about to be used.
    fn has_grown(&self) {
        if let Some(share) = &self.share {
            share.grow_to(self.held_bytes() as u64);
        }
    }

    fn give_back(&self, granules: usize) {
        self.free.add_permits(granules);
        if let Some(share) = &self.share {
            share.settle(|| self.held_bytes() as u64);
        }
    }

    /// How often a lease had to wait.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Whether any lease waits.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// One connection's part of a budget.
pub(crate) struct Lease {
    budget: Arc<Budget>,
    allowance: usize,
    held: usize,
    used: usize,
    wait: Option<Wait>,
}

/// A place in the budget's queue.
struct Wait {
    granted: Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>,
    _counted: Counted,
}

struct Counted(Arc<Budget>);

impl Counted {
    fn new(budget: &Arc<Budget>) -> Self {
        budget.waiting.fetch_add(1, Ordering::Relaxed);
        budget.waits.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(budget))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease {
    /// An empty lease, with `allowance` bytes that need no lease.
    pub(crate) fn new(budget: &Arc<Budget>, allowance: usize) -> Self {
        Lease { budget: Arc::clone(budget), allowance, held: 0, used: 0, wait: None }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    /// Bytes that can be taken without asking the budget.
    pub(crate) fn headroom(&self) -> usize {
        (self.allowance + self.held).saturating_sub(self.used)
    }

    /// Takes `bytes` if they are available.
    pub(crate) fn try_take(&mut self, bytes: usize) -> bool {
        let Some(granules) = self.missing(bytes) else {
            self.used += bytes;
            return true;
        };
        match self.budget.free.try_acquire_many(granules) {
            Ok(permit) => {
                permit.forget();
                self.budget.has_grown();
                self.held += granule_bytes(granules);
                self.used += bytes;
                true
            }
            Err(_) => false,
        }
    }

    /// Takes `bytes` as soon as it is this connection's turn. It waits for the whole amount, even
    /// if a part of what it holds is free, because that part may be gone by then.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        loop {
            if let Some(wait) = &mut self.wait {
                let Poll::Ready(granted) = wait.granted.as_mut().poll(cx) else {
                    return Poll::Pending;
                };
                self.wait = None;
                if let Ok(permit) = granted {
                    let granules = u32::try_from(permit.num_permits()).unwrap_or(0);
                    permit.forget();
                    self.budget.has_grown();
                    self.held += granule_bytes(granules);
                }
            }
            if self.try_take(bytes) {
                self.trim();
                return Poll::Ready(());
            }
            self.keep(0);
            let debt = self.used.saturating_sub(self.allowance + self.held);
            let granules = u32::try_from((bytes + debt).div_ceil(GRANULE_BYTES));
            // No lease can wait for more than the whole budget.
            let granules = granules.unwrap_or(u32::MAX).min(self.budget.granules);
            let free = Arc::clone(&self.budget.free);
            let granted = Box::pin(free.acquire_many_owned(granules));
            self.wait = Some(Wait { granted, _counted: Counted::new(&self.budget) });
        }
    }

    /// Whether it has a place in the queue.
    pub(crate) fn waits(&self) -> bool {
        self.wait.is_some()
    }

    /// Gives up its place in the queue.
    pub(crate) fn cancel_wait(&mut self) {
        self.wait = None;
    }

    /// Takes `bytes` that are in use already, whether they are available or not.
    pub(crate) fn force(&mut self, bytes: usize) {
        if !self.try_take(bytes) {
            self.used += bytes;
        }
    }

    /// Returns `bytes`.
    pub(crate) fn give(&mut self, bytes: usize) {
        assert!(bytes <= self.used, "gave back more than was taken");
        self.used -= bytes;
        self.trim();
    }

    /// Returns memory that is held and not needed, except for a slack if no other lease can use it.
    fn trim(&mut self) {
        let keeps = self.used > 0 && !self.budget.is_short();
        self.keep(if keeps { LEASE_SLACK_BYTES } else { 0 });
    }

    /// Returns memory beyond the needed part, if that is more than `slack`.
    fn keep(&mut self, slack: usize) {
        let needed = self.used.saturating_sub(self.allowance).next_multiple_of(GRANULE_BYTES);
        if self.held > needed + slack {
            self.release(self.held - needed);
        }
    }

    /// Granules that must be leased before `bytes` more are used; `None` if none.
    fn missing(&self, bytes: usize) -> Option<u32> {
        let short = (self.used + bytes).checked_sub(self.allowance + self.held)?;
        let granules = u32::try_from(short.div_ceil(GRANULE_BYTES)).unwrap_or(u32::MAX);
        (granules > 0).then_some(granules)
    }

    fn release(&mut self, bytes: usize) {
        self.held -= bytes;
        self.budget.give_back(bytes / GRANULE_BYTES);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.release(self.held);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, held, waits) = (self.used, self.held, self.wait.is_some());
        write!(f, "Lease {{ used: {used}, held: {held}, waits: {waits} }}")
    }
}

fn granule_bytes(granules: u32) -> usize {
    usize::try_from(granules).unwrap_or(usize::MAX).saturating_mul(GRANULE_BYTES)
}
