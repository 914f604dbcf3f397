//! Differences of two snapshots, or of a snapshot and its dataset.

use serde::{Deserialize, Serialize};

use crate::request::request;

/// `GET /diff?from=..&to=..` compares datasets and snapshots by their full names;
/// `GET /diff/ranges?from=..&to=..` compares files, as `tank/vms@before:web01/disk.vhd`,
/// `tank/vms:web01/disk.vhd@before`, or `tank/vms:web01/disk.vhd` as it is now.
///
/// An answer is a page. Its `next`, given as `after`, asks for the following one, with all else as
/// it was. A page can be empty and have a next one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DiffQuery {
    /// The old one.
    pub from: String,
    /// The new one.
    pub to: String,
    /// The `next` of the page before.
    #[serde(default)]
    pub after: Option<String>,
    /// Objects or ranges of a page at most, 10,000 if it is not given.
    #[serde(default)]
    pub limit: Option<usize>,
}

request!(Get "/diff", Read, DiffQuery -> ChangedNames);

/// `GET /diff/ranges`: ranges at which two versions of a file differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangesQuery(pub DiffQuery);

request!(Get "/diff/ranges", Read, RangesQuery(DiffQuery) -> ChangedRanges);

/// Kind of change to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NameChange {
    /// It is new.
    Created,
    /// It is gone.
    Removed,
    /// It took the place of another name of the same file.
    Renamed,
    /// It is still there, and the file changed.
    Modified,
}

/// Type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileType {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Block device node.
    Block,
    /// Character device node.
    Character,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// A name that changed, or whose file did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangedName {
    /// Kind of change.
    pub change: NameChange,
    /// Type of the file.
    #[serde(rename = "type")]
    pub kind: FileType,
    /// Its path in the dataset: `/web01/disk.vhd`. What would mean more than itself (`*`, `?`,
    /// `@`, `#`, `:`, a backslash, a blank at an end, control characters, bytes that are no UTF-8)
    /// stands in it as `\0ooo`, in octal. A file of which no name was found has `#` and its number.
    pub path: String,
    /// Its path before, if it was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_path: Option<String>,
    /// Number of the file, which is the fileid that clients see.
    pub fileid: u64,
    /// The content, or the names in a directory, may have changed.
    pub content: bool,
    /// Owner, group, mode, times, or the number of names changed.
    pub attributes: bool,
    /// Names of the file before.
    pub old_links: u32,
    /// Names of the file now.
    pub links: u32,
}

/// The answer of `GET /diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangedNames {
    /// Names, in the order of the files' numbers.
    pub names: Vec<ChangedName>,
    /// Ask for the next page with this; `null`: this is the last one.
    pub next: Option<String>,
}

/// Bytes of a file that changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangedRange {
    /// The first of them.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// Whether they have content now, or are a hole, which reads as zeros.
    pub data: bool,
}

/// The answer of `GET /diff/ranges`.
///
/// To make the new version of a copy of the old one: set its size to `new_bytes`, write what the
/// file has in each range of data, and make each other range a hole. Nothing else changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChangedRanges {
    /// Bytes of the old version.
    pub old_bytes: u64,
    /// Bytes of the new one.
    pub new_bytes: u64,
    /// Whether both are one file, under whatever names.
    pub same_file: bool,
    /// Ranges, in order.
    pub ranges: Vec<ChangedRange>,
    /// Ask for the next page with this; `null`: this is the last one.
    pub next: Option<String>,
}
