//! How fast changes may come in while the disks take them slower.
//!
//! A txg goes to disk while the next one fills. Writers that filled it at the speed of the log
//! would stand still until the first is done, then burst again. So, once txgs close because they
//! are full, the open one fills at the pace at which the other drains. The pace is the room left in
//! it, divided by the time that the other still needs, and follows both all the time. All changes
//! queue up, and each waits about as long as the one before it.
//!
//! Nobody waits while txgs close for other reasons and the open one is less than half full: memory
//! takes such a burst.
//!
//! Shares are those of a full txg, whether dirty memory or records in the log fill it.

use std::time::Duration;

use super::as_f64;
use super::limits::{
    EASY_SHARE, FASTEST, FILL_SHARE, LEARN_SHARE, LEFT_SECONDS_MIN, MISSING_SHARE_MIN,
    PRESSED_SHARE, REST_LASTS, SPEED_SECONDS, STANDSTILL, THROTTLE_CREDIT_MS, THROTTLE_LOOK_MS,
    THROTTLE_WAIT_MIN,
};

/// A change's place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Turn(f64);

/// The queue of changes, and what is known of the txg on its way.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    /// Shares that have queued up so far, and those that have been let in.
    queued: f64,
    let_in: f64,
    /// When that was last looked at.
    looked: Duration,
    /// The txg on its way to disk.
    draining: Option<Draining>,
    /// Whether the last txg closed because it was full.
    pressed: bool,
    known: Option<Known>,
}

/// A txg that goes to disk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Closed {
    /// How full it was.
    pub share: f64,
    /// Sectors that the txg would take if all that is dirty were written as it is.
    pub sectors: u64,
}

#[derive(Debug, Clone, Copy)]
struct Draining {
    begun: Duration,
    share: f64,
    /// Sectors that the txg would take if all that is dirty were written as it is.
    sectors: u64,
    /// When its last write had come back; record, flush and uberblock follow.
    landed: Option<Duration>,
    /// When its speed was last looked at, and how much had come to disk.
    looked: (Duration, u64),
    /// Of late.
    sectors_per_second: Option<f64>,
}

/// Speeds that earlier txgs have shown: means over the last few.
#[derive(Debug, Clone, Copy)]
struct Known {
    shares_per_second: f64,
    /// From the last write to the end.
    tail_seconds: f64,
    /// Sectors written for a full one.
    sectors_per_share: f64,
}

impl Throttle {
    /// A txg has closed and goes to disk.
    pub fn begin(&mut self, now: Duration, closed: Closed) {
        self.pressed = closed.share >= PRESSED_SHARE;
        self.draining = Some(Draining {
            begun: now,
            share: closed.share,
            sectors: closed.sectors,
            landed: None,
            looked: (now, 0),
            sectors_per_second: None,
        });
    }

    /// Since when a txg is on its way to disk, and the sectors that it seems to take.
    pub fn draining(&self) -> Option<(Duration, u64)> {
        self.draining.map(|draining| (draining.begun, draining.sectors))
    }

    /// All its writes have come back.
    pub fn landed(&mut self, now: Duration) {
        if let Some(draining) = &mut self.draining {
            draining.landed = Some(now);
        }
    }

    /// It is on disk, with so many sectors.
    pub fn end(&mut self, now: Duration, written: u64) {
        let Some(Draining { begun, share, landed, .. }) = self.draining.take() else { return };
        if share < LEARN_SHARE {
            return;
        }
        let seconds = now.saturating_sub(begun).as_secs_f64().max(LEFT_SECONDS_MIN);
        let new = Known {
            shares_per_second: share / seconds,
            tail_seconds: now.saturating_sub(landed.unwrap_or(now)).as_secs_f64(),
            sectors_per_share: as_f64(written.max(1)) / share,
        };
        self.known = Some(self.known.map_or(new, |old| old.mean(new)));
    }

    /// Queues up a change that takes such a share, with the open txg full to `fill`, and so many
    /// sectors of the other on disk. `None`: it may enter.
    pub fn queue(&mut self, now: Duration, share: f64, fill: f64, written: u64) -> Option<Turn> {
        if share <= 0.0 {
            return None;
        }
        self.queued += share;
        self.look(now, fill, written);
        (self.queued > self.let_in).then_some(Turn(self.queued))
    }

