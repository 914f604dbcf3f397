//! Measures NFSv3 servers: our own, others, and one that does nothing, side by side in one run.
//!
//! What holds:
//! - Every byte that is read is compared with what was last acknowledged as written there
//!   ([`pattern`], [`pages`]); a run that finds anything else fails. So does a short answer, an
//!   error, a changed write verifier.
//! - Targets take turns, round by round, and figures are medians with their spread: the machine is
//!   never quiet, and what disturbs one disturbs all.
//! - Beside what a client sees stands what the server paid: its processor time per operation, which
//!   is the steadier figure where both share the cores.
//!
//! From the bottom up: [`pattern`] and [`pages`] say what a file must hold; [`load`] keeps calls
//! outstanding on a connection ([`aquifer_rig::wire`]); [`workload`] names what is asked for;
//! [`null`] is the server that stores nothing; [`slow`] are disks that the kernel slows down;
//! [`target`] starts servers; [`measure`], [`idle`], [`raw`] and [`system`] take the figures;
//! [`run`] takes turns, and so does [`sync`] on slow disks, with [`depth1`]; [`report`] tells.
//! [`attacks`] stands by itself: what a host is served while others do their worst.

pub mod attacks;
pub mod depth1;
pub mod idle;
pub mod load;
pub mod measure;
pub mod null;
pub mod pages;
pub mod pattern;
pub mod raw;
pub mod report;
pub mod run;
pub mod slow;
pub mod sync;
pub mod system;
pub mod target;
pub mod workload;

pub use aquifer_rig::{Error, Result};
