//! Bookmarks of snapshots.

use serde::{Deserialize, Serialize};

/// One bookmark, in `GET /bookmarks`: what a snapshot was, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BookmarkInfo {
    /// Full name: `tank/vms#sent`.
    pub name: String,
    /// Full name of its dataset.
    pub dataset: String,
    /// When the snapshot was taken, in nanoseconds since 1970.
    pub created_ns: u64,
    /// The txg of the snapshot.
    pub txg: u64,
    /// The guid of the snapshot: 16 hexadecimal digits.
    pub guid: String,
    /// Bytes that the snapshot referred to.
    pub refer_bytes: u64,
}

/// `POST /bookmarks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MakeBookmark {
    /// Full name of the snapshot: `tank/vms@before`.
    pub snapshot: String,
    /// Name for the bookmark: `#sent`, or `tank/vms#sent`.
    pub bookmark: String,
}

/// `POST /bookmarks/destroy`: all in one txg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DestroyBookmarks {
    /// Full names, all in one pool.
    pub names: Vec<String>,
}

/// The result of an act on bookmarks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BookmarksDone {
    /// Full names.
    pub names: Vec<String>,
}
