//! Drills: a disk is taken away as if it had failed, and given back, while clients are measured.

use serde::{Deserialize, Serialize};

use crate::counts::Flow;
use crate::pool_done::PoolDone;
use crate::request::{On, Operation, request};
use crate::words::Words;

/// `POST /pools/{name}/drill`: begins a drill, or ends the one that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum DrillRequest {
    /// Begin one.
    Start {
        /// The disk, as in a [`DiskRequest`](crate::DiskRequest).
        disk: String,
        /// How long clients are measured with all disks, and again without this one: 1 to 3600.
        seconds: u64,
    },
    /// End it early. The disk comes back at once.
    Stop,
}

request!(Post "/pools/{name}/drill", Operator, On<DrillRequest> -> PoolDone);

impl Operation for On<DrillRequest> {
    fn words(&self) -> String {
        let words = Words::of("pool drill");
        let words = match &self.request {
            DrillRequest::Start { disk, seconds } => {
                let words = words.option("--seconds", Some(seconds.to_string()));
                words.word(&self.name).word(disk)
            }
            DrillRequest::Stop => words.flag(true, "--stop").word(&self.name),
        };
        words.text()
    }
}

/// The newest drill of a pool since its import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DrillInfo {
    /// Path of the disk.
    pub disk: String,
    /// How it stands.
    pub state: DrillState,
    /// Why it failed, or ended early.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The wanted length of the first two phases.
    pub seconds: u64,
    /// The phases that have begun, in order.
    pub phases: Vec<DrillPhase>,
    /// Bytes copied to the disk after it came back.
    pub resilvered_bytes: u64,
    /// Blocks that no other disk gave: they are missing on it.
    pub unread_blocks: u64,
    /// Milliseconds from its return until it held everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_ms: Option<u64>,
}

/// How a drill stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DrillState {
    /// It goes on.
    Running,
    /// The disk is back, and holds everything.
    Done,
    /// Somebody ended it early. The disk comes back by itself.
    Stopped,
    /// It could not go on. The disk comes back by itself.
    Failed,
}

/// A part of a drill, and what clients did and waited meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DrillPhase {
    /// Which part.
    pub phase: DrillStep,
    /// Milliseconds that it took, or has taken so far.
    pub took_ms: u64,
    /// The clients' requests to files of this pool.
    pub clients: Flow,
}

/// The parts of a drill, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DrillStep {
    /// All disks are in use.
    Whole,
    /// The disk is away.
    Away,
    /// The disk is back, and gets what it missed.
    Resilver,
}
