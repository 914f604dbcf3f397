//! When an act of a host has its turn.
//!
//! All acts of a pool come one at a time, each on disk before the next one. A host that asks for
//! thousands must hold up neither the administrator nor other hosts.
//!
//! # Invariants
//! - At most one act of all hosts waits among those of administrators: these come first.
//! - At most one act of each host waits for that place: hosts take turns.
//! - Each host has so many acts under way, and begins so many in a minute. A call too many hears
//!   "later", and changed nothing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use aquifer_sync::atomic::{AtomicU64, Ordering};
use aquifer_sync::{AsyncMutex, AsyncMutexGuard, Mutex};

use crate::error::FsError;
use crate::site::site;

/// Acts of one host that wait or are carried out, at most.
const UNDER_WAY_MAX: u64 = 16;
/// Hosts that are remembered, unless more have acts under way.
const HOSTS_MAX: usize = 256;

/// Limits of hosts that a `snapcontrol` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLimits {
    /// Acts that a host begins in a minute, as many of them at once; 0: any number.
    pub acts_in_minute: u32,
    /// With this many snapshots in a dataset, of itself and of its files together, hosts take no
    /// more; 0: any number.
    pub snapshots: u32,
}

impl HostLimits {
    /// No limits, as of a pool that no daemon serves.
    pub const NONE: HostLimits = HostLimits { acts_in_minute: 0, snapshots: 0 };
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Turns {
    limits: Mutex<HostLimits>,
    hosts: Mutex<HashMap<IpAddr, Arc<Host>>>,
    /// The turn among all hosts.
    next: AsyncMutex<()>,
}

#[derive(Debug)]
struct Host {
    under_way: AtomicU64,
    turn: AsyncMutex<()>,
    left: Mutex<Left>,
}

/// Acts that a host may begin now, in thousandths.
#[derive(Debug)]
struct Left {
    milli: u64,
    at: Duration,
}

/// One act.
const ACT: u64 = 1000;

/// An act that was let in.
#[derive(Debug)]
pub(crate) struct Entered(Arc<Host>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The turn of an act.
pub(crate) struct Turn<'a> {
    _next: AsyncMutexGuard<'a, ()>,
    _of_host: AsyncMutexGuard<'a, ()>,
}

impl Default for Turns {
    fn default() -> Self {
        Turns {
            limits: Mutex::new(HostLimits::NONE),
            hosts: Mutex::default(),
            next: AsyncMutex::new(()),
        }
    }
}

impl Turns {
    pub fn limits(&self) -> HostLimits {
        *self.limits.lock()
    }

    pub fn set(&self, limits: HostLimits) {
        *self.limits.lock() = limits;
    }

    /// Lets an act of a host in.
    ///
    /// # Errors
    /// [`FsError::TryLater`]: the host has asked for too many.
    pub fn enter(&self, host: IpAddr, now: Duration) -> Result<Entered, FsError> {
        let limits = self.limits();
        let host = self.host(site(host), now, limits);
        if !host.left.lock().take(limits.acts_in_minute, now) {
            return Err(FsError::TryLater);
        }
        if host.under_way.fetch_add(1, Ordering::Relaxed) >= UNDER_WAY_MAX {
            host.under_way.fetch_sub(1, Ordering::Relaxed);
            return Err(FsError::TryLater);
        }
        Ok(Entered(host))
    }

    /// Waits for the turn of an act.
    pub async fn turn<'a>(&'a self, entered: &'a Entered) -> Turn<'a> {
        let of_host = entered.0.turn.lock().await;
        Turn { _next: self.next.lock().await, _of_host: of_host }
    }

    fn host(&self, site: IpAddr, now: Duration, limits: HostLimits) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        if hosts.len() >= HOSTS_MAX && !hosts.contains_key(&site) {
            // Those that have all their acts again are as good as unknown.
            hosts.retain(|_, host| {
                let is_fresh = host.left.lock().is_whole(limits.acts_in_minute, now);
                host.under_way.load(Ordering::Relaxed) > 0 || !is_fresh
            });
        }
        let new = || {
            Arc::new(Host {
                under_way: AtomicU64::new(0),
                turn: AsyncMutex::new(()),
                left: Mutex::new(Left { milli: most(limits.acts_in_minute), at: now }),
            })
        };
        hosts.entry(site).or_insert_with(new).clone()
    }
}

impl Left {
    fn refill(&mut self, in_minute: u32, now: Duration) {
        let since_ms = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        let come = since_ms.saturating_mul(in_minute.into()) / 60;
        if come > 0 {
            self.milli = self.milli.saturating_add(come).min(most(in_minute));
            self.at = now;
        }
    }

    fn take(&mut self, in_minute: u32, now: Duration) -> bool {
        self.refill(in_minute, now);
        let left = self.milli.checked_sub(ACT);
        self.milli = left.unwrap_or(self.milli);
        left.is_some() || in_minute == 0
    }

    fn is_whole(&mut self, in_minute: u32, now: Duration) -> bool {
        self.refill(in_minute, now);
        self.milli >= most(in_minute)
    }
}

/// Acts, in thousandths, of a host that has begun none in the last minute.
fn most(in_minute: u32) -> u64 {
    u64::from(in_minute) * ACT
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn host(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn a_host_begins_so_many_acts_in_a_minute_and_others_theirs() {
        let turns = Turns::default();
        turns.set(HostLimits { acts_in_minute: 60, ..HostLimits::NONE });
        let begun = |host, from_s: u64| {
            let now = Duration::from_secs(from_s);
            (0..200).filter(|_| turns.enter(host, now).is_ok()).count()
        };
        assert_eq!(begun(host(1), 100), 60);
        assert_eq!(begun(host(1), 100), 0);
        assert_eq!(begun(host(2), 100), 60);
        assert_eq!(begun(host(1), 110), 10);
        assert_eq!(begun(host(1), 10_000), 60);
    }

    #[test]
    fn a_host_has_so_many_under_way_and_hosts_are_forgotten() {
        let turns = Turns::default();
        let now = Duration::from_secs(1);
        let enter = |last| turns.enter(host(last), now);
        let held: Vec<Entered> = (0..100).filter_map(|_| enter(1).ok()).collect();
        assert_eq!(held.len() as u64, UNDER_WAY_MAX);
        assert!(enter(2).is_ok());
        drop(held);
        assert!(enter(1).is_ok());
        for network in 0..4 * HOSTS_MAX as u128 {
            let address = Ipv6Addr::from_bits(0xfd << 120 | network << 64 | 7).into();
            assert!(turns.enter(address, now).is_ok());
        }
        assert!(turns.hosts.lock().len() <= HOSTS_MAX);
    }
}
