//! The demo's daemon: its pool, its commands, its deaths.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aquifer_conformance::{Error, Result};
use aquifer_rig::daemon::Daemon;
use aquifer_rig::netns::NetNs;
use aquifer_rig::server::aquifer_program;
use aquifer_rig::work::Scratch;

use crate::summary::Figures;
use crate::tell;

/// A daemon in a network namespace of its own, with two image files for disks.
pub struct Stage {
    daemon: Daemon,
    disks: [PathBuf; 2],
}

impl Stage {
    /// Sets up the namespace; nothing is started yet.
    pub fn new(scratch: &Scratch) -> Result<Self> {
        let netns = NetNs::new(scratch)?;
        let args = ["--nfs-addr=127.0.0.1:2049", "--portmap-addr=127.0.0.1:111"];
        let daemon = Daemon::new(&aquifer_program()?, &netns, scratch, args, &[NFS_PORT]);
        let disks = [scratch.join("a.img"), scratch.join("b.img")];
        Ok(Self { daemon, disks })
    }

    /// The namespace of server and clients.
    pub fn netns(&self) -> &NetNs {
        self.daemon.netns()
    }

    /// The image files.
    pub fn disks(&self) -> &[PathBuf; 2] {
        &self.disks
    }

    /// The URL of a file of the dataset, for QEMU.
    pub fn url(&self, file: &str) -> String {
        format!("nfs://127.0.0.1/{DATASET}/{file}")
    }

    /// Starts the daemon, which has no pool yet, and waits for its API.
    pub fn start_empty(&mut self) -> Result<()> {
        tell::command("aquifer serve &");
        self.daemon.start()
    }

    /// Starts the daemon, which imports its pool, and waits until it serves.
    pub fn start(&mut self) -> Result<()> {
        tell::command("aquifer serve &");
        self.daemon.serve().map(|_| ())
    }

    /// Stops the daemon, which exports its pool.
    pub fn stop(&mut self) -> Result<()> {
        tell::command("kill %aquifer");
        self.daemon.stop(PATIENCE)
    }

    /// Makes the pool, the dataset and its export.
    pub fn make_pool(&self) -> Result<()> {
        let [a, b] = &self.disks;
        let size = ["pool", "create", "--create-size=4G", "tank", "mirror"];
        self.aquifer(&size, &[a, b])?;
        self.aquifer(&["create", "-o", "sync=always", "-o", "compression=lz4", DATASET], &[])?;
        self.aquifer(&["set", "sharenfs=rw=127.0.0.1,insecure", DATASET], &[])?;
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

    /// Sends SIGKILL, waits for a second, and starts the daemon again.
    pub fn server_dies_and_returns(&mut self, figures: &mut Figures) -> Result<()> {
        let died = Instant::now();
        self.daemon.kill9();
        std::thread::sleep(Duration::from_secs(1));
        self.daemon.serve()?;
        let away = died.elapsed();
        figures.away.push(away);
        tell::command("kill -9 %aquifer; sleep 1; aquifer serve &");
        tell::said(&format!("the server serves again after {}", tell::seconds(away)));
        Ok(())
    }

    /// Shows the pool's status; returns the number of repaired blocks.
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

    /// Prints how to look at the pool from another terminal.
    pub fn invite(&self) {
        let command = self.daemon.command().line();
        println!(
            "
The server still runs, in a network of its own so that this machine's ports stay free. Ctrl-C ends
it and removes all. From another terminal:
  {command} pool status -v
  {} qemu-img info {}",
            self.netns().enter_line(),
            self.url("debian.raw")
        );
    }

    /// Runs a command of the command line. Prints it as a person would type it, and prints the
    /// answer.
    fn aquifer(&self, words: &[&str], disks: &[&PathBuf]) -> Result<()> {
        let names = disks.iter().filter_map(|disk| disk.file_name()?.to_str());
        let typed: Vec<&str> = words.iter().copied().chain(names).collect();
        tell::command(&format!("aquifer {}", typed.join(" ")));
        let disks: Vec<&Path> = disks.iter().map(|disk| disk.as_path()).collect();
        tell::said(&self.run(words, &disks)?);
        Ok(())
    }

    fn run(&self, words: &[&str], disks: &[&Path]) -> Result<String> {
        Ok(self.daemon.command().args(words).args(disks).check(PATIENCE)?.text())
    }
}

const DATASET: &str = "tank/vms";
const NFS_PORT: u16 = 2049;
const PATIENCE: Duration = Duration::from_secs(60);
