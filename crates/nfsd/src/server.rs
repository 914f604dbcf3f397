//! The server as a whole: start and stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aquifer_nfs::Nfs;
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::Config;
use crate::connection::{Budgets, Common, Phase};
use crate::crew::Crew;
use crate::doors::Doors;
use crate::limits::{KEYS_LOOK, LINGER, REFUSALS_REPORT};
use crate::listen::Workers;
use crate::locks::LockKeeper;
use crate::peers::Peers;
use crate::portmap_service::PortmapState;
use crate::stats::{Load, Stats};
use crate::tls::Keys;
use crate::worker::{Duty, Worker};

/// A running server.
///
/// Requests of the engine, and tasks that it spawned while serving them, live on the server's
/// threads. So stop the server, take the pool out of service, and only then drop the server.
/// Dropping joins the threads.
#[derive(Debug)]
pub struct Server {
    doors: Arc<Doors>,
    common: Arc<Common>,
    phase: watch::Sender<Phase>,
    ended: Arc<Notify>,
    config: Config,
    /// The last is the lobby.
    workers: Mutex<Vec<Worker>>,
}

/// Observes a server, and keeps no part of it running.
#[derive(Debug, Clone)]
pub struct Observer {
    common: Arc<Common>,
    doors: Arc<Doors>,
}

impl Observer {
    /// The server's present state and counters.
    pub fn load(&self) -> Load {
        self.common.stats.load(&self.common.budgets)
    }

    /// Returns the [`Nfs`] that is served.
    pub fn nfs(&self) -> &Nfs {
        &self.common.nfs
    }

    /// The addresses that NFS and MOUNT listen on, in the configuration's order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.doors.addresses()
    }

    /// The addresses that it cannot listen on at the moment, and why.
    pub fn closed(&self) -> Vec<(SocketAddr, String)> {
        self.doors.closed()
    }

    /// How clients that ask a portmapper are served.
    pub fn portmap(&self) -> PortmapState {
        self.doors.portmap()
    }

    /// Why the files for TLS cannot be used, as they are now; `None` if they can, or none are
    /// wanted.
    pub fn tls_problem(&self) -> Option<String> {
        self.common.tls.as_ref()?.problem()
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration asks for something impossible.
    #[error("configuration: {0}")]
    Config(&'static str),
    /// There can be no thread or runtime.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// The result of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Connections that were open when it began.
    pub connections: usize,
    /// Those of them that were cut off with requests unfinished or replies unsent.
    pub cut: usize,
    /// Those of them whose requests have not ended yet: the pool does not answer.
    pub stuck: usize,
}

impl Server {
    /// Listens and serves `nfs` until it is stopped. An address that cannot be listened on is tried
    /// again until it can ([`Observer::closed`]).
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub async fn start(config: Config, nfs: Arc<Nfs>) -> Result<Server, StartError> {
        Server::start_with(config, nfs, None).await
    }

    /// As [`Server::start`]; `keeper` serves the locks of `nfs`.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_with(
        config: Config,
        nfs: Arc<Nfs>,
        keeper: Option<Arc<LockKeeper>>,
    ) -> Result<Server, StartError> {
        config.check().map_err(StartError::Config)?;
        let tls = config.tls.clone().map(Keys::open).map(Arc::new);
        let doors = Arc::new(Doors::new(&config));
        let common = Arc::new(Common {
            nfs,
            limits: config.limits.clone().within_files(getrlimit(Resource::Nofile).current),
            budgets: Budgets::new(&config.limits, config.memory.as_ref()),
            stats: Stats::default(),
            peers: Peers::new(),
            tls,
        });
        let (phase, follows) = watch::channel(Phase::Serve);
        let fragmented = Arc::new(AtomicUsize::new(0));
        let start = |duty, own| Worker::start(duty, own, &common, &follows, &fragmented);
        let crew = Crew::of(config.threads())?.into_iter().enumerate();
        let workers = crew.map(|(number, own)| start(Duty::Clients(number), own));
        let mut workers: Vec<_> = workers.collect::<Result<_, _>>()?;
        let clients: Vec<_> = workers.iter().map(Worker::handover).collect();
        let lobby = start(Duty::Lobby(clients.clone()), Crew::alone()?)?;
        let opened = doors.open(&common.nfs).await;
        let ended = Arc::new(Notify::new());
        let places = Workers { clients, lobby: lobby.handover() };
        let (open, shared, notice) = (Arc::clone(&doors), Arc::clone(&common), Arc::clone(&ended));
        let serve = {
            let follows = follows.clone();
            move || open.serve(opened, places, shared, notice, follows)
        };
        lobby.serve(&follows, serve).await;
        if let Some(keeper) = keeper {
            lobby.serve(&follows, move || keeper.run()).await;
        }
        if let Some(keys) = common.tls.clone() {
            lobby.serve(&follows, move || look_after_keys(keys)).await;
        }
        let peers = Arc::clone(&common);
        lobby.serve(&follows, move || look_after_peers(peers)).await;
        workers.push(lobby);
        let addresses = doors.addresses();
        tracing::info!(?addresses, portmap = ?doors.portmap(), "serving NFS");
        let workers = Mutex::new(workers);
        Ok(Server { doors, common, phase, ended, config, workers })
    }

    /// The addresses that NFS and MOUNT listen on, in the configuration's order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.doors.addresses()
    }

    /// How clients that ask a portmapper are served.
    pub fn portmap(&self) -> PortmapState {
        self.doors.portmap()
    }

    /// Returns the [`Nfs`] that is served.
    pub fn nfs(&self) -> &Arc<Nfs> {
        &self.common.nfs
    }

    /// The server's present state and counters.
    pub fn load(&self) -> Load {
        self.observer().load()
    }

    /// An observer of it.
    pub fn observer(&self) -> Observer {
        Observer { common: Arc::clone(&self.common), doors: Arc::clone(&self.doors) }
    }

    /// Stops: no new connections, no new requests. Running requests finish and are answered, as
    /// long as the configuration's `drain` allows. Clients connect again and resend unanswered
    /// calls. A second stop only waits.
    pub async fn stop(&self) -> Stopped {
        let connections = self.open();
        self.phase.send_if_modified(|phase| {
            let serves = *phase == Phase::Serve;
            if serves {
                *phase = Phase::Drain;
            }
            serves
        });
        self.doors.withdraw().await;
        let drained = self.wait_for_connections(Instant::now() + self.config.drain).await;
        let cut = if drained { 0 } else { self.open() };
        self.phase.send_replace(Phase::Close);
        self.wait_for_connections(Instant::now() + 2 * LINGER).await;
        let stuck = self.open();
        tracing::info!(connections, cut, stuck, "stopped serving NFS");
        Stopped { connections, cut, stuck }
    }

    fn open(&self) -> usize {
        self.common.stats.connections.load(Ordering::Acquire)
    }

    /// Whether all connections have ended before `deadline`.
    async fn wait_for_connections(&self, deadline: Instant) -> bool {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.open() == 0 {
                return true;
            }
            if timeout_at(deadline, ended).await.is_err() {
                return false;
            }
        }
    }
}

/// Reports refused clients, and evicts idle strangers, from time to time.
async fn look_after_peers(common: Arc<Common>) {
    loop {
        sleep(REFUSALS_REPORT).await;
        common.nfs.exports().report_refusals();
        common.peers.sweep();
    }
}

/// Loads renewed certificates, and has those of clients judged as of now.
async fn look_after_keys(keys: Arc<Keys>) {
    loop {
        sleep(KEYS_LOOK).await;
        keys.look_again();
        keys.judge_all();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Close);
        self.workers.lock().clear();
    }
}
