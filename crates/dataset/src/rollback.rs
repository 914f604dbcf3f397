//! Rollback of a dataset to its newest snapshot, in line.
//!
//! The head becomes the snapshot's object table again. Three things follow:
//!
//! - What was born since and the old head alone refers to is freed: the old head becomes a
//!   destroyed dataset of an id of its own, which the background takes down. Its floor is the
//!   snapshot: what was born up to then, the new head refers to.
//! - What the snapshot shows and has died since lives again. The dead tree still names it, in the
//!   buckets with `hi` at or after the snapshot and `lo` before it. The background takes these
//!   out, before any other sweep of the dataset ([`crate::dead`]). Until that is done, what dies is
//!   filed under the txg of the rollback at least, and so stands in no such bucket.
//! - Objects in memory are rolled back in place: requests and locks keep them.
//!
//! No change of a client may be under way meanwhile: it would enter an object that is rolled back
//! under it. So the entrance of the dataset shuts first, and changes inside come to an end
//! ([`crate::entrance`]). Then the act joins the open txg, whose sync writes those changes, and
//! after them exchanges the root. The entrance opens when that txg is on disk and memory has taken
//! it over.
//!
//! Bookmarks of later snapshots go in the same txg: what they need is the old head's, of which
//! nothing is kept.
//!
//! Ids of objects are never given out again: the counter of ids stays, and so do file handles,
//! generations and the write verifier. Clients must see that files changed. So all objects show a
//! least change attribute and a least time of the last change, which the record of the rollback
//! keeps.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::btree::{self, Scan};
use aquifer_ondisk::config::{FEATURE_DATASET_LINES, FEATURE_INHERITED, FEATURE_ROLLBACK};
use aquifer_ondisk::dataset::{DatasetRecord, Item, ItemClass, ItemKey, RollbackRecord};
use aquifer_ondisk::head_line::LeftHeadRecord;
use aquifer_ondisk::inode::{Inode, Time};
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_ondisk::types::SEQUENCE_LIMIT;
use aquifer_ondisk::{BlockPointer, DatasetId, Guid, ObjectId, Space, Txg};
use aquifer_pool::{Pool, PoolError};

use crate::dataset::{Dataset, ORPHANS};
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::file_snapshots::FileSnapshot;
use crate::increment::no_record;
use crate::lines::Ending;
use crate::property::{LocalValues, Properties};
use crate::resume::no_resume;
use crate::snapshots::{Act, Snapshot, inherited_item};

/// How a dataset is rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RollbackOptions {
    /// Destroys later snapshots.
    pub destroy_later: bool,
    /// Drops UNSTABLE data that waits for COMMIT.
    pub force: bool,
}

/// How the head becomes a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RollbackKind {
    /// On its line: nothing later stays.
    InLine,
    /// It begins a line ([`crate::head_lines`]).
    Line,
}

/// Knowledge that a snapshot has of the objects in memory, while its dataset is rolled back to it.
/// Every object in memory has its entry before the rollback is queued.
#[derive(Debug)]
pub(crate) struct Back {
    root: Option<BlockPointer>,
    inodes: HashMap<ObjectId, Option<Inode>>,
    orphans: BTreeSet<ObjectId>,
}

impl Back {
    /// Whether it knows an object; else the root to look in.
    pub fn unknown(&self, id: ObjectId) -> Option<Option<BlockPointer>> {
        (!self.inodes.contains_key(&id)).then_some(self.root)
    }

    /// Notes an object.
    pub fn note(&mut self, id: ObjectId, inode: Option<Inode>) {
        self.inodes.insert(id, inode);
    }

    /// Takes out the inode that an object in memory goes back to; `None`: the object goes.
    pub fn inode(&mut self, id: ObjectId) -> Option<Inode> {
        self.inodes.remove(&id).flatten()
    }

    /// The objects without a name.
    pub fn into_orphans(self) -> BTreeSet<ObjectId> {
        self.orphans
    }
}

impl Dataset {
    /// How its head becomes a snapshot of which no later one stays.
    pub(crate) fn rollback_kind(&self, to: &Snapshot) -> RollbackKind {
        let lines = &self.snapshots.lock().head_lines;
        // What its line began with is on no line of its own.
        let on_it = if to.line == self.id { lines.is_current(to.txg) } else { lines.is_first() };
        match on_it || left_out(Rule::InLineOnItsHeadLine) {
            true => RollbackKind::InLine,
            false => RollbackKind::Line,
        }
    }

