//! The load of a pool in the past: `GET /pools/{name}/load`, `GET /pools/{name}/load/disks`.

use serde::{Deserialize, Serialize};

use crate::request::request;

/// How far back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LoadSpan {
    /// A day, ten seconds by ten seconds.
    #[default]
    Day,
    /// 31 days, ten minutes by ten minutes.
    Month,
}

impl LoadSpan {
    /// The time of the finest step.
    pub fn grain_s(self) -> u64 {
        match self {
            LoadSpan::Day => 10,
            LoadSpan::Month => 600,
        }
    }

    /// How far it reaches back.
    pub fn seconds(self) -> u64 {
        match self {
            LoadSpan::Day => 86_400,
            LoadSpan::Month => 31 * 86_400,
        }
    }
}

/// `GET /pools/{name}/load?span&of&from_s&to_s&step_s`; `of` and `step_s` mean nothing to
/// `GET /pools/{name}/load/disks`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LoadQuery {
    /// How far back, and how fine.
    #[serde(default)]
    pub span: LoadSpan,
    /// `disks`: what the disks of the pool did, which is also meant without it. `clients`: what
    /// clients of NFS asked for. `FS_GUID:OBJECT`: what they asked of this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// From this second since 1970 on; else the whole span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_s: Option<u64>,
    /// Until before this second; else until now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_s: Option<u64>,
    /// Seconds of a step, at least those of the finest, which it is else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_s: Option<u64>,
}

request!(Get "/pools/{name}/load", Read, On<LoadQuery> -> LoadSeries);

/// `GET /pools/{name}/load/disks`: the VM disks that were busiest, the busiest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadedDisksQuery(pub LoadQuery);

request!(Get "/pools/{name}/load/disks", Read, On<LoadedDisksQuery(LoadQuery)> -> Vec<LoadedDisk>);

/// The load of a time, step by step. All lists are as long as `at_s`; steps of which nothing is
/// known are left out. Numbers are exact to a thousandth.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadSeries {
    /// Seconds of a step: divide by them for what was done in a second.
    pub step_s: u64,
    /// When each step begins, in seconds since 1970.
    pub at_s: Vec<u64>,
    /// Reads.
    pub reads: LoadColumns,
    /// Writes.
    pub writes: LoadColumns,
    /// Bytes in use at the end of each step; empty but of `disks`.
    pub used_bytes: Vec<u64>,
}

/// One direction, step by step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadColumns {
    /// Operations.
    pub operations: Vec<u64>,
    /// Bytes that they moved.
    pub bytes: Vec<u64>,
    /// How long one took on average, in nanoseconds; 0 if there was none.
    pub mean_ns: Vec<u64>,
    /// Time that 99 of 100 operations did not exceed, in nanoseconds; of several finest steps that
    /// of the slowest.
    pub p99_ns: Vec<u64>,
}

/// A VM disk in a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadedDisk {
    /// Identity of its file system.
    pub fs_guid: String,
    /// Its number there.
    pub object: u64,
    /// Full name of the dataset; empty if that was destroyed.
    pub dataset: String,
    /// Its path there, or `#` and its number if there is none any more.
    pub file: String,
    /// Reads.
    pub reads: LoadSum,
    /// Writes.
    pub writes: LoadSum,
}

/// One direction of a VM disk in a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadSum {
    /// Operations.
    pub operations: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// How long one took on average, in nanoseconds.
    pub mean_ns: u64,
    /// Time that 99 of 100 operations did not exceed in the slowest step, in nanoseconds.
    pub p99_ns: u64,
}