    /// How long a change waits before it asks again; `None`: its turn has come.
    pub fn wait(&mut self, now: Duration, turn: Turn, fill: f64, written: u64) -> Option<Duration> {
        let pace = self.look(now, fill, written)?;
        let ahead = turn.0 - self.let_in;
        if ahead <= 0.0 {
            return None;
        }
        let longest = Duration::from_millis(THROTTLE_LOOK_MS);
        let wait = Duration::from_secs_f64((ahead / pace).min(longest.as_secs_f64()));
        Some(wait.max(THROTTLE_WAIT_MIN))
    }

    /// Lets in what the time since the last look allows. Returns the pace from here on.
    fn look(&mut self, now: Duration, fill: f64, written: u64) -> Option<f64> {
        if let Some(draining) = &mut self.draining {
            draining.look(now, written);
        }
        let since = now.saturating_sub(self.looked).as_secs_f64();
        self.looked = now.max(self.looked);
        let pace = self.pace(now, fill, written);
        match pace {
            Some(pace) => {
                // A change after a rest need not wait, and late timers are made up for.
                let credit = pace * Duration::from_millis(THROTTLE_CREDIT_MS).as_secs_f64();
                self.let_in = (self.let_in + pace * since).min(self.queued + credit);
            }
            None => self.let_in = self.let_in.max(self.queued),
        }
        pace
    }

    /// Shares a second that may come in; `None`: as many as will.
    fn pace(&self, now: Duration, fill: f64, written: u64) -> Option<f64> {
        let Some(draining) = self.draining else {
            // It closes as soon as its bitmaps are loaded.
            return self.known.filter(|_| fill >= 1.0).map(|known| known.shares_per_second);
        };
        if !self.pressed && fill < EASY_SHARE {
            return None;
        }
        let left = self.seconds_left(now, draining, written)?;
        let pace = (FILL_SHARE - fill) / left;
        // Both together may hold as much as two full ones.
        let rest = (2.0 - draining.share - fill).max(0.01) / (left * REST_LASTS);
        let fastest = match self.known {
            Some(known) if self.pressed => known.shares_per_second * FASTEST,
            _ => f64::INFINITY,
        };
        Some(pace.min(fastest).max(rest))
    }

    /// How long the txg on its way still takes. `None` before anything is known.
    fn seconds_left(&self, now: Duration, draining: Draining, written: u64) -> Option<f64> {
        let elapsed = now.saturating_sub(draining.begun).as_secs_f64();
        let tail = self.known.map_or(0.0, |known| known.tail_seconds);
        if let Some(landed) = draining.landed {
            let elapsed = now.saturating_sub(landed).as_secs_f64();
            return Some((tail - elapsed).max(elapsed / 4.0).max(LEFT_SECONDS_MIN));
        }
        let expected = self.known.map(|known| draining.share * known.sectors_per_share);
        let expected = expected.unwrap_or(as_f64(draining.sectors)).max(1.0);
        // What is written in the end may be more than it seemed.
        let missing = (expected - as_f64(written)).max(expected * MISSING_SHARE_MIN);
        let all =
            self.known.map(|known| (draining.share / known.shares_per_second - tail).max(0.0));
        let own = draining.sectors_per_second.map(|speed| {
            let longest = STANDSTILL * elapsed.max(all.unwrap_or(0.0));
            (missing / speed.max(1e-9)).min(longest)
        });
        let left = own.or_else(|| all.map(|all| all * missing / expected))?;
        Some((left + tail).max(LEFT_SECONDS_MIN))
    }
}

impl Draining {
    /// Looks at the speed of late, now and then.
    fn look(&mut self, now: Duration, written: u64) {
        let (then, before) = self.looked;
        let since = now.saturating_sub(then);
        if since < Duration::from_millis(THROTTLE_LOOK_MS) {
            return;
        }
        let new = as_f64(written.saturating_sub(before)) / since.as_secs_f64();
        self.looked = (now, written);
        // Nothing is written before the first nodes have been read.
        if written > 0 {
            self.sectors_per_second = Some(self.sectors_per_second.map_or(new, |old| {
                // The longer ago the last look was, the less it counts.
                let weight = (since.as_secs_f64() / SPEED_SECONDS).min(1.0);
                old + (new - old) * weight
            }));
        }
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

#[cfg(test)]
mod tests;
