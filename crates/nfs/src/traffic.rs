//! Traffic: calls and their latency, by procedure, by client, by file.
//!
//! A file here is a VM's disk. Every runtime of the daemon counts in a [`Meter`] of its own, and a
//! reader adds them up: cores share nothing on a call's path.
//!
//! Invariants:
//! - Time is an argument: there is no clock here.
//! - Memory is bounded ([`DISKS_MAX`], [`TRAFFIC_CLIENTS_MAX`]: 4 MiB in all). Only a new entry
//!   allocates, counting does not. The entry that was idle longest, roughly, makes room, and its
//!   counts move to `others`.
//! - Totals never fall: the counts of an entry that leaves a table are in `others` from then on.
//! - Only admitted calls are counted by file: a client cannot fill the table with made-up handles.

mod table;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use aquifer_files::FileHandle;
use aquifer_meter::Histogram;
use parking_lot::Mutex;

use crate::limits::{DISKS_MAX, TRAFFIC_CLIENTS_MAX};
use crate::proto::v3::{Args3, NfsFh3, Nfsstat3, Procedure3};
use table::Table;

#[cfg(test)]
mod tests;

/// A call and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The procedure.
    pub procedure: Procedure3,
    /// The status of the answer.
    pub status: Nfsstat3,
    /// The file whose content it read, wrote or committed, if the caller may use it.
    pub file: Option<FileHandle>,
    /// Bytes of content that were moved.
    pub bytes: u32,
}

/// A file in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskKey {
    /// File system.
    pub fs_guid: u64,
    /// File in it.
    pub object: u64,
}

/// Traffic in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// READ.
    pub reads: Stream,
    /// WRITE.
    pub writes: Stream,
    /// Other calls: of a file, COMMIT.
    pub others: u64,
    /// The time of these together, in nanoseconds.
    pub others_ns: u64,
    /// Calls of all kinds that were answered with an error.
    pub errors: u64,
}

/// One direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// Bytes of content.
    pub bytes: u64,
    /// Calls, and how long each took.
    pub latency: Histogram,
}

/// The traffic of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its client; of several, the last one on the runtime where the file is busiest.
    pub client: IpAddr,
    /// There were other clients.
    pub shared: bool,
    /// The traffic.
    pub flow: Flow,
}

/// One procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcedureCount {
    /// The procedure.
    pub procedure: Procedure3,
    /// Calls that were answered with an error status.
    pub failed: u64,
    /// All calls that were carried out, whatever their status, with the time of each.
    pub latency: Histogram,
}

/// All counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Every procedure, in RFC order.
    pub procedures: Vec<ProcedureCount>,
    /// Clients.
    pub clients: Vec<(IpAddr, Flow)>,
    /// Clients that made room for others.
    pub other_clients: Flow,
    /// Files.
    pub disks: Vec<(DiskKey, Disk)>,
    /// Files that made room for others.
    pub other_disks: Flow,
}

/// The meters of a server.
#[derive(Debug)]
pub struct Traffic {
    meters: Mutex<Vec<Arc<Meter>>>,
    /// Entries that tables may still take.
    disks_left: Arc<AtomicUsize>,
    clients_left: Arc<AtomicUsize>,
}

/// The counters of one runtime. Other threads only read: its lock is free except for moments.
#[derive(Debug)]
pub struct Meter(Mutex<Tables>);

#[derive(Debug)]
struct Tables {
    procedures: Vec<ProcedureCount>,
    clients: Table<IpAddr, Flow>,
    disks: Table<DiskKey, Disk>,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic {
            meters: Mutex::default(),
            disks_left: Arc::new(AtomicUsize::new(DISKS_MAX)),
            clients_left: Arc::new(AtomicUsize::new(TRAFFIC_CLIENTS_MAX)),
        }
    }
}

impl Traffic {
    /// A meter for one runtime.
    pub fn meter(&self) -> Arc<Meter> {
        let meter = Arc::new(Meter(Mutex::new(Tables {
            procedures: procedures(),
            clients: Table::new(&self.clients_left),
            disks: Table::new(&self.disks_left),
        })));
        self.meters.lock().push(Arc::clone(&meter));
        meter
    }

