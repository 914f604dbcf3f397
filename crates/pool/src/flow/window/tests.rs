//! Devices in simulated time: each takes so long for a write, and does so many at once.

use std::collections::VecDeque;

use super::super::limits::{SYNC_WINDOW_SECTORS_FIRST, SYNC_WRITE_SECTORS_MAX};
use super::*;

const MS: Duration = Duration::from_millis(1);

/// A device that takes `each` for a write of [`SYNC_WRITE_SECTORS_MAX`] sectors, one after the
/// other, and a sync that always has more of them. Returns the window after `writes`, and what a
/// write of the second half took to come back: the mean and the most.
fn run(
    mut window: usize,
    writes: u32,
    each: Duration,
    log_beside: bool,
) -> (usize, Duration, Duration) {
    let (mut now, mut sum, mut most) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut flying = VecDeque::new();
    let entered = entry(SYNC_WRITE_SECTORS_MAX);
    for write in 0..writes {
        while (flying.len() + 1) * entered <= window {
            flying.push_back(now);
        }
        now += each;
        let took = now - flying.pop_front().expect("one write always fits");
        window = resize(window, entered, took, log_beside).of(window);
        assert!((SYNC_WINDOW_SECTORS_MIN..=SYNC_WINDOW_SECTORS_MAX).contains(&window));
        if write >= writes / 2 {
            (sum, most) = (sum + took, most.max(took));
        }
    }
    (window, sum / (writes / 2), most)
}

#[test]
fn a_write_waits_about_as_long_as_it_may_whatever_the_device() {
    for (log_beside, long_ms) in [(true, SYNC_WRITE_BESIDE_LOG_MS), (false, SYNC_WRITE_ALONE_MS)] {
        let long = Duration::from_millis(long_ms);
        // Both ways: from a large window down, and from the least up.
        for first in [SYNC_WINDOW_SECTORS_MAX, SYNC_WINDOW_SECTORS_MIN] {
            let (_, mean, most) = run(first, 2000, long / 16, log_beside);
            // In a sawtooth just below: it grows by less than it shrinks by.
            assert!(mean >= long * 85 / 100 && mean <= long, "{mean:?} of {long:?}");
            assert!(most <= long * 140 / 100, "{most:?} of {long:?}");
        }
    }
}

#[test]
fn a_fast_device_gets_all_and_a_slow_one_the_least() {
    assert_eq!(run(SYNC_WINDOW_SECTORS_FIRST, 1000, MS / 1000, true).0, SYNC_WINDOW_SECTORS_MAX);
    assert_eq!(run(SYNC_WINDOW_SECTORS_FIRST, 1000, MS * 100, true).0, SYNC_WINDOW_SECTORS_MIN);
    assert_eq!(run(SYNC_WINDOW_SECTORS_FIRST, 1000, MS * 100, false).0, SYNC_WINDOW_SECTORS_MIN);
}

#[test]
fn as_long_as_a_write_may_take_is_not_too_long() {
    let long = Duration::from_millis(SYNC_WRITE_BESIDE_LOG_MS);
    assert_eq!(resize(1000, 4, long, true), Resize::Grow(1));
    assert_eq!(resize(1000, 4, long + Duration::from_nanos(1), true), Resize::Shrink(2));
    assert_eq!(resize(1000, 4, long * 10, false), Resize::Grow(1));
    assert_eq!(resize(1000, 4, long * 10 + Duration::from_nanos(1), false), Resize::Shrink(2));
}

#[test]
fn a_write_of_any_size_fits_in_the_least_window() {
    assert_eq!(entry(4), 4);
    assert_eq!(entry(SYNC_WINDOW_SECTORS_MAX), SYNC_WINDOW_SECTORS_MIN);
}
