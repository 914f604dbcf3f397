//! The API's types: every request and every answer, as JSON over HTTP.
//!
//! # What holds
//! - Additive only: fields and values are added, never renamed, removed or given another meaning.
//! - A request with a field that the daemon does not know is refused: what it asks for (to be
//!   forced, to be rewound) must not be dropped silently. Answers may carry fields that an older
//!   client does not know.
//! - Sizes are bytes; a guid is 16 hexadecimal digits, since JSON's numbers do not hold 64 bits.

mod counts;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use aquifer_ondisk::Guid;
use serde::{Deserialize, Serialize};

pub use counts::{
    ClientStat, Count, DiskIo, DiskStat, Event, EventQuery, Flow, IoQuery, Latency, LeafIo,
    NfsLoad, NfsStat, PoolIo, ProcedureStat, VdevIo,
};

/// `GET /daemon`: who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Version of the software.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Where it keeps the list of its pools.
    pub state_dir: PathBuf,
    /// Memory of each pool's engine at most.
    pub memory_bytes: u64,
    /// Pools of the last run are still being imported.
    pub starting: bool,
    /// What clients are told: where NFS listens, or why it does not.
    pub nfs: NfsInfo,
}

/// The NFS side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfsInfo {
    /// Addresses and ports that are listened on.
    pub listening: Vec<String>,
    /// What keeps it, or a pool, from being served.
    pub notes: Vec<String>,
}

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
}

/// One top-level vdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevStatus {
    /// `mirror-0`, or the path of a single disk.
    pub name: String,
    /// How it keeps copies.
    pub kind: VdevKind,
    /// Logical space.
    pub size_bytes: u64,
    /// How it is.
    pub health: Health,
    /// Its disks.
    pub leaves: Vec<LeafStatus>,
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
    /// Its vdevs.
    pub vdevs: Vec<VdevRequest>,
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

/// What came of a [`CreatePool`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolCreated {
    /// Name.
    pub name: String,
    /// Nothing was done.
    pub dry_run: bool,
    /// Its layout, with the paths that were found.
    pub vdevs: Vec<VdevLayout>,
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
}

/// What came of an act on a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDone {
    /// Name.
    pub name: String,
    /// What should be known.
    pub notes: Vec<String>,
}

/// `POST /pools/{name}/destroy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyPool {
    /// The pool's name once more.
    pub confirm: String,
}

/// `POST /datasets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateDataset {
    /// Full name: `tank/vms`.
    pub name: String,
    /// Properties of its own.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}

/// `POST /datasets/set`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetProperties {
    /// Full name.
    pub name: String,
    /// New values; none goes back to the inherited one.
    pub properties: BTreeMap<String, Option<String>>,
}

/// A file that is damaged. It gives I/O errors until it is cleared or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedFile {
    /// Full name of its dataset.
    pub dataset: String,
    /// Its path in the dataset, or `#` and its number if it has none that could be found.
    pub file: String,
    /// The txg in which it was met.
    pub txg: u64,
    /// Bytes whose newest content is lost.
    pub lost_bytes: u64,
    /// What could not be read.
    pub error: String,
}

/// `POST /datasets/destroy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyDataset {
    /// Full name.
    pub name: String,
    /// The name once more.
    pub confirm: String,
    /// With all datasets below it.
    #[serde(default)]
    pub recursive: bool,
}

/// `POST /datasets/clear`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearDamage {
    /// Full name of the dataset.
    pub name: String,
    /// The damaged file, as `pool status` shows it.
    pub file: String,
}

/// What came of an act on a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetDone {
    /// Full name.
    pub name: String,
    /// What should be known.
    pub notes: Vec<String>,
}

/// One dataset, in `GET /datasets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetInfo {
    /// Full name.
    pub name: String,
    /// What it and those below refer to.
    pub used_bytes: u64,
    /// What can be written to it.
    pub available_bytes: u64,
    /// What it refers to itself.
    pub refer_bytes: u64,
    /// The path that clients mount, if it is exported.
    pub nfs_path: Option<String>,
    /// Its properties.
    pub properties: Vec<PropertyValue>,
}

/// A property's value in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyValue {
    /// Name.
    pub name: String,
    /// Value; sizes in bytes.
    pub value: String,
    /// `local`, `default`, `inherited from DATASET`, or `-` for what cannot be set.
    pub source: String,
}

