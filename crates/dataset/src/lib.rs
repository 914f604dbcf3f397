//! History: the datasets of a pool, their objects, properties, and what each txg makes of them.
//!
//! Invariants:
//! - Client changes enter an object's overlay under a hold of the open txg, together with the mark
//!   that the object is dirty in that txg; a sync writes exactly the objects so marked.
//! - An object with an overlay stays in memory. Any other is what the committed object table says.
//! - Acts of the administrator join the open txg and are answered when it is on disk; they are not
//!   logged.

pub mod dataset;
mod datasets;
mod error;
pub mod property;
mod reap;
pub mod sync;

pub use dataset::{Dataset, ORPHANS, ROOT_DIRECTORY};
pub use datasets::{DatasetInfo, Datasets};
pub use error::DatasetError;
pub use property::{Properties, Property, SyncMode};
