//! Targets: servers, each in a network namespace of its own, and the measured file on it.
//!
//! Invariant: dropping the [`Target`] removes its server, its namespace, its slow disks and its
//! mounts. The same happens when this program ends, however that happens.

mod aquifer;
mod disks;
mod ganesha;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aquifer_nfs::proto::v3::NfsFh3;
use aquifer_rig::daemon::Daemon;
use aquifer_rig::netns::{self, NetNs, wait_for_listener};
use aquifer_rig::peer::ganesha::Ganesha;
use aquifer_rig::process::{Invocation, Process};
use aquifer_rig::wire::Connection;
use aquifer_rig::work::Scratch;
use rustls::ClientConfig;
use serde_json::Value;

use crate::load::{self, Life, Plan, Tally};
use crate::pages::Pages;
use crate::pattern::PAGE_BYTES;
use crate::slow::{Probe, SlowDisk};
use crate::workload;
use crate::{Error, Result};
pub(crate) use disks::image;

/// The names of targets; the first three may be followed by `@PROGRAM`.
pub const NAMES: [&str; 6] =
    ["aquifer", "aquifer-tls", "aquifer-single", "null", "ganesha-ext4", "ganesha-btrfs"];

/// The names of targets on slow disks, of which the first three may be followed by `@PROGRAM`.
pub const SLOW_NAMES: [&str; 4] =
    ["aquifer-slow", "aquifer-slow-log", "aquifer-slow-log-nosync", "ganesha-btrfs-slow"];

/// The targets that others are compared with.
pub const BASELINES: [&str; 1] = ["ganesha-ext4"];

/// Targets on slow disks that others are compared with.
pub const SLOW_BASELINES: [&str; 2] = ["aquifer-slow", "ganesha-btrfs-slow"];

/// How targets are set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The program `aquifer-bench`, for the server that stores nothing.
    pub bench: PathBuf,
    /// The program `aquifer`, where a target names no other.
    pub aquifer: PathBuf,
    /// Size of the file that is used.
    pub file_bytes: usize,
    /// Size of each image file under a pool or a btrfs.
    pub image_bytes: u64,
    /// Whether slow disks allocate space only where they are written.
    pub sparse_disks: bool,
    /// Whether image files are written once before: a real disk has no file system beneath it that
    /// allocates on first writes. It takes seconds for each.
    pub written_images: bool,
    /// The value for `aquifer serve --memory`, if not 1 GiB.
    pub memory_bytes: Option<u64>,
    /// Most connections that `aquifer serve` is configured for, if not its default.
    pub connections: Option<usize>,
    /// Instead of `file_bytes`, the file takes enough space to fill the pool to 80 %. Each of its
    /// blocks is then overwritten at random, twice.
    pub aged: bool,
}

/// A server and the file on it.
pub struct Target {
    name: String,
    server: Box<dyn Running>,
    /// The ports of its NFS and its MOUNT.
    ports: (u16, u16),
    export: String,
    /// The TLS configuration for calling its NFS.
    tls: Option<Arc<ClientConfig>>,
    /// The process whose namespace to enter, if it has one of its own.
    pid: Option<u32>,
    file: NfsFh3,
    pages: Pages,
    /// Dropped after the server, which has them open.
    disks: Vec<SlowDisk>,
    probes: Vec<Probe>,
}

/// A server while it runs. Each kind keeps the resources that must live as long.
trait Running {
    /// Its process, if it is not a thread of this program.
    fn process(&self) -> Result<Option<&Process>>;

    /// Its daemon, if it is Aquifer.
    fn daemon(&self) -> Option<&Daemon> {
        None
    }

    /// Returns its daemon, if it is Aquifer, to stop and start it.
    fn daemon_mut(&mut self) -> Option<&mut Daemon> {
        None
    }
}

impl Running for Ganesha {
    fn process(&self) -> Result<Option<&Process>> {
        Ganesha::process(self).map(Some)
    }
}

