//! Snapshots that are sent and received as streams. `docs/stream.md` has their bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::datasets::DatasetDone;
use crate::names::SnapshotName;
use crate::request::{Operation, request};
use crate::words::Words;

/// `POST /send`: some megabytes of the stream. The header [`NEXT`] has what `after` is
/// for those that follow; the last ones have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SendQuery {
    /// Full name of the snapshot, or of one of a file, `dataset:path@name`, which travels as a
    /// dataset of its own; with `token`, anything.
    #[serde(default)]
    pub snapshot: String,
    /// The rest of a stream that broke off, as the receiver's `ReceiveInfo` names it. `from` has no
    /// meaning then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Only what changed since this older one of the same dataset or file: `@name`, or its full
    /// name.
    #[serde(default)]
    pub from: Option<String>,
    /// Also those of its name of all datasets below, as a bundle of streams. Those that have no
    /// `from` are sent whole, those that have no such snapshot are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recursive: bool,
    /// With `recursive`, also all snapshots since `from`, as a stream of each behind the other;
    /// those that have no `from`, with all that are older than the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub between: bool,
    /// Only the size of the stream is wanted: the answers have no bytes, and say in the header
    /// [`SIZE`] how many there would be.
    #[serde(default)]
    pub size_only: bool,
    /// Value of the header [`NEXT`] in the answer before.
    #[serde(default)]
    pub after: Option<String>,
}

/// The header of an answer to `POST /send` that says how to go on.
pub const NEXT: &str = "x-aquifer-next";

/// The header of an answer to `POST /send` that says how many bytes of the stream it is.
pub const SIZE: &str = "x-aquifer-size";

/// Bytes of a part that is received, at most. Over a network each part costs a round trip.
pub const PART_BYTES_MAX: usize = 4 << 20;
/// Every daemon takes parts of so many.
const PART_BYTES_MIN: usize = 64 << 10;
/// Bytes of a part at most for a daemon whose [`ReceiveBegun`] says nothing.
const PART_BYTES_UNTOLD: u64 = 1 << 20;

/// An answer of `POST /send`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentPart {
    /// Bytes of the stream; none if only the size is wanted.
    pub bytes: Vec<u8>,
    /// How many bytes of the stream this is.
    pub stream_bytes: u64,
    /// Where the next ones begin.
    pub next: Option<String>,
}

/// `POST /receive`: begins to receive a stream. Its bytes go to `POST /receive/{id}`, in parts of
/// up to [`ReceiveBegun::part_bytes`]; an empty one says that the client waits for more. `POST
/// /receive/{id}/end` ends it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReceiveRequest {
    /// Full name of the dataset that is made, or that has the snapshot since which the stream has
    /// what changed.
    pub name: String,
    /// Only checks the stream.
    #[serde(default)]
    pub dry_run: bool,
    /// The dataset gets file handles of its own, and comes into service at once.
    #[serde(default)]
    pub new_handles: bool,
    /// Of what changed since a snapshot: drops what was changed here since then.
    #[serde(default)]
    pub force: bool,
    /// Sender, for one that sends to a dataset one stream at a time: an earlier stream of the same
    /// sender to the same dataset is given up, since that sender has died or lost it.
    #[serde(default)]
    pub sender: Option<String>,
    /// Resumable stream: what came stays if it breaks off, and the rest of it may come later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resumable: bool,
    /// Values of properties that the copy gets, whatever the stream has. Needs the role `admin`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, String>,
    /// Properties of the stream that are left out: the copy has its own value, or inherits one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
}

request!(Post "/receive", Admin, ReceiveRequest -> ReceiveBegun);

impl Operation for ReceiveRequest {
    fn words(&self) -> String {
        let ReceiveRequest { name, dry_run, new_handles, force, resumable, .. } = self;
        let words = Words::of("receive").flag(*dry_run, "-n").flag(*force, "-F");
        let words = words.flag(*new_handles, "--new-handles").flag(*resumable, "-s");
        let set = self.properties.iter().map(|(name, value)| format!("{name}={value}"));
        let words = words.options("-o", set).options("-x", self.exclude.iter().cloned());
        words.word(name).text()
    }
}

/// `GET /receives?name=..`; without a name, those of all pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReceivesQuery {
    /// Only what comes into this dataset.
    #[serde(default)]
    pub name: Option<String>,
    /// Also what comes into those below it.
    #[serde(default)]
    pub recursive: bool,
    /// Also streams that come just now, and of which nothing waits that could go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub coming: bool,
}

