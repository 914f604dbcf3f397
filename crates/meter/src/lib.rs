//! Counted latencies: one histogram of one shape for disks, procedures, clients and files; and
//! sizes and times as people write them ([`size`], [`time`]); and lines of a log that are told
//! seldom ([`Seldom`]).
//!
//! ```text
//! bucket 0         below 1024 ns
//! bucket 1 + 4k+q  2^(10+k) ns times 1, 1.25, 1.5, 1.75 (q = 0..3), k = 0..23
//! the last         17.2 s and more
//! ```
//! Invariants:
//! - Pure: no clock, no lock, no allocation in `record`.
//! - Counts only rise, so the difference between two states counts the operations between them.
//! - A quantile is in the bucket of the true one: its error is a quarter at most.

mod histogram;
mod seldom;
mod shared;
pub mod size;
pub mod time;

pub use histogram::{BUCKETS, Histogram, floor_ns};
pub use seldom::{SELDOM_EVERY, SELDOM_KINDS_MAX, Seldom};
pub use shared::SharedHistogram;
