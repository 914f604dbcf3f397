//! Threads of the engine, permuted.
//!
//! The simulator runs the engine on one thread: what lies between two awaits happens at once there.
//! In service several threads share a pool. Here the engine runs on threads that one scheduler
//! switches at every lock, atomic and notice ([`aquifer_sync`]), as a seed has it.
//!
//! - [`schedule`] chooses who goes on: anybody, mostly the one that runs, or by priorities that
//!   change a few times (PCT). One seed is one schedule.
//! - [`world`] gives the engine time and tasks: every task is a thread of its own. Time passes when
//!   nobody else can go on, and now and then before that.
//! - [`disk`] is memory; each operation on it is a thread of its own, too.
//! - [`run`] runs seeds, and hunts what a rule left out breaks.
//!
//! # What is seen
//! Wrong answers (`aquifer_checker`), wrong disks (`aquifer_inspect`), assertions, threads that
//! wait for each other for ever, and waits that only a timer ends.
//!
//! # What is not
//! - Weak memory: every atomic counts as `SeqCst`. Orders are argued for where they stand.
//! - What no seed happens to do: this is chance, not a proof.
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
