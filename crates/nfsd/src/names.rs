//! The addresses of hosts that exports name, looked up in the background and kept.
//!
//! A client is the host N if looking up N gives its address: forward only. Reverse lookups are
//! never used, since the owner of an address could claim any name.
//!
//! Order: the static file of hosts goes before DNS. An answer is valid for its TTL, but within a
//! floor and a ceiling, and is then renewed. While no server answers, the last good answer is valid
//! for some days. "No such name" is an answer, too.
//!
//! Invariants:
//! - No request ever waits for a name: the export table holds addresses, and gets new ones when
//!   they are there.
//! - The export table gets all followed names, in the order of the changes.

pub mod dns;
mod files;
mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aquifer_nfs::{Addresses, HostAddresses};
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::limits::{LOOKUP_RETRY, LOOKUPS_MAX, NAME_AGE_MAX, NAME_TTL_MAX, NAME_TTL_MIN};
use dns::Answer;
use servers::Servers;

#[cfg(test)]
mod tests;

/// The sources of lookups, and how long answers are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesConfig {
    /// DNS servers; if empty, those of `resolv_conf`.
    pub servers: Vec<SocketAddr>,
    /// The system's configuration of its resolver, resolv.conf(5): servers and domains to search.
    pub resolv_conf: PathBuf,
    /// The static table of hosts, hosts(5).
    pub hosts: PathBuf,
    /// An answer is valid at least this long, whatever its TTL.
    pub ttl_min: Duration,
    /// And at most this long.
    pub ttl_max: Duration,
    /// When to try again after no answer.
    pub retry: Duration,
    /// While no server answers, the last answer is valid at most this long.
    pub age_max: Duration,
}

impl Default for NamesConfig {
    fn default() -> Self {
        NamesConfig {
            servers: Vec::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            hosts: "/etc/hosts".into(),
            ttl_min: NAME_TTL_MIN,
            ttl_max: NAME_TTL_MAX,
            retry: LOOKUP_RETRY,
            age_max: NAME_AGE_MAX,
        }
    }
}

/// The knowledge of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHost {
    /// Its name.
    pub name: String,
    /// Its addresses, by the last good answer.
    pub addresses: Vec<IpAddr>,
    /// The problem: no answer at the last lookup, or it has no address.
    pub problem: Option<String>,
}

/// Followed names. Dropping this ends the following.
pub struct Names {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    config: NamesConfig,
    hosts: Mutex<BTreeMap<String, Host>>,
    /// A name was added or looked up.
    wake: Notify,
    tell: Box<dyn Fn(Addresses) + Send + Sync>,
}

#[derive(Clone, Debug)]
struct Host {
    addresses: HostAddresses,
    /// When each family was last answered.
    answered: [Instant; 2],
    problem: Option<String>,
    due: Instant,
    /// If `false`, it is forgotten when it is due.
    followed: bool,
}

/// The result of a lookup, for each family.
#[derive(Debug)]
struct Lookup {
    v4: Result<Answer, String>,
    v6: Result<Answer, String>,
}

impl Names {
    /// Begins to follow names, on the present runtime: none at first. `tell` gets the addresses of
    /// all names whenever one has changed.
    pub fn start(config: NamesConfig, tell: impl Fn(Addresses) + Send + Sync + 'static) -> Names {
        let (hosts, wake) = Default::default();
        let shared = Arc::new(Shared { config, hosts, wake, tell: Box::new(tell) });
        let task = tokio::spawn(Arc::clone(&shared).keep_up());
        Names { shared, task }
    }

    /// Follows these names from now on, and no others.
    pub fn follow(&self, names: &BTreeSet<String>) {
        let mut hosts = self.shared.hosts.lock();
        hosts.retain(|name, _| names.contains(name));
        for name in names {
            hosts.entry(name.clone()).or_insert_with(|| Host::due_at(Instant::now())).followed =
                true;
        }
        self.shared.publish(&hosts);
        drop(hosts);
        self.shared.wake.notify_one();
    }

    /// Looks names up now, even known ones, and waits for the answers, at most for `patience`.
    /// Names that are not followed are forgotten when their answers expire.
    pub async fn look_up(&self, names: &BTreeSet<String>, patience: Duration) -> Vec<KnownHost> {
        {
            let mut hosts = self.shared.hosts.lock();
            let due = Instant::now() + patience.max(self.shared.config.retry);
            for name in names {
                hosts.entry(name.clone()).or_insert_with(|| Host::due_at(due));
            }
        }
        // The task asks again for late answers, if the name is followed by then.
        let _ = timeout(patience, self.shared.refresh(names.iter().cloned().collect())).await;
        self.shared.wake.notify_one();
        let known = self.known();
        known.into_iter().filter(|host| names.contains(&host.name)).collect()
    }

    /// The knowledge of all names.
    pub fn known(&self) -> Vec<KnownHost> {
        let hosts = self.shared.hosts.lock();
        let known = hosts.iter().map(|(name, host)| KnownHost {
            name: name.clone(),
            addresses: host.addresses.all().collect(),
            problem: host.problem(),
        });
        known.collect()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Names").field(&self.known()).finish()
    }
}

