//! The API's types, every request and every answer, as JSON over HTTP; and its client ([`client`]).
//! Types of the engine do not occur here: the daemon converts them.
//!
//! # Invariants
//! - Additive only, below [`PATH`]: fields and values are added, never renamed, removed or given
//!   another meaning.
//! - A request with a field that the daemon does not know is refused: its meaning (such as force or
//!   rewind) must not be dropped silently. Answers may have fields that an older client does not
//!   know.
//! - Sizes are bytes; a guid is 16 hexadecimal digits, since JSON's numbers do not hold 64 bits.

mod access;
mod alerts;
mod bookmarks;
mod caches;
pub mod client;
pub mod codes;
mod confirmations;
mod connect;
mod counts;
mod datasets;
mod diff;
mod disk_acts;
mod disks;
mod drill;
mod free_space;
mod history;
mod imports;
#[cfg(debug_assertions)]
mod inject;
pub mod keys;
mod load;
mod locks;
mod memory;
mod names;
mod pool_done;
mod pools;
mod pull;
mod replicate;
mod request;
mod role;
mod scrub;
pub mod send;
mod shares;
pub mod shown;
mod snapshots;
mod spares;
mod words;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use aquifer_meter::time;

use request::request;

pub use access::{
    BindToken, CreateToken, LogIn, RevokeToken, RotateToken, SessionInfo, SessionQuery, TokenInfo,
    TokenMade, TokensQuery,
};
pub use alerts::{
    ActiveAlert, AlertsInfo, AlertsQuery, OutletInfo, OutletKind, Problem, Severity, TestAlerts,
    TestedOutlet,
};
pub use bookmarks::{BookmarkInfo, BookmarkQuery, BookmarksDone, DestroyBookmarks, MakeBookmark};
pub use caches::{CacheDiskInfo, CacheDiskState};
pub use confirmations::{
    AfterWait, ConfirmAct, ConfirmationsQuery, Confirmed, RefuseAct, WaitingAct,
};
pub use connect::{ConnectAdvice, ConnectQuery, Hypervisor};
pub use counts::{
    ClientStat, Count, DiskIo, DiskStat, Event, EventQuery, Flow, IoQuery, KeptEventsQuery,
    Latency, LeafIo, NfsLoad, NfsQuery, NfsStat, PoolIo, ProcedureStat, VdevIo,
};
pub use datasets::{
    ClearDamage, CloneSnapshot, CreateDataset, DamagedFile, DatasetDone, DatasetInfo, DatasetQuery,
    DestroyDataset, Promote, Promoted, PropertyValue, RenameDataset, SetProperties,
};
pub use diff::{
    ChangedName, ChangedNames, ChangedRange, ChangedRanges, DiffQuery, FileType, NameChange,
    RangesQuery,
};
pub use disk_acts::{
    AttachDisk, ClearDisk, DetachDisk, DiskRequest, OfflineDisk, OnlineDisk, RemoveDisk,
    ReplaceDisk,
};
pub use disks::{DiskInfo, SlowInfo, SmartInfo};
pub use drill::{DrillInfo, DrillPhase, DrillRequest, DrillState, DrillStep};
pub use free_space::{FreeWork, FreeWorkAct, FreeWorkInfo, FreeWorkRequest, FreeWorkState};
pub use history::{HISTORY_ITSELF, HistoryChange, HistoryEntry, HistoryOutcome, HistoryQuery};
pub use imports::{FoundPool, FoundVdev, ImportRequest, ScanRequest, ScanResult};
#[cfg(debug_assertions)]
pub use inject::{InjectRequest, Share};
pub use load::{
    LoadColumns, LoadQuery, LoadSeries, LoadSpan, LoadSum, LoadedDisk, LoadedDisksQuery,
};
pub use locks::{ClearLocks, ClearedLocks, LockExtent, LockInfo, LocksInfo, LocksQuery};
pub use memory::{CacheClass, CacheStat, MemoryQuery, MemoryStat, PoolMemory};
pub use names::{
    BadDatasetName, BadSnapshotName, DatasetName, SNAPSHOT_NAME_BYTES_MAX, SnapshotName,
};
pub use pool_done::{DroppedLog, PoolDone};
pub use pools::{
    AddVdevs, ClearPool, CreatePool, DestroyPool, ExportPool, Health, LeafState, LeafStatus,
    PoolCreated, PoolQuery, PoolStatus, PoolSummary, PoolsQuery, ResilverInfo, ScanState,
    SyncDisabled, VdevClass, VdevKind, VdevLayout, VdevRequest, VdevStatus,
};
pub use pull::{
    PULLED_MAX, PrunePull, PullKnown, PullQuery, PullSource, PullTaken, SettlePull, TakePull,
};
pub use replicate::{
    CopyInfo, ReplicateRequest, ReplicationBegun, ReplicationInfo, ReplicationQuery,
    ReplicationState, StopReplication, peer_of,
};
#[cfg(feature = "schema")]
pub use request::Schema;
pub use request::{ApiRequest, Method, On, Operation, Types};
pub use role::Role;
pub use scrub::{RepairedFile, ScrubAct, ScrubInfo, ScrubRequest, ScrubState};
pub use send::{
    GiveUpReceive, ReceiveBegun, ReceiveEnd, ReceiveInfo, ReceiveRequest, ReceiveSummary,
    ReceivedPart, ReceivesQuery, SendQuery, SentPart,
};
pub use shares::{
    HostInfo, ShareAccess, ShareAnswer, ShareInfo, ShareQuery, ShareWhy, SharesQuery,
};
pub use snapshots::{
    COUNTED_SNAPSHOTS_MAX, DestroySnapshots, HoldInfo, HoldQuery, HoldSnapshots, ReleaseSnapshots,
    RenameSnapshot, RollBack, RolledBack, SnapshotInfo, SnapshotQuery, SnapshotsDestroyed,
    SnapshotsDone, TakeSnapshots,
};
pub use spares::{SpareInfo, SpareState};

