//! The share of the disks that clients leave to background work: a scrub, a resilver.
//!
//! While no client asks for anything, background work takes the disks as it likes. While clients
//! are at work, it does one thing at a time, and rests after each for several times as long as that
//! took. So it keeps a share of the disks however busy they are, and a client waits behind one
//! background read at most.

use std::time::Duration;

use super::limits::{BACKGROUND_BUSY_MS, BACKGROUND_REST_MS_MAX, BACKGROUND_RESTS};

/// Whether clients are at work.
#[derive(Debug, Default)]
pub(super) struct Background {
    client_ops: u64,
    /// When they last were.
    busy: Option<Duration>,
}

impl Background {
    /// Whether clients are at work, who have asked so many times since import.
    pub fn is_busy(&mut self, now: Duration, client_ops: u64) -> bool {
        if client_ops != self.client_ops {
            (self.client_ops, self.busy) = (client_ops, Some(now));
        }
        let busy = Duration::from_millis(BACKGROUND_BUSY_MS);
        self.busy.is_some_and(|last| now.saturating_sub(last) < busy)
    }
}

/// How long background work rests after something that took so long.
pub(super) fn rest(took: Duration) -> Duration {
    (took * BACKGROUND_RESTS).min(Duration::from_millis(BACKGROUND_REST_MS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn clients_count_as_busy_for_a_moment_after_their_last_call() {
        let mut background = Background::default();
        assert!(!background.is_busy(MS, 0));
        assert!(background.is_busy(1000 * MS, 7));
        assert!(background.is_busy(1000 * MS + Duration::from_millis(BACKGROUND_BUSY_MS - 1), 7));
        assert!(!background.is_busy(1000 * MS + Duration::from_millis(BACKGROUND_BUSY_MS), 7));
        assert!(background.is_busy(9000 * MS, 8));
    }

    #[test]
    fn work_keeps_at_least_a_twentieth_of_the_disk() {
        for took in [1, 5, 20, 500, 5000] {
            let took = took * MS;
            let share = took.as_secs_f64() / (took + rest(took)).as_secs_f64();
            assert!((0.05..0.99).contains(&share), "{took:?}: {share}");
        }
        assert!(rest(10 * MS) >= 50 * MS);
    }
}
