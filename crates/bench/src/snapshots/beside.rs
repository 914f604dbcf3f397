//! Costs of sending and receiving to the server while clients work: its memory, and their times.
//! What is received comes from a file that the system has in memory, and is compared with what one
//! client writes over NFS.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aquifer_rig::process::Invocation;

use super::{Bench, DATASET, PATIENCE, SAMPLES};
use crate::figures::{median, number};
use crate::measure::Sample;
use crate::system::memory_bytes;
use crate::{Error, Result};

const SENT: &str = "tank/bench@sent";
const COPY: &str = "tank/copy";
const MIB: f64 = 1048576.0;
/// Most memory that a send or a receive may take.
const MEMORY_MIB: f64 = 64.0;
/// Between two looks at the memory.
const LOOK: Duration = Duration::from_millis(50);

impl Bench {
    /// A send to nothing, and a receive from a file.
    pub(super) fn send_beside(&mut self) -> Result<()> {
        self.ask(&["snapshot", SENT])?;
        let file = self.scratch_path("stream");
        let to_file = format!("send {SENT} > {file}");
        self.shell()?.run(&to_file)?;
        let send = format!("send {SENT} > /dev/null");
        let (receive, drop_it) = (format!("receive {COPY} < {file}"), ["destroy", "-rf", COPY]);
        self.rates(&receive, &drop_it)?;
        let name = "memory of the server during a send";
        let used = self.memory_during(&send)?;
        self.figures.add(name, (used, "MiB"), (used / MEMORY_MIB, "64 MiB"));
        let used = self.memory_during(&receive)?;
        let name = "memory of the server during a receive";
        self.figures.add(name, (used, "MiB"), (used / MEMORY_MIB, "64 MiB"));
        self.ask(&drop_it)?;
        self.until_freed()?;
        let (mut alone, mut sends, mut receives) = (Vec::new(), Vec::new(), Vec::new());
        let again = format!("{receive} && \"$0\" \"$@\" {}", drop_it.join(" "));
        for _ in 0..SAMPLES {
            alone.push(self.clients()?);
            sends.push(self.clients_beside_script(&send)?);
            receives.push(self.clients_beside_script(&again)?);
            self.until_freed()?;
        }
        self.compared("32 stable 4 KiB writes beside a send", &alone, &sends);
        self.compared("32 stable 4 KiB writes beside a receive", &alone, &receives);
        self.target.compare()?;
        self.ask(&["destroy", "-f", &format!("{DATASET}@%")])?;
        self.until_freed().map(drop)
    }

    /// A receive from a file, and the same bytes written by a client, each until it is on disk.
    fn rates(&mut self, receive: &str, drop_it: &[&str]) -> Result<()> {
        let bytes = self.target.file_bytes() as u64;
        let (mut received, mut written) = (Vec::new(), Vec::new());
        for round in 0..SAMPLES {
            self.rest()?;
            let begun = Instant::now();
            self.shell()?.run(receive)?;
            received.push(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64());
            self.ask(drop_it)?;
            self.until_freed()?;
            self.rest()?;
            let name = format!("written{round}.img");
            let begun = Instant::now();
            self.make(&name, bytes, bytes)?;
            self.settle()?;
            written.push(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64());
            self.remove([name.as_str()])?;
            self.until_freed()?;
        }
        let (received, written) = (median(received), median(written));
        self.figures.add("written over NFS, in order", (written, "MB/s"), (1.0, "itself"));
        let of = (received / written, "what a client writes over NFS");
        self.figures.add("receive from a file", (received, "MB/s"), of);
        Ok(())
    }

    /// The most memory of the server during a command, without its read cache, above what it had
    /// before.
    fn memory_during(&mut self, script: &str) -> Result<f64> {
        let pid = self.target.pid()?.ok_or_else(|| Error::Malformed("no process".into()))?;
        let shell = self.shell()?;
        let over = AtomicBool::new(false);
        let before = self.own_memory(pid)?;
        std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                let done = shell.run(script);
                over.store(true, Ordering::Relaxed);
                done
            });
            let mut most = before;
            while !over.load(Ordering::Relaxed) {
                most = most.max(self.own_memory(pid)?);
                std::thread::sleep(LOOK);
            }
            working.join().map_err(|_| Error::Malformed("the command panicked".into()))??;
            Ok((most - before) / MIB)
        })
    }

    /// The memory of the process without its read cache, which may grow meanwhile.
    fn own_memory(&self, pid: u32) -> Result<f64> {
        let earlier = memory_bytes(pid)? as f64;
        let cached = number(&self.json(&["arcstat"])?, "/pools/0/cache/size_bytes")?;
        Ok(f64::midpoint(earlier, memory_bytes(pid)? as f64) - cached)
    }

    /// Clients, while a command runs again and again.
    fn clients_beside_script(&mut self, script: &str) -> Result<Sample> {
        let (shell, over) = (self.shell()?, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    shell.run(script)?;
                }
                Ok::<(), Error>(())
            });
            let sample = self.clients();
            over.store(true, Ordering::Relaxed);
            working.join().map_err(|_| Error::Malformed("the command panicked".into()))??;
            sample
        })
    }

    /// A file beside the disks.
    fn scratch_path(&self, name: &str) -> String {
        let disk = self.disk().unwrap_or_default();
        let place = disk.rsplit_once('/').map_or(".", |(place, _)| place);
        format!("{place}/{name}")
    }

    pub(super) fn shell(&self) -> Result<Shell> {
        Ok(Shell { command: self.target.command()? })
    }
}

/// Runs commands of the server's command line with input or output of files.
pub(super) struct Shell {
    command: Invocation,
}

impl Shell {
    pub(super) fn run(&self, words: &str) -> Result<()> {
        let script = format!("set -o pipefail; \"$0\" \"$@\" {words}");
        let command = Invocation::tool("bash", "bench")?.arg("-c").arg(script);
        command.args(self.command.line().split(' ')).check(PATIENCE)?;
        Ok(())
    }
}
