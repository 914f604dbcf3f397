//! Disks of the second-level read cache.

use serde::{Deserialize, Serialize};

use crate::disks::DiskInfo;

/// A disk with copies of what is read often from the pool. Losing it costs nothing but speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheDiskInfo {
    /// Its path, or the one where it was last seen.
    pub path: String,
    /// Identity.
    pub guid: String,
    /// Its state.
    pub state: CacheDiskState,
    /// Reads that failed or did not end in time.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Reads whose content was not that of the pool.
    pub checksum_errors: u64,
    /// Bytes that it can hold: as many as its index may describe.
    pub capacity_bytes: u64,
    /// Bytes that it holds, near enough: blocks of 4 KiB.
    pub held_bytes: u64,
    /// Memory of its index.
    pub index_bytes: u64,
    /// Reads that it answered since the import.
    pub hits: u64,
    /// Reads that it could not answer: the pool was read.
    pub misses: u64,
    /// Bytes that were written to it since the import.
    pub written_bytes: u64,
    /// Blocks that came faster than it could write, and were passed over.
    pub passed_over: u64,
    /// Identity and health of the disk, as far as they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskInfo>,
}

/// The state of a cache disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum CacheDiskState {
    /// It is read and written.
    Online,
    /// It failed, or did not answer: it is left alone.
    Faulted,
    /// It was not found.
    Missing,
}
