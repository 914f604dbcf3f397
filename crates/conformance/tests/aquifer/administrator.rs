//! An administrator who changes the log of a pool in service while its server is killed. Disks go
//! offline and come back, they are replaced, and the log vdev is removed and added.
//!
//! Invariant: every refusal and every interruption is reported; the pool's state shows the outcome.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use aquifer_conformance::{Error, Result};
use aquifer_rig::process::Invocation;
use aquifer_rig::random::Random;
use serde_json::Value;

use crate::place::SOON;

/// An administrator.
pub struct Administrator {
    /// Reaches the daemon.
    aquifer: Invocation,
    /// Disks that the log may use.
    disks: Vec<String>,
    random: Random,
    /// Counts of acts.
    pub acts: Acts,
    /// The acts and their outcomes, since the story was last taken.
    pub story: String,
}

/// Acts, by outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acts {
    pub done: u64,
    pub refused: u64,
    /// Interrupted by the end of the daemon: their outcome is open.
    pub cut_off: u64,
}

/// The log of a pool: the name of its vdev, and its disks.
struct Log {
    name: String,
    disks: Vec<String>,
}

impl Administrator {
    pub fn new(aquifer: Invocation, disks: Vec<String>, random: Random) -> Self {
        let (acts, story) = (Acts::default(), String::new());
        Self { aquifer, disks, random, acts, story }
    }

    /// Works until the daemon is gone.
    ///
    /// # Errors
    /// [`Error::Timeout`] if a command hangs; [`Error::Malformed`].
    pub fn work(&mut self, killed: &AtomicBool) -> Result<()> {
        loop {
            thread::sleep(Duration::from_millis(self.random.below(80)));
            let status = self.aquifer.clone().args(["--json", "pool", "status", POOL]).run(SOON)?;
            if killed.load(Ordering::SeqCst) {
                return Ok(());
            }
            let status = serde_json::from_slice(&status.stdout);
            let status: Value = status.map_err(|error| Error::Malformed(error.to_string()))?;
            let words = self.choose(log_of(&status).as_ref());
            let said = self.aquifer.clone().args(&words).run(SOON)?;
            match (said.status.success(), killed.load(Ordering::SeqCst)) {
                (true, _) => self.acts.done += 1,
                (false, false) => self.acts.refused += 1,
                (false, true) => self.acts.cut_off += 1,
            }
            writeln!(self.story, "  {words:?}: {} {}", said.status, said.said().trim()).unwrap();
        }
    }

    fn choose(&mut self, log: Option<&Log>) -> Vec<String> {
        let Some(log) = log else {
            let skip = self.random.index(self.disks.len());
            let disks = self.disks.iter().cycle().skip(skip).take(2).cloned();
            return words(&["add", "-f", POOL, "log", "mirror"]).chain(disks).collect();
        };
        let disk = &log.disks[self.random.index(log.disks.len())];
        let spare = self.disks.iter().find(|disk| !log.disks.contains(disk));
        match (self.random.below(8), spare) {
            (0..3, _) => words(&["offline", POOL, disk]).collect(),
            (3, _) => words(&["remove", POOL, &log.name]).collect(),
            (4, Some(spare)) => words(&["replace", "-f", POOL, disk, spare]).collect(),
            _ => words(&["online", POOL, disk]).collect(),
        }
    }
}

fn words(words: &[&str]) -> impl Iterator<Item = String> {
    ["pool"].iter().chain(words).map(|word| (*word).to_owned()).collect::<Vec<_>>().into_iter()
}

fn log_of(status: &Value) -> Option<Log> {
    let log = status["vdevs"].as_array()?.iter().find(|vdev| vdev["class"] == "log")?;
    let paths = log["leaves"].as_array()?.iter().filter_map(|leaf| leaf["path"].as_str());
    Some(Log { name: log["name"].as_str()?.to_owned(), disks: paths.map(str::to_owned).collect() })
}

const POOL: &str = "tank";
