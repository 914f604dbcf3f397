//! Pools: how they are, and what can be done with them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::DamagedFile;
use crate::time;

/// One line of `pool list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSummary {
    /// Name.
    pub name: String,
    /// Identity.
    pub guid: String,
    /// How it is.
    pub health: Health,
    /// Logical space of all data vdevs.
    pub size_bytes: u64,
    /// Of that, in use.
    pub allocated_bytes: u64,
    /// Of that, to be had.
    pub free_bytes: u64,
    /// Files that cannot be read in part, or lost changes.
    #[serde(default)]
    pub damaged_files: u64,
    /// Why it is not in service, if it is not.
    pub reason: Option<String>,
}

/// How a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Health {
    /// All disks are there and hold everything.
    Online,
    /// In service, with fewer copies than it should have.
    Degraded,
    /// It answers nothing until it is imported again.
    Suspended,
    /// It is being imported.
    Importing,
    /// Listed, and could not be imported.
    Unavail,
}

/// `GET /pools/{name}`: everything `pool status` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The line of the list.
    #[serde(flatten)]
    pub summary: PoolSummary,
    /// Newest txg on disk.
    pub txg: u64,
    /// Freed, but held back for the txgs that may still be needed.
    pub held_bytes: u64,
    /// Metaslabs closed to allocation because their bitmap is damaged.
    pub closed_metaslabs: u64,
    /// Its vdevs.
    pub vdevs: Vec<VdevStatus>,
    /// What the import had to say.
    pub import_notes: Vec<String>,
    /// What else should be known, such as exports that do not work.
    pub notes: Vec<String>,
    /// What to do, if something is to be done.
    pub action: Option<String>,
    /// Files of which something is lost: no copy could be read when it was to be changed.
    pub damaged: Vec<DamagedFile>,
    /// Datasets that promise nothing.
    #[serde(default)]
    pub sync_disabled: Vec<SyncDisabled>,
    /// What an import without its log device may have lost; stays until it is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_log: Option<DroppedLog>,
}

/// A dataset with `sync=disabled`: what it acknowledged is lost in a power cut or a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncDisabled {
    /// Full name.
    pub dataset: String,
    /// Why, as whoever set it says.
    pub reason: String,
}

/// One top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevStatus {
    /// `mirror-0`, or the path of a single disk.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub class: VdevClass,
    /// How it keeps copies.
    pub kind: VdevKind,
    /// Logical space.
    pub size_bytes: u64,
    /// How it is.
    pub health: Health,
    /// Its disks.
    pub leaves: Vec<LeafStatus>,
}

/// What a vdev is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevClass {
    /// Blocks, and the intent log where there is no log vdev.
    #[default]
    Data,
    /// The intent log.
    Log,
}

/// How a vdev keeps copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevKind {
    /// One disk.
    Single,
    /// Every disk holds everything.
    Mirror,
}

/// One disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafStatus {
    /// Where it is, or was last seen.
    pub path: String,
    /// Identity.
    pub guid: String,
    /// How it is.
    pub state: LeafState,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Reads that gave something else than was written.
    pub checksum_errors: u64,
    /// Bad copies that were rewritten from a good one.
    pub repaired: u64,
    /// The last error.
    pub last_error: Option<String>,
}

/// How a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LeafState {
    /// Holds everything.
    Online,
    /// A write failed just now.
    Failed,
    /// It missed writes, and is not used.
    Outdated,
    /// It was not found.
    Missing,
}

/// One vdev that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VdevRequest {
    /// How it keeps copies.
    pub kind: VdevKind,
    /// Its disks: absolute paths, or names below `/dev/disk/by-id` or `/dev`.
    pub disks: Vec<String>,
}

/// `POST /pools`: makes a pool and imports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Name.
    pub name: String,
    /// Its data vdevs.
    pub vdevs: Vec<VdevRequest>,
    /// Its log vdevs.
    #[serde(default)]
    pub logs: Vec<VdevRequest>,
    /// Properties of the pool's own dataset, which those below inherit.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Also take disks that hold something else.
    #[serde(default)]
    pub force: bool,
    /// Only say whether it would work.
    #[serde(default)]
    pub dry_run: bool,
    /// Make image files that do not exist, of this many bytes.
    #[serde(default)]
    pub create_bytes: Option<u64>,
}

/// `POST /pools/{name}/add`: more vdevs for a pool in service. So far only log vdevs can be added.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddVdevs {
    /// Data vdevs: refused by this version.
    #[serde(default)]
    pub vdevs: Vec<VdevRequest>,
    /// Log vdevs.
    #[serde(default)]
    pub logs: Vec<VdevRequest>,
    /// Also take disks that hold something else.
    #[serde(default)]
    pub force: bool,
    /// Only say whether it would work.
    #[serde(default)]
    pub dry_run: bool,
    /// Make image files that do not exist, of this many bytes.
    #[serde(default)]
    pub create_bytes: Option<u64>,
}

/// `POST /pools/{name}/remove`, `offline` and `online`: one disk of a pool in service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskRequest {
    /// The disk, as `pool status` shows it, by any other name that it has, or by its guid; a vdev
    /// by its name (`mirror-1`) where all of it is meant.
    pub disk: String,
}

