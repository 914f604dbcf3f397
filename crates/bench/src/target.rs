//! What is measured: servers, each in a network namespace of its own, and the file on it.
//!
//! What holds: a target's server, its namespace and what it has mounted are gone with the
//! [`Target`], or with this program however that ends.

mod aquifer;
mod ganesha;

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aquifer_conformance::daemon::Daemon;
use aquifer_conformance::netns::{NetNs, wait_for_listener};
use aquifer_conformance::peer::ganesha::Ganesha;
use aquifer_conformance::process::{Invocation, Process};
use aquifer_conformance::work::Scratch;
use aquifer_nfs::proto::v3::NfsFh3;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::load::{self, Life, Plan, Tally};
use crate::pages::Pages;
use crate::pattern::PAGE_BYTES;
use crate::wire::Connection;
use crate::workload;
use crate::{Error, Result};

/// The names of targets; `aquifer` and `aquifer-single` may be followed by `@PROGRAM`.
pub const NAMES: [&str; 5] = ["aquifer", "aquifer-single", "null", "ganesha-ext4", "ganesha-btrfs"];

/// What others are compared with.
pub const BASELINE: &str = "ganesha-ext4";

/// How targets are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The program `aquifer-bench`, for the server that stores nothing.
    pub bench: PathBuf,
    /// The program `aquifer`, where a target names no other.
    pub aquifer: PathBuf,
    /// Size of the file that is worked on.
    pub file_bytes: usize,
    /// Size of each image file under a pool or a btrfs.
    pub image_bytes: u64,
    /// Whether image files are written once before: on a disk there is no file system beneath that
    /// must allocate on first writes. It takes seconds for each.
    pub written_images: bool,
}

/// A server and the file on it.
pub struct Target {
    name: String,
    server: Box<dyn Running>,
    /// Where its NFS and its MOUNT listen.
    ports: (u16, u16),
    export: String,
    /// Whether it is in a namespace of its own, to be entered by its process.
    pid: Option<u32>,
    file: NfsFh3,
    pages: Pages,
}

/// A server while it runs. Each kind keeps what must live as long.
trait Running {
    /// Its process, if it is not a thread of this program.
    fn process(&self) -> Result<Option<&Process>>;
}

impl Running for Ganesha {
    fn process(&self) -> Result<Option<&Process>> {
        Ganesha::process(self).map(Some)
    }
}

/// A server that needs nothing else.
struct Alone {
    process: Process,
    _scratch: Scratch,
}

impl Running for Alone {
    fn process(&self) -> Result<Option<&Process>> {
        Ok(Some(&self.process))
    }
}

/// Somebody else's server.
struct Foreign;

impl Running for Foreign {
    fn process(&self) -> Result<Option<&Process>> {
        Ok(None)
    }
}

impl Target {
    /// Starts the server `name` and fills its file.
    ///
    /// # Errors
    /// What the server says; [`Error::MissingTool`].
    pub fn start(name: &str, setup: &Setup, mut scratch: Scratch) -> Result<Self> {
        let (kind, program) = match name.split_once('@') {
            Some((kind, program)) => (kind, Path::new(program)),
            None => (name, setup.aquifer.as_path()),
        };
        let started = match kind {
            "aquifer" => aquifer::start(program, &["a.img", "b.img"], setup, &scratch),
            "aquifer-single" => aquifer::start(program, &["a.img"], setup, &scratch),
            "null" => null(setup, &scratch),
            "ganesha-ext4" => ganesha::on_directory(&scratch),
            "ganesha-btrfs" => ganesha::on_btrfs(setup, &scratch),
            _ => Err(Error::Malformed(format!("no target {name:?}; there are {NAMES:?}"))),
        };
        if started.is_err() && std::env::var_os("AQUIFER_KEEP").is_some() {
            scratch.keep();
        }
        let Started { server, ports, export } = started?;
        let server: Box<dyn Running> = match server {
            Server::Alone(process) => Box::new(Alone { process, _scratch: scratch }),
            Server::Aquifer(daemon) => Box::new((*daemon, scratch)),
            Server::Ganesha(ganesha) => Box::new((*ganesha, scratch)),
        };
        let pid = server.process()?.map(Process::pid);
        let stores = kind != "null";
        Self::open(name, server, (ports, export), pid, Pages::new(setup.file_bytes, stores))
    }

    /// A server that runs somewhere, with NFS and MOUNT at one address of this machine. `stores`:
    /// it keeps what is written.
    ///
    /// # Errors
    /// As [`Target::start`].
    pub fn at(port: u16, export: &str, file_bytes: usize, stores: bool) -> Result<Self> {
        let place = ((port, port), export.to_owned());
        let pages = Pages::new(file_bytes, stores);
        Self::open("server", Box::new(Foreign), place, None, pages)
    }

    fn open(
        name: &str,
        server: Box<dyn Running>,
        (ports, export): ((u16, u16), String),
        pid: Option<u32>,
        pages: Pages,
    ) -> Result<Self> {
        let nowhere = NfsFh3::new(&[]).ok_or_else(|| Error::Malformed("no handle".into()))?;
        let mut target =
            Self { name: name.to_owned(), server, ports, export, pid, file: nowhere, pages };
        let root = target.connect_to(target.ports.1)?.mount(&target.export)?;
        target.file = target.connect()?.create(root, "bench.img")?;
        target.pass(&workload::fill(), 1, Life::Once, &mut |_| Ok(()))?;
        target.compare()?;
        Ok(target)
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process, unless it is somebody else's.
    ///
    /// # Errors
    /// [`Error::Failed`] with its log if it has ended.
    pub fn pid(&self) -> Result<Option<u32>> {
        match self.server.process()? {
            Some(process) if !process.is_running() => {
                let what = format!("{}: the server", self.name);
                Err(Error::Failed { what, said: process.said() })
            }
            process => Ok(process.map(Process::pid)),
        }
    }

    /// The file's handle.
    #[must_use]
    pub fn file(&self) -> NfsFh3 {
        self.file
    }

    /// A new connection to its NFS.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn connect(&self) -> Result<Connection> {
        self.connect_to(self.ports.0)
    }

