//! Test harness: real NFS clients against a server under test, without touching the host.
//!
//! # Invariants
//! Beside those of [`aquifer_rig`] on processes, networks and waits:
//! - QEMU runs in the server's network namespace.
//! - Programs come from Debian packages (`scripts/setup-deps.sh`); the guest's kernel is only
//!   downloaded and unpacked ([`kernel`]), never installed.
//!
//! From the bottom up: [`kernel`], [`cpio`] and [`qemu`] make a virtual machine. [`guest`] drives
//! the Linux NFS client in one; [`clients`] wraps libnfs's tools and `qemu-img`. [`workload`] is
//! the program of the guest (`nfstest`), [`database`] is another, and [`image`] is a bootable Linux
//! disk. [`trixie`] is a guest whose kernel supports TLS. [`capture`] checks the traffic on the
//! wire meanwhile.

pub mod capture;
pub mod clients;
pub mod cpio;
pub mod database;
pub mod guest;
pub mod image;
pub mod kernel;
pub mod pattern;
pub mod qemu;
pub mod trixie;
pub mod workload;

pub use aquifer_rig::{Error, Result};
