//! Files: POSIX names and contents over datasets, for every protocol.
//!
//! # The path of an operation
//! 1. It reads the objects and checks the request.
//! 2. Admission reserves memory, space and log, and may wait.
//! 3. It takes the writer locks of all objects that it changes, in the order of their ids, and
//!    checks again.
//! 4. It becomes a list of [`change::Change`]s.
//! 5. Under one hold of the open txg it appends the list to the intent log as one record, then
//!    applies the list to the overlays. The order matters: others can change a new object as soon
//!    as they see it.
//! 6. It releases the locks, and the caller gets [`Made`]: the answer, and the promise that the
//!    answer waits for.
//!
//! Replay applies the same list.
//!
//! # Invariants
//! - The order of an object's records in the log is the order of its changes.
//! - Every change of a name, an attribute or a size is durable before its answer; so is a stable
//!   WRITE. An UNSTABLE write is durable after COMMIT, or with its txg.
//! - An object without a name (nlink 0) answers stale. It is on the list of orphans until its
//!   blocks are free.
//! - Bytes beyond a file's end, in its last page, are zeros.

pub mod change;
mod core;
mod damage;
pub mod diff;
pub mod error;
pub mod file_clones;
mod file_returns;
pub mod file_snapshots;
mod limits;
mod made;
mod one_file;
mod ops;
mod receive;
mod replay;
mod scrub;
mod send;
pub mod service;
mod shadows;
mod site;
mod snapdir;
pub mod subject;
pub mod types;

pub use crate::core::Files;
pub use crate::damage::{Damaged, SEARCH_ENTRIES_MAX};
pub use error::FsError;
pub use limits::{FILE_BYTES_MAX, LINKS_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX};
pub use made::{Made, Promised, Written};
pub use ops::write::{Data, Piece, TOGETHER_MAX, TOGETHER_PAGES_MAX};
pub use receive::{
    BundleProgress, Copied, Expected, ReceiveError, ReceiveOptions, Received, Receiver,
    TreeReceiver,
};
pub use scrub::{RepairedFile, RepairedFiles, ScrubError};
pub use send::{SendCursor, SendError, SendPage, SendWanted};
pub use service::{Service, ServiceError};
pub use shadows::dataset_below;
pub use site::site;
pub use snapdir::HostLimits;
pub use subject::{FilePlace, FileSnapshotNames, Subject, SubjectError};
pub use types::*;

pub use aquifer_stream::{Bundle, BundleHead, BundleMember, Pieces, StreamError, Token};
