//! Aquifer: the release binary with a pool on image files or slow disks, everything as it comes by
//! default but for the memory where a setup says so.

use std::path::{Path, PathBuf};

use aquifer_conformance::daemon::Daemon;
use aquifer_conformance::netns::NetNs;
use aquifer_conformance::work::Scratch;

use super::{NFS_PORT, NOT_OFFERED, PATIENCE, Server, Setup, Started, image};
use crate::{Error, Result};

/// A daemon with a pool: one image file, or several in a mirror.
pub(super) fn on_images(
    program: &Path,
    images: &[&str],
    setup: &Setup,
    scratch: &Scratch,
) -> Result<Started> {
    let disks: Vec<PathBuf> = images.iter().map(|name| scratch.join(name)).collect();
    for disk in &disks {
        image(disk, setup.image_bytes, setup.written_images)?;
    }
    let disks: Vec<&Path> = disks.iter().map(PathBuf::as_path).collect();
    start(program, &disks, None, setup, scratch)
}

/// A daemon with a mirror of slow disks; with a value of the property `sync`, also with a log on an
/// image file.
pub(super) fn on_devices(
    program: &Path,
    devices: &[&Path],
    sync: Option<&str>,
    setup: &Setup,
    scratch: &Scratch,
) -> Result<Started> {
    let log = scratch.join("log.img");
    if sync.is_some() {
        // More than the pool has in flight with that memory: it is not the log that bounds a burst.
        image(&log, setup.memory_bytes.unwrap_or_default().max(LOG_BYTES_MIN), true)?;
    }
    start(program, devices, sync.map(|sync| (log.as_path(), sync)), setup, scratch)
}

fn start(
    program: &Path,
    disks: &[&Path],
    log_and_sync: Option<(&Path, &str)>,
    setup: &Setup,
    scratch: &Scratch,
) -> Result<Started> {
    if !program.is_file() {
        return Err(Error::MissingTool { tool: program.display().to_string(), group: "build" });
    }
    let netns = NetNs::new(scratch)?;
    let mut args = vec!["--nfs-addr=127.0.0.1:2049".to_owned(), "--no-portmap".to_owned()];
    args.extend(setup.memory_bytes.map(|bytes| format!("--memory={}M", bytes >> 20)));
    if let Some(connections) = setup.connections {
        let config = scratch.join("aquifer.toml");
        std::fs::write(&config, format!("[nfs]\nconnections = {connections}\n"))
            .map_err(Error::at("write", &config))?;
        args.push(format!("--config={}", config.display()));
    }
    let mut daemon = Daemon::new(program, &netns, scratch, args, &[NFS_PORT]);
    daemon.start()?;
    // Disks that were probed hold something.
    let create = daemon.command().args(["pool", "create", "-f", "tank"]);
    let create = create.args((disks.len() > 1).then_some("mirror")).args(disks);
    let create = match log_and_sync {
        Some((log, _)) => create.arg("log").arg(log),
        None => create,
    };
    create.check(PATIENCE)?;
    let ask = |words: &[&str]| daemon.command().args(words).check(PATIENCE);
    ask(&["create", DATASET])?;
    if let Some((_, sync)) = log_and_sync {
        let set = daemon.ask(&["set", &format!("sync={sync}"), DATASET], PATIENCE)?;
        if !set.status.success() {
            return Err(Error::Failed { what: NOT_OFFERED.into(), said: set.said() });
        }
    }
    ask(&["set", "sharenfs=insecure", DATASET])?;
    daemon.wait_serving()?;
    let (server, ports) = (Server::Aquifer(Box::new(daemon)), (NFS_PORT, NFS_PORT));
    Ok(Started { server, ports, export: format!("/{DATASET}") })
}

const DATASET: &str = "tank/bench";
const LOG_BYTES_MIN: u64 = 1 << 30;
