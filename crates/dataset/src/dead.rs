//! The dead tree of a dataset: blocks that the head no longer refers to but a snapshot still shows.
//!
//! A sync files what died in it ([`Datasets::file`]), after all trees of the dataset are written. A
//! destroyed snapshot leaves a sweep; later syncs free what it alone showed, piece by
//! piece ([`Datasets::sweep`]).
//!
//! # Which buckets a sweep takes
//! Let P and N be the snapshots before and after S in the list, from which S is gone. Only S showed
//! a block if P is before its birth, and its death before N. The block's bucket has the newest
//! snapshot of the list at its death as `hi`, so `hi` is in [S, N), and the newest one before its
//! birth as `lo`, so `lo` is in [P, S). Snapshots between may have left the list since: hence
//! ranges. A sweep takes P and N from the list of its time, so sweeps may run in any order. Nothing
//! is filed into such a bucket any more: its `hi` is not in the list.
//!
//! # Groups
//! The blocks of a file in whose life a snapshot of that file lies are in the file's group. There
//! the list is that of both kinds: the dataset's snapshots and the file's. The sweep of a file's
//! snapshot looks at its group, that of a dataset's at all of them, with the neighbours in each
//! group's list. A snapshot never joins a list as an older one. So what a group's buckets say stays
//! true, and no block changes its group. The exception is a snapshot of a file that is derived from
//! one of the dataset, of the same txg: what it shows of group 0 is gathered, before any sweep
//! ([`gathering`]).
//!
//! # Rollback
//! What a rollback to S in txg R brought back stands in the buckets with `hi` in [S, R) and `lo`
//! before S, in all groups: they are taken out of the tree like those of a sweep, before any of
//! them, and nothing of them is freed. What dies meanwhile has a `hi` of at least R.
//!
//! A rollback of one file does the same in the file's group. Snapshots of the file lie in the life
//! of all that comes back, so no other group has any of it.
//!
//! # Bookmarks
//! Nodes that bookmarks need stand in a group of their own, once no snapshot shows them.
//!
//! # Damage
//! A dead tree lies on the disks twice at least. If it cannot be read all the same, its blocks stay
//! allocated: that is reported, and the pool serves on.

use std::collections::BTreeMap;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{Filed, btree};
use aquifer_ondisk::dataset::{Item, ItemKey};
use aquifer_ondisk::dead::{
    Bucket, DEAD_BLOCKS_MAX, DeadBlock, DeadBody, DeadEntry, DeadKey, DeadSums,
};
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::tree_node::Dead;
use aquifer_ondisk::{BlockPointer, ObjectId, Space, Txg};
use aquifer_pool::{Pool, PoolError, SyncContext};

use crate::damage::only;
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::snapshots::{Snapshots, inherited_item};
use crate::space::SpaceChange;

mod bookmarked;
mod freeing;
mod gathering;
mod returning;
mod sweep;
mod unique;

pub use unique::These;

use bookmarked::Moved;
use returning::{returning, returning_sums};
use sweep::{Job, Lists};

/// The dead tree as of the last sync.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct DeadTree {
    pub root: Option<BlockPointer>,
    /// That of the newest root on disk, to be read.
    pub committed: Option<BlockPointer>,
    /// Over all of it.
    pub sums: DeadSums,
    /// Of that, what a rollback brought back: the head counts it.
    pub returning: DeadSums,
    /// It could not be read: it stays as it is.
    pub damaged: bool,
}

impl DeadTree {
    /// Import. Also returns why it cannot be read, if it cannot.
    pub async fn open(
        pool: &Pool,
        root: Option<BlockPointer>,
        snapshots: &Snapshots,
    ) -> Result<(DeadTree, Option<PoolError>), PoolError> {
        let tree = DeadTree { root, committed: root, ..DeadTree::default() };
        let read = async {
            let all = sums(pool, root, Bucket::ALL).await?;
            Ok::<_, PoolError>((all, returning_sums(pool, root, &returning(snapshots)).await?))
        };
        match read.await {
            Ok((sums, returning)) => Ok((DeadTree { sums, returning, ..tree }, None)),
            Err(error) if error.cannot_be_read() => {
                Ok((DeadTree { damaged: true, ..tree }, Some(error)))
            }
            Err(error) => Err(error),
        }
    }
}

