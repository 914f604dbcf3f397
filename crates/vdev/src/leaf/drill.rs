//! A drill: a leaf is taken away as if it had failed, and given back.
//!
//! Nothing on disk tells it from a leaf that failed by itself. So it comes back with the next
//! import if nobody gives it back before. Unlike a failed leaf it is good: it is read where nothing
//! else verifies, as one that is resilvered. A drill costs no data.

use aquifer_sync::atomic::{AtomicBool, Ordering};

use super::Leaf;

/// Whether a drill has the leaf.
#[derive(Debug, Default)]
pub(super) struct Drill(AtomicBool);

impl Leaf {
    /// Fails it, as too many errors do, unless it is the last that holds everything. It stays away
    /// until [`Leaf::give_back`]. Returns whether it was in use and failed.
    pub fn take_away(&self) -> bool {
        let mut is_taken = false;
        let begin = || {
            // First: nobody may bring it back in between.
            let was_away = self.drill.0.swap(true, Ordering::AcqRel);
            is_taken = self.is_settled() && self.fail();
            self.drill.0.store(was_away || is_taken, Ordering::Release);
        };
        self.fail_unless_last(begin);
        if is_taken {
            *self.last_error.lock() = Some("taken away by a drill".into());
        }
        is_taken
    }

    /// Ends a drill: it comes back at once, unless it was taken offline meanwhile.
    pub fn give_back(&self) {
        if self.drill.0.swap(false, Ordering::AcqRel) {
            self.ask_back();
        }
    }

    /// Whether a drill has taken it away.
    pub fn is_in_drill(&self) -> bool {
        self.drill.0.load(Ordering::Acquire)
    }
}
