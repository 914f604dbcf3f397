//! The locks of a server, between the protocols and the daemon.
//!
//! Invariants:
//! - A client is on the durable list before its first lock is answered. A client without locks
//!   leaves the list when another joins it: only then is the list written.
//! - After a restart, only clients that were on the list may reclaim earlier locks. They may do so
//!   until the grace period has ended, and until they were told of the restart and had their time.
//! - A lock taken over a connection can only be released over one: the sender of a datagram can be
//!   forged.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use aquifer_files::{FileHandle, Guid};
use aquifer_pool::BoxFuture;
use parking_lot::Mutex;

use super::callouts::{Callout, Callouts, GrantAnswer, Next, granted_call};
use super::restarts::{Belief, Restart, Restarts};
use super::table::{Ask, Blocker, Locked, Shared, Table};
use super::{Client, LockView, Owner, Range};
use crate::limits::HOSTS_LOOK;

/// The outside world of the locks: the daemon, or a test.
pub trait Outside: Send + Sync + fmt::Debug {
    /// Called when [`Locks::next_host`] or [`Locks::next_restart`] has something.
    fn wake(&self);

    /// Writes a new list of clients to tell of a restart to disk, in place of the old one, because
    /// `newcomer` joins it. Lists are requested and written one at a time.
    /// [`io::ErrorKind::WouldBlock`]: not now, clients of its address join too often.
    fn keep<'a>(
        &'a self,
        newcomer: &'a Client,
        list: &'a (dyn DurableList + 'a),
    ) -> BoxFuture<'a, io::Result<()>>;
}

/// The list of clients to tell of a restart.
pub trait DurableList: Send + Sync {
    /// The list to write. `None` if the newcomer is on the list that was written last.
    fn list(&self) -> Option<Vec<Monitored>>;

    /// The list from [`DurableList::list`] is on disk.
    fn written(&self);
}

/// A client to tell of a restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Monitored {
    /// The client.
    pub client: Client,
    /// Our address as the client knows it, if that is known.
    pub via: Option<IpAddr>,
}

/// The clients that may reclaim locks from before a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimants {
    /// Everybody: the earlier holders are not known.
    Everybody,
    /// These.
    Listed(HashSet<Client>),
}

impl Claimants {
    fn contain(&self, client: &Client) -> bool {
        match self {
            Claimants::Everybody => true,
            // The list is kept as text.
            Claimants::Listed(listed) => listed.contains(&client.as_text()),
        }
    }
}

/// The locks of a server. They outlive the sockets: pools may leave and come back.
#[derive(Debug)]
pub struct Locks {
    outside: Option<Arc<dyn Outside>>,
    /// The state number of the status monitor: odd while a host is up, another after each start.
    state: i32,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: Table,
    /// Only reclaims are granted.
    grace: bool,
    claimants: Claimants,
    callouts: Callouts,
    restarts: Restarts,
    /// Notes on clients that have locks, and on some that had.
    hosts: HashMap<Arc<Client>, Host>,
    /// The clients that are on the durable list.
    durable: HashSet<Arc<Client>>,
}

/// A client that has locks.
#[derive(Debug)]
struct Host {
    /// Our address as the client knows it.
    via: Option<IpAddr>,
    /// It expects to be told of a restart.
    is_monitored: bool,
    /// It locks over connections.
    by_stream: bool,
    /// The state of its status monitor, from its last LOCK; 0 means unknown.
    state: i32,
}

/// The circumstances of a lock request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Whether to wait.
    pub may_wait: bool,
    /// Whether the client expects to be told of a restart.
    pub is_monitored: bool,
    /// Whether it came over a connection.
    pub by_stream: bool,
    /// The state of the client's status monitor.
    pub state: i32,
}

impl Locks {
    /// Locks of a server whose status monitor has this `state`. With `claimants`, only their
    /// reclaims are granted until [`Locks::end_grace`].
    pub fn new(outside: Arc<dyn Outside>, state: i32, claimants: Option<Claimants>) -> Self {
        Locks { outside: Some(outside), state, inner: Mutex::new(Inner::new(claimants)) }
    }

    /// Locks of a server that calls no client and keeps no list: clients that wait must ask again.
    pub fn alone() -> Self {
        Locks { outside: None, state: 1, inner: Mutex::new(Inner::new(None)) }
    }

