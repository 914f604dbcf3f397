//! `aquifer serve`: the daemon in the foreground.
//!
//! # Threads
//! - The main thread runs the API of the socket, signals and acts of the administrator.
//! - The API on TCP has a thread of its own, which yields to all others, because it does TLS
//!   handshakes with strangers. So has replication, which is no client's work.
//! - Each pool has a thread of its own for its txgs (see `engine` in aquifer-admin).
//! - NFS has one thread per core, and one for strangers (see `aquifer_nfsd`).
//!
//! # Start and end
//! At the start the daemon locks the state directory, binds the API's socket, and imports the pools
//! of the list. Then NFS listens. On SIGTERM or SIGINT, NFS stops listening and finishes what it
//! has begun. Then every pool is exported, and the API ends last. A second signal ends the process
//! at once, which is as safe as kill -9: the next start replays the log.

mod events;
mod frontend;
mod log;
mod manager;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aquifer_admin::events::EventRing;
use aquifer_admin::{Control, ControlConfig, Peers};
use aquifer_nfsd::limits::{Limits, allow_files};
use aquifer_nfsd::precedence::yield_to_clients;
use aquifer_nfsd::{Config, KeyFiles, NamesConfig, Portmap};
use aquifer_pool::Memory;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::http::{self, Api};
use crate::remote;
use crate::remote::keys::{Keys, client_files};
use crate::remote::tokens::Tokens;

use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::settings::{self, Settings};
use frontend::{LockSettings, NfsFrontend};

/// The settings by which would be served, as a configuration has them.
///
/// # Errors
/// A configuration that cannot be read, is not understood, or asks for what cannot be.
pub fn settings(args: &ServeArgs) -> Result<String, Failure> {
    let settings = Settings::of(args)?;
    settings.check_addresses()?;
    toml::to_string(&settings).map_err(Failure::failed)
}

/// Serves until a signal ends it; `commit`: what the program was built from, if that is known.
///
/// # Errors
/// As [`settings`]; and what keeps a daemon from serving.
pub fn serve(
    runtime: &Runtime,
    socket: &Path,
    args: &ServeArgs,
    commit: Option<&str>,
) -> Result<(), Failure> {
    let settings = Settings::of(args)?;
    let memory = Memory::new(settings.memory_bytes());
    let portmap = match settings.portmap.enabled {
        true => Portmap::At(settings.portmap.listen),
        false => Portmap::Off,
    };
    allow_files();
    let (listen, threads) = (settings.nfs.listen, settings.nfs.threads);
    let limits = Limits { connections_max: settings.nfs.connections, ..Limits::default() };
    let limits = limits.within_memory(memory.cap_bytes());
    let locks = LockSettings {
        dir: settings.state_dir.clone(),
        grace: Duration::from_secs(settings.nfs.lock_grace_s.into()),
    };
    let tls = settings.nfs.tls.files();
    tls.as_ref()
        .map_or(Ok(()), KeyFiles::check)
        .map_err(|error| Failure::failed(format!("nfs.tls: {error}")))?;
    let config = Config {
        listen,
        portmap,
        threads,
        limits,
        tls,
        memory: Some(memory.clone()),
        ..Config::default()
    };
    let tcp = bind_tcp(&settings.api, &settings.state_dir)?;
    let keys_dir = keys_dir(&settings.state_dir);
    let names = NamesConfig { servers: settings.names.servers, ..NamesConfig::default() };
    let frontend = NfsFrontend::new(config, locks, names);
    let mut config = ControlConfig {
        state_dir: settings.state_dir,
        memory,
        wait_for_disks: Duration::from_secs(settings.wait_for_disks_s.into()),
        smartctl: settings.smartctl,
        host_limits: settings.snapcontrol.limits(),
        alerts: settings.alerts,
        peers: settings.peers,
        commit: commit.map(str::to_string),
    };
    let events: Arc<EventRing> = Arc::default();
    log::to_stderr(&settings.log, &events)?;
    show_own_certificate(&mut config.peers, &keys_dir);
    let control = Control::open(config, Arc::new(frontend), events).map_err(Failure::failed)?;
    let tokens = Tokens::open(&keys_dir).map_err(Failure::failed)?;
    let home = Some(runtime.handle().clone());
    let api = Api { control, tokens: Arc::new(tokens), home };
    let listener = http::bind(socket)
        .map_err(|error| Failure::failed(format!("{}: {error}", socket.display())))?;
    let served = runtime.block_on(run(api, listener, tcp, socket));
    // The next daemon must not find a socket without an answer.
    if let Err(error) = std::fs::remove_file(socket) {
        tracing::warn!(socket = %socket.display(), %error, "the socket stays behind");
    }
    served
}

