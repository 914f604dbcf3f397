//! Sweeps: which blocks of a dead tree a job takes out, group by group.

use std::collections::BTreeMap;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{FileLists, Returning, btree, newest_before};
use aquifer_ondisk::dead::{Bucket, DeadBlock, DeadBody, DeadKey, DeadSums};
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::tree_node::Dead;
use aquifer_ondisk::{BlockPointer, ObjectId, Txg};
use aquifer_pool::{PoolError, SyncContext};

use super::{Changes, blocks, sums};

/// Entries read at a time.
pub(super) const ENTRIES_AT_ONCE: usize = 64;

/// Blocks that are to leave a dead tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum Job {
    /// A rollback brought them back.
    Returning(Returning),
    /// A rollback of a file brought them back.
    ReturningFile(ObjectId, FileSnapshotId, Returning),
    /// A destroyed snapshot of the dataset alone showed them.
    Snapshot(Txg),
    /// A destroyed snapshot of a file.
    File(ObjectId, FileSnapshotId),
}

/// The snapshots of a dataset and of its files.
#[derive(Debug, Clone, Default)]
pub(super) struct Lists {
    listed: Vec<Txg>,
    files: FileLists,
}

/// Blocks that a job takes in one group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sweep {
    pub group: u64,
    pub snapshot: Txg,
    /// The one before it, 0 for none.
    pub before: Txg,
    /// The one after it, or the rollback.
    pub after: Option<Txg>,
    /// The head refers to the blocks again.
    pub returns: bool,
}

impl Lists {
    pub fn new(listed: Vec<Txg>, files: FileLists) -> Lists {
        Lists { listed, files }
    }

    /// The snapshots of the dataset, and those of a group's file.
    pub fn of_group(&self, group: u64) -> [&[Txg]; 2] {
        let files = self.files.get(&ObjectId(group)).filter(|_| group != 0);
        [&self.listed, files.map_or(&[][..], Vec::as_slice)]
    }

    /// The snapshots before and after one of a group's list; `None` if that has none of its txg.
    pub fn around(&self, group: u64, snapshot: Txg) -> Option<(Txg, Option<Txg>)> {
        let lists = self.of_group(group);
        let is_in = lists.iter().any(|list| list.binary_search(&snapshot).is_ok());
        is_in.then(|| neighbours(&lists, snapshot))
    }

    /// Both in one list.
    pub fn merged(&self, group: u64) -> Vec<Txg> {
        let mut merged = self.of_group(group).concat();
        merged.sort_unstable();
        merged.dedup();
        merged
    }

    /// Finds the blocks that the sweep of a snapshot takes in a group; `None` if the group's list
    /// still has one of that txg.
    fn sweep(&self, group: u64, snapshot: Txg, of_file: bool) -> Option<Sweep> {
        let mut lists = self.of_group(group);
        if left_out(Rule::NeighboursOfBothKinds) {
            let [of_dataset, of_files] = &mut lists;
            *if of_file { of_dataset } else { of_files } = &[];
        }
        if lists.iter().any(|list| list.binary_search(&snapshot).is_ok()) {
            return None;
        }
        let (before, after) = neighbours(&lists, snapshot);
        Some(Sweep { group, snapshot, before, after, returns: false })
    }
}

/// The snapshots before, 0 for none, and after a txg.
fn neighbours(lists: &[&[Txg]; 2], txg: Txg) -> (Txg, Option<Txg>) {
    let before = lists.iter().filter_map(|list| newest_before(list, txg)).max();
    let next = |list: &&[Txg]| list.get(list.partition_point(|of| *of <= txg)).copied();
    (before.unwrap_or_default(), lists.iter().filter_map(next).min())
}

impl Job {
    /// Whether a rollback brought its blocks back.
    pub fn returns(&self) -> bool {
        matches!(self, Job::Returning(_) | Job::ReturningFile(..))
    }

    /// The first group that it looks at.
    pub fn first_group(self) -> u64 {
        match self {
            Job::Returning(_) | Job::Snapshot(_) => 0,
            Job::ReturningFile(object, ..) | Job::File(object, _) => object.0,
        }
    }

