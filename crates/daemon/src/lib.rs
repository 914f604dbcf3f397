//! The daemon: serves pools by NFS ([`aquifer_nfsd`]), and the API by HTTP (behind it stands
//! [`aquifer_admin`]).
//!
//! Invariant: who can open the API's socket is the administrator: its mode is 0600. Over TCP and
//! TLS ([`remote`]), if that was asked for, a token names the caller ([`caller`]), and its role
//! what it may do.

mod args;
pub mod caller;
mod failure;
pub mod http;
mod metrics;
pub mod remote;
mod serve;
mod settings;

pub use args::ServeArgs;
pub use failure::Failure;
pub use serve::{serve, settings};
