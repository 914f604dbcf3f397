//! The administrator's side of the daemon: one typed API, what stands behind it, and its client.
//!
//! # The way of an act
//! `cli` or web: a request of [`api`] -> [`client`] -> HTTP over a Unix socket -> [`http`] ->
//! [`Control`] -> the engine, on the pool's own thread (see `engine`).
//!
//! Invariants:
//! - Every act can be asked for by the API alone; no tool reaches around it into a pool in service.
//! - Who can open the socket is the administrator: its mode is 0600. Over TCP and TLS ([`remote`]),
//!   if that was asked for, a token names the caller ([`caller`]), and its role what it may do.

pub mod api;
mod cache;
pub mod caller;
pub mod client;
mod control;
mod devices;
mod engine;
pub mod events;
pub mod http;
pub mod keys;
mod metrics;
pub mod remote;
pub mod sharenfs;
mod status;
pub mod time;

pub use cache::CacheError;
pub use control::{Control, ControlConfig, Frontend, NfsCounts, Offer, ServedPool};
pub use devices::disks_of_pool;
