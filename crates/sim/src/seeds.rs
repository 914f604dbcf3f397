//! The seeds that a program of the simulator runs, from its environment.

use std::ops::Range;

/// `AQUIFER_SEEDS` (else `default`) seeds from `AQUIFER_FIRST_SEED` (else 0) on; with
/// `AQUIFER_SEED` only that one.
pub fn seeds(default: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("AQUIFER_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("AQUIFER_FIRST_SEED").unwrap_or(0);
            first..first + number("AQUIFER_SEEDS").unwrap_or(default)
        }
    }
}

/// Entries of the story to print: none unless the environment names one seed.
pub fn story() -> usize {
    if std::env::var("AQUIFER_SEED").is_ok() { 100_000 } else { 0 }
}
