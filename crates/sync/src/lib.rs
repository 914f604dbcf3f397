//! What threads share: locks, atomics, notices. The engine takes them from here and nowhere else.
//!
//! In service these are the types of `parking_lot`, `std` and `tokio`, under one name each and
//! nothing around them. With the feature `permute`, which only the tests of `aquifer-threads` ask
//! for, each operation on one of them is a *point*: there shuttle's scheduler decides which thread
//! goes on. What lies between two points is never cut.
//!
//! # What is permuted
//! - Locks, atomics, [`OnceLock`]; notices, locks and semaphores that are awaited. Each operation
//!   of those takes effect at once, as all of them promise: what goes on inside `tokio` or
//!   `parking_lot` is theirs to test.
//! - Not the order of memory: every atomic is as if it were `SeqCst`, whatever is asked for.
//! - Not the counts of `Arc` and `Weak`.

#[cfg(feature = "permute")]
mod permuted;
#[cfg(not(feature = "permute"))]
mod plain;

#[cfg(feature = "permute")]
pub use permuted::*;
#[cfg(not(feature = "permute"))]
pub use plain::*;
