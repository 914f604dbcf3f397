//! A Linux guest whose kernel's NFS client is the client under test.
//!
//! Invariants: the host can run several commands at a time, and their output arrives as it is
//! printed. So a test can act on the server in the middle of a command. Every command has a time
//! limit, and so has the guest as a whole. Dropping the [`Guest`] ends it without a shutdown.
//!
//! ```text
//!  host: Guest -- frames -- QEMU's stdin/stdout
//!  guest: /dev/vport0p1 -- nfstest agent -- sh -c ...
//! ```

pub mod agent;
pub mod frame;
pub mod initramfs;
mod job;

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use aquifer_rig::netns::NetNs;
use aquifer_rig::work::{Scratch, WorkDir};

use crate::kernel::Kernel;
use crate::qemu::{Disk, Machine, MachineConfig, Network};
use crate::{Error, Result};

use frame::Frame;
use initramfs::GuestFile;
use job::Jobs;
pub use job::{Job, Step};

/// The configuration of a guest.
#[derive(Clone, Debug)]
pub struct GuestConfig {
    /// Its kernel; `None`: the kernel of this machine's Debian.
    pub kernel: Option<Kernel>,
    /// Namespace of the server; `None`: the machine's own network.
    pub netns: Option<NetNs>,
    /// Network. The caller sets the guest's address, except in [`Network::User`].
    pub network: Network,
    /// Kernel modules, without their dependencies.
    pub modules: Vec<&'static str>,
    /// Files beside busybox and `nfstest`.
    pub files: Vec<GuestFile>,
    /// Added to the kernel's command line.
    pub append: String,
    /// Disks: /dev/vda, ... (needs module `virtio_blk`).
    pub disks: Vec<Disk>,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// The guest is killed after this time.
    pub life: Duration,
}

impl Default for GuestConfig {
    /// An NFSv3 client with 512 MiB that lives five minutes.
    fn default() -> Self {
        Self {
            kernel: None,
            netns: None,
            network: Network::User,
            modules: vec!["virtio_pci", "virtio_console", "virtio_net", "nfsv3"],
            files: Vec::new(),
            append: String::new(),
            disks: Vec::new(),
            memory_mib: 512,
            life: Duration::from_secs(300),
        }
    }
}

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    machine: Machine,
    to_guest: Mutex<ChildStdin>,
    jobs: Arc<Jobs>,
    next_job: AtomicU32,
    boot_time: Duration,
}

impl Guest {
    /// Boots a guest and waits until it accepts commands. Logs and initramfs go into `scratch`.
    ///
    /// # Errors
    /// [`Error::Failed`] or [`Error::Timeout`] with the console's end if it does not come up.
    pub fn boot(work: &WorkDir, scratch: &Scratch, config: &GuestConfig) -> Result<Self> {
        let kernel = config.kernel.clone().map_or_else(|| Kernel::fetch(work), Ok)?;
        let mut files = config.files.clone();
        files.push(initramfs::test_program(work)?);
        let logs = unused_directory(scratch)?;
        let initrd = logs.join("initramfs");
        initramfs::build(&kernel, &config.modules, &files, include_str!("guest/init.sh"), &initrd)?;
        let started = Instant::now();
        let mut machine = Machine::start(&MachineConfig {
            kernel: kernel.image,
            initrd,
            append: config.append.clone(),
            memory_mib: config.memory_mib,
            cpus: 1,
            netns: config.netns.clone(),
            network: config.network.clone(),
            disks: config.disks.clone(),
            channel: true,
            life: config.life,
            logs,
        })?;
        let channel = machine.take_channel();
        let (to_guest, from_guest) =
            channel.ok_or_else(|| Error::Malformed("a machine without channel".into()))?;
        let jobs = Arc::new(Jobs::default());
        let received = Arc::clone(&jobs);
        thread::spawn(move || receive(from_guest, &received));
        if let Err(error) = jobs.wait_ready(BOOT_LIMIT) {
            return Err(with_console(error, &machine));
        }
        let boot_time = started.elapsed();
        let (to_guest, next_job) = (Mutex::new(to_guest), AtomicU32::new(1));
        Ok(Self { machine, to_guest, jobs, next_job, boot_time })
    }

