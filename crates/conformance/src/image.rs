//! A real Linux system on a disk image, which a demonstration keeps in the datastore and boots.
//!
//! Invariants: the image is raw ext4 without partitions, built without mounting anything. It boots
//! from /dev/vda with Debian's cloud kernel, given by `-kernel`. Its first program does one
//! [`Task`], prints each step on the console in a line that starts with [`MARK`], and powers off.
//! Any image boots with any task, so different machines can write a disk and then check it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aquifer_rig::netns::NetNs;
use aquifer_rig::process::Invocation;
use aquifer_rig::work::{Scratch, WorkDir};

use crate::database;
use crate::guest::initramfs::{self, Busybox};
use crate::kernel::Kernel;
use crate::qemu::{Disk, Machine, MachineConfig, Network};
use crate::{Error, Result};

/// The start of the lines that a system prints about its task.
pub const MARK: &str = "aquifer: ";

/// The system on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Userland {
    /// One static program; 4 MB.
    Busybox,
    /// One static program with SQLite, for [`Task::Database`]; 10 MB.
    Database,
    /// Debian's minimal system by debootstrap (root only); about 140 MB, cached once made.
    Debian,
}

/// The task of a system after booting.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    /// Writes files of seeded content, syncs, reads them back and checks them.
    Write {
        /// Number of files.
        files: u32,
        /// Size of each.
        bytes: u64,
        /// Seed of the content.
        seed: u64,
    },
    /// Checks everything that an earlier `Write` left on this disk, and the system's own files
    /// (Debian).
    Verify,
    /// Writes a journal, one "ack NUMBER" per durable record.
    Journal {
        /// Number of records.
        records: u64,
        /// Slots of the ring; 0: appends.
        slots: u64,
        /// Pause between records, milliseconds.
        pause_ms: u64,
    },
    /// Runs transactions, with one "ack NUMBER" per commit, without end (see [`crate::database`]).
    Database {
        /// SQLite's journal mode: `wal`, `truncate` or `persist`.
        mode: &'static str,
    },
    /// Removes the system that it runs in: nothing boots from this disk any more.
    Wreck,
    /// Checks the journal.
    JournalCheck {
        /// The highest number that was acknowledged.
        acked: u64,
        /// Slots of the ring, as many as when it was written.
        slots: u64,
    },
}

impl Task {
    fn kernel_args(self) -> String {
        match self {
            Self::Write { files, bytes, seed } => format!(
                "aquifer.task=write aquifer.files={files} aquifer.bytes={bytes} aquifer.seed={seed}"
            ),
            Self::Verify => "aquifer.task=verify".into(),
            Self::Wreck => "aquifer.task=wreck".into(),
            Self::Journal { records, slots, pause_ms } => format!(
                "aquifer.task=journal aquifer.records={records} aquifer.slots={slots} \
                 aquifer.pause_ms={pause_ms}"
            ),
            Self::Database { mode } => format!("aquifer.task=database aquifer.mode={mode}"),
            Self::JournalCheck { acked, slots } => {
                format!("aquifer.task=journal-check aquifer.acked={acked} aquifer.slots={slots}")
            }
        }
    }
}

/// Builds an image of `bytes` (sparse) at `image`, and replaces an existing one.
///
/// # Errors
/// [`Error::MissingTool`], [`Error::Failed`] if it does not fit or debootstrap fails.
pub fn build(work: &WorkDir, userland: Userland, bytes: u64, image: &Path) -> Result<()> {
    let staging = work.scratch("image")?;
    let root = staging.dir("root")?;
    match userland {
        Userland::Busybox => lay_out_busybox(&root)?,
        Userland::Database => {
            lay_out_busybox(&root)?;
            for file in database::files()? {
                program(&root.join(file.path.trim_start_matches('/')), &file.content)?;
            }
        }
        Userland::Debian => {
            let debian = debian(work, "debian-minbase", &[])?;
            let copy = Invocation::new("cp").args(["-a", "--reflink=auto"]);
            copy.arg(debian.join(".")).arg(&root).check(MINUTE)?;
        }
    }
    let busybox = read(&initramfs::busybox()?.path)?;
    program(&root.join("usr/local/bin/busybox"), &busybox)?;
    let nfstest = initramfs::test_program(work)?.content;
    program(&root.join("usr/local/bin/nfstest"), &nfstest)?;
    program(&root.join("sbin/aquifer-init"), include_bytes!("image/init.sh"))?;
    if image.exists() {
        fs::remove_file(image).map_err(Error::at("remove", image))?;
    }
    Invocation::tool("mkfs.ext4", "build")?
        .args(["-q", "-F", "-L", "aquifer-demo", "-E", "root_owner=0:0", "-d"])
        .arg(&root)
        .arg(image)
        .arg(format!("{}k", bytes / 1024))
        .check(5 * MINUTE)
        .map(|_| ())
}

/// Kernel and initial file system that images boot with.
#[derive(Clone, Debug)]
pub struct Boot {
    kernel: PathBuf,
    initrd: PathBuf,
}

impl Boot {
    /// Fetches the kernel and writes the initial file system into `scratch`.
    ///
    /// # Errors
    /// Those of [`Kernel::fetch`] and [`initramfs::build`].
    pub fn prepare(work: &WorkDir, scratch: &Scratch) -> Result<Self> {
        let kernel = Kernel::fetch(work)?;
        let initrd = scratch.join("system-initrd");
        let modules = ["virtio_pci", "virtio_blk"];
        initramfs::build(&kernel, &modules, &[], include_str!("image/initrd.sh"), &initrd)?;
        Ok(Self { kernel: kernel.image, initrd })
    }

