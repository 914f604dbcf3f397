//! A cache disk (`make bench-disks BENCH="--only l2arc"`): random reads of four times the memory on
//! slow disks, without a fast cache disk and with one.

use std::time::Duration;

use aquifer_rig::work::WorkDir;

use crate::Result;
use crate::figures::{Figure, Figures, number};
use crate::load::Life;
use crate::measure;
use crate::target::{Setup, Target};
use crate::workload;

/// How long a command is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// The file is read so often at most, until the cache has it.
const SWEEPS_MAX: usize = 20;
/// So much of it is enough.
const HELD: f64 = 0.98;

/// Measures reads on two slow disks, then with a cache disk that has read all of it.
///
/// # Errors
/// The server's, and [`Error::Failed`] where disks cannot be slow.
pub fn run(setup: &Setup, length: Duration) -> Result<Vec<Figure>> {
    let work = WorkDir::open()?;
    let beside = work.scratch("cache")?;
    let mut target = Target::start("aquifer-slow", setup, work.scratch("bench")?)?;
    let mut figures = Figures::default();
    let plan = workload::reads_4k_32();
    let without = measure::sample(&mut target, &plan, 1, length)?;
    let disk = beside.join("cache.img").display().to_string();
    let size = (2 * setup.file_bytes).to_string();
    target.ask(&["pool", "add", "--create-size", &size, "tank", "cache", &disk], PATIENCE)?;
    let mut held = 0.0;
    for _ in 0..SWEEPS_MAX {
        target.pass(&workload::sweep(), 1, Life::Once, &mut |_| Ok(()))?;
        let status = target.json(&["pool", "status", "tank"], PATIENCE)?;
        held = number(&status, "/caches/0/held_bytes")? / setup.file_bytes as f64;
        if held >= HELD {
            break;
        }
    }
    let with = measure::sample(&mut target, &plan, 1, length)?;
    figures.add(
        "random 4 KiB reads, no cache disk",
        (without.ops_per_s, "/s"),
        (1.0, "themselves"),
    );
    figures.add("part of the file on the cache disk", (held * 100.0, "%"), (held, "all of it"));
    figures.add(
        "random 4 KiB reads, a cache disk",
        (with.ops_per_s, "/s"),
        (with.ops_per_s / without.ops_per_s, "the same without it"),
    );
    figures.add(
        "random 4 KiB reads, a cache disk: p99",
        (with.latency.p99_us / 1e3, "ms"),
        (with.latency.p99_us / without.latency.p99_us, "the same without it"),
    );
    Ok(figures.0)
}
