//! Snapshots that are sent and received as streams. `docs/stream.md` has their bytes.

use serde::{Deserialize, Serialize};

/// `POST /send`: some megabytes of the stream. The header [`NEXT`] has what `after` is
/// for those that follow; the last ones have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendQuery {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// What the answer before said.
    #[serde(default)]
    pub after: Option<String>,
}

/// The header of an answer to `POST /send` that says how to go on.
pub const NEXT: &str = "x-aquifer-next";

/// Bytes of a part that is received, at most.
pub const PART_BYTES_MAX: usize = 1 << 20;

/// An answer of `POST /send`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentPart {
    /// Bytes of the stream.
    pub bytes: Vec<u8>,
    /// Where the next ones begin.
    pub next: Option<String>,
}

/// `POST /receive`: begins to receive a stream. Its bytes go to `POST /receive/{id}`, in parts of
/// up to [`PART_BYTES_MAX`]; an empty one says that the client waits for more. `POST
/// /receive/{id}/end` ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveRequest {
    /// Full name of the dataset that is made.
    pub name: String,
    /// Only checks the stream.
    #[serde(default)]
    pub dry_run: bool,
    /// The dataset gets file handles of its own, and comes into service at once.
    #[serde(default)]
    pub new_handles: bool,
}

/// The answer to `POST /receive`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveBegun {
    /// Names the stream.
    pub id: u64,
}

/// The answer to a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedPart {
    /// Its bytes.
    pub bytes: u64,
}

/// `POST /receive/{id}/end`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveEnd {
    /// Drops what came.
    #[serde(default)]
    pub give_up: bool,
}

/// A snapshot was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveSummary {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Full name that it had where it comes from.
    pub sent: String,
    /// Files, directories and others.
    pub objects: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// What to know.
    pub notes: Vec<String>,
}
