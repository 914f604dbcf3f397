//! Pools on disks that could be imported, and imports.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::pool_done::PoolDone;
use crate::pools::{Health, LeafState, VdevClass, VdevKind};
use crate::request::{Operation, request};
use crate::words::Words;

/// `POST /scan`: searches for pools that could be imported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ScanRequest {
    /// Places to search instead of the usual ones: directories, devices, image files.
    #[serde(default)]
    pub places: Vec<PathBuf>,
}

request!(Post "/scan", Operator, ScanRequest -> ScanResult);

/// The result of a scan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScanResult {
    /// Pools that are not imported here.
    pub pools: Vec<FoundPool>,
    /// Disks with labels that cannot be used, and the reasons.
    pub refused: Vec<String>,
}

/// A pool that was found on disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundPool {
    /// Name.
    pub name: String,
    /// Identity.
    pub guid: String,
    /// Whether all disks were found, or enough of them, or too few (`UNAVAIL`).
    pub health: Health,
    /// It was exported, so its log is empty.
    pub clean: bool,
    /// Its disks.
    pub vdevs: Vec<FoundVdev>,
}

/// A vdev of a pool that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FoundVdev {
    /// `mirror-0`, or the path of a single disk.
    pub name: String,
    /// Its class.
    #[serde(default)]
    pub class: VdevClass,
    /// Its kind.
    pub kind: VdevKind,
    /// Whether it can be used.
    pub health: Health,
    /// Paths and states of its disks.
    pub leaves: Vec<(String, LeafState)>,
}

/// `POST /import`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// Name or guid.
    pub pool: String,
    /// The name that the pool has from now on, if not the one that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
    /// Places to search instead of the usual ones.
    #[serde(default)]
    pub places: Vec<PathBuf>,
    /// Go back this many txgs (0 to 2), and drop them and the log.
    #[serde(default)]
    pub rewind: u64,
    /// End the log where it is damaged, and drop the rest.
    #[serde(default)]
    pub discard_log: bool,
    /// Import without a log device that is missing, and drop the data that only it holds.
    #[serde(default)]
    pub missing_log: bool,
    /// Import read-only, without data vdevs of which no disk is there: to rescue files.
    #[serde(default)]
    pub missing_vdev: bool,
    /// Treat blocks that the disks do not give during the replay as damaged, and drop the records
    /// about them.
    #[serde(default)]
    pub discard_unreadable: bool,
    /// Import the pool although another host seems to use it.
    #[serde(default)]
    pub force: bool,
    /// If of a vdev only disks are there that were taken offline by order: go back to what they
    /// hold, and drop what was written since.
    #[serde(default)]
    pub use_offline: bool,
    /// Import although the labels hold an older config than the newest uberblock names: acts on
    /// disks are undone.
    #[serde(default)]
    pub old_config: bool,
}

request!(Post "/import", Operator, ImportRequest -> PoolDone);

impl Operation for ImportRequest {
    fn words(&self) -> String {
        let ImportRequest { pool, new_name, places, rewind, .. } = self;
        let places = places.iter().map(|place| place.to_string_lossy().into_owned());
        Words::of("pool import")
            .flag(self.force, "-f")
            .option("--rewind", (*rewind > 0).then(|| rewind.to_string()))
            .flag(self.discard_log, "--discard-log")
            .flag(self.missing_log, "--missing-log")
            .flag(self.missing_vdev, "--missing-vdev")
            .flag(self.discard_unreadable, "--discard-unreadable")
            .flag(self.use_offline, "--use-offline")
            .flag(self.old_config, "--old-config")
            .options("-d", places)
            .word(pool)
            .words(new_name)
            .text()
    }
}
