//! Questions that cost much: each caller has one under way.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

/// The turns of callers whose questions are answered or wait.
#[derive(Debug, Default)]
pub(super) struct Counting(Mutex<HashMap<String, Weak<AsyncMutex<()>>>>);

impl Counting {
    /// The turn of a caller: its questions wait for each other.
    pub fn turn(&self, who: &str) -> Arc<AsyncMutex<()>> {
        let mut turns = self.0.lock();
        if let Some(turn) = turns.get(who).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(AsyncMutex::new(()));
        turns.insert(who.into(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_one_caller_wait_for_each_other_and_none_stays() {
        let counting = Counting::default();
        let (a, again, b) = (counting.turn("a"), counting.turn("a"), counting.turn("b"));
        let held = a.try_lock().unwrap();
        assert!(again.try_lock().is_err());
        assert!(b.try_lock().is_ok());
        drop(held);
        drop((a, again, b));
        counting.turn("c");
        assert_eq!(counting.0.lock().len(), 1);
    }
}