/// Where the API's paths begin, of version 1; the types name them from there on.
pub const PATH: &str = "/v1";

/// `GET /daemon`: the daemon.
#[derive(Debug, Clone, Copy)]
pub struct DaemonQuery;

request!(Get "/daemon", Read, DaemonQuery, () -> DaemonInfo);

/// `GET /daemon`: the daemon's own data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DaemonInfo {
    /// Version of the software.
    pub version: String,
    /// The commit that it was built from, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Its process id.
    pub pid: u32,
    /// The directory with the list of its pools.
    pub state_dir: PathBuf,
    /// Memory that all pools and NFS may take together.
    pub memory_bytes: u64,
    /// Pools of the last run are still being imported.
    pub starting: bool,
    /// The NFS side: where it listens, or why it does not.
    pub nfs: NfsInfo,
    /// Problems of the server beside those of its pools, the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
}

/// The NFS side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NfsInfo {
    /// Addresses and ports that are listened on.
    pub listening: Vec<String>,
    /// Reasons why NFS, or a pool, is not served.
    pub notes: Vec<String>,
}

/// The reason why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{message}")]
pub struct ApiError {
    /// The kind of failure, for programs.
    pub kind: ErrorKind,
    /// Message for people: what happened and what to do.
    pub message: String,
    /// It was asked for from outside the datasets for which a token counts. The caller does not
    /// hear whether it exists; audit lines have it.
    #[serde(skip)]
    pub is_outside: bool,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is not valid.
    Invalid,
    /// The requested thing does not exist.
    NotFound,
    /// It exists already, or is in another state.
    Conflict,
    /// It would destroy data, and was not forced.
    Refused,
    /// The act was tried, and failed.
    Failed,
    /// The caller has not proven its identity.
    Unauthorized,
    /// The caller is known, but may not do this.
    Forbidden,
    /// Nothing is done yet: it waits for a second person.
    NeedsSecond,
}

/// A guid as the API writes it.
pub fn guid_text(guid: u64) -> String {
    format!("{guid:016x}")
}

/// The guid of a text that [`guid_text`] wrote.
pub fn guid_of(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}

impl ApiError {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        ApiError { kind, message, is_outside: false }
    }

    /// The request is not valid.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// The requested thing does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// It exists already, or is in another state.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// It would destroy data.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// The act was tried, and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// The caller has not proven its identity.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unauthorized, message)
    }

    /// The caller is known, but may not do this.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Forbidden, message)
    }

    /// It waits for a second person.
    pub fn needs_second(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NeedsSecond, message)
    }
}
