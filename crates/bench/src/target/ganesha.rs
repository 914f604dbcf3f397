//! nfs-ganesha on a directory of the file system that everything lies on (named after the usual
//! one, ext4), and on a btrfs raid1 of two loop devices.

use std::path::Path;

use aquifer_conformance::peer::ganesha::{EXPORT, Ganesha};
use aquifer_conformance::process::Invocation;
use aquifer_conformance::work::Scratch;

use super::{NFS_PORT, PATIENCE, Server, Setup, Started, image};
use crate::{Error, Result};

/// Where `crates/conformance` has Ganesha listen for MOUNT.
const MOUNT_PORT: u16 = 20048;

/// On a plain directory.
pub(super) fn on_directory(scratch: &Scratch) -> Result<Started> {
    started(Ganesha::start(scratch, &scratch.dir("export")?)?)
}

/// On btrfs with checksums and two copies, as a mirror has. Mounted as for a solid-state disk: loop
/// devices say that they rotate.
pub(super) fn on_btrfs(setup: &Setup, scratch: &Scratch) -> Result<Started> {
    let device = |name| {
        let path = scratch.join(name);
        image(&path, setup.image_bytes, setup.written_images)?;
        LoopDevice::of(&path)
    };
    let (first, second) = (device("a.img")?, device("b.img")?);
    let make = Invocation::tool("mkfs.btrfs", "bench")?.args(["-q", "-d", "raid1", "-m", "raid1"]);
    make.args([&first.0, &second.0]).check(PATIENCE)?;
    let directory = scratch.dir("btrfs")?;
    let mounted = Mount::new(&first, &second, &directory)?;
    let ganesha = Ganesha::start(scratch, &directory)?;
    // From here on the mount is Ganesha's namespace's alone, and with it the loop devices: they go
    // when it goes, even if this program is killed.
    drop(mounted);
    drop((first, second));
    started(ganesha)
}

fn started(ganesha: Ganesha) -> Result<Started> {
    let (server, ports) = (Server::Ganesha(Box::new(ganesha)), (NFS_PORT, MOUNT_PORT));
    Ok(Started { server, ports, export: EXPORT.into() })
}

/// A loop device; when dropped, it goes as soon as nobody uses it.
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
    fn new(first: &LoopDevice, second: &LoopDevice, directory: &'a Path) -> Result<Self> {
        let options = format!("ssd,device={},device={}", first.0, second.0);
        let mount = Invocation::tool("mount", "bench")?.args(["-t", "btrfs", "-o", &options]);
        mount.arg(&first.0).arg(directory).check(PATIENCE)?;
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