    /// Import: the newest rollback, if there was one.
    pub(crate) fn load_rollback(&self) {
        if let Some(RollbackRecord { change, ctime, .. }) = self.snapshots.lock().rollback {
            self.table.lock().least = (change, ctime);
        }
    }

    /// The dataset is about to be rolled back.
    pub(crate) fn begin_back(&self, back: Back) {
        let mut table = self.table.lock();
        table.let_clean_ones_go();
        table.back = Some(back);
    }

    /// It is not rolled back.
    pub(crate) fn forget_back(&self) {
        self.table.lock().back = None;
    }

    /// Looks up all objects in memory in the snapshot to which the dataset is rolled back.
    pub(crate) async fn gather_back(&self, pool: &Pool) -> Result<(), PoolError> {
        loop {
            let unknown = {
                let table = self.table.lock();
                table.objects.keys().find_map(|id| Some((*id, table.not_looked_back_at(*id)?)))
            };
            let Some((id, root)) = unknown else { return Ok(()) };
            self.look_back(pool, id, root).await?;
        }
    }

    pub(crate) async fn look_back(
        &self,
        pool: &Pool,
        id: ObjectId,
        root: Option<BlockPointer>,
    ) -> Result<(), PoolError> {
        let inode = btree::lookup::<Objects, Pool>(pool, root, id.0).await?;
        if let Some(back) = self.table.lock().back.as_mut() {
            back.note(id, inode);
        }
        Ok(())
    }

    /// Of an old head: so much of its data has gone to where it belongs, or is free. Returns the
    /// item that says what is left of it, if that changed.
    pub(crate) fn left_counts_less(&self, gone: Space) -> Option<Item> {
        let mut left = self.left.lock();
        let of = left.as_mut().filter(|_| gone != Space::default())?;
        of.counts = Some(of.counts?.minus(gone));
        Some(left_head_item(self.id, *of))
    }

    /// Whether UNSTABLE data that no root and no record holds waits for COMMIT.
    pub(crate) fn waits_for_commit(&self) -> bool {
        let table = self.table.lock();
        let dirty: BTreeSet<&ObjectId> = table.dirty.values().flatten().collect();
        dirty
            .into_iter()
            .filter_map(|id| table.objects.get(id))
            .any(|object| object.state.lock().overlay.count_unlogged(0, u64::MAX, 1) > 0)
    }
}

impl Datasets {
    /// Rolls a dataset back to a snapshot, given as `dataset@name`. Later snapshots, those of its
    /// files too, stay, and the head begins a line ([`crate::head_lines`]); with `destroy_later`
    /// they are destroyed in the same txg. It is on disk when this returns. Returns the names of
    /// the destroyed snapshots, in full those of files.
    ///
    /// # Errors
    /// There is no such snapshot, one that would be destroyed is held or has clones, a client may
    /// lose data that waits for COMMIT, or something cannot be read. Then nothing has changed.
    pub async fn rollback(
        &self,
        full: &str,
        options: RollbackOptions,
    ) -> Result<Vec<String>, DatasetError> {
        let look = || self.snapshot_by_name(full).map(|(dataset, _)| ((), dataset));
        let (_act, ()) = self.turn_when_settled(look).await?;
        self.rollback_in_turn(full, options).await
    }