    /// Time from the start of QEMU to the first command.
    #[must_use]
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// Starts a shell command; it runs until it ends or the guest does.
    ///
    /// # Errors
    /// [`Error::Io`] if the guest is gone.
    pub fn start(&self, command: &str) -> Result<Job<'_>> {
        let number = self.next_job.fetch_add(1, Ordering::Relaxed);
        self.jobs.open(number);
        self.send(number, &Frame::Run(command.as_bytes().to_vec()))?;
        Ok(Job::new(self, number, command))
    }

    /// Runs a shell command to its end, whatever its exit status; kills it at `limit`.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Failed`] if the guest ends meanwhile.
    pub fn run(&self, command: &str, limit: Duration) -> Result<Step> {
        self.start(command)?.wait(limit)
    }

    /// As [`Guest::run`], but an exit status other than 0 is an error.
    ///
    /// # Errors
    /// Those of `run`; [`Error::Failed`] with output and console.
    pub fn check(&self, command: &str, limit: Duration) -> Result<Step> {
        self.run(command, limit)?.success().map_err(|error| with_console(error, &self.machine))
    }

    /// Runs the lines of `script` one by one, and stops after the first that fails. Skips empty
    /// lines and comments. `limit` is for each line.
    ///
    /// # Errors
    /// As `run`.
    pub fn script(&self, script: &str, limit: Duration) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        let lines = script.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let step = self.run(line, limit)?;
            let failed = step.status != 0;
            steps.push(step);
            if failed {
                break;
            }
        }
        Ok(steps)
    }

    /// Mounts `export` of the server at 10.0.2.2 on `directory`, which it makes. `options` are
    /// those of nfs(5), without the address. It uses the kernel's own mount code, not mount.nfs.
    ///
    /// # Errors
    /// As [`Guest::check`].
    pub fn mount(&self, export: &str, directory: &str, options: &str) -> Result<Step> {
        let command = format!("nfstest mount 10.0.2.2:{export} {directory} {options}");
        self.check(&command, Duration::from_secs(60))
    }

    /// Everything on the guest's console: kernel messages at warning level and above.
    #[must_use]
    pub fn console(&self) -> String {
        self.machine.console()
    }

    /// Shuts down in order: syncs, unmounts, powers off.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it does not end, for instance because a server does not answer.
    pub fn power_off(self, limit: Duration) -> Result<()> {
        // The answer may not come: the guest goes down meanwhile.
        let _job = self.start("sync; umount -a -t nfs,nfs4,ext4; poweroff -f")?;
        self.machine.wait_off(limit).map(|_| ())
    }

    /// Pulls the plug: the guest loses its memory.
    pub fn power_cut(self) {
        self.machine.power_cut();
    }

    fn send(&self, job: u32, frame: &Frame) -> Result<()> {
        let mut to_guest = self.to_guest.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = frame::write(&mut *to_guest, job, frame);
        sent.map_err(Error::io("write to the guest"))
    }
}

/// Hands frames from the guest to their jobs, until the guest is gone.
fn receive(from_guest: ChildStdout, jobs: &Jobs) {
    let mut stream = BufReader::new(from_guest);
    let end = loop {
        match frame::read(&mut stream) {
            Ok((number, frame)) => jobs.received(number, frame),
            Err(error) => break error,
        }
    };
    jobs.gone(&end.to_string());
}

/// A test may boot several guests in one scratch directory; each has its own logs.
fn unused_directory(scratch: &Scratch) -> Result<PathBuf> {
    let taken = |path: &PathBuf| Path::new(path).exists();
    let mut names = (0..u32::MAX).map(|number| scratch.join(&format!("guest{number}")));
    let path = names.find(|path| !taken(path)).unwrap_or_else(|| scratch.join("guest"));
    std::fs::create_dir_all(&path).map_err(Error::at("create", &path))?;
    Ok(path)
}

fn with_console(error: Error, machine: &Machine) -> Error {
    let console = machine.said();
    match error {
        Error::Failed { what, said } => {
            Error::Failed { what, said: format!("{said}\nconsole: {console}") }
        }
        Error::Timeout { what, limit, said } => {
            Error::Timeout { what, limit, said: format!("{said}\nconsole: {console}") }
        }
        other => other,
    }
}

/// A guest takes about 3 s to boot on an idle machine; the rest is for busy ones.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
