//! Many snapshots of a dataset, and of a file.

use super::{Bench, DATASET};
use crate::figures::median;
use crate::system::memory_bytes;
use crate::{Error, Result};

impl Bench {
    /// Many snapshots of one dataset.
    pub(super) fn many(&mut self) -> Result<()> {
        self.many_of(DATASET, "snapshots")?;
        self.clear()
    }

    /// Many snapshots of one file.
    pub(super) fn many_of_file(&mut self) -> Result<()> {
        let file = format!("{DATASET}:bench.img");
        self.many_of(&file, "snapshots of a file")?;
        self.ask(&["destroy", "-f", &format!("{file}@*")])?;
        self.until_freed().map(drop)
    }

    fn many_of(&mut self, of: &str, what: &str) -> Result<()> {
        let few = [self.clients()?];
        let memory = self.memory()?;
        let mut took = Vec::new();
        for number in 0..self.many {
            took.push(self.ms(&["snapshot", &format!("{of}@m{number}")])?);
        }
        let part = (self.many / 10).max(1);
        let first = median(took.iter().take(part).copied().collect());
        let last = median(took.iter().rev().take(part).copied().collect());
        let more = (self.memory()? - memory) / self.many.max(1) as f64;
        let name = format!("the last of many {what}");
        self.figures.add(name, (last, "ms"), (last / first, "the first"));
        self.figures.add("memory of each", (more, "bytes"), (more / 128.0, "128 bytes"));
        let list = self.ms(&["list", "-Ht", "snapshot"])?;
        self.figures.add("list of all", (list, "ms"), (list / 1e3, "a second"));
        let samples = [self.clients()?];
        self.compared(&format!("32 stable 4 KiB writes, many {what}"), &few, &samples);
        let disk = self.disk()?;
        let place = disk.rsplit_once('/').map_or(".", |(place, _)| place);
        self.ask(&["pool", "export", "tank"])?;
        let import = self.ms(&["pool", "import", "-d", place, "tank"])?;
        self.figures.add("import with all", (import, "ms"), (import / 2e3, "two seconds"));
        self.target.compare()
    }

    fn memory(&self) -> Result<f64> {
        let pid = self.target.pid()?.ok_or_else(|| Error::Malformed("no process".into()))?;
        Ok(memory_bytes(pid)? as f64)
    }
}
