//! The one gate that every block passes when a tree of a dataset no longer refers to it.
//!
//! A block lives from its birth to its death, the txg in which the head no longer refers to it. A
//! snapshot of txg t shows it if birth <= t < death. At its death a block is either freed, because
//! no snapshot shows it, or *filed*: it goes to the dead tree of the dataset, into the [`Bucket`]
//! that says which snapshots show it.
//!
//! What was born at or below the *floor* belongs to a snapshot from which this tree began: when the
//! tree no longer refers to it, nothing happens.
//!
//! Invariants:
//! - No tree of a dataset frees what it referred to but through its gate. What no committed tree
//!   ever referred to (data of a change that came to nothing) needs none.
//! - The snapshots of a gate are those of the dataset's list at the start of the sync: one that
//!   this txg takes shows nothing that dies in it, and one that leaves the list in this txg still
//!   counts, since its sweep comes later.

use std::collections::BTreeMap;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::dead::{Bucket, DeadBlock, DeadKind};
use aquifer_ondisk::tree_node::NodeOwner;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{BlockPointer, ObjectId, Txg};
use aquifer_pool::{PoolError, SyncContext};
use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicU64, Ordering};

use crate::btree::{NodeSink, NodeSize, NodeStore};
use crate::extent_tree::FreedExtent;

/// Blocks that died in a txg, by bucket and object.
pub type Filed = BTreeMap<(Bucket, ObjectId), Vec<DeadBlock>>;

/// A rollback whose snapshot's blocks the dead tree still names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returning {
    /// The txg of the rollback.
    pub txg: Txg,
    /// The txg of the snapshot.
    pub to: Txg,
}

/// What decides on the blocks of a dataset that die.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Births at or below are another's.
    pub floor: Txg,
    /// The snapshots, in order.
    pub listed: Vec<Txg>,
    /// What dies now must not stand among what comes back.
    pub returning: Option<Returning>,
}

/// See the module's head.
#[derive(Debug)]
pub struct Gate<'a> {
    sync: &'a SyncContext,
    shown: Shown,
    /// Trees are taken down as a whole: what lies below a node of another is not looked at.
    whole: bool,
    filed: Mutex<Filed>,
    /// Sectors of data of another that the tree no longer refers to.
    given_up: AtomicU64,
}

impl<'a> Gate<'a> {
    /// The gate of a dataset.
    pub fn new(sync: &'a SyncContext, shown: Shown) -> Self {
        assert!(shown.listed.is_sorted_by(|left, right| left < right), "snapshots in order");
        Gate { sync, shown, whole: false, filed: Mutex::default(), given_up: AtomicU64::new(0) }
    }

    /// The gate of a dataset that is taken down. No snapshot shows anything of it above the floor.
    pub fn of_destroyed(sync: &'a SyncContext, floor: Txg) -> Self {
        let shown = Shown { floor, ..Shown::default() };
        Gate { whole: true, ..Gate::new(sync, shown) }
    }

    /// The sync.
    pub fn sync(&self) -> &'a SyncContext {
        self.sync
    }

    /// Whether a snapshot shows what was born in that txg and lived until now.
    pub fn is_shown(&self, birth: Txg) -> bool {
        self.shown.covers(birth)
    }

    /// Whether there are snapshots at all.
    pub fn files_anything(&self) -> bool {
        !self.shown.listed.is_empty()
    }

    /// A file no longer refers to these extents.
    pub fn free_extents(&self, owner: NodeOwner, freed: &[FreedExtent]) {
        for extent in freed {
            debug_assert!(!extent.counted, "nothing counts extents yet");
            let block = DeadBlock { kind: DeadKind::Extent, run: extent.run, birth: extent.birth };
            self.dies(owner, block, extent.written);
        }
    }

    fn dies(&self, owner: NodeOwner, block: DeadBlock, written: Txg) {
        if self.shown.is_of_another(block.birth) {
            if block.kind == DeadKind::Extent && !left_out(Rule::GivenUpIsCounted) {
                self.given_up.fetch_add(block.run.sectors, Ordering::Relaxed);
            }
            return;
        }
        let Some(bucket) = self.shown.bucket(block.birth) else {
            return self.sync.free(block.run, written);
        };
        self.filed.lock().entry((bucket, owner.object)).or_default().push(block);
    }

    /// The blocks that died so far and are still shown, and the sectors of data that the tree gave
    /// up and another owns.
    pub fn into_filed(self) -> (Filed, u64) {
        let filed = std::mem::take(&mut *self.filed.lock());
        (filed, self.given_up.load(Ordering::Relaxed))
    }
}

