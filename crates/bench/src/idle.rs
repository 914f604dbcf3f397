//! The cost of connections that have worked and are now idle.

use std::time::{Duration, Instant};

use aquifer_nfs::proto::v3::StableHow;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::load::{self, Life, Mix, Order, Plan};
use crate::pages::Pages;
use crate::system::memory_bytes;
use crate::target::Target;
use crate::{Error, Result};

/// Memory of a server's process, only its own pages (RssAnon). The kernel's memory for its sockets
/// is not included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Idle {
    /// Connections that were opened.
    pub connections: usize,
    /// Memory before them, in bytes.
    pub before_bytes: u64,
    /// Memory with them, in bytes.
    pub with_bytes: u64,
    /// The time that another client then needed to connect, mount, and read and compare 4 KiB, in
    /// milliseconds.
    pub newcomer_ms: f64,
}

impl Idle {
    /// KiB that a connection takes.
    #[must_use]
    pub fn kib_each(&self) -> f64 {
        let grown = self.with_bytes.saturating_sub(self.before_bytes);
        grown as f64 / 1024.0 / self.connections.max(1) as f64
    }
}

/// Opens connections, and has each do a GETATTR so that lazily made state exists. Lets them be idle
/// for some seconds, and reads the memory. Then lets one more client connect. `None` for a server
/// whose process is not ours.
///
/// # Errors
/// Those of the server.
pub fn measure(target: &mut Target, connections: usize, file_bytes: u64) -> Result<Option<Idle>> {
    let Some(pid) = target.pid()? else { return Ok(None) };
    let before_bytes = memory_bytes(pid)?;
    let plan = Plan {
        mix: Mix::Getattr,
        bytes: 4096,
        order: Order::Sequential,
        stable: StableHow::FileSync,
        depth: 1,
        commit_after: None,
    };
    let mut opened = Vec::new();
    // A GETATTR touches no page; the state of one page is enough to make the call.
    let mut none = Pages::new(4096, false);
    for _ in 0..connections {
        let mut connection = target.connect()?;
        let mut shares = none.shares(1, 4096)?;
        let share = shares.first_mut().ok_or_else(|| Error::Malformed("no share".into()))?;
        let life = Life::Calls(1);
        load::run(&mut connection, target.file(), &plan, share, life, file_bytes)?;
        opened.push(connection);
    }
    std::thread::sleep(IDLE);
    let with_bytes = memory_bytes(pid)?;
    let begun = Instant::now();
    target.mount()?;
    let read = Plan { mix: Mix::Data { read_percent: 100 }, ..plan };
    target.pass(&read, 1, Life::Calls(1), &mut |_| Ok(()))?;
    let newcomer_ms = begun.elapsed().as_secs_f64() * 1e3;
    Ok(Some(Idle { connections: opened.len(), before_bytes, with_bytes, newcomer_ms }))
}

/// Allows this program and the servers that it starts as many open files as the system permits.
///
/// # Errors
/// [`Error::Io`].
pub fn allow_connections() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, most)
        .map_err(|errno| Error::io("raise RLIMIT_NOFILE")(errno.into()))
}

const IDLE: Duration = Duration::from_secs(3);
