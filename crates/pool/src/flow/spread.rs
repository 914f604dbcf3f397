//! How a sync spreads its work over the time that it has.
//!
//! A sync at full speed takes a processor and then the disks for itself, and stable writes wait
//! meanwhile. The kernel completes them on that processor, which it gives up only at a tick of its
//! clock, and the flush of a batch waits for all data of the sync in the device's cache. But the
//! next txg needs its time to fill, and the sync may take that: it has handed out its data when the
//! open txg is half full, or after [`SYNC_SPREAD_MS`]. If somebody waits for the txg, the sync does
//! not wait. Slow disks are always behind this plan.

use std::time::Duration;

use super::limits::{SYNC_DONE_AT_FILL, SYNC_SPREAD_MS};
use super::share;

/// Whether a sync that has handed out so many of its sectors is ahead of its plan, so long after it
/// began and with the open txg full to `fill`.
pub(super) fn is_ahead(handed_out: u64, sectors: u64, elapsed: Duration, fill: f64) -> bool {
    let time = elapsed.as_secs_f64() / Duration::from_millis(SYNC_SPREAD_MS).as_secs_f64();
    let planned = time.max(fill / SYNC_DONE_AT_FILL);
    planned < 1.0 && share(handed_out, sectors) > planned
}

#[cfg(test)]
mod tests;
