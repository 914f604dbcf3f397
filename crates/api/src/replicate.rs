//! Copies of datasets on other Aquifers, which the daemon brings up to date.

use serde::{Deserialize, Serialize};

use crate::datasets::DatasetDone;
use crate::request::{Operation, request};
use crate::words::Words;

/// `POST /replicate`: begins to bring a copy of a dataset up to date. It goes on though the caller
/// hangs up; `GET /replications?id=..` says how far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplicateRequest {
    /// Full name of the dataset.
    pub dataset: String,
    /// Full name of its copy, behind the name of a peer of the configuration and a colon; without
    /// that the copy is in this daemon, in another pool mostly.
    pub target: String,
    /// Also all datasets below, to the same names below the copy.
    #[serde(default)]
    pub recursive: bool,
    /// The name, behind the `@`, of the snapshot that is to be sent. `null`: one is taken.
    #[serde(default)]
    pub snapshot: Option<String>,
    /// Also sends the snapshots between the newest that the copy has and this one; of a new copy,
    /// all older ones.
    #[serde(default)]
    pub all: bool,
    /// So many snapshots of this replication stay at the copy; `null`: one.
    #[serde(default)]
    pub keep: Option<u64>,
    /// Bytes a second at most.
    #[serde(default)]
    pub rate_bytes: Option<u64>,
    /// Rolls the copy back to the newest snapshot that both have: what was changed there since, and
    /// later snapshots there, are lost.
    #[serde(default)]
    pub force: bool,
    /// The dataset is at a peer, and named as `PEER:DATASET`; the copy is in this daemon.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pull: bool,
}

request!(Post "/replicate", Admin, ReplicateRequest -> ReplicationBegun);

impl Operation for ReplicateRequest {
    fn words(&self) -> String {
        let ReplicateRequest { dataset, target, recursive, snapshot, all, .. } = self;
        let ReplicateRequest { keep, rate_bytes, force, pull, .. } = self;
        Words::of("replicate")
            .flag(*pull, "--pull")
            .flag(*recursive, "-r")
            .flag(*force, "-F")
            .flag(*all, "--all")
            .option("--snapshot", snapshot.clone())
            .option("--keep", keep.map(|count| count.to_string()))
            .option("--rate", rate_bytes.map(|bytes| bytes.to_string()))
            .word(dataset)
            .word(target)
            .text()
    }
}

/// The answer to `POST /replicate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicationBegun {
    /// Names this run.
    pub id: u64,
}

/// `POST /replicate/stop`: ends what is under way. The copy stays as it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StopReplication {
    /// Full name of the dataset.
    pub dataset: String,
    /// Its copy, as it was given.
    pub target: String,
    /// As in [`ReplicateRequest`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pull: bool,
}

request!(Post "/replicate/stop", Admin, StopReplication -> DatasetDone);

impl Operation for StopReplication {
    fn words(&self) -> String {
        let words = Words::of("replicate").flag(true, "--stop").flag(self.pull, "--pull");
        words.word(&self.dataset).word(&self.target).text()
    }
}

/// `GET /replications?id=..`; without an id, the newest run of each copy, and copies that the
/// properties `replicate` and `pull` name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReplicationQuery {
    /// Only this run.
    #[serde(default)]
    pub id: Option<u64>,
}

request!(Get "/replications", Read, ReplicationQuery -> Vec<ReplicationInfo>);

/// A copy, and the newest run that brought it up to date, or tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplicationInfo {
    /// The run; `null`: none since the daemon started.
    pub id: Option<u64>,
    /// Full name of the dataset, behind the name of a peer and a colon if it is fetched.
    pub dataset: String,
    /// Its copy: the name of a peer, a colon, and a dataset; or a dataset here.
    pub target: String,
    /// How often the property `replicate` or `pull` wants it; `null`: somebody asked for it.
    pub every_s: Option<u64>,
    /// How the run stands.
    pub state: ReplicationState,
    /// When it began, in nanoseconds since 1970.
    pub begun_ns: Option<u64>,
    /// When it ended.
    pub ended_ns: Option<u64>,
    /// Full name of the snapshot that is sent now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sending: Option<String>,
    /// Bytes of streams that were sent.
    pub sent_bytes: u64,
    /// How many there are, about, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The dataset, and those below that go with it.
    pub copies: Vec<CopyInfo>,
    /// Full names, there, of datasets below the copy that stand by, and that none here goes to: it
    /// was destroyed or renamed, mostly. They stay. As the newest run found them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl ReplicationInfo {
    /// The peer from which it is fetched.
    pub fn source(&self) -> Option<&str> {
        peer_of(&self.dataset)
    }

    /// A dataset of it, with the peer that has it.
    pub fn named(&self, copy: &CopyInfo) -> String {
        at(self.source(), &copy.dataset)
    }

    /// A dataset on the side of the copy, with the peer that has it.
    pub fn named_there(&self, dataset: &str) -> String {
        at(peer_of(&self.target), dataset)
    }
}

/// The peer before a dataset. No name of a pool has a colon, but that of a dataset below it may.
pub fn peer_of(full: &str) -> Option<&str> {
    let pool = full.split('/').next().unwrap_or_default();
    pool.split_once(':').map(|(peer, _)| peer)
}

fn at(peer: Option<&str>, dataset: &str) -> String {
    match peer {
        Some(peer) => format!("{peer}:{dataset}"),
        None => dataset.into(),
    }
}

/// One dataset and its copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CopyInfo {
    /// Full name of the dataset.
    pub dataset: String,
    /// Full name of its copy, there.
    pub copy: String,
    /// The newest snapshot that the copy is known to have; `null`: none.
    pub snapshot: Option<String>,
    /// When that was taken, in nanoseconds since 1970.
    pub taken_ns: Option<u64>,
    /// Seconds since then: what was changed in them, a loss of this side would take.
    pub behind_s: Option<u64>,
    /// How the newest run stands with this one.
    #[serde(default)]
    pub state: ReplicationState,
    /// Why this one could not be brought up to date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReplicationState {
    /// It has not begun.
    #[default]
    Waiting,
    /// It goes on.
    Running,
    /// The copy is up to date.
    Done,
    /// It came to nothing.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_behind_a_slash_names_no_peer() {
        for (full, peer) in [
            ("tank/a", None),
            ("tank/a:b", None),
            ("tank/a:b/c", None),
            ("store1:tank/a", Some("store1")),
            ("store1:tank/a:b", Some("store1")),
            ("store1:tank", Some("store1")),
        ] {
            assert_eq!(peer_of(full), peer, "{full}");
        }
    }
}
