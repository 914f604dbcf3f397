//! The locks of a server, between the protocols and the daemon.
//!
//! Invariants:
//! - What is to be said to clients waits in bounded queues until the daemon takes it; a message too
//!   many is dropped, which to a client is a lost datagram.
//! - A client is on the durable list before its first lock is answered. Who has no lock any more
//!   leaves the list when somebody joins it: only then is it written.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aquifer_files::FileHandle;
use aquifer_pool::BoxFuture;
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};
use parking_lot::Mutex;

use super::table::{Ask, Blocker, Grant, Locked, Shared, Table};
use super::{Client, LockView, Owner, Range};
use crate::limits::{MESSAGES_MAX, REBOOTS_MAX};
use crate::proto::nlm::{Limited, Lock4, Nlm4Res, Nlm4Stats, Procedure, TestArgs4};

/// What the locks need of the world outside: the daemon, or a test.
pub trait Outside: Send + Sync + fmt::Debug {
    /// [`Locks::next_callout`] has something.
    fn wake(&self);

    /// Puts a new list of clients that are to be told of a restart on disk, in place of the old
    /// one. `list` makes it, when it is this call's turn.
    fn keep<'a>(
        &'a self,
        list: &'a (dyn Fn() -> Vec<Monitored> + Send + Sync),
    ) -> BoxFuture<'a, io::Result<()>>;
}

/// A client that is to be told of a restart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Monitored {
    /// Who.
    pub client: Client,
    /// Our address as the client knows it, if that is known.
    pub via: Option<IpAddr>,
}

/// Something to be said to a client's lock manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callout {
    /// Where it is.
    pub to: IpAddr,
    /// The address to call from: clients believe no other.
    pub via: Option<IpAddr>,
    /// The procedure of NLM version 4.
    pub procedure: u32,
    /// Its arguments.
    pub args: Vec<u8>,
    /// The grant that it tells of, whose answer is to be given to [`Locks::granted`]. Without one,
    /// the message is sent once and no answer is waited for.
    pub grant: Option<u64>,
}

/// What came of telling a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantAnswer {
    /// The client has its lock.
    Accepted,
    /// The client does not want it, or cannot be reached: the next in the queue gets it.
    Given,
    /// The client asks to be told later.
    Later,
}

impl GrantAnswer {
    /// Reads the results of GRANTED. What makes no sense is no acceptance.
    pub fn of(results: &[u8]) -> GrantAnswer {
        match Nlm4Res::decode(&mut Decoder::new(results)) {
            Ok(Nlm4Res { stat: Nlm4Stats::Granted, .. }) => GrantAnswer::Accepted,
            Ok(Nlm4Res { stat: Nlm4Stats::DeniedGracePeriod, .. }) => GrantAnswer::Later,
            _ => GrantAnswer::Given,
        }
    }
}

/// The locks of a server. They outlive the sockets: pools may leave and come back.
#[derive(Debug)]
pub struct Locks {
    outside: Option<Arc<dyn Outside>>,
    /// The state number of the status monitor: odd while a host is up, another after each start.
    state: i32,
    grace: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    table: Table,
    messages: VecDeque<Callout>,
    /// Clients with monitored locks, and our address as they know it.
    monitored: HashMap<Arc<Client>, Option<IpAddr>>,
    /// Those of them that are on the durable list.
    durable: HashSet<Arc<Client>>,
    /// How many lists were made: of two that overtake each other, only the last one counts.
    lists: u64,
    /// The last state that each host told in SM_NOTIFY, oldest first.
    reboots: VecDeque<(Client, i32)>,
}

impl Locks {
    /// Locks of a server whose status monitor has this `state`. If `grace`, only claims of earlier
    /// locks are granted until [`Locks::end_grace`].
    pub fn new(outside: Arc<dyn Outside>, state: i32, grace: bool) -> Self {
        let (grace, inner) = (AtomicBool::new(grace), Mutex::default());
        Locks { outside: Some(outside), state, grace, inner }
    }

    /// Locks of a server that calls nobody and remembers nobody: clients that wait must ask again.
    pub fn alone() -> Self {
        let (grace, inner) = (AtomicBool::new(false), Mutex::default());
        Locks { outside: None, state: 1, grace, inner }
    }

    /// From now on everybody gets locks, and nobody claims earlier ones.
    pub fn end_grace(&self) {
        self.grace.store(false, Ordering::Relaxed);
    }

    /// Whether only claims of earlier locks are granted.
    pub fn in_grace(&self) -> bool {
        self.grace.load(Ordering::Relaxed)
    }

    /// The state number of the status monitor.
    pub fn state(&self) -> i32 {
        self.state
    }

    /// All locks, for people.
    pub fn list(&self) -> Vec<LockView> {
        self.inner.lock().table.list()
    }

    /// What is to be said next.
    pub fn next_callout(&self) -> Option<Callout> {
        let mut inner = self.inner.lock();
        if let Some(message) = inner.messages.pop_front() {
            return Some(message);
        }
        let (id, grant) = inner.table.next_untold()?;
        Some(granted_call(id, &grant))
    }

    /// Whether a grant is still to be told: the client may have spoken of it meanwhile.
    pub fn is_on_its_way(&self, grant: u64) -> bool {
        self.inner.lock().table.is_on_its_way(grant)
    }

    /// What came of telling a grant. [`GrantAnswer::Later`] leaves it as it is.
    pub fn granted(&self, grant: u64, answer: GrantAnswer) {
        match answer {
            GrantAnswer::Later => {}
            GrantAnswer::Accepted => self.inner.lock().table.answered(grant, true),
            GrantAnswer::Given => self.changing(|inner| inner.table.answered(grant, false)),
        }
    }

