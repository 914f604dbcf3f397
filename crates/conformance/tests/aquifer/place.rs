//! A daemon with disks, in a namespace of its own, and the commands that ask it.
//!
//! Invariants: the dataset [`DATASET`] is exported at the well-known ports, mounted as [`EXPORT`].
//! The disks outlive the daemon: a killed daemon is started again on them. A failing test prints
//! the end of the daemon's log.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aquifer_conformance::clients::Clients;
use aquifer_conformance::{Error, Result};
use aquifer_rig::daemon::Daemon;
use aquifer_rig::netns::NetNs;
use aquifer_rig::process::{Invocation, Outcome, Process};
use aquifer_rig::server::aquifer_program;
use aquifer_rig::work::{Scratch, WorkDir};
use serde_json::Value;

/// The dataset that clients use.
pub const DATASET: &str = "tank/vms";
/// The path that clients mount.
pub const EXPORT: &str = "/tank/vms";
/// The directory of the disks, in the test's directory.
const DISKS: &str = "disks";
/// Mount options of the kernel's client; a restart must not cost it a minute.
pub const V3: &str = "vers=3,proto=tcp,mountproto=tcp,nolock,hard,timeo=20,rsize=1048576,\
    wsize=1048576";
/// Time limit for work that takes milliseconds on an idle machine.
pub const SOON: Duration = Duration::from_secs(60);
/// Time limit for work of a guest on a busy machine.
pub const LONG: Duration = Duration::from_secs(600);
pub const MIB: u64 = 1 << 20;

/// The parameters of a pool and its daemon.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Disks, all in one mirror.
    pub sides: u32,
    /// Disks of the log vdev, all in one mirror; 0: none.
    pub log_sides: u32,
    /// Disks outside of the pool.
    pub spares: u32,
    /// Size of each (sparse).
    pub disk_bytes: u64,
    /// `--memory`.
    pub memory: &'static str,
    /// `sync` of the dataset.
    pub sync: &'static str,
    /// `nfs.lock_grace_s` in the configuration.
    pub lock_grace_s: u32,
    /// The daemon's way to access its disks; empty: its own choice.
    pub engine: &'static str,
}

impl Setup {
    /// A mirror, and the defaults of everything else.
    pub const DEFAULT: Self = Self {
        sides: 2,
        log_sides: 0,
        spares: 0,
        disk_bytes: 2 << 30,
        memory: "256M",
        sync: "standard",
        lock_grace_s: 45,
        engine: "",
    };
}

impl Default for Setup {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A pool `tank` and the daemon that serves it.
#[derive(Debug)]
pub struct Aquifer {
    daemon: Daemon,
    disks: Vec<PathBuf>,
    finished: bool,
    scratch: Scratch,
}

impl Aquifer {
    /// Makes the pool and serves it. `name` helps a person who looks into a kept directory.
    pub fn start(name: &str, setup: Setup) -> Result<Self> {
        Self::start_on(name, setup, |_, disks| sparse(setup, disks))
    }

    /// Makes the pool and serves it, with more lines in the configuration.
    pub fn start_configured(name: &str, setup: Setup, config: &str) -> Result<Self> {
        Self::start_with(name, setup, config, |_, disks| sparse(setup, disks))
    }

    /// Makes the pool and serves it, on disks that `lay` makes at their paths, all in one
    /// directory, as the namespace shows it.
    pub fn start_on(
        name: &str,
        setup: Setup,
        lay: impl FnOnce(&NetNs, &[PathBuf]) -> Result<()>,
    ) -> Result<Self> {
        Self::start_with(name, setup, "", lay)
    }

    fn start_with(
        name: &str,
        setup: Setup,
        more: &str,
        lay: impl FnOnce(&NetNs, &[PathBuf]) -> Result<()>,
    ) -> Result<Self> {
        let scratch = WorkDir::open()?.scratch(&format!("aquifer-{name}"))?;
        let netns = NetNs::new(&scratch)?;
        let names = (0..setup.sides).map(|side| format!("disk{side}"));
        let names = names.chain((0..setup.log_sides).map(|side| format!("log{side}")));
        let names = names.chain((0..setup.spares).map(|spare| format!("spare{spare}")));
        let dir = scratch.dir(DISKS)?;
        let disks: Vec<PathBuf> = names.map(|name| dir.join(name)).collect();
        lay(&netns, &disks)?;
        let config = scratch.join("aquifer.toml");
        let written =
            fs::write(&config, format!("[nfs]\nlock_grace_s = {}\n{more}", setup.lock_grace_s));
        written.map_err(Error::at("write", &config))?;
        let args = ["--memory", setup.memory, "--config", &text(&config)];
        let mut daemon = Daemon::new(&aquifer_program()?, &netns, &scratch, args, &[111, 2049]);
        if !setup.engine.is_empty() {
            daemon.set_env("AQUIFER_DISK_ENGINE", setup.engine);
        }
        let mut aquifer = Self { daemon, disks, finished: false, scratch };
        aquifer.daemon.start()?;
        let paths: Vec<String> = aquifer.disks.iter().map(|disk| text(disk)).collect();
        let mut create = vec!["pool", "create", "tank"];
        create.extend((setup.sides > 1).then_some("mirror"));
        let (data, logs) = paths.split_at(setup.sides as usize);
        create.extend(data.iter().map(String::as_str));
        create.extend((setup.log_sides > 0).then_some("log"));
        create.extend((setup.log_sides > 1).then_some("mirror"));
        create.extend(logs.iter().take(setup.log_sides as usize).map(String::as_str));
        aquifer.must(&create)?;
        let sync = format!("sync={}", setup.sync);
        aquifer.must(&["create", "-o", &sync, "-o", "sharenfs=insecure", DATASET])?;
        aquifer.daemon.wait_serving()?;
        Ok(aquifer)
    }