    /// Boots `disk` (a file, or an `nfs://` URL inside `netns`) and runs `task` in it. Console and
    /// QEMU's messages go into the directory `logs`; the machine is killed after `life`.
    ///
    /// # Errors
    /// Those of [`Machine::start`].
    pub fn start(
        &self,
        disk: Disk,
        task: Task,
        netns: Option<&NetNs>,
        logs: &Path,
        life: Duration,
    ) -> Result<Machine> {
        fs::create_dir_all(logs).map_err(Error::at("create", logs))?;
        Machine::start(&MachineConfig {
            kernel: self.kernel.clone(),
            initrd: self.initrd.clone(),
            append: format!("root=/dev/vda {}", task.kernel_args()),
            memory_mib: 256,
            cpus: 1,
            netns: netns.cloned(),
            network: Network::User,
            disks: vec![disk],
            channel: false,
            life,
            logs: logs.to_path_buf(),
        })
    }
}

/// Waits until the machine has done its task and powered off; returns the lines that it printed
/// about the task.
///
/// # Errors
/// [`Error::Failed`] with the console if the task failed; [`Error::Timeout`].
pub fn finish(machine: &Machine, limit: Duration) -> Result<Vec<String>> {
    let last = machine.wait_console(&format!("{MARK}done "), limit)?;
    machine.wait_off(limit)?;
    if !last.ends_with("status 0") {
        return Err(Error::Failed { what: last, said: machine.said() });
    }
    Ok(told(&machine.console()))
}

/// The lines about the task on a console so far, without [`MARK`].
#[must_use]
pub fn told(console: &str) -> Vec<String> {
    let whole = console.rfind('\n').and_then(|end| console.get(..end)).unwrap_or_default();
    // The line may start with output of the kernel.
    let lines = whole.lines().filter_map(|line| line.split_once(MARK));
    lines.map(|(_, told)| told.trim_end().to_owned()).collect()
}

fn lay_out_busybox(root: &Path) -> Result<()> {
    for directory in ["bin", "sbin", "dev", "proc", "sys", "tmp", "root", "etc", "var/lib"] {
        let path = root.join(directory);
        fs::create_dir_all(&path).map_err(Error::at("create", &path))?;
    }
    let Busybox { path, applets } = initramfs::busybox()?;
    program(&root.join("bin/busybox"), &read(&path)?)?;
    for applet in applets.iter().filter(|applet| *applet != "busybox") {
        let link = root.join("bin").join(applet);
        symlink("busybox", &link).map_err(Error::at("link", &link))?;
    }
    let passwd = root.join("etc/passwd");
    fs::write(&passwd, "root:x:0:0:root:/root:/bin/sh\n").map_err(Error::at("write", &passwd))
}

/// The files of this machine's release of Debian, with `packages` beside the smallest set. They are
/// made once for each `name`.
///
/// # Errors
/// As [`build`].
pub fn debian(work: &WorkDir, name: &str, packages: &[&str]) -> Result<PathBuf> {
    Ok(work.cached(name, |into| debootstrap(into, packages))?.join("root"))
}

/// Installs Debian from the source of apt's packages.
fn debootstrap(into: &Path, packages: &[&str]) -> Result<()> {
    let targets = Invocation::tool("apt-get", "guest")?
        .args(["indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)"])
        .check(MINUTE)?
        .text();
    let release = fs::read_to_string("/etc/os-release").map_err(Error::io("read os-release"))?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.ok_or_else(|| Error::Malformed("os-release without a codename".into()))?;
    let main = format!(" {suite} main");
    let mirror = targets.lines().find_map(|line| line.strip_suffix(&main));
    let mirror = mirror.ok_or_else(|| Error::Failed {
        what: format!("apt knows no source of Debian {suite}"),
        said: targets.clone(),
    })?;
    let root = into.join("root");
    Invocation::tool("debootstrap", "guest")?
        .arg("--variant=minbase")
        .args((!packages.is_empty()).then(|| format!("--include={}", packages.join(","))))
        .arg(suite)
        .arg(&root)
        .arg(mirror)
        .check(10 * MINUTE)?;
    // Only files: dpkg knows the directories and would miss them.
    let caches = ["var/cache/apt", "var/lib/apt/lists", "var/log"].map(|path| root.join(path));
    Invocation::new("find").args(caches).args(["-type", "f", "-delete"]).check(MINUTE)?;
    Ok(())
}

fn program(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::at("create", parent))?;
    }
    fs::write(path, content).map_err(Error::at("write", path))?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, mode).map_err(Error::at("chmod", path))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(Error::at("read", path))
}

/// Path of the database of [`Task::Database`] on the disk.
pub const DATABASE: &str = "/var/lib/aquifer/database";

const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_has_whole_lines_of_the_task_only() {
        let console = "[ 1.0] x\r\naquifer: one\r\n[ 2.0] warn aquifer: two\r\nnoise\naquifer: ha";
        assert_eq!(told(console), ["one", "two"]);
        assert_eq!(told(""), Vec::<String>::new());
    }
}
