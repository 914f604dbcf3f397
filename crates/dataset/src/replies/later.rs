//! Calls that heard "later": their client sends another one, and copies of the first hear the same.
//!
//! Invariant: at most [`REPLIES_KEPT`], each for [`LATER_KEPT`]. Where there are more, a copy is a
//! call like any other.

use std::collections::HashMap;
use std::time::Duration;

use aquifer_ondisk::reply::CallId;

use super::{Answer, REPLIES_KEPT};

/// How long copies of a call hear "later" after the first one did. A client that asks again with
/// the same transaction id waits that long at most; one that sends a copy does so much sooner.
pub(super) const LATER_KEPT: Duration = Duration::from_secs(10);

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// Each with the time until which it is kept.
    answers: HashMap<CallId, (Duration, Answer)>,
}

impl Later {
    /// Finds the answer that copies of this call hear at this time.
    pub fn find(&self, call: &CallId, now: Duration) -> Option<Answer> {
        let (until, answer) = self.answers.get(call)?;
        (now < *until).then(|| answer.clone())
    }

    /// Keeps an answer.
    pub fn insert(&mut self, call: CallId, answer: Answer, now: Duration) {
        if self.answers.len() >= REPLIES_KEPT {
            self.answers.retain(|_, (until, _)| now < *until);
        }
        if self.answers.len() < REPLIES_KEPT {
            self.answers.insert(call, (now + LATER_KEPT, answer));
        }
    }
}