    /// The namespace in which clients must run.
    pub fn netns(&self) -> &NetNs {
        self.daemon.netns()
    }

    /// A directory for the test.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// The disks' image files, first those for data, then those of the log.
    pub fn disks(&self) -> &[PathBuf] {
        &self.disks
    }

    /// The directory of all disks.
    pub fn disks_dir(&self) -> PathBuf {
        self.scratch.join(DISKS)
    }

    /// libnfs, QEMU and the like, each call with a limit of [`LONG`].
    pub fn clients(&self) -> Clients {
        Clients::new(Some(self.netns()), LONG)
    }

    /// URL of a file in the export, for libnfs and QEMU inside the namespace.
    pub fn url(&self, path: &str) -> String {
        format!("nfs://127.0.0.1{EXPORT}/{path}")
    }

    /// The daemon's state directory.
    pub fn state_dir(&self) -> PathBuf {
        self.scratch.join("state")
    }

    /// The running daemon.
    pub fn daemon(&self) -> Result<&Process> {
        self.daemon.process()
    }

    /// Sends SIGKILL; the daemon is gone when this returns.
    pub fn kill9(&mut self) {
        self.daemon.kill9();
    }

    /// Starts the daemon; returns the time until clients can connect again.
    pub fn serve(&mut self) -> Result<Duration> {
        self.daemon.serve()
    }

    /// Starts the daemon and kills it after `span`, perhaps before it serves.
    pub fn serve_for(&mut self, span: Duration) -> Result<()> {
        self.daemon.serve_for(span)
    }

    /// Sends SIGTERM; waits for the end.
    pub fn stop(&mut self) -> Result<()> {
        self.daemon.stop(LONG)
    }

    /// Shuts down in order; then the disks must have no error.
    pub fn finish(mut self) -> Result<()> {
        self.stop()?;
        let report = self.inspect_clean()?;
        if report.get("exported") != Some(&true.into()) {
            return Err(Error::Mismatch(format!("inspect: {report:#}")));
        }
        self.finished = true;
        Ok(())
    }

    /// Keeps its directory.
    pub fn keep(&mut self) {
        self.scratch.keep();
    }

    /// The test has its verdict: the log need not be printed any more.
    pub fn judged(&mut self) {
        self.finished = true;
    }

    /// For a test whose disks must not be checked.
    pub fn finish_unjudged(mut self) -> Result<()> {
        self.stop()?;
        self.finished = true;
        Ok(())
    }

    /// The report of `aquifer inspect --deep --data` on all disks, which must have no error.
    pub fn inspect_clean(&self) -> Result<Value> {
        let report = self.inspect(&self.disks)?;
        match report.get("errors") == Some(&0.into()) {
            true => Ok(report),
            false => Err(Error::Mismatch(format!("inspect: {report:#}"))),
        }
    }

    /// The report of `aquifer inspect --deep --data` on `disks`.
    pub fn inspect(&self, disks: &[PathBuf]) -> Result<Value> {
        let paths: Vec<String> = disks.iter().map(|disk| text(disk)).collect();
        let mut words = vec!["--json", "inspect", "--deep", "--data"];
        words.extend(paths.iter().map(String::as_str));
        json(&self.ask(&words, LONG)?)
    }

    /// A command that must succeed; returns its output.
    pub fn must(&self, words: &[&str]) -> Result<String> {
        let said = self.ask(words, SOON)?;
        if said.status.success() {
            return Ok(said.text());
        }
        Err(Error::Failed { what: format!("aquifer {words:?}"), said: said.said() })
    }

    /// The output of `pool status --json`.
    pub fn status(&self) -> Result<Value> {
        json(&self.ask(&["--json", "pool", "status", "tank"], SOON)?)
    }

    /// An invocation of `aquifer` that reaches the daemon.
    pub fn command(&self) -> Invocation {
        self.daemon.command()
    }

    pub fn ask(&self, words: &[&str], limit: Duration) -> Result<Outcome> {
        self.daemon.ask(words, limit)
    }
}

fn sparse(setup: Setup, disks: &[PathBuf]) -> Result<()> {
    disks.iter().try_for_each(|disk| {
        let sized = File::create(disk).and_then(|file| file.set_len(setup.disk_bytes));
        sized.map_err(Error::at("create", disk))
    })
}

impl Drop for Aquifer {
    fn drop(&mut self) {
        if !self.finished {
            eprintln!("the daemon's log:\n{}", self.daemon.log());
        }
    }
}

/// Whether longer runs are requested.
pub fn is_long() -> bool {
    std::env::var_os("AQUIFER_LONG").is_some()
}

/// The path as a word of the command line.
pub fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub fn json(said: &Outcome) -> Result<Value> {
    let parsed = serde_json::from_slice(&said.stdout);
    parsed.map_err(|error| Error::Malformed(format!("{error}: {}", said.said())))
}
