//! Whether large data goes to its final place before its record, or into the log with it.
//!
//! At home the log shares its disks with the data, and early data is written once instead of twice.
//! With log vdevs the devices decide, by the times that they took lately. Early data is durable
//! after a write and a flush of data vdevs, data in the log after a durable write of log vdevs.

use super::limits::{PLACEMENT_BATCHES_MAX, PLACEMENT_BYTES, PLACEMENT_SAMPLES_MIN};

/// Operations of one sort: how many, how long they took in all, and how much they moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub count: u64,
    pub ns: u64,
    pub bytes: u64,
}

/// Work of the devices since import: their writes and flushes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    /// Writes and flushes of data vdevs.
    pub writes: Times,
    pub flushes: Times,
    /// Durable writes of log vdevs.
    pub logged: Times,
}

/// The counts of the last judgement.
#[derive(Debug, Default)]
pub(super) struct Placement {
    seen: Devices,
}

impl Times {
    /// The operations since `earlier`; all of them if counters restarted, as with a new vdev.
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

impl Placement {
    /// Whether large data goes early beside log vdevs, now that devices have done so much in all.
    /// `None`: too little was done to say.
    pub fn judge(&mut self, now: Devices) -> Option<bool> {
        let writes = now.writes.since(self.seen.writes);
        let flushes = now.flushes.since(self.seen.flushes);
        let logged = now.logged.since(self.seen.logged);
        let few = |times: Times| times.count < PLACEMENT_SAMPLES_MIN;
        if few(writes) || few(logged) || flushes.count == 0 {
            return None;
        }
        self.seen = now;
        let early_ns = writes.mean_ns() + flushes.mean_ns();
        // Small batches say what a large one takes at least; large ones, what each byte takes.
        let batch_bytes = (logged.bytes / logged.count).max(1);
        let batches = PLACEMENT_BYTES.div_ceil(batch_bytes).clamp(1, PLACEMENT_BATCHES_MAX);
        Some(early_ns < logged.mean_ns() * batches)
    }
}

#[cfg(test)]
mod tests;
