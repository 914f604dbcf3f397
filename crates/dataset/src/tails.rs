//! Tails of files: objects without a name that were cut off a file, or were a file before it was
//! rolled back, and wait to be freed.
//!
//! The list of orphans does not say which of them are tails, and of which file. What was looked up,
//! or was cut off since the import, is remembered. Ids are never given out again, so none of it
//! becomes wrong.

use std::collections::BTreeMap;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::btree;
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_ondisk::{ObjectId, Txg};
use aquifer_pool::{Pool, PoolError, SyncContext, turn_of_others};

use crate::dataset::{Dataset, ORPHANS};
use crate::datasets::Datasets;
use crate::sync::Gathered;

/// Orphans that the snapshot of a file looks up at most. With more, it does not know whether it is
/// settled.
pub(crate) const LOOKED_UP_MAX: usize = 20_000;
/// Entries of the list read at a time.
const AT_ONCE: usize = 1_000;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    /// The file of each, 0 for what is no tail.
    files: BTreeMap<ObjectId, ObjectId>,
}

impl Tails {
    /// A tail, or with 0 something else.
    pub fn note(&mut self, orphan: ObjectId, file: ObjectId) {
        self.files.insert(orphan, file);
    }

    /// It was freed.
    pub fn forget(&mut self, orphan: ObjectId) {
        self.files.remove(&orphan);
    }

    fn knows(&self, orphan: ObjectId) -> bool {
        self.files.contains_key(&orphan)
    }

    fn of(&self, file: ObjectId) -> Vec<ObjectId> {
        self.files.iter().filter(|(_, of)| **of == file).map(|(id, _)| *id).collect()
    }
}

impl Datasets {
    /// Looks up which orphans of a dataset are tails, at most so many. From here on all its tails
    /// are known, those too that later syncs cut off. Returns `false` if there are more, or the
    /// list, or one of them, cannot be read.
    pub(crate) async fn find_tails(
        &self,
        dataset: &Dataset,
        at_most: usize,
    ) -> Result<bool, PoolError> {
        match self.look_for_tails(dataset, at_most).await {
            Err(error) if error.cannot_be_read() => Ok(false),
            found => found,
        }
    }

    async fn look_for_tails(&self, dataset: &Dataset, at_most: usize) -> Result<bool, PoolError> {
        let (mut from, mut looked_at) = (0, 0);
        loop {
            let (last, new) = self.look_at_some(dataset, from).await?;
            looked_at += new;
            match last {
                None => return Ok(true),
                Some(_) if looked_at > at_most => return Ok(false),
                Some(last) => from = last.saturating_add(1),
            }
            turn_of_others().await;
        }
    }

    /// Looks at some orphans from a key of the list on. Returns the last key, unless that was the
    /// rest of the list, and how many had to be looked up.
    async fn look_at_some(
        &self,
        dataset: &Dataset,
        from: u64,
    ) -> Result<(Option<u64>, usize), PoolError> {
        // Before the root is looked at.
        let _reading = self.pool.reading();
        let table = dataset.table.lock().committed;
        let list = btree::lookup::<Objects, Pool>(&self.pool, table, ORPHANS.0).await?;
        let root = list.and_then(|list| list.root);
        let some = btree::collect_range::<Directory, Pool>(&self.pool, root, from, None, AT_ONCE);
        let some = some.await?;
        let mut looked_at = 0;
        for entry in &some {
            if dataset.tails.lock().knows(entry.object) {
                continue;
            }
            let inode = btree::lookup::<Objects, Pool>(&self.pool, table, entry.object.0).await?;
            let tail = inode.filter(|inode| inode.is_tail());
            let file = tail.map_or(ObjectId(0), |inode| inode.origin);
            dataset.tails.lock().note(entry.object, file);
            looked_at += 1;
        }
        let last = some.last().filter(|_| some.len() == AT_ONCE).map(|entry| entry.key);
        Ok((last, looked_at))
    }

    /// Whether a file has no tail in this sync whose bytes count in its sum: whose file was not
    /// rolled back since the cut. All tails are known.
    pub(crate) async fn has_no_tail(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        file: ObjectId,
    ) -> Result<bool, PoolError> {
        for tail in dataset.tails_of(file) {
            let found = btree::lookup::<Objects, _>(sync, dataset.synced_root(), tail.0).await;
            let inode = match found {
                Err(error) if error.cannot_be_read() => return Ok(false),
                found => found?,
            };
            if inode.is_some_and(|inode| inode.floor() == Txg(0)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The tails of a file that is rolled back do not own what was born up to the snapshot. Returns
    /// `false` if one of them cannot be read: then none has changed.
    pub(crate) async fn lift_tails(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        (file, floor): (ObjectId, Txg),
        gathered: &mut Gathered,
    ) -> Result<bool, PoolError> {
        let mut lifted = Vec::new();
        for tail in dataset.tails_of(file) {
            if !self.has_place(sync, dataset, tail, None).await? {
                return Ok(false);
            }
            let inode = match gathered.inodes.get(&tail.0) {
                Some(inode) => inode.clone(),
                None => btree::lookup::<Objects, _>(sync, dataset.synced_root(), tail.0).await?,
            };
            // One that has a floor was cut off before the snapshot, or owns nothing of it either.
            lifted.extend(inode.filter(|inode| inode.floor() == Txg(0)));
        }
        if left_out(Rule::TailsTakeTheFloor) {
            lifted.clear();
        }
        for mut inode in lifted {
            inode.rdev = floor.0;
            if let Some(object) = dataset.cached(inode.object) {
                object.state.lock().inode.rdev = floor.0;
            }
            gathered.inodes.insert(inode.object.0, Some(inode));
        }
        Ok(true)
    }
}

impl Dataset {
    pub(crate) fn tails_of(&self, file: ObjectId) -> Vec<ObjectId> {
        self.tails.lock().of(file)
    }
}
