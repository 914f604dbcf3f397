//! How fast changes may come in while the disks take them slower.
//!
//! A txg goes to disk while the next one fills. If writers filled it at the speed of the log, they
//! would stand still until the first is done, then burst again. So, once txgs close because they
//! are full, the open one is filled at the pace at which the other drains: what is left of its room
//! over the time that the other still needs, looked at anew with every change. All changes queue on
//! one virtual clock; the wait of each is short and much like that of the one before.
//!
//! Nobody waits while txgs close for other reasons and the open one is less than half full: a burst
//! that memory takes is taken as it comes.
//!
//! All is counted in shares of a full txg, be it full of dirty memory or of records in the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::limits::THROTTLE_CREDIT_MS;

/// The pace of a pool.
#[derive(Debug)]
pub(crate) struct Throttle {
    state: Mutex<State>,
    /// Sectors of the txg on its way that have come to disk.
    written_sectors: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// When the last change was let in, or will be.
    last: Duration,
    /// The txg on its way to disk.
    draining: Option<Draining>,
    /// Whether the last txg closed because it was full.
    pressed: bool,
    known: Option<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Draining {
    begun: Duration,
    share: f64,
    /// What it would take if all that is dirty were written as it is.
    sectors: u64,
    /// When its last write had come back; record, flush and uberblock follow.
    landed: Option<Duration>,
}

/// What earlier txgs have shown: means over the last few.
#[derive(Debug, Clone, Copy)]
struct Known {
    shares_per_second: f64,
    /// From the last write to the end.
    tail_seconds: f64,
    /// Sectors written for a full one.
    sectors_per_share: f64,
}

/// The open txg is filled up to this share of what closes it, by the time the other is on disk.
const FILL_SHARE: f64 = 0.95;
/// Slower than the disks by this factor at most, and faster by this, while txgs close full.
const SLOWEST: f64 = 1.0 / 8.0;
const FASTEST: f64 = 4.0;
/// Of a smaller txg nothing is learnt: fixed costs rule it.
const LEARN_SHARE: f64 = 1.0 / 8.0;
/// A txg as large as this closed because it was full.
const PRESSED_SHARE: f64 = 0.9;
/// While txgs do not close because they are full nobody waits below this.
const EASY_SHARE: f64 = 0.5;

impl Throttle {
    pub fn new() -> Throttle {
        Throttle { state: Mutex::default(), written_sectors: AtomicU64::new(0) }
    }