/// A server without other resources.
struct Alone {
    process: Process,
    _scratch: Scratch,
}

impl Running for Alone {
    fn process(&self) -> Result<Option<&Process>> {
        Ok(Some(&self.process))
    }
}

/// A server that this program did not start.
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
    /// The server's error; [`Error::MissingTool`].
    pub fn start(name: &str, setup: &Setup, mut scratch: Scratch) -> Result<Self> {
        let (kind, program) = match name.split_once('@') {
            Some((kind, program)) => (kind, Path::new(program)),
            None => (name, setup.aquifer.as_path()),
        };
        let (disks, probes) = match SLOW_NAMES.contains(&kind) {
            true => disks::slow(setup, &scratch)?,
            false => Default::default(),
        };
        let devices: Vec<&Path> = disks.iter().map(SlowDisk::device).collect();
        let started = match kind {
            "aquifer" => aquifer::on_images(program, &["a.img", "b.img"], setup, &scratch),
            "aquifer-tls" => aquifer::over_tls(program, &["a.img", "b.img"], setup, &scratch),
            "aquifer-single" => aquifer::on_images(program, &["a.img"], setup, &scratch),
            "aquifer-slow" => aquifer::on_devices(program, &devices, None, setup, &scratch),
            "aquifer-slow-log" => {
                aquifer::on_devices(program, &devices, Some("standard"), setup, &scratch)
            }
            "aquifer-slow-log-nosync" => {
                aquifer::on_devices(program, &devices, Some("disabled:bench"), setup, &scratch)
            }
            "null" => null(setup, &scratch),
            "ganesha-ext4" => ganesha::on_directory(&scratch),
            "ganesha-btrfs" => ganesha::on_btrfs(setup, &scratch),
            "ganesha-btrfs-slow" => ganesha::on_devices(&devices, &scratch),
            _ => {
                let all = (NAMES, SLOW_NAMES);
                Err(Error::Malformed(format!("no target {name:?}; there are {all:?}")))
            }
        };
        if started.is_err() && std::env::var_os("AQUIFER_KEEP").is_some() {
            scratch.keep();
        }
        let Started { server, ports, export, tls } = started?;
        let server: Box<dyn Running> = match server {
            Server::Alone(process) => Box::new(Alone { process, _scratch: scratch }),
            Server::Aquifer(daemon) => Box::new((*daemon, scratch)),
            Server::Ganesha(ganesha) => Box::new((*ganesha, scratch)),
        };
        let pid = server.process()?.map(Process::pid);
        let pages = Pages::new(setup.file_bytes, kind != "null");
        let mut target = Self::unopened(name, server, (ports, export), pid, pages)?;
        (target.disks, target.probes, target.tls) = (disks, probes, tls);
        target.open(setup.aged)?;
        Ok(target)
    }

    /// A server that runs somewhere, with NFS and MOUNT at one address of this machine. `stores`:
    /// it keeps written data.
    ///
    /// # Errors
    /// As [`Target::start`].
    pub fn at(port: u16, export: &str, file_bytes: usize, stores: bool) -> Result<Self> {
        let place = ((port, port), export.to_owned());
        let pages = Pages::new(file_bytes, stores);
        let mut target = Self::unopened("server", Box::new(Foreign), place, None, pages)?;
        target.open(false)?;
        Ok(target)
    }

    fn unopened(
        name: &str,
        server: Box<dyn Running>,
        (ports, export): ((u16, u16), String),
        pid: Option<u32>,
        pages: Pages,
    ) -> Result<Self> {
        let file = NfsFh3::new(&[]).ok_or_else(|| Error::Malformed("no handle".into()))?;
        let (name, disks, probes) = (name.to_owned(), Vec::new(), Vec::new());
        Ok(Self { name, server, ports, export, tls: None, pid, file, pages, disks, probes })
    }

    /// Makes the file and fills it. For an aged pool, it fills the pool to the target level, and
    /// then overwrites the file.
    fn open(&mut self, aged: bool) -> Result<()> {
        let root = self.mount()?;
        if aged {
            let space = self.connect()?.space(root)?;
            let wanted = space.total_bytes / 100 * AGED_PERCENT;
            let used = space.total_bytes.saturating_sub(space.free_bytes);
            let mib = usize::try_from(wanted.saturating_sub(used) >> 20).unwrap_or_default();
            self.pages = Pages::new(mib << 20, true);
        }
        self.file = self.connect()?.create(root, "bench.img")?;
        self.pass(&workload::fill(), 1, Life::Once, &mut |_| Ok(()))?;
        self.compare()?;
        for _ in 0..if aged { 2 } else { 0 } {
            self.pass(&workload::age(), 1, Life::Once, &mut |_| Ok(()))?;
        }
        if aged { self.compare() } else { Ok(()) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process, unless this program did not start it.
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

    /// Asks Aquifer's daemon, and returns what it answered.
    ///
    /// # Errors
    /// It is another server; [`Error::Failed`] if the command fails.
    pub fn ask(&self, words: &[&str], limit: Duration) -> Result<String> {
        Ok(self.command()?.args(words).check(limit)?.text())
    }

    /// Asks Aquifer's daemon as [`Target::ask`], and returns its answer in JSON.
    ///
    /// # Errors
    /// The same, or it is no JSON.
    pub fn json(&self, words: &[&str], limit: Duration) -> Result<Value> {
        let said = self.ask(&[&["--json"], words].concat(), limit)?;
        serde_json::from_str(&said).map_err(|error| Error::Malformed(error.to_string()))
    }

    /// A command of Aquifer's, without words, for another thread.
    ///
    /// # Errors
    /// It is another server.
    pub fn command(&self) -> Result<Invocation> {
        let daemon = self.server.daemon();
        Ok(daemon.ok_or_else(|| Error::Malformed("this is not Aquifer".into()))?.command())
    }

    /// Stops Aquifer's daemon and starts it: nothing is in its memory then but the pool.
    ///
    /// # Errors
    /// It is another server; the daemon's.
    pub fn restart(&mut self) -> Result<()> {
        self.daemon_mut()?.stop(PATIENCE)?;
        self.serve()
    }

    /// Kills Aquifer's daemon with SIGKILL.
    ///
    /// # Errors
    /// It is another server.
    pub fn kill(&mut self) -> Result<()> {
        self.daemon_mut()?.kill9();
        Ok(())
    }

    /// Starts Aquifer's daemon on its pools.
    ///
    /// # Errors
    /// It is another server; the daemon's.
    pub fn serve(&mut self) -> Result<()> {
        self.daemon_mut()?.serve()?;
        self.pid = self.pid()?;
        Ok(())
    }

    /// The log of Aquifer's daemon, of all its starts.
    ///
    /// # Errors
    /// It is another server.
    pub fn log(&mut self) -> Result<String> {
        Ok(self.daemon_mut()?.log())
    }

    fn daemon_mut(&mut self) -> Result<&mut Daemon> {
        let daemon = self.server.daemon_mut();
        daemon.ok_or_else(|| Error::Malformed("this is not Aquifer".into()))
    }

    /// Returns what its file holds now.
    #[must_use]
    pub fn content(&self) -> Pages {
        self.pages.clone()
    }

    /// Its file was rolled back: this is what it holds.
    pub fn holds(&mut self, content: Pages) {
        self.pages = content;
    }

    /// Works on another file: what it worked on before is in these.
    pub fn exchange(&mut self, file: &mut NfsFh3, content: &mut Pages) {
        std::mem::swap(&mut self.file, file);
        std::mem::swap(&mut self.pages, content);
    }

    /// One of its slow disks.
    ///
    /// # Errors
    /// There is none of this number.
    pub fn device(&self, number: usize) -> Result<&Path> {
        let disk = self.disks.get(number).map(SlowDisk::device);
        disk.ok_or_else(|| Error::Malformed(format!("no slow disk {number}")))
    }

    /// The measured performance of its slow disks alone.
    #[must_use]
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// Makes its slow disks slow, or fast again; does nothing if it has none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn throttle(&self, on: bool) -> Result<()> {
        self.disks.iter().try_for_each(|disk| disk.throttle(on))
    }

    /// How long a measurement runs before it counts: longer on slow disks, which react later.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        if self.disks.is_empty() { WARM_UP } else { SLOW_WARM_UP }
    }

    /// Size of its file in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> usize {
        self.pages.bytes()
    }

    /// The file's handle.
    #[must_use]
    pub fn file(&self) -> NfsFh3 {
        self.file
    }

    /// Mounts, on a connection of its own.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Failed`] with the status.
    pub fn mount(&self) -> Result<NfsFh3> {
        self.mount_of(&self.export)
    }

    /// Mounts another export of it, on a connection of its own.
    ///
    /// # Errors
    /// As [`Target::mount`].
    pub fn mount_of(&self, export: &str) -> Result<NfsFh3> {
        Ok(self.connect_to(self.ports.1)?.mount(export)?)
    }

    /// A new connection to its NFS.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn connect(&self) -> Result<Connection> {
        let address = self.address(self.ports.0);
        match self.tls.clone() {
            Some(config) => Ok(Connection::over_tls(netns::connect(self.pid, address)?, config)?),
            None => self.connect_to(self.ports.0),
        }
    }

    fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn connect_to(&self, port: u16) -> Result<Connection> {
        Ok(Connection::new(netns::connect(self.pid, self.address(port))?)?)
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
                let ended = worker.join();
                Ok(ended.map_err(|_| Error::Malformed("a worker panicked".into()))??)
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
        let plan = if self.pages.is_sparse() { workload::look() } else { workload::sweep() };
        self.pass(&plan, 1, Life::Once, &mut |_| Ok(())).map(|_| ())
    }

    /// Adds the server's name to an error, and its log if it has ended.
    fn explain(&self, error: Error) -> Error {
        match (self.pid(), error) {
            (Err(gone), _) => gone,
            (Ok(_), Error::Mismatch(what)) => Error::Mismatch(format!("{}: {what}", self.name)),
            (Ok(_), other) => Error::Failed { what: self.name.clone(), said: other.to_string() },
        }
    }
}

