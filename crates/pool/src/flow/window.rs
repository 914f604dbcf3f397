//! How much of a sync is on its way to the devices at once.
//!
//! A sync could fill the queues of its devices. A batch of the intent log or a read would then wait
//! behind all of it. So the sync has a window, which grows while its writes come back soon and
//! shrinks while they take long. A few writes keep a slow disk busy, and a fast disk takes many
//! before any of them waits.

use std::time::Duration;

use super::limits::{
    SYNC_WINDOW_GROW_SHARE, SYNC_WINDOW_SECTORS_MAX, SYNC_WINDOW_SECTORS_MIN,
    SYNC_WINDOW_SHRINK_SHARE, SYNC_WRITE_ALONE_MS, SYNC_WRITE_BESIDE_LOG_MS,
};

/// Change of the window after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resize {
    /// So many sectors more.
    Grow(usize),
    /// So many sectors less, which are of those that the write had taken.
    Shrink(usize),
}

/// The sectors that a write of `count` takes of the window: any fits when no other is on its way.
pub(super) fn entry(count: usize) -> usize {
    count.min(SYNC_WINDOW_SECTORS_MIN)
}

/// Decides how a window of `sectors` changes when a write that had taken `entered` of them comes
/// back after `took`. `log_beside`: batches of the log go to the same disks.
pub(super) fn resize(sectors: usize, entered: usize, took: Duration, log_beside: bool) -> Resize {
    let long = if log_beside { SYNC_WRITE_BESIDE_LOG_MS } else { SYNC_WRITE_ALONE_MS };
    if took > Duration::from_millis(long) {
        Resize::Shrink(
            sectors.saturating_sub(SYNC_WINDOW_SECTORS_MIN).min(entered / SYNC_WINDOW_SHRINK_SHARE),
        )
    } else {
        Resize::Grow(
            SYNC_WINDOW_SECTORS_MAX
                .saturating_sub(sectors)
                .min(entered.div_ceil(SYNC_WINDOW_GROW_SHARE)),
        )
    }
}

impl Resize {
    /// A window of `sectors` after that.
    pub(super) fn of(self, sectors: usize) -> usize {
        match self {
            Resize::Grow(more) => sectors + more,
            Resize::Shrink(less) => sectors - less,
        }
    }
}

#[cfg(test)]
mod tests;
