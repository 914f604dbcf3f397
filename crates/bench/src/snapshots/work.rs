//! The work behind an answer: what the background pays for snapshots that go, what two versions of
//! a file cost to compare, and what a txg costs in a pool of many datasets.

use std::time::{Duration, Instant};

use super::files::SPARSE_BYTES;
use super::{Bench, DATASET, DESTROY, HELD};
use crate::figures::{median, number};
use crate::load::{Life, Order, Plan};
use crate::pattern::PAGE_BYTES;
use crate::system::Usage;
use crate::{Error, Result, workload};

/// Cost of freeing.
struct Freed {
    bytes: f64,
    device_bytes: f64,
    cpu: Duration,
}

impl Freed {
    fn us_per_page(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / (self.bytes / PAGE_BYTES as f64).max(1.0)
    }
}

impl Bench {
    /// Destroys, and waits until all is free.
    fn freed_by(&mut self, words: &[&str]) -> Result<Freed> {
        self.settle()?;
        self.rest()?;
        // What it costs to look whether all is free.
        let (begun, cpu) = (Instant::now(), self.processor_time()?);
        let used = self.until_freed()?;
        let idle = (self.processor_time()? - cpu).div_f64(begun.elapsed().as_secs_f64());
        let device = self.device_bytes()?;
        let (begun, cpu) = (Instant::now(), self.processor_time()?);
        self.ask(words)?;
        let bytes = used - self.until_freed()?;
        let spent = self.processor_time()? - cpu;
        let cpu = spent.saturating_sub(idle.mul_f64(begun.elapsed().as_secs_f64()));
        let after = self.device_bytes()?;
        Ok(Freed { bytes, device_bytes: after.0 + after.1 - device.0 - device.1, cpu })
    }

    fn processor_time(&self) -> Result<Duration> {
        Ok(Usage::now(self.target.pid()?)?.process)
    }

    /// Of 24 hourly snapshots one is kept; of a dataset, and of a file.
    pub(super) fn thinned(&mut self) -> Result<()> {
        self.write_over()?;
        self.ask(&["snapshot", HELD])?;
        self.write_over()?;
        let one = self.freed_by(&DESTROY)?.us_per_page();
        let of_file = format!("{DATASET}:bench.img");
        for (of, what) in [(DATASET, "24 hourlies to one"), (&of_file, "the same of a file")] {
            let pages = self.target.file_bytes() / PAGE_BYTES / HOURS;
            let some = Life::Calls(u32::try_from(pages).unwrap_or(u32::MAX));
            self.ask(&["snapshot", &format!("{of}@h0")])?;
            for hour in 1..=HOURS {
                self.target.pass(&workload::wear(), 1, some, &mut |_| Ok(()))?;
                self.ask(&["snapshot", &format!("{of}@h{hour}")])?;
            }
            let go: Vec<String> = (1..HOURS).map(|hour| format!("h{hour}")).collect();
            let freed = self.freed_by(&["destroy", "-f", &format!("{of}@{}", go.join(","))])?;
            let (mib, disks) = (freed.bytes / MIB, freed.device_bytes / MIB);
            let work = disks / mib.max(1.0);
            let of_all = mib * MIB / self.target.file_bytes() as f64;
            self.figures.add(format!("{what}: freed"), (mib, "MiB"), (of_all, "the file"));
            let moved = format!("{what}: moved by disks");
            self.figures.add(moved, (disks, "MiB"), (work, "what was freed"));
            let cpu = freed.us_per_page();
            let of_one = (cpu / one, "the same of one snapshot that goes");
            self.figures.add(format!("{what}: CPU for a page"), (cpu, "us"), of_one);
            self.target.compare()?;
            self.ask(&["destroy", "-f", &format!("{of}@h0,h{HOURS}")])?;
            self.until_freed()?;
        }
        Ok(())
    }

