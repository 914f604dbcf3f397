//! A server under test as a process: started, killed, started again.
//!
//! Invariant: `start` returns only when the server's port has a listener, and only if the server
//! itself still runs. A killed server is gone when `kill9` returns, and its port with it.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::netns::{NetNs, is_listening, wait_for_listener};
use crate::process::{Invocation, Process};
use crate::{Error, Result};

/// A server that listens on a TCP port.
#[derive(Debug)]
pub struct Server {
    invocation: Invocation,
    netns: Option<NetNs>,
    port: u16,
    log: PathBuf,
    process: Option<Process>,
}

impl Server {
    /// A server that `invocation` starts, and that listens on `port` in `netns` (or on this
    /// machine). Its output is appended to `log`. It is not started yet.
    #[must_use]
    pub fn new(invocation: Invocation, netns: Option<&NetNs>, port: u16, log: &Path) -> Self {
        let invocation = match netns {
            Some(netns) => invocation.inside(netns),
            None => invocation,
        };
        Self { invocation, netns: netns.cloned(), port, log: log.to_path_buf(), process: None }
    }

    /// Starts it and waits for its port.
    ///
    /// # Errors
    /// [`Error::Failed`] if it ends or the port is taken; [`Error::Timeout`].
    pub fn start(&mut self, limit: Duration) -> Result<()> {
        if is_listening(self.netns.as_ref(), self.port) {
            let what = format!("{}: port {} is taken", self.invocation.line(), self.port);
            return Err(Error::Failed { what, said: self.said() });
        }
        let process = self.process.insert(self.invocation.spawn(&self.log)?);
        wait_for_listener(self.netns.as_ref(), self.port, process, limit)
    }

    /// Sends SIGKILL; returns when it is gone.
    pub fn kill9(&mut self) {
        // Dropping a process kills and reaps it.
        self.process = None;
    }

    /// Sends SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it had to be killed; [`Error::Failed`] if it did not run.
    pub fn stop(&mut self, limit: Duration) -> Result<ExitStatus> {
        let ended = self.running()?.terminate(limit);
        self.process = None;
        ended
    }

    /// Kills it with SIGKILL and starts it, like a crash and a supervisor.
    ///
    /// # Errors
    /// Those of `start`.
    pub fn restart(&mut self, limit: Duration) -> Result<()> {
        self.kill9();
        self.start(limit)
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.as_ref().is_some_and(Process::is_running)
    }

    /// The running process, for its pid and processor time.
    ///
    /// # Errors
    /// [`Error::Failed`] if it does not run.
    pub fn running(&self) -> Result<&Process> {
        let not_running =
            || Error::Failed { what: "server is not running".into(), said: self.said() };
        self.process.as_ref().ok_or_else(not_running)
    }

    /// The end of its log.
    #[must_use]
    pub fn said(&self) -> String {
        crate::process::log_tail(&self.log)
    }
}

/// The program `aquifer`: `$AQUIFER_BIN`, or else the one in the target directory of the running
/// test.
///
/// # Errors
/// [`Error::MissingTool`] if there is no such program.
pub fn aquifer_program() -> Result<PathBuf> {
    let missing = || Error::MissingTool { tool: "aquifer (AQUIFER_BIN)".into(), group: "build" };
    if let Some(path) = std::env::var_os("AQUIFER_BIN") {
        return Some(PathBuf::from(path)).filter(|path| path.is_file()).ok_or_else(missing);
    }
    let program = std::env::current_exe().map_err(Error::io("find this program"))?;
    // Test programs lie in `target/PROFILE/deps`, others in `target/PROFILE`.
    let candidates = program.ancestors().skip(1).take(2).map(|dir| dir.join("aquifer"));
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::WorkDir;

    const SOON: Duration = Duration::from_secs(20);

    /// busybox's web server: a server that every machine with the `guest` group has.
    fn httpd(port: &str, netns: &NetNs, log: &Path) -> Server {
        let listen = format!("127.0.0.1:{port}");
        let httpd = Invocation::new("busybox").args(["httpd", "-f", "-p", &listen, "-h", "/"]);
        Server::new(httpd, Some(netns), port.parse().unwrap(), log)
    }

    #[test]
    fn killed_and_started_again_on_the_same_port() {
        let scratch = WorkDir::open().unwrap().scratch("server").unwrap();
        let netns = NetNs::new(&scratch).unwrap();
        let mut server = httpd("111", &netns, &scratch.join("log"));
        server.start(SOON).unwrap();
        let first = server.running().unwrap().pid();
        assert!(is_listening(Some(&netns), 111) && !is_listening(None, 111));
        server.restart(SOON).unwrap();
        assert_ne!(server.running().unwrap().pid(), first);
        server.kill9();
        assert!(!server.is_running() && !is_listening(Some(&netns), 111));
        server.start(SOON).unwrap();
        server.stop(SOON).unwrap();
        assert!(!is_listening(Some(&netns), 111));
    }

    #[test]
    fn a_taken_port_and_a_server_that_ends_are_errors() {
        let scratch = WorkDir::open().unwrap().scratch("server-bad").unwrap();
        let netns = NetNs::new(&scratch).unwrap();
        let mut first = httpd("80", &netns, &scratch.join("log"));
        first.start(SOON).unwrap();
        let taken = httpd("80", &netns, &scratch.join("log2")).start(SOON).unwrap_err();
        assert!(taken.to_string().contains("taken"), "{taken}");
        let broken = Invocation::new("sh").args(["-c", "echo broken; exit 1"]);
        let mut broken = Server::new(broken, Some(&netns), 81, &scratch.join("log3"));
        let ended = broken.start(SOON).unwrap_err();
        assert!(ended.to_string().contains("broken"), "{ended}");
    }
}
