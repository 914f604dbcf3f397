//! Tools that call a server as its clients do: connections, calls, and loads that check what they
//! read.
//!
//! # Invariants
//! - Nothing here knows a server's inside: of ours it has the words of the wire.
//! - Every wait has a limit.
//! - Every byte that a load reads is compared with the last acknowledged write there ([`pattern`],
//!   [`pages`]).
//!
//! From the bottom up: [`random`] numbers, [`wire`] (a connection, and calls one by one),
//! [`pattern`] and [`pages`] (the content of a file), [`load`] (calls that are kept outstanding).

#[cfg(feature = "wire")]
mod error;
#[cfg(feature = "wire")]
pub mod load;
#[cfg(feature = "wire")]
pub mod pages;
#[cfg(feature = "wire")]
pub mod pattern;
pub mod random;
pub mod starttls;
#[cfg(feature = "wire")]
pub mod wire;

#[cfg(feature = "wire")]
pub use error::{Error, Result};
