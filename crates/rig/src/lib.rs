//! The surroundings of a server, for tests, demo and benchmarks: its process, its network, its
//! directory.
//!
//! # Invariants
//! - Servers run in a network namespace of their own ([`netns`]). Nothing listens on the machine
//!   itself, and port 111 is always free in the namespace.
//! - No process outlives the program that started it, however that program ends ([`process`]).
//! - Every wait has a limit. Reaching it is an [`Error::Timeout`] with the other side's output so
//!   far.
//! - All files are written under one directory ([`work`]); downloads are reused.
//!
//! From the bottom up: [`process`], [`netns`] and [`work`] isolate a run from the machine.
//! [`daemon`], [`server`] and [`peer`] run the programs under test. [`tls`] carries clients without
//! TLS over TLS. Clients' own connections and random numbers are those of `aquifer_client`.

pub mod daemon;
mod error;
pub mod netns;
pub mod peer;
pub mod process;
#[cfg(feature = "fuse")]
pub mod removable;
pub mod server;
pub mod tls;
pub mod work;

pub use aquifer_client::random;
#[cfg(feature = "wire")]
pub use aquifer_client::wire;
pub use error::{Error, Result};