/// Changes to a dead tree, to be merged at once.
#[derive(Debug, Default)]
struct Changes {
    ops: BTreeMap<DeadKey, Option<DeadEntry>>,
    all: DeadSums,
    returning: DeadSums,
    /// Blocks that go. They are freed when the tree no longer names them, and not before: else a
    /// tree that cannot be changed would have them freed twice.
    freed: Vec<DeadBlock>,
    /// The bookmarks of the list.
    bookmarks: Vec<Txg>,
    /// Blocks that move: nodes that bookmarks need and no snapshot shows any more, and what is
    /// gathered.
    moved: Moved,
}

impl Changes {
    fn put(&mut self, key: DeadKey, body: DeadBody) {
        self.ops.insert(key, Some(DeadEntry { key, body }));
    }

    /// Blocks of one object that died in one txg, from this key on.
    fn put_blocks(&mut self, first: DeadKey, blocks: &[DeadBlock]) {
        for (blocks, index) in blocks.chunks(DEAD_BLOCKS_MAX).zip(first.index..) {
            self.put(DeadKey { index, ..first }, DeadBody::Blocks(blocks.to_vec()));
        }
    }

    fn put_sums(&mut self, bucket: Bucket, sums: DeadSums) {
        match sums.blocks {
            0 => drop(self.ops.insert(bucket.sums(), None)),
            _ => self.put(bucket.sums(), DeadBody::Sums(sums)),
        }
    }
}

impl Datasets {
    /// Files what died in this sync. Returns whether the dead tree changed.
    pub(crate) async fn file(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        filed: Filed,
    ) -> Result<bool, PoolError> {
        let before = *dataset.dead.lock();
        if filed.is_empty() || before.damaged {
            return Ok(false);
        }
        let filled = fill(sync, before, filed).await;
        self.keep_dead(sync, dataset, before, filled).await
    }

    /// Files what died in an earlier txg, behind all that did. Returns as [`Datasets::file`].
    pub(crate) async fn file_late(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        (filed, died): (Filed, Txg),
    ) -> Result<bool, PoolError> {
        let before = *dataset.dead.lock();
        if filed.is_empty() || before.damaged {
            return Ok(false);
        }
        let filled = fill_late(sync, before, (filed, died)).await;
        self.keep_dead(sync, dataset, before, filled).await
    }

    /// Merges changes, unless the tree cannot be read.
    async fn keep_dead(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        before: DeadTree,
        changes: Result<Changes, PoolError>,
    ) -> Result<bool, PoolError> {
        let merged = match changes {
            Ok(mut changes) => {
                let Changes { all, returning, .. } = changes;
                changes.put_sums(Bucket::ALL, all);
                let ops = changes.ops.into_iter().collect();
                let merge =
                    btree::merge::<Dead, SyncContext>(sync, before.root, dataset.owner(), ops);
                let merged = merge.await;
                if merged.is_ok() {
                    changes.freed.iter().for_each(|block| free(sync, block));
                }
                merged.map(|root| DeadTree { root, sums: all, returning, ..before })
            }
            Err(error) => Err(error),
        };
        let after = match merged {
            Err(error) if error.cannot_be_read() => {
                self.note_damage(dataset, ObjectId(0), sync.txg(), only(error), false);
                DeadTree { damaged: true, ..before }
            }
            merged => merged?,
        };
        *dataset.dead.lock() = after;
        Ok(after.root != before.root)
    }

