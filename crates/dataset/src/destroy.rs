//! Destroying datasets.
//!
//! The act itself is small. One txg removes the dataset's items from the namespace, and moves its
//! record to another class, where the record only says what remains to be freed. From then on
//! handles are stale, and client changes that no txg holds are dropped. Then each txg frees some of
//! the objects, until the table is empty and the record goes. If a snapshot of it must stay, only
//! the head goes, and the rest becomes a hidden line ([`crate::lines`]). After a crash in between,
//! the import finds the record and goes on. All this takes no more space than it frees: it works on
//! a full pool.
//!
//! Invariants:
//! - No log record names a dataset that the root does not know. Changes look at
//!   [`Dataset::is_destroyed`] under their hold, and the mark is set under a hold of txg D. A
//!   change that saw no mark is in D + 1 at most, since D + 2 does not open before D is on disk. So
//!   the record stays until a txg after D, and a replay leaves out changes that name it. A replay
//!   that takes several txgs empties nothing before it is done.
//! - From D on, syncs write nothing of the dataset except what the emptying changes.

mod doomed;

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{Above, Damage, Gate, btree, extent_tree};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, NodeOwner, Objects};
use aquifer_ondisk::{DatasetId, ObjectId, Space, Txg};
use aquifer_pool::{PoolError, SyncContext};
use aquifer_sync::atomic::Ordering;

use crate::damage::only;
use crate::dataset::{Dataset, STUCK};
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::lines::{Ending, OnLine};
use crate::property_name::value_items;
use crate::reap::deaths_with_room;
use crate::snapshots::Called;
use crate::space::SpaceChange;
use crate::sync::free_dirty;

pub(crate) use doomed::Doomed;

/// Objects of a destroyed dataset looked at in one txg.
const EMPTY_OBJECTS_MAX: usize = 4_000;
/// Objects of a dataset with a floor looked at in one round, and rounds of a txg.
const ROUND_OBJECTS_MAX: usize = 200;
const ROUNDS_MAX: usize = 20;

impl Datasets {
    /// Destroys a dataset, with `recursive` also all below it. It is gone, on disk, when this
    /// returns; its space comes back in the background.
    ///
    /// # Errors
    /// A dataset that does not exist, the pool's own one, one with children unless `recursive`, one
    /// with clones, one with a snapshot that is held, and one of which files of others were cloned.
    pub async fn destroy(&self, name: &str, recursive: bool) -> Result<(), DatasetError> {
        self.destroy_all(&[name.into()], recursive, false).await
    }

    /// Destroys datasets, with `recursive` also all below them, and with `clones` all clones of
    /// them, with all below those and their clones, all in one txg.
    ///
    /// # Errors
    /// As [`Datasets::destroy`].
    pub async fn destroy_all(
        &self,
        names: &[String],
        recursive: bool,
        clones: bool,
    ) -> Result<(), DatasetError> {
        let look = || {
            let doomed = self.with_dependents(self.doomed(names)?, recursive || clones, clones)?;
            let lines = self.check_end(&doomed, &BTreeSet::new())?;
            Ok((doomed, lines))
        };
        let (_act, doomed) = self.turn_when_filed(look).await?;
        self.end(&doomed, BTreeSet::new(), None).await
    }

    /// Destroys snapshots of datasets, given by their txgs, with `clones` also all clones of them,
    /// with all below those and their clones, all in one txg. They are gone, on disk, when this
    /// returns; what they alone showed becomes free in the background. Returns the names of the
    /// clones.
    ///
    /// # Errors
    /// A dataset is gone, or a snapshot is held or has clones. Then nothing was destroyed.
    pub async fn destroy_snapshots(
        &self,
        snapshots: &[(Arc<Dataset>, BTreeSet<Txg>)],
        clones: bool,
    ) -> Result<Vec<String>, DatasetError> {
        let look = || self.check_destroy(snapshots, clones);
        let (_act, Doomed { datasets, unlisted }) = self.turn_when_filed(look).await?;
        let mut names = self.names_of(&datasets);
        names.sort();
        self.end(&datasets, unlisted, None).await?;
        Ok(names)
    }

