//! The daemon's configuration.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use aquifer_nfs::proto::v3;
use aquifer_pool::Memory;
use aquifer_rpc::portmap;

use crate::limits::{BUDGET_BYTES_MIN, Limits};
use crate::tls::KeyFiles;

/// How to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where NFS and MOUNT listen, on TCP, both on each of these. Port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// The keys for calls over TLS, which are taken in addition to calls in clear text. `None`: no
    /// TLS.
    pub tls: Option<KeyFiles>,
    /// How clients that ask a portmapper find them.
    pub portmap: Portmap,
    /// Runtimes, each a thread; 0 for one per core.
    pub threads: usize,
    /// How long [`Server::stop`](crate::Server::stop) waits for running requests and for replies
    /// that are being sent. Clients wait longer.
    pub drain: Duration,
    /// Sizes.
    pub limits: Limits,
    /// The memory of the process: read caches there give way to requests and replies. `None`:
    /// there is no other use of memory.
    pub memory: Option<Arc<Memory>>,
}

/// How clients that ask a portmapper are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Portmap {
    /// Not at all: clients must be told the port.
    Off,
    /// A portmapper of our own listens on each of these, TCP and UDP. If another portmapper has one
    /// of them, our programs are registered with that one, at the loopback address.
    At(Vec<SocketAddr>),
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: vec![(Ipv6Addr::UNSPECIFIED, v3::PORT).into()],
            tls: None,
            portmap: Portmap::At(vec![(Ipv6Addr::UNSPECIFIED, portmap::PORT).into()]),
            threads: 0,
            drain: Duration::from_secs(3),
            limits: Limits::default(),
            memory: None,
        }
    }
}

impl Config {
    /// Whether the configuration can be served.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let limits = &self.limits;
        if self.listen.is_empty() {
            return Err("no address to listen on");
        }
        if limits.connections_max == 0 || limits.in_flight_max == 0 {
            return Err("a limit of no connections or no requests");
        }
        let budgets = [limits.request_bytes_max, limits.reply_bytes_max];
        if budgets.iter().any(|bytes| *bytes < BUDGET_BYTES_MIN) {
            return Err("a memory limit that is too small for a few of the largest requests");
        }
        if limits.connection_reply_bytes_max < BUDGET_BYTES_MIN / 4 {
            return Err("a connection's reply limit that is too small for the largest reply");
        }
        Ok(())
    }

    pub(crate) fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }
}