    /// Ends the grace period: from now on everybody gets locks. Clients on the list may still
    /// reclaim theirs, if nobody else has them by then: until [`Locks::end_claims`].
    pub fn end_grace(&self) {
        let mut inner = self.inner.lock();
        inner.grace = false;
        if inner.claimants == Claimants::Everybody {
            inner.claimants = Claimants::Listed(HashSet::new());
        }
    }

    /// Ends the time in which a client may reclaim its locks.
    pub fn end_claims(&self, client: &Client) {
        if let Claimants::Listed(listed) = &mut self.inner.lock().claimants {
            listed.remove(client);
        }
    }

    /// Whether only reclaims are granted.
    pub fn in_grace(&self) -> bool {
        self.inner.lock().grace
    }

    /// Whether a client may reclaim locks from before the restart.
    pub(crate) fn may_claim(&self, client: &Client) -> bool {
        self.inner.lock().claimants.contain(client)
    }

    /// The state number of the status monitor.
    pub fn state(&self) -> i32 {
        self.state
    }

    /// All locks, for people.
    pub fn list(&self) -> Vec<LockView> {
        self.inner.lock().table.list()
    }

    /// How many locks a file has: held, waited for, and shares.
    pub(crate) fn count_on(&self, file: FileHandle) -> usize {
        self.inner.lock().table.count_on(file)
    }

    /// A host with messages that no caller serves yet. The caller serves it until
    /// [`Locks::next_callout`] returns nothing.
    pub fn next_host(&self) -> Option<IpAddr> {
        self.inner.lock().callouts.next_host()
    }

    /// The next message to a host that is being served. `None` ends that.
    pub fn next_callout(&self, host: IpAddr) -> Option<Callout> {
        let mut inner = self.inner.lock();
        loop {
            match inner.callouts.next_for(host)? {
                Next::Result(result) => return Some(result),
                Next::Grant(grant) => {
                    if let Some(found) = inner.table.grants.get(grant) {
                        return Some(granted_call(grant, found));
                    }
                }
            }
        }
    }

    /// Whether a grant is still to be announced: the client may have called about it meanwhile.
    pub fn is_on_its_way(&self, grant: u64) -> bool {
        self.inner.lock().table.grants.get(grant).is_some()
    }

    /// Takes the result of announcing a grant to a host that is being served. After
    /// [`GrantAnswer::Later`] the grant is the next message to that host.
    pub fn granted(&self, grant: u64, answer: GrantAnswer) {
        self.changing(|inner| match answer {
            GrantAnswer::Accepted => inner.table.answered(grant, true),
            GrantAnswer::Given => inner.table.answered(grant, false),
            GrantAnswer::Later => {
                if let Some(found) = inner.table.grants.get(grant) {
                    inner.callouts.add_again(found.waiter.owner.client.address, grant);
                }
            }
        });
    }

    /// A host that is being served cannot be reached: others get its grants. Returns the number of
    /// grants.
    pub fn unreachable(&self, host: IpAddr) -> usize {
        self.changing(|inner| {
            let grants = inner.callouts.give_up(host);
            for grant in &grants {
                inner.table.answered(*grant, false);
            }
            grants.len()
        })
    }

    /// A host's notice of a restart. Verify it, then call [`Locks::restart_judged`] and
    /// [`Locks::restart_closed`].
    pub fn next_restart(&self) -> Option<Restart> {
        self.inner.lock().restarts.next()
    }

    /// Takes the result of verifying a notice of a restart. If it is believed, the host's earlier
    /// locks end. Returns their number.
    pub fn restart_judged(&self, restart: &Restart, belief: Belief) -> Option<usize> {
        self.changing(|inner| {
            let Inner { table, hosts, restarts, .. } = inner;
            let state = match belief {
                Belief::Confirmed(state) => state,
                Belief::OnItsWord => restart.state,
                Belief::None => return None,
            };
            let now = Restart { state, ..restart.clone() };
            let freed = table.free(|client| {
                let before = state_of(hosts, client);
                // For a client that never sent its state, only the state in the host's own notice
                // is news.
                (before.is_some() || state == restart.state) && now.concerns(client, before)
            });
            let is_believed = freed > 0 || state == restart.state;
            is_believed.then(|| {
                restarts.believe(&restart.host, state);
                freed
            })
        })
    }