/// `POST /pools/{name}/replace`: another disk in the place of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceDisk {
    /// The disk that goes.
    pub disk: String,
    /// The disk that comes.
    pub new: String,
    /// Take it also if it holds something else.
    #[serde(default)]
    pub force: bool,
    /// Make it, if it is an image file that does not exist, of this many bytes.
    #[serde(default)]
    pub create_bytes: Option<u64>,
}

/// What came of a [`CreatePool`] or of [`AddVdevs`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolCreated {
    /// Name.
    pub name: String,
    /// Nothing was done.
    pub dry_run: bool,
    /// The data vdevs that were or would be made, with the paths that were found.
    pub vdevs: Vec<VdevLayout>,
    /// The log vdevs.
    #[serde(default)]
    pub logs: Vec<VdevLayout>,
    /// What should be known.
    pub notes: Vec<String>,
}

/// A vdev as it was or would be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevLayout {
    /// How it keeps copies.
    pub kind: VdevKind,
    /// Paths of its disks.
    pub disks: Vec<String>,
    /// Size of its smallest disk.
    pub disk_bytes: u64,
}

/// `POST /scan`: which pools could be imported?
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScanRequest {
    /// Where to look instead of the usual places: directories, devices, image files.
    #[serde(default)]
    pub places: Vec<PathBuf>,
}

/// What a scan found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanResult {
    /// Pools that are not imported here.
    pub pools: Vec<FoundPool>,
    /// Disks with labels that cannot be used, and why.
    pub refused: Vec<String>,
}

/// A pool that was found on disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundPool {
    /// Name.
    pub name: String,
    /// Identity.
    pub guid: String,
    /// Whether all disks were found, or enough, or too few (`UNAVAIL`).
    pub health: Health,
    /// It was exported, so its log is empty.
    pub clean: bool,
    /// Its disks.
    pub vdevs: Vec<FoundVdev>,
}

/// A vdev of a pool that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundVdev {
    /// `mirror-0`, or the path of a single disk.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub class: VdevClass,
    /// How it keeps copies.
    pub kind: VdevKind,
    /// Whether it can be used.
    pub health: Health,
    /// Paths of its disks, and how they are.
    pub leaves: Vec<(String, LeafState)>,
}

/// `POST /import`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// Name or guid.
    pub pool: String,
    /// Where to look instead of the usual places.
    #[serde(default)]
    pub places: Vec<PathBuf>,
    /// Go back this many txgs (0 to 2), dropping them and the log.
    #[serde(default)]
    pub rewind: u64,
    /// End the log where it is damaged, dropping the rest.
    #[serde(default)]
    pub discard_log: bool,
    /// Do without a log device that is not there, dropping what only it holds.
    #[serde(default)]
    pub missing_log: bool,
    /// Take what the disks do not give while the log is replayed for damaged, dropping what the log
    /// says of it.
    #[serde(default)]
    pub discard_unreadable: bool,
    /// Take it although another host seems to use it.
    #[serde(default)]
    pub force: bool,
}

/// An import has dropped the log, or its end: what may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedLog {
    /// What was acknowledged in this txg or a later one.
    pub from_txg: u64,
    /// When the txg before was written: Unix time in nanoseconds. Changes of the next may have been
    /// acknowledged some seconds earlier.
    #[serde(default)]
    pub since_ns: u64,
    /// Txgs that were on disk were dropped too, by a rewind.
    #[serde(default)]
    pub rewound: bool,
    /// In these datasets: all that could be written to, but for those that promised nothing
    /// (`sync=disabled`); after a rewind all.
    pub datasets: Vec<String>,
}

impl DroppedLog {
    /// What may be missing by this loss and one of before.
    pub fn with(mut self, before: DroppedLog) -> DroppedLog {
        if before.from_txg < self.from_txg {
            (self.from_txg, self.since_ns) = (before.from_txg, before.since_ns);
        }
        self.rewound |= before.rewound;
        self.datasets.extend(before.datasets);
        self.datasets.sort();
        self.datasets.dedup();
        self
    }
}

impl fmt::Display for DroppedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DroppedLog { from_txg, since_ns, rewound, datasets } = self;
        let (since, datasets) = (time::text(*since_ns), datasets.join(", "));
        let (what, verb) = match rewound {
            true => ("an import went back", "are"),
            false => ("an import did without the log", "may be"),
        };
        write!(
            f,
            "{what}: changes acknowledged since txg {from_txg}, written at about {since}, {verb} \
             missing in {datasets}"
        )
    }
}

/// What came of an act on a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDone {
    /// Name.
    pub name: String,
    /// What should be known.
    pub notes: Vec<String>,
    /// What an import has dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_log: Option<DroppedLog>,
}

impl PoolDone {
    /// An act on a pool that lost nothing.
    pub fn new(name: &str, notes: Vec<String>) -> PoolDone {
        PoolDone { name: name.into(), notes, dropped_log: None }
    }
}

/// `POST /pools/{name}/destroy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyPool {
    /// The pool's name once more.
    pub confirm: String,
}
