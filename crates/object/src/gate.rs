//! The one gate that every block passes when a tree of a dataset no longer refers to it.
//!
//! A block lives from its birth to its death, the txg in which the head no longer refers to it. A
//! snapshot of txg t shows it if birth <= t < death. At its death a block is either freed, because
//! no snapshot shows it, or *filed*: it goes to the dead tree of the dataset, into the [`Bucket`]
//! that says which snapshots show it.
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

use crate::btree::{NodeSink, NodeSize, NodeStore};
use crate::extent_tree::FreedExtent;

/// Blocks that died in a txg, by bucket and object.
pub type Filed = BTreeMap<(Bucket, ObjectId), Vec<DeadBlock>>;

/// See the module's head.
#[derive(Debug)]
pub struct Gate<'a> {
    sync: &'a SyncContext,
    /// The dataset's snapshots, in order.
    listed: Vec<Txg>,
    filed: Mutex<Filed>,
}

impl<'a> Gate<'a> {
    /// The gate of a dataset whose list has these snapshots, in order.
    pub fn new(sync: &'a SyncContext, listed: Vec<Txg>) -> Self {
        assert!(listed.is_sorted_by(|left, right| left < right), "snapshots in order");
        Gate { sync, listed, filed: Mutex::default() }
    }

    /// The sync.
    pub fn sync(&self) -> &'a SyncContext {
        self.sync
    }

    /// Whether a snapshot shows what was born in that txg and lived until now.
    pub fn is_shown(&self, birth: Txg) -> bool {
        self.listed.last().is_some_and(|newest| birth <= *newest)
    }

    /// Whether there are snapshots at all.
    pub fn files_anything(&self) -> bool {
        !self.listed.is_empty()
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
        let Some(bucket) = bucket(&self.listed, block.birth) else {
            return self.sync.free(block.run, written);
        };
        self.filed.lock().entry((bucket, owner.object)).or_default().push(block);
    }

    /// The blocks that died so far and are still shown.
    pub fn into_filed(self) -> Filed {
        std::mem::take(&mut *self.filed.lock())
    }
}

/// The bucket of a block that dies now; `None` if no snapshot shows it.
fn bucket(listed: &[Txg], birth: Txg) -> Option<Bucket> {
    let hi = *listed.last().filter(|newest| birth <= **newest)?;
    if left_out(Rule::ShownBlocksAreFiled) {
        return None;
    }
    let before = listed.partition_point(|snapshot| *snapshot < birth);
    let lo = before.checked_sub(1).and_then(|at| listed.get(at)).copied().unwrap_or_default();
    Some(Bucket { group: 0, hi, lo })
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
        let listed = [Txg(10), Txg(20), Txg(30)];
        let bucket = |birth| bucket(&listed, Txg(birth)).map(|of| (of.hi.0, of.lo.0));
        assert_eq!(bucket(5), Some((30, 0)), "all of them");
        assert_eq!(bucket(10), Some((30, 0)), "a snapshot is the last of its txg");
        assert_eq!(bucket(11), Some((30, 10)));
        assert_eq!(bucket(30), Some((30, 20)), "the newest alone");
        assert_eq!(bucket(31), None);
        assert_eq!(super::bucket(&[], Txg(1)), None);
    }
}
