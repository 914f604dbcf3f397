//! Tails of files: objects without a name that were cut off a file, or were a file before it was
//! rolled back, and wait to be freed.
//!
//! The list of orphans does not say which of them are tails, and of which file. So it is looked
//! through once after the import, piece by piece, and what is cut off later is noted at once. From
//! the end of the list on all tails are known, until the dataset is rolled back and has another
//! list. Ids are never given out again, so none of it becomes wrong.
//!
//! A sync that has to know all tails looks at a piece, and comes back to the rest: there may be
//! millions of removed files. What must not be freed before that waits ([`crate::reap`]).

use std::collections::{BTreeMap, BTreeSet};

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::btree;
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_ondisk::{ObjectId, Txg};
use aquifer_pool::{Pool, PoolError, SyncContext};

use crate::dataset::{Dataset, ORPHANS};
use crate::datasets::Datasets;
use crate::sync::Gathered;

/// Orphans that the snapshot of a file looks up at most. With more, it does not know whether it is
/// settled.
pub(crate) const LOOKED_UP_MAX: usize = 20_000;
/// Orphans that a sync looks up at most.
pub(crate) const LOOKED_UP_IN_SYNC_MAX: usize = 4_000;
/// Entries of the list read at a time.
const AT_ONCE: usize = 1_000;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Tails {
    files: BTreeMap<ObjectId, ObjectId>,
    by_file: BTreeSet<(ObjectId, ObjectId)>,
    /// The key of the list from which on it was not looked through; `None`: all tails are known.
    from: Option<u64>,
    /// Which list, of those that the dataset had since the import.
    list: u64,
    /// Orphans that were looked up since the import.
    looked_up: u64,
}

impl Default for Tails {
    fn default() -> Tails {
        Tails {
            files: BTreeMap::new(),
            by_file: BTreeSet::new(),
            from: Some(0),
            list: 0,
            looked_up: 0,
        }
    }
}

impl Tails {
    /// A part was cut off a file.
    pub fn note(&mut self, tail: ObjectId, file: ObjectId) {
        self.files.insert(tail, file);
        self.by_file.insert((file, tail));
    }

    /// It was freed.
    pub fn forget(&mut self, orphan: ObjectId) {
        if let Some(file) = self.files.remove(&orphan) {
            self.by_file.remove(&(file, orphan));
        }
    }

    /// The dataset has another list.
    pub fn begin_again(&mut self) {
        self.from = Some(0);
        self.list += 1;
    }

    /// So many orphans of a list from a key on were looked up, and up to where; `None`: the end.
    fn looked_up(&mut self, list: u64, from: u64, (count, next): (usize, Option<u64>)) {
        self.looked_up = self.looked_up.saturating_add(count as u64);
        // Another one may have looked at them meanwhile.
        if (self.list, self.from) == (list, Some(from)) {
            self.from = next;
        }
    }

    fn of(&self, file: ObjectId) -> Vec<ObjectId> {
        let all = (file, ObjectId(0))..=(file, ObjectId(u64::MAX));
        self.by_file.range(all).map(|(_, tail)| *tail).collect()
    }
}

impl Datasets {
    /// Looks up which orphans of a dataset are tails, at most about so many. Returns whether all of
    /// its tails are known now, those too that later syncs cut off: not if there are more, or the
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

    /// Looks up which orphans are tails, as [`Datasets::find_tails`]; fails if something cannot be
    /// read.
    pub(crate) async fn look_for_tails(
        &self,
        dataset: &Dataset,
        at_most: usize,
    ) -> Result<bool, PoolError> {
        let mut left = at_most;
        loop {
            let (from, list) = {
                let tails = dataset.tails.lock();
                (tails.from, tails.list)
            };
            let Some(from) = from else { return Ok(true) };
            if left == 0 {
                return Ok(false);
            }
            let (count, next) = self.look_at_some(dataset, from, left.min(AT_ONCE)).await?;
            dataset.tails.lock().looked_up(list, from, (count, next));
            left = left.saturating_sub(count);
            self.pool.turn_of_others().await;
        }
    }

    /// Looks up so many orphans from a key of the list on. Returns how many there were, and the key
    /// from which on there may be more.
    async fn look_at_some(
        &self,
        dataset: &Dataset,
        from: u64,
        at_once: usize,
    ) -> Result<(usize, Option<u64>), PoolError> {
        // Before the root is looked at.
        let _reading = self.pool.reading();
        let table = dataset.table.lock().committed;
        let list = btree::lookup::<Objects, Pool>(&self.pool, table, ORPHANS.0).await?;
        let root = list.and_then(|list| list.root);
        let some = btree::collect_range::<Directory, Pool>(&self.pool, root, from, None, at_once);
        let some = some.await?;
        for entry in &some {
            let inode = btree::lookup::<Objects, Pool>(&self.pool, table, entry.object.0).await?;
            if let Some(tail) = inode.filter(|inode| inode.is_tail()) {
                dataset.tails.lock().note(entry.object, tail.origin);
            }
        }
        let next = some.last().filter(|_| some.len() == at_once);
        Ok((some.len(), next.map(|last| last.key.saturating_add(1))))
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

    /// Orphans that were looked up since the import, to know the tails among them.
    pub fn orphans_looked_up(&self) -> u64 {
        self.tails.lock().looked_up
    }
}
