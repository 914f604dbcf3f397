//! The daemon on the stage: its pool, its commands, its deaths.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aquifer_conformance::netns::{NetNs, wait_for_listener};
use aquifer_conformance::process::{Invocation, Process};
use aquifer_conformance::server::aquifer_program;
use aquifer_conformance::work::Scratch;
use aquifer_conformance::{Error, Result};

use crate::summary::Figures;
use crate::tell;

/// A daemon in a network namespace of its own, with two image files for disks.
pub struct Stage {
    netns: NetNs,
    serve: Invocation,
    log: PathBuf,
    server: Option<Process>,
    program: PathBuf,
    socket: PathBuf,
    disks: [PathBuf; 2],
}

impl Stage {
    /// Sets up the namespace; nothing is started yet.
    pub fn new(scratch: &Scratch) -> Result<Self> {
        let program = aquifer_program()?;
        // A socket's path may have 107 bytes, which a directory of the project may not leave.
        let socket = std::env::temp_dir().join(format!("aquifer-demo-{}", std::process::id()));
        let netns = NetNs::new(scratch)?;
        let serve = Invocation::new(&program).args(["--api-socket"]).arg(&socket).args([
            "serve",
            "--nfs-addr=127.0.0.1:2049",
            "--portmap-addr=127.0.0.1:111",
            "--state-dir",
        ]);
        let serve = serve.arg(scratch.join("state")).inside(&netns);
        let log = scratch.join("server.log");
        let disks = [scratch.join("a.img"), scratch.join("b.img")];
        Ok(Self { netns, serve, log, server: None, program, socket, disks })
    }

    /// The namespace of server and clients.
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }

    /// The image files.
    pub fn disks(&self) -> &[PathBuf; 2] {
        &self.disks
    }

    /// Where a file of the dataset is for QEMU.
    pub fn url(&self, file: &str) -> String {
        format!("nfs://127.0.0.1/{DATASET}/{file}")
    }

    /// Starts the daemon, which has no pool yet, and waits for its API.
    pub fn start_empty(&mut self) -> Result<()> {
        tell::command("aquifer serve &");
        let server = self.server.insert(self.serve.spawn(&self.log)?);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && server.is_running() {
            let ask = Invocation::new(&self.program).arg("--api-socket").arg(&self.socket);
            if ask.args(["pool", "list"]).run(PATIENCE)?.status.success() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(Error::Failed { what: self.serve.line(), said: server.said() })
    }

    /// Starts the daemon, which imports its pool, and waits until it serves.
    pub fn start(&mut self) -> Result<()> {
        tell::command("aquifer serve &");
        self.serve()
    }

    fn serve(&mut self) -> Result<()> {
        let server = self.server.insert(self.serve.spawn(&self.log)?);
        wait_for_listener(Some(&self.netns), NFS_PORT, server, PATIENCE)
    }

    /// Stops the daemon, which exports its pool.
    pub fn stop(&mut self) -> Result<()> {
        tell::command("kill %aquifer");
        let Some(server) = self.server.take() else { return Ok(()) };
        let status = server.terminate(PATIENCE)?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Failed { what: format!("aquifer serve ({status})"), said: server.said() })
    }

    /// The pool, the dataset, its export.
    pub fn make_pool(&self) -> Result<()> {
        let [a, b] = &self.disks;
        let size = ["pool", "create", "--create-size=4G", "tank", "mirror"];
        self.aquifer(&size, &[a, b])?;
        self.aquifer(&["create", "-o", "sync=always", "-o", "compression=lz4", DATASET], &[])?;
        self.aquifer(&["set", "sharenfs=on", DATASET], &[])?;
        self.aquifer(&["pool", "status"], &[])
    }

    /// Shows the datasets.
    pub fn list(&self) -> Result<()> {
        self.aquifer(&["list"], &[])
    }

    /// Reads the exported pool from its disks.
    pub fn inspect(&self) -> Result<()> {
        let [a, b] = &self.disks;
        self.aquifer(&["inspect"], &[a, b])
    }

    /// SIGKILL, a second of nothing, and a new start.
    pub fn server_dies_and_returns(&mut self, figures: &mut Figures) -> Result<()> {
        let died = Instant::now();
        // A dropped process is killed and reaped.
        self.server = None;
        std::thread::sleep(Duration::from_secs(1));
        self.serve()?;
        let away = died.elapsed();
        figures.away.push(away);
        tell::command("kill -9 %aquifer; sleep 1; aquifer serve &");
        tell::said(&format!("the server serves again after {}", tell::seconds(away)));
        Ok(())
    }

    /// Shows the pool's status; how many blocks were repaired.
    pub fn repaired(&self) -> Result<u64> {
        self.aquifer(&["pool", "status", "tank"], &[])?;
        let json = self.run(&["--json", "pool", "status", "tank"], &[])?;
        let malformed = |what: &str| Error::Malformed(format!("pool status: {what}: {json}"));
        let status: serde_json::Value =
            serde_json::from_str(&json).map_err(|error| malformed(&error.to_string()))?;
        let leaves = status.pointer("/vdevs/0/leaves").and_then(|leaves| leaves.as_array());
        let leaves = leaves.ok_or_else(|| malformed("no leaves"))?;
        let repaired = leaves.iter().filter_map(|leaf| leaf.get("repaired")?.as_u64());
        match repaired.sum() {
            0 => {
                Err(Error::Mismatch("garbage was written over a disk and nothing repaired".into()))
            }
            repaired => Ok(repaired),
        }
    }

    /// How to look at it from another terminal.
    pub fn invite(&self) {
        let (program, socket) = (self.program.display(), self.socket.display());
        println!(
            "
The server still runs, in a network of its own so that this machine's ports stay free. Ctrl-C ends
it and removes all. From another terminal:
  {program} --api-socket {socket} pool status -v
  {} qemu-img info {}",
            self.netns.enter_line(),
            self.url("debian.raw")
        );
    }

    /// Runs the command line, shown as a person would type it, and shows the answer.
    fn aquifer(&self, words: &[&str], disks: &[&PathBuf]) -> Result<()> {
        let names = disks.iter().filter_map(|disk| disk.file_name()?.to_str());
        let typed: Vec<&str> = words.iter().copied().chain(names).collect();
        tell::command(&format!("aquifer {}", typed.join(" ")));
        let disks: Vec<&Path> = disks.iter().map(|disk| disk.as_path()).collect();
        tell::said(&self.run(words, &disks)?);
        Ok(())
    }

    fn run(&self, words: &[&str], disks: &[&Path]) -> Result<String> {
        let command = Invocation::new(&self.program).arg("--api-socket").arg(&self.socket);
        Ok(command.args(words).args(disks).check(PATIENCE)?.text())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // A killed daemon leaves its socket.
        let _ = std::fs::remove_file(&self.socket);
    }
}

const DATASET: &str = "tank/vms";
const NFS_PORT: u16 = 2049;
const PATIENCE: Duration = Duration::from_secs(60);