    /// A txg that was full to this share has closed and goes to disk.
    pub fn begin(&self, now: Duration, share: f64, dirty_bytes: u64) {
        self.written_sectors.store(0, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.pressed = share >= PRESSED_SHARE;
        state.draining =
            Some(Draining { begun: now, share, sectors: dirty_bytes / 4096, landed: None });
    }

    /// Sectors of it have come to disk.
    pub fn wrote(&self, sectors: u64) {
        self.written_sectors.fetch_add(sectors, Ordering::Relaxed);
    }

    /// All its writes have come back.
    pub fn landed(&self, now: Duration) {
        if let Some(draining) = &mut self.state.lock().draining {
            draining.landed = Some(now);
        }
    }

    /// It is on disk.
    pub fn end(&self, now: Duration) {
        let written = self.written_sectors.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        let Some(Draining { begun, share, landed, .. }) = state.draining.take() else { return };
        if share < LEARN_SHARE {
            return;
        }
        let seconds = now.saturating_sub(begun).as_secs_f64().max(1e-6);
        let tail = now.saturating_sub(landed.unwrap_or(now)).as_secs_f64();
        let new = Known {
            shares_per_second: share / seconds,
            tail_seconds: tail,
            sectors_per_share: as_f64(written.max(1)) / share,
        };
        state.known = Some(state.known.map_or(new, |old| old.mean(new)));
    }

    /// How long a change waits that takes such a share, with the open txg full to `fill`.
    pub fn delay(&self, now: Duration, share: f64, fill: f64) -> Option<Duration> {
        if share <= 0.0 {
            return None;
        }
        let mut state = self.state.lock();
        let pace = state.pace(now, fill, self.written_sectors.load(Ordering::Relaxed))?;
        let cost = Duration::from_secs_f64((share / pace).min(COST_SECONDS_MAX));
        // Who comes rarely owes nothing. Timers are late: that is made up for.
        let credit = now.saturating_sub(Duration::from_millis(THROTTLE_CREDIT_MS));
        state.last = state.last.max(credit) + cost;
        state.last.checked_sub(now).filter(|delay| !delay.is_zero())
    }
}

/// The least that is expected of what a txg on its way still takes.
const LEFT_SECONDS_MIN: f64 = 0.001;
/// However slow the disks are, a txg fills within this, eight times over.
const TXG_SECONDS_MAX: f64 = 60.0;
/// One change waits no longer than this for the room that it takes itself.
const COST_SECONDS_MAX: f64 = 1.0;

impl State {
    /// Shares a second that may come in; `None`: as many as will.
    fn pace(&self, now: Duration, fill: f64, written_sectors: u64) -> Option<f64> {
        let Some(draining) = self.draining else {
            // It closes as soon as its bitmaps are loaded.
            return self.known.filter(|_| fill >= 1.0).map(|known| known.shares_per_second);
        };
        if !self.pressed && fill < EASY_SHARE {
            return None;
        }
        let left = self.seconds_left(now, draining, written_sectors)?;
        let pace = (FILL_SHARE - fill).max(0.0) / left;
        let own = self.known.map(|known| known.shares_per_second);
        let own = own.unwrap_or(draining.share / left);
        let fastest = if self.pressed { own * FASTEST } else { f64::INFINITY };
        Some(pace.clamp(own * SLOWEST, fastest).max(SLOWEST / TXG_SECONDS_MAX))
    }

    /// How long the txg on its way still takes. The more of it is on disk the more its own speed
    /// counts, and the less that of those before it. `None` before anything is known.
    fn seconds_left(&self, now: Duration, draining: Draining, written: u64) -> Option<f64> {
        let elapsed = now.saturating_sub(draining.begun).as_secs_f64();
        let tail = self.known.map_or(0.0, |known| known.tail_seconds);
        if let Some(landed) = draining.landed {
            let elapsed = now.saturating_sub(landed).as_secs_f64();
            return Some((tail - elapsed).max(elapsed / 4.0).max(LEFT_SECONDS_MIN));
        }
        let expected = self.known.map(|known| draining.share * known.sectors_per_share);
        let expected = expected.unwrap_or(as_f64(draining.sectors));
        let done = (as_f64(written) / expected.max(1.0)).min(0.98);
        let by_own = if done > 0.0 { Some(elapsed / done - elapsed) } else { None };
        let by_known = self.known.map(|known| {
            let all = draining.share / known.shares_per_second - tail;
            (all * (1.0 - done)).max(0.0)
        });
        let left = match (by_own, by_known) {
            (Some(own), Some(known)) => own * done + known * (1.0 - done),
            (Some(own), None) => own,
            // Late in coming: what was expected, and the delay once more.
            (None, Some(known)) => known.max(elapsed / 4.0),
            (None, None) => return None,
        };
        Some((left + tail).max(LEFT_SECONDS_MIN))
    }
}

impl Known {
    fn mean(self, new: Known) -> Known {
        let mean = |old: f64, new: f64| (old + new) / 2.0;
        Known {
            shares_per_second: mean(self.shares_per_second, new.shares_per_second),
            tail_seconds: mean(self.tail_seconds, new.tail_seconds),
            sectors_per_share: mean(self.sectors_per_share, new.sectors_per_share),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a pace needs no more than 52 bits")]
fn as_f64(number: u64) -> f64 {
    number as f64
}
