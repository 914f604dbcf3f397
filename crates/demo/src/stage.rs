//! The demo's daemon: its pool, its commands, its deaths.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use aquifer_conformance::{Error, Result};
use aquifer_rig::daemon::Daemon;
use aquifer_rig::netns::NetNs;
use aquifer_rig::removable::Removable;
use aquifer_rig::server::aquifer_program;
use aquifer_rig::work::Scratch;

use crate::summary::Figures;
use crate::tell;

/// A daemon in a network namespace of its own, with image files for disks.
pub struct Stage {
    daemon: Daemon,
    /// The mirror's two sides, and the spare.
    disks: [PathBuf; 3],
    /// The disk of the second pool.
    second: PathBuf,
    /// The first disk's slot, if this machine lets a disk be pulled out of it.
    slot: Option<Removable>,
}

impl Stage {
    /// Sets up the namespace; nothing is started yet.
    pub fn new(scratch: &Scratch) -> Result<Self> {
        let mut disks = ["a.img", "b.img", "c.img"].map(|name| scratch.join(name));
        let slot = match Removable::can_be() {
            true => Some(put_into_a_slot(scratch, &mut disks[0])?),
            false => None,
        };
        // The namespace has the mounts that were there when it was made.
        let netns = NetNs::new(scratch)?;
        let args = ["--nfs-addr=127.0.0.1:2049", "--portmap-addr=127.0.0.1:111"];
        let daemon = Daemon::new(&aquifer_program()?, &netns, scratch, args, &[NFS_PORT]);
        let second = scratch.join("d.img");
        Ok(Self { daemon, disks, second, slot })
    }

    /// The namespace of server and clients.
    pub fn netns(&self) -> &NetNs {
        self.daemon.netns()
    }

    /// The socket of the daemon's API.
    pub fn socket(&self) -> &Path {
        self.daemon.socket()
    }

    /// The second side of the mirror.
    pub fn second_disk(&self) -> &Path {
        &self.disks[1]
    }

    /// The first disk's slot, if this machine lets a disk be pulled out of it.
    pub fn slot(&self) -> Option<&Removable> {
        self.slot.as_ref()
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
        let [a, b, c] = self.disks.each_ref().map(Word::Disk);
        let create = ["pool", "create", "--create-size=4G", "tank", "mirror"].map(Word::Text);
        self.aquifer_words(&[&create[..], &[a, b, Word::Text("spare"), c]].concat())?;
        self.aquifer(&["create", "-o", "sync=always", "-o", "compression=lz4", DATASET])?;
        self.aquifer(&["set", "sharenfs=rw=127.0.0.1,insecure", DATASET])?;
        self.aquifer(&["pool", "status"])
    }

    /// Makes the pool for the copy.
    pub fn make_second_pool(&self) -> Result<()> {
        let create = ["pool", "create", "--create-size=4G", "backup"].map(Word::Text);
        self.aquifer_words(&[&create[..], &[Word::Disk(&self.second)]].concat())
    }

    /// Shows the datasets.
    pub fn list(&self) -> Result<()> {
        self.aquifer(&["list"])
    }

    /// Reads the exported pool from its disks.
    pub fn inspect(&self) -> Result<()> {
        let [a, b, _] = self.disks.each_ref().map(Word::Disk);
        self.aquifer_words(&[Word::Text("inspect"), a, b])
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
        self.aquifer(&["pool", "status", "tank"])?;
        let status = self.status()?;
        let leaves = status.pointer("/vdevs/0/leaves").and_then(|leaves| leaves.as_array());
        let leaves = leaves.ok_or_else(|| malformed("leaves", &status))?;
        let repaired = leaves.iter().filter_map(|leaf| leaf.get("repaired")?.as_u64());
        match repaired.sum() {
            0 => {
                Err(Error::Mismatch("garbage was written over a disk and nothing repaired".into()))
            }
            repaired => Ok(repaired),
        }
    }

    /// Scrubs the pool; returns the bytes that it repaired. What it says names the files.
    pub fn scrub(&self) -> Result<u64> {
        self.waits(&[Word::Text("scrub"), Word::Text("-w"), Word::Text("tank")])?;
        let status = self.status()?;
        let count = |name: &str| status.pointer(&format!("/scrub/{name}"))?.as_u64();
        if count("unreadable_blocks") != Some(0) {
            return Err(Error::Mismatch("the scrub met content that no disk has".into()));
        }
        count("repaired_bytes").ok_or_else(|| malformed("scrub", &status))
    }