    /// Whether it looks at the others too.
    pub fn is_of_all_groups(self) -> bool {
        match self {
            Job::Returning(_) => !left_out(Rule::RevivesAllGroups),
            Job::Snapshot(_) => !left_out(Rule::SweepsTakeAllGroups),
            Job::ReturningFile(..) | Job::File(..) => false,
        }
    }

    pub fn in_group(self, lists: &Lists, group: u64) -> Option<Sweep> {
        match self {
            Job::Returning(returning) | Job::ReturningFile(_, _, returning) => {
                Some(Sweep::of_returning(returning, group))
            }
            Job::Snapshot(snapshot) => lists.sweep(group, snapshot, false),
            Job::File(_, snapshot) => lists.sweep(group, snapshot.txg(), true),
        }
    }

    /// The buckets that it takes, with their sums.
    pub async fn buckets<S: btree::NodeStore>(
        self,
        store: &S,
        root: Option<BlockPointer>,
        lists: &Lists,
    ) -> Result<BTreeMap<Bucket, DeadSums>, S::Error> {
        let mut buckets = BTreeMap::new();
        let mut next = Some(self.first_group());
        while let Some(group) = next {
            if let Some(sweep) = self.in_group(lists, group) {
                let mut key = sweep.first_key();
                while let Some((bucket, sums)) = next_taken(store, root, key, |_| sweep).await? {
                    buckets.insert(bucket, sums);
                    key = bucket.end();
                }
            }
            next = match self.is_of_all_groups() {
                true => group_after(store, root, group).await?,
                false => None,
            };
        }
        Ok(buckets)
    }

    /// Takes out blocks, at most `budget`. Returns whether that was all.
    pub async fn run(
        self,
        lists: &Lists,
        (sync, root): (&SyncContext, Option<BlockPointer>),
        budget: &mut usize,
        changes: &mut Changes,
    ) -> Result<bool, PoolError> {
        let mut group = self.first_group();
        loop {
            if let Some(sweep) = self.in_group(lists, group)
                && !sweep.run(sync, root, budget, changes).await?
            {
                return Ok(false);
            }
            if !self.is_of_all_groups() {
                return Ok(true);
            }
            match group_after(sync, root, group).await? {
                Some(next) => group = next,
                None => return Ok(true),
            }
            sync.pace().await;
        }
    }
}

/// The first group behind this one of which the tree has blocks, and which is no bookmarks'.
pub(super) async fn group_after<S: btree::NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    group: u64,
) -> Result<Option<u64>, S::Error> {
    let Some(group) = group.checked_add(1) else { return Ok(None) };
    let key = Bucket { group, ..Bucket::ALL }.sums();
    let entry = btree::first_from::<Dead, S>(store, root, key).await?;
    let group = entry.map(|entry| entry.key.bucket.group);
    Ok(group.filter(|group| *group != Bucket::OF_BOOKMARKS))
}

impl Sweep {
    /// Of a rollback.
    pub fn of_returning(Returning { txg, to }: Returning, group: u64) -> Sweep {
        let after = match left_out(Rule::RevivesAllLater) {
            true => to.next(),
            false => txg,
        };
        Sweep { group, snapshot: to, before: Txg(0), after: Some(after), returns: true }
    }

    /// Whether its blocks are free now.
    pub fn takes(&self, bucket: Bucket) -> bool {
        let tests = match self.group {
            0 => !left_out(Rule::SweepsTestTheInterval),
            _ => !left_out(Rule::FileSweepsTestTheInterval),
        };
        let of_others = bucket.lo < self.before && tests;
        !of_others && bucket.lo < self.snapshot
    }

    /// Whether all buckets that it takes come before this one.
    pub fn ends_before(&self, bucket: Bucket) -> bool {
        let ends = |after| bucket.hi >= after && !left_out(Rule::SweepsEndAtTheNext);
        bucket.group != self.group || self.after.is_some_and(ends)
    }

    /// Where its buckets begin.
    pub fn first_key(&self) -> DeadKey {
        Bucket { group: self.group, hi: self.snapshot, lo: Txg(0) }.sums()
    }

