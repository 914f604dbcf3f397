//! What the lock manager needs of the world: calls to clients, and memory of them across restarts.
//!
//! ```text
//!  start: read the list of the clients that had locks; count the state up; write both
//!         tell each of them (SM_NOTIFY) that we have restarted; they claim their locks
//!         grace ends: everybody may lock
//!  then:  tell those who waited (GRANTED) when it is their turn
//! ```
//!
//! Invariants:
//! - Clients are called from the address that they know us by, with time limits, and at most
//!   [`CALLOUTS_MAX`] at a time. A client that does not answer loses its turn, so that the others
//!   in the queue get theirs; clients ask again by themselves.
//! - Whoever was on the list when we started stays on it until it was told, or for
//!   [`NOTIFY_PATIENCE`].

mod call;
mod store;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aquifer_nfs::lock::{Callout, GrantAnswer, Locks, Monitored};
use aquifer_nfs::proto::{nlm, nsm};
use aquifer_rpc::portmap;
use aquifer_rpc::xdr::EncodeBuf;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::limits::{CALLOUTS_MAX, GRANT_PAUSES, NOTIFY_PATIENCE, NOTIFY_PAUSE_MAX};
use call::{Caller, Program, Transport};
use store::Store;

/// The locks of a server, and what goes on around them. It outlives servers: pools may all leave
/// and come back.
#[derive(Debug)]
pub struct LockKeeper {
    locks: Arc<Locks>,
    store: Arc<Store>,
    /// Who is still to be told that we have restarted.
    untold: Mutex<Vec<Monitored>>,
    opened: Instant,
    grace: Duration,
    /// Where clients' portmappers are.
    portmap_port: u16,
}

impl LockKeeper {
    /// Begins with what is known from before in `dir`, which nobody else uses. If clients had locks
    /// then, they have `grace` to claim them again. In a runtime.
    ///
    /// # Errors
    /// What the system says. A list that makes no sense is none: it is replaced.
    pub fn open(dir: &Path, grace: Duration) -> io::Result<Arc<LockKeeper>> {
        LockKeeper::open_with(dir, grace, portmap::PORT)
    }

    /// As [`LockKeeper::open`], with clients whose portmappers are at `portmap_port`.
    ///
    /// # Errors
    /// As [`LockKeeper::open`].
    pub fn open_with(dir: &Path, grace: Duration, portmap_port: u16) -> io::Result<Arc<Self>> {
        let (store, known) = Store::open(dir)?;
        let in_grace = !known.clients.is_empty() || known.is_damaged;
        if in_grace {
            let clients = known.clients.len();
            tracing::info!(clients, ?grace, "clients had locks: they may claim them again");
        }
        let store = Arc::new(store);
        let locks = Arc::new(Locks::new(store.clone(), known.state, in_grace));
        let (opened, untold) = (Instant::now(), Mutex::new(known.clients));
        Ok(Arc::new(LockKeeper { locks, store, untold, opened, grace, portmap_port }))
    }

    /// The locks.
    pub fn locks(&self) -> &Arc<Locks> {
        &self.locks
    }

    /// Does what is to be done, as long as it is polled.
    pub(crate) async fn run(self: Arc<Self>) {
        let ends_grace = async {
            sleep_until(self.opened + self.grace).await;
            if self.locks.in_grace() {
                tracing::info!("clients had their time to claim their locks");
            }
            self.locks.end_grace();
        };
        tokio::join!(ends_grace, self.notify_all(), self.call_out());
    }

    /// Tells those who had locks that we have restarted.
    async fn notify_all(self: &Arc<Self>) {
        let mut telling = JoinSet::new();
        let untold = self.untold.lock().clone();
        for client in untold {
            while telling.len() >= CALLOUTS_MAX {
                telling.join_next().await;
            }
            let this = Arc::clone(self);
            telling.spawn(async move { this.notify(client).await });
        }
        while telling.join_next().await.is_some() {}
    }

