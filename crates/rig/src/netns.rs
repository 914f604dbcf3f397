//! A network of its own for a server and its clients.
//!
//! Invariant: a namespace has only a loopback interface. So every port in it is free (111 for
//! rpcbind, 2049) and nothing in it can be reached from the machine. It is also a mount namespace
//! with an empty `/run` and `/var/lib/nfs`, since rpcbind and nfs-ganesha keep sockets and state
//! there. Everything in the namespace is killed with the last [`NetNs`], or with this process
//! however that ends. That includes daemons that forked or changed their user. The process that
//! holds the namespace does so when its input ends. Without root the namespace belongs to a user
//! namespace, in which the caller is root.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::{Invocation, Process};
use crate::work::Scratch;
use crate::{Error, Result};

/// A network namespace; clones are the same one.
#[derive(Clone, Debug)]
pub struct NetNs {
    holder: Arc<Holder>,
    user: bool,
}

/// The process that keeps the namespace, and clears it in the end.
#[derive(Debug)]
struct Holder(Process);

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.take_stdin());
        // If it does not end, it is killed like every process; processes in the namespace may
        // survive.
        let _ = self.0.wait(CLEAR_LIMIT);
    }
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
        let mut holder = unshare
            .args(["--net", "--mount", "--propagation", "private", "--", "sh", "-c"])
            .arg(include_str!("netns/hold.sh"))
            .ends_with_its_input()
            .spawn_piped(&scratch.join("netns.log"))?;
        let mut line = String::new();
        if let Some(stdout) = holder.take_stdout() {
            let read = BufReader::new(stdout).read_line(&mut line);
            read.map_err(Error::io("read from unshare"))?;
        }
        if line.trim() != "up" {
            return Err(Error::Failed { what: "network namespace".into(), said: holder.said() });
        }
        Ok(Self { holder: Arc::new(Holder(holder)), user })
    }

    /// A network of tap devices, with the namespace at `address` (`10.9.0.1/24`) in it. Guests on
    /// them can call the namespace and each other, and can be called.
    ///
    /// # Errors
    /// [`Error::Failed`] where the system has no such devices.
    pub fn bridge(&self, address: &str, taps: &[&str]) -> Result<()> {
        let mut script = format!(
            "ip link add bridge type bridge && ip addr add {address} dev bridge && \
             ip link set bridge up"
        );
        for tap in taps {
            script.push_str(&format!(
                " && ip tuntap add dev {tap} mode tap && ip link set {tap} master bridge up"
            ));
        }
        self.shell(&script)
    }

    /// Makes programs in the namespace connect from ports that only a host's superuser has, as its
    /// kernel does for a mount. QEMU passes connections of its guest on from such ports then.
    ///
    /// # Errors
    /// [`Error::Failed`] where the system has no such settings.
    pub fn connect_from_low_ports(&self) -> Result<()> {
        let set = "echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start && \
                   echo 600 1000 >/proc/sys/net/ipv4/ip_local_port_range";
        self.shell(set)
    }

    fn shell(&self, script: &str) -> Result<()> {
        let shell = Invocation::new("sh").args(["-c", script]).inside(self);
        shell.check(Duration::from_secs(10)).map(|_| ())
    }

    /// The command line prefix that enters the namespace.
    pub(crate) fn enter(&self) -> Vec<OsString> {
        let pid = self.holder.0.pid();
        let mut words = vec!["nsenter".into(), format!("--target={pid}")];
        if self.user {
            words.extend(["--user".into(), "--preserve-credentials".into()]);
        }
        words.extend(["--net".into(), "--mount".into(), "--".into()]);
        words.into_iter().map(OsString::from).collect()
    }

    /// The words to type before a command to run it in the namespace.
    #[must_use]
    pub fn enter_line(&self) -> String {
        let words = self.enter().into_iter().filter(|word| word != "--mount");
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    /// Moves the calling thread into the namespace's mounts. Its later mounts are visible only
    /// there, and go with the namespace. The thread stays there to its end.
    ///
    /// # Errors
    /// [`Error::Io`], always without root.
    pub fn enter_mounts(&self) -> Result<()> {
        let path = PathBuf::from(format!("/proc/{}/ns/mnt", self.holder.0.pid()));
        let mounts = File::open(&path).map_err(Error::at("open", &path))?;
        #[expect(deprecated, reason = "unsafe is its successor, for the sake of other flags")]
        let alone = rustix::thread::unshare(rustix::thread::UnshareFlags::FS);
        let kind = Some(LinkNameSpaceType::Mount);
        let moved = alone.and_then(|()| move_into_link_name_space(mounts.as_fd(), kind));
        moved.map_err(|errno| Error::at("enter", &path)(errno.into()))
    }

    fn tcp_tables(&self) -> [PathBuf; 2] {
        let pid = self.holder.0.pid();
        ["tcp", "tcp6"].map(|table| PathBuf::from(format!("/proc/{pid}/net/{table}")))
    }
}

/// Connects to `address` in the network of process `pid`, or of this one.
///
/// # Errors
/// [`Error::Io`].
pub fn connect(pid: Option<u32>, address: SocketAddr) -> Result<TcpStream> {
    // A thread enters a namespace; a socket stays in the one where it was made.
    let connect = move || {
        pid.map_or(Ok(()), enter_network)?;
        TcpStream::connect(address).map_err(Error::io(format!("connect to {address}")))
    };
    let gone = |_| Error::Malformed("the thread that connects panicked".into());
    thread::spawn(connect).join().map_err(gone)?
}

/// Moves the calling thread into the network of process `pid`, for as long as the thread lives.
///
/// # Errors
/// [`Error::Io`], always without root.
pub fn enter_network(pid: u32) -> Result<()> {
    let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
    let netns = File::open(&path).map_err(Error::at("open", &path))?;
    let network = Some(LinkNameSpaceType::Network);
    let moved = move_into_link_name_space(netns.as_fd(), network);
    moved.map_err(|errno| Error::at("enter", &path)(errno.into()))
}

/// Waits until a process listens on TCP `port` in `netns` (on this machine itself without one), or
/// `server` has ended. Makes no connection: some servers count connections.
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
            return Err(Error::Failed { what, said: server.said() });
        }
        if start.elapsed() > limit {
            let what = format!("listener on port {port}");
            return Err(Error::Timeout { what, limit, said: server.said() });
        }
        // Reading the machine's sockets costs milliseconds where there are many.
        thread::sleep(Duration::from_millis(25));
    }
    Ok(())
}

/// Whether a process listens on TCP `port`, by the kernel's table of sockets.
#[must_use]
pub fn is_listening(netns: Option<&NetNs>, port: u16) -> bool {
    let own = || ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(PathBuf::from);
    let tables = netns.map_or_else(own, NetNs::tcp_tables);
    tables.iter().any(|table| {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        text.lines().skip(1).any(|line| is_listener_line(line, port))
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

const CLEAR_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
