//! Spares of a pool.

use serde::{Deserialize, Serialize};

use crate::disks::DiskInfo;
use crate::pools::PoolStatus;

/// A disk that takes the place of one that fails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SpareInfo {
    /// Its path, or the one where it was last seen.
    pub path: String,
    /// Identity.
    pub guid: String,
    /// Its state.
    pub state: SpareState,
    /// The path of the disk for which it stands now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<String>,
    /// Identity and health of the disk, as far as they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskInfo>,
}

/// The state of a spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum SpareState {
    /// It waits.
    Avail,
    /// It stands for another disk.
    InUse,
    /// It was not found.
    Missing,
}

impl PoolStatus {
    /// Spares that do not stand in: one that does is a disk of a vdev.
    pub fn waiting_spares(&self) -> impl Iterator<Item = &SpareInfo> {
        self.spares.iter().filter(|spare| spare.state != SpareState::InUse)
    }
}