    /// The key from which to look on, behind a bucket.
    fn next(&self, bucket: Bucket) -> DeadKey {
        if bucket.lo < self.before {
            return Bucket { lo: self.before, ..bucket }.sums();
        }
        match bucket.lo < self.snapshot {
            true => bucket.end(),
            // No later one of this newest snapshot is taken.
            false => Bucket { hi: bucket.hi.next(), lo: Txg(0), ..bucket }.sums(),
        }
    }

    async fn run(
        &self,
        sync: &SyncContext,
        root: Option<BlockPointer>,
        budget: &mut usize,
        changes: &mut Changes,
    ) -> Result<bool, PoolError> {
        let mut key = self.first_key();
        while let Some((bucket, _)) = next_taken(sync, root, key, |_| *self).await? {
            // Another sweep of this sync may have taken it.
            if !changes.ops.contains_key(&bucket.sums()) {
                let all = *budget > 0 && self.empty(sync, root, bucket, budget, changes).await?;
                if !all {
                    return Ok(false);
                }
            }
            key = bucket.end();
        }
        Ok(true)
    }

    /// Empties a bucket. Returns whether that was all of it.
    async fn empty(
        &self,
        sync: &SyncContext,
        root: Option<BlockPointer>,
        bucket: Bucket,
        budget: &mut usize,
        changes: &mut Changes,
    ) -> Result<bool, PoolError> {
        let mut sums = sums(sync, root, bucket).await?;
        let (range, returns) = ((bucket.sums(), bucket.end()), self.returns);
        let took = changes.take(range, (sync, root), budget, |changes, key, block| {
            sums.remove(block);
            match returns {
                true => {
                    changes.all.remove(block);
                    changes.returning.remove(block);
                }
                false => changes.let_go(key, *block),
            }
        });
        let all = took.await?;
        let rest = if all { DeadSums::default() } else { sums };
        changes.put_sums(bucket, rest);
        Ok(all)
    }
}

impl Changes {
    /// Takes the entries of a range out of the tree, down to `budget` blocks or somewhat less.
    /// `each` hears of each block. Returns whether that was all.
    pub async fn take(
        &mut self,
        (mut key, end): (DeadKey, DeadKey),
        (sync, root): (&SyncContext, Option<BlockPointer>),
        budget: &mut usize,
        mut each: impl FnMut(&mut Changes, &DeadKey, &DeadBlock),
    ) -> Result<bool, PoolError> {
        loop {
            let want = ENTRIES_AT_ONCE;
            let entries = btree::collect_range::<Dead, _>(sync, root, key, Some(end), want).await?;
            let read = entries.len();
            let mut taken = 0;
            for entry in entries {
                if *budget == 0 {
                    break;
                }
                for block in blocks(&entry) {
                    each(self, &entry.key, block);
                }
                *budget = budget.saturating_sub(blocks(&entry).len());
                self.ops.insert(entry.key, None);
                key = DeadKey { index: entry.key.index.saturating_add(1), ..entry.key };
                taken += 1;
            }
            sync.pace().await;
            match (taken < read, read < want) {
                (true, _) => return Ok(false),
                (false, true) => return Ok(true),
                (false, false) => {}
            }
        }
    }
}

/// The first bucket from a key on that a sweep takes. The sweep may differ with the bucket's `hi`.
pub(super) async fn next_taken<S: btree::NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    mut key: DeadKey,
    sweep_of: impl Fn(Txg) -> Sweep,
) -> Result<Option<(Bucket, DeadSums)>, S::Error> {
    while let Some(entry) = btree::first_from::<Dead, S>(store, root, key).await? {
        let bucket = entry.key.bucket;
        let sweep = sweep_of(bucket.hi);
        if sweep.ends_before(bucket) {
            break;
        }
        if let DeadBody::Sums(sums) = entry.body
            && sweep.takes(bucket)
        {
            return Ok(Some((bucket, sums)));
        }
        key = sweep.next(bucket);
    }
    Ok(None)
}
