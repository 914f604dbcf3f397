//! Frees objects without a name piece by piece, so that a huge removed file stalls no client.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::extent_tree::DrainedExtents;
use aquifer_object::{Above, Gate, Object, TreeRoot, btree, extent_tree};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_ondisk::{BlockPointer, ObjectId, Space, Txg};
use aquifer_pool::{Pool, PoolError, SyncContext};

use crate::damage::only;
use crate::dataset::{Dataset, ORPHANS};
use crate::datasets::Datasets;
use crate::sync::{Gathered, orphan_key};
use crate::tails::LOOKED_UP_IN_SYNC_MAX;

/// Orphans looked at in one txg and dataset.
const REAP_OBJECTS_MAX: usize = 1_000;

impl Datasets {
    /// Import: finds the objects that still have to be freed.
    pub(crate) async fn find_orphans(&self, dataset: &Dataset) -> Result<(), PoolError> {
        match self.list_orphans(dataset).await {
            // Unreadable ones stay where they are.
            Err(error) if error.cannot_be_read() => {
                self.note_damage(dataset, ORPHANS, Txg(0), only(error), false);
                Ok(())
            }
            listed => listed,
        }
    }

    async fn list_orphans(&self, dataset: &Dataset) -> Result<(), PoolError> {
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
        gate: &Gate<'_>,
        dataset: &Arc<Dataset>,
        gathered: &mut Gathered,
    ) -> Result<(), PoolError> {
        let sync = gate.sync();
        // The newest first: what was cut off a file is younger than the file, and goes before it.
        // Its bytes are a part of the file's sum.
        let orphans: Vec<ObjectId> =
            dataset.orphans.lock().iter().rev().copied().take(REAP_OBJECTS_MAX).collect();
        let waits = self.waits_for_tails(dataset).await?;
        let mut budget = sync.pool().limits().scale.reap_entries_max;
        if gate.files_anything() {
            budget = budget.min(deaths_with_room(sync));
        }
        for id in orphans {
            budget = budget.min(sync.frees_left() / 2);
            if budget == 0 {
                break;
            }
            // This very sync made it: the next one frees it.
            if gathered.orphans.contains_key(&orphan_key(id)) {
                continue;
            }
            if waits && self.ends_a_line(sync, dataset, id).await? {
                continue;
            }
            match self.reap_object(gate, dataset, id, budget, gathered).await {
                Ok(taken) => budget = budget.saturating_sub(taken.max(1)),
                // It keeps its blocks, and its place on the list: the next import tries again.
                Err(error) if error.cannot_be_read() => {
                    dataset.orphans.lock().remove(&id);
                    self.note_damage(dataset, id, sync.txg(), only(error), false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether it is not known yet which orphans of a dataset are tails, by which its clones and
    /// lines of files are judged. Looks at some more of them.
    async fn waits_for_tails(&self, dataset: &Dataset) -> Result<bool, PoolError> {
        if dataset.orphans.lock().is_empty() || !dataset.snapshots.lock().files.has_lines() {
            return Ok(false);
        }
        match self.look_for_tails(dataset, LOOKED_UP_IN_SYNC_MAX).await {
            // It will not be known.
            Err(error) if error.cannot_be_read() => Ok(false),
            known => known.map(|known| !known),
        }
    }

    /// Whether the end of an object may be the end of what a clone or line of a file needs.
    async fn ends_a_line(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        id: ObjectId,
    ) -> Result<bool, PoolError> {
        let found = btree::lookup::<Objects, _>(sync, dataset.synced_root(), id.0).await;
        let origin = match found {
            // It is freed no further.
            Err(error) if error.cannot_be_read() => return Ok(false),
            found => found?.map_or(ObjectId(0), |inode| inode.origin),
        };
        let files = &dataset.snapshots.lock().files;
        Ok([id, origin].iter().any(|id| !files.lines_of(*id).is_empty()))
    }

    /// Frees some of an object, and returns the number of entries. Fails only before it frees any.
    async fn reap_object(
        &self,
        gate: &Gate<'_>,
        dataset: &Dataset,
        id: ObjectId,
        budget: usize,
        gathered: &mut Gathered,
    ) -> Result<usize, PoolError> {
        let sync = gate.sync();
        if !self.has_place(sync, dataset, id, None).await? {
            dataset.orphans.lock().remove(&id);
            return Ok(0);
        }
        let Some(object) = dataset.object_in_sync(&self.pool, id).await? else {
            unlist(dataset, id, gathered);
            return Ok(0);
        };
        let (mut inode, mut tree) = {
            let state = object.state.lock();
            if state.inode.nlink > 0 {
                drop(state);
                tracing::error!(
                    class = "file.not_orphan", dataset = %self.full_name(dataset), object = %id,
                    "the list of files without a name holds one that has a name: it stays"
                );
                unlist(dataset, id, gathered);
                return Ok(0);
            }
            // A change of a later txg: the name went away after this sync's txg closed.
            if state.overlay.newest_first().any(|(txg, _)| txg > sync.txg()) {
                return Ok(0);
            }
            (state.inode.clone(), state.synced)
        };
        let before = tree;
        gate.note_tail(id, inode.origin, Txg(inode.hash_seed));
        gate.note_clone(id, inode.clone_floor());
        let counts = inode.floor() == Txg(0);
        let of = if counts { inode.origin } else { ObjectId(0) };
        let origin = self.origin(sync, dataset, of, gathered).await?;
        let taken = if inode.kind == FileKind::Directory {
            let drained =
                btree::drain::<Directory, Gate<'_>>(gate, tree.root, object.owner(), budget);
            let drained = drained.await?;
            tree.root = drained.root;
            drained.entries.len()
        } else {
            let freed = free_some(gate, (&object, &inode), &mut tree, budget).await?;
            if let Some(origin) = origin {
                charge(origin, &freed, gathered);
            }
            freed.entries
        };
        if tree.root.is_none() {
            tree = TreeRoot::default();
        }
        gathered.refer.add(before.refer, tree.refer);
        {
            // The commit of this version takes over the new root. A reader must not find the old
            // one once its blocks are free.
            let mut state = object.state.lock();
            state.synced = tree;
            state.overlay.adopt(sync.txg(), &inode);
        }
        dataset.mark_dirty(sync.txg(), id);
        if tree.root.is_none() {
            gathered.inodes.insert(id.0, None);
            gathered.gone.push(id);
            gathered.ended.extend([id, inode.origin]);
            unlist(dataset, id, gathered);
        } else {
            tree.put_into(&mut inode);
            gathered.inodes.insert(id.0, Some(inode));
        }
        Ok(taken)
    }

    /// The file that a tail was cut from, and its inode so far. `None` if the file is gone: its sum
    /// of bytes went with it.
    async fn origin(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        id: ObjectId,
        gathered: &Gathered,
    ) -> Result<Option<(Arc<Object>, Inode)>, PoolError> {
        if id == ObjectId(0) || !self.has_place(sync, dataset, id, None).await? {
            return Ok(None);
        }
        let known = match gathered.inodes.get(&id.0) {
            Some(inode) => inode.clone(),
            None => btree::lookup::<Objects, _>(sync, dataset.synced_root(), id.0).await?,
        };
        let Some(inode) = known else { return Ok(None) };
        let file = dataset.object_in_sync(&self.pool, id).await?;
        Ok(file.map(|file| (file, inode)))
    }
}

/// An object waits to be freed no more.
fn unlist(dataset: &Dataset, id: ObjectId, gathered: &mut Gathered) {
    gathered.orphans.insert(orphan_key(id), None);
    dataset.orphans.lock().remove(&id);
}

/// Space and entries that were freed of a file.
struct Freed {
    space: Space,
    /// Of that, what belongs to the file that it was cloned from.
    inherited: Space,
    entries: usize,
}

impl Freed {
    fn take_from(&self, tree: &mut TreeRoot) {
        let Space { bytes, saved_bytes } = self.space;
        let saved_bytes = if left_out(Rule::TailsGiveSavedBack) { 0 } else { saved_bytes };
        tree.refer = tree.refer.minus(Space { bytes, saved_bytes });
        tree.inherited = tree.inherited.minus(self.inherited);
    }
}

/// Frees some of a file.
async fn free_some(
    gate: &Gate<'_>,
    (object, inode): (&Object, &Inode),
    tree: &mut TreeRoot,
    budget: usize,
) -> Result<Freed, PoolError> {
    let gate = Above::new(gate, inode.floor());
    let drained = drain_extents(&gate, object, tree.root, budget).await?;
    let inherited = gate.free_extents(object.owner(), &drained.freed);
    tree.root = drained.root;
    let freed = Freed {
        space: Space::of_sectors(drained.refer_sectors, drained.saved_sectors),
        inherited,
        entries: drained.freed.len(),
    };
    freed.take_from(tree);
    Ok(freed)
}

/// Subtracts the bytes that a cut-off tail gave back from the sums of the file that it was cut
/// from.
fn charge((file, mut inode): (Arc<Object>, Inode), freed: &Freed, gathered: &mut Gathered) {
    let mut state = file.state.lock();
    let before = state.synced;
    freed.take_from(&mut state.synced);
    let root = inode.root;
    state.synced.put_into(&mut inode);
    inode.root = root;
    gathered.refer.add(before.refer, state.synced.refer);
    gathered.inodes.insert(file.id.0, Some(inode));
}

/// Frees extents from a tree's right end. Stops at a damaged node, after freeing all that lies
/// right of it.
async fn drain_extents(
    gate: &Above<'_, '_>,
    object: &Object,
    root: Option<BlockPointer>,
    budget: usize,
) -> Result<DrainedExtents, PoolError> {
    let mut budget = budget;
    loop {
        match extent_tree::drain(gate, root, object.owner(), budget).await {
            Err(error) if error.cannot_be_read() && budget > 1 => budget /= 2,
            drained => return drained,
        }
    }
}

/// How many blocks of removed files can be filed at most without going deep into the reserve: what
/// a snapshot shows takes room in the dead tree, and frees nothing.
pub(crate) fn deaths_with_room(sync: &SyncContext) -> usize {
    let free = sync.free_sectors().saturating_sub(sync.pool().slop_sectors() / 4);
    // 80 blocks to a list, three lists to a leaf, two copies; and as much again for paths.
    usize::try_from(free.saturating_mul(60)).unwrap_or(usize::MAX)
}
