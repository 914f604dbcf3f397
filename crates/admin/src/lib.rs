//! The administrator's side of the daemon: what stands behind the API.
//!
//! # The way of an act
//! `cli` or web: a request of [`aquifer_api`] -> its client -> HTTP over a Unix socket ->
//! `daemon` -> [`Control`] -> the engine, on the pool's own thread (see `engine`).
//!
//! Invariant: every act can be asked for by the API alone; no tool reaches around it into a pool in
//! service.

mod cache;
pub mod control;
mod devices;
mod engine;
pub mod events;
pub mod sharenfs;
pub mod status;

pub use cache::CacheError;
pub use control::{Control, ControlConfig, Frontend, NfsCounts, Offer, ServedPool};
pub use devices::disks_of_pool;
