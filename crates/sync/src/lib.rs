//! Objects that threads share: locks, atomics, notices. The engine takes them only from here.
//!
//! In service these are the types of `parking_lot`, `std` and `tokio` themselves, each under one
//! name. Only the tests of `aquifer-threads` use the feature `permute`. With it, each operation on
//! one of them is a *point*: there shuttle's scheduler decides which thread goes on. The code
//! between two points is never interrupted.
//!
//! # What is permuted
//! - Locks, atomics, [`OnceLock`]; notices, and asynchronous locks and semaphores. Each of their
//!   operations takes effect at once, as all of them promise: the inside of `tokio` or
//!   `parking_lot` is theirs to test.
//! - Not the order of memory: every atomic behaves as `SeqCst`, whatever order is given.
//! - Not the counts of `Arc` and `Weak`.

#[cfg(feature = "permute")]
mod permuted;
#[cfg(not(feature = "permute"))]
mod plain;

#[cfg(feature = "permute")]
pub use permuted::*;
#[cfg(not(feature = "permute"))]
pub use plain::*;