/// Dropped in this order: Ganesha, then its directory.
impl Running for (Ganesha, Scratch) {
    fn process(&self) -> Result<Option<&Process>> {
        Running::process(&self.0)
    }
}

/// Dropped in this order: the daemon, then the pool's disks.
impl Running for (Daemon, Scratch) {
    fn process(&self) -> Result<Option<&Process>> {
        self.0.process().map(Some)
    }

    fn daemon(&self) -> Option<&Daemon> {
        Some(&self.0)
    }

    fn daemon_mut(&mut self) -> Option<&mut Daemon> {
        Some(&mut self.0)
    }
}

/// A running server, before it is a target.
struct Started {
    server: Server,
    ports: (u16, u16),
    export: String,
    tls: Option<Arc<ClientConfig>>,
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
    Ok(Started { server: Server::Alone(process), ports, export: "/null".into(), tls: None })
}

/// Whether `error` only means that a server lacks the target's feature.
#[must_use]
pub fn is_not_offered(error: &Error) -> bool {
    matches!(error, Error::Failed { what, .. } if what == NOT_OFFERED)
}

const NOT_OFFERED: &str = "what the target is about";
const AGED_PERCENT: u64 = 80;
const WARM_UP: Duration = Duration::from_millis(300);
const SLOW_WARM_UP: Duration = Duration::from_secs(1);
const NFS_PORT: u16 = 2049;
const PATIENCE: Duration = Duration::from_secs(120);
