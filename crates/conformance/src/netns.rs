//! A network of its own for a server and its clients.
//!
//! What holds: a namespace has only a loopback interface, so every port in it is free (111 for
//! rpcbind, 2049) and nothing in it can be reached from the machine. It is also a mount namespace
//! with an empty `/run` and `/var/lib/nfs`, since rpcbind and nfs-ganesha keep sockets and state
//! there. It lives as long as the process that holds it, and that as long as the last [`NetNs`].
//! Without root the namespace is one of a user namespace, in which the caller is root.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Invocation, Process};
use crate::work::Scratch;
use crate::{Error, Result};

/// A network namespace; clones are the same one.
#[derive(Clone, Debug)]
pub struct NetNs {
    holder: Arc<Process>,
    user: bool,
}

impl NetNs {
    /// Makes a namespace and brings its loopback interface up.
    ///
    /// # Errors
    /// [`Error::MissingTool`]; [`Error::Failed`] where the system allows no namespaces.
    pub fn new(scratch: &Scratch) -> Result<Self> {
        let user = !rustix::process::geteuid().is_root();
        let mut unshare = Invocation::tool("unshare", "guest")?;
        if user {
            unshare = unshare.args(["--user", "--map-root-user"]);
        }
        let script = "ip link set lo up && mount -t tmpfs tmpfs /run && \
            { [ ! -d /var/lib/nfs ] || mount -t tmpfs tmpfs /var/lib/nfs; } && echo up && exec cat";
        let mut holder = unshare
            .args([
                "--net",
                "--mount",
                "--propagation",
                "private",
                "--",
                "sh",
                "-c",
                script,
            ])
            .spawn_piped(&scratch.join("netns.log"))?;
        // Its input is a pipe that nobody writes to: `cat` waits there until it is killed.
        let mut line = String::new();
        if let Some(stdout) = holder.take_stdout() {
            let read = BufReader::new(stdout).read_line(&mut line);
            read.map_err(Error::io("read from unshare"))?;
        }
        if line.trim() != "up" {
            return Err(Error::Failed {
                what: "network namespace".into(),
                said: holder.said(),
            });
        }
        Ok(Self {
            holder: Arc::new(holder),
            user,
        })
    }

    /// The command line prefix that enters the namespace.
    pub(crate) fn enter(&self) -> Vec<OsString> {
        let pid = self.holder.pid();
        let mut words = vec!["nsenter".into(), format!("--target={pid}")];
        if self.user {
            words.extend(["--user".into(), "--preserve-credentials".into()]);
        }
        words.extend(["--net".into(), "--mount".into(), "--".into()]);
        words.into_iter().map(OsString::from).collect()
    }

    fn tcp_tables(&self) -> [PathBuf; 2] {
        let pid = self.holder.pid();
        ["tcp", "tcp6"].map(|table| PathBuf::from(format!("/proc/{pid}/net/{table}")))
    }
}

/// Waits until somebody listens on TCP `port` in `netns` (on this machine itself without one), or
/// `server` has ended. Connects to nobody: some servers count connections.
///
/// # Errors
/// [`Error::Timeout`] after `limit`, [`Error::Failed`] if `server` ended.
pub fn wait_for_listener(
    netns: Option<&NetNs>,
    port: u16,
    server: &Process,
    limit: Duration,
) -> Result<()> {
    let start = Instant::now();
    while !is_listening(netns, port) {
        if !server.is_running() {
            let what = format!("server for port {port}");
            return Err(Error::Failed {
                what,
                said: server.said(),
            });
        }
        if start.elapsed() > limit {
            let what = format!("listener on port {port}");
            return Err(Error::Timeout {
                what,
                limit,
                said: server.said(),
            });
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Whether somebody listens on TCP `port`, by the kernel's table of sockets.
#[must_use]
pub fn is_listening(netns: Option<&NetNs>, port: u16) -> bool {
    let own = || ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(PathBuf::from);
    let tables = netns.map_or_else(own, NetNs::tcp_tables);
    tables.iter().any(|table| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines()
            .skip(1)
            .any(|line| is_listener_line(line, port))
    })
}

/// `sl local_address rem_address st ...`: address in hexadecimal with the port after a colon,
/// state 0A is LISTEN (Linux `include/net/tcp_states.h`).
fn is_listener_line(line: &str, port: u16) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next().and_then(|address| address.rsplit_once(':'));
    let local_port = local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
    local_port == Some(port) && fields.nth(1) == Some("0A")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::WorkDir;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn namespace_has_loopback_only_and_ends_with_its_owner() {
        let scratch = WorkDir::open().unwrap().scratch("netns").unwrap();
        let netns = NetNs::new(&scratch).unwrap();
        let links = Invocation::new("ip")
            .args(["-o", "link"])
            .inside(&netns)
            .check(SOON)
            .unwrap();
        assert_eq!(links.text().lines().count(), 1, "{}", links.text());
        assert!(
            links.text().contains("lo:") && links.text().contains("UP"),
            "{}",
            links.text()
        );
        let touch = Invocation::new("touch").arg("/run/aquifer-test-of-a-namespace");
        touch.inside(&netns).check(SOON).unwrap();
        assert!(!PathBuf::from("/run/aquifer-test-of-a-namespace").exists());
        let holder = PathBuf::from(format!("/proc/{}", netns.holder.pid()));
        drop(netns);
        assert!(!holder.exists());
    }

    #[test]
    fn listener_is_seen_and_a_connection_is_none() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(None, port));
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (served, _) = listener.accept().unwrap();
        drop(listener);
        assert!(!is_listening(None, port));
        drop((client, served));
    }
}
