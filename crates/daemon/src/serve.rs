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
//! At the start the daemon locks the state directory and binds the API's socket. Then NFS listens,
//! and the pools of the list are imported. A part that cannot work is a problem of the server, and
//! is tried again: it keeps no other part from starting (see `parts` in aquifer-admin). SIGHUP,
//! SIGUSR1 and SIGUSR2 change nothing: files of keys are read again by themselves, and settings
//! hold until the next start. On SIGTERM or SIGINT, NFS stops listening and finishes what it
//! has begun. Then every pool is exported, but for those whose disks do not answer, which are given
//! up. The API ends last. A second signal ends the process
//! at once, which is as safe as kill -9: the next start replays the log.

mod acts;
mod events;
mod frontend;
mod log;
mod manager;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aquifer_admin::control::Round;
use aquifer_admin::events::EventRing;
use aquifer_admin::{Control, ControlConfig, Parts, Peers};
use aquifer_api::keys::Identity;
use aquifer_api::{Problem, Severity, codes};
use aquifer_audit::{Audit, Entry};
use aquifer_nfsd::limits::{Limits, allow_files};
use aquifer_nfsd::precedence::yield_to_clients;
use aquifer_nfsd::{Config, NamesConfig, Portmap};
use aquifer_pool::Memory;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::http::{self, Api};
use crate::remote;
use crate::remote::Remote;
use crate::remote::keys::{client_files, client_paths};
use crate::remote::tokens::Tokens;

use crate::args::ServeArgs;
use crate::failure::Failure;
use crate::settings::{self, Settings, Usable, usable};
use frontend::{LockSettings, NfsFrontend};

/// The settings by which would be served, as a configuration has them.
///
/// # Errors
/// A configuration that cannot be read, is not understood, or asks for what cannot be.
pub fn settings(args: &ServeArgs) -> Result<String, Failure> {
    let settings = Settings::of(args)?;
    settings.check_addresses()?;
    settings.check_files()?;
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
    let Usable { settings, problem } = usable(args)?;
    let events: Arc<EventRing> = Arc::default();
    log::to_stderr(&settings.log, &events)?;
    let parts: Arc<Parts> = Arc::default();
    parts.note("settings", problem);
    let memory = Memory::new(settings.memory_bytes());
    allow_files();
    let frontend = frontend_of(&settings, &memory);
    let keys = keys_dir(&settings.state_dir);
    let settings::Api { listen, names } = settings.api;
    let remote = (!listen.is_empty()).then(|| Remote { listen, names, keys: keys.clone() });
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let audit = Audit::start(&settings.audit, &host).map_err(Failure::failed)?;
    let mut config = ControlConfig {
        state_dir: settings.state_dir,
        memory,
        wait_for_disks: Duration::from_secs(settings.wait_for_disks_s.into()),
        smartctl: settings.smartctl,
        host_limits: settings.snapcontrol.limits(),
        alerts: settings.alerts,
        peers: settings.peers,
        commit: commit.map(str::to_string),
        parts: Arc::clone(&parts),
        audit: Arc::new(audit),
    };
    let shows_own = show_own_certificate(&mut config.peers, &keys);
    let control = Control::open(config, Arc::new(frontend), events).map_err(Failure::failed)?;
    let tokens = Arc::new(Tokens::open(&keys));
    let home = Some(runtime.handle().clone());
    let api = Api { control, tokens, home };
    let place = Place { socket: socket.to_path_buf(), remote, keys, shows_own, parts };
    let listener = match http::bind(socket) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            return Err(Failure::failed(format!("{}: {error}", socket.display())));
        }
        bound => bound,
    };
    let served = runtime.block_on(run(api, listener, place));
    // The next daemon must not find a socket without an answer.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(socket = %socket.display(), %error, "the socket stays behind");
        }
        _ => {}
    }
    served
}

fn frontend_of(settings: &Settings, memory: &Arc<Memory>) -> NfsFrontend {
    let portmap = match settings.portmap.enabled {
        true => Portmap::At(settings.portmap.listen.clone()),
        false => Portmap::Off,
    };
    let limits = Limits { connections_max: settings.nfs.connections, ..Limits::default() };
    let limits = limits.within_memory(memory.cap_bytes());
    let locks = LockSettings {
        dir: settings.state_dir.clone(),
        grace: Duration::from_secs(settings.nfs.lock_grace_s.into()),
    };
    let config = Config {
        listen: settings.nfs.listen.clone(),
        portmap,
        threads: settings.nfs.threads,
        limits,
        tls: settings.nfs.tls.files(),
        memory: Some(Arc::clone(memory)),
        ..Config::default()
    };
    let names = NamesConfig { servers: settings.names.servers.clone(), ..NamesConfig::default() };
    NfsFrontend::new(config, locks, names)
}

