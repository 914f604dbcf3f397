//! History: the datasets of a pool, their objects, properties, and what each txg makes of them.
//!
//! Invariants:
//! - Client changes enter an object's overlay under a hold of the open txg, together with the mark
//!   that the object is dirty in that txg; a sync writes exactly the objects so marked.
//! - An object with an overlay stays in memory. Any other is what the committed object table says.
//! - Acts of the administrator join the open txg and are answered when it is on disk; they are not
//!   logged.
//! - Of a dataset with `sync=disabled` no change is logged: see `unlogged`.
//! - A call that must not run twice enters the reply table in the txg of its changes: see
//!   [`replies`].
//! - Who did what to the pool is kept beside it: see [`history`].
//! - A damaged node stops what it holds, not the pool: see [`aquifer_object::sync`] and
//!   [`Datasets::note_table_damage`]. Only the namespace, which is kept twice, is the pool's own.

pub mod damage;
pub mod dataset;
mod datasets;
mod destroy;
mod error;
pub mod history;
pub mod property;
mod quota;
mod reap;
pub mod replies;
pub mod sync;
mod unlogged;
mod values;

pub use damage::{DamageKind, DamageRecord};
pub use dataset::{Dataset, ORPHANS, ROOT_DIRECTORY};
pub use datasets::{DatasetInfo, Datasets};
pub use error::DatasetError;
pub use property::{Properties, Property, SyncMode};
pub use quota::{Promise, Refused};
pub use replies::Replies;
