//! Pools: their state, and the acts on them.

use std::collections::BTreeMap;

use aquifer_meter::time::text_s;
use serde::{Deserialize, Serialize};

use crate::alerts::Problem;
use crate::caches::CacheDiskInfo;
use crate::datasets::DamagedFile;
use crate::disks::{DiskInfo, SlowInfo};
use crate::drill::DrillInfo;
use crate::free_space::FreeWorkInfo;
use crate::pool_done::{DroppedLog, PoolDone};
use crate::replicate::ReplicationInfo;
use crate::request::{On, Operation, request};
use crate::scrub::ScrubInfo;
use crate::spares::SpareInfo;
use crate::words::Words;

/// `GET /pools`: all pools.
#[derive(Debug, Clone, Copy)]
pub struct PoolsQuery;

request!(Get "/pools", Read, PoolsQuery, () -> Vec<PoolSummary>);

/// One line of `pool list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolSummary {
    /// Name.
    pub name: String,
    /// Identity.
    pub guid: String,
    /// Its health.
    pub health: Health,
    /// Logical space of all data vdevs.
    pub size_bytes: u64,
    /// The part of it in use.
    pub allocated_bytes: u64,
    /// The available part of it.
    pub free_bytes: u64,
    /// The part in use that the background still frees: of destroyed datasets and snapshots, and of
    /// removed files.
    #[serde(default)]
    pub freeing_bytes: u64,
    /// Files that are partly unreadable, or lost changes.
    #[serde(default)]
    pub damaged_files: u64,
    /// The reason why it is not in service, or answers no changes, if that is so.
    pub reason: Option<String>,
}

/// The health of a pool or vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum Health {
    /// All disks are there and hold everything.
    Online,
    /// In service, with fewer copies than it should have.
    Degraded,
    /// It changes nothing until its disks are back and it is imported again.
    Suspended,
    /// It is being imported.
    Importing,
    /// It is on the list, but could not be imported.
    Unavail,
}

/// `GET /pools/{name}`: one pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolQuery;

request!(Get "/pools/{name}", Read, On<PoolQuery>, () -> PoolStatus);

/// `GET /pools/{name}`: everything `pool status` shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolStatus {
    /// The line of the list.
    #[serde(flatten)]
    pub summary: PoolSummary,
    /// Newest txg on disk.
    pub txg: u64,
    /// Bytes that were freed but are held back for the txgs that may still need them.
    pub held_bytes: u64,
    /// Metaslabs closed to allocation because their bitmap is damaged.
    pub closed_metaslabs: u64,
    /// Its vdevs.
    pub vdevs: Vec<VdevStatus>,
    /// Its spares.
    #[serde(default)]
    pub spares: Vec<SpareInfo>,
    /// Its cache disks.
    #[serde(default)]
    pub caches: Vec<CacheDiskInfo>,
    /// Notes of the import.
    pub import_notes: Vec<String>,
    /// Further notes, such as exports that do not work.
    pub notes: Vec<String>,
    /// Problems, a sentence for each, the worst first; `None` for a healthy pool.
    #[serde(default)]
    pub status: Option<String>,
    /// Remedies, with the commands to type; a line for each problem.
    pub action: Option<String>,
    /// Problems and remedies one by one, each problem with its code and how much it matters.
    #[serde(default)]
    pub problems: Vec<Problem>,
    /// The newest resilver since the import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan: Option<ResilverInfo>,
    /// The newest scrub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<ScrubInfo>,
    /// The newest drill since the import.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillInfo>,
    /// Files with losses: no copy could be read when they were to be changed.
    pub damaged: Vec<DamagedFile>,
    /// Datasets with `sync=disabled`.
    #[serde(default)]
    pub sync_disabled: Vec<SyncDisabled>,
    /// Possible losses of an import without its log device; stays until it is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_log: Option<DroppedLog>,
    /// Copies of its datasets, by the property `replicate`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replications: Vec<ReplicationInfo>,
}

/// A resilver of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResilverInfo {
    /// Path of the disk.
    pub disk: String,
    /// Whether it goes on, or how it ended.
    pub state: ScanState,
    /// Bytes of all that is copied to the disk, about; known for one that held nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Bytes copied to the disk so far.
    pub copied_bytes: u64,
    /// Blocks that no other disk gave: they are missing on this one.
    pub unread_blocks: u64,
    /// Milliseconds since it began, or that it took.
    pub took_ms: u64,
}

