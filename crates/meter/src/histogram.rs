//! A histogram with one owner: plain numbers.

/// Buckets of a histogram; see the head of this crate.
pub const BUCKETS: usize = 2 + 4 * OCTAVES;

/// From 1 us to 17 s: nobody notices shorter times, and nobody waits for longer ones.
const OCTAVES: usize = 24;
/// The first bound is 2^10 ns.
const FIRST_BITS: u32 = 10;

/// Counts of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    total_ns: u64,
    buckets: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { total_ns: 0, buckets: [0; BUCKETS] }
    }
}

impl Histogram {
    /// Counts an operation that took `ns` nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.total_ns = self.total_ns.wrapping_add(ns);
        self.put(ns, 1);
    }

    /// A histogram of these buckets. Each is given by any time that falls in it, and a count.
    pub fn of(total_ns: u64, buckets: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut histogram = Histogram { total_ns, ..Histogram::default() };
        for (ns, count) in buckets {
            histogram.put(ns, count);
        }
        histogram
    }

    fn put(&mut self, ns: u64, count: u64) {
        if let Some(bucket) = self.buckets.get_mut(bucket_of(ns)) {
            *bucket = bucket.saturating_add(count);
        }
    }

    /// The number of operations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The sum of all times, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// The mean in nanoseconds; 0 of none.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns / self.count().max(1)
    }

    /// The time in nanoseconds that `thousandths` of 1000 did not exceed; 0 without any. For times
    /// beyond the last bound, the result is the bound.
    pub fn quantile_ns(&self, thousandths: u64) -> u64 {
        let count = u128::from(self.count());
        let rank = (count * u128::from(thousandths.min(1000))).div_ceil(1000).max(1);
        let mut below = 0;
        for (index, inside) in self.buckets.iter().enumerate() {
            let inside = u128::from(*inside);
            if inside > 0 && below + inside >= rank {
                let floor = floor_ns(index);
                let width = u128::from(floor_ns(index + 1).saturating_sub(floor));
                let within = width * (rank - below) / inside;
                return floor.saturating_add(u64::try_from(within).unwrap_or(0));
            }
            below += inside;
        }
        0
    }

    /// The buckets that are not empty: the shortest time that falls in each, in nanoseconds, and
    /// its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let each = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        each.map(|(index, count)| (floor_ns(index), *count))
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        self.total_ns = self.total_ns.wrapping_add(other.total_ns);
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*count);
        }
    }

    /// The counts since `earlier`; all of them, if `earlier` is not an earlier state of the same
    /// histogram.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut pairs = self.buckets.iter().zip(&earlier.buckets);
        if self.total_ns < earlier.total_ns || pairs.any(|(now, then)| now < then) {
            return self.clone();
        }
        let mut since = self.clone();
        since.total_ns -= earlier.total_ns;
        for (now, then) in since.buckets.iter_mut().zip(&earlier.buckets) {
            *now -= then;
        }
        since
    }
}

/// The bucket that a time falls in.
pub(crate) fn bucket_of(ns: u64) -> usize {
    let Some(bits) = ns.checked_ilog2().filter(|bits| *bits >= FIRST_BITS) else { return 0 };
    let quarter = usize::from(u8::try_from(ns >> (bits - 2) & 3).unwrap_or(0));
    let octave = usize::try_from(bits - FIRST_BITS).unwrap_or(OCTAVES);
    (1 + 4 * octave + quarter).min(BUCKETS - 1)
}

/// The shortest time in nanoseconds that falls in a bucket; beyond the last bucket, that of the
/// last.
pub fn floor_ns(bucket: usize) -> u64 {
    let Some(beyond) = bucket.min(BUCKETS - 1).checked_sub(1) else { return 0 };
    let (octave, quarter) = (beyond / 4, beyond as u64 % 4);
    let octave = u32::try_from(octave).unwrap_or(0);
    (4 + quarter) << (FIRST_BITS - 2 + octave)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_lie_side_by_side() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(1023), 0);
        assert_eq!(floor_ns(BUCKETS - 1), 1 << 34);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        for bucket in 1..BUCKETS {
            let floor = floor_ns(bucket);
            assert_eq!((bucket_of(floor), bucket_of(floor - 1)), (bucket, bucket - 1));
            let next = floor_ns(bucket + 1);
            assert!(next <= floor + floor.div_ceil(4), "a quarter wide at most: {bucket}");
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        let none = Histogram::default();
        assert_eq!((none.count(), none.mean_ns(), none.quantile_ns(990)), (0, 0, 0));
    }

    proptest! {
        /// Compared with sorting: the exact mean, and quantiles within their bucket.
        #[test]
        fn quantiles_are_those_of_the_sorted_list(
            mut times in prop::collection::vec(0u64..40_000_000_000, 1..400),
            thousandths in 1u64..=1000,
        ) {
            let mut histogram = Histogram::default();
            for ns in &times {
                histogram.record(*ns);
            }
            times.sort_unstable();
            let rank = (times.len() as u64 * thousandths).div_ceil(1000).max(1);
            let exact = times[usize::try_from(rank - 1).unwrap()];
            let told = histogram.quantile_ns(thousandths);
            let bucket = bucket_of(exact);
            let within = floor_ns(bucket)..=floor_ns(bucket + 1);
            prop_assert!(within.contains(&told), "{told} {exact}");
            prop_assert_eq!(histogram.count(), times.len() as u64);
            prop_assert_eq!(histogram.mean_ns(), times.iter().sum::<u64>() / times.len() as u64);
        }

        /// The buckets that the API sends are enough to rebuild the histogram.
        #[test]
        fn sums_differences_and_copies_agree(
            first in prop::collection::vec(any::<u32>(), 0..50),
            second in prop::collection::vec(any::<u32>(), 0..50),
        ) {
            let of = |times: &[u32]| {
                let mut histogram = Histogram::default();
                times.iter().for_each(|ns| histogram.record(u64::from(*ns)));
                histogram
            };
            let (first, second) = (of(&first), of(&second));
            let mut both = first.clone();
            both.add(&second);
            prop_assert_eq!(both.since(&first), second.clone());
            prop_assert_eq!(Histogram::of(both.total_ns(), both.buckets()), both.clone());
            // A counter that started again.
            if second.count() > 0 {
                prop_assert_eq!(first.since(&both), first);
            }
        }
    }
}
