//! Work on the free space of disks: trim, initialize.

use serde::{Deserialize, Serialize};

use crate::pool_done::PoolDone;
use crate::request::{On, Operation, request};
use crate::words::Words;

/// `POST /pools/{name}/free-space`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FreeWorkRequest {
    /// Kind of work on free space.
    pub work: FreeWork,
    /// Act on this work.
    pub act: FreeWorkAct,
    /// Paths or guids of disks; without any, all that hold data.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Bytes a second on each disk, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
}

request!(Post "/pools/{name}/free-space", Operator, On<FreeWorkRequest> -> PoolDone);

impl Operation for On<FreeWorkRequest> {
    fn words(&self) -> String {
        let FreeWorkRequest { work, act, disks, rate } = &self.request;
        let words = Words::of(match work {
            FreeWork::Trim => "pool trim",
            FreeWork::Initialize => "pool initialize",
        });
        let words = words
            .flag(*act == FreeWorkAct::Suspend, "-s")
            .flag(*act == FreeWorkAct::Cancel, "-c")
            .flag(*act == FreeWorkAct::Forget, "-u")
            .option("-r", rate.map(|rate| rate.to_string()));
        words.word(&self.name).words(disks).text()
    }
}

/// Kind of work on free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FreeWork {
    /// It is discarded.
    Trim,
    /// It is written over.
    Initialize,
}

/// Act on a trim or an initialization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FreeWorkAct {
    /// Begin, or resume what is suspended.
    Start,
    /// Suspend it.
    Suspend,
    /// Cancel it.
    Cancel,
    /// Forget that it was ever done.
    Forget,
}

/// The newest work of one kind on a disk. It is known over restarts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FreeWorkInfo {
    /// How it stands.
    pub state: FreeWorkState,
    /// Bytes of the disk that it has passed, in use or free.
    pub passed_bytes: u64,
    /// Bytes of the disk.
    pub total_bytes: u64,
    /// Bytes discarded or written over.
    pub done_bytes: u64,
    /// Bytes left alone because the pool needed them, or because what is free there is not known.
    pub skipped_bytes: u64,
    /// When it began, ns since 1970.
    pub begun_ns: u64,
    /// When it ended, ns since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// The last error of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FreeWorkState {
    /// It goes on.
    Running,
    /// It goes on once the disk is in use and answers.
    Waiting,
    /// It waits to be resumed.
    Suspended,
    /// It was canceled.
    Canceled,
    /// All that was free was worked on.
    Finished,
    /// The disk cannot discard.
    Unsupported,
    /// The disk gave too many errors, or left the pool.
    Failed,
}
