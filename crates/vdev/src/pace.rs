//! Leaves that are much slower than their kind.
//!
//! Every look compares what leaves did since the look before. Sides of a mirror get the same writes
//! at the same times, and reads in turn: a difference between them is the disk's, not the load's.
//! A host that is starved delays all of them. So the comparison needs no clock that ticks evenly,
//! and no notion of what is fast.
//!
//! A slow leaf is named, and others are read first. It does not fail: it answers, and its copy is
//! worth more than its time. A side that does not answer at all is another matter (`vdev::sides`).

use std::sync::Arc;
use std::time::Duration;

use aquifer_meter::{Histogram, SharedHistogram};
use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicBool, Ordering};

use crate::io::{IoCounts, IoKind};
use crate::leaf::Leaf;

/// Time between two looks.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A leaf is slow if it takes this many times as long as others.
const TIMES: u64 = 10;
/// A verdict holds after so many looks in a row with the same result.
const LOOKS: u32 = 2;
/// In one MiB of so many a slow leaf has its turn, so that it shows when it is fast again. A prime:
/// turns go by the MiB, too, and every side must have one there.
const PROBE: u64 = 31;

/// Measures that are compared: so many thousandths of the operations took no longer than a time.
/// With few operations a measure says nothing. Shorter times are never slow: caches and pauses of
/// good disks differ by more than ten times.
const MEASURES: [Measure; 2] = [
    Measure { thousandths: 500, operations_min: 50, slow_ms_min: 20 },
    Measure { thousandths: 990, operations_min: 1000, slow_ms_min: 200 },
];

#[derive(Clone, Copy)]
struct Measure {
    thousandths: u64,
    operations_min: u64,
    slow_ms_min: u64,
}

/// How much slower a leaf is than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slow {
    /// At what.
    pub kind: IoKind,
    /// So many thousandths of its operations took at most `own_ns`, and of others' `others_ns`.
    pub thousandths: u64,
    /// Its own time, in nanoseconds.
    pub own_ns: u64,
    /// That of the others.
    pub others_ns: u64,
}

/// The pace of one leaf.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Reads that nobody waited for to the end. They are in no other count.
    pub(crate) late_reads: SharedHistogram,
    is_slow: AtomicBool,
    looks: Mutex<Looks>,
}

#[derive(Debug, Default)]
struct Looks {
    /// The counts at the last look.
    seen: Times,
    slow: Option<Slow>,
    /// Looks in a row that contradict `slow`.
    against: u32,
}

/// Times of operations by kind.
#[derive(Debug, Clone, Default)]
struct Times([Histogram; 4]);

const KINDS: [IoKind; 4] = [IoKind::Read, IoKind::Write, IoKind::DurableWrite, IoKind::Flush];

impl Times {
    fn of(leaf: &Leaf) -> Times {
        let IoCounts { reads, writes, durable_writes, flushes } = leaf.io.look();
        let mut reads = reads.latency;
        reads.add(&leaf.pace.late_reads.look());
        Times([reads, writes.latency, durable_writes.latency, flushes.latency])
    }

    fn since(&self, earlier: &Times) -> Times {
        let mut since = self.clone();
        for (now, then) in since.0.iter_mut().zip(&earlier.0) {
            *now = now.since(then);
        }
        since
    }
}

impl Pace {
    /// How slow it is, if it is.
    pub(crate) fn slow(&self) -> Option<Slow> {
        self.looks.lock().slow
    }

    /// Whether others are read before it.
    pub(crate) fn is_read_last(&self, sector: u64) -> bool {
        self.is_slow.load(Ordering::Relaxed) && !(sector / 256).is_multiple_of(PROBE)
    }

    /// The operations since the last look.
    fn next(&self, leaf: &Leaf) -> Times {
        let now = Times::of(leaf);
        let mut looks = self.looks.lock();
        let since = now.since(&looks.seen);
        looks.seen = now;
        since
    }

