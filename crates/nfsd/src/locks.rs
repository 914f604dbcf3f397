//! The lock manager's services outside of NFS: calls to clients, and memory of them across
//! restarts.
//!
//! ```text
//!  start: read the list of the clients that had locks; count the state up; write both
//!         tell each of them (SM_NOTIFY) that we have restarted; they claim their locks
//!         grace ends: everybody may lock
//!  then:  tell those who waited (GRANTED) when it is their turn
//!         look into it when a host says that it has restarted, before its locks end
//! ```
//!
//! Invariants:
//! - The server calls clients from the address that they know it by, with time limits, and a
//!   bounded number at a time. A call that waits for the next try delays nobody.
//! - One task at a time calls a host. If the host does not answer it loses its turn, so that the
//!   others in the queue get theirs; clients ask again by themselves.
//! - Clients hear of our restart when the pools are in service, or given up
//!   ([`LockKeeper::begin`]), and their time to claim locks runs from then on: a claim in a file of
//!   a pool that is not there yet would be lost.
//! - A client on the list at our start stays on it until it was told, or for [`NOTIFY_PATIENCE`].
//!   It may reclaim its locks until then and for the grace period after.

pub mod answers;
mod call;
mod confirm;
mod notify;
mod store;
mod tell;
mod told;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aquifer_nfs::lock::{Claimants, Locks, Monitored};
use aquifer_nfs::proto::{nlm, nsm};
use aquifer_rpc::portmap;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::limits::{CALLOUTS_MAX, LOCK_LIST_LOOK, NOTICES_MAX};
use call::{Caller, Program};
use store::Store;
use told::Told;

/// The locks of a server, and the tasks around them. It outlives servers: pools may all leave and
/// come back.
#[derive(Debug)]
pub struct LockKeeper {
    locks: Arc<Locks>,
    store: Arc<Store>,
    /// Clients that do not know of our restart yet.
    untold: Mutex<Vec<Monitored>>,
    /// When clients were begun to be told of our restart.
    begun: OnceLock<Instant>,
    begins: Notify,
    grace: Duration,
    /// The port of clients' portmappers.
    portmap_port: u16,
    /// Which restarts of hosts the log has reported.
    told: Told,
    /// For grants and results.
    callouts: Semaphore,
    /// For calls that have more time: telling of our restart, asking about theirs.
    notices: Semaphore,
}

impl LockKeeper {
    /// Begins with the list from earlier in `dir`, which nobody else uses. If clients had locks
    /// then, they have `grace` to reclaim them. A list that cannot be used is replaced as soon as
    /// that can be ([`LockKeeper::problem`]). Needs a runtime.
    pub fn open(dir: &Path, grace: Duration) -> Arc<LockKeeper> {
        LockKeeper::open_with(dir, grace, portmap::PORT)
    }

    /// As [`LockKeeper::open`], with clients whose portmappers are at `portmap_port`.
    pub fn open_with(dir: &Path, grace: Duration, portmap_port: u16) -> Arc<Self> {
        let (store, known) = Store::open(dir);
        let claimants = match known.is_damaged {
            true => Some(Claimants::Everybody),
            false if known.clients.is_empty() => None,
            false => {
                let listed = known.clients.iter().map(|monitored| monitored.client.clone());
                Some(Claimants::Listed(listed.collect()))
            }
        };
        if claimants.is_some() {
            let clients = known.clients.len();
            tracing::info!(clients, ?grace, "clients had locks: they may claim them again");
        }
        let store = Arc::new(store);
        Arc::new(LockKeeper {
            locks: Arc::new(Locks::new(store.clone(), known.state, claimants)),
            store,
            untold: Mutex::new(known.clients),
            begun: OnceLock::new(),
            begins: Notify::new(),
            grace,
            portmap_port,
            told: Told::default(),
            callouts: Semaphore::new(CALLOUTS_MAX),
            notices: Semaphore::new(NOTICES_MAX),
        })
    }

    /// The pools that clients have locks in are in service, or given up: clients are told of our
    /// restart, and may claim their locks.
    pub fn begin(&self) {
        self.begun.get_or_init(Instant::now);
        self.begins.notify_one();
    }

    /// Why the list of clients cannot be kept. Clients that are not on it get no locks.
    pub fn problem(&self) -> Option<String> {
        self.store.problem()
    }

    fn begun(&self) -> Instant {
        *self.begun.get_or_init(Instant::now)
    }

    /// The locks.
    pub fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    /// Carries out the keeper's tasks, as long as it is polled.
    pub(crate) async fn run(self: Arc<Self>) {
        let ends_grace = async {
            sleep_until(self.begun() + self.grace).await;
            if self.locks.in_grace() {
                tracing::info!("clients had their time to claim their locks");
            }
            self.locks.end_grace();
        };
        // Messages that an earlier server was about to send must be sent again.
        self.locks.begin_anew();
        let restarts = async {
            while self.begun.get().is_none() {
                self.begins.notified().await;
            }
            tokio::join!(ends_grace, self.notify_all());
        };
        tokio::join!(restarts, self.attend_all(), self.look_after_list());
    }

    /// Writes the list again when it is not on disk, as long as it is polled.
    async fn look_after_list(&self) {
        loop {
            sleep(LOCK_LIST_LOOK).await;
            self.store.look_again().await;
        }
    }

    /// Attends to hosts, each in a task of its own, as long as it is polled.
    async fn attend_all(self: &Arc<Self>) {
        let mut attending = JoinSet::new();
        loop {
            while let Some(host) = self.locks.next_host() {
                let this = Arc::clone(self);
                attending.spawn(async move { this.tell(host).await });
            }
            while let Some(restart) = self.locks.next_restart() {
                let this = Arc::clone(self);
                attending.spawn(async move { this.confirm(restart).await });
            }
            tokio::select! {
                () = self.store.woken() => {}
                Some(_) = attending.join_next() => {}
            }
        }
    }

    fn caller<'a>(&self, to: IpAddr, via: Option<IpAddr>, slots: &'a Semaphore) -> Caller<'a> {
        Caller { portmap: SocketAddr::new(to, self.portmap_port), via, slots }
    }
}

const NLM: Program = Program { number: nlm::PROGRAM, version: nlm::VERSION };
const NSM: Program = Program { number: nsm::PROGRAM, version: nsm::VERSION };
