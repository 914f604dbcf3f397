//! A txg of all datasets: objects, then object tables, then the namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::sync::sync_object;
use aquifer_object::{Damage, Gate, Object, btree, free_early};
use aquifer_ondisk::dataset::{DatasetRecord, Item, ItemClass, ItemKey};
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::free_work::FreeWorkRecord;
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::open_work::OpenWorkRecord;
use aquifer_ondisk::pool_root::TreeSlot;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::tree_node::{Directory, Namespace, NodeOwner, Objects};
use aquifer_ondisk::{BlockPointer, Corruption, DatasetId, ObjectId, Txg};
use aquifer_pool::{BoxFuture, PoolError, Roots, SyncContext, Trees, Visitor};

use crate::damage::only;
use crate::dataset::{Dataset, ORPHANS, Phase};
use crate::datasets::Datasets;
use crate::file_clones::Began;
use crate::queue::{Committed, Items};
use crate::rollback::rollback_item;
use crate::space::SpaceChange;
use crate::walk::walk;

/// Changes of one dataset's sync to its object table and its list of orphans.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub inodes: BTreeMap<u64, Option<Inode>>,
    pub orphans: BTreeMap<u64, Option<Dirent>>,
    pub refer: SpaceChange,
    /// Of what clones of files have of their origins.
    pub inherited: SpaceChange,
    /// Clones and lines of files that it began.
    pub began: Vec<Began>,
    pub gone: Vec<ObjectId>,
    /// Objects that are gone, and the files that they were cut off.
    pub ended: BTreeSet<ObjectId>,
}

/// Outcome of the sync of a dataset's objects.
#[derive(Debug, Default)]
struct SyncedObjects {
    /// Anything.
    changed: bool,
    /// As in [`Gathered`].
    inherited: SpaceChange,
    began: Vec<Began>,
    ended: BTreeSet<ObjectId>,
}

impl Trees for Datasets {
    fn sync<'a>(&'a self, sync: &'a SyncContext) -> BoxFuture<'a, Result<Roots, PoolError>> {
        Box::pin(self.sync_all(sync))
    }

    fn walk<'a>(
        &'a self,
        roots: Roots,
        since: Txg,
        start: WalkPosition,
        to: &'a mut dyn Visitor,
    ) -> BoxFuture<'a, Result<Option<WalkPosition>, PoolError>> {
        Box::pin(walk(&self.pool, roots, since, start, to))
    }

    fn committed(&self, txg: Txg) {
        let Committed { file_backs, renamed } = self.state.lock().queue.committed(txg);
        // Before its version of this txg goes: a reader sees all of it as before, or as it is now.
        Self::files_are_back(file_backs);
        self.replies.committed(txg);
        self.history.committed();
        let mut gone = {
            let mut state = self.state.lock();
            for id in std::mem::take(&mut state.emptied) {
                self.damages.forget_dataset(id);
                state.remove(id);
                state.hidden.remove(&id);
            }
            std::mem::take(&mut state.gone)
        };
        let awake = self.awake();
        for (dataset, _) in awake.iter().filter(|(of, _)| renamed.contains(&of.id)) {
            *dataset.was.lock() = None;
            self.rename_views(dataset);
        }
        for (dataset, times) in &awake {
            let gone = gone.remove(&dataset.id).unwrap_or_default();
            dataset.committed(txg, &gone);
            // No change can come to it any more.
            if dataset.destroyed_in().is_some_and(|destroyed| destroyed.next() < txg) {
                dataset.drop_objects();
            }
            if dataset.waits_for_nothing(txg) || left_out(Rule::WorkKeepsAwake) {
                self.awake.rest((dataset.id, *times), txg);
            }
        }
        // What was changed may be clean now.
        self.pool.shelf().trim();
        if self.has_background_work() {
            // The next txg continues the freeing that waits.
            self.pool.background_waits();
        }
    }
}

