//! A leaf: one disk, its state, and its counters.

use std::sync::Arc;

use aquifer_blockio::{Disk, DiskError, Page, SECTOR_BYTES, World};
use aquifer_ondisk::Guid;
use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::io::{IoCounters, IoKind};

/// The state of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LeafState {
    /// Holds everything committed.
    Online = 0,
    /// A write or flush failed; no uberblock says so yet, so nothing may be acknowledged.
    Failed = 1,
    /// An uberblock names it outdated: it missed writes.
    Outdated = 2,
    /// It was not found at import; an uberblock will name it outdated.
    Missing = 3,
}

/// Errors on one leaf since import.
#[derive(Debug, Default)]
pub struct LeafCounters {
    /// Reads that failed.
    pub read_errors: AtomicU64,
    /// Writes and flushes that failed.
    pub write_errors: AtomicU64,
    /// Reads whose content differed from the written one.
    pub checksum_errors: AtomicU64,
    /// Bad copies that were rewritten from a good one.
    pub repaired: AtomicU64,
}

/// One disk of a pool.
#[derive(Debug)]
pub struct Leaf {
    /// Its identity.
    pub guid: Guid,
    /// Where it is, or was last seen.
    pub path: String,
    /// What went wrong.
    pub counters: LeafCounters,
    /// Its operations.
    pub io: IoCounters,
    disk: Option<Arc<dyn Disk>>,
    state: AtomicU8,
    last_error: Mutex<Option<String>>,
    /// Sequence of the last uberblock that is durable on it.
    pub uberblock_sequence: AtomicU64,
}

impl Leaf {
    /// A leaf on `disk`; without one it is missing. `clock` times its operations.
    pub fn new(
        guid: Guid,
        path: String,
        disk: Option<Arc<dyn Disk>>,
        clock: Arc<dyn World>,
    ) -> Self {
        let state = if disk.is_some() { LeafState::Online } else { LeafState::Missing };
        Leaf {
            guid,
            path,
            counters: LeafCounters::default(),
            io: IoCounters::new(clock),
            disk,
            state: AtomicU8::new(state as u8),
            last_error: Mutex::new(None),
            uberblock_sequence: AtomicU64::new(0),
        }
    }

    /// Its state.
    pub fn state(&self) -> LeafState {
        match self.state.load(Ordering::Acquire) {
            0 => LeafState::Online,
            1 => LeafState::Failed,
            2 => LeafState::Outdated,
            _ => LeafState::Missing,
        }
    }

    /// Whether it takes part in reads, writes and flushes.
    pub fn is_online(&self) -> bool {
        self.state() == LeafState::Online
    }

    /// Takes it out of use, as if it had failed, at the administrator's request.
    pub fn take_offline(&self) {
        let (online, failed) = (LeafState::Online as u8, LeafState::Failed as u8);
        let order = Ordering::AcqRel;
        if self.state.compare_exchange(online, failed, order, Ordering::Acquire).is_ok() {
            *self.last_error.lock() = Some("taken offline by the administrator".into());
        }
    }

    /// Marks it outdated: at import, or once an uberblock says so.
    pub fn set_outdated(&self) {
        if self.state() != LeafState::Missing {
            self.state.store(LeafState::Outdated as u8, Ordering::Release);
        }
    }

    /// The last error, for people.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// The disk, if it is there.
    pub fn disk(&self) -> Option<&Arc<dyn Disk>> {
        self.disk.as_ref()
    }

    /// Reads from this leaf alone.
    pub async fn read(&self, sector: u64, count: usize) -> Result<Vec<Page>, DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        let begun = self.io.begin();
        let read = disk.read(sector, count).await;
        let result = self.io.end(IoKind::Read, bytes_of(count), begun, read);
        if let Err(error) = &result {
            self.note(&self.counters.read_errors, error);
        }
        result
    }

    /// Writes to this leaf alone. A failure fails the leaf.
    pub async fn write(&self, sector: u64, pages: Vec<Page>) -> Result<(), DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        let bytes = bytes_of(pages.len());
        let begun = self.io.begin();
        let written = disk.write(sector, pages).await;
        let result = self.io.end(IoKind::Write, bytes, begun, written);
        self.fail_on(result)
    }

    /// Writes; durable when it completes. A failure fails the leaf.
    pub async fn write_durable(&self, sector: u64, pages: Vec<Page>) -> Result<(), DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        let bytes = bytes_of(pages.len());
        let begun = self.io.begin();
        let written = disk.write_durable(sector, pages).await;
        let result = self.io.end(IoKind::DurableWrite, bytes, begun, written);
        self.fail_on(result)
    }

    /// Flushes this leaf alone. A failure fails the leaf.
    pub async fn flush(&self) -> Result<(), DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        let begun = self.io.begin();
        let flushed = disk.flush().await;
        let result = self.io.end(IoKind::Flush, 0, begun, flushed);
        self.fail_on(result)
    }

    /// Tells the disk that sectors are no longer needed; failures do not matter.
    pub async fn discard(&self, sector: u64, count: u64) {
        if let Some(disk) = self.disk.as_ref().filter(|_| self.is_online()) {
            let _ = disk.discard(sector, count).await;
        }
    }

    fn fail_on(&self, result: Result<(), DiskError>) -> Result<(), DiskError> {
        if let Err(error) = &result {
            self.note(&self.counters.write_errors, error);
            let (online, failed) = (LeafState::Online as u8, LeafState::Failed as u8);
            let order = Ordering::AcqRel;
            if self.state.compare_exchange(online, failed, order, Ordering::Acquire).is_ok() {
                tracing::error!(
                    class = "disk.failed", leaf = %self.path, %error,
                    "disk failed: it is taken out of use"
                );
            }
        }
        result
    }

    fn note(&self, counter: &AtomicU64, error: &DiskError) {
        counter.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock() = Some(error.to_string());
    }
}

/// Bytes of so many sectors.
pub(crate) fn bytes_of(sectors: usize) -> u64 {
    (sectors * SECTOR_BYTES) as u64
}