    /// Rolls a dataset back to a snapshot, as [`Datasets::rollback`]. The caller holds the lock of
    /// acts.
    pub(crate) async fn rollback_in_turn(
        &self,
        full: &str,
        options: RollbackOptions,
    ) -> Result<Vec<String>, DatasetError> {
        let (dataset, snapshot) = self.snapshot_by_name(full)?;
        let later: Vec<Arc<Snapshot>> = {
            let all = dataset.snapshots(self.pool.committed_txg());
            all.into_iter().filter(|other| other.txg > snapshot.txg).collect()
        };
        let later_files = dataset.snapshots.lock().files.after(snapshot.txg);
        let file_name = |of: &Arc<FileSnapshot>| self.name_of_file(&dataset, of);
        let shown: Vec<_> = later_files.iter().filter(|of| !of.record.hidden).collect();
        let is_newest = later.is_empty() && shown.is_empty();
        let begins_with = dataset.origin.lock().map(|of| (of.dataset, of.snapshot));
        if snapshot.line != dataset.id && begins_with != Some((snapshot.line, snapshot.txg)) {
            return Err(DatasetError::OnAnotherLine(full.into()));
        }
        self.wait_for_returning(&dataset).await?;
        if dataset.dead.lock().damaged {
            return Err(DatasetError::DeadUnreadable(self.full_name(&dataset)));
        }
        if !options.destroy_later && !is_newest {
            self.use_line(&dataset, full).await?;
            let line = RollbackKind::Line;
            self.go_back(&dataset, &snapshot, (options, line), Vec::new()).await?;
            return Ok(Vec::new());
        }
        let txgs = later.iter().map(|snapshot| snapshot.txg);
        match options.force && dataset.is_standby() {
            true => self.check_not_held_by_people(&dataset, txgs)?,
            false => self.check_not_held(&dataset, txgs)?,
        }
        self.check_not_held(&dataset, shown.iter().map(|of| of.id))?;
        let clones = self.all_clones();
        for snapshot in &later {
            self.check_clones(&clones, &dataset, snapshot)?;
        }
        let unlisted = later.iter().map(|of| (of.line, of.txg));
        let Ending { mut acts, gone, .. } = self.ending(&[], unlisted);
        // None of them is needed: they would be listed as clones. A hostile namespace may differ.
        let has_lines = !dataset.snapshots.lock().head_lines.is_empty();
        let is_destroyed = |act: &Act| match act {
            Act::Hide { .. } => has_lines,
            act => matches!(act, Act::Destroy { .. }),
        };
        if !gone.is_empty() || !acts.iter().all(is_destroyed) {
            return Err(DatasetError::OnAnotherLine(full.into()));
        }
        let mut needed = dataset.snapshots.lock().files.needed_by_others().clone();
        needed.retain(|id| id.txg() > snapshot.txg);
        self.check_not_needed(&dataset, &needed, &[])?;
        self.use_feature(FEATURE_ROLLBACK).await?;
        let ids = later_files.iter().map(|of| of.id).collect();
        acts.push(Act::DestroyFiles { line: dataset.id, ids, at_once: true });
        let kind = dataset.rollback_kind(&snapshot);
        if kind == RollbackKind::Line {
            self.use_line(&dataset, full).await?;
            let these = dataset.snapshots.lock().bookmarks.after(snapshot.txg);
            acts.push(Act::DestroyBookmarks { line: dataset.id, these });
        }
        self.go_back(&dataset, &snapshot, (options, kind), acts).await?;
        let names = later.iter().map(|of| of.record.name.clone());
        Ok(names.chain(shown.into_iter().map(file_name)).collect())
    }

    /// A head is about to begin a line.
    async fn use_line(&self, dataset: &Dataset, full: &str) -> Result<(), DatasetError> {
        if dataset.snapshots.lock().are_of_another(dataset.id) {
            return Err(DatasetError::OnAnotherLine(full.into()));
        }
        dataset.check_counted(full)?;
        self.use_feature(FEATURE_ROLLBACK).await?;
        self.use_feature(FEATURE_INHERITED).await?;
        self.use_feature(FEATURE_DATASET_LINES).await?;
        Ok(())
    }

    /// Exchanges the head for a snapshot, and carries out these acts behind that. On disk when this
    /// returns.
    pub(crate) async fn go_back(
        &self,
        dataset: &Dataset,
        snapshot: &Snapshot,
        (options, kind): (RollbackOptions, RollbackKind),
        more: Vec<Act>,
    ) -> Result<(), DatasetError> {
        let mut acts = vec![Act::Rollback { dataset: dataset.id, to: snapshot.txg, kind }];
        acts.extend(more);
        let queued = match self.begin_rollback(dataset, snapshot, options).await {
            // Once they are queued the sync opens the entrance, also if this is cut off.
            Ok(()) => self.queue(acts, None).await,
            failed => failed,
        };
        if queued.is_err() {
            dataset.forget_back();
            dataset.entrance.open();
        }
        queued?;
        Ok(self.act_on_disk().await?)
    }

