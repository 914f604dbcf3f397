//! Pools that belong here and are not served yet.
//!
//! A start takes a moment, or many seconds. Kernel clients that hear "later" ask again. libnfs, and
//! with it QEMU's own driver, gives that to the guest as an I/O error; but an answer that takes its
//! time is one like any other. So calls are held for as long as a start takes ([`HOLD`]), and only
//! then hear "later": a pool without its disks must not keep the places of a connection: others
//! need them.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long calls wait for a pool that is about to come, from when it is: longer than a start waits
/// for slow disks (15 s), and less than any client waits for an answer.
const HOLD: Duration = Duration::from_secs(20);

/// The pools, and the calls that wait for them.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Whether there are any.
    any: AtomicBool,
    pools: RwLock<Pools>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Pools {
    names: BTreeSet<String>,
    /// Until when calls wait.
    hold_until: Option<Instant>,
}

impl Awaited {
    /// Exactly these are awaited from now on.
    pub fn set(&self, names: BTreeSet<String>) {
        self.change(|pools| pools.names = names);
    }

    /// Awaits these, too.
    pub fn add(&self, names: BTreeSet<String>) {
        self.change(|pools| pools.names.extend(names));
    }

    fn change(&self, change: impl FnOnce(&mut Pools)) {
        {
            let mut pools = self.pools.write();
            let before = pools.names.clone();
            change(&mut pools);
            if !pools.names.is_subset(&before) {
                pools.hold_until = Some(Instant::now() + HOLD);
            }
            self.any.store(!pools.names.is_empty(), Ordering::Release);
        }
        self.look_again();
    }

    /// Lets those that wait look whether the pool is there.
    pub fn look_again(&self) {
        self.changed.notify_waiters();
    }

    /// Whether any pool is awaited.
    pub fn is_some(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether this one is.
    pub fn contains(&self, name: &str) -> bool {
        self.pools.read().names.contains(name)
    }

    /// Whether calls wait at present.
    pub fn is_holding(&self) -> bool {
        self.is_some() && self.hold_until().is_some()
    }

    fn hold_until(&self) -> Option<Instant> {
        let until = self.pools.read().hold_until?;
        (self.is_some() && Instant::now() < until).then_some(until)
    }

    /// Waits until something is so, or no more pools are awaited, or the time is over.
    pub async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            let Some(until) = self.hold_until() else { return };
            if is_so() || timeout_at(until, changed).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::sync::Arc;
    use std::task::Poll;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    /// A runtime whose clock goes on when nobody has anything to do.
    fn at_once(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap().block_on(test);
    }

    #[test]
    fn a_call_waits_until_its_pool_is_there_or_for_a_while() {
        at_once(async {
            let awaited = Awaited::default();
            let begun = Instant::now();
            awaited.until(|| false).await;
            assert_eq!(begun.elapsed(), Duration::ZERO, "nothing is awaited");
            awaited.set(names(&["tank", "other"]));
            awaited.until(|| false).await;
            assert_eq!(begun.elapsed(), HOLD, "it is not held longer");
            // A pool that stays away holds nobody from then on.
            awaited.set(names(&["other"]));
            assert!(awaited.is_some() && !awaited.is_holding());
            awaited.until(|| false).await;
            assert_eq!(begun.elapsed(), HOLD);
            // One that goes out for a moment does again.
            awaited.add(names(&["tank"]));
            let is_there = AtomicBool::new(false);
            let mut waits = pin!(awaited.until(|| is_there.load(Ordering::Relaxed)));
            assert_eq!(futures_util::poll!(waits.as_mut()), Poll::Pending);
            awaited.look_again();
            assert_eq!(futures_util::poll!(waits.as_mut()), Poll::Pending, "it is not there yet");
            is_there.store(true, Ordering::Relaxed);
            awaited.look_again();
            waits.await;
            assert_eq!(begun.elapsed(), HOLD);
        });
    }

    #[test]
    fn calls_go_on_once_nothing_is_awaited() {
        at_once(async {
            let awaited = Arc::new(Awaited::default());
            awaited.set(names(&["tank"]));
            let begun = Instant::now();
            let waits = Arc::clone(&awaited);
            let waits = tokio::spawn(async move { waits.until(|| false).await });
            tokio::time::sleep(Duration::from_secs(1)).await;
            awaited.set(names(&[]));
            waits.await.unwrap();
            assert_eq!(begun.elapsed(), Duration::from_secs(1));
        });
    }
}