request!(Get "/receives", Read, ReceivesQuery -> Vec<ReceiveInfo>);

/// Received part of a stream that may go on; or a stream that comes just now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiveInfo {
    /// Full name of the dataset. It need not be there yet.
    pub dataset: String,
    /// Full name of the snapshot where it comes from; empty if that was too long.
    pub sent: String,
    /// Its guid.
    pub to_guid: String,
    /// The guid of the snapshot since which it has what changed; none if all is sent.
    #[serde(default)]
    pub from_guid: Option<String>,
    /// It is being sent just now; else it broke off.
    pub receiving: bool,
    /// Bytes of content that came.
    pub received_bytes: u64,
    /// Bytes that it keeps on disk, of a dataset that is not there yet.
    #[serde(default)]
    pub used_bytes: Option<u64>,
    /// When the last of it came, in nanoseconds since 1970.
    pub heard_ns: u64,
    /// For `POST /send` where it comes from: the rest of the stream. Empty if nothing waits that
    /// could go on.
    pub receive_resume_token: String,
    /// The stream, if it comes just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// Owner of the stream, as far as this run of the daemon knows: `token backup`, `uid 0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When the stream that comes just now began, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_ns: Option<u64>,
}

/// `POST /receives/give-up`: what came of a stream that broke off is dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GiveUpReceive {
    /// Full name of the dataset.
    pub name: String,
}

request!(Post "/receives/give-up", Admin, GiveUpReceive -> DatasetDone);

impl Operation for GiveUpReceive {
    fn words(&self) -> String {
        Words::of("receive").flag(true, "-A").word(&self.name).text()
    }
}

/// The answer to `POST /receive`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiveBegun {
    /// Names the stream.
    pub id: u64,
    /// Bytes of a part, at most.
    #[serde(default = "part_bytes_untold")]
    pub part_bytes: u64,
}

impl ReceiveBegun {
    /// Bytes of a part that goes there, at most.
    pub fn part_bytes_max(&self) -> usize {
        let told = usize::try_from(self.part_bytes).unwrap_or(usize::MAX);
        told.clamp(PART_BYTES_MIN, PART_BYTES_MAX)
    }
}

fn part_bytes_untold() -> u64 {
    PART_BYTES_UNTOLD
}

/// The answer to a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceivedPart {
    /// Its bytes.
    pub bytes: u64,
}

/// `POST /receive/{id}/end`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReceiveEnd {
    /// The client leaves: what came is dropped, or stays if the stream may go on.
    #[serde(default)]
    pub give_up: bool,
    /// Exact names, behind the `@`, of older snapshots of the dataset: they are destroyed when the
    /// new one is there. One that is held, or has a clone, stays. With the role `receive`: those
    /// alone that a replication took, of a copy that this token fed before.
    #[serde(default)]
    pub prune: Vec<SnapshotName>,
}

request!(Post "/receive/{name}/end", Admin, On<ReceiveEnd> -> ReceiveSummary);

impl ReceiveEnd {
    /// The end of a stream in words of the command line. The request knows the stream by its
    /// number; `name` is that of the dataset.
    pub fn words(name: &str, gives_up: bool) -> String {
        let words = Words::of("receive").word(name);
        words.flag(true, if gives_up { "(given up)" } else { "(end)" }).text()
    }
}

/// A snapshot was received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReceiveSummary {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Full name that it had where it comes from.
    pub sent: String,
    /// Full name of the snapshot there since which it has what changed.
    #[serde(default)]
    pub since: Option<String>,
    /// Files, directories and others that came.
    pub objects: u64,
    /// Those that were removed.
    #[serde(default)]
    pub removed: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Of a bundle, the same of each stream behind the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<ReceiveSummary>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_what_the_daemon_takes() {
        let most =
            |begun: &str| serde_json::from_str::<ReceiveBegun>(begun).unwrap().part_bytes_max();
        assert_eq!(most(r#"{"id": 7}"#), 1 << 20, "an older daemon");
        assert_eq!(most(r#"{"id": 7, "part_bytes": 2000000}"#), 2_000_000);
        assert_eq!(most(r#"{"id": 7, "part_bytes": 0}"#), PART_BYTES_MIN);
        assert_eq!(most(r#"{"id": 7, "part_bytes": 18446744073709551615}"#), PART_BYTES_MAX);
    }
}
