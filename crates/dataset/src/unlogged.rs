//! Datasets whose changes are not logged (`sync=disabled`): how they become so, and cease to be.
//!
//! # Theory
//! A change of such a dataset enters its txg like any other, and nothing goes to the intent log: it
//! is answered at once, and durable when its txg is. After a crash the dataset is what the newest
//! root says: the state at the end of a txg. Others lose nothing by it, since a record refers to
//! objects of its own dataset only.
//!
//! Replay needs more: what a record refers to must be in the root, or come from a record before it.
//! So, in each dataset:
//!
//! 1. *No txg has both* changes with and without a record.
//! 2. *Before the first record, all that was not logged is on disk.* Else the record could name an
//!    object that no root and no record knows.
//! 3. *While changes are not logged, the root on disk says `sync=disabled`*, and an import goes on
//!    like that.
//!
//! Handles of files that were lost name no others later: see [`Dataset::new_object_id`].
//!
//! [`Dataset::new_object_id`]: crate::Dataset::new_object_id
//!
//! **From logged to unlogged.** The property is set in txg T, under a hold of T, and so is the
//! first txg without records: T + 2, which does not open before T is on disk (3), and which nobody
//! holds yet (1). Records of the txgs before are replayed, if need be, to the end of T + 1.
//!
//! **From unlogged to logged.** The gate is shut: changes that come now wait, before they ask for
//! admission. Those that were past it still are unlogged changes, and each notes its txg under the
//! lock of [`Unlogged::last`]. Txgs are committed until the newest one so noted is on disk; at that
//! moment, under the same lock, changes are logged from now on (1, 2). Only then is the property
//! set (3), and the gate opened.
//!
//! Which of both a change is, it asks under its hold ([`Unlogged::logs`]).

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Txg;
use aquifer_pool::{Pool, TxHold};
use aquifer_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use aquifer_sync::{Mutex, Notify};

/// Whether and since when a dataset's changes are not logged.
#[derive(Debug)]
pub(crate) struct Unlogged {
    /// Changes of this txg and later ones are not logged. [`LOGGED`]: all are.
    from: AtomicU64,
    /// The newest txg with a change that was not logged.
    last: Mutex<Txg>,
    /// Changes wait: those that are not logged are to come to an end.
    shut: AtomicBool,
    opened: Notify,
}

const LOGGED: u64 = u64::MAX;

impl Unlogged {
    /// A dataset whose changes are logged.
    pub fn no() -> Unlogged {
        let (from, shut) = (AtomicU64::new(LOGGED), AtomicBool::new(false));
        Unlogged { from, last: Mutex::new(Txg(0)), shut, opened: Notify::new() }
    }

    /// Changes are not logged. Of a dataset that nobody changes yet.
    pub fn is_from_the_start(&self) {
        self.from.store(0, Ordering::Release);
    }

    /// Changes are not logged, from the second txg after the one that is held, which sets the
    /// property.
    pub fn begin(&self, hold: &TxHold) {
        self.from.store(hold.txg().0 + 2, Ordering::Release);
    }

    /// Whether changes are not logged, or will not be soon.
    pub fn is_on(&self) -> bool {
        self.from.load(Ordering::Acquire) != LOGGED
    }

    /// Whether a change that came now would be logged.
    pub fn is_logged(&self, pool: &Pool) -> bool {
        let from = self.from.load(Ordering::Acquire);
        from == LOGGED || pool.open_txg().0 < from
    }

    /// Whether a change under this hold is to be logged. One that is not is noted.
    pub fn logs(&self, hold: &TxHold) -> bool {
        let txg = hold.txg();
        if txg.0 < self.from.load(Ordering::Acquire) {
            return true;
        }
        let mut last = self.last.lock();
        let logged = txg.0 < self.from.load(Ordering::Acquire);
        if !logged {
            *last = (*last).max(txg);
        }
        logged
    }

    /// Lets no more changes begin until what is returned is dropped.
    pub fn shut(&self) -> Shut<'_> {
        self.shut.store(true, Ordering::Release);
        Shut(self)
    }

    /// Waits while changes are not to begin.
    pub async fn open(&self) {
        while self.shut.load(Ordering::Acquire) {
            if left_out(Rule::WaitersComeFirst) {
                self.opened.notified().await;
            }
            let opened = self.opened.notified();
            if self.shut.load(Ordering::Acquire) {
                opened.await;
            }
        }
    }

    /// Logs changes from now on, if all that were not are on disk.
    pub fn end(&self, committed: Txg) -> bool {
        let last = self.last.lock();
        let all = *last <= committed || left_out(Rule::UnloggedOnDiskFirst);
        if all {
            self.from.store(LOGGED, Ordering::Release);
        }
        all
    }
}

/// While it lives, no change of a dataset begins.
#[derive(Debug)]
pub(crate) struct Shut<'a>(&'a Unlogged);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.0.shut.store(false, Ordering::Release);
        self.0.opened.notify_waiters();
    }
}
