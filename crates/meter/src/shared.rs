//! A histogram that several threads count in: relaxed atomics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::histogram::{BUCKETS, Histogram, bucket_of, floor_ns};

/// As [`Histogram`], shared by threads. A copy of it may miss operations that are being counted at
/// that moment.
#[derive(Debug)]
pub struct SharedHistogram {
    total_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for SharedHistogram {
    fn default() -> Self {
        let buckets = [const { AtomicU64::new(0) }; BUCKETS];
        SharedHistogram { total_ns: AtomicU64::new(0), buckets }
    }
}

impl SharedHistogram {
    /// Counts an operation that took `ns` nanoseconds.
    pub fn record(&self, ns: u64) {
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
        if let Some(bucket) = self.buckets.get(bucket_of(ns)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts so far.
    pub fn look(&self) -> Histogram {
        let each = self.buckets.iter().enumerate();
        let each = each.map(|(index, count)| (floor_ns(index), count.load(Ordering::Relaxed)));
        Histogram::of(self.total_ns.load(Ordering::Relaxed), each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_count_in_one() {
        let shared = SharedHistogram::default();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let shared = &shared;
                scope.spawn(move || (0..1000).for_each(|step| shared.record(thread * 1000 + step)));
            }
        });
        let mut alone = Histogram::default();
        (0..4000).for_each(|ns| alone.record(ns));
        assert_eq!(shared.look(), alone);
    }
}
