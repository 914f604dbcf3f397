//! Costs of sending a snapshot, and of sending what changed since another one.
//!
//! Each is compared with what the disk alone reads. The pool is imported before, so what is sent
//! comes from the disk.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Bench, DATASET};
use crate::figures::median;
use crate::load::Life;
use crate::pattern::PAGE_BYTES;
use crate::raw::{Io, Raw};
use crate::{Error, Result, workload};

/// The snapshots that are sent.
const OLD: &str = "tank/bench@old";
const NEW: &str = "tank/bench@new";
const COPY: &str = "tank/copy";
/// How often each is measured.
const ROUNDS: usize = 3;
/// One of so many pages changes.
const CHANGED: u64 = 100;
/// The disk's own reads.
const RAW_BYTES: usize = 1 << 20;
const RAW_LENGTH: Duration = Duration::from_secs(2);

impl Bench {
    /// A whole snapshot to nothing and into a copy; what changed since, the same.
    pub(super) fn send(&mut self) -> Result<()> {
        let bytes = self.target.file_bytes() as f64;
        self.ask(&["snapshot", OLD])?;
        let pages = self.target.file_bytes() / PAGE_BYTES;
        let some = u32::try_from(pages as u64 / CHANGED).unwrap_or(u32::MAX);
        self.target.pass(&workload::stable_4k_32(), 1, Life::Calls(some), &mut |_| Ok(()))?;
        self.ask(&["snapshot", NEW])?;
        let disk = self.disk()?;
        let mut raw = Vec::new();
        let (mut whole, mut changed, mut copied, mut followed) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (to_nothing, to_copy) = ("> /dev/null", format!("| \"$0\" \"$@\" receive {COPY}"));
        let (all, since) = (OLD.to_string(), format!("-i {OLD} {NEW}"));
        for _ in 0..ROUNDS {
            self.again(&disk)?;
            raw.push(self.raw_rate(&disk)?);
            whole.push(self.seconds(&all, to_nothing)?);
            self.again(&disk)?;
            changed.push(self.seconds(&since, to_nothing)?);
            copied.push(self.seconds(&all, &to_copy)?);
            followed.push(self.seconds(&since, &to_copy)?);
            self.ask(&["destroy", "-rf", COPY])?;
            self.until_freed()?;
        }
        self.target.compare()?;
        let (raw, whole) = (median(raw), median(whole));
        let rate = |seconds: f64| bytes / 1e6 / seconds;
        let mut add = |what: &str, value, of| self.figures.add(what, value, of);
        let own = "the disk's own reads of 1 MiB";
        add("send of all, to nothing", (rate(whole), "MB/s"), (rate(whole) / raw, own));
        let copied = median(copied);
        let of_send = (rate(copied) / rate(whole), "the send alone");
        add("the same into receive", (rate(copied), "MB/s"), of_send);
        let changed = median(changed);
        let of_all = "the send of all";
        add("send of what changed, 1 % of it", (changed * 1e3, "ms"), (changed / whole, of_all));
        let followed = median(followed);
        let of_it = (followed / changed, "the send alone");
        add("the same into receive", (followed * 1e3, "ms"), of_it);
        self.ask(&["destroy", "-f", &format!("{DATASET}@%")])?;
        self.until_freed().map(drop)
    }

    /// A disk of the pool.
    pub(super) fn disk(&self) -> Result<String> {
        let status = self.json(&["pool", "status", "tank"])?;
        let disk = status.pointer("/vdevs/0/leaves/0/path").and_then(Value::as_str);
        disk.map(Into::into).ok_or_else(|| Error::Malformed("a vdev without a disk".into()))
    }

    /// Exports the pool and imports it: nothing of it is in memory then.
    pub(super) fn again(&self, disk: &str) -> Result<()> {
        let place = disk.rsplit_once('/').map_or(".", |(place, _)| place);
        self.ask(&["pool", "export", "tank"])?;
        self.ask(&["pool", "import", "-d", place, "tank"]).map(drop)
    }

    /// MB a second.
    fn raw_rate(&self, disk: &str) -> Result<f64> {
        let status = self.json(&["pool", "status", "tank"])?;
        let used = status.pointer("/allocated_bytes").and_then(Value::as_u64);
        let used = used.ok_or_else(|| Error::Malformed("a pool without a size".into()))?;
        let mut raw = Raw::open(Path::new(disk), used)?;
        let count = raw.run(Io::Read, RAW_BYTES, RAW_LENGTH)?.count;
        Ok(count as f64 * RAW_BYTES as f64 / 1e6 / RAW_LENGTH.as_secs_f64())
    }

    /// Seconds of a send whose output goes where the shell's words say.
    fn seconds(&self, words: &str, to: &str) -> Result<f64> {
        let shell = self.shell()?;
        let begun = Instant::now();
        shell.run(&format!("send {words} {to}"))?;
        Ok(begun.elapsed().as_secs_f64())
    }
}
