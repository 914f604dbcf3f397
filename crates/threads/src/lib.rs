//! Threads of the engine, permuted.
//!
//! The simulator runs the engine on one thread: the code between two awaits runs at once there. In
//! service several threads share a pool. Here the engine runs on threads that one scheduler
//! switches at every lock, atomic and notice ([`aquifer_sync`]), as a seed decides.
//!
//! - [`schedule`] chooses the next thread: any, mostly the running one, or by priorities that
//!   change a few times (PCT). One seed is one schedule.
//! - [`world`] gives the engine time and tasks: every task is a thread of its own. Time passes when
//!   no other thread can go on, and now and then before that.
//! - [`disk`] is memory; each operation on it is a thread of its own, too.
//! - [`run`] runs seeds, and searches for the damage of a rule left out.
//!
//! # What these tests see
//! Wrong answers (`aquifer_checker`), wrong disks (`aquifer_inspect`), failed assertions,
//! deadlocks, and waits that only a timer ends.
//!
//! # What they miss
//! - Weak memory: every atomic counts as `SeqCst`. The code argues for weaker orders where they
//!   stand.
//! - Orders that no seed happens to draw: this is chance, not a proof.
//! - The inside of `tokio`, `parking_lot` and `Arc`; io_uring; sockets and the daemon.
#![cfg(feature = "permute")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by ending"
)]

pub mod bed;
pub mod disk;
pub mod run;
pub mod schedule;
pub mod world;

pub use shuttle::future::block_on;
