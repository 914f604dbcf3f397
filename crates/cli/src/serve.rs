//! `aquifer serve`: the daemon in the foreground.
//!
//! # Threads
//! - The main thread runs the API, signals and acts of the administrator.
//! - Each pool has a thread of its own for its txgs (see `engine` in aquifer-admin).
//! - NFS has one thread per core (see aquifer-daemon).
//!
//! # Start and end
//! The state directory is locked, the API's socket bound, the pools of the list imported; then NFS
//! listens. SIGTERM or SIGINT: NFS stops listening and finishes what it has begun, every pool is
//! exported, the API goes last. A second signal ends the process at once, which is as safe as
//! kill -9: the next start replays the log.

mod frontend;
mod manager;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aquifer_admin::{Control, ControlConfig, http};
use aquifer_daemon::{Config, NamesConfig, Portmap};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::args::ServeArgs;
use crate::commands::print;
use crate::failure::Failure;
use crate::settings::Settings;
use frontend::{LockSettings, NfsFrontend};

/// Serves until a signal ends it.
pub(crate) fn serve(runtime: &Runtime, socket: PathBuf, args: ServeArgs) -> Result<(), Failure> {
    let settings = Settings::of(&args)?;
    if args.check {
        return print(&toml::to_string(&settings).map_err(Failure::failed)?);
    }
    log_to_stderr(&settings.log)?;
    let portmap = match settings.portmap.enabled {
        true => Portmap::At(settings.portmap.listen),
        false => Portmap::Off,
    };
    let (listen, threads) = (settings.nfs.listen, settings.nfs.threads);
    let locks = LockSettings {
        dir: settings.state_dir.clone(),
        grace: Duration::from_secs(settings.nfs.lock_grace_s.into()),
    };
    let config = Config { listen, portmap, threads, ..Config::default() };
    let names = NamesConfig { servers: settings.names.servers, ..NamesConfig::default() };
    let frontend = NfsFrontend::new(config, locks, names);
    let config = ControlConfig { state_dir: settings.state_dir, memory_bytes: settings.memory };
    let control = Control::open(config, Arc::new(frontend)).map_err(Failure::failed)?;
    let listener = http::bind(&socket)
        .map_err(|error| Failure::failed(format!("{}: {error}", socket.display())))?;
    let served = runtime.block_on(run(control, listener, &socket));
    // Whoever starts next shall not find a socket that nobody answers.
    if let Err(error) = std::fs::remove_file(&socket) {
        tracing::warn!(socket = %socket.display(), %error, "the socket stays behind");
    }
    served
}

async fn run(
    control: Arc<Control>,
    listener: std::os::unix::net::UnixListener,
    socket: &Path,
) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(Failure::failed)?;
    let (stop_api, api_stopped) = oneshot::channel::<()>();
    let api_control = Arc::clone(&control);
    let mut api = tokio::spawn(http::serve(listener, api_control, async {
        // A dropped sender is as good as a word.
        let _ = api_stopped.await;
    }));
    tracing::info!(socket = %socket.display(), pid = std::process::id(), "the API answers");
    let starting = Arc::clone(&control);
    let start = tokio::spawn(async move {
        starting.start().await;
        manager::ready();
        manager::report_health(&starting).await;
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
    if tokio::time::timeout(API_PATIENCE, &mut api).await.is_err() {
        api.abort();
    }
    tracing::info!("stopped");
    Ok(())
}

/// What ends the daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
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

fn log_to_stderr(filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(Failure::usage)?;
    let ansi = std::io::stderr().is_terminal();
    let logger = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(ansi);
    logger.with_env_filter(filter).init();
    Ok(())
}

/// For answers of the API that are on their way when the daemon stops.
const API_PATIENCE: Duration = Duration::from_secs(2);