impl Shared {
    /// Looks up due names, for ever.
    async fn keep_up(self: Arc<Self>) {
        loop {
            let (due, next) = {
                let (now, mut hosts) = (Instant::now(), self.hosts.lock());
                hosts.retain(|_, host| host.followed || host.due > now);
                let due = hosts.iter().filter(|(_, host)| host.due <= now);
                let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
                (due, hosts.values().map(|host| host.due).min())
            };
            if !due.is_empty() {
                self.refresh(due).await;
                continue;
            }
            let sleep = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {}
                () = self.wake.notified() => {}
            }
        }
    }

    /// Looks names up, some at a time; each answer is valid at once.
    async fn refresh(&self, names: Vec<String>) {
        let (hosts_file, servers) = (&files::hosts(&self.config.hosts), &self.servers());
        let mut names = names.into_iter();
        let look_up = |name: String| async move {
            let lookup = match hosts_file.get(&name) {
                Some(addresses) => of_file(addresses),
                None => servers.look_up(&name).await,
            };
            (name, lookup)
        };
        let mut running: FuturesUnordered<_> =
            names.by_ref().take(LOOKUPS_MAX).map(&look_up).collect();
        while let Some((name, lookup)) = running.next().await {
            self.learn(&name, lookup);
            running.extend(names.next().map(&look_up));
        }
    }

    fn servers(&self) -> Servers {
        let mut servers = files::resolv_conf(&self.config.resolv_conf);
        if !self.config.servers.is_empty() {
            servers.addresses.clone_from(&self.config.servers);
        }
        servers
    }

    fn learn(&self, name: &str, lookup: Lookup) {
        let mut hosts = self.hosts.lock();
        // The name is not wanted any more.
        let Some(host) = hosts.get_mut(name) else { return };
        let before = host.clone();
        host.learn(lookup, &self.config);
        let (known, problem) = (host.addresses.clone(), host.problem());
        let addresses: Vec<IpAddr> = known.all().collect();
        if problem != before.problem() {
            match &problem {
                Some(problem) => tracing::warn!(name, ?addresses, problem, "host in sharenfs"),
                None => tracing::info!(name, ?addresses, "host in sharenfs: found"),
            }
        }
        if known != before.addresses {
            tracing::info!(name, ?addresses, "host in sharenfs: its addresses from now on");
            self.publish(&hosts);
        }
    }

    fn publish(&self, hosts: &BTreeMap<String, Host>) {
        let known = hosts.iter().map(|(name, host)| (name.clone(), host.addresses.clone()));
        (self.tell)(known.collect());
    }
}

impl Host {
    fn due_at(due: Instant) -> Self {
        let (addresses, problem) = Default::default();
        Host { addresses, answered: [Instant::now(); 2], problem, due, followed: false }
    }

    /// Whether there was ever an answer.
    fn is_known(&self) -> bool {
        self.addresses != HostAddresses::default()
    }

    fn has_address(&self) -> bool {
        self.addresses.all().next().is_some()
    }

    fn problem(&self) -> Option<String> {
        match &self.problem {
            Some(problem) if self.is_known() => Some(format!("{problem}; the last answer holds")),
            Some(problem) => Some(problem.clone()),
            None if !self.is_known() => Some("it is being looked up".into()),
            None => (!self.has_address()).then(|| "it has no address".into()),
        }
    }

    fn learn(&mut self, lookup: Lookup, config: &NamesConfig) {
        let (mut found, mut none) = (config.ttl_max, config.ttl_max);
        self.problem = None;
        let HostAddresses { v4, v6 } = &mut self.addresses;
        let families = [(v4, lookup.v4), (v6, lookup.v6)].into_iter().zip(&mut self.answered);
        for ((family, answer), answered) in families {
            match answer {
                Ok(mut answer) => {
                    answer.addresses.sort_unstable();
                    answer.addresses.dedup();
                    let ttl = if answer.addresses.is_empty() { &mut none } else { &mut found };
                    *ttl = (*ttl).min(answer.ttl.max(config.ttl_min));
                    *family = Some(answer.addresses);
                    *answered = Instant::now();
                }
                Err(problem) => {
                    found = found.min(config.retry);
                    self.problem = Some(problem);
                    // Another host may have the address by now.
                    if answered.elapsed() > config.age_max {
                        *family = None;
                    }
                }
            }
        }
        // A missing address of the other family does not cause frequent lookups.
        let ttl = if self.has_address() { found } else { found.min(none) };
        self.due = Instant::now() + ttl;
    }
}

/// The file may change at any time, so it is read again as early as the floor allows.
fn of_file(addresses: &[IpAddr]) -> Lookup {
    let (v4, v6) = addresses.iter().partition(|address| address.is_ipv4());
    let answer = |addresses| Ok(Answer { addresses, ttl: Duration::ZERO });
    Lookup { v4: answer(v4), v6: answer(v6) }
}
