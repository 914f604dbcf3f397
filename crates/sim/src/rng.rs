//! Randomness of the simulation: one seed, split into named streams.
//!
//! Invariants:
//! - A stream depends on the seed and its own name alone. An added draw in one stream moves no
//!   other. So a seed that failed keeps its schedule while a fault or a workload changes.
//! - Nothing here reads the system's randomness or clock.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

#[cfg(test)]
mod tests;

/// One stream of random numbers (xoshiro256++).
#[derive(Debug, Clone)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The stream called `name` of `seed`.
    pub fn stream(seed: u64, name: &str) -> Self {
        let mut state = FNV_OFFSET;
        for byte in seed.to_le_bytes().iter().chain(name.as_bytes()) {
            state = (state ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
        }
        Rng(Xoshiro256PlusPlus::seed_from_u64(state))
    }

    /// Any 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.0.next_u64()) * u128::from(bound);
        // The high half of a 64 x 64 bit product fits 64 bits.
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// An index into something of `len` items; 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True half of the time.
    pub fn coin(&mut self) -> bool {
        self.0.next_u64() >> 63 == 1
    }

    /// True in `ppm` of a million cases.
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// One of the items; `None` if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

/// FNV-1a, 64 bits: folds seed and name into the state that splitmix64 then spreads.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
