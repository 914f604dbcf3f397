//! Operations on a disk or a vdev since import: how many, how many bytes, how long they took.
//!
//! Invariant: only successful operations are counted. Failures have counters of their own, and in a
//! mean their times would hide what they mean.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::World;
use aquifer_meter::{Histogram, SharedHistogram};
use aquifer_sync::atomic::{AtomicU64, Ordering};

/// Counters of one disk or vdev.
pub struct IoCounters {
    clock: Arc<dyn World>,
    reads: Counter,
    writes: Counter,
    durable_writes: Counter,
    flushes: Counter,
    /// When the last write or flush ended.
    changed_ns: AtomicU64,
}

/// The kinds of operations on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// Content was read.
    Read,
    /// Content was written; completed, not durable.
    Write,
    /// Content was written, durable when it completed.
    DurableWrite,
    /// Earlier writes were made durable.
    Flush,
}

/// A moment, in nanoseconds of the clock.
#[derive(Clone, Copy)]
pub(crate) struct Begun(u64);

#[derive(Default)]
struct Counter {
    bytes: AtomicU64,
    latency: SharedHistogram,
}

/// Number, bytes and times of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IoCount {
    /// Bytes moved.
    pub bytes: u64,
    /// How many there were, and how long each took.
    pub latency: Histogram,
}

/// Operations since import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Reads.
    pub reads: IoCount,
    /// Writes that were to be made durable later.
    pub writes: IoCount,
    /// Writes that were durable when they completed: they take as long as a flush.
    pub durable_writes: IoCount,
    /// Flushes; they move nothing.
    pub flushes: IoCount,
}

impl IoCounters {
    /// Counters that use this clock.
    pub(crate) fn new(clock: Arc<dyn World>) -> Self {
        let (reads, writes, durable_writes, flushes) = Default::default();
        let changed_ns = AtomicU64::new(0);
        IoCounters { clock, reads, writes, durable_writes, flushes, changed_ns }
    }

    /// The counts so far.
    pub fn look(&self) -> IoCounts {
        let of = |counter: &Counter| IoCount {
            bytes: counter.bytes.load(Ordering::Relaxed),
            latency: counter.latency.look(),
        };
        IoCounts {
            reads: of(&self.reads),
            writes: of(&self.writes),
            durable_writes: of(&self.durable_writes),
            flushes: of(&self.flushes),
        }
    }

    /// The beginning of an operation. (Wrapping the operation's future instead would hold it twice:
    /// requests are charged for the size of theirs.)
    pub(crate) fn begin(&self) -> Begun {
        Begun(ns(self.clock.now()))
    }

    /// The time since an operation began, in nanoseconds.
    pub(crate) fn ns_since(&self, begun: Begun) -> u64 {
        ns(self.clock.now()).saturating_sub(begun.0)
    }

    /// Counts an operation that began at `begun` and moved `bytes`, if it succeeded.
    pub(crate) fn end<T, E>(
        &self,
        kind: IoKind,
        bytes: u64,
        begun: Begun,
        done: Result<T, E>,
    ) -> Result<T, E> {
        if done.is_ok() {
            let now = ns(self.clock.now());
            let took = now.saturating_sub(begun.0);
            if kind != IoKind::Read {
                self.changed_ns.store(now, Ordering::Relaxed);
            }
            let counter = self.of(kind);
            counter.bytes.fetch_add(bytes, Ordering::Relaxed);
            counter.latency.record(took);
        }
        done
    }
}

impl IoCounters {
    /// The time that one in a thousand operations of this kind exceeds.
    pub(crate) fn usual_ms(&self, kind: IoKind) -> u64 {
        self.of(kind).latency.look().quantile_ns(999) / 1_000_000
    }

    /// Whether a write or flush ended so long after this moment or later.
    pub(crate) fn has_changed(&self, since: Begun, later_ms: u64) -> bool {
        self.changed_ns.load(Ordering::Relaxed) > since.0 + later_ms * 1_000_000
    }

    fn of(&self, kind: IoKind) -> &Counter {
        match kind {
            IoKind::Read => &self.reads,
            IoKind::Write => &self.writes,
            IoKind::DurableWrite => &self.durable_writes,
            IoKind::Flush => &self.flushes,
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for IoCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IoCounters")
    }
}

#[cfg(test)]
mod tests;