    /// The ranges in which two snapshots of a sparse file differ, from memory and from disk.
    pub(super) fn ranges(&mut self) -> Result<()> {
        let mut file = self.make("ranges.img", SPARSE_BYTES, self.sparse)?;
        let (old, new) = (format!("{DATASET}@r0"), format!("{DATASET}@r1"));
        self.ask(&["snapshot", &old])?;
        let pages = self.on(&mut file, |bench| {
            let all = bench.target.file_bytes() / PAGE_BYTES;
            let some = Life::Calls(u32::try_from(all).unwrap_or(u32::MAX).min(CHANGED));
            // Without COMMITs, which would be among the calls.
            let plan = Plan { order: Order::Shuffled, ..workload::stable_4k_32() };
            bench.target.pass(&plan, 1, some, &mut |_| Ok(()))?;
            Ok(all.min(CHANGED as usize) as f64)
        })?;
        self.ask(&["snapshot", &new])?;
        let name = "ranges.img";
        let words = ["diff", "--ranges", &format!("{old}:{name}"), &format!("{new}:{name}")];
        let mut took = Vec::new();
        for _ in 0..self.rounds.div_ceil(4) {
            self.rest()?;
            let begun = Instant::now();
            let said = self.ask(&words)?;
            took.push(begun.elapsed().as_secs_f64());
            let bytes: f64 = said.lines().map(length).sum();
            if bytes != pages * PAGE_BYTES as f64 {
                let said = format!("{bytes} bytes in ranges, {pages} pages changed");
                return Err(Error::Mismatch(said));
            }
        }
        let what = "ranges of 10,000 changed pages of a sparse file";
        let took = median(took);
        self.figures.add(what, (took * 1e3, "ms"), (took, "a second"));
        let disk = self.disk()?;
        self.again(&disk)?;
        let took = self.ms(&words)?;
        self.figures.add("the same after an import", (took, "ms"), (took / 1e3, "a second"));
        self.on(&mut file, |bench| bench.target.compare())?;
        self.ask(&["destroy", "-f", &format!("{DATASET}@r0,r1")])?;
        self.remove([name])?;
        self.until_freed().map(drop)
    }

    /// Txgs with little in them, in a pool of few datasets and in one of many.
    pub(super) fn datasets(&mut self) -> Result<()> {
        let few = self.small_txgs()?;
        self.ask(&["create", MANY])?;
        let count = (self.many / 10).max(1);
        for number in 0..count {
            self.ask(&["create", &format!("{MANY}/d{number}")])?;
        }
        let many = self.small_txgs()?;
        let mut add = |what: &str, (many, few): (f64, f64), unit| {
            let ratio = if few > 0.0 { many / few } else { 1.0 };
            self.figures.add(what, (many, unit), (ratio, FEW));
        };
        add("a txg of one page, many datasets", (many.txg_ms, few.txg_ms), "ms");
        add("CPU in a while of small writes, many datasets", (many.cpu_ms, few.cpu_ms), "ms");
        add("CPU of a txg of one page, many datasets", (many.txg_cpu_ms, few.txg_cpu_ms), "ms");
        self.ask(&["destroy", "-rf", MANY])?;
        self.until_freed().map(drop)
    }

    fn small_txgs(&mut self) -> Result<SmallTxgs> {
        self.settle()?;
        self.rest()?;
        let cpu = self.processor_time()?;
        let begun = Instant::now();
        while begun.elapsed() < self.length * 2 {
            self.write_a_page()?;
            std::thread::sleep(PAUSE);
        }
        let cpu_ms = (self.processor_time()?.saturating_sub(cpu)).as_secs_f64() * 1e3;
        self.settle()?;
        self.rest()?;
        let (before, cpu) = (self.txgs()?, self.processor_time()?);
        for _ in 0..self.rounds * 2 {
            self.write_a_page()?;
            self.settle()?;
        }
        let (after, used) = (self.txgs()?, self.processor_time()?.saturating_sub(cpu));
        let count = (after.0 - before.0).max(1.0);
        let txg_ms = (after.1 - before.1) / count / 1e6;
        Ok(SmallTxgs { cpu_ms, txg_ms, txg_cpu_ms: used.as_secs_f64() * 1e3 / count })
    }

    fn write_a_page(&mut self) -> Result<()> {
        let one = Life::Calls(1);
        self.target.pass(&workload::depth1(), 1, one, &mut |_| Ok(())).map(drop)
    }

    /// Txgs since the import, and nanoseconds of them.
    fn txgs(&self) -> Result<(f64, f64)> {
        let pools = self.json(&["iostat", "tank"])?;
        Ok((number(&pools, "/0/txgs/count")?, number(&pools, "/0/txgs/total_ns")?))
    }
}

/// Cost of small writes.
struct SmallTxgs {
    /// Processor time of a while of them.
    cpu_ms: f64,
    /// From closing to disk.
    txg_ms: f64,
    /// Processor time for each, with the commands that ask for them.
    txg_cpu_ms: f64,
}

/// The bytes of a line of ranges.
fn length(line: &str) -> f64 {
    line.split('\t').nth(2).and_then(|length| length.parse().ok()).unwrap_or_default()
}

const MANY: &str = "tank/many";
const FEW: &str = "the same with one dataset";
const HOURS: usize = 24;
const MIB: f64 = 1048576.0;
/// Pages that change between two snapshots.
const CHANGED: u32 = 10_000;
const PAUSE: Duration = Duration::from_millis(20);
