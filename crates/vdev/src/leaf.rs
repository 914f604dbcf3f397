//! A leaf: one disk, its state, and its counters.

use std::sync::Arc;

use aquifer_blockio::{Disk, DiskError, Page, SECTOR_BYTES, World};
use aquifer_ondisk::Guid;
use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

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
    /// It takes every write and flush, while what it missed is copied to it. An uberblock names it
    /// outdated until it is whole. It is read only where no other copy verifies.
    Resilvering = 4,
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
    /// Sequence of the last uberblock that it was given: the newest that it may hold.
    pub uberblock_sequence: AtomicU64,
    /// I/O that the disk was given and has not answered.
    unanswered: AtomicU64,
    /// It does not come back by itself: it was taken offline, or is too small.
    offline: AtomicBool,
    /// The administrator wants it back.
    asked: AtomicBool,
    /// It counts after a resilver, and no uberblock says so yet.
    is_unsettled: AtomicBool,
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
            unanswered: AtomicU64::new(0),
            offline: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            is_unsettled: AtomicBool::new(false),
        }
    }

    /// Its state.
    pub fn state(&self) -> LeafState {
        match self.state.load(Ordering::Acquire) {
            0 => LeafState::Online,
            1 => LeafState::Failed,
            2 => LeafState::Outdated,
            4 => LeafState::Resilvering,
            _ => LeafState::Missing,
        }
    }

    /// Whether it holds everything committed: it is read, counts, and has a vote.
    pub fn is_online(&self) -> bool {
        self.state() == LeafState::Online
    }

    /// Whether it takes part in writes and flushes.
    pub fn takes_writes(&self) -> bool {
        matches!(self.state(), LeafState::Online | LeafState::Resilvering)
    }

    /// Whether all I/O that the disk was given has been answered. A call that was dropped halfway
    /// never is.
    pub fn is_quiet(&self) -> bool {
        self.unanswered.load(Ordering::Acquire) == 0
    }

    /// Begins to resilver it: from here on it takes writes. Whether it was outdated.
    pub fn begin_resilver(&self) -> bool {
        self.exchange(LeafState::Outdated, LeafState::Resilvering)
    }

    /// It is whole: from here on it counts. Returns whether it was being resilvered without error.
    pub fn end_resilver(&self) -> bool {
        self.is_unsettled.store(true, Ordering::Release);
        self.exchange(LeafState::Resilvering, LeafState::Online)
    }

    /// An uberblock on it says that it is whole.
    pub fn settle(&self) {
        self.is_unsettled.store(false, Ordering::Release);
    }

    /// The state for people: a leaf is being resilvered until an uberblock says that it is whole.
    pub fn shown_state(&self) -> LeafState {
        match self.state() {
            LeafState::Online if self.is_unsettled.load(Ordering::Acquire) => {
                LeafState::Resilvering
            }
            state => state,
        }
    }

    /// Its resilver has ended without success, if it is not over: it is outdated.
    pub fn give_up_resilver(&self) {
        self.exchange(LeafState::Resilvering, LeafState::Outdated);
    }

    /// Takes it out of use, as if it had failed, at the administrator's request. It does not come
    /// back by itself.
    pub fn take_offline(&self) {
        self.keep_out();
        if self.fail() {
            *self.last_error.lock() = Some("taken offline by the administrator".into());
        }
    }

    /// The administrator wants it back: it does not wait its turn.
    pub fn ask_back(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Whether it was asked back since this was last called.
    pub fn was_asked_back(&self) -> bool {
        self.asked.swap(false, Ordering::AcqRel)
    }

    /// It does not come back by itself.
    pub fn keep_out(&self) {
        self.offline.store(true, Ordering::Release);
    }

    /// Whether it may come back by itself.
    pub fn may_come_back(&self) -> bool {
        self.disk.is_some() && !self.offline.load(Ordering::Acquire)
    }

    /// Ends its use: what is written from here on it misses. A leaf that counted is to be named by
    /// an uberblock; one that was being resilvered is named already. Whether it was in use.
    fn fail(&self) -> bool {
        self.exchange(LeafState::Online, LeafState::Failed)
            || self.exchange(LeafState::Resilvering, LeafState::Outdated)
    }

    fn exchange(&self, from: LeafState, to: LeafState) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
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
        let read = self.answered(disk.read(sector, count)).await;
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
        let written = self.answered(disk.write(sector, pages)).await;
        let result = self.io.end(IoKind::Write, bytes, begun, written);
        self.fail_on(result)
    }

    /// Writes; durable when it completes. A failure fails the leaf.
    pub async fn write_durable(&self, sector: u64, pages: Vec<Page>) -> Result<(), DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        let bytes = bytes_of(pages.len());
        let begun = self.io.begin();
        let written = self.answered(disk.write_durable(sector, pages)).await;
        let result = self.io.end(IoKind::DurableWrite, bytes, begun, written);
        self.fail_on(result)
    }

    /// Flushes this leaf alone. A failure fails the leaf.
    pub async fn flush(&self) -> Result<(), DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        let begun = self.io.begin();
        let flushed = self.answered(disk.flush()).await;
        let result = self.io.end(IoKind::Flush, 0, begun, flushed);
        self.fail_on(result)
    }

    /// Tells the disk that sectors are no longer needed; failures do not matter.
    pub async fn discard(&self, sector: u64, count: u64) {
        if let Some(disk) = self.disk.as_ref().filter(|_| self.takes_writes()) {
            let _ = self.answered(disk.discard(sector, count)).await;
        }
    }

    /// Counts I/O while the disk has not answered it.
    async fn answered<T>(&self, io: impl Future<Output = T>) -> T {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let result = io.await;
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        result
    }

    fn fail_on(&self, result: Result<(), DiskError>) -> Result<(), DiskError> {
        if let Err(error) = &result {
            self.note(&self.counters.write_errors, error);
            if self.fail() {
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