/// Whether a snapshot, or another, shows what was born in that txg and lived until now: by the
/// dataset's floor and its newest snapshot.
pub fn covers(birth: Txg, floor: Txg, newest: Option<Txg>) -> bool {
    is_inherited(birth, floor) || newest.is_some_and(|newest| birth <= newest)
}

fn is_inherited(birth: Txg, floor: Txg) -> bool {
    birth <= floor && !left_out(Rule::FloorIsKept)
}

impl Shown {
    /// Whether a snapshot, or another, shows what was born in that txg and lived until now.
    pub fn covers(&self, birth: Txg) -> bool {
        covers(birth, self.floor, self.listed.last().copied())
    }

    fn is_of_another(&self, birth: Txg) -> bool {
        is_inherited(birth, self.floor)
    }

    /// The bucket of a block that dies now; `None` if no snapshot shows it.
    fn bucket(&self, birth: Txg) -> Option<Bucket> {
        let listed = &self.listed;
        let newest = *listed.last().filter(|newest| birth <= **newest)?;
        if left_out(Rule::ShownBlocksAreFiled) {
            return None;
        }
        let later = self.returning.filter(|back| back.to <= newest && !left_out(Rule::DeathsPass));
        let hi = later.map_or(newest, |back| newest.max(back.txg));
        let before = listed.partition_point(|snapshot| *snapshot < birth);
        let lo = before.checked_sub(1).and_then(|at| listed.get(at)).copied().unwrap_or_default();
        Some(Bucket { group: 0, hi, lo })
    }
}

impl NodeStore for Gate<'_> {
    type Error = PoolError;

    async fn read(&self, pointer: &BlockPointer) -> Result<Page, PoolError> {
        NodeStore::read(self.sync, pointer).await
    }
}

impl NodeSink for Gate<'_> {
    fn node_size(&self) -> NodeSize {
        NodeSink::node_size(self.sync)
    }

    fn txg(&self) -> Txg {
        NodeSink::txg(self.sync)
    }

    fn write_node(
        &self,
        kind: BlockKind,
        level: u8,
        owner: NodeOwner,
        page: Page,
    ) -> Result<BlockPointer, PoolError> {
        NodeSink::write_node(self.sync, kind, level, owner, page)
    }

    fn is_of_another(&self, pointer: &BlockPointer) -> bool {
        self.whole && self.shown.is_of_another(pointer.birth)
    }

    fn free_node(&self, owner: NodeOwner, pointer: &BlockPointer) {
        for place in pointer.copies() {
            let run = Run::new(place, pointer.sectors());
            let block = DeadBlock { kind: DeadKind::Node, run, birth: pointer.birth };
            self.dies(owner, block, pointer.written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_says_which_snapshots_show_a_block() {
        let mut shown = Shown { listed: vec![Txg(10), Txg(20), Txg(30)], ..Shown::default() };
        let of = |shown: &Shown, birth| {
            shown.bucket(Txg(birth)).map(|bucket| (bucket.hi.0, bucket.lo.0))
        };
        let bucket = |birth| of(&shown, birth);
        assert_eq!(bucket(5), Some((30, 0)), "all of them");
        assert_eq!(bucket(10), Some((30, 0)), "a snapshot is the last of its txg");
        assert_eq!(bucket(11), Some((30, 10)));
        assert_eq!(bucket(30), Some((30, 20)), "the newest alone");
        assert_eq!(bucket(31), None);
        assert_eq!(of(&Shown::default(), 1), None);
        shown.returning = Some(Returning { txg: Txg(35), to: Txg(20) });
        assert_eq!(of(&shown, 11), Some((35, 10)), "not among what comes back");
        shown.listed.push(Txg(40));
        assert_eq!(of(&shown, 11), Some((40, 10)), "a snapshot came later");
        (shown.listed, shown.floor) = (vec![Txg(10)], Txg(5));
        assert_eq!(of(&shown, 6), Some((10, 0)), "the snapshot of the rollback is gone");
        assert!(shown.covers(Txg(5)) && !shown.covers(Txg(11)));
    }
}
