//! When the log begins a batch, and when one goes out.
//!
//! While a batch is on its way the next one gathers, so a busy log writes few large ones. A second
//! and a third go beside the first once each is worth a write of its own. A record that comes alone
//! goes at once.
//!
//! This part of the flow lies under the lock of the log, not in [`Flow`](super::Flow): all its
//! events come under that lock anyway, and a second lock for each record would cost.

use aquifer_ondisk::log_batch::{BATCH_HEADER_BYTES, BATCH_TRAILER_BYTES};

use super::limits::{
    LOG_BATCHES_IN_FLIGHT_MAX, LOG_HEADER_BYTES_MAX, LOG_IDLE_ROOM_BYTES_MIN,
    LOG_PAYLOAD_PAGES_MAX, LOG_SECOND_BATCH_PAGES_MIN,
};

/// Batches on their way, and the timer of a log that goes idle.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    in_flight: usize,
    records: u64,
    idle_timer: bool,
}

/// The size of a batch so far, or the room that a record takes of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub pages: usize,
    /// Of records; the batch's own are not counted.
    pub header_bytes: usize,
}

/// Batches that gather and have not gone out yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gathered {
    /// Batches that take no more.
    pub full: usize,
    /// Pages of the one that does.
    pub pages: usize,
}

/// Outcome of the timer of a log that goes idle, when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// There was something: it runs once more.
    Busy,
    /// It is over, and writes nothing.
    Over,
    /// It is over, and one empty batch goes out; it is counted.
    WritesMark,
}

/// Whether a record begins a batch, since it does not fit in the one that gathers.
pub(crate) fn splits(gathered: Size, record: Size) -> bool {
    let own_bytes = BATCH_HEADER_BYTES + BATCH_TRAILER_BYTES;
    gathered.pages + record.pages > LOG_PAYLOAD_PAGES_MAX
        || gathered.header_bytes + record.header_bytes + own_bytes > LOG_HEADER_BYTES_MAX
}

impl Batches {
    /// A record has been gathered. Returns whether a sender starts, which is counted. While the log
    /// is `moving` none does.
    pub fn record_gathered(&mut self, gathered: Gathered, moving: bool) -> bool {
        self.records += 1;
        let second = gathered.full > 0 || gathered.pages >= LOG_SECOND_BATCH_PAGES_MIN;
        let room = self.in_flight < LOG_BATCHES_IN_FLIGHT_MAX;
        let starts = !moving && (self.in_flight == 0 || (second && room));
        self.in_flight += usize::from(starts);
        starts
    }

    /// A batch has come back, and its sender goes on. Returns whether another starts beside it,
    /// which is counted, where so many batches take no more.
    pub fn batch_came_back(&mut self, full: usize) -> bool {
        let starts = full > 0 && self.in_flight < LOG_BATCHES_IN_FLIGHT_MAX;
        self.in_flight += usize::from(starts);
        starts
    }

    /// Notes that records that were held up may go: a sender starts.
    pub fn held_up_goes(&mut self) {
        self.in_flight += 1;
    }

    /// A sender ends: there is nothing to send, or it is held up.
    pub fn sender_ends(&mut self) {
        self.in_flight -= 1;
    }

    /// All that was sent is durable, and `mark_waits` says whether nothing on disk says so. Returns
    /// whether a timer starts.
    pub fn arms_timer(&mut self, mark_waits: bool) -> bool {
        let arms = mark_waits && !self.idle_timer;
        self.idle_timer |= arms;
        arms
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The timer ends, which began after so many `records`. The mark waits for a batch, or not any
    /// more; the log has so much room, or is `moving`.
    pub fn timer_ends(
        &mut self,
        records: u64,
        mark_waits: bool,
        room_bytes: u64,
        moving: bool,
    ) -> Idle {
        let idle = self.records == records && self.in_flight == 0 && !moving;
        if mark_waits && !idle {
            return Idle::Busy;
        }
        self.idle_timer = false;
        // Never at the expense of records: they need the space more than the mark.
        if !mark_waits || room_bytes <= LOG_IDLE_ROOM_BYTES_MIN {
            return Idle::Over;
        }
        self.in_flight += 1;
        Idle::WritesMark
    }
}

#[cfg(test)]
mod tests;
