//! When a connection is too slow to be kept, judged by the bytes that move between two ticks of a
//! clock.

use crate::limits::{SLOW_TICK_BYTES, SLOW_TICKS_MAX, STILL_TICKS_MAX};

/// The progress of one direction of a connection, while it has unfinished work.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes moved since the last tick.
    bytes: u64,
    slow_ticks: u32,
    still_ticks: u32,
}

/// Why a connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooSlow {
    /// It holds memory that others wait for, and moves too little.
    OthersWait,
    /// No byte has moved for long.
    Still,
}

impl Progress {
    /// Bytes have moved.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    /// All work is finished: the next one is judged from the start.
    pub(super) fn finished(&mut self) {
        *self = Progress::default();
    }

    /// A tick has passed with unfinished work all the time. `others_wait` for memory.
    pub(super) fn tick(&mut self, others_wait: bool) -> Result<(), TooSlow> {
        let bytes = std::mem::take(&mut self.bytes);
        self.slow_ticks = if bytes < SLOW_TICK_BYTES { self.slow_ticks + 1 } else { 0 };
        self.still_ticks = if bytes == 0 { self.still_ticks + 1 } else { 0 };
        if others_wait && self.slow_ticks >= SLOW_TICKS_MAX {
            return Err(TooSlow::OthersWait);
        }
        if self.still_ticks >= STILL_TICKS_MAX {
            return Err(TooSlow::Still);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_is_tolerated_until_others_wait() {
        let mut progress = Progress::default();
        for _ in 0..1000 {
            progress.moved(1);
            assert_eq!(progress.tick(false), Ok(()));
        }
        progress.moved(1);
        assert_eq!(progress.tick(true), Err(TooSlow::OthersWait));
    }

    #[test]
    fn what_moves_is_kept_also_if_others_wait() {
        let mut progress = Progress::default();
        for _ in 0..1000 {
            progress.moved(65_536);
            assert_eq!(progress.tick(true), Ok(()));
        }
        assert_eq!(progress.tick(true), Ok(()), "one slow tick is no slow connection");
        assert_eq!(progress.tick(true), Err(TooSlow::OthersWait));
        progress.finished();
        assert_eq!(progress.tick(true), Ok(()));
    }

    #[test]
    fn what_does_not_move_for_a_minute_is_given_up() {
        let mut progress = Progress::default();
        let ticks = (0..).take_while(|_| progress.tick(false).is_ok()).count();
        assert_eq!(ticks, 239);
        assert_eq!(progress.tick(false), Err(TooSlow::Still));
        progress.moved(1);
        assert_eq!(progress.tick(false), Ok(()));
    }
}
