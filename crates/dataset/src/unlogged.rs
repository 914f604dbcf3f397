//! Datasets whose changes are not logged (`sync=disabled`): how they enter that state, and how they
//! leave it.
//!
//! # Theory
//! A change of such a dataset enters its txg like any other, but not the intent log. Its answer
//! goes out at once, and it is durable when its txg is. After a crash the dataset is what the
//! newest root says: the state at the end of a txg. Other datasets lose nothing by that, since a
//! record refers to objects of its own dataset only.
//!
//! Replay needs more: the objects that a record refers to must be in the root, or come from an
//! earlier record. So, in each dataset:
//!
//! 1. *No txg has both* changes with and without a record.
//! 2. *Before the first record, all unlogged changes are on disk.* Else the record could name an
//!    object that no root and no record knows.
//! 3. *While changes are not logged, the root on disk says `sync=disabled`*, and an import goes on
//!    like that.
//!
//! Handles of lost files never name other files later: see [`Dataset::new_object_id`].
//!
//! [`Dataset::new_object_id`]: crate::Dataset::new_object_id
//!
//! **From logged to unlogged.** A hold of txg T sets the property and the first txg without
//! records: T + 2. That one does not open before T is on disk (3), and has no hold yet (1). A
//! replay, if need be, carries out the records of earlier txgs, up to the end of T + 1.
//!
//! **From unlogged to logged.** The entrance shuts: new changes wait before they ask for admission.
//! Those that have passed it are still unlogged changes, and each notes its txg under the lock of
//! [`Unlogged::last`]. Commits follow until the newest txg so noted is on disk. At that moment,
//! under the same lock, changes become logged (1, 2). Only then the property is set (3), and the
//! entrance opens.
//!
//! A change asks under its hold which of both it is ([`Unlogged::logs`]).

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Txg;
use aquifer_pool::{Pool, TxHold};
use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicU64, Ordering};

/// Whether and since when a dataset's changes are not logged.
#[derive(Debug)]
pub(crate) struct Unlogged {
    /// Changes of this txg and later ones are not logged. [`LOGGED`]: all are.
    from: AtomicU64,
    /// The newest txg with a change that was not logged.
    last: Mutex<Txg>,
}

const LOGGED: u64 = u64::MAX;

impl Unlogged {
    /// A dataset whose changes are logged.
    pub fn no() -> Unlogged {
        Unlogged { from: AtomicU64::new(LOGGED), last: Mutex::new(Txg(0)) }
    }

    /// Its changes are not logged. Called before the dataset takes changes.
    pub fn is_from_the_start(&self) {
        self.from.store(0, Ordering::Release);
    }

    /// Changes are not logged from the second txg after this hold's, which sets the property.
    pub fn begin(&self, hold: &TxHold) {
        self.from.store(hold.txg().0 + 2, Ordering::Release);
    }

    /// Whether changes are unlogged, or will be soon.
    pub fn is_on(&self) -> bool {
        self.from.load(Ordering::Acquire) != LOGGED
    }

    /// Whether a change that began now would be logged.
    pub fn is_logged(&self, pool: &Pool) -> bool {
        let from = self.from.load(Ordering::Acquire);
        from == LOGGED || pool.open_txg().0 < from
    }

    /// Whether a change under this hold is logged. Notes the txg of one that is not.
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

    /// Logs changes from now on, if all unlogged ones are on disk.
    pub fn end(&self, committed: Txg) -> bool {
        let last = self.last.lock();
        let all = *last <= committed || left_out(Rule::UnloggedOnDiskFirst);
        if all {
            self.from.store(LOGGED, Ordering::Release);
        }
        all
    }
}
