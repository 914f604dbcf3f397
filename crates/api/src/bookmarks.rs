//! Bookmarks of snapshots.

use serde::{Deserialize, Serialize};

use crate::request::{Operation, request};
use crate::snapshots::SnapshotQuery;
use crate::words::Words;

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

/// `GET /bookmarks?name=..&recursive=..`: bookmarks of these datasets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BookmarkQuery(pub SnapshotQuery);

request!(Get "/bookmarks", Read, BookmarkQuery(SnapshotQuery) -> Vec<BookmarkInfo>);

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

request!(Post "/bookmarks", Operator, MakeBookmark -> BookmarksDone);

impl Operation for MakeBookmark {
    fn words(&self) -> String {
        Words::of("bookmark").word(&self.snapshot).word(&self.bookmark).text()
    }
}

/// `POST /bookmarks/destroy`: all in one txg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DestroyBookmarks {
    /// Full names, all in one pool.
    pub names: Vec<String>,
}

request!(Post "/bookmarks/destroy", Admin, DestroyBookmarks -> BookmarksDone);

impl Operation for DestroyBookmarks {
    fn words(&self) -> String {
        Words::of("destroy").words(&self.names).text()
    }
}

/// The result of an act on bookmarks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BookmarksDone {
    /// Full names.
    pub names: Vec<String>,
}
