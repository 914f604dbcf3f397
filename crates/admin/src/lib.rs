//! The administrator's side of the daemon: what stands behind the API.
//!
//! # The way of an act
//! `cli` or web: a request of [`aquifer_api`] -> its client -> HTTP over a Unix socket -> [`http`]
//! -> [`Control`] -> the engine, on the pool's own thread (see `engine`).
//!
//! Invariants:
//! - Every act can be asked for by the API alone; no tool reaches around it into a pool in service.
//! - Who can open the socket is the administrator: its mode is 0600. Over TCP and TLS ([`remote`]),
//!   if that was asked for, a token names the caller ([`caller`]), and its role what it may do.

mod cache;
pub mod caller;
pub mod control;
mod devices;
mod engine;
pub mod events;
pub mod http;
mod metrics;
pub mod remote;
pub mod sharenfs;
pub mod status;

pub use cache::CacheError;
pub use control::{Control, ControlConfig, Frontend, NfsCounts, Offer, ServedPool};
pub use devices::disks_of_pool;
