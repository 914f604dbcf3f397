//! Calls whose fate is open: their pool alone can say whether they were carried out, and it does
//! not answer or is not in service ([`Unanswered::Unsettled`](aquifer_nfs::Unanswered)).
//!
//! Such a call is asked again from time to time, and its client gets the true answer as soon as
//! there is one. "Later" would be wrong: the client would send another call, which may find its own
//! first one carried out. A call that is not kept gets no answer. Its client sends it again.
//!
//! Invariants:
//! - A connection keeps as many calls as its limit says, each once: the newest that has the
//!   transaction id, since a client that sends again looks for one answer.
//! - A connection that ends keeps none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::sleep;

use crate::limits::TICK;

/// The calls of a connection.
#[derive(Debug)]
pub(super) struct Holds {
    /// The newest with each transaction id.
    newest: Mutex<HashMap<u32, Arc<()>>>,
    most: usize,
    is_over: AtomicBool,
}

/// A call that is kept.
pub(super) struct Hold<'a> {
    holds: &'a Holds,
    xid: u32,
    own: Arc<()>,
}

impl Holds {
    /// None, and at most so many.
    pub(super) fn new(most: usize) -> Arc<Holds> {
        let (newest, is_over) = Default::default();
        Arc::new(Holds { newest, most, is_over })
    }

    /// Keeps a call, instead of another one with this id. `None` if there are too many.
    pub(super) fn hold(&self, xid: u32) -> Option<Hold<'_>> {
        let mut newest = self.newest.lock();
        if newest.len() >= self.most && !newest.contains_key(&xid) {
            return None;
        }
        let own = Arc::new(());
        newest.insert(xid, Arc::clone(&own));
        Some(Hold { holds: self, xid, own })
    }

    /// The connection ends: nobody waits for an answer.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

impl Hold<'_> {
    /// Waits until it is time to ask again. Whether the call is still wanted.
    pub(super) async fn wait(&self) -> bool {
        sleep(TICK).await;
        !self.holds.is_over.load(Ordering::Acquire) && self.is_newest(&self.holds.newest.lock())
    }

    fn is_newest(&self, newest: &HashMap<u32, Arc<()>>) -> bool {
        newest.get(&self.xid).is_some_and(|newest| Arc::ptr_eq(newest, &self.own))
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut newest = self.holds.newest.lock();
        if self.is_newest(&newest) {
            newest.remove(&self.xid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_of_an_id_is_kept_and_not_too_many() {
        let holds = Holds::new(2);
        let first = holds.hold(7).unwrap();
        assert!(first.wait().await);
        let other = holds.hold(8).unwrap();
        assert!(holds.hold(9).is_none(), "too many");
        let again = holds.hold(7).unwrap();
        assert!(!first.wait().await && again.wait().await && other.wait().await);
        drop(first);
        assert!(again.wait().await, "who goes takes only its own place");
        drop(other);
        let more = holds.hold(9).unwrap();
        holds.end();
        assert!(!more.wait().await && !again.wait().await);
    }
}
