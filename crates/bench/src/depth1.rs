//! One stable write outstanding, compared with the time that the disk alone takes to write and
//! flush.
//!
//! Invariant: the disk alone is an image file written in full, on the same disk as the pool's. It
//! is measured in turn with the servers, and in the same two ways. The first is on one processor
//! (the generator, and the server with all its threads). The second is wherever the kernel puts the
//! threads. A wake-up on another processor costs as much as half a write. Where other programs use
//! the processors, a flush waits for a worker of the kernel to get its turn. Half of all may take
//! the scheduler's 4 ms, and p10 is then more telling than p50.

use std::time::Duration;

use aquifer_rig::work::WorkDir;
use serde::Serialize;

use crate::measure::{self, Latency};
use crate::raw::{Io, Raw};
use crate::system::Pinned;
use crate::target::{self, Setup, Target};
use crate::{Result, workload};

/// The measurements of one server, or of the disk alone.
#[derive(Clone, Debug, Serialize)]
pub struct Depth1 {
    /// The target, or [`RAW`].
    pub name: String,
    /// On one processor, for each round.
    pub pinned: Vec<Latency>,
    /// Wherever the kernel puts the threads, for each round.
    pub free: Vec<Latency>,
}

impl Depth1 {
    /// On one processor.
    pub(crate) fn pinned(&self) -> &[Latency] {
        &self.pinned
    }

    /// Wherever the kernel puts the threads.
    pub(crate) fn free(&self) -> &[Latency] {
        &self.free
    }
}

/// The name of the disk alone.
pub const RAW: &str = "write+fdatasync";

/// Measures all targets.
///
/// # Errors
/// Those of the targets.
pub fn run(setup: &Setup, rounds: usize, length: Duration) -> Result<Vec<Depth1>> {
    let work = WorkDir::open()?;
    let setup = Setup {
        file_bytes: FILE_BYTES,
        image_bytes: IMAGE_BYTES,
        memory_bytes: None,
        ..setup.clone()
    };
    let scratch = work.scratch("bench")?;
    let image = scratch.join("raw.img");
    target::image(&image, IMAGE_BYTES, true)?;
    let mut raw = Raw::open(&image, IMAGE_BYTES)?;
    let mut targets = Vec::new();
    for name in TARGETS {
        eprintln!("starting {name}");
        targets.push(Target::start(name, &setup, work.scratch("bench")?)?);
    }
    eprintln!("{}: {WHAT}", workload::DEPTH1);
    let names = [RAW].into_iter().chain(TARGETS).map(str::to_owned);
    let mut all: Vec<Depth1> =
        names.map(|name| Depth1 { name, pinned: Vec::new(), free: Vec::new() }).collect();
    for _ in 0..rounds {
        for pin in [true, false] {
            let mut latencies = Vec::new();
            let pinned = pin.then(|| Pinned::new(None)).transpose()?;
            latencies.push(raw.run(Io::WriteFlush, PAGE_BYTES, length)?);
            drop(pinned);
            for target in &mut targets {
                let _pinned = pin.then_some(target.pid()?).map(Pinned::new).transpose()?;
                let sample = measure::sample(target, &workload::depth1(), 1, length)?;
                latencies.push(sample.latency);
            }
            for (of, latency) in all.iter_mut().zip(latencies) {
                let to = if pin { &mut of.pinned } else { &mut of.free };
                to.push(latency);
            }
        }
    }
    Ok(all)
}

/// A description for people.
pub const WHAT: &str = "4 KiB random stable writes, 1 outstanding, on the machine's disk";

const TARGETS: [&str; 3] = ["aquifer-single", "aquifer", "null"];
const FILE_BYTES: usize = 64 << 20;
const IMAGE_BYTES: u64 = 1 << 30;
const PAGE_BYTES: usize = 4096;