/// How a resilver stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ScanState {
    /// It goes on.
    Running,
    /// The disk is up to date.
    Done,
    /// The disk failed on the way. It is tried again.
    Failed,
}

/// A dataset with `sync=disabled`: a power cut or a crash loses changes that it acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SyncDisabled {
    /// Full name.
    pub dataset: String,
    /// The reason, in the words of the person who set it.
    pub reason: String,
}

/// One top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VdevStatus {
    /// `mirror-0`, or the path of a single disk.
    pub name: String,
    /// Its class.
    #[serde(default)]
    pub class: VdevClass,
    /// Its kind.
    pub kind: VdevKind,
    /// Logical space.
    pub size_bytes: u64,
    /// Its health.
    pub health: Health,
    /// Its disks.
    pub leaves: Vec<LeafStatus>,
}

/// The class of a vdev.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VdevClass {
    /// Blocks, and the intent log where there is no log vdev.
    #[default]
    Data,
    /// The intent log.
    Log,
}

/// The kind of a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum VdevKind {
    /// One disk.
    Single,
    /// Every disk holds all the data.
    Mirror,
}

/// One disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeafStatus {
    /// Its path, or the one where it was last seen.
    pub path: String,
    /// Identity.
    pub guid: String,
    /// Its state.
    pub state: LeafState,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Reads that returned other data than was written.
    pub checksum_errors: u64,
    /// Bad copies that were rewritten from a good one.
    pub repaired: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// It was in use apart from the pool, and has changes that are not here. It comes back only by
    /// an order that drops them.
    #[serde(default)]
    pub own_past: bool,
    /// It is a spare, and stands for the disk of this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare_for: Option<String>,
    /// The disk of this path leaves once this one holds everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// How much slower than its kind it is, if it is much slower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowInfo>,
    /// Its newest trim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trim: Option<FreeWorkInfo>,
    /// Its newest initialization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialize: Option<FreeWorkInfo>,
    /// It has refused a discard as unsupported.
    #[serde(default)]
    pub cannot_discard: bool,
    /// Identity and health of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskInfo>,
}

/// The state of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum LeafState {
    /// It holds all its data.
    Online,
    /// Disk that holds all its data, but had too many bad copies. It is in use, and they are
    /// mended.
    Degraded,
    /// It had too many errors, and is not used.
    Faulted,
    /// A write failed just now.
    Failed,
    /// It missed writes, and is not used.
    Outdated,
    /// It was not found.
    Missing,
    /// The administrator took it out of use.
    Offline,
    /// It takes all writes, and gets what it missed.
    Resilvering,
}

impl LeafState {
    /// Whether the disk holds all its data, and is used.
    pub fn is_in_use(self) -> bool {
        matches!(self, LeafState::Online | LeafState::Degraded)
    }
}

/// A requested vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct VdevRequest {
    /// Its kind.
    pub kind: VdevKind,
    /// Its disks: absolute paths, or names below `/dev/disk/by-id` or `/dev`.
    pub disks: Vec<String>,
}

/// Vdevs, as the command line names them.
fn vdevs(words: Words, vdevs: &[VdevRequest]) -> Words {
    vdevs.iter().fold(words, |words, vdev| {
        words.flag(vdev.kind == VdevKind::Mirror, "mirror").words(&vdev.disks)
    })
}

/// Disks that are no data vdevs.
fn helpers(words: Words, logs: &[VdevRequest], spares: &[String], caches: &[String]) -> Words {
    let words = vdevs(words.flag(!logs.is_empty(), "log"), logs);
    let words = words.flag(!spares.is_empty(), "spare").words(spares);
    words.flag(!caches.is_empty(), "cache").words(caches)
}

/// `POST /pools`: makes a pool and imports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Name.
    pub name: String,
    /// Its data vdevs.
    pub vdevs: Vec<VdevRequest>,
    /// Its log vdevs.
    #[serde(default)]
    pub logs: Vec<VdevRequest>,
    /// Its spares.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Its cache disks.
    #[serde(default)]
    pub caches: Vec<String>,
    /// Properties of the pool's own dataset, which those below inherit.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Also accept disks that hold something else.
    #[serde(default)]
    pub force: bool,
    /// Only check whether it would work.
    #[serde(default)]
    pub dry_run: bool,
    /// Make image files that do not exist, of this many bytes.
    #[serde(default)]
    pub create_bytes: Option<u64>,
    /// Until when holds stand on disks that it takes with force, in seconds since 1970, as the
    /// error says it: these snapshots are destroyed. It counts on the server's own socket alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until_s: Option<u64>,
}