    /// Destroys datasets, with all their snapshots, and snapshots on these lines, maybe for a call.
    /// The caller holds the lock of acts, and has asked [`Datasets::check_end`].
    pub(crate) async fn end(
        &self,
        doomed: &[Arc<Dataset>],
        snapshots: BTreeSet<OnLine>,
        by: Option<&Called>,
    ) -> Result<(), DatasetError> {
        let Ending { acts, gone, rolled } = self.ending(doomed, snapshots);
        // The emptying frees all that dead trees name: nothing that a head refers to again.
        for line in gone.iter().chain(&rolled) {
            self.wait_for_returning(line).await?;
        }
        if acts.is_empty() && gone.is_empty() {
            return Ok(());
        }
        {
            let hold = self.hold_act_of(by).await?;
            let txg = hold.txg();
            let mut state = self.state.lock();
            for dataset in doomed {
                dataset.leave_line(txg);
                for name in dataset.local.lock().keys() {
                    state.queue.write(txg, value_items(dataset.id, name, None));
                }
                let classes = [ItemClass::Record, ItemClass::Receiving, ItemClass::Resume];
                let gone = classes.map(|class| (ItemKey::new(dataset.id, class, 0), None));
                state.queue.write(txg, gone);
            }
            for line in &gone {
                line.let_go(txg);
            }
            state.queue.act(txg, acts);
            state.hidden.extend(doomed.iter().map(|dataset| dataset.id));
        }
        // Snapshots have no properties, and most ends are those of snapshots alone.
        if doomed.is_empty() {
            return Ok(self.act_on_disk().await?);
        }
        self.refresh_properties();
        self.act_on_disk().await?;
        // The reserved space is free now.
        self.refresh_properties();
        Ok(())
    }

    /// Whether background work waits: freeing, or records of damage and history to write.
    pub fn has_background_work(&self) -> bool {
        if self.damages.waits() || self.history.waits() {
            return true;
        }
        self.awake().iter().any(|(dataset, _)| dataset.is_worked_on())
    }

    /// Datasets that the next sync looks at: those that changed, or wait for something.
    pub fn awake_count(&self) -> usize {
        self.awake.all().len()
    }

    /// The part of a txg for a destroyed dataset: returns the items that change. The first one
    /// takes all that it has by then: the sync before may have made some after the act began.
    pub(crate) async fn empty(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        first: bool,
    ) -> Result<Vec<(ItemKey, Option<Item>)>, PoolError> {
        free_dirty(sync, dataset);
        let key = ItemKey::new(dataset.id, ItemClass::Destroyed, 0);
        let mut items = Vec::new();
        if first {
            items = Self::items_of_line(dataset);
            // Its lines go: what its head does not own, dead trees name.
            let floor = dataset.head_floor();
            dataset.record.lock().floor = floor;
        }
        // From here on no root lists its snapshots: what they show is freed with the rest.
        self.forget_snapshots(dataset, sync.txg());
        let record = || (key, Some(self.record_item(dataset, sync.txg())));
        if first {
            items.push(record());
            return Ok(items);
        }
        if sync.is_replay() {
            return Ok(items);
        }
        let dead = *dataset.dead.lock();
        if dataset.synced_root().is_none() && (dead.root.is_none() || dead.damaged) {
            self.state.lock().emptied.push(dataset.id);
            items.push((key, None));
            items.push((ItemKey::new(dataset.id, ItemClass::LeftHead, 0), None));
            return Ok(items);
        }
        if dataset.emptied_to.load(Ordering::Relaxed) == STUCK {
            return Ok(items);
        }
        let (changed, of) = self.empty_some(sync, dataset).await?;
        if changed {
            items.push(record());
        }
        items.extend(of.into_iter().map(|item| (item.key, Some(item))));
        Ok(items)
    }