    /// The counts of all meters so far. An entry that leaves a table at this moment may be missing.
    pub fn look(&self) -> TrafficCounts {
        let mut counts = TrafficCounts { procedures: procedures(), ..Default::default() };
        let (mut clients, mut disks) = (table::Sums::default(), table::Sums::default());
        let meters = self.meters.lock().clone();
        for meter in meters {
            for (sum, one) in counts.procedures.iter_mut().zip(&meter.0.lock().procedures) {
                sum.failed += one.failed;
                sum.latency.add(&one.latency);
            }
            clients.add(&meter.0, |tables| &tables.clients);
            disks.add(&meter.0, |tables| &tables.disks);
        }
        (counts.clients, counts.other_clients) = clients.end();
        (counts.disks, counts.other_disks) = disks.end();
        counts
    }
}

impl Meter {
    /// Counts a call of `client` that took `ns` nanoseconds.
    pub fn record(&self, client: IpAddr, done: &Done, ns: u64) {
        let mut tables = self.0.lock();
        let index = usize::try_from(done.procedure.wire()).unwrap_or(usize::MAX);
        if let Some(procedure) = tables.procedures.get_mut(index) {
            procedure.latency.record(ns);
            procedure.failed += u64::from(done.status != Nfsstat3::Ok);
        }
        tables.clients.entry(client, Flow::default).record(done, ns);
        let Some(file) = done.file else { return };
        let new = || Disk { client, shared: false, flow: Flow::default() };
        let disk =
            tables.disks.entry(DiskKey { fs_guid: file.fs_guid.0, object: file.object.0 }, new);
        disk.shared |= disk.client != client;
        disk.client = client;
        disk.flow.record(done, ns);
    }
}

impl Flow {
    fn record(&mut self, done: &Done, ns: u64) {
        let stream = match done.procedure {
            Procedure3::Read => &mut self.reads,
            Procedure3::Write => &mut self.writes,
            _ => {
                self.others += 1;
                self.others_ns += ns;
                self.errors += u64::from(done.status != Nfsstat3::Ok);
                return;
            }
        };
        stream.bytes += u64::from(done.bytes);
        stream.latency.record(ns);
        self.errors += u64::from(done.status != Nfsstat3::Ok);
    }

    /// Calls of all kinds.
    pub fn calls(&self) -> u64 {
        self.reads.latency.count() + self.writes.latency.count() + self.others
    }

    /// The counts since `earlier`, an earlier state of the same ones; of calls and bytes all, if
    /// they are lower, as they were counted again from 0.
    pub fn since(&self, earlier: &Flow) -> Flow {
        let stream = |now: &Stream, then: &Stream| Stream {
            bytes: now.bytes.checked_sub(then.bytes).unwrap_or(now.bytes),
            latency: now.latency.since(&then.latency),
        };
        Flow {
            reads: stream(&self.reads, &earlier.reads),
            writes: stream(&self.writes, &earlier.writes),
            others: self.others.saturating_sub(earlier.others),
            others_ns: self.others_ns.saturating_sub(earlier.others_ns),
            errors: self.errors.saturating_sub(earlier.errors),
        }
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Flow) {
        let streams = [(&mut self.reads, &other.reads), (&mut self.writes, &other.writes)];
        for (sum, one) in streams {
            sum.bytes += one.bytes;
            sum.latency.add(&one.latency);
        }
        self.others += other.others;
        self.others_ns += other.others_ns;
        self.errors += other.errors;
    }
}

/// The file whose content a call is about, if the caller may use it.
pub(crate) fn file_of(args: &Args3<'_>, status: Nfsstat3) -> Option<FileHandle> {
    match args {
        Args3::Read(args) => content_of(&args.file, status),
        Args3::Write(args) => content_of(&args.head.file, status),
        Args3::Commit(args) => content_of(&args.file, status),
        _ => None,
    }
}

/// The file whose content a call, answered with `status`, was about.
pub(crate) fn content_of(handle: &NfsFh3, status: Nfsstat3) -> Option<FileHandle> {
    match status {
        Nfsstat3::BadHandle | Nfsstat3::Stale | Nfsstat3::Acces | Nfsstat3::Jukebox => None,
        // Not a regular file.
        Nfsstat3::IsDir | Nfsstat3::Inval => None,
        _ => FileHandle::decode(handle.bytes()),
    }
}

fn procedures() -> Vec<ProcedureCount> {
    let new = |procedure: &Procedure3| ProcedureCount {
        procedure: *procedure,
        failed: 0,
        latency: Histogram::default(),
    };
    Procedure3::ALL.iter().map(new).collect()
}