/// Where the API is, and what it needs.
struct Place {
    socket: PathBuf,
    remote: Option<Remote>,
    keys: PathBuf,
    /// Peers are shown this machine's own certificate.
    shows_own: bool,
    parts: Arc<Parts>,
}

impl Place {
    /// The API's socket, as soon as it can be bound.
    async fn bind(&self, bound: io::Result<UnixListener>) -> UnixListener {
        let mut bound = Some(bound);
        let attempt = || {
            let bound = bound.take().unwrap_or_else(|| http::bind(&self.socket));
            bound.map_err(|error| {
                let status = format!("The API has no socket {}: {error}.", self.socket.display());
                let action = "Remove what is in the way: it is tried again by itself.";
                let action = Some(action.to_string());
                Problem::new(codes::API_NOT_SERVED, Severity::Error, status, action)
            })
        };
        self.parts.until("api socket", attempt).await
    }

    /// Looks at the files of keys, as long as the daemon runs.
    async fn tend(&self, tokens: &Tokens, audit: &Audit) {
        loop {
            for (part, why) in audit.problems() {
                self.parts.note(part, why.map(|why| not_written(part, &why)));
            }
            tokens.look_again();
            let unreadable = |why: String| {
                let status = format!("Tokens of the API cannot be read: {why}.");
                let action = "Mend the file: it is read again by itself. The API's socket on this \
                              machine needs no token.";
                Problem::new(codes::API_NOT_SERVED, Severity::Error, status, Some(action.into()))
            };
            self.parts.note("api tokens", tokens.problem().map(unreadable));
            if self.shows_own {
                let made = client_files(&self.keys);
                let read = made.and_then(|[certificate, key]| Identity::read(&certificate, &key));
                let unmade = read.err().map(|error| {
                    let status = format!("There is no certificate to show to peers: {error}.");
                    let action = "Bound tokens are refused there. Mend the file: it is tried again \
                                  by itself.";
                    let (code, action) = (codes::API_NOT_SERVED, Some(action.to_string()));
                    Problem::new(code, Severity::Warning, status, action)
                });
                self.parts.note("peer certificate", unmade);
            }
            tokio::time::sleep(TEND_EVERY).await;
        }
    }
}

async fn run(api: Api, listener: io::Result<UnixListener>, place: Place) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(Failure::failed)?;
    let (stop_api, api_stopped) = watch::channel(());
    // Dropping the sender stops both.
    let stopped = |mut stopped: watch::Receiver<()>| async move {
        let _ = stopped.changed().await;
    };
    let mut answering = JoinSet::new();
    let place = Arc::new(place);
    if let Some(remote) = place.remote.clone() {
        let (parts, stop) = (Arc::clone(&place.parts), stopped(api_stopped.clone()));
        let (trying, tried) = oneshot::channel();
        let answers = remote::serve(remote, api.clone(), parts, trying, stop);
        answering.spawn(apart("api-tcp", answers).map_err(Failure::failed)?);
        // Whoever starts a daemon waits for its socket, and then uses its keys.
        let _ = tried.await;
    }
    let (bound, local) = (Arc::clone(&place), api.clone());
    let answers = async move {
        tokio::select! {
            listener = bound.bind(listener) => {
                http::serve(listener, local, stopped(api_stopped)).await
            }
            () = stopped(api_stopped.clone()) => Ok(()),
        }
    };
    answering.spawn(apart("api", answers).map_err(Failure::failed)?);
    let socket = &place.socket;
    tracing::info!(
        class = "daemon.started", socket = %socket.display(), pid = std::process::id(),
        "the API answers"
    );
    let Api { control, tokens, .. } = api;
    let may_replicate = replicate_apart(&control).map_err(Failure::failed)?;
    let starting = Arc::clone(&control);
    let start = tokio::spawn(work(starting, place, tokens, may_replicate));
    let name = signals.next().await;
    tracing::info!(signal = name, "stopping; a second signal ends at once");
    manager::stopping();
    tokio::spawn(async move {
        let name = signals.next().await;
        tracing::warn!(signal = name, "ended at once; the next start replays the log");
        std::process::exit(1);
    });
    start.abort();
    let given_up = control.stop().await;
    control.audit().note(of_itself("the daemon stops"));
    drop(stop_api);
    let all = async { while answering.join_next().await.is_some() {} };
    // Dropping the runtime cuts off all that has not ended by then.
    let _ = tokio::time::timeout(API_PATIENCE, all).await;
    control.audit().end();
    tracing::info!(given_up = given_up.join(", "), "stopped");
    Ok(())
}