    fn give_up(&self, sync: &SyncContext, dataset: &Dataset, id: ObjectId, error: PoolError) {
        let damage: Damage = only(error);
        self.note_damage(dataset, id, sync.txg(), damage, id.0 == 0);
    }

    /// Frees or files some of its objects. Returns whether its record changed, and other items.
    async fn empty_some(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
    ) -> Result<(bool, Vec<Item>), PoolError> {
        let at_most = sync.pool().limits().scale.reap_entries_max;
        let mut budget = at_most.min(sync.frees_left() / 2);
        if dataset.synced_root().is_none() {
            return Ok((self.empty_dead(sync, dataset, budget).await.map(|_| true)?, Vec::new()));
        }
        let floor = dataset.record.lock().floor;
        let left = *dataset.left.lock();
        let of = left.and_then(|of| Some((self.by_id(of.dataset)?, of.txg)));
        let Some((of, txg)) = of else {
            let gate = Gate::of_destroyed(sync, floor);
            return Ok((self.empty_objects(&gate, dataset, budget).await?, Vec::new()));
        };
        let gate = Gate::of_left_head(sync, of.shown().until(floor, txg));
        if gate.files_anything() {
            budget = budget.min(deaths_with_room(sync));
        }
        let changed = self.empty_objects(&gate, dataset, budget).await?;
        let died = gate.died();
        let (filed, _) = gate.into_filed();
        let is_filed = match left_out(Rule::LeftHeadsDieWhenLeft) {
            true => self.file(sync, &of, filed).await?,
            false => self.file_late(sync, &of, (filed, txg)).await?,
        };
        // Behind that: it counts there by now, or is free.
        let mut items: Vec<Item> = dataset.left_counts_less(died).into_iter().collect();
        items.extend(is_filed.then(|| self.record_item(&of, sync.txg())));
        Ok((changed, items))
    }

    /// Frees some of its objects. Returns whether its record changed.
    async fn empty_objects(
        &self,
        gate: &Gate<'_>,
        dataset: &Dataset,
        mut budget: usize,
    ) -> Result<bool, PoolError> {
        let sync = gate.sync();
        let (table, from) = (dataset.synced_root(), dataset.emptied_to.load(Ordering::Relaxed));
        let floor = dataset.record.lock().floor;
        if floor > Txg(0) {
            return self.empty_above_floor(gate, dataset, budget).await;
        }
        let inodes = btree::collect_range::<Objects, SyncContext>(
            sync,
            table,
            from,
            None,
            EMPTY_OBJECTS_MAX.min(budget),
        );
        let inodes = match inodes.await {
            Err(error) if error.cannot_be_read() => {
                self.give_up(sync, dataset, ObjectId(0), error);
                dataset.emptied_to.store(STUCK, Ordering::Relaxed);
                return Ok(false);
            }
            inodes => inodes?,
        };
        if inodes.is_empty() {
            // Other frees have used up this txg's budget, or all that is left is damaged.
            if budget > 0 {
                dataset.emptied_to.store(STUCK, Ordering::Relaxed);
            }
            return Ok(true);
        }
        let (mut ops, mut next) = (Vec::new(), from);
        let mut refer = SpaceChange::default();
        for inode in inodes {
            if budget == 0 {
                break;
            }
            let before = inode.refer();
            let id = inode.object;
            match self.empty_object(gate, dataset.id, inode, budget).await {
                Ok((left, taken)) => {
                    budget = budget.saturating_sub(taken.max(1));
                    let after = left.as_ref().map(Inode::refer).unwrap_or_default();
                    refer.add(before, after);
                    let is_gone = left.is_none();
                    next = id.0.saturating_add(u64::from(is_gone));
                    ops.push((id.0, left));
                    if !is_gone {
                        // Its rest comes next, also if fewer extents went than the budget has room
                        // for: several entries of a tree may be of one extent.
                        break;
                    }
                }
                Err(error) if error.cannot_be_read() => {
                    self.give_up(sync, dataset, id, error);
                    next = id.0.saturating_add(1);
                }
                Err(error) => return Err(error),
            }
            sync.pace().await;
        }
        let owner = dataset.owner();
        let root = btree::merge::<Objects, Gate<'_>>(gate, table, owner, ops).await?;
        dataset.set_synced_root(root);
        dataset.change_refer(refer);
        dataset.emptied_to.store(next, Ordering::Relaxed);
        Ok(true)
    }

