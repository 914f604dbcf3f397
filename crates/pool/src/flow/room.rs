//! Which changes find room, and when the open txg is full of them.
//!
//! Two txgs are in memory, and their dirty bytes stay within the cap of two full ones. A txg is
//! full of dirty memory, of records in the log, or, on a pool with little room, of reservations:
//! whichever comes first. A part of memory and log is kept for the few small changes of objects at
//! rest ([`Lane::Sparse`]), so that others can never take it.

use std::time::Duration;

use super::limits::{
    LOG_DELAY_US, LOG_EASY_PERCENT, SPARSE_BYTES_MAX, SPARSE_LOG_SHARE, SPARSE_TXG_SHARE,
    TXG_FULL_SECTORS_MIN, TXG_LOG_SHARE, TXG_SPACE_SHARE,
};
use super::share;
use crate::txg::{Demand, Lane};

/// Dirty memory that txgs of a pool may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// One, in dirty bytes.
    txg_bytes: u64,
    /// All of them.
    cap_bytes: u64,
}

/// The shared memory and log that changes have taken so far.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Taken {
    /// Dirty memory of all txgs, and what is set aside for changes on their way into one.
    pub dirty_bytes: u64,
    /// Of the open txg, what came by [`Lane::Sparse`].
    pub sparse_bytes: u64,
    /// Of the log, what is set aside for changes on their way.
    pub log_bytes: u64,
}

/// How full the intent log is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogRoom {
    /// Bytes that batches not sealed yet may take.
    pub left_bytes: u64,
    /// Bytes that can be written before a segment would be entered that is still needed.
    pub free_bytes: u64,
    /// Bytes that it can hold.
    pub capacity_bytes: u64,
}

/// Outcome for a change that asks for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// There is none before a txg is on disk.
    Full,
    /// There is; it queues up with all others.
    Queues,
    /// There is, and it is one of the few that are never slowed.
    Passes,
}

/// Memory, bytes of the log and sectors that the open txg holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Held {
    /// Dirty memory.
    pub dirty_bytes: u64,
    /// Bytes that the log has taken since the txg opened.
    pub logged_bytes: u64,
    /// Sectors reserved for its changes.
    pub sectors: u64,
}

/// Bounds that fill the open txg, beside memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Bytes that the log can hold.
    pub log_bytes: u64,
    /// Sectors of which it may have reserved as many.
    pub sectors: u64,
}

impl Room {
    pub fn new(txg_bytes: u64) -> Room {
        Room { txg_bytes, cap_bytes: 2 * txg_bytes }
    }

    /// Whether memory and log have room for a change.
    pub fn entry(self, demand: &Demand, taken: Taken, log: LogRoom) -> Entry {
        let passes = self.passes(demand, taken);
        let log_kept = if passes { 0 } else { log.capacity_bytes / SPARSE_LOG_SHARE };
        let fits_log = taken.log_bytes + demand.log_bytes + log_kept <= log.left_bytes;
        match (fits_log && self.fits_memory(demand, taken), passes) {
            (false, _) => Entry::Full,
            (true, false) => Entry::Queues,
            (true, true) => Entry::Passes,
        }
    }

    /// Whether memory has room for a change.
    pub fn fits_memory(self, demand: &Demand, taken: Taken) -> bool {
        let kept = if self.passes(demand, taken) { 0 } else { self.lane_bytes() };
        // A single change may be larger than the cap: it goes alone.
        taken.dirty_bytes == 0 || taken.dirty_bytes + demand.dirty_bytes + kept <= self.cap_bytes
    }

    /// Whether a change is one of the few that are never slowed.
    fn passes(self, demand: &Demand, taken: Taken) -> bool {
        demand.lane == Lane::Sparse
            && demand.dirty_bytes <= SPARSE_BYTES_MAX
            && taken.sparse_bytes + demand.dirty_bytes <= self.lane_bytes()
    }

    fn lane_bytes(self) -> u64 {
        self.txg_bytes / SPARSE_TXG_SHARE
    }

    /// How full the open txg is; from 1 on it closes.
    pub fn fill(self, held: Held, bounds: Bounds) -> f64 {
        share(held.dirty_bytes, self.txg_bytes)
            .max(share(held.logged_bytes, bounds.log_bytes / TXG_LOG_SHARE))
            .max(share(held.sectors, bounds.sectors))
    }

    /// The share of a full txg that a change takes. (What it takes of the log shows when it is
    /// there.)
    pub fn share_of(self, demand: &Demand, bounds: Bounds) -> f64 {
        let reserved = match demand.dirty_bytes {
            0 => 0.0,
            _ => share(demand.sectors, bounds.sectors),
        };
        share(demand.dirty_bytes, self.txg_bytes).max(reserved)
    }
}

/// Sectors of which the open txg may have reserved as many before it is full, with so much room on
/// the disks for it and the one on its way.
pub(super) fn full_sectors(room_sectors: u64) -> u64 {
    (room_sectors / TXG_SPACE_SHARE).max(TXG_FULL_SECTORS_MIN)
}

/// How long a change waits for a log that fills, whatever the txgs do: not while it is easy, then
/// ever longer.
pub(super) fn log_delay(log: LogRoom) -> Option<Duration> {
    let free = log.free_bytes.min(log.capacity_bytes) * 100 / log.capacity_bytes.max(1);
    let percent = (100 - free).min(99);
    let over = percent.checked_sub(LOG_EASY_PERCENT).filter(|over| *over > 0)?;
    Some(Duration::from_micros(LOG_DELAY_US * over * over / (100 - percent)))
}

#[cfg(test)]
mod tests;