impl Datasets {
    async fn sync_all(&self, sync: &SyncContext) -> Result<Roots, PoolError> {
        let ((mut items, renamed), root) = {
            let state = self.state.lock();
            (state.queue.written(sync.txg()), state.root)
        };
        if left_out(Rule::SnapshotsComeLast) {
            items.extend(self.carry_out(sync.txg()));
        }
        if left_out(Rule::FileSnapshotsComeLast) {
            items.extend(self.take_files(sync).await?);
        }
        for (dataset, _) in &self.awake() {
            let changed = match dataset.phase(sync.txg()) {
                Phase::Emptied { first } => {
                    items.extend(self.empty(sync, dataset, first).await?);
                    continue;
                }
                Phase::Line { first } => self.sync_line(sync, dataset, &mut items).await? || first,
                Phase::Dataset | Phase::Received => {
                    self.sync_dataset(sync, dataset, &mut items).await?
                        || renamed.contains(&dataset.id)
                }
            };
            if changed {
                let item = self.record_item(dataset, sync.txg());
                items.insert(item.key, Some(item));
            }
        }
        self.sum_returning(sync).await?;
        items.extend(self.take_files(sync).await?);
        items.extend(self.carry_out(sync.txg()));
        self.settle_lists(sync.txg(), &mut items);
        self.check_rest(sync.txg());
        items.extend(self.damages.take_items());
        items.extend(self.scrub.take_item());
        items.extend(self.pool.take_free_work().into_iter().map(FreeWorkRecord::item));
        items.extend(self.pool.take_open_work().into_iter().map(OpenWorkRecord::item));
        items.extend(self.hold_clock.take_item(self.pool.world().now()));
        let mut roots = self.pool.roots();
        let replies = self.replies.sync(sync).await?;
        if let Some(slot) = roots.get_mut(TreeSlot::Replies as usize) {
            *slot = replies;
        }
        let history = self.history.sync(sync).await?;
        if let Some(slot) = roots.get_mut(TreeSlot::History as usize) {
            *slot = history;
        }
        if items.is_empty() {
            return Ok(roots);
        }
        let counters = self.counters_item();
        items.insert(counters.key, Some(counters));
        let ops = items.into_iter().collect();
        let owner = NodeOwner::default();
        let root = btree::merge::<Namespace, SyncContext>(sync, root, owner, ops).await?;
        self.state.lock().root = root;
        if let Some(slot) = roots.get_mut(TreeSlot::Namespace as usize) {
            *slot = root;
        }
        Ok(roots)
    }

    /// Lets go what nothing needs any more behind the acts of a txg, and sums what snapshots show.
    fn settle_lists(&self, txg: Txg, items: &mut Items) {
        loop {
            // What items change of a dataset, this commit takes over.
            let named: BTreeSet<DatasetId> = items.keys().map(|key| key.dataset).collect();
            for id in named.into_iter().filter(|_| !left_out(Rule::ItemsWake)) {
                self.awake.wake(id, txg);
            }
            let awake: Vec<_> = self.awake().into_iter().map(|(of, _)| of).collect();
            let pins = |of: &Arc<Dataset>| self.settle_file_pins(txg, of);
            let lines = |of: &Arc<Dataset>| self.settle_head_lines(txg, of);
            let mut settled: Vec<_> = awake.iter().flat_map(pins).collect();
            settled.extend(awake.iter().flat_map(lines));
            settled.extend(self.settle_needs(txg, &awake));
            if settled.is_empty() {
                items.extend(awake.iter().flat_map(|of| of.settle_covered(txg)));
                return;
            }
            items.extend(settled);
        }
    }

    /// The datasets that are awake, in order, each with how often it was woken.
    pub(crate) fn awake(&self) -> Vec<(Arc<Dataset>, u64)> {
        let awake = self.awake.all().into_iter();
        let state = self.state.lock();
        let found = |(id, times)| Some((state.datasets.get(&id)?.clone(), times));
        awake.filter_map(found).collect()
    }

