//! A leaf that errs too often.
//!
//! - **Reads that fail.** So many within ten minutes, and the leaf fails, as after a failed write:
//!   an uberblock names it, and it comes back after a resilver. The last whole side of a vdev never
//!   fails so. A read on behalf of a scrub does not count: a scrub finds in minutes what went bad
//!   in years, and mends it, and it must not cost a copy of everything else.
//! - **Bad copies.** So many within ten minutes degrade the leaf. It stays in use, and each copy is
//!   mended from a good one: without this leaf, the others' own bad copies could not be.
//!
//! A leaf that failed for its errors is still read where nothing else verifies. A checksum decides,
//! so what it has and missed does no harm.

use std::collections::VecDeque;
use std::time::Duration;

use aquifer_blockio::DiskError;
use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicBool, Ordering};

use super::Leaf;
use crate::pace::Slow;

/// So many errors of one kind...
const MANY: usize = 10;
/// ...within this time are too many.
const WINDOW: Duration = Duration::from_secs(600);

/// Trouble of a leaf beside its state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeafTrouble {
    /// Too many of its reads failed: it is out of use, or was until it was brought up to date.
    pub is_faulted: bool,
    /// It had too many bad copies. It is in use.
    pub is_degraded: bool,
    /// It is much slower than others of its kind.
    pub slow: Option<Slow>,
}

/// Errors lately, and what followed.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    failed_reads: Recent,
    bad_copies: Recent,
    is_faulted: AtomicBool,
    is_degraded: AtomicBool,
}

/// The times of the newest errors of a kind, at most [`MANY`].
#[derive(Debug, Default)]
struct Recent(Mutex<VecDeque<Duration>>);

impl Recent {
    /// Notes one. Whether there are too many.
    fn note(&self, now: Duration) -> bool {
        let mut times = self.0.lock();
        if times.len() == MANY {
            times.pop_front();
        }
        times.push_back(now);
        let first = times.front().copied().unwrap_or(now);
        times.len() == MANY && now.saturating_sub(first) <= WINDOW
    }

    fn forget(&self) {
        self.0.lock().clear();
    }
}

impl Trouble {
    /// Forgets everything: the administrator has seen it.
    pub(super) fn clear(&self) {
        self.comes_back();
        self.bad_copies.forget();
        self.is_degraded.store(false, Ordering::Release);
    }

    /// It is in use again. What it had bad copies of may still be bad.
    pub(super) fn comes_back(&self) {
        self.failed_reads.forget();
        self.is_faulted.store(false, Ordering::Release);
    }
}

impl Leaf {
    /// Returns what is wrong with it.
    pub fn trouble(&self) -> LeafTrouble {
        LeafTrouble {
            is_faulted: self.is_faulted(),
            is_degraded: self.trouble.is_degraded.load(Ordering::Acquire),
            slow: self.pace.slow(),
        }
    }

    /// Whether it failed because too many of its reads did.
    pub fn is_faulted(&self) -> bool {
        self.trouble.is_faulted.load(Ordering::Acquire)
    }

    /// A read that was needed failed. Too many of them fail the leaf, unless it is the last that
    /// holds everything.
    pub(crate) fn has_failed_a_read(&self, error: &DiskError) {
        let now = self.ticks.world.now();
        if !self.is_online() || !self.trouble.failed_reads.note(now) {
            return;
        }
        self.fail_unless_last(|| {
            let minutes = WINDOW.as_secs() / 60;
            let why = format!("too many errors: {MANY} reads in {minutes} minutes; {error}");
            self.trouble.is_faulted.store(true, Ordering::Release);
            if self.fail() {
                tracing::error!(
                    class = "disk.failed", leaf = %self.path, error = %why,
                    "disk failed: it is taken out of use"
                );
                *self.last_error.lock() = Some(why);
            }
        });
    }

    /// A copy on it was bad. Too many of them degrade the leaf.
    pub(super) fn had_a_bad_copy(&self) {
        let is_many = self.trouble.bad_copies.note(self.ticks.world.now());
        if is_many && !self.trouble.is_degraded.swap(true, Ordering::AcqRel) {
            let minutes = WINDOW.as_secs() / 60;
            tracing::error!(
                class = "disk.degraded", leaf = %self.path, bad_copies = MANY, minutes,
                "disk had too many bad copies: it stays in use, and they are mended"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_errors_within_ten_minutes_are_too_many() {
        let at = Duration::from_secs;
        let recent = Recent::default();
        // One a minute and some.
        assert!((0..100).all(|error| !recent.note(at(error * 67))));
        // One more at once.
        let now = 99 * 67 + 1;
        assert!(recent.note(at(now)));
        recent.forget();
        assert!((0..9).all(|_| !recent.note(at(now))) && recent.note(at(now + 600)));
        assert!(!recent.note(at(now + 1201)));
    }
}
