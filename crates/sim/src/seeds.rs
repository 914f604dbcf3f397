//! Which seeds a program of the simulator runs, as its environment says.

use std::ops::Range;

/// `AQUIFER_SEEDS` (else `default`) seeds from `AQUIFER_FIRST_SEED` (else 0) on; of `AQUIFER_SEED`
/// that one.
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

/// Entries of the story that is told: none unless one seed is asked for.
pub fn story() -> usize {
    if std::env::var("AQUIFER_SEED").is_ok() { 100_000 } else { 0 }
}
