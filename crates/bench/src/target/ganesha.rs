//! nfs-ganesha on a directory of the machine's own file system (named after the usual one, ext4),
//! and on a btrfs raid1 of two loop devices.

use std::path::Path;

use aquifer_rig::peer::ganesha::{EXPORT, Ganesha};
use aquifer_rig::process::Invocation;
use aquifer_rig::work::Scratch;

use super::{NFS_PORT, PATIENCE, Server, Setup, Started, image};
use crate::{Error, Result};

/// The MOUNT port that `crates/conformance` gives Ganesha.
const MOUNT_PORT: u16 = 20048;

/// On a plain directory.
pub(super) fn on_directory(scratch: &Scratch) -> Result<Started> {
    started(Ganesha::start(scratch, &scratch.dir("export")?)?)
}

/// On btrfs with checksums and two copies, like a mirror. Mounted as for a solid-state disk: loop
/// devices claim to be rotational.
pub(super) fn on_btrfs(setup: &Setup, scratch: &Scratch) -> Result<Started> {
    let device = |name| {
        let path = scratch.join(name);
        image(&path, setup.image_bytes, setup.written_images)?;
        LoopDevice::of(&path)
    };
    let (first, second) = (device("a.img")?, device("b.img")?);
    // When this returns, only the mount holds the loop devices.
    on_devices(&[Path::new(&first.0), Path::new(&second.0)], scratch)
}

/// Starts Ganesha as [`on_btrfs`], but on existing devices. They get no information about free
/// space (`-K`, `nodiscard`). A loop device would return that space to the file system beneath,
/// which then allocates on first writes.
pub(super) fn on_devices(devices: &[&Path], scratch: &Scratch) -> Result<Started> {
    let make = Invocation::tool("mkfs.btrfs", "bench")?;
    let make = make.args(["-q", "-f", "-K", "-d", "raid1", "-m", "raid1"]);
    make.args(devices).check(PATIENCE)?;
    let directory = scratch.dir("btrfs")?;
    let mounted = Mount::new(devices, &directory)?;
    let ganesha = Ganesha::start(scratch, &directory)?;
    // From here on only Ganesha's namespace holds the mount, and with it the devices. They go when
    // it goes, even if this program is killed.
    drop(mounted);
    started(ganesha)
}

fn started(ganesha: Ganesha) -> Result<Started> {
    let (server, ports) = (Server::Ganesha(Box::new(ganesha)), (NFS_PORT, MOUNT_PORT));
    Ok(Started { server, ports, export: EXPORT.into(), tls: None })
}

/// A loop device; when dropped, it goes as soon as it has no users.
struct LoopDevice(String);

impl LoopDevice {
    fn of(image: &Path) -> Result<Self> {
        let losetup = Invocation::tool("losetup", "bench")?;
        let found = losetup.args(["--find", "--show", "--direct-io=on"]).arg(image);
        Ok(Self(found.check(PATIENCE)?.text().trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let gone = Invocation::tool("losetup", "bench")
            .and_then(|losetup| losetup.args(["--detach", &self.0]).check(PATIENCE));
        if let Err(error) = gone {
            eprintln!("{} is left: {error}", self.0);
        }
    }
}

/// A mount in this program's namespace.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn new(devices: &[&Path], directory: &'a Path) -> Result<Self> {
        let mut options = "ssd,nodiscard".to_owned();
        for device in devices {
            options.push_str(&format!(",device={}", device.display()));
        }
        let mount = Invocation::tool("mount", "bench")?.args(["-t", "btrfs", "-o", &options]);
        mount.args(devices.first()).arg(directory).check(PATIENCE)?;
        Ok(Self(directory))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let gone = Invocation::tool("umount", "bench")
            .and_then(|umount| umount.arg(self.0).check(PATIENCE));
        if let Err(error) = gone {
            let what = Error::Failed { what: "umount".into(), said: error.to_string() };
            eprintln!("{what}");
        }
    }
}
