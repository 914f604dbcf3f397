//! Test harness: real NFS clients against a server under test, without touching the host.
//!
//! What holds:
//! - Servers and QEMU run in a network namespace of their own ([`netns`]); nothing listens on the
//!   machine itself, and port 111 is always free there.
//! - No process outlives the test program, however that ends ([`process`]).
//! - Programs come from Debian packages (`scripts/setup-deps.sh`); the guest's kernel is only
//!   downloaded and unpacked ([`kernel`]), never installed.
//! - Every wait has a limit, and running into it is an [`Error::Timeout`] that carries what the
//!   other side had said so far.
//! - Everything written lies under one directory ([`work`]); what was downloaded is used again.
//!
//! From the bottom up: [`process`], [`netns`] and [`work`] tame the machine; [`kernel`], [`cpio`]
//! and [`qemu`] make a virtual machine; [`guest`] drives the Linux NFS client in one; [`clients`]
//! wraps libnfs's tools and `qemu-img`; [`daemon`], [`server`] and [`peer`] run what
//! is tested; [`workload`]
//! is what the guest executes (program `nfstest`), [`database`] another, and [`image`] a bootable
//! Linux disk; [`tls`] carries clients over TLS that know nothing of it, and
//! [`trixie`] is a guest whose kernel does;
//! [`capture`] judges what goes over the wire meanwhile.

pub mod capture;
pub mod clients;
pub mod cpio;
pub mod daemon;
pub mod database;
mod error;
pub mod guest;
pub mod image;
pub mod kernel;
pub mod netns;
pub mod pattern;
pub mod peer;
pub mod process;
pub mod qemu;
pub mod server;
pub mod tls;
pub mod trixie;
pub mod work;
pub mod workload;

pub use error::{Error, Result};
