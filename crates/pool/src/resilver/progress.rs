//! How far the newest resilver is, for the status.

use std::sync::Arc;
use std::time::Duration;

use aquifer_ondisk::Guid;
use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicU64, Ordering};

use crate::pool::Pool;

/// One resilver.
#[derive(Debug)]
pub(crate) struct Progress {
    leaf: Guid,
    path: String,
    /// By the world's clock.
    begun: Duration,
    ended: Mutex<Option<(Duration, bool)>>,
    /// Bytes of all blocks to copy, if that is known; else 0.
    pub total_bytes: AtomicU64,
    /// Bytes of blocks copied to the leaf.
    pub copied_bytes: AtomicU64,
    /// Blocks that no copy gave.
    pub unread_blocks: AtomicU64,
}

/// The newest resilver of a pool since its import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResilverStatus {
    /// The disk.
    pub leaf: Guid,
    /// Its path.
    pub path: String,
    /// Bytes of all that is copied to it, about; known for a disk that holds nothing yet.
    pub total_bytes: Option<u64>,
    /// Bytes copied to it so far.
    pub copied_bytes: u64,
    /// Blocks that no other disk gave: they are missing on it.
    pub unread_blocks: u64,
    /// How long it has taken so far, or took.
    pub took: Duration,
    /// Whether it succeeded; `None` while it goes on.
    pub succeeded: Option<bool>,
}

impl Progress {
    pub fn new(leaf: Guid, path: String, begun: Duration) -> Arc<Progress> {
        Arc::new(Progress {
            leaf,
            path,
            begun,
            ended: Mutex::new(None),
            total_bytes: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
            unread_blocks: AtomicU64::new(0),
        })
    }

    pub fn end(&self, now: Duration, succeeded: bool) {
        *self.ended.lock() = Some((now, succeeded));
    }

    fn status(&self, now: Duration) -> ResilverStatus {
        let ended = *self.ended.lock();
        let until = ended.map_or(now, |(ended, _)| ended);
        ResilverStatus {
            leaf: self.leaf,
            path: self.path.clone(),
            total_bytes: Some(self.total_bytes.load(Ordering::Relaxed)).filter(|total| *total > 0),
            copied_bytes: self.copied_bytes.load(Ordering::Relaxed),
            unread_blocks: self.unread_blocks.load(Ordering::Relaxed),
            took: until.saturating_sub(self.begun),
            succeeded: ended.map(|(_, succeeded)| succeeded),
        }
    }
}

impl Pool {
    /// Whether a disk is resilvered.
    pub fn is_resilvering(&self) -> bool {
        let newest = self.meters.resilver.lock().clone();
        newest.is_some_and(|progress| progress.ended.lock().is_none())
    }

    /// The newest resilver since the import.
    pub(crate) fn resilver_status(&self) -> Option<ResilverStatus> {
        let newest = self.meters.resilver.lock().clone();
        newest.map(|progress| progress.status(self.world.now()))
    }
}
