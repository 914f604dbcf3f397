//! Aquifer: the release binary with a pool on image files, everything as it comes by default.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aquifer_conformance::netns::{NetNs, wait_for_listener};
use aquifer_conformance::process::{Invocation, Process};
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
    // A socket's path may have 107 bytes, which a directory of the project may not leave.
    let socket = Socket(std::env::temp_dir().join(socket_name()));
    let disks: Vec<PathBuf> = images.iter().map(|name| scratch.join(name)).collect();
    for disk in &disks {
        image(disk, setup.image_bytes, setup.written_images)?;
    }
    let serve = Invocation::new(program)
        .arg("--api-socket")
        .arg(&socket.0)
        .args(["serve", "--nfs-addr=127.0.0.1:2049", "--no-portmap", "--state-dir"])
        .arg(scratch.join("state"))
        .inside(&netns);
    let process = serve.spawn(&scratch.join("aquifer.log"))?;
    let ask = |words: &[&str], disks: &[PathBuf]| {
        let command = Invocation::new(program).arg("--api-socket").arg(&socket.0);
        command.args(words).args(disks).check(PATIENCE)
    };
    wait_for_api(&process, || ask(&["pool", "list"], &[]).is_ok())?;
    let mut create = vec!["pool", "create", "tank"];
    create.extend((disks.len() > 1).then_some("mirror"));
    ask(&create, &disks)?;
    ask(&["create", DATASET], &[])?;
    ask(&["set", "sharenfs=on", DATASET], &[])?;
    wait_for_listener(Some(&netns), NFS_PORT, &process, PATIENCE)?;
    let ports = (NFS_PORT, NFS_PORT);
    Ok(Started { server: Server::Alone(process), ports, export: format!("/{DATASET}") })
}

fn wait_for_api(process: &Process, answers: impl Fn() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !answers() {
        if !process.is_running() || begun.elapsed() > PATIENCE {
            return Err(Error::Failed { what: "aquifer serve".into(), said: process.said() });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// One for each target of each run.
fn socket_name() -> String {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("aquifer-bench-{}-{number}", std::process::id())
}

/// Nobody asks any more once the pool is there; a daemon that is killed leaves its socket.
struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        // If it cannot be removed it was never made.
        let _ = std::fs::remove_file(&self.0);
    }
}

const DATASET: &str = "tank/bench";