async fn run(
    api: Api,
    listener: std::os::unix::net::UnixListener,
    tcp: Option<Tcp>,
    socket: &Path,
) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(Failure::failed)?;
    let (stop_api, api_stopped) = watch::channel(());
    // Dropping the sender stops both.
    let stopped = |mut stopped: watch::Receiver<()>| async move {
        let _ = stopped.changed().await;
    };
    let mut answering = JoinSet::new();
    let answers = http::serve(listener, api.clone(), stopped(api_stopped.clone()));
    answering.spawn(apart("api", answers).map_err(Failure::failed)?);
    if let Some(Tcp { listeners, keys }) = tcp {
        for address in listeners.iter().filter_map(|listener| listener.local_addr().ok()) {
            tracing::info!(%address, "the API answers on TCP");
        }
        let answers = remote::serve(listeners, keys, api.clone(), stopped(api_stopped));
        answering.spawn(apart("api-tcp", answers).map_err(Failure::failed)?);
    }
    tracing::info!(
        class = "daemon.started", socket = %socket.display(), pid = std::process::id(),
        "the API answers"
    );
    let Api { control, .. } = api;
    let may_replicate = replicate_apart(&control).map_err(Failure::failed)?;
    let starting = Arc::clone(&control);
    let start = tokio::spawn(async move {
        starting.start().await;
        manager::ready();
        // The thread waits for it.
        let _ = may_replicate.send(());
        tokio::join!(
            manager::report_health(&starting),
            look_in_time(&starting),
            look_each_minute(&starting),
            starting.look_for_disks(),
            starting.each_second(),
            starting.watch_disks(),
            starting.replace_gone_disks(),
            starting.note_acts_by_itself(),
            starting.keep_events(),
            starting.keep_load(),
            starting.watch_problems(),
            starting.tell_events(),
        );
    });
    let name = signals.next().await;
    tracing::info!(signal = name, "stopping; a second signal ends at once");
    manager::stopping();
    tokio::spawn(async move {
        let name = signals.next().await;
        tracing::warn!(signal = name, "ended at once; the next start replays the log");
        std::process::exit(1);
    });
    start.abort();
    control.stop().await;
    drop(stop_api);
    let all = async { while answering.join_next().await.is_some() {} };
    // Dropping the runtime cuts off all that has not ended by then.
    let _ = tokio::time::timeout(API_PATIENCE, all).await;
    tracing::info!("stopped");
    Ok(())
}

/// Runs replication on a thread of its own, from when it may begin. It ends with the process: a run
/// that is cut off leaves nothing half.
fn replicate_apart(control: &Arc<Control>) -> io::Result<oneshot::Sender<()>> {
    let (may_begin, begins) = oneshot::channel();
    let control = Arc::clone(control);
    let work = async move {
        if begins.await.is_ok() {
            control.replicate().await;
        }
        Ok(())
    };
    drop(apart("replicate", work)?);
    Ok(may_begin)
}

/// How often it is looked whether a scrub is due, or a disk has grown.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// Begins the scrubs that are due and lets pools grow, as long as the daemon runs.
async fn look_in_time(control: &Control) {
    loop {
        control.scrub_due().await;
        control.expand_grown().await;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Takes away holds that have ended, and takes the snapshots that are due, as long as the daemon
/// runs.
async fn look_each_minute(control: &Control) {
    loop {
        control.tend_holds().await;
        control.snapshots_due().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

/// Runs work on a thread of its own, which yields to those of clients. The returned future is ready
/// when the thread has ended.
fn apart(
    name: &'static str,
    work: impl Future<Output = io::Result<()>> + Send + 'static,
) -> io::Result<impl Future<Output = io::Result<()>> + Send + 'static> {
    let (ended, end) = oneshot::channel();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(name.into()).spawn(move || {
        yield_to_clients();
        // The receiver is gone if the daemon ends first.
        let _ = ended.send(runtime.block_on(work));
    })?;
    let panicked = move |_| Err(io::Error::other(format!("a panic of the thread {name}")));
    Ok(async move { end.await.unwrap_or_else(panicked) })
}

/// The API on TCP.
struct Tcp {
    listeners: Vec<std::net::TcpListener>,
    keys: Keys,
}

fn bind_tcp(api: &settings::Api, state_dir: &Path) -> Result<Option<Tcp>, Failure> {
    if api.listen.is_empty() {
        return Ok(None);
    }
    let failed = |why: &dyn std::fmt::Display| Failure::failed(format!("the API on TCP: {why}"));
    let addresses: Vec<_> = api.listen.iter().map(std::net::SocketAddr::ip).collect();
    let keys = Keys::open(&keys_dir(state_dir), &api.names, &addresses);
    let keys = keys.map_err(|error| failed(&error))?;
    let listeners = remote::bind(&api.listen).map_err(|error| failed(&error))?;
    Ok(Some(Tcp { listeners, keys }))
}

/// Peers to which the configuration shows no other certificate are shown this machine's own.
fn show_own_certificate(peers: &mut Peers, keys_dir: &Path) {
    let all = peers.values_mut().filter(|peer| peer.client_certificate.is_none());
    let mut all = all.peekable();
    if all.peek().is_none() {
        return;
    }
    match client_files(keys_dir) {
        Ok([certificate, key]) => all.for_each(|peer| {
            (peer.client_certificate, peer.client_key) =
                (Some(certificate.clone()), Some(key.clone()));
        }),
        // Peers whose tokens are bound to nothing can be asked all the same.
        Err(error) => tracing::warn!(
            class = "api.certificate", %error,
            "there is no certificate to show to peers; without it, bound tokens are refused there"
        ),
    }
}

/// The directory of certificate, key and tokens.
fn keys_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("api")
}

/// The signals that end the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// The time for answers of the API that are under way when the daemon stops.
const API_PATIENCE: Duration = Duration::from_secs(2);