    /// In debug builds: all others have nothing for the sync of this txg.
    fn check_rest(&self, txg: Txg) {
        if !cfg!(debug_assertions) {
            return;
        }
        let all: Vec<Arc<Dataset>> = self.state.lock().datasets.values().cloned().collect();
        let unknown = self.awake.all().into_iter().find(|(id, _)| self.by_id(*id).is_none());
        assert!(unknown.is_none(), "{unknown:?} is awake, and is no dataset");
        for dataset in &all {
            let id = dataset.id;
            let has_work = !dataset.waits_for_nothing(txg) || dataset.is_dirty_in(txg);
            // Behind the look: it may have been woken just now.
            if self.awake.has(id) {
                continue;
            }
            assert!(!has_work, "dataset {id} rests, and has work");
            assert!(!dataset.snapshots.lock().files.take_needs_changed(), "{id}: needs changed");
            let mut left = self.settle_file_pins(txg, dataset);
            left.extend(self.settle_head_lines(txg, dataset));
            left.extend(dataset.settle_covered(txg));
            assert!(left.is_empty(), "dataset {id} rests, and items change: {left:?}");
        }
    }

    pub(crate) fn record_item(&self, dataset: &Dataset, txg: Txg) -> Item {
        let value = self.record_of(dataset).encode();
        let class = match dataset.phase(txg) {
            Phase::Dataset => ItemClass::Record,
            Phase::Line { .. } => ItemClass::HiddenLine,
            Phase::Emptied { .. } | Phase::Received => ItemClass::Destroyed,
        };
        Item { key: ItemKey::new(dataset.id, class, 0), value }
    }

    /// A dataset's record as of the last sync.
    pub(crate) fn record_of(&self, dataset: &Dataset) -> DatasetRecord {
        let mut record = dataset.record.lock();
        record.next_object = dataset.next_object();
        record.objects = dataset.synced_root();
        record.dead = dataset.dead.lock().root;
        let refer = dataset.refer();
        (record.refer_bytes, record.saved_bytes) = (refer.bytes, refer.saved_bytes);
        record.clone()
    }

    /// Returns whether the dataset's record changed.
    async fn sync_dataset(
        &self,
        sync: &SyncContext,
        dataset: &Arc<Dataset>,
        items: &mut Items,
    ) -> Result<bool, PoolError> {
        let gate = Gate::new(sync, dataset.shown());
        let synced = self.sync_objects(&gate, dataset).await?;
        let (filed, given_up) = gate.into_filed();
        dataset.snapshots.lock().covered_died(&filed);
        let mut changed = synced.changed | self.file(sync, dataset, filed).await?;
        items.extend(dataset.change_inherited(synced.inherited, given_up));
        if !sync.is_replay() {
            items.extend(self.note_file_clones(sync, dataset, (synced.began, synced.ended)).await?);
            changed |= self.sweep_some(sync, dataset, items).await?;
            items.extend(self.files_return(sync, dataset).await?);
        }
        Ok(changed)
    }

    /// Syncs a hidden line, which takes no change. Returns whether its record changed.
    async fn sync_line(
        &self,
        sync: &SyncContext,
        line: &Dataset,
        items: &mut Items,
    ) -> Result<bool, PoolError> {
        free_dirty(sync, line);
        match sync.is_replay() {
            true => Ok(false),
            false => self.sweep_some(sync, line, items).await,
        }
    }

