//! Files: POSIX names and contents over datasets, for every protocol.
//!
//! # How an operation goes
//! It looks and checks; is admitted (memory, space, log: may wait); takes the writer locks of all
//! objects that it changes, in the order of their ids; looks again; turns into a list of
//! [`change::Change`]s; and under one hold of the open txg appends them to the intent log as one
//! record and applies them to the overlays: in this order, for a new object can be changed by
//! others as soon as it is seen. Then the locks go, and the caller gets [`Made`]: the answer, and
//! what it waits for. Replay applies the same list.
//!
//! # Invariants
//! - The order of an object's records in the log is the order of its changes.
//! - Every change of a name, an attribute or a size is durable before its answer; so is a stable
//!   WRITE. An UNSTABLE one is durable after COMMIT, or with its txg.
//! - An object without a name (nlink 0) answers stale, and is on the list of orphans until its
//!   blocks are free.
//! - Bytes beyond a file's end, in its last page, are zeros.

pub mod change;
mod core;
mod damage;
pub mod error;
mod limits;
mod made;
mod ops;
mod replay;
pub mod service;
pub mod types;

pub use crate::core::Files;
pub use crate::damage::{Damaged, SEARCH_ENTRIES_MAX};
pub use error::FsError;
pub use limits::{FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX};
pub use made::{Made, Promised, Written};
pub use ops::write::{Data, Piece, TOGETHER_MAX, TOGETHER_PAGES_MAX};
pub use service::{Service, ServiceError};
pub use types::*;
