//! Whether large data goes to its final place before its record, or into the log with it.
//!
//! At home the log shares its disks with the data: what goes early is written once instead of
//! twice. On log vdevs it depends on the devices, and is judged by what they took lately: early
//! data is durable after a write and a flush of data vdevs, data in the log after a durable write
//! there.

use std::sync::Arc;

use aquifer_ondisk::config::VdevClass;
use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicBool, Ordering};
use aquifer_vdev::{IoCount, IoCounts, Vdev};

use super::limits::{PLACEMENT_BATCHES_MAX, PLACEMENT_BYTES, PLACEMENT_SAMPLES_MIN};
use crate::pool::Pool;

/// The judgement, and what it was last made from.
#[derive(Debug)]
pub(crate) struct Bias {
    early: AtomicBool,
    seen: Mutex<[Times; 3]>,
}

/// Operations of one sort: how many, and how long they took in all.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    count: u64,
    ns: u64,
    bytes: u64,
}

impl Times {
    fn add(&mut self, count: &IoCount) {
        self.count += count.latency.count();
        self.ns += count.latency.total_ns();
        self.bytes += count.bytes;
    }

    /// What came since `earlier`; all of it if counters began anew, as they do with a new vdev.
    fn since(self, earlier: Times) -> Times {
        let less = |now: u64, then: u64| now.checked_sub(then).unwrap_or(now);
        Times {
            count: less(self.count, earlier.count),
            ns: less(self.ns, earlier.ns),
            bytes: less(self.bytes, earlier.bytes),
        }
    }

    fn mean_ns(self) -> u64 {
        self.ns / self.count.max(1)
    }
}

impl Bias {
    /// Until devices have shown otherwise a log vdev is the faster one: that is why it is there.
    pub fn new(at_home: bool) -> Bias {
        Bias { early: AtomicBool::new(at_home), seen: Mutex::default() }
    }

    /// Large data goes early, or not, until the next judgement.
    pub fn set(&self, early: bool) {
        self.early.store(early, Ordering::Relaxed);
    }

    fn judge(&self, vdevs: &[Arc<Vdev>]) {
        let mut now = [Times::default(); 3];
        let [writes, flushes, logged] = &mut now;
        for vdev in vdevs {
            let IoCounts { writes: w, flushes: f, durable_writes: d, .. } = vdev.io.look();
            match vdev.class {
                VdevClass::Data => {
                    writes.add(&w);
                    flushes.add(&f);
                }
                VdevClass::Log => logged.add(&d),
                VdevClass::Hole => {}
            }
        }
        let mut seen = self.seen.lock();
        let [writes, flushes, logged] = now;
        let [old_writes, old_flushes, old_logged] = *seen;
        let (writes, flushes) = (writes.since(old_writes), flushes.since(old_flushes));
        let logged = logged.since(old_logged);
        if writes.count < PLACEMENT_SAMPLES_MIN
            || logged.count < PLACEMENT_SAMPLES_MIN
            || flushes.count == 0
        {
            return;
        }
        *seen = now;
        let early_ns = writes.mean_ns() + flushes.mean_ns();
        // Small batches say what a large one takes at least; large ones, what each byte takes.
        let batch_bytes = (logged.bytes / logged.count).max(1);
        let logged_ns = logged.mean_ns()
            * PLACEMENT_BYTES.div_ceil(batch_bytes).clamp(1, PLACEMENT_BATCHES_MAX);
        self.early.store(early_ns < logged_ns, Ordering::Relaxed);
    }
}

impl Pool {
    /// Whether large data should go to its final place at once instead of into the log.
    pub fn early_pays(&self) -> bool {
        self.log.bias.early.load(Ordering::Relaxed)
    }

    /// Judges anew; called once a txg.
    pub(crate) fn judge_bias(&self) {
        let tree = self.tree();
        if !self.log.is_at_home() {
            self.log.bias.judge(&tree.vdevs);
        }
    }
}
