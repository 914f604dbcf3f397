//! The program `aquifer` itself under real clients: the Linux kernel's in a guest, libnfs, QEMU.
//!
//! Invariants: each test has its own network namespace, disks (image files) and daemon. It ends
//! with an orderly shutdown and `aquifer inspect --deep --data`, which must find no error
//! ([`place::Aquifer::finish`]). Nothing is left behind.
//!
//! `cargo test --workspace` builds the program; alone: `cargo build -p aquifer` first. Needs
//! root and `scripts/setup-deps.sh guest clients capture`. Longer runs of the same tests:
//! `AQUIFER_LONG=1 cargo test -p aquifer-conformance --test aquifer -- --nocapture`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test says what went wrong by ending"
)]

mod acts;
mod administrator;
mod corruption;
mod database;
mod diary;
mod full;
mod hosts;
mod images;
mod kernel;
mod kill;
mod kill_loop;
mod ledger;
mod locks;
mod memory;
mod namer;
mod neighbours;
mod package;
mod place;
mod power_cut;
mod recorder;
mod replay;
mod shared;
mod silent;
mod snapshots;
mod tls;
mod tools;
mod unit;
mod writer;
mod xcp_ng;