    /// Takes the verdict of a look. Returns whether what holds has changed.
    fn take(&self, verdict: Verdict) -> bool {
        let mut looks = self.looks.lock();
        let found = match verdict {
            Verdict::Unknown => return false,
            Verdict::Slow(slow) => Some(slow),
            // It was slow at something else, which it did not do since.
            Verdict::KeepsUp(kinds)
                if looks.slow.is_some_and(|slow| !kinds.contains(&slow.kind)) =>
            {
                return false;
            }
            Verdict::KeepsUp(_) => None,
        };
        if found.is_some() == looks.slow.is_some() {
            looks.against = 0;
            looks.slow = found;
            return false;
        }
        looks.against += 1;
        if looks.against < LOOKS {
            return false;
        }
        looks.against = 0;
        looks.slow = found;
        self.is_slow.store(found.is_some(), Ordering::Relaxed);
        true
    }
}

/// The result of one look at one leaf.
enum Verdict {
    Slow(Slow),
    /// It is not slow at these.
    KeepsUp(Vec<IoKind>),
    /// It, or others, did too little.
    Unknown,
}

/// Compares leaves that have the same work: sides of a mirror, or disks of one class. Each is
/// compared with at least `others_min` others.
pub fn compare(leaves: &[Arc<Leaf>], others_min: usize) {
    let online = leaves.iter().filter(|leaf| leaf.is_online());
    let windows: Vec<(&Arc<Leaf>, Times)> =
        online.map(|leaf| (leaf, leaf.pace.next(leaf))).collect();
    for (at, (leaf, own)) in windows.iter().enumerate() {
        let others = windows.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<&Times> = others.map(|(_, (_, times))| times).collect();
        if leaf.pace.take(verdict(own, &others, others_min)) {
            say(leaf);
        }
    }
}

fn verdict(own: &Times, others: &[&Times], others_min: usize) -> Verdict {
    let (mut kept_up, mut worst) = (Vec::new(), None::<Slow>);
    for (at, (own, kind)) in own.0.iter().zip(KINDS).enumerate() {
        let others: Vec<&Histogram> = others.iter().filter_map(|times| times.0.get(at)).collect();
        for measure in MEASURES {
            let Some(slow) = compared(own, &others, others_min, kind, measure) else { continue };
            let is_slow = slow.own_ns >= measure.slow_ms_min * 1_000_000
                && slow.own_ns >= slow.others_ns.saturating_mul(TIMES);
            if is_slow {
                worst = worst.or(Some(slow));
            } else if measure.thousandths == 500 {
                kept_up.push(kind);
            }
        }
    }
    match worst {
        Some(slow) => Verdict::Slow(slow),
        None if kept_up.is_empty() => Verdict::Unknown,
        None => Verdict::KeepsUp(kept_up),
    }
}

/// A leaf's time, and that of others, if enough of them did enough.
fn compared(
    own: &Histogram,
    others: &[&Histogram],
    others_min: usize,
    kind: IoKind,
    measure: Measure,
) -> Option<Slow> {
    let Measure { thousandths, operations_min, .. } = measure;
    let did_enough = |times: &&Histogram| times.count() >= operations_min;
    let enough = others.iter().copied().filter(did_enough);
    let mut others: Vec<u64> = enough.map(|times| times.quantile_ns(thousandths)).collect();
    others.sort_unstable();
    let others_ns = *others.get(others.len() / 2)?;
    let is_comparable = did_enough(&own) && others.len() >= others_min.max(1);
    let own_ns = own.quantile_ns(thousandths);
    is_comparable.then_some(Slow { kind, thousandths, own_ns, others_ns })
}

fn say(leaf: &Leaf) {
    match leaf.pace.slow() {
        Some(Slow { kind, thousandths, own_ns, others_ns }) => {
            let (own_ms, others_ms) = (own_ns / 1_000_000, others_ns / 1_000_000);
            tracing::warn!(
                class = "disk.slow", leaf = %leaf.path, ?kind, thousandths, own_ms, others_ms,
                "disk is much slower than the others: they are read first"
            );
        }
        None => tracing::info!(
            class = "disk.keeps_up", leaf = %leaf.path, "disk is as fast as the others again"
        ),
    }
}

#[cfg(test)]
mod tests;