/// Brings the pools into service, and does what is done beside clients until it is dropped.
async fn work(
    control: Arc<Control>,
    place: Arc<Place>,
    tokens: Arc<Tokens>,
    may_replicate: oneshot::Sender<()>,
) {
    let ready: Arc<manager::Ready> = Arc::default();
    let tended = tokio::spawn({
        let (control, ready) = (Arc::clone(&control), Arc::clone(&ready));
        async move {
            tokio::join!(
                control.tend_frontend(),
                control.tend_state(),
                place.tend(&tokens, control.audit()),
                manager::tell(&control, &ready),
            );
        }
    });
    let _ends_with_it = AbortOnDrop(tended);
    control.audit().note(of_itself("the daemon starts"));
    control.start().await;
    // Before reports of health.
    ready.tell_if(control.is_ready());
    // The thread waits for it.
    let _ = may_replicate.send(());
    tokio::join!(
        manager::report_health(&control),
        look_in_time(&control),
        look_each_minute(&control),
        control.look_for_disks(),
        control.each_second(),
        control.watch_disks(),
        control.replace_gone_disks(),
        control.note_acts_by_itself(),
        control.keep_events(),
        control.keep_load(),
        control.watch_problems(),
        control.tell_events(),
    );
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

/// An audit line of the daemon's own.
fn of_itself(act: &str) -> Entry {
    let uid = rustix::process::getuid().as_raw();
    Entry { who: format!("uid {uid}"), act: act.into(), outcome: "done".into(), ..Entry::default() }
}

/// Audit lines do not go out.
fn not_written(part: &str, why: &str) -> Problem {
    let status = format!("Audit lines do not go out ({part}): {why}.");
    let action = "Acts go on. Make room, or mend what is in the way: it is tried again by itself, \
                  and a line counts those that found no room.";
    Problem::new(codes::AUDIT_NOT_WRITTEN, Severity::Error, status, Some(action.into()))
}

/// How often it is looked whether a scrub is due, or a disk has grown.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// Begins the scrubs that are due and lets pools grow, as long as the daemon runs.
async fn look_in_time(control: &Arc<Control>) {
    loop {
        control.begin_round(Round::Disks);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Takes away holds that have ended, and takes the snapshots that are due, as long as the daemon
/// runs.
async fn look_each_minute(control: &Arc<Control>) {
    loop {
        control.begin_round(Round::Snapshots);
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

/// Peers to which the configuration shows no other certificate are shown this machine's own.
/// Whether there are any.
fn show_own_certificate(peers: &mut Peers, keys_dir: &Path) -> bool {
    let all = peers.values_mut().filter(|peer| peer.client_certificate.is_none());
    let mut all = all.peekable();
    let are_any = all.peek().is_some();
    let [certificate, key] = client_paths(keys_dir);
    all.for_each(|peer| {
        (peer.client_certificate, peer.client_key) = (Some(certificate.clone()), Some(key.clone()));
    });
    are_any
}

/// A task that ends with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The directory of certificate, key and tokens.
fn keys_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("api")
}

/// The signals that end the daemon, and those that must not.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Without a handler, each ends a process at once, with no pool exported.
    others: [(&'static str, Signal); 3],
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            others: [
                ("SIGHUP", signal(SignalKind::hangup())?),
                ("SIGUSR1", signal(SignalKind::user_defined1())?),
                ("SIGUSR2", signal(SignalKind::user_defined2())?),
            ],
        })
    }

    /// The next one that ends the daemon.
    async fn next(&mut self) -> &'static str {
        let [(hup, hangup), (usr1, user_1), (usr2, user_2)] = &mut self.others;
        loop {
            let other = tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = hangup.recv() => &*hup,
                _ = user_1.recv() => &*usr1,
                _ = user_2.recv() => &*usr2,
            };
            tracing::info!(
                signal = other,
                "nothing is done at this signal: keys are read again by themselves, settings at \
                 the next start"
            );
        }
    }
}

/// Between two looks at the files of tokens.
const TEND_EVERY: Duration = Duration::from_secs(3);

/// The time for answers of the API that are under way when the daemon stops.
const API_PATIENCE: Duration = Duration::from_secs(2);
