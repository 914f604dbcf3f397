//! Aquifer: the release binary with a pool on image files or slow disks. All settings are the
//! defaults, except for the memory where a setup says so.

use std::path::{Path, PathBuf};

use aquifer_rig::daemon::Daemon;
use aquifer_rig::netns::NetNs;
use aquifer_rig::tls::{Authority, Shown};
use aquifer_rig::wire::SERVER;
use aquifer_rig::work::Scratch;

use super::{NFS_PORT, NOT_OFFERED, PATIENCE, Server, Setup, Started, image};
use crate::{Error, Result};

/// A daemon with a pool: one image file, or several in a mirror.
pub(super) fn on_images(
    program: &Path,
    images: &[&str],
    setup: &Setup,
    scratch: &Scratch,
) -> Result<Started> {
    on_images_with(program, images, "", setup, scratch)
}

fn on_images_with(
    program: &Path,
    images: &[&str],
    config: &str,
    setup: &Setup,
    scratch: &Scratch,
) -> Result<Started> {
    let disks: Vec<PathBuf> = images.iter().map(|name| scratch.join(name)).collect();
    for disk in &disks {
        image(disk, setup.image_bytes, setup.written_images)?;
    }
    let disks: Vec<&Path> = disks.iter().map(PathBuf::as_path).collect();
    start(program, &disks, None, config, (setup, scratch))
}

/// Starts a daemon with a pool as [`on_images`], but called over TLS.
pub(super) fn over_tls(
    program: &Path,
    images: &[&str],
    setup: &Setup,
    scratch: &Scratch,
) -> Result<Started> {
    let home = scratch.dir("tls")?;
    let made = Authority::new(&home, "authority").and_then(|of| of.certify("server", &[SERVER]));
    let own = made.map_err(Error::io("make a certificate"))?;
    let shown = Shown { authority: home.join("authority.pem"), server: SERVER.into(), own: None };
    let config = shown.config().map_err(Error::io("read a certificate"))?;
    let (certificate, key) = (own.certificate.display(), own.key.display());
    let keys = format!("[nfs.tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\n");
    let started = on_images_with(program, images, &keys, setup, scratch)?;
    Ok(Started { tls: Some(config), ..started })
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
        // More than the pool has in flight with that memory: the log must not limit a burst.
        image(&log, setup.memory_bytes.unwrap_or_default().max(LOG_BYTES_MIN), true)?;
    }
    start(program, devices, sync.map(|sync| (log.as_path(), sync)), "", (setup, scratch))
}

fn start(
    program: &Path,
    disks: &[&Path],
    log_and_sync: Option<(&Path, &str)>,
    more: &str,
    (setup, scratch): (&Setup, &Scratch),
) -> Result<Started> {
    if !program.is_file() {
        return Err(Error::MissingTool { tool: program.display().to_string(), group: "build" });
    }
    let netns = NetNs::new(scratch)?;
    let mut args = vec!["--nfs-addr=127.0.0.1:2049".to_owned(), "--no-portmap".to_owned()];
    let memory_bytes = setup.memory_bytes.unwrap_or(MEMORY_BYTES);
    args.push(format!("--memory={}M", memory_bytes >> 20));
    let connections = setup.connections.map(|most| format!("connections = {most}\n"));
    if connections.is_some() || !more.is_empty() {
        let config = scratch.join("aquifer.toml");
        let text = format!("[nfs]\n{}{more}", connections.unwrap_or_default());
        std::fs::write(&config, text).map_err(Error::at("write", &config))?;
        args.push(format!("--config={}", config.display()));
    }
    let mut daemon = Daemon::new(program, &netns, scratch, args, &[NFS_PORT]);
    daemon.start()?;
    // Probed disks are not empty.
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
    Ok(Started { server, ports, export: format!("/{DATASET}"), tls: None })
}

/// Memory of the daemon, the same on every machine: the default is half of what the machine has.
const MEMORY_BYTES: u64 = 1 << 30;

const DATASET: &str = "tank/bench";
const LOG_BYTES_MIN: u64 = 1 << 30;
