//! The API's numbers: counts that only rise, for whoever takes differences.
//!
//! What holds: an answer says by its own clock (`uptime_ns`) when it was made. Counts that are
//! lower than in an earlier answer, or an uptime that is, have begun anew.

use std::collections::BTreeMap;

use aquifer_meter::Histogram;
use serde::{Deserialize, Serialize};

use crate::{LeafState, VdevClass, VdevKind};

/// How long things took.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How many there were.
    pub count: u64,
    /// How long all took together, in nanoseconds.
    pub total_ns: u64,
    /// Of each bucket that is not empty: the least time that falls in it, in nanoseconds, and how
    /// many did. A bucket is a quarter of a power of two wide, from 1024 ns to 17.2 s.
    pub buckets: Vec<(u64, u64)>,
}

/// One kind of operations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Bytes that they moved.
    pub bytes: u64,
    /// How many there were, and how long each took.
    pub latency: Latency,
}

/// `GET /iostat?pool=..`; without a pool, of all in service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoQuery {
    /// Only this one.
    #[serde(default)]
    pub pool: Option<String>,
}

/// What a pool's disks did since its import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolIo {
    /// Name.
    pub name: String,
    /// Since the import.
    pub uptime_ns: u64,
    /// In use.
    pub allocated_bytes: u64,
    /// To be had.
    pub free_bytes: u64,
    /// What its vdevs did, added up.
    pub io: DiskIo,
    /// How long its txgs took to come to disk.
    pub txgs: Latency,
    /// How long stable writes took that ended while no txg was on its way to disk.
    #[serde(default)]
    pub stable_writes: Latency,
    /// Those that ended while one was.
    #[serde(default)]
    pub stable_writes_in_sync: Latency,
    /// Its vdevs.
    pub vdevs: Vec<VdevIo>,
}

/// What a top-level vdev did: each operation once, however many copies there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevIo {
    /// `mirror-0`, or the path of a single disk.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub class: VdevClass,
    /// How it keeps copies.
    pub kind: VdevKind,
    /// What it did.
    pub io: DiskIo,
    /// Its disks.
    pub leaves: Vec<LeafIo>,
}

/// What a disk did, its labels included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafIo {
    /// Where it is, or was last seen.
    pub path: String,
    /// Identity.
    pub guid: String,
    /// How it is.
    pub state: LeafState,
    /// What it did.
    pub io: DiskIo,
}

/// Operations that succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskIo {
    /// Reads.
    pub reads: Count,
    /// Writes that were to be made durable later, by a flush.
    pub writes: Count,
    /// Writes that were durable when they completed: those of the intent log.
    pub durable_writes: Count,
    /// Flushes.
    pub flushes: Count,
}

/// `GET /nfs`: what clients asked for since NFS began to listen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfsStat {
    /// Since it began to listen; 0 if it does not.
    pub uptime_ns: u64,
    /// NFSv3's procedures, in RFC order. A call's time is from the moment when the last of it was
    /// read from the socket to that when its reply stood ready.
    pub procedures: Vec<ProcedureStat>,
    /// Connections and what came over them.
    pub load: NfsLoad,
    /// By client.
    pub clients: Vec<ClientStat>,
    /// Clients that made room for more active ones.
    pub other_clients: Flow,
    /// By file: what a VM sees as its disk.
    pub disks: Vec<DiskStat>,
    /// Files that made room for more active ones.
    pub other_disks: Flow,
}

/// One procedure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcedureStat {
    /// In RFC 1813's words, small: `read`.
    pub name: String,
    /// Answered with an error status.
    pub errors: u64,
    /// All that were carried out.
    pub latency: Latency,
}

/// Connections, and what came over them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NfsLoad {
    /// Open now.
    pub connections: u64,
    /// Of these, the ones that no export takes calls of as they come.
    #[serde(default)]
    pub in_lobby: u64,
    /// Accepted.
    pub accepted: u64,
    /// Closed at once because there were too many.
    pub turned_away: u64,
    /// Times that none could be accepted: the process had no file to give.
    #[serde(default)]
    pub accept_failures: u64,
    /// Requests of all programs.
    pub requests: u64,
    /// Those of them that could not be answered at once.
    pub requests_waited: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Connections closed because their slowness held others up.
    pub closed_as_slow: u64,
    /// Connections closed because what they sent is no RPC.
    pub protocol_errors: u64,
    /// Requests that panicked: bugs of ours.
    pub panics: u64,
    /// Memory that requests have now.
    pub request_bytes: u64,
    /// Memory that replies have now.
    pub reply_bytes: u64,
    /// Calls of the MOUNT program.
    pub mount_calls: u64,
    /// Calls of the portmapper on our ports.
    pub portmap_calls: u64,
    /// Calls of the lock manager and the status monitor.
    pub lock_calls: u64,
    /// Calls that RPC refused: no such program, version or procedure, and the like.
    pub refused_calls: u64,
}

/// What went to and fro.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// READ.
    pub reads: Count,
    /// WRITE.
    pub writes: Count,
    /// Other calls; of a file, COMMIT.
    pub others: u64,
    /// How long these took together.
    pub others_ns: u64,
    /// Calls of all kinds that were answered with an error.
    pub errors: u64,
}

/// One client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStat {
    /// Its address.
    pub client: String,
    /// What it asked for.
    #[serde(flatten)]
    pub flow: Flow,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStat {
    /// Identity of its file system.
    pub fs_guid: String,
    /// Its number there.
    pub object: u64,
    /// Full name of the dataset; empty if that was destroyed.
    pub dataset: String,
    /// Its path there, or `#` and its number if none was found.
    pub file: String,
    /// Who uses it; of several, one.
    pub client: String,
    /// There were others.
    pub shared: bool,
    /// What was asked of it.
    #[serde(flatten)]
    pub flow: Flow,
}

/// `GET /events?after=..&wait_ms=..`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Only those after this one.
    #[serde(default)]
    pub after: u64,
    /// If there are none, wait for so long that there be one; at most 60,000.
    #[serde(default)]
    pub wait_ms: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number since the daemon started, from 1 on.
    pub sequence: u64,
    /// When: nanoseconds since 1970 UTC.
    pub wall_ns: u64,
    /// `error`, `warn`, `info` or `debug`, as in the log.
    pub level: String,
    /// What it is, for programs: `disk.failed`.
    pub class: String,
    /// What it is, for people.
    pub message: String,
    /// What it is about.
    pub fields: BTreeMap<String, String>,
}

impl Latency {
    /// As what it was made from.
    pub fn histogram(&self) -> Histogram {
        Histogram::of(self.total_ns, self.buckets.iter().copied())
    }
}

impl From<&Histogram> for Latency {
    fn from(histogram: &Histogram) -> Self {
        Latency {
            count: histogram.count(),
            total_ns: histogram.total_ns(),
            buckets: histogram.buckets().collect(),
        }
    }
}