/// `GET /datasets?name=..&recursive=..`; without a name, all of all pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetQuery {
    /// Only this one.
    #[serde(default)]
    pub name: Option<String>,
    /// And those below it.
    #[serde(default)]
    pub recursive: bool,
}

/// `GET /locks`: locks of files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocksInfo {
    /// The daemon has just started: only locks from before are granted.
    pub grace: bool,
    /// All locks, by file.
    pub locks: Vec<LockInfo>,
}

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockInfo {
    /// The file's dataset; empty if it is not in service.
    pub dataset: String,
    /// The file's path in it, if one was found.
    pub file: Option<String>,
    /// The file's number (`ls -i`).
    pub object: u64,
    /// The client, as it names itself.
    pub client: String,
    /// Where it is.
    pub address: IpAddr,
    /// The process there, by the client's own count.
    pub svid: i32,
    /// What else the client names the owner by.
    pub owner: String,
    /// What it excludes.
    pub extent: LockExtent,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 reaches to the end.
    pub length: u64,
    /// `held`, `granting` (the client who waited is being told) or `waiting`.
    pub state: String,
}

/// What a lock excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockExtent {
    /// Exclusive locks.
    Shared,
    /// All locks.
    Exclusive,
    /// Opening (DOS): bit 0 is reading, bit 1 writing.
    Reservation {
        /// What the owner does.
        access: u32,
        /// What others must not do.
        deny: u32,
    },
}

/// One export, in `GET /shares`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareInfo {
    /// The path that clients mount.
    pub path: String,
    /// Full name of the dataset.
    pub dataset: String,
    /// All options in force, as `sharenfs` takes them.
    pub options: String,
    /// Where the dataset has them from.
    pub source: String,
    /// The hosts that they name, as they are known now.
    pub hosts: Vec<HostInfo>,
    /// Why it is not exported.
    pub problem: Option<String>,
}

/// What is known of a host that an export names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInfo {
    /// Its name.
    pub name: String,
    /// Its addresses, by the last good answer.
    pub addresses: Vec<IpAddr>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

/// `GET /shares/why?host=..&path=..`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareQuery {
    /// A client's address or name.
    pub host: String,
    /// A path as clients mount it, or a dataset.
    pub path: String,
}

/// What a host may do at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareWhy {
    /// Who.
    pub host: String,
    /// Where.
    pub path: String,
    /// One for each address of the host.
    pub answers: Vec<ShareAnswer>,
}

/// What a client may do at a path, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareAnswer {
    /// The client.
    pub address: IpAddr,
    /// What it may do.
    pub access: ShareAccess,
    /// The export that covers the path.
    pub export: Option<String>,
    /// Its dataset.
    pub dataset: Option<String>,
    /// The dataset's property.
    pub sharenfs: Option<String>,
    /// Where the dataset has it from.
    pub source: Option<String>,
    /// The rule that decided; none, if no rule names the client.
    pub rule: Option<String>,
    /// The reasons, for people; the one that decided first.
    pub why: Vec<String>,
}

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShareAccess {
    /// Read and write.
    ReadWrite,
    /// Read.
    ReadOnly,
    /// Nothing.
    Refused,
    /// Nothing as yet: hosts are still to be looked up.
    Waits,
}

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// What kind of failure, for programs.
    pub kind: ErrorKind,
    /// What happened and what to do, for people.
    pub message: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// What is asked for makes no sense.
    Invalid,
    /// There is no such thing.
    NotFound,
    /// There is one already, or it is in another state.
    Conflict,
    /// It would destroy something, and was not forced.
    Refused,
    /// It was tried, and failed.
    Failed,
    /// Whoever asks did not show that they may.
    Unauthorized,
}

/// A guid as the API writes it.
pub fn guid_text(guid: Guid) -> String {
    format!("{:016x}", guid.0)
}

/// The guid of a text that [`guid_text`] wrote.
pub fn guid_of(text: &str) -> Option<Guid> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok().map(Guid))?
}

impl ApiError {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        ApiError { kind, message }
    }

    /// What is asked for makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// There is one already, or it is in another state.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// It would destroy something.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// It was tried, and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// Whoever asks did not show that they may.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unauthorized, message)
    }
}
