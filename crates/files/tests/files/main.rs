//! Files on a simulated machine: damage, destroyed datasets, quotas, and large things.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test says what went wrong by ending"
)]

mod bed;
mod damage;
mod destroy;
mod large;
mod memory;
mod quota;
mod replies;
mod smooth;
mod unlogged;
