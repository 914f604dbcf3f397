//! Scrub: examines every copy of everything that a pool holds.

use serde::{Deserialize, Serialize};

/// `POST /pools/{name}/scrub`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubRequest {
    /// What to do.
    pub act: ScrubAct,
}

/// What to do with a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// How a scrub stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
