//! The server as a whole: start and stop.

use std::io;
use std::net::{SocketAddr, UdpSocket};
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
use crate::datagrams;
use crate::limits::{KEYS_LOOK, LINGER, REFUSALS_REPORT};
use crate::listen::{self, Workers};
use crate::locks::LockKeeper;
use crate::peers::Peers;
use crate::portmap_service::{PortmapService, PortmapState};
use crate::stats::{Load, Stats};
use crate::tls::{Keys, TlsError};
use crate::worker::{Duty, Worker};

/// A running server.
///
/// Requests of the engine, and tasks that it spawned while serving them, live on the server's
/// threads. So stop the server, take the pool out of service, and only then drop the server.
/// Dropping joins the threads.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    portmap: PortmapService,
    common: Arc<Common>,
    phase: watch::Sender<Phase>,
    ended: Arc<Notify>,
    config: Config,
    /// The last is the lobby.
    workers: Mutex<Vec<Worker>>,
}

/// Observes a server, and keeps no part of it running.
#[derive(Debug, Clone)]
pub struct Observer(Arc<Common>);

impl Observer {
    /// The server's present state and counters.
    pub fn load(&self) -> Load {
        self.0.stats.load(&self.0.budgets)
    }

    /// What is served.
    pub fn nfs(&self) -> &Nfs {
        &self.0.nfs
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration asks for something impossible.
    #[error("configuration: {0}")]
    Config(&'static str),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The keys for TLS cannot be used.
    #[error("TLS for NFS: {0}")]
    Tls(#[from] TlsError),
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
    /// Listens and serves `nfs` until it is stopped.
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
        let tls = config.tls.clone().map(Keys::open).transpose()?.map(Arc::new);
        let listen_at = |address: &SocketAddr| {
            let listener = listen::tcp(*address);
            let opened = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
            opened.map_err(|source| StartError::Listen { address: *address, source })
        };
        let listeners: Result<Vec<_>, _> = config.listen.iter().map(listen_at).collect();
        let (addresses, listeners): (Vec<_>, Vec<_>) = listeners?.into_iter().unzip();
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
        let datagrams = udp_beside(&addresses);
        let udp = !datagrams.is_empty();
        let (portmap, portmap_listeners) =
            PortmapService::open(&config.portmap, &addresses, udp, &common.nfs).await;
        let ended = Arc::new(Notify::new());
        let places = Workers { clients, lobby: lobby.handover() };
        // The portmapper's TCP ports are served like any other: `nfs` answers that program too.
        for listener in listeners.into_iter().chain(portmap_listeners) {
            let (places, common) = (places.clone(), Arc::clone(&common));
            let (ended, follows) = (Arc::clone(&ended), follows.clone());
            let accept = || Box::pin(listen::accept(listener, places, common, ended, follows)) as _;
            lobby.spawn(Box::new(accept)).await;
        }
        portmap.run(&lobby, &common.nfs, &follows).await;
        for socket in datagrams {
            let nfs = Arc::clone(&common.nfs);
            lobby.serve(&follows, move || datagrams::answer(socket, nfs)).await;
        }
        if let Some(keeper) = keeper {
            lobby.serve(&follows, move || keeper.run()).await;
        }
        if let Some(keys) = common.tls.clone() {
            lobby.serve(&follows, move || look_after_keys(keys)).await;
        }
        let peers = Arc::clone(&common);
        lobby.serve(&follows, move || look_after_peers(peers)).await;
        workers.push(lobby);
        tracing::info!(?addresses, portmap = ?portmap.state(), "serving NFS");
        let workers = Mutex::new(workers);
        Ok(Server { addresses, portmap, common, phase, ended, config, workers })
    }

    /// The addresses that NFS and MOUNT listen on, in the configuration's order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How clients that ask a portmapper are served.
    pub fn portmap(&self) -> PortmapState {
        self.portmap.state()
    }

    /// What is served.
    pub fn nfs(&self) -> &Arc<Nfs> {
        &self.common.nfs
    }

    /// The server's present state and counters.
    pub fn load(&self) -> Load {
        self.observer().load()
    }

    /// An observer of it.
    pub fn observer(&self) -> Observer {
        Observer(Arc::clone(&self.common))
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
        self.portmap.withdraw().await;
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

/// UDP sockets at the listening addresses. Locks are served there too, and clients send notices of
/// their restarts there. Without one, clients have TCP.
fn udp_beside(addresses: &[SocketAddr]) -> Vec<UdpSocket> {
    let open = |address: &SocketAddr| match listen::udp(*address) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%address, %error, "locks are served over TCP only");
            None
        }
    };
    // All or none: the portmapper announces one port for all addresses.
    addresses.iter().map(open).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Reports refused clients, and evicts idle strangers, from time to time.
async fn look_after_peers(common: Arc<Common>) {
    loop {
        sleep(REFUSALS_REPORT).await;
        common.nfs.exports().report_refusals();
        common.peers.sweep();
    }
}

/// Loads renewed certificates.
async fn look_after_keys(keys: Arc<Keys>) {
    loop {
        sleep(KEYS_LOOK).await;
        keys.look_again();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.phase.send_replace(Phase::Close);
        self.workers.lock().clear();
    }
}
