//! How often each procedure was called, and how often it failed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::proto::v3::{Nfsstat3, Procedure3};

/// Counts since the start. They only rise; a reader takes differences.
#[derive(Debug, Default)]
pub struct Counters {
    nfs3: [Procedure; PROCEDURES],
    mount: AtomicU64,
    portmap: AtomicU64,
    locks: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Procedure {
    calls: AtomicU64,
    failed: AtomicU64,
}

/// The counts of one procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcedureCount {
    /// Which.
    pub procedure: Procedure3,
    /// Calls that were carried out, whatever came of them.
    pub calls: u64,
    /// Those of them that were answered with an error status.
    pub failed: u64,
}

impl Counters {
    /// The counts of NFSv3's procedures, in RFC order.
    pub fn nfs3(&self) -> Vec<ProcedureCount> {
        let each = Procedure3::ALL.iter().zip(&self.nfs3);
        each.map(|(procedure, counted)| ProcedureCount {
            procedure: *procedure,
            calls: counted.calls.load(Ordering::Relaxed),
            failed: counted.failed.load(Ordering::Relaxed),
        })
        .collect()
    }

    /// Calls of the MOUNT program.
    pub fn mount(&self) -> u64 {
        self.mount.load(Ordering::Relaxed)
    }

    /// Calls of the portmapper on our ports.
    pub fn portmap(&self) -> u64 {
        self.portmap.load(Ordering::Relaxed)
    }

    /// Calls of the lock manager and the status monitor.
    pub fn locks(&self) -> u64 {
        self.locks.load(Ordering::Relaxed)
    }

    /// Calls that RPC refused: no such program, version or procedure, arguments that do not
    /// decode, credentials that are not accepted.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn count_nfs3(&self, procedure: Procedure3, status: Nfsstat3) {
        let index = usize::try_from(procedure.wire()).unwrap_or(usize::MAX);
        let Some(counted) = self.nfs3.get(index) else { return };
        counted.calls.fetch_add(1, Ordering::Relaxed);
        if status != Nfsstat3::Ok {
            counted.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_mount(&self) {
        self.mount.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_portmap(&self) {
        self.portmap.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_locks(&self) {
        self.locks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

const PROCEDURES: usize = Procedure3::ALL.len();