    /// Frees some of what destroyed snapshots alone showed, at most `budget` blocks. Returns the
    /// sweeps that are done, and whether the dead tree changed.
    pub(crate) async fn sweep(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        budget: usize,
    ) -> Result<(Done, bool), PoolError> {
        let (jobs, released, lists, bookmarks, gathering) = {
            let snapshots = dataset.snapshots.lock();
            let lists = Lists::new(snapshots.listed(), snapshots.files.lists());
            let bookmarks = snapshots.bookmarks.listed();
            let returning = returning(&snapshots).into_iter();
            let sweeps = snapshots.sweeps().into_iter().map(Job::Snapshot);
            let of_files = snapshots.files.sweeps().map(|(id, of)| Job::File(of, id));
            let sweeps = sweeps.chain(of_files);
            let mut jobs = match left_out(Rule::RevivesFirst) {
                true => sweeps.chain(returning).collect::<Vec<_>>(),
                false => returning.chain(sweeps).collect(),
            };
            let mut released = snapshots.bookmarks.destroyed();
            let gathering = snapshots.files.gathering();
            if gathering.is_some() && !left_out(Rule::GatheredFirst) {
                jobs.retain(Job::returns);
                released.clear();
            }
            let gathering = gathering.filter(|_| jobs.is_empty());
            (jobs, released, lists, bookmarks, gathering)
        };
        let before = *dataset.dead.lock();
        let (mut done, mut budget) = (Done::default(), budget);
        let nothing = jobs.is_empty() && released.is_empty() && gathering.is_none();
        if before.damaged || nothing {
            return Ok((done, false));
        }
        let DeadTree { sums: all, returning, .. } = before;
        let mut changes = Changes { all, returning, bookmarks, ..Changes::default() };
        let at = (sync, before.root);
        let mut swept = Ok(());
        if let Some(of) = gathering {
            match changes.gather(&of, at, budget).await {
                Ok(upto) => done.gathered = Some((of.id, upto)),
                Err(error) => swept = Err(error),
            }
        }
        for job in jobs {
            match job.run(&lists, at, &mut budget, &mut changes).await {
                Ok(true) => done.note(job),
                Ok(false) => break,
                Err(error) => {
                    swept = Err(error);
                    break;
                }
            }
        }
        for (bookmark, from) in released {
            if budget == 0 || swept.is_err() {
                break;
            }
            match changes.release((bookmark, from), at, &mut budget).await {
                Ok(to) => done.released.push((bookmark, to)),
                Err(error) => swept = Err(error),
            }
        }
        if swept.is_ok() {
            swept = changes.place_moved(sync, before.root).await;
        }
        if changes.ops.is_empty() && swept.is_ok() {
            return Ok((done, false));
        }
        let changed = self.keep_dead(sync, dataset, before, swept.map(|()| changes)).await?;
        if dataset.dead.lock().damaged {
            // Nothing was merged: what the sweeps would have freed is still there.
            done = Done::default();
        }
        Ok((done, changed))
    }

    /// Of a destroyed dataset, which has no snapshots any more: frees some of its dead blocks.
    /// Returns the number of entries.
    pub(crate) async fn empty_dead(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        budget: usize,
    ) -> Result<usize, PoolError> {
        let before = *dataset.dead.lock();
        let entries = budget.div_ceil(DEAD_BLOCKS_MAX);
        let drained =
            btree::drain::<Dead, SyncContext>(sync, before.root, dataset.owner(), entries).await;
        let drained = match drained {
            Err(error) if error.cannot_be_read() => {
                self.note_damage(dataset, ObjectId(0), sync.txg(), only(error), false);
                dataset.dead.lock().damaged = true;
                return Ok(0);
            }
            drained => drained?,
        };
        let mut sums = before.sums;
        for block in drained.entries.iter().flat_map(blocks) {
            free(sync, block);
            sums.remove(block);
        }
        if drained.root.is_none() {
            sums = DeadSums::default();
        }
        *dataset.dead.lock() = DeadTree { root: drained.root, sums, ..before };
        Ok(drained.entries.len())
    }
}

fn blocks(entry: &DeadEntry) -> &[DeadBlock] {
    match &entry.body {
        DeadBody::Sums(_) => &[],
        DeadBody::Blocks(blocks) => blocks,
    }
}

fn free(sync: &SyncContext, block: &DeadBlock) {
    // Most blocks were written when they were born. Others leave the cache by age.
    sync.free(block.run, block.birth);
}

/// The sums of a bucket.
async fn sums<S: btree::NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    bucket: Bucket,
) -> Result<DeadSums, S::Error> {
    let entry = btree::lookup::<Dead, S>(store, root, bucket.sums()).await?;
    Ok(match entry.map(|entry| entry.body) {
        Some(DeadBody::Sums(sums)) => sums,
        _ => DeadSums::default(),
    })
}

