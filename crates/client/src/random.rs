//! Random numbers of a seed.

/// A stream of numbers from a seed (splitmix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream that the clock seeds: for what need not be the same twice.
    #[must_use]
    pub fn of_clock() -> Self {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        Self(u64::try_from(now).unwrap_or(0))
    }

    /// The number `number` of the stream of `seed`, from 0 on.
    #[must_use]
    pub fn nth(seed: u64, number: u64) -> u64 {
        mix(seed.wrapping_add(number.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number in `0..bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder is under 2^-40 for the bounds of tests.
        self.next_u64().checked_rem(bound).unwrap_or(0)
    }

    /// As [`Random::below`], for sizes in memory.
    pub fn index(&mut self, bound: usize) -> usize {
        let wide = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.below(wide)).unwrap_or(0)
    }

    /// All numbers below `bound`, in any order (Fisher and Yates).
    pub fn order(&mut self, bound: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..bound).collect();
        for last in (1..bound).rev() {
            order.swap(last, self.index(last + 1));
        }
        order
    }
}

/// Every bit of `z` matters to every bit of this (the finaliser of splitmix64).
#[must_use]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_reference_value() {
        // First output of splitmix64 for seed 0, as published with the algorithm.
        assert_eq!(Random::new(0).next_u64(), 0xe220_a839_7b1d_cdaf);
        let mut second = Random::new(9);
        second.next_u64();
        assert_eq!(Random::nth(9, 1), second.next_u64());
    }

    #[test]
    fn an_order_has_each_number_once() {
        let mut random = Random::new(7);
        let (mut first, second) = (random.order(1000), random.order(1000));
        assert_ne!(first, second);
        first.sort_unstable();
        assert!(first.into_iter().eq(0..1000));
        assert!(random.order(0).is_empty());
    }
}