    /// Goes on with the sweeps of a dataset. Returns whether its dead tree changed.
    async fn sweep_some(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        items: &mut Items,
    ) -> Result<bool, PoolError> {
        let budget = sync.pool().limits().scale.reap_entries_max.min(sync.frees_left() / 2);
        let (done, changed) = self.sweep(sync, dataset, budget).await?;
        let mut snapshots = dataset.snapshots.lock();
        if done.returned {
            let record = snapshots.returned();
            items.extend(record.map(|record| rollback_item(dataset.id, Some(record))));
        }
        for snapshot in done.swept {
            items.insert(ItemKey::new(dataset.id, ItemClass::Sweep, snapshot.0), None);
            snapshots.swept(snapshot);
        }
        for id in done.returned_files {
            let key = ItemKey::new(dataset.id, ItemClass::FileRollback, id.0);
            let record = snapshots.files.returned(id);
            items.extend(record.map(|of| (key, Some(Item { key, value: of.encode() }))));
        }
        for id in done.swept_files {
            items.insert(ItemKey::new(dataset.id, ItemClass::FileSweep, id.0), None);
            snapshots.files.swept(id);
        }
        if let Some(gathered) = done.gathered {
            items.extend(snapshots.files.gathered(dataset.id, gathered));
        }
        for (bookmark, to) in done.released {
            match to {
                Some(to) => snapshots.bookmarks.note_freed(bookmark, to),
                None => {
                    items.insert(ItemKey::new(dataset.id, ItemClass::Bookmark, bookmark.0), None);
                    snapshots.bookmarks.is_freed(bookmark);
                }
            }
        }
        drop(snapshots);
        items.extend(self.forget_file_rollbacks(sync.txg(), dataset));
        Ok(changed)
    }

    /// Writes objects, object table and list of orphans.
    async fn sync_objects(
        &self,
        gate: &Gate<'_>,
        dataset: &Arc<Dataset>,
    ) -> Result<SyncedObjects, PoolError> {
        let sync = gate.sync();
        let compression = dataset.properties().compression;
        let mut gathered = Gathered::default();
        for object in dataset.dirty_objects(sync.txg()) {
            // The table cannot take the inode there: the object's tree must not change either.
            if !self.has_place(sync, dataset, object.id, Some(&object)).await? {
                continue;
            }
            let before = Dataset::tree_of(&object);
            let Some(synced) = sync_object(gate, &object, compression).await? else {
                continue;
            };
            gathered.refer.add(before.refer, synced.inode.refer());
            if let Some(tail) = synced.tail {
                let of = (&synced.inode, sync.txg());
                self.keep_tail(dataset, of, (tail, Txg(0)), &mut gathered)?;
            }
            match synced.damage {
                Some(damage) => self.note_damage(dataset, object.id, sync.txg(), damage, false),
                None => self.note_written(dataset, &object, sync.txg()),
            }
            gathered.inodes.insert(object.id.0, Some(synced.inode));
            sync.pace().await;
        }
        if !sync.is_replay() {
            self.reap(gate, dataset, &mut gathered).await?;
            self.roll_files_back(sync, dataset, &mut gathered).await?;
            self.make_file_clones(sync, dataset, &mut gathered).await?;
        }
        if gathered.inodes.is_empty() && gathered.orphans.is_empty() {
            return Ok(SyncedObjects::default());
        }
        self.sync_orphans(gate, dataset, &mut gathered).await?;
        let ops = gathered.inodes.into_iter().collect();
        let (root, owner) = (dataset.synced_root(), dataset.owner());
        let root = btree::merge::<Objects, Gate<'_>>(gate, root, owner, ops).await?;
        dataset.set_synced_root(root);
        dataset.change_refer(gathered.refer);
        gathered.gone.iter().for_each(|id| self.damages.forget(dataset.id, *id));
        self.state.lock().gone.insert(dataset.id, gathered.gone);
        let Gathered { inherited, began, ended, .. } = gathered;
        Ok(SyncedObjects { changed: true, inherited, began, ended })
    }

    /// The tail of a truncated file, or what a file was before a rollback, becomes an object
    /// without a name, freed piece by piece down to its floor.
    pub(crate) fn keep_tail(
        &self,
        dataset: &Dataset,
        (of, cut): (&Inode, Txg),
        (tail, floor): (BlockPointer, Txg),
        gathered: &mut Gathered,
    ) -> Result<(), PoolError> {
        let (id, generation) = dataset.new_object_id(self.pool.world().as_ref())?;
        let inode = Inode {
            object: id,
            generation,
            nlink: 0,
            // Until they are freed, its bytes count in the file's sum.
            refer_bytes: 0,
            saved_bytes: 0,
            damaged: false,
            root: Some(tail),
            origin: of.object,
            hash_seed: cut.0,
            rdev: floor.0,
            ..of.clone()
        };
        gathered.orphans.insert(orphan_key(id), Some(orphan_entry(&inode)));
        gathered.inodes.insert(id.0, Some(inode));
        dataset.tails.lock().note(id, of.object);
        dataset.mark_orphan(id);
        Ok(())
    }