    /// A thread is in a namespace, a socket stays in the one it was made in.
    fn connect_to(&self, port: u16) -> Result<Connection> {
        let pid = self.pid;
        let connect = move || {
            if let Some(pid) = pid {
                let path = PathBuf::from(format!("/proc/{pid}/ns/net"));
                let netns = std::fs::File::open(&path).map_err(Error::at("open", &path))?;
                let network = Some(LinkNameSpaceType::Network);
                let moved = move_into_link_name_space(std::os::fd::AsFd::as_fd(&netns), network);
                moved.map_err(|errno| Error::at("enter", &path)(errno.into()))?;
            }
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            TcpStream::connect(address).map_err(Error::io(format!("connect to {address}")))
        };
        let connected = std::thread::spawn(connect).join();
        let gone = |_| Error::Malformed("the thread that connects panicked".into());
        Connection::new(connected.map_err(gone)??)
    }

    /// Runs a plan on `connections`, each with its part of the file, while `meanwhile` watches.
    ///
    /// # Errors
    /// Those of [`load::run`], and of `meanwhile`.
    pub fn pass(
        &mut self,
        plan: &Plan,
        connections: usize,
        life: Life,
        meanwhile: &mut dyn FnMut(Option<u32>) -> Result<()>,
    ) -> Result<Tally> {
        let opened: Result<Vec<_>> = (0..connections).map(|_| self.connect()).collect();
        let (file, bytes, pid) = (self.file, self.pages.bytes() as u64, self.pid()?);
        let block = usize::try_from(plan.bytes).unwrap_or(PAGE_BYTES);
        let shares = self.pages.shares(connections, block)?;
        let tallies: Result<Vec<Tally>> = std::thread::scope(|scope| {
            let workers: Vec<_> = shares
                .into_iter()
                .zip(opened?)
                .map(|(mut share, mut connection)| {
                    scope.spawn(move || {
                        load::run(&mut connection, file, plan, &mut share, life, bytes)
                    })
                })
                .collect();
            let watched = meanwhile(pid);
            let joined = workers.into_iter().map(|worker| {
                worker.join().map_err(|_| Error::Malformed("a worker panicked".into()))?
            });
            let tallies = joined.collect();
            watched.and(tallies)
        });
        let mut total = Tally::default();
        tallies.map_err(|error| self.explain(error))?.iter().for_each(|tally| total.add(tally));
        Ok(total)
    }

    /// Reads the whole file and compares it.
    ///
    /// # Errors
    /// [`Error::Mismatch`].
    pub fn compare(&mut self) -> Result<()> {
        self.pass(&workload::sweep(), 1, Life::Once, &mut |_| Ok(())).map(|_| ())
    }

    /// Which server it was, and what it said if it is gone.
    fn explain(&self, error: Error) -> Error {
        match (self.pid(), error) {
            (Err(gone), _) => gone,
            (Ok(_), Error::Mismatch(what)) => Error::Mismatch(format!("{}: {what}", self.name)),
            (Ok(_), other) => Error::Failed { what: self.name.clone(), said: other.to_string() },
        }
    }
}

/// Ganesha's directory goes after Ganesha.
impl Running for (Ganesha, Scratch) {
    fn process(&self) -> Result<Option<&Process>> {
        Running::process(&self.0)
    }
}

/// The pool's disks go after the daemon.
impl Running for (Daemon, Scratch) {
    fn process(&self) -> Result<Option<&Process>> {
        self.0.process().map(Some)
    }
}

/// A server that was started.
struct Started {
    server: Server,
    ports: (u16, u16),
    export: String,
}

enum Server {
    Alone(Process),
    Aquifer(Box<Daemon>),
    Ganesha(Box<Ganesha>),
}

/// This program as the server that stores nothing.
fn null(setup: &Setup, scratch: &Scratch) -> Result<Started> {
    let netns = NetNs::new(scratch)?;
    let serve = Invocation::new(&setup.bench)
        .args(["null", "--listen", "127.0.0.1:2049", "--file-bytes"])
        .arg(setup.file_bytes.to_string())
        .inside(&netns);
    let process = serve.spawn(&scratch.join("null.log"))?;
    wait_for_listener(Some(&netns), NFS_PORT, &process, PATIENCE)?;
    let ports = (NFS_PORT, NFS_PORT);
    Ok(Started { server: Server::Alone(process), ports, export: "/null".into() })
}

/// An image file, sparse or written.
fn image(path: &Path, bytes: u64, written: bool) -> Result<()> {
    let file = std::fs::File::create(path).map_err(Error::at("create", path))?;
    file.set_len(bytes).map_err(Error::at("resize", path))?;
    if written {
        let count = format!("count={}", bytes >> 20);
        let output = format!("of={}", path.display());
        let dd = Invocation::tool("dd", "build")?.args(["if=/dev/zero", "bs=1M"]);
        dd.args([&count, &output]).args(["oflag=direct", "conv=notrunc,fsync"]).check(PATIENCE)?;
    }
    Ok(())
}

const NFS_PORT: u16 = 2049;
const PATIENCE: Duration = Duration::from_secs(120);
