//! Measures NFSv3 servers: ours, others, and one that stores nothing, side by side in one run.
//!
//! # Invariants
//! - Every byte that is read is compared with the last acknowledged write there ([`pattern`],
//!   [`pages`]); a run that finds anything else fails. So does a short answer, an error, or a
//!   changed write verifier.
//! - Targets take turns, round by round, and figures are medians with their spread: the machine is
//!   never quiet, and a disturbance of one disturbs all.
//! - Each figure of a client comes with the server's processor time per operation. Where both share
//!   the cores, that is the steadier figure.
//!
//! From the bottom up: [`pattern`] and [`pages`] define the content of a file. [`load`] keeps calls
//! outstanding on a connection ([`aquifer_client::wire`]), and [`workload`] names the workloads.
//! [`null`] is the server that stores nothing; [`slow`] are disks that the kernel slows down;
//! [`target`] starts servers. [`measure`], [`idle`], [`raw`] and [`system`] take the figures.
//! [`run`] takes turns, and so does [`sync`] on slow disks, with [`depth1`]. [`report`] prints the
//! results. [`disks`] measures scrub and resilver on slow disks, [`snapshots`] snapshots and
//! clones; both give [`figures`]. [`attacks`] stands by itself: the
//! service of a host while others attack.

pub mod attacks;
pub mod depth1;
pub mod disks;
pub mod figures;
pub mod idle;
pub mod l2arc;
pub mod measure;
pub mod null;
pub mod raw;
pub mod report;
pub mod restart;
pub mod run;
pub mod slow;
pub mod snapshots;
pub mod sync;
pub mod system;
pub mod target;
pub mod workload;

pub use aquifer_client::{load, pages, pattern};
pub use aquifer_rig::{Error, Result};
