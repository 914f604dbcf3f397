//! Freeing objects without a name, piece by piece: a huge removed file must not stall anybody.

use std::sync::Arc;

use aquifer_object::sync::free_extents;
use aquifer_object::{btree, extent_tree};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::inode::FileKind;
use aquifer_ondisk::tree_node::Directory;
use aquifer_pool::{Pool, PoolError, SyncContext};

use crate::dataset::{Dataset, ORPHANS};
use crate::datasets::Datasets;
use crate::sync::{Gathered, orphan_key, signed};

/// Entries freed in one txg and dataset at most, whatever the record still holds.
const REAP_ENTRIES_MAX: usize = 20_000;
/// Orphans looked at in one txg and dataset.
const REAP_OBJECTS_MAX: usize = 1_000;

impl Datasets {
    /// Import: what was left to be freed.
    pub(crate) async fn find_orphans(&self, dataset: &Dataset) -> Result<(), PoolError> {
        let Some(list) = dataset.object(&self.pool, ORPHANS).await? else {
            return Ok(());
        };
        let root = list.inode().root;
        let mut scan = btree::Scan::<Directory, Pool>::new(&self.pool, root, 0, None)?;
        while let Some(entry) = scan.next().await? {
            dataset.mark_orphan(entry.object);
        }
        Ok(())
    }

    pub(crate) async fn reap(
        &self,
        sync: &SyncContext,
        dataset: &Arc<Dataset>,
        gathered: &mut Gathered,
    ) -> Result<(), PoolError> {
        let orphans: Vec<ObjectId> =
            dataset.orphans.lock().iter().copied().take(REAP_OBJECTS_MAX).collect();
        let mut budget = REAP_ENTRIES_MAX;
        for id in orphans {
            budget = budget.min(sync.frees_left() / 2);
            if budget == 0 {
                break;
            }
            // Made in this very sync: the next one frees it.
            if gathered.orphans.contains_key(&orphan_key(id)) {
                continue;
            }
            let taken = self.reap_object(sync, dataset, id, budget, gathered).await?;
            budget = budget.saturating_sub(taken.max(1));
        }
        Ok(())
    }

    async fn reap_object(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        id: ObjectId,
        budget: usize,
        gathered: &mut Gathered,
    ) -> Result<usize, PoolError> {
        let Some(object) = dataset.object(&self.pool, id).await? else {
            gathered.orphans.insert(orphan_key(id), None);
            dataset.orphans.lock().remove(&id);
            return Ok(0);
        };
        let (mut inode, tree) = {
            let state = object.state.lock();
            // A change of a later txg: the name went away after this sync's txg closed.
            if state.overlay.newest_first().any(|(txg, _)| txg > sync.txg()) {
                return Ok(0);
            }
            (state.inode.clone(), state.synced)
        };
        let before = tree.refer_bytes;
        let mut tree = tree;
        let taken = if inode.kind == FileKind::Directory {
            let drained =
                btree::drain::<Directory, SyncContext>(sync, tree.root, object.owner(), budget);
            let drained = drained.await?;
            tree.root = drained.root;
            drained.entries.len()
        } else {
            let drained = extent_tree::drain(sync, tree.root, object.owner(), budget).await?;
            free_extents(sync, &drained.freed);
            tree.root = drained.root;
            tree.refer_bytes = tree.refer_bytes.saturating_sub(drained.refer_sectors * 4096);
            drained.freed.len()
        };
        if tree.root.is_none() {
            tree.refer_bytes = 0;
        }
        gathered.refer_change += signed(tree.refer_bytes) - signed(before);
        object.state.lock().synced = tree;
        if tree.root.is_none() {
            gathered.inodes.insert(id.0, None);
            gathered.orphans.insert(orphan_key(id), None);
            gathered.gone.push(id);
            dataset.orphans.lock().remove(&id);
        } else {
            inode.root = tree.root;
            inode.refer_bytes = tree.refer_bytes;
            gathered.inodes.insert(id.0, Some(inode));
        }
        Ok(taken)
    }
}
