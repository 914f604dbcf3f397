//! What tests, demo and benchmarks need around a server: its process, its network, its place.
//!
//! What holds:
//! - Servers run in a network namespace of their own ([`netns`]); nothing listens on the machine
//!   itself, and port 111 is always free there.
//! - No process outlives the program that started it, however that ends ([`process`]).
//! - Every wait has a limit, and running into it is an [`Error::Timeout`] that carries what the
//!   other side had said so far.
//! - Everything written lies under one directory ([`work`]); what was downloaded is used again.
//!
//! From the bottom up: [`process`], [`netns`] and [`work`] tame the machine; [`random`] is
//! for all; [`daemon`], [`server`]
//! and [`peer`] run what is tested; `wire` is a client's connection to it; [`tls`] carries clients
//! over TLS that know nothing of it.

pub mod daemon;
mod error;
pub mod netns;
pub mod peer;
pub mod process;
pub mod random;
pub mod server;
pub mod tls;
#[cfg(feature = "wire")]
pub mod wire;
pub mod work;

pub use error::{Error, Result};
