//! `aquifer serve` in a network namespace, and the commands that ask it.
//!
//! Invariant: each daemon keeps its state and its log where the previous one had them, so it can be
//! killed and started again. Its socket is in the system's directory for temporary files. A
//! socket's path may have 107 bytes, and a directory of the project may not leave that many.
//! Dropping the [`Daemon`] removes the socket.

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
    /// The length of its log before its last start, in bytes.
    logged: usize,
    /// Dropped before the namespace.
    process: Option<Process>,
}

impl Daemon {
    /// `program serve ARGS...` in `netns`, with state and log in `scratch`. It serves when it
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

    /// Sets a variable of its environment, for its next starts.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.serve = self.serve.clone().env(name, value);
    }

    /// Starts it and waits until it accepts commands; without a pool it serves nothing.
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

    /// Starts it on its earlier pools; returns the time until clients can connect.
    ///
    /// # Errors
    /// As [`Daemon::wait_serving`].
    pub fn serve(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.spawn()?;
        self.wait_serving()?;
        Ok(start.elapsed())
    }

    /// Starts it and kills it after `span`, at whatever step of its start.
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

    /// Waits until it listens on its ports and its pools are in service, or it has given one up.
    ///
    /// # Errors
    /// [`Error::Failed`] if it ends, or gives up a pool; [`Error::Timeout`].
    pub fn wait_serving(&self) -> Result<()> {
        let start = Instant::now();
        for port in self.ports {
            let wait = || wait_for_listener(Some(&self.netns), *port, self.process()?, LOOK);
            let mut waited = wait();
            while matches!(waited, Err(Error::Timeout { .. })) && start.elapsed() < PATIENCE {
                self.check_none_given_up()?;
                waited = wait();
            }
            waited?;
        }
        // It listens before its pools are there.
        while self.ask(&["--json", "pool", "list"], PATIENCE)?.text().contains("IMPORTING") {
            self.check_none_given_up()?;
            if start.elapsed() > PATIENCE {
                let what = "a pool to be in service".into();
                return Err(Error::Timeout { what, limit: PATIENCE, said: self.log() });
            }
            thread::sleep(Duration::from_millis(10));
        }
        // It may have given a pool up between two looks.
        self.check_none_given_up()
    }

    /// Whether its log since its last start tells of no pool that it could not import.
    fn check_none_given_up(&self) -> Result<()> {
        let log = self.log();
        let mut lines = log.get(self.logged..).unwrap_or_default().lines();
        match lines.find(|line| line.contains("class=\"pool.unavailable\"")) {
            Some(said) => {
                Err(Error::Failed { what: "the import of a pool".into(), said: said.into() })
            }
            None => Ok(()),
        }
    }

    /// Sends SIGKILL; the daemon is gone when this returns.
    pub fn kill9(&mut self) {
        // Dropping a process kills and reaps it.
        self.process = None;
    }

    /// Sends SIGTERM, and waits at most `limit` for the end.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Failed`] if it ended with an error, or did not run.
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

    /// The beginning of a command line with which `aquifer COMMAND` reaches it.
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

    /// The Unix socket of its API.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The file that it logs to.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Its whole log, from its first start on.
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
        // A killed daemon leaves its socket; one that ended has removed it.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// After this long without a listener, look at its log.
const LOOK: Duration = Duration::from_millis(500);
/// Time limit for a start on a busy machine, with a log to replay.
const PATIENCE: Duration = Duration::from_secs(120);
