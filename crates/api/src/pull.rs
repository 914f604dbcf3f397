//! Requests of a server that fetches copies to the server that has the datasets.
//!
//! The asker's token names its replication there: its snapshots are called `replicate-TOKEN-TIME`,
//! and its holds `replicated to TOKEN:COPY`.

use serde::{Deserialize, Serialize};

use crate::datasets::DatasetDone;
use crate::names::{DatasetName, SnapshotName};
use crate::request::{Operation, request};
use crate::words::Words;

/// Datasets that one request to pull names, at most.
pub const PULLED_MAX: usize = 1024;

/// `GET /pull/known?dataset=..`: what a copy of a dataset may have too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PullQuery {
    /// Full name of the dataset.
    pub dataset: DatasetName,
}

request!(Get "/pull/known", Admin, PullQuery -> PullSource);

/// The answer: a dataset as one that is pulled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PullSource {
    /// The name of the asker's token.
    pub token: String,
    /// It is a copy itself, and has the snapshots that it receives.
    pub standby: bool,
    /// In the order in which they were taken.
    pub snapshots: Vec<PullKnown>,
}

/// A snapshot of a dataset that is pulled, or what a bookmark has of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PullKnown {
    /// Behind the `@`, or the `#`.
    pub name: SnapshotName,
    /// It is a bookmark: what changed since can be sent.
    pub bookmark: bool,
    /// Its guid.
    pub guid: String,
    /// Bytes of a whole stream of it, about; 0 of a bookmark.
    pub refer_bytes: u64,
}

/// `POST /pull/take`: takes snapshots of these datasets, all in one txg.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TakePull {
    /// Their full names.
    pub datasets: Vec<DatasetName>,
}

request!(Post "/pull/take", Admin, TakePull -> PullTaken);

impl Operation for TakePull {
    fn words(&self) -> String {
        let names: Vec<String> = self.datasets.iter().map(DatasetName::to_string).collect();
        Words::of("replicate --pull (snapshot)").words(&names).text()
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PullTaken {
    /// The name of the snapshots, behind the `@`.
    pub snapshot: SnapshotName,
    /// Those datasets that are gone.
    #[serde(default)]
    pub gone: Vec<DatasetName>,
}

/// `POST /pull/settle`: a copy has this snapshot on disk. It is held for that copy, instead of the
/// one that the copy had before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SettlePull {
    /// Full name of the dataset.
    pub dataset: DatasetName,
    /// Full name of its copy, there.
    pub copy: DatasetName,
    /// The guid of the snapshot.
    pub guid: String,
}

request!(Post "/pull/settle", Admin, SettlePull -> DatasetDone);

impl Operation for SettlePull {
    fn words(&self) -> String {
        let words = Words::of("replicate --pull (hold)").word(self.dataset.as_str());
        words.word(self.copy.as_str()).text()
    }
}

/// `POST /pull/prune`: destroys what was taken for this token and is held by nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PrunePull {
    /// Full name of the dataset.
    pub dataset: DatasetName,
    /// Guids of snapshots that stay.
    #[serde(default)]
    pub needed: Vec<String>,
}

request!(Post "/pull/prune", Admin, PrunePull -> DatasetDone);

impl Operation for PrunePull {
    fn words(&self) -> String {
        Words::of("replicate --pull (prune)").word(self.dataset.as_str()).text()
    }
}