    /// Waits until the dead tree names nothing any more that a rollback brought back, of the
    /// dataset or of a file.
    pub(crate) async fn wait_for_returning(&self, dataset: &Dataset) -> Result<(), DatasetError> {
        while self.is_returning(dataset) {
            if dataset.dead.lock().damaged {
                return Err(DatasetError::DeadUnreadable(self.full_name(dataset)));
            }
            self.pool.sync().await?;
        }
        Ok(())
    }

    /// Reads what the snapshot has, and shuts the entrance.
    async fn begin_rollback(
        &self,
        dataset: &Dataset,
        snapshot: &Snapshot,
        options: RollbackOptions,
    ) -> Result<(), DatasetError> {
        let root = snapshot.record.objects;
        let orphans = match left_out(Rule::OrphansAreReadAgain) {
            true => dataset.orphans.lock().clone(),
            false => orphans_in(&self.pool, root).await?,
        };
        dataset.begin_back(Back { root, inodes: HashMap::new(), orphans });
        // Most of it while clients still change the dataset.
        dataset.gather_back(&self.pool).await?;
        if !left_out(Rule::RollbackShutsTheDoor) {
            dataset.entrance.shut();
            dataset.entrance.is_empty().await;
        }
        if dataset.is_destroyed() {
            return Err(DatasetError::NotFound(self.full_name(dataset)));
        }
        self.check_locks(&self.full_name(dataset), (dataset, None), options)?;
        if !options.force && dataset.is_logged(&self.pool) && dataset.waits_for_commit() {
            return Err(DatasetError::WaitsForCommit(self.full_name(dataset)));
        }
        dataset.gather_back(&self.pool).await?;
        Ok(())
    }

    /// Carries out a rollback. Called by the sync of its txg, when all else of the dataset is
    /// written.
    pub(crate) fn carry_out_rollback(
        &self,
        txg: Txg,
        id: DatasetId,
        (to, kind): (Txg, RollbackKind),
    ) -> Vec<(ItemKey, Option<Item>)> {
        let Some(dataset) = self.by_id(id) else { return Vec::new() };
        let is_line = kind == RollbackKind::Line;
        let own = dataset.snapshots.lock().get(to);
        // What its line began with has not died on it.
        let dies_here = own.is_some();
        let begun_with = || {
            let origin = dataset.origin.lock().filter(|origin| origin.snapshot == to)?;
            self.by_id(origin.dataset)?.snapshots.lock().get(to)
        };
        let Some(snapshot) = own.or_else(begun_with) else { return Vec::new() };
        let before = DatasetRecord { floor: dataset.head_floor(), ..self.record_of(&dataset) };
        let last = dataset.snapshots.lock().rollback;
        // No client has seen what was received: nothing need look changed.
        let is_seen = !dataset.is_receiving();
        let (change, ctime) = least_after(last, is_seen.then(|| self.pool.world().wall_ns()));
        let pending = dies_here && !is_line && !left_out(Rule::RollbackRevives);
        let record = RollbackRecord { txg, to, change, ctime, pending };
        let old = self.record_item(&dataset, txg);
        // First: from here on the old head counts by itself.
        let left = match kind {
            // What it has from up to then, the new head has.
            RollbackKind::InLine => self.leave_head(txg, (before, to), None),
            RollbackKind::Line => {
                let counts = Some(dataset.head_space());
                let (of, floor) = (LeftHeadRecord { dataset: id, txg, counts }, before.floor);
                self.leave_head(txg, (before, floor), Some(of))
            }
        };
        dataset.set_synced_root(snapshot.record.objects);
        dataset.set_refer(snapshot.record.refer());
        // What its line began with, it has inherited altogether.
        let inherited = match dies_here && !is_line {
            // Before the first clone of a file there was nothing to know.
            true if dataset.origin.lock().is_none() => {
                snapshot.inherited.or(Some(Space::default()))
            }
            true => snapshot.inherited,
            false => Some(snapshot.record.refer()),
        };
        let known = dataset.inherited.lock().is_some() || is_line;
        *dataset.inherited.lock() = inherited.filter(|_| known);
        {
            let mut snapshots = dataset.snapshots.lock();
            snapshots.rollback = Some(record);
            match dies_here && !is_line {
                true => snapshots.covers_as_it_was(),
                // Nothing of it is its own yet.
                false => snapshots.covers_all_of(0),
            }
        }
        let mut items = match left_out(Rule::RecordsFollowActs) {
            true => vec![(old.key, Some(old))],
            false => {
                let item = self.record_item(&dataset, txg);
                vec![(item.key, Some(item))]
            }
        };
        items.push(rollback_item(id, Some(record)));
        items.extend(match kind {
            RollbackKind::InLine => self.roll_file_clones_back(&dataset, (txg, to)),
            RollbackKind::Line => dataset.begin_line(txg, to),
        });
        if !is_line && !left_out(Rule::RollbackTakesBookmarks) {
            let later = dataset.snapshots.lock().bookmarks.after(to);
            items.extend(self.carry_out_destroy_bookmarks(txg, id, &later));
        }
        items.extend([no_record(id), no_resume(id)]);
        items.extend(dataset.inherited.lock().map(|space| inherited_item(id, Txg(0), space)));
        items.extend(left);
        items
    }

