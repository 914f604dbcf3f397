//! How often the log reports hosts that claim to have restarted: a claim costs its sender nothing.
//!
//! Invariant: one line a minute for a host, and for a limited number of hosts. The next line of a
//! host counts its unreported claims, unless the host was forgotten in between.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::{TOLD_HOSTS_MAX, TOLD_PAUSE};

#[derive(Debug, Default)]
pub(super) struct Told {
    /// When a host was last reported, and its claims since then.
    hosts: Mutex<HashMap<IpAddr, (Instant, u64)>>,
}

impl Told {
    /// Whether to report a host now; if so, returns the number of its unreported claims.
    pub fn is_due(&self, host: IpAddr) -> Option<u64> {
        self.is_due_at(Instant::now(), host)
    }

    fn is_due_at(&self, now: Instant, host: IpAddr) -> Option<u64> {
        let mut hosts = self.hosts.lock();
        let is_recent = |at: Instant| now.duration_since(at) < TOLD_PAUSE;
        if let Some((at, times)) = hosts.get_mut(&host) {
            if is_recent(*at) {
                *times += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(times));
        }
        hosts.retain(|_, (at, _)| is_recent(*at));
        if hosts.len() >= TOLD_HOSTS_MAX {
            return None;
        }
        hosts.insert(host, (now, 0));
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn a_host_is_told_of_once_a_minute() {
        let (told, begun) = (Told::default(), Instant::now());
        assert_eq!(told.is_due_at(begun, host(1)), Some(0));
        for _ in 0..1000 {
            assert_eq!(told.is_due_at(begun, host(1)), None);
        }
        assert_eq!(told.is_due_at(begun, host(2)), Some(0));
        let first = |now, from| {
            (from..250).filter(|number| told.is_due_at(now, host(*number)).is_some()).count()
        };
        assert_eq!(first(begun, 3), TOLD_HOSTS_MAX - 2);
        let later = begun + TOLD_PAUSE;
        assert_eq!(told.is_due_at(later, host(1)), Some(1000));
        assert_eq!(first(later, 100), TOLD_HOSTS_MAX - 1);
    }
}
