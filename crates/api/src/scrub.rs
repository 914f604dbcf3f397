//! Scrub: examines every copy of everything that a pool holds.

use serde::{Deserialize, Serialize};

use crate::pool_done::PoolDone;
use crate::request::{On, Operation, request};
use crate::words::Words;

/// `POST /pools/{name}/scrub`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScrubRequest {
    /// Act on the scrub.
    pub act: ScrubAct,
}

request!(Post "/pools/{name}/scrub", Operator, On<ScrubRequest> -> PoolDone);

impl Operation for On<ScrubRequest> {
    fn words(&self) -> String {
        let words = Words::of("pool scrub")
            .flag(self.request.act == ScrubAct::Pause, "-p")
            .flag(self.request.act == ScrubAct::Stop, "-s");
        words.word(&self.name).text()
    }
}

/// Act on a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ScrubAct {
    /// Begin one, or resume one that is paused.
    Start,
    /// Pause it. It stays paused over restarts.
    Pause,
    /// Stop it for good.
    Stop,
}

/// The newest scrub of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScrubInfo {
    /// How it stands.
    pub state: ScrubState,
    /// When it began, ns since 1970.
    pub begun_ns: u64,
    /// When it finished or was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// Time of work, without pauses.
    pub active_ms: u64,
    /// Bytes in use when it began.
    pub total_bytes: u64,
    /// Bytes examined, counted once however many copies there are.
    pub examined_bytes: u64,
    /// Bytes of bad copies that were rewritten from a good one.
    pub repaired_bytes: u64,
    /// Blocks of which no copy was good.
    pub unreadable_blocks: u64,
    /// Files of which bad copies were rewritten since the scrub began, or since the pool was
    /// imported; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaired_files: Vec<RepairedFile>,
    /// How many files there are beside these.
    #[serde(default)]
    pub more_repaired_files: u64,
}

/// A file of which a scrub rewrote bad copies. Nothing of it is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RepairedFile {
    /// Full name of its dataset, or of the snapshot that shows this content.
    pub dataset: String,
    /// Its path there, or `#` and its number if no path was found.
    pub file: String,
    /// Bytes of bad copies.
    pub bytes: u64,
    /// Ranges of bytes: the first byte, and the one after the last.
    pub ranges: Vec<(u64, u64)>,
    /// More ranges were repaired than are listed.
    pub more: bool,
}

/// How a scrub stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ScrubState {
    /// It goes on.
    Running,
    /// It waits to be resumed.
    Paused,
    /// It has examined everything.
    Finished,
    /// It was stopped.
    Stopped,
}