/// The changes that file blocks.
async fn fill(sync: &SyncContext, before: DeadTree, filed: Filed) -> Result<Changes, PoolError> {
    let DeadTree { sums: all, returning, .. } = before;
    let mut changes = Changes { all, returning, ..Changes::default() };
    let mut added: BTreeMap<Bucket, DeadSums> = BTreeMap::new();
    for ((bucket, object, cut_off), blocks) in filed {
        let sums = added.entry(bucket).or_default();
        for sums in [sums, &mut changes.all] {
            blocks.iter().for_each(|block| sums.add(block));
        }
        changes.put_blocks(DeadKey::first(bucket, (object, cut_off), sync.txg()), &blocks);
        sync.pace().await;
    }
    for (bucket, added) in added {
        let mut sums = sums(sync, before.root, bucket).await?;
        sums.plus(&added);
        changes.put_sums(bucket, sums);
    }
    Ok(changes)
}

/// The changes that file blocks which died in an earlier txg. They have lists of their own, behind
/// those of that txg.
async fn fill_late(
    sync: &SyncContext,
    before: DeadTree,
    (filed, died): (Filed, Txg),
) -> Result<Changes, PoolError> {
    let DeadTree { sums: all, returning, .. } = before;
    let mut changes = Changes { all, returning, ..Changes::default() };
    for ((bucket, object, cut_off), blocks) in filed {
        blocks.iter().for_each(|block| changes.all.add(block));
        changes.moved.insert(DeadKey::first(bucket, (object, cut_off), died), blocks);
    }
    changes.place_moved(sync, before.root).await?;
    Ok(changes)
}

/// Sweeps that have nothing left to do.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// Of these destroyed snapshots.
    pub swept: Vec<Txg>,
    /// And of these of files.
    pub swept_files: Vec<FileSnapshotId>,
    /// Of what a rollback brought back.
    pub returned: bool,
    /// And of what rollbacks of files to these did.
    pub returned_files: Vec<FileSnapshotId>,
    /// Progress of gathering the blocks that a derived snapshot of a file shows; `None`: all are
    /// gathered.
    pub gathered: Option<(FileSnapshotId, Option<DeadKey>)>,
    /// Of these destroyed bookmarks so much was looked at; `None`: all.
    pub released: Vec<(Txg, Option<DeadKey>)>,
}

impl Done {
    fn note(&mut self, job: Job) {
        match job {
            Job::Returning(_) => self.returned = true,
            Job::ReturningFile(_, snapshot, _) => self.returned_files.push(snapshot),
            Job::Snapshot(snapshot) => self.swept.push(snapshot),
            Job::File(_, snapshot) => self.swept_files.push(snapshot),
        }
    }
}

impl Dataset {
    /// Sectors that the dead tree may take for a change after which so many pages die, before it
    /// frees any. Each page may die into a bucket of its own, but there is one for each snapshot at
    /// most: its list and its sums lie in two leaves, which have two copies.
    pub fn death_sectors(&self, pages: u64) -> u64 {
        let snapshots = self.snapshots.lock();
        let covering = snapshots.count().saturating_add(snapshots.files.count());
        let covering = covering.saturating_add(snapshots.bookmarks.count());
        pages.min(covering as u64).saturating_mul(4)
    }

    /// Returns the space that its objects and its snapshots take, without what its origin owns.
    pub fn own(&self) -> Space {
        self.head_space().plus(self.dead_space())
    }

    /// Space of its objects, without what its origin owns.
    pub(crate) fn head_space(&self) -> Space {
        let inherited = self.inherited.lock().unwrap_or_default();
        self.refer().minus(inherited)
    }

    /// The bytes on disk of [`Dataset::own`].
    pub fn own_bytes(&self) -> u64 {
        self.own().bytes
    }

    /// Clones of files began, or were rolled back, and the trees gave up so much of the data that
    /// an origin owns. Returns the item that says what is left of it, if that changed.
    pub(crate) fn change_inherited(
        &self,
        change: SpaceChange,
        given_up: Space,
    ) -> Option<(ItemKey, Option<Item>)> {
        let mut inherited = self.inherited.lock();
        let changes = change != SpaceChange::default() || given_up != Space::default();
        let space = inherited.as_mut().filter(|_| changes)?;
        *space = change.of(*space).minus(given_up);
        Some(inherited_item(self.id, Txg(0), *space))
    }

    fn dead_space(&self) -> Space {
        let DeadTree { sums, returning, .. } = *self.dead.lock();
        sums.space().minus(returning.space())
    }

    /// Bytes that its snapshots alone show, and those that wait to be freed.
    pub fn dead_bytes(&self) -> u64 {
        self.dead_space().bytes
    }
}
