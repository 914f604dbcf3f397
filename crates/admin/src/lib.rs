//! The administrator's side of the daemon: the implementation of the API.
//!
//! # The path of an act
//! `cli` or web: a request of [`aquifer_api`] -> its client -> HTTP over a Unix socket -> `daemon`
//! -> [`Control`] -> the engine, on the pool's own thread (see `engine`).
//!
//! Invariant: every act is possible through the API alone; no tool bypasses it to a pool in
//! service.

mod cache;
pub mod control;
mod devices;
mod engine;
pub mod events;
mod inventory;
pub mod parts;
pub mod sharenfs;
pub mod status;

pub use cache::CacheError;
pub use control::{
    Control, ControlConfig, Frontend, NfsCounts, Offer, Peer, Peers, ServedPool, check_peers,
};
pub use devices::disks_of_pool;
pub use parts::Parts;