    /// The old head becomes a destroyed dataset, which owns what was born above a floor. `of`:
    /// where that belongs, if later snapshots may show it.
    fn leave_head(
        &self,
        txg: Txg,
        (head, floor): (DatasetRecord, Txg),
        of: Option<LeftHeadRecord>,
    ) -> Vec<(ItemKey, Option<Item>)> {
        if head.objects.is_none() {
            return Vec::new();
        }
        let id = {
            let mut state = self.state.lock();
            let id = DatasetId(state.next_dataset);
            state.next_dataset += 1;
            id
        };
        let fs_guid = Guid(self.pool.world().random().max(1));
        let record = DatasetRecord { fs_guid, dead: None, floor, ..head };
        let defaults = Properties::from_values(|property| property.default_value().into());
        let local = LocalValues::new();
        let rooms = (self.pool.shelf(), &self.awake);
        let old = Arc::new(Dataset::new(rooms, id, record, local, defaults));
        old.set_destroyed(txg);
        let of = of.filter(|_| !left_out(Rule::LeftHeadsAreFiled));
        *old.left.lock() = of;
        let item = self.record_item(&old, txg);
        self.state.lock().enter_destroyed(old);
        let left = of.map(|of| left_head_item(id, of)).map(|item| (item.key, Some(item)));
        left.into_iter().chain([(item.key, Some(item))]).collect()
    }
}

/// The least change attribute and time of the last change that objects show after a rollback: at
/// this time, if clients must see that it was.
fn least_after(last: Option<RollbackRecord>, now_ns: Option<u64>) -> (u64, Time) {
    let before = last.map_or((0, Time::default()), |last| (last.change, last.ctime));
    let Some(now) = now_ns.map(Time::from_ns) else { return before };
    let change = now.since_1970_ns().max(last.map_or(0, |last| last.change + 1));
    (change.min(SEQUENCE_LIMIT - 1), now.max(before.1))
}

/// The item that says where what an old head had belongs.
fn left_head_item(id: DatasetId, of: LeftHeadRecord) -> Item {
    Item { key: ItemKey::new(id, ItemClass::LeftHead, 0), value: of.encode() }
}

/// The item of a dataset's newest rollback.
pub(crate) fn rollback_item(
    id: DatasetId,
    record: Option<RollbackRecord>,
) -> (ItemKey, Option<Item>) {
    let key = ItemKey::new(id, ItemClass::Rollback, 0);
    (key, record.map(|record| Item { key, value: record.encode() }))
}

/// The objects without a name in an object table.
pub(crate) async fn orphans_in(
    pool: &Pool,
    root: Option<BlockPointer>,
) -> Result<BTreeSet<ObjectId>, PoolError> {
    let mut orphans = BTreeSet::new();
    let Some(list) = btree::lookup::<Objects, Pool>(pool, root, ORPHANS.0).await? else {
        return Ok(orphans);
    };
    let mut scan = Scan::<Directory, Pool>::new(pool, list.root, 0, None)?;
    while let Some(entry) = scan.next().await? {
        orphans.insert(entry.object);
    }
    Ok(orphans)
}
