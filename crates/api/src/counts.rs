//! The API's numbers: counts that only rise; clients take differences.
//!
//! Invariant: an answer gives the time when it was made, by the daemon's own clock (`uptime_ns`).
//! If counts or the uptime are lower than in an earlier answer, they have started again.

use std::collections::BTreeMap;

use aquifer_meter::Histogram;
use serde::{Deserialize, Serialize};

use crate::pools::{LeafState, VdevClass, VdevKind};
use crate::request::request;

/// Times of operations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Latency {
    /// The number of operations.
    pub count: u64,
    /// The sum of their times, in nanoseconds.
    pub total_ns: u64,
    /// For each bucket that is not empty: the shortest time that falls in it, in nanoseconds, and
    /// the number of operations. A bucket is a quarter of a power of two wide, from 1024 ns to 17.2
    /// s.
    pub buckets: Vec<(u64, u64)>,
}

/// One kind of operations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Count {
    /// Bytes that they moved.
    pub bytes: u64,
    /// Their number and times.
    pub latency: Latency,
}

/// `GET /iostat?pool=..`; without a pool, all pools in service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct IoQuery {
    /// Only this pool.
    #[serde(default)]
    pub pool: Option<String>,
}

request!(Get "/iostat", Read, IoQuery -> Vec<PoolIo>);

/// The work of a pool's disks since its import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolIo {
    /// Name.
    pub name: String,
    /// Time since the import.
    pub uptime_ns: u64,
    /// Bytes in use.
    pub allocated_bytes: u64,
    /// Bytes available.
    pub free_bytes: u64,
    /// The work of its vdevs, added up.
    pub io: DiskIo,
    /// The times of its txgs from closing to disk.
    pub txgs: Latency,
    /// The times of stable writes that ended while no txg was being synced.
    #[serde(default)]
    pub stable_writes: Latency,
    /// The times of those that ended while one was.
    #[serde(default)]
    pub stable_writes_in_sync: Latency,
    /// Its vdevs.
    pub vdevs: Vec<VdevIo>,
}

/// The work of a top-level vdev: each operation once, however many copies there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VdevIo {
    /// `mirror-0`, or the path of a single disk.
    pub name: String,
    /// Its class.
    #[serde(default)]
    pub class: VdevClass,
    /// Its kind.
    pub kind: VdevKind,
    /// Its work.
    pub io: DiskIo,
    /// Its disks.
    pub leaves: Vec<LeafIo>,
}

/// The work of a disk, its labels included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeafIo {
    /// Its path, or the one where it was last seen.
    pub path: String,
    /// Identity.
    pub guid: String,
    /// Its state.
    pub state: LeafState,
    /// Its work.
    pub io: DiskIo,
}

/// Operations that succeeded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskIo {
    /// Reads.
    pub reads: Count,
    /// Writes that a later flush makes durable.
    pub writes: Count,
    /// Writes that were durable when they completed: those of the intent log.
    pub durable_writes: Count,
    /// Flushes.
    pub flushes: Count,
}

/// `GET /nfs`: requests of clients.
#[derive(Debug, Clone, Copy)]
pub struct NfsQuery;

request!(Get "/nfs", Read, NfsQuery, () -> NfsStat);

/// `GET /nfs`: the requests of clients since NFS began to listen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NfsStat {
    /// Time since it began to listen; 0 if it does not.
    pub uptime_ns: u64,
    /// NFSv3's procedures, in RFC order. A call's time starts when its last byte was read from the
    /// socket, and ends when its reply is ready.
    pub procedures: Vec<ProcedureStat>,
    /// Connections and their load.
    pub load: NfsLoad,
    /// By client.
    pub clients: Vec<ClientStat>,
    /// Clients that made room for more active ones.
    pub other_clients: Flow,
    /// By file: each is a VM's disk.
    pub disks: Vec<DiskStat>,
    /// Files that made room for more active ones.
    pub other_disks: Flow,
}

/// One procedure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcedureStat {
    /// Its name in RFC 1813, in lower case: `read`.
    pub name: String,
    /// Calls that were answered with an error status.
    pub errors: u64,
    /// All calls that were carried out.
    pub latency: Latency,
}

/// Connections and their load.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NfsLoad {
    /// Open now.
    pub connections: u64,
    /// Open ones whose calls no export accepts as they come.
    #[serde(default)]
    pub in_lobby: u64,
    /// Accepted.
    pub accepted: u64,
    /// Closed at once because there were too many.
    pub turned_away: u64,
    /// Times that none could be accepted, because the process had no file descriptor left.
    #[serde(default)]
    pub accept_failures: u64,
    /// Requests of all programs.
    pub requests: u64,
    /// Requests that could not be answered at once.
    pub requests_waited: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Connections closed because their slowness delayed others.
    pub closed_as_slow: u64,
    /// Connections closed because they sent something that is no RPC.
    pub protocol_errors: u64,
    /// Requests that panicked: bugs of ours.
    pub panics: u64,
    /// Memory that requests take now.
    pub request_bytes: u64,
    /// Memory that replies take now.
    pub reply_bytes: u64,
    /// Times that a connection waited for memory of either.
    #[serde(default)]
    pub memory_waits: u64,
    /// Whether both would have more with a larger setting `memory`.
    #[serde(default)]
    pub memory_bound: bool,
    /// Calls of the MOUNT program.
    pub mount_calls: u64,
    /// Calls of the portmapper on our ports.
    pub portmap_calls: u64,
    /// Calls of the lock manager and the status monitor.
    pub lock_calls: u64,
    /// Calls that RPC refused: an unknown program, version or procedure, and the like.
    pub refused_calls: u64,
}

/// Traffic in both directions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flow {
    /// READ.
    pub reads: Count,
    /// WRITE.
    pub writes: Count,
    /// Other calls; for a file, COMMIT.
    pub others: u64,
    /// The sum of their times.
    pub others_ns: u64,
    /// Calls of all kinds that were answered with an error.
    pub errors: u64,
}

/// One client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientStat {
    /// Its address.
    pub client: String,
    /// Its traffic.
    #[serde(flatten)]
    pub flow: Flow,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskStat {
    /// Identity of its file system.
    pub fs_guid: String,
    /// Its number there.
    pub object: u64,
    /// Full name of the dataset; empty if that was destroyed.
    pub dataset: String,
    /// Its path there, or `#` and its number if no path was found.
    pub file: String,
    /// Its client; of several, one.
    pub client: String,
    /// There were other clients.
    pub shared: bool,
    /// Its traffic.
    #[serde(flatten)]
    pub flow: Flow,
}

/// `GET /events?after=..&wait_ms=..`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Only those after this one.
    #[serde(default)]
    pub after: u64,
    /// If there are none, wait this long for one; at most 60,000.
    #[serde(default)]
    pub wait_ms: u64,
}

request!(Get "/events", Read, EventQuery -> Vec<Event>);

/// `GET /pools/{name}/events`: the events that a pool has kept.
#[derive(Debug, Clone, Copy)]
pub struct KeptEventsQuery;

request!(Get "/pools/{name}/events", Read, On<KeptEventsQuery>, () -> Vec<Event>);

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Its number since the daemon started, from 1 on.
    pub sequence: u64,
    /// When: nanoseconds since 1970 UTC.
    pub wall_ns: u64,
    /// `error`, `warn`, `info` or `debug`, as in the log.
    pub level: String,
    /// Its class, for programs: `disk.failed`.
    pub class: String,
    /// Its text, for people.
    pub message: String,
    /// Its details, by name.
    pub fields: BTreeMap<String, String>,
}

impl Latency {
    /// The histogram that it was made from.
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