request!(Post "/pools", Admin, CreatePool -> PoolCreated);

impl Operation for CreatePool {
    fn words(&self) -> String {
        let set = self.properties.iter().map(|(name, value)| format!("{name}={value}"));
        let words = Words::of("pool create")
            .flag(self.force, "-f")
            .options("-o", set)
            .option("--held-until", self.held_until_s.map(text_s))
            .option("--create-size", self.create_bytes.map(|bytes| bytes.to_string()))
            .word(&self.name);
        helpers(vdevs(words, &self.vdevs), &self.logs, &self.spares, &self.caches).text()
    }
}

/// `POST /pools/{name}/add`: more vdevs for a pool in service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AddVdevs {
    /// Data vdevs.
    #[serde(default)]
    pub vdevs: Vec<VdevRequest>,
    /// Log vdevs.
    #[serde(default)]
    pub logs: Vec<VdevRequest>,
    /// Spares.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Cache disks.
    #[serde(default)]
    pub caches: Vec<String>,
    /// Also accept disks that hold something else.
    #[serde(default)]
    pub force: bool,
    /// Only check whether it would work.
    #[serde(default)]
    pub dry_run: bool,
    /// Make image files that do not exist, of this many bytes.
    #[serde(default)]
    pub create_bytes: Option<u64>,
    /// Until when holds stand on disks that it takes with force, in seconds since 1970, as the
    /// error says it: these snapshots are destroyed. It counts on the server's own socket alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until_s: Option<u64>,
}

request!(Post "/pools/{name}/add", Admin, On<AddVdevs> -> PoolCreated);

impl Operation for On<AddVdevs> {
    fn words(&self) -> String {
        let AddVdevs { logs, spares, caches, force, create_bytes, .. } = &self.request;
        let words = Words::of("pool add").flag(*force, "-f");
        let words = words.option("--create-size", create_bytes.map(|bytes| bytes.to_string()));
        let words = vdevs(words.word(&self.name), &self.request.vdevs);
        helpers(words, logs, spares, caches).text()
    }
}

/// The result of a [`CreatePool`] or of [`AddVdevs`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolCreated {
    /// Name.
    pub name: String,
    /// It was a dry run: nothing was changed.
    pub dry_run: bool,
    /// The data vdevs that were or would be made, with the paths that were found.
    pub vdevs: Vec<VdevLayout>,
    /// The log vdevs.
    #[serde(default)]
    pub logs: Vec<VdevLayout>,
    /// The paths of the spares.
    #[serde(default)]
    pub spares: Vec<String>,
    /// The paths of the cache disks.
    #[serde(default)]
    pub caches: Vec<String>,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// A vdev that was or would be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VdevLayout {
    /// Its kind.
    pub kind: VdevKind,
    /// Paths of its disks.
    pub disks: Vec<String>,
    /// Size of its smallest disk.
    pub disk_bytes: u64,
}

/// `POST /pools/{name}/export`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExportPool {
    /// Within a bounded time, even if disks do not answer.
    #[serde(default)]
    pub force: bool,
}

request!(Post "/pools/{name}/export", Operator, On<ExportPool> -> PoolDone);

impl Operation for On<ExportPool> {
    fn words(&self) -> String {
        Words::of("pool export").flag(self.request.force, "--force").word(&self.name).text()
    }
}

/// `POST /pools/{name}/destroy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DestroyPool {
    /// The pool's name once more.
    pub confirm: String,
}

request!(Post "/pools/{name}/destroy", Admin, On<DestroyPool> -> PoolDone);

impl Operation for On<DestroyPool> {
    fn words(&self) -> String {
        Words::of("pool destroy").word(&self.name).text()
    }
}

/// `POST /pools/{name}/clear`: clears its notice of a loss and its errors, and looks for the disks
/// that it waits for.
#[derive(Debug, Clone, Copy)]
pub struct ClearPool;

request!(Post "/pools/{name}/clear", Operator, On<ClearPool>, () -> PoolDone);

impl Operation for On<ClearPool> {
    fn words(&self) -> String {
        Words::of("pool clear").word(&self.name).text()
    }
}
