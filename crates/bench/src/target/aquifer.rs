//! Aquifer: the release binary with a pool on image files, everything as it comes by default.

use std::path::{Path, PathBuf};

use aquifer_conformance::daemon::Daemon;
use aquifer_conformance::netns::NetNs;
use aquifer_conformance::work::Scratch;

use super::{NFS_PORT, PATIENCE, Server, Setup, Started, image};
use crate::{Error, Result};

/// A daemon with a pool: one image file, or several in a mirror.
pub(super) fn start(
    program: &Path,
    images: &[&str],
    setup: &Setup,
    scratch: &Scratch,
) -> Result<Started> {
    if !program.is_file() {
        return Err(Error::MissingTool { tool: program.display().to_string(), group: "build" });
    }
    let netns = NetNs::new(scratch)?;
    let disks: Vec<PathBuf> = images.iter().map(|name| scratch.join(name)).collect();
    for disk in &disks {
        image(disk, setup.image_bytes, setup.written_images)?;
    }
    let args = ["--nfs-addr=127.0.0.1:2049", "--no-portmap"];
    let mut daemon = Daemon::new(program, &netns, scratch, args, &[NFS_PORT]);
    daemon.start()?;
    let ask = |words: &[&str], disks: &[PathBuf]| {
        daemon.command().args(words).args(disks).check(PATIENCE)
    };
    let mut create = vec!["pool", "create", "tank"];
    create.extend((disks.len() > 1).then_some("mirror"));
    ask(&create, &disks)?;
    ask(&["create", DATASET], &[])?;
    ask(&["set", "sharenfs=on", DATASET], &[])?;
    daemon.wait_serving()?;
    let (server, ports) = (Server::Aquifer(Box::new(daemon)), (NFS_PORT, NFS_PORT));
    Ok(Started { server, ports, export: format!("/{DATASET}") })
}

const DATASET: &str = "tank/bench";