    async fn notify(&self, monitored: Monitored) {
        let Monitored { client, via } = &monitored;
        let caller = self.caller(client.address, *via);
        let mut pause = Duration::from_secs(1);
        let end = self.opened + NOTIFY_PATIENCE;
        loop {
            match self.notify_once(&caller, *via).await {
                Ok(()) => {
                    tracing::info!(client = %client.address, "told of our restart");
                    break;
                }
                Err(error) if Instant::now() + pause >= end => {
                    tracing::warn!(client = %client.address, error, "not told of our restart");
                    break;
                }
                Err(error) => {
                    tracing::debug!(client = %client.address, error, "not told yet");
                }
            }
            sleep(pause).await;
            pause = NOTIFY_PAUSE_MAX.min(pause * 2);
        }
        self.untold.lock().retain(|other| *other != monitored);
        self.store.told(&monitored).await;
    }

    /// By both names that the client may know us by: the address and the name of this machine.
    /// Linux's monitors compare addresses behind names, others compare texts.
    async fn notify_once(&self, caller: &Caller, via: Option<IpAddr>) -> Result<(), String> {
        let host = rustix::system::uname().nodename().to_bytes().to_vec();
        let names = via.map(|address| address.to_string().into_bytes()).into_iter().chain([host]);
        for name in names {
            let mut args = EncodeBuf::new();
            let mon_name = nlm::Limited(name.as_slice());
            args.put(&nsm::StatChge { mon_name, state: self.locks.state() });
            let procedure = nsm::Procedure::Notify.wire();
            // UDP first: it is what monitors use among each other.
            let order = [Transport::Udp, Transport::Tcp];
            caller.call(NSM, order, procedure, &args.to_vec()).await?;
        }
        Ok(())
    }

    /// Says to clients what is to be said.
    async fn call_out(self: &Arc<Self>) {
        let mut calling = JoinSet::new();
        loop {
            while let Some(callout) = self.locks.next_callout() {
                while calling.len() >= CALLOUTS_MAX {
                    calling.join_next().await;
                }
                let this = Arc::clone(self);
                calling.spawn(async move {
                    match callout.grant {
                        Some(grant) => this.grant(grant, &callout).await,
                        None => this.send(&callout).await,
                    }
                });
            }
            tokio::select! {
                () = self.store.woken() => {}
                Some(_) = calling.join_next() => {}
            }
        }
    }

    async fn send(&self, callout: &Callout) {
        let Callout { to, via, procedure, args, .. } = callout;
        let order = [Transport::Tcp, Transport::Udp];
        if let Err(error) = self.caller(*to, *via).call(NLM, order, *procedure, args).await {
            tracing::debug!(client = %to, error, "a result was not delivered");
        }
    }

    /// Tells a client of its lock, several times if need be.
    async fn grant(&self, grant: u64, callout: &Callout) {
        let Callout { to, via, procedure, args, .. } = callout;
        let caller = self.caller(*to, *via);
        for pause in GRANT_PAUSES {
            sleep(pause).await;
            if !self.locks.is_on_its_way(grant) {
                return;
            }
            let order = [Transport::Tcp, Transport::Udp];
            match caller.call(NLM, order, *procedure, args).await {
                Ok(results) => match GrantAnswer::of(&results) {
                    GrantAnswer::Later => {}
                    answer => return self.locks.granted(grant, answer),
                },
                Err(error) => tracing::debug!(client = %to, error, "not told of its lock"),
            }
        }
        tracing::warn!(client = %to, "not told that it has its lock: the next gets it");
        self.locks.granted(grant, GrantAnswer::Given);
    }

    fn caller(&self, to: IpAddr, via: Option<IpAddr>) -> Caller {
        Caller { portmap: SocketAddr::new(to, self.portmap_port), via }
    }
}

const NLM: Program = Program { number: nlm::PROGRAM, version: nlm::VERSION };
const NSM: Program = Program { number: nsm::PROGRAM, version: nsm::VERSION };
