//! Datasets that syncs look at. A pool has thousands, and most of them rest.
//!
//! Invariant: a dataset of which a sync would write, free or drop anything is awake. Whoever
//! changes one wakes it under the hold of the change's txg: objects ([`Dataset::mark_dirty`]),
//! promises, stages of its life, and all that is asked of a sync ([`crate::queue`]). A sync wakes
//! those that its items name. One goes back to rest with a commit behind which nothing waits for
//! it. Debug builds look at all others in each sync.
//!
//! [`Dataset::mark_dirty`]: crate::dataset::Dataset::mark_dirty

use std::collections::BTreeMap;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::{DatasetId, Txg};
use aquifer_sync::Mutex;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Awake(Mutex<BTreeMap<DatasetId, Woken>>);

/// A dataset that is awake.
#[derive(Debug, Clone, Copy, Default)]
struct Woken {
    /// The last txg for which it was woken.
    until: Txg,
    /// How often it was woken.
    times: u64,
}

impl Awake {
    /// The syncs up to that of a txg look at a dataset: of the hold under which it changed. A
    /// change without a hold is made first, and then wakes it for the txg that is open: the sync of
    /// that has not begun.
    pub fn wake(&self, id: DatasetId, txg: Txg) {
        // Items of the pool belong to none.
        if id == DatasetId(0) {
            return;
        }
        let mut awake = self.0.lock();
        let woken = awake.entry(id).or_default();
        woken.until = txg.max(woken.until);
        woken.times += 1;
    }

    /// The datasets that are awake, in order, each with how often it was woken.
    pub fn all(&self) -> Vec<(DatasetId, u64)> {
        self.0.lock().iter().map(|(id, woken)| (*id, woken.times)).collect()
    }

    /// A dataset is gone.
    pub fn forget(&self, id: DatasetId) {
        self.0.lock().remove(&id);
    }

    /// Whether a dataset is awake.
    pub fn has(&self, id: DatasetId) -> bool {
        self.0.lock().contains_key(&id)
    }

    /// Nothing waits for a dataset behind the commit of a txg, as somebody saw who knew how often
    /// it had been woken before that look. It rests, unless it was woken since, or for a later txg.
    pub fn rest(&self, (id, times): (DatasetId, u64), txg: Txg) {
        let mut awake = self.0.lock();
        let was_woken = awake.get(&id).is_some_and(|of| of.until > txg || of.times != times);
        if !was_woken || left_out(Rule::WokenStayAwake) {
            awake.remove(&id);
        }
    }
}