    /// From now on, new notices of this host are verified again.
    pub fn restart_closed(&self, restart: &Restart) {
        self.changing(|inner| inner.restarts.closed(&restart.host));
    }

    /// No caller serves hosts any more: every message is to be sent again.
    pub fn begin_anew(&self) {
        self.changing(|inner| {
            inner.callouts = Callouts::default();
            inner.restarts.begin_anew();
            inner.table.grants.renew();
        });
    }

    /// Ends all locks of an address, or of one of the names there: the administrator says that
    /// nobody holds them any more. Returns their number.
    pub fn clear(&self, address: IpAddr, name: Option<&[u8]>) -> usize {
        let is_meant = |client: &Client| {
            client.address == address && name.is_none_or(|name| *client.name == *name)
        };
        self.changing(|inner| inner.table.free(is_meant))
    }

    /// Ends all locks in file systems that are gone: nobody can release them by a handle that opens
    /// something, and they would count for ever. Returns their number.
    pub fn end_in(&self, is_gone: impl Fn(Guid) -> bool) -> usize {
        self.changing(|inner| inner.table.forget_all(is_gone))
    }

    /// Whether this address holds or waits for anything.
    pub(crate) fn knows(&self, address: IpAddr) -> bool {
        self.inner.lock().table.knows(address)
    }

    /// Takes a host's notice of a restart: it is verified, if the host has locks.
    pub(crate) fn says_restarted(&self, restart: Restart) {
        self.changing(|inner| {
            let Inner { table, hosts, restarts, .. } = inner;
            let is_meant = |client: &Arc<Client>| restart.concerns(client, state_of(hosts, client));
            if table.knows(restart.host.address) && table.clients().any(is_meant) {
                restarts.add(restart);
            }
        });
    }

    /// Ends all locks of a client at its request, and returns their number. Locks of a monitored
    /// client end in another way (X/Open C702, NLM_FREE_ALL).
    pub(crate) fn free_all(&self, client: &Client) -> usize {
        self.changing(|inner| {
            let is_monitored = inner.hosts.get(client).is_some_and(|host| host.is_monitored);
            if is_monitored { 0 } else { inner.table.free(|known| known == client) }
        })
    }

    /// Whether datagrams must not touch this client's locks.
    pub(crate) fn locks_by_stream(&self, client: &Client) -> bool {
        self.inner.lock().hosts.get(client).is_some_and(|host| host.by_stream)
    }

    pub(crate) fn test(&self, file: FileHandle, ask: &Ask) -> Option<Blocker> {
        self.inner.lock().table.test(file, ask)
    }

    /// Locks, unless the file `goes_back`. The client of a monitored lock is on the durable list
    /// when this returns. A rollback first has `goes_back` say so, and then counts the locks: so
    /// none is granted that it does not see.
    pub(crate) async fn lock(
        &self,
        file: FileHandle,
        ask: &Ask,
        manner: Manner,
        goes_back: impl FnOnce() -> bool,
    ) -> Locked {
        let client = &ask.owner.client;
        let (outcome, is_new) = self.changing(|inner| {
            if goes_back() {
                return (Locked::Later, false);
            }
            let outcome = inner.table.lock(file, ask, manner.may_wait);
            let locked = matches!(outcome, Locked::Granted | Locked::Blocked);
            if locked {
                inner.note_host(ask, manner);
            }
            (outcome, locked && manner.is_monitored && !inner.durable.contains(client))
        });
        if is_new && let Err(error) = self.keep(client).await {
            // A client that joins too often may ask as often as it likes: that is no news.
            match error.kind() {
                io::ErrorKind::WouldBlock => tracing::debug!(%error, "a lock is refused"),
                _ => tracing::error!(
                    %error, "a lock is refused: its client cannot be written down"
                ),
            }
            self.changing(|inner| match outcome {
                Locked::Blocked => drop(inner.table.cancel(file, ask)),
                _ => drop(inner.table.unlock(file, &ask.owner, ask.range)),
            });
            return Locked::NoLocks;
        }
        outcome
    }

    pub(crate) fn unlock(&self, file: FileHandle, owner: &Arc<Owner>, range: Range) -> bool {
        self.changing(|inner| inner.table.unlock(file, owner, range))
    }