    /// Whether the object table can take an inode: whether the leaf that it belongs to is readable.
    /// If not, the changes of the object (`of`, if it is in memory) are lost.
    pub(crate) async fn has_place(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        id: ObjectId,
        of: Option<&Object>,
    ) -> Result<bool, PoolError> {
        let root = dataset.synced_root();
        let error = match btree::probe::<Objects, SyncContext>(sync, root, id.0).await.error {
            None => return Ok(true),
            Some(error) if error.is_damage() => error,
            Some(error) => return Err(error),
        };
        let mut damage = only(error);
        if let Some(object) = of
            && let Some(version) = object.state.lock().overlay.get(sync.txg())
        {
            free_early(sync, version);
            damage = Damage::all(damage.error, version);
        }
        self.note_table_damage(dataset, id, sync.txg(), damage);
        Ok(false)
    }

    /// Changes that the sync itself makes to the list of orphans.
    async fn sync_orphans(
        &self,
        gate: &Gate<'_>,
        dataset: &Dataset,
        gathered: &mut Gathered,
    ) -> Result<(), PoolError> {
        let sync = gate.sync();
        if gathered.orphans.is_empty() {
            return Ok(());
        }
        let list = dataset.object_in_sync(&self.pool, ORPHANS).await?;
        let list = list.ok_or(Corruption::NoOrphans(dataset.id))?;
        if !self.has_place(sync, dataset, ORPHANS, None).await? {
            return Ok(());
        }
        let ops: Vec<_> = std::mem::take(&mut gathered.orphans).into_iter().collect();
        let mut tree = Dataset::tree_of(&list);
        let merged = btree::merge::<Directory, Gate<'_>>(gate, tree.root, list.owner(), ops);
        tree.root = match merged.await {
            // The orphans that wait to be freed are in memory too.
            Err(error) if error.is_damage() => {
                list.state.lock().damaged = true;
                self.note_damage(dataset, ORPHANS, sync.txg(), only(error), false);
                tree.root
            }
            merged => merged?,
        };
        list.state.lock().synced = tree;
        let mut inode = match gathered.inodes.remove(&ORPHANS.0) {
            Some(Some(inode)) => inode,
            _ => {
                // Not dirty by itself in this txg: make its commit take the new root over.
                let mut state = list.state.lock();
                let inode = state.inode.clone();
                state.overlay.adopt(sync.txg(), &inode);
                drop(state);
                dataset.mark_dirty(sync.txg(), ORPHANS);
                inode
            }
        };
        tree.put_into(&mut inode);
        inode.damaged = list.state.lock().damaged;
        gathered.inodes.insert(ORPHANS.0, Some(inode));
        Ok(())
    }
}

/// Frees what changes of a destroyed dataset brought that no tree will refer to.
pub(crate) fn free_dirty(sync: &SyncContext, dataset: &Dataset) {
    for object in dataset.dirty_objects(sync.txg()) {
        let state = object.state.lock();
        if let Some(version) = state.overlay.get(sync.txg()) {
            free_early(sync, version);
        }
    }
}

/// The key of an orphan in the list: its id, clear of the keys that cookies reserve.
pub fn orphan_key(id: ObjectId) -> u64 {
    id.0 << 8
}

/// The orphan of a key in the list.
pub fn orphan_of(key: u64) -> ObjectId {
    ObjectId(key >> 8)
}

/// The entry of an orphan in the list.
pub fn orphan_entry(inode: &Inode) -> Dirent {
    Dirent {
        key: orphan_key(inode.object),
        object: inode.object,
        generation: inode.generation,
        kind: inode.kind,
        name: inode.object.0.to_string().into_bytes(),
    }
}