    pub(crate) fn test(&self, file: FileHandle, ask: &Ask) -> Option<Blocker> {
        self.inner.lock().table.test(file, ask)
    }

    /// Locks. The client of a `monitored` lock is on the durable list when this returns.
    pub(crate) async fn lock(
        &self,
        file: FileHandle,
        ask: &Ask,
        may_wait: bool,
        monitored: bool,
    ) -> Locked {
        let client = &ask.owner.client;
        let (outcome, is_new) = self.changing(|inner| {
            let outcome = inner.table.lock(file, ask, may_wait);
            let locked = matches!(outcome, Locked::Granted | Locked::Blocked);
            let is_new = locked && monitored && !inner.durable.contains(client);
            if is_new {
                inner.monitored.insert(client.clone(), ask.via);
            }
            (outcome, is_new)
        });
        if is_new && let Err(error) = self.keep(client).await {
            tracing::error!(%error, "a lock is refused: its client cannot be written down");
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

    pub(crate) fn share(
        &self,
        file: FileHandle,
        owner: &Arc<Owner>,
        access: u32,
        deny: u32,
    ) -> Shared {
        self.inner.lock().table.share(file, owner, access, deny)
    }

    pub(crate) fn unshare(&self, file: FileHandle, owner: &Owner) {
        self.inner.lock().table.unshare(file, owner);
    }

    pub(crate) fn forget(&self, file: FileHandle) {
        self.inner.lock().table.forget(file);
    }

    /// Ends all locks of a client.
    pub(crate) fn free(&self, client: &Client) -> usize {
        self.changing(|inner| inner.table.free(|known| known == client))
    }

    /// `host` says that it was restarted, and has `state` now: its locks end. Said again, as
    /// datagrams are, it does nothing.
    pub(crate) fn rebooted(&self, host: Client, state: i32) -> usize {
        self.changing(|inner| {
            if let Some(known) = inner.reboots.iter_mut().find(|(known, _)| *known == host) {
                if known.1 == state {
                    return 0;
                }
                known.1 = state;
            } else {
                inner.reboots.push_back((host.clone(), state));
            }
            if inner.reboots.len() > REBOOTS_MAX {
                inner.reboots.pop_front();
            }
            let at_address = |client: &&Arc<Client>| client.address == host.address;
            // Named otherwise by its status monitor than by its lock manager: still itself, if it
            // is alone behind its address.
            let only = inner.table.clients().filter(at_address).count() == 1;
            let is_it = |client: &Client| {
                client.address == host.address && (only || same_host(&client.name, &host.name))
            };
            inner.table.free(is_it)
        })
    }

    /// Sends a message, or drops it if too many wait.
    pub(crate) fn send(&self, message: Callout) {
        self.changing(|inner| {
            if inner.messages.len() < MESSAGES_MAX {
                inner.messages.push_back(message);
            }
        });
    }

    async fn keep(&self, client: &Arc<Client>) -> io::Result<()> {
        let Some(outside) = &self.outside else { return Ok(()) };
        let own = AtomicU64::new(0);
        let list = || {
            let mut inner = self.inner.lock();
            let Inner { table, monitored, durable, lists, .. } = &mut *inner;
            *lists += 1;
            monitored.retain(|client, _| table.has_client(client));
            durable.retain(|client| monitored.contains_key(client));
            if monitored.contains_key(client) {
                own.store(*lists, Ordering::Relaxed);
            }
            let each = monitored.iter();
            each.map(|(client, via)| Monitored { client: (**client).clone(), via: *via }).collect()
        };
        outside.keep(&list).await?;
        let mut inner = self.inner.lock();
        if inner.lists == own.load(Ordering::Relaxed) {
            inner.durable.insert(client.clone());
        }
        Ok(())
    }

    /// Does something after which there may be something to be said.
    fn changing<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let (done, wakes) = {
            let mut inner = self.inner.lock();
            let done = change(&mut inner);
            (done, inner.table.has_untold() || !inner.messages.is_empty())
        };
        if wakes && let Some(outside) = &self.outside {
            outside.wake();
        }
        done
    }
}

/// The call that tells a grant.
fn granted_call(id: u64, grant: &Grant) -> Callout {
    let Grant { file, waiter } = grant;
    let owner = &waiter.owner;
    let handle = file.encode();
    let alock = Lock4 {
        caller_name: Limited(&owner.client.name),
        fh: Limited(&handle),
        oh: Limited(&owner.oh),
        svid: owner.svid,
        l_offset: waiter.range.first,
        l_len: waiter.range.length(),
    };
    let cookie = id.to_be_bytes();
    let mut args = EncodeBuf::new();
    args.put(&TestArgs4 { cookie: Limited(&cookie), exclusive: waiter.exclusive, alock });
    Callout {
        to: owner.client.address,
        via: waiter.via,
        procedure: Procedure::Granted.wire(),
        args: args.to_vec(),
        grant: Some(id),
    }
}

/// Whether two names are of one host: one of them may have its domain, and case does not matter.
fn same_host(a: &[u8], b: &[u8]) -> bool {
    let label = |name: &[u8]| name.split(|byte| *byte == b'.').next().map(<[u8]>::to_vec);
    let qualified = |name: &[u8]| name.contains(&b'.');
    match (label(a), label(b)) {
        _ if a.eq_ignore_ascii_case(b) => true,
        (Some(x), Some(y)) => (!qualified(a) || !qualified(b)) && x.eq_ignore_ascii_case(&y),
        _ => false,
    }
}
