//! See the crate's head. `AQUIFER_SEEDS` is the number of schedules of each scenario, from
//! `AQUIFER_FIRST_SEED` on; `AQUIFER_SEED` names one.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test says what went wrong by ending"
)]

mod admission;
mod calls;
mod clients;
mod files;
mod full;
mod memory;
mod readers;
