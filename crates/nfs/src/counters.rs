//! Counts of calls of the programs beside NFSv3, and of calls that RPC refused. [`crate::traffic`]
//! counts NFSv3's calls, by client and file.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start. They only rise; a reader takes differences.
#[derive(Debug, Default)]
pub struct Counters {
    mount: AtomicU64,
    portmap: AtomicU64,
    locks: AtomicU64,
    refused: AtomicU64,
}

impl Counters {
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

    /// Calls that RPC refused: an unknown program, version or procedure, arguments that do not
    /// decode, or credentials that are not accepted.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
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