    /// Frees some of the objects of a dataset with a floor, from the right end of its table. What
    /// was born up to the floor is not read: the snapshot may be gone, and the space reused.
    /// Returns whether the record changed.
    async fn empty_above_floor(
        &self,
        gate: &Gate<'_>,
        dataset: &Dataset,
        budget: usize,
    ) -> Result<bool, PoolError> {
        let mut budget = budget;
        for round in 0..ROUNDS_MAX {
            let table = dataset.synced_root();
            if budget == 0 || table.is_none() {
                return Ok(round > 0);
            }
            let (owner, some) = (dataset.owner(), ROUND_OBJECTS_MAX.min(budget));
            let drained = btree::drain::<Objects, Gate<'_>>(gate, table, owner, some).await;
            let drained = match drained {
                Err(error) if error.cannot_be_read() => {
                    self.give_up(gate.sync(), dataset, ObjectId(0), error);
                    dataset.emptied_to.store(STUCK, Ordering::Relaxed);
                    return Ok(round > 0);
                }
                drained => drained?,
            };
            let mut left = Vec::new();
            for inode in drained.entries.into_iter().rev() {
                let id = inode.object;
                if budget == 0 {
                    left.push((id.0, Some(inode)));
                    continue;
                }
                match self.empty_object(gate, dataset.id, inode.clone(), budget).await {
                    Ok((rest, taken)) => {
                        budget = budget.saturating_sub(taken.max(1));
                        left.extend(rest.map(|rest| (id.0, Some(rest))));
                    }
                    Err(error) if error.cannot_be_read() => {
                        self.give_up(gate.sync(), dataset, id, error);
                        dataset.emptied_to.store(STUCK, Ordering::Relaxed);
                        budget = 0;
                        left.push((id.0, Some(inode)));
                    }
                    Err(error) => return Err(error),
                }
                gate.sync().pace().await;
            }
            left.reverse();
            let root = btree::merge::<Objects, Gate<'_>>(gate, drained.root, owner, left).await?;
            dataset.set_synced_root(root);
        }
        Ok(true)
    }

    /// Frees some of an object's tree. Returns what is left of the object, and how many entries
    /// went.
    async fn empty_object(
        &self,
        gate: &Gate<'_>,
        dataset: DatasetId,
        mut inode: Inode,
        budget: usize,
    ) -> Result<(Option<Inode>, usize), PoolError> {
        let owner = NodeOwner { dataset, object: inode.object };
        if inode.nlink == 0 {
            gate.note_tail(inode.object, inode.origin, Txg(inode.hash_seed));
        }
        let taken = if inode.kind == FileKind::Directory {
            let drained =
                btree::drain::<Directory, Gate<'_>>(gate, inode.root, owner, budget).await?;
            inode.root = drained.root;
            drained.entries.len()
        } else {
            // What a clone of a file began with, another object has, or the dead tree.
            let before = gate.died();
            let above = Above::new(gate, inode.floor().max(inode.clone_floor()));
            let drained = extent_tree::drain(&above, inode.root, owner, budget).await?;
            above.free_extents(owner, &drained.freed);
            if inode.floor() > Txg(0) {
                // The rest of a file that went back counts for nobody.
                gate.forget_died(before);
            }
            inode.root = drained.root;
            let freed = Space::of_sectors(drained.refer_sectors, drained.saved_sectors);
            inode.set_refer(inode.refer().minus(freed));
            drained.freed.len()
        };
        Ok((inode.root.is_some().then_some(inode), taken))
    }
}
