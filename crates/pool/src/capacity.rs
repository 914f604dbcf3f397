//! Limits that follow from the size of a pool. They rise when a data vdev is added or grows.

use aquifer_sync::atomic::{AtomicU64, Ordering};

use crate::limits::Limits;
use crate::pool::Pool;

/// A share of free space that stays free: writes and creates stop there.
const SLOP_SHARE: u64 = 32;

/// See above.
#[derive(Debug)]
pub(crate) struct Capacity {
    slop_sectors: AtomicU64,
    txg_runs_max: AtomicU64,
    window_bytes: AtomicU64,
}

impl Capacity {
    /// For data vdevs of `total_sectors`, and records that go through `record_segments`.
    pub fn new(limits: &Limits, total_sectors: u64, record_segments: u64) -> Capacity {
        let (slop_sectors, txg_runs_max, window_bytes) = Default::default();
        let capacity = Capacity { slop_sectors, txg_runs_max, window_bytes };
        capacity.set(limits, total_sectors, record_segments);
        capacity
    }

    /// The pool has grown.
    pub fn set(&self, limits: &Limits, total_sectors: u64, record_segments: u64) {
        let record_bytes = record_segments * limits.scale.record_segment_sectors * 4096;
        self.slop_sectors.store(total_sectors / SLOP_SHARE, Ordering::Relaxed);
        // A sixteenth of the ring for a txg, a quarter for the window. With the windows of three
        // roots and the record being written, half the ring stays free.
        self.txg_runs_max.store(record_bytes / 16 / 8, Ordering::Relaxed);
        let window_bytes = (record_bytes / 4).min(limits.memory_cap_bytes / 16);
        self.window_bytes.store(window_bytes, Ordering::Relaxed);
    }
}

impl Pool {
    /// Free sectors below which writes and creates stop.
    pub fn slop_sectors(&self) -> u64 {
        self.capacity.slop_sectors.load(Ordering::Relaxed)
    }

    /// Most runs that one txg may take and free: bounds its record.
    pub fn txg_runs_max(&self) -> usize {
        usize::try_from(self.capacity.txg_runs_max.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Bytes of live txg records that the window may hold.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.capacity.window_bytes.load(Ordering::Relaxed)
    }
}