    pub(crate) fn cancel(&self, file: FileHandle, ask: &Ask) -> bool {
        self.changing(|inner| inner.table.cancel(file, ask))
    }

    /// Reserves a file, unless it `goes_back`: `None` then.
    pub(crate) fn share(
        &self,
        file: FileHandle,
        owner: &Arc<Owner>,
        (access, deny): (u32, u32),
        goes_back: impl FnOnce() -> bool,
    ) -> Option<Shared> {
        let mut inner = self.inner.lock();
        match goes_back() {
            true => None,
            false => Some(inner.table.share(file, owner, access, deny)),
        }
    }

    pub(crate) fn unshare(&self, file: FileHandle, owner: &Owner) {
        self.inner.lock().table.unshare(file, owner);
    }

    pub(crate) fn forget(&self, file: FileHandle) {
        self.inner.lock().table.forget(file);
    }

    /// Queues results for a client, or drops them if too many wait.
    pub(crate) fn send(&self, to: IpAddr, results: Callout) {
        self.changing(|inner| inner.callouts.add_result(to, results));
    }

    async fn keep(&self, client: &Arc<Client>) -> io::Result<()> {
        let Some(outside) = &self.outside else { return Ok(()) };
        let list = ListFor { locks: self, client, listed: Mutex::default() };
        outside.keep(client, &list).await
    }

    /// Makes a change after which there may be messages to send.
    fn changing<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let (done, wakes) = {
            let mut inner = self.inner.lock();
            let done = change(&mut inner);
            let Inner { table, callouts, restarts, .. } = &mut *inner;
            for (host, grant) in table.grants.take_new() {
                callouts.add_grant(host, grant, |grant| table.grants.get(grant).is_some());
            }
            (done, callouts.is_waited_for() || restarts.is_waited_for())
        };
        if wakes && let Some(outside) = &self.outside {
            outside.wake();
        }
        done
    }
}

impl Inner {
    fn new(claimants: Option<Claimants>) -> Self {
        let grace = claimants.is_some();
        let claimants = claimants.unwrap_or(Claimants::Listed(HashSet::new()));
        let (table, callouts, restarts, hosts, durable) = Default::default();
        Inner { table, grace, claimants, callouts, restarts, hosts, durable }
    }

    fn note_host(&mut self, ask: &Ask, manner: Manner) {
        let Manner { is_monitored, by_stream, state, .. } = manner;
        let client = &ask.owner.client;
        let known = self.hosts.get(client);
        let host = Host {
            via: ask.via,
            is_monitored: is_monitored || known.is_some_and(|known| known.is_monitored),
            by_stream: by_stream || known.is_some_and(|known| known.by_stream),
            state,
        };
        self.hosts.insert(client.clone(), host);
        if self.hosts.len() > HOSTS_LOOK {
            self.hosts.retain(|client, _| self.table.has_client(client));
        }
    }
}

/// The durable list, with a client that joins it.
struct ListFor<'a> {
    locks: &'a Locks,
    client: &'a Arc<Client>,
    listed: Mutex<HashSet<Arc<Client>>>,
}

impl DurableList for ListFor<'_> {
    fn list(&self) -> Option<Vec<Monitored>> {
        let mut inner = self.locks.inner.lock();
        if inner.durable.contains(self.client) {
            return None;
        }
        let Inner { table, hosts, durable, .. } = &mut *inner;
        hosts.retain(|client, _| table.has_client(client));
        let monitored = hosts.iter().filter(|(_, host)| host.is_monitored);
        let mut listed = self.listed.lock();
        *listed = monitored.clone().map(|(client, _)| client.clone()).collect();
        // A client that is not on this list is not on disk any more, however the write ends.
        durable.retain(|client| listed.contains(client));
        let each =
            monitored.map(|(client, host)| Monitored { client: client.as_text(), via: host.via });
        Some(each.collect())
    }

    fn written(&self) {
        self.locks.inner.lock().durable.extend(self.listed.lock().drain());
    }
}

/// A client's last known state.
fn state_of(hosts: &HashMap<Arc<Client>, Host>, client: &Client) -> Option<i32> {
    hosts.get(client).map(|host| host.state).filter(|state| *state != 0)
}
