//! Many snapshots of a dataset, and of a file.
//!
//! The memory of each comes from the process's own memory without its read cache, right after a
//! start of the daemon, with all snapshots and without them.

use std::time::Instant;

use super::{Bench, DATASET};
use crate::figures::{median, number};
use crate::system::memory_bytes;
use crate::{Error, Result};

impl Bench {
    /// Many snapshots of one dataset.
    pub(super) fn many(&mut self) -> Result<()> {
        self.many_of(DATASET, "snapshots", &["destroy", "-Rf", &format!("{DATASET}@%")])
    }

    /// Many snapshots of one file.
    pub(super) fn many_of_file(&mut self) -> Result<()> {
        let file = format!("{DATASET}:bench.img");
        self.many_of(&file, "snapshots of a file", &["destroy", "-f", &format!("{file}@*")])
    }

    fn many_of(&mut self, of: &str, what: &str, destroy: &[&str]) -> Result<()> {
        let few = [self.clients()?];
        let mut took = Vec::new();
        for number in 0..self.many {
            took.push(self.ms(&["snapshot", &format!("{of}@m{number}")])?);
        }
        let part = (self.many / 10).max(1);
        let first = median(took.iter().take(part).copied().collect());
        let last = median(took.iter().rev().take(part).copied().collect());
        let name = format!("the last of many {what}");
        self.figures.add(name, (last, "ms"), (last / first, "the first"));
        let list = self.ms(&["list", "-Ht", "snapshot"])?;
        self.figures.add("list of all", (list, "ms"), (list / 1e3, "a second"));
        let samples = [self.clients()?];
        self.compared(&format!("32 stable 4 KiB writes, many {what}"), &few, &samples);
        let disk = self.disk()?;
        let place = disk.rsplit_once('/').map_or(".", |(place, _)| place);
        self.ask(&["pool", "export", "tank"])?;
        let import = self.ms(&["pool", "import", "-d", place, "tank"])?;
        self.figures.add("import with all", (import, "ms"), (import / 2e3, "two seconds"));
        let with = self.memory_of_a_start()?;
        self.target.compare()?;
        let begun = Instant::now();
        self.ask(destroy)?;
        let gone = begun.elapsed().as_secs_f64();
        self.figures.add("destroy of all: answered", (gone, "s"), (gone, "a second"));
        self.until_freed()?;
        let each = (with - self.memory_of_a_start()?) / self.many.max(1) as f64;
        self.figures.add("memory of each", (each, "bytes"), (each / 128.0, "128 bytes"));
        Ok(())
    }

    /// The process's own memory after a start, without what its read cache holds: the least of some
    /// starts, since threads take more or less of it by chance.
    fn memory_of_a_start(&mut self) -> Result<f64> {
        let mut least = f64::MAX;
        for _ in 0..STARTS {
            self.target.restart()?;
            std::thread::sleep(self.gap());
            let pid = self.target.pid()?.ok_or_else(|| Error::Malformed("no process".into()))?;
            let cached = number(&self.json(&["arcstat"])?, "/pools/0/cache/size_bytes")?;
            least = least.min(memory_bytes(pid)? as f64 - cached);
        }
        Ok(least)
    }
}

const STARTS: usize = 5;
