//! `aquifer serve` in a network namespace, and the commands that ask it.
//!
//! What holds: a daemon that is started has its state and its log where the one before it had them,
//! so that it may be killed and started again. Its socket lies in the system's directory for
//! temporary files, since a socket's path may have 107 bytes, which a directory of the project may
//! not leave; it goes with the [`Daemon`].

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::netns::{NetNs, wait_for_listener};
use crate::process::{Invocation, Outcome, Process};
use crate::work::Scratch;
use crate::{Error, Result};

/// A daemon, running or not.
#[derive(Debug)]
pub struct Daemon {
    program: PathBuf,
    socket: PathBuf,
    serve: Invocation,
    netns: NetNs,
    ports: &'static [u16],
    log: PathBuf,
    /// What it had logged before its last start, in bytes.
    logged: usize,
    /// Goes before the namespace.
    process: Option<Process>,
}

impl Daemon {
    /// `program serve ARGS...` in `netns`, with state and log in `scratch`. It serves when somebody
    /// listens on each of the TCP `ports`. Nothing is started yet.
    #[must_use]
    pub fn new<A: AsRef<OsStr>>(
        program: &Path,
        netns: &NetNs,
        scratch: &Scratch,
        args: impl IntoIterator<Item = A>,
        ports: &'static [u16],
    ) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("aquifer-{}-{number}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let serve = Invocation::new(program).arg("--api-socket").arg(&socket).arg("serve");
        let serve = serve.arg("--state-dir").arg(scratch.join("state")).args(args);
        Self {
            program: program.to_path_buf(),
            socket,
            serve: serve.env_remove("RUST_LOG").inside(netns),
            netns: netns.clone(),
            ports,
            log: scratch.join("aquifer.log"),
            logged: 0,
            process: None,
        }
    }

    /// Sets a variable of its environment, from its next start on.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.serve = self.serve.clone().env(name, value);
    }

    /// Starts it and waits until it takes commands: without a pool it serves nothing.
    ///
    /// # Errors
    /// [`Error::Failed`] if it ends; [`Error::Timeout`].
    pub fn start(&mut self) -> Result<()> {
        let start = Instant::now();
        self.spawn()?;
        while !self.ask(&["pool", "list"], PATIENCE)?.status.success() {
            if !self.process()?.is_running() {
                return Err(Error::Failed { what: self.serve.line(), said: self.log() });
            }
            if start.elapsed() > PATIENCE {
                let what = "the daemon to answer".into();
                return Err(Error::Timeout { what, limit: PATIENCE, said: self.log() });
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts it on the pools it had; returns the time until clients can connect.
    ///
    /// # Errors
    /// As [`Daemon::wait_serving`].
    pub fn serve(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.spawn()?;
        self.wait_serving()?;
        Ok(start.elapsed())
    }

    /// Starts it and kills it after `span`, wherever in its start it is then.
    ///
    /// # Errors
    /// [`Error::Failed`] if it had ended by itself.
    pub fn serve_for(&mut self, span: Duration) -> Result<()> {
        self.spawn()?;
        thread::sleep(span);
        let runs = self.process()?.is_running();
        self.kill9();
        match runs {
            true => Ok(()),
            false => Err(Error::Failed { what: self.serve.line(), said: self.log() }),
        }
    }

    /// Waits until it listens on its ports, or has given up a pool that it had.
    ///
    /// # Errors
    /// [`Error::Failed`] if it ends, or does not get a pool; [`Error::Timeout`].
    pub fn wait_serving(&self) -> Result<()> {
        let start = Instant::now();
        for port in self.ports {
            let wait = || wait_for_listener(Some(&self.netns), *port, self.process()?, LOOK);
            let mut waited = wait();
            while matches!(waited, Err(Error::Timeout { .. })) && start.elapsed() < PATIENCE {
                if let Some(why) = self.given_up() {
                    return Err(Error::Failed { what: "the import of a pool".into(), said: why });
                }
                waited = wait();
            }
            waited?;
        }
        Ok(())
    }

    /// What it has said of a pool that it could not import since its last start.
    fn given_up(&self) -> Option<String> {
        let log = self.log();
        let mut lines = log.get(self.logged..)?.lines();
        lines.find(|line| line.contains("class=\"pool.unavailable\"")).map(str::to_owned)
    }

    /// SIGKILL; gone when this returns.
    pub fn kill9(&mut self) {
        // Dropping a process kills and reaps it.
        self.process = None;
    }

    /// SIGTERM; waits for the end, at most `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Failed`] if it ended badly, or did not run.
    pub fn stop(&mut self, limit: Duration) -> Result<()> {
        let ended = self.process()?.terminate(limit)?;
        self.process = None;
        if ended.success() {
            return Ok(());
        }
        Err(Error::Failed { what: format!("the daemon ended with {ended}"), said: self.log() })
    }

    /// The running daemon.
    ///
    /// # Errors
    /// [`Error::Failed`] if it was not started, or stopped.
    pub fn process(&self) -> Result<&Process> {
        let gone = || Error::Failed { what: "the daemon does not run".into(), said: self.log() };
        self.process.as_ref().ok_or_else(gone)
    }

    /// Its command line, with which `aquifer COMMAND` reaches it.
    #[must_use]
    pub fn command(&self) -> Invocation {
        Invocation::new(&self.program).arg("--api-socket").arg(&self.socket)
    }

    /// Runs `aquifer WORDS...` to its end, whatever its exit status.
    ///
    /// # Errors
    /// [`Error::Timeout`] after `limit`; [`Error::Io`].
    pub fn ask(&self, words: &[&str], limit: Duration) -> Result<Outcome> {
        self.command().args(words).run(limit)
    }

    /// The namespace it runs in.
    #[must_use]
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }

    /// Its Unix socket, where the API is.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The file that it logs to.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// All that it has logged, from its first start on.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn spawn(&mut self) -> Result<()> {
        self.logged = self.log().len();
        self.process = Some(self.serve.spawn(&self.log)?);
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill9();
        // A daemon that is killed leaves it; one that ended has removed it.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// After so long without a listener its log is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// For a start on a busy machine, with a log to replay.
const PATIENCE: Duration = Duration::from_secs(120);