    /// Asks the pool for its status.
    pub fn status(&self) -> Result<serde_json::Value> {
        let words = ["--json", "pool", "status", "tank"];
        let json = self.daemon.command().args(words).check(PATIENCE)?.text();
        serde_json::from_str(&json)
            .map_err(|error| Error::Malformed(format!("pool status: {error}: {json}")))
    }

    /// Whether the pool says this at a place of its status.
    pub fn is(&self, pointer: &str, expected: &str) -> Result<bool> {
        let status = self.status()?;
        let found = status.pointer(pointer).and_then(|found| found.as_str());
        found.map(|found| found == expected).ok_or_else(|| malformed(pointer, &status))
    }

    /// The bytes that a dataset takes.
    pub fn used_bytes(&self, dataset: &str) -> Result<u64> {
        let words = ["--json", "list", dataset];
        let json = self.daemon.command().args(words).check(PATIENCE)?.text();
        let listed: Option<serde_json::Value> = serde_json::from_str(&json).ok();
        let used = listed.and_then(|listed| listed.pointer("/0/used_bytes")?.as_u64());
        used.ok_or_else(|| Error::Malformed(format!("list {dataset}: {json}")))
    }

    /// The first disk, as a word of a command.
    pub fn first_disk(&self) -> Word<'_> {
        Word::Disk(&self.disks[0])
    }

    /// Runs a command `aquifer pool ...` that waits for work, and shows its progress line. Not all
    /// need succeed: a pool that a disk is missing of is not whole when the work is done.
    pub fn waits(&self, words: &[Word<'_>]) -> Result<ExitStatus> {
        tell::command(&format!("aquifer pool {}", typed(words)));
        let command = self.daemon.command().arg("pool").args(words.iter().map(Word::real));
        command.run_shown(LONG)
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
    pub fn aquifer(&self, words: &[&str]) -> Result<()> {
        self.aquifer_words(&words.iter().map(|word| Word::Text(word)).collect::<Vec<_>>())
    }

    /// Runs such a command without showing it.
    pub fn quietly(&self, words: &[&str]) -> Result<()> {
        self.daemon.command().args(words).check(PATIENCE).map(drop)
    }

    fn aquifer_words(&self, words: &[Word<'_>]) -> Result<()> {
        tell::command(&format!("aquifer {}", typed(words)));
        let command = self.daemon.command().args(words.iter().map(Word::real));
        tell::said(&command.check(PATIENCE)?.text());
        Ok(())
    }
}

/// A word of a command.
#[derive(Clone, Copy)]
pub enum Word<'a> {
    /// As it is typed.
    Text(&'a str),
    /// A disk: people type its name only.
    Disk(&'a PathBuf),
}

impl Word<'_> {
    fn real(&self) -> &OsStr {
        match self {
            Word::Text(text) => OsStr::new(text),
            Word::Disk(path) => path.as_os_str(),
        }
    }

    fn shown(&self) -> &str {
        match self {
            Word::Text(text) => text,
            Word::Disk(path) => path.file_name().and_then(OsStr::to_str).unwrap_or_default(),
        }
    }
}

fn typed(words: &[Word<'_>]) -> String {
    words.iter().map(Word::shown).collect::<Vec<_>>().join(" ")
}

fn malformed(what: &str, status: &serde_json::Value) -> Error {
    Error::Malformed(format!("pool status: {what}: {status}"))
}

/// Puts a disk of the size of the others into a slot. From now on it is found there.
fn put_into_a_slot(scratch: &Scratch, disk: &mut PathBuf) -> Result<Removable> {
    let made = File::create(&*disk).and_then(|file| file.set_len(DISK_BYTES));
    made.map_err(Error::at("create", disk))?;
    let slot = Removable::new(disk, &scratch.join(SLOT))?;
    *disk = PathBuf::from(&slot.path);
    Ok(slot)
}

/// Where the slot is, in the demo's directory.
pub const SLOT: &str = "slot";
const DATASET: &str = "tank/vms";
const DISK_BYTES: u64 = 4 << 30;
const NFS_PORT: u16 = 2049;
const PATIENCE: Duration = Duration::from_secs(60);
/// For work on a whole disk.
const LONG: Duration = Duration::from_secs(300);
