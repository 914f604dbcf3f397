//! Snapshots of single files.
//!
//! A snapshot of a file is a copy of its inode, taken last in a txg from the object table that the
//! txg wrote. It shows the file's extents and the nodes above them, and nothing else: not its name,
//! and no other file. Several files are taken in one txg, so they are consistent with each other.
//!
//! Invariants:
//! - It is on the line of its dataset, and only that dataset lists it. A promotion moves none; with
//!   the dataset they all go.
//! - A file keeps its snapshots under whatever name, and when it has none any more. They bear the
//!   path that it had. No two of one dataset have the same path and name, or are of one file and
//!   have the same name.
//! - What such a snapshot shows dies into its file's group of buckets ([`aquifer_object::Gate`]).
//!   One that leaves the list leaves a sweep of that group, in the same txg ([`crate::dead`]).

mod covered;
mod derived;
mod list;
mod pins;
mod schedule;
mod wanted;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{Object, btree};
use aquifer_ondisk::config::{FEATURE_FILE_SNAPSHOTS, FEATURE_SNAPSHOTS};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::file_snapshot::{FileSnapshotId, FileSnapshotRecord};
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::keeping::{Cadence, Hold, KeepRecord};
use aquifer_ondisk::scrub::ScrubState;
use aquifer_ondisk::tree_node::Objects;
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Txg};
use aquifer_pool::{PoolError, SyncContext};

use crate::damage::only;
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::dead::These;
use crate::error::DatasetError;
use crate::snapshots::{Act, Called, ListChange};
use crate::tails::LOOKED_UP_MAX;

pub use derived::FileVersion;
pub(crate) use derived::{Gathering, Resolved};
pub(crate) use list::FileSnapshots;
pub(crate) use pins::{Ended, FileLine};
pub use schedule::{ScheduledFile, ScheduledFiles};

/// A snapshot of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSnapshot {
    /// Its number in its dataset.
    pub id: FileSnapshotId,
    /// Its record.
    pub record: FileSnapshotRecord,
}

/// A snapshot of a file that is to be taken.
#[derive(Debug, Clone)]
pub struct NewFileSnapshot {
    /// The dataset of the file.
    pub dataset: Arc<Dataset>,
    /// The file.
    pub object: ObjectId,
    /// Its generation.
    pub generation: u64,
    /// Its path in the dataset, as it is shown, without a slash before it.
    pub path: String,
    /// Name of the snapshot, behind the '@'.
    pub name: String,
}

/// Snapshot of a file that a sync is to take.
#[derive(Debug, Clone)]
pub(crate) struct Take {
    pub new: NewFileSnapshot,
    guid: Guid,
    /// Among those of its dataset and txg.
    index: u16,
    /// That of the entry of the call that asks for it, in the reply table.
    reply: Option<u64>,
    created: Time,
    /// The schedule that asks for it.
    schedule: Option<Cadence>,
    /// By itself it has this one.
    hold: Option<Hold>,
    /// All tails of the dataset's files are known.
    tails_known: bool,
}

/// Source of a request for snapshots of files.
#[derive(Debug, Clone, Copy)]
enum Asks<'a> {
    Command,
    Call(&'a Called),
    /// The schedule of a cadence, at this time.
    Schedule(Cadence, Time),
}

impl FileSnapshot {
    /// The txg whose last act it was.
    pub fn txg(&self) -> Txg {
        self.id.txg()
    }

    /// The file.
    pub fn object(&self) -> ObjectId {
        self.record.inode.object
    }

    /// Its item.
    fn item(&self, line: DatasetId) -> (ItemKey, Option<Item>) {
        let key = ItemKey::new(line, ItemClass::FileSnapshot, self.id.0);
        (key, Some(Item { key, value: self.record.encode() }))
    }

    /// The last part of the path that it bears, as it is shown.
    pub fn last_of_path(&self) -> &str {
        self.record.path.rsplit('/').next().unwrap_or_default()
    }
}

impl Dataset {
    /// The snapshots of its files that are on disk, in the order in which they were taken.
    pub fn file_snapshots(&self, committed: Txg) -> Vec<Arc<FileSnapshot>> {
        let files = &self.snapshots.lock().files;
        files.on_disk(committed, files.list.values(), |_| true)
    }

    /// One of them.
    pub fn file_snapshot(&self, id: FileSnapshotId, committed: Txg) -> Option<Arc<FileSnapshot>> {
        let files = &self.snapshots.lock().files;
        files.on_disk(committed, files.list.get(&id).into_iter(), |of| of.id == id).pop()
    }

    /// Those of one file, in the order in which they were taken.
    pub fn file_snapshots_of(&self, object: ObjectId, committed: Txg) -> Vec<Arc<FileSnapshot>> {
        let files = &self.snapshots.lock().files;
        files.on_disk(committed, files.of_file(object), |of| of.object() == object)
    }

    /// Those that bear a path that ends so, as it is shown, in the order in which they were taken.
    pub fn file_snapshots_at(&self, last: &str, committed: Txg) -> Vec<Arc<FileSnapshot>> {
        let files = &self.snapshots.lock().files;
        files.on_disk(committed, files.with_last(last), |of| of.last_of_path() == last)
    }

    /// The last change of [`Dataset::file_snapshots`]; all zeros, if there was none since the
    /// import.
    pub fn file_snapshots_changed(&self, committed: Txg) -> ListChange {
        self.snapshots.lock().files.last_change(committed)
    }

    /// How many there are.
    pub fn file_snapshot_count(&self) -> usize {
        let snapshots = self.snapshots.lock();
        snapshots.files.list.values().filter(|of| !of.record.hidden).count()
    }
}

impl Datasets {
    /// Takes snapshots of files, all in one txg. They are on disk when this returns. Returns their
    /// full names. A file with several names, found under more than one, is taken once.
    ///
    /// # Errors
    /// Bad names and paths that are too long, more files of one dataset than a txg takes, and
    /// snapshots that exist: then none was taken. Files that were removed meanwhile: then the
    /// others were taken.
    pub async fn snapshot_files(
        &self,
        wanted: Vec<NewFileSnapshot>,
    ) -> Result<Vec<String>, DatasetError> {
        let _act = self.acts.lock().await;
        self.snapshot_files_for(wanted, Asks::Command).await
    }

    /// Takes a snapshot of a file for a call. It is on disk when this returns.
    ///
    /// # Errors
    /// As [`Datasets::snapshot_files`]; or the caller gave up before the act began.
    pub async fn snapshot_file_for(
        &self,
        called: &Called,
        new: NewFileSnapshot,
    ) -> Result<Arc<FileSnapshot>, DatasetError> {
        let _act = self.acts.lock().await;
        let dataset = self.of_call(called)?.clone();
        let (object, guid) = (new.object, called.guid());
        let full = self.file_snapshot_name(&dataset, &new.path, &new.name);
        self.snapshot_files_for(vec![new], Asks::Call(called)).await?;
        let taken = dataset.file_snapshots_of(object, self.pool.committed_txg());
        let taken = taken.into_iter().find(|of| Some(of.record.guid) == guid);
        taken.ok_or(DatasetError::NotFound(full))
    }

    /// The caller holds the lock of acts.
    async fn snapshot_files_for(
        &self,
        wanted: Vec<NewFileSnapshot>,
        asks: Asks<'_>,
    ) -> Result<Vec<String>, DatasetError> {
        let wanted = self.check_files(wanted)?;
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        self.use_feature(FEATURE_SNAPSHOTS).await?;
        self.use_feature(FEATURE_FILE_SNAPSHOTS).await?;
        let (created, schedule) = match asks {
            Asks::Schedule(cadence, now) => (now, Some(cadence)),
            _ => (Time::from_ns(self.pool.world().wall_ns()), None),
        };
        let by = if let Asks::Call(called) = asks { Some(called) } else { None };
        let mut known: BTreeMap<DatasetId, (bool, Option<Hold>)> = BTreeMap::new();
        let mut takes = Vec::new();
        for new in wanted {
            let of = &new.dataset;
            let (tails_known, hold) = match known.get(&of.id) {
                Some(known) => known.clone(),
                None => {
                    let tails_known = self.find_tails(of, LOOKED_UP_MAX).await?;
                    (tails_known, self.retained_of_file(of).await?)
                }
            };
            known.insert(of.id, (tails_known, hold.clone()));
            let guid = by.and_then(Called::guid).unwrap_or_else(|| self.new_guid());
            let (index, reply) = (0, None);
            takes.push(Take { new, guid, index, reply, created, schedule, hold, tails_known });
        }
        let asked = self.ask_for_files(takes.iter().map(|take| &take.new)).await?;
        let holds = takes.iter().filter(|take| take.hold.is_some()).count();
        let txg = {
            let hold = self.hold_act_with(takes.len().saturating_add(holds) as u64).await?;
            self.number(hold.txg(), &mut takes)?;
            if let (Some(called), [take]) = (by, &mut takes[..]) {
                take.reply = called.join(self, (&hold, take.index))?;
            }
            let mut state = self.state.lock();
            state.queue.keep_room(hold.txg(), asked);
            state.queue.take_files(hold.txg(), takes.iter().cloned());
            hold.txg()
        };
        self.act_on_disk().await?;
        let mut known: BTreeMap<DatasetId, HashSet<Guid>> = BTreeMap::new();
        let (mut taken, mut missing) = (Vec::new(), Vec::new());
        for Take { new, guid, .. } in takes {
            let name = self.file_snapshot_name(&new.dataset, &new.path, &new.name);
            let of_it = || new.dataset.snapshots.lock().files.guids_of(txg);
            match known.entry(new.dataset.id).or_insert_with(of_it).contains(&guid) {
                true => taken.push(name),
                false => missing.push(name),
            }
        }
        match missing.is_empty() {
            true => Ok(taken),
            false => Err(DatasetError::FilesGone { missing, taken: taken.len() }),
        }
    }

    /// The full name of a snapshot of a file.
    pub fn file_snapshot_name(&self, dataset: &Dataset, path: &str, name: &str) -> String {
        format!("{}:{path}@{name}", self.full_name(dataset))
    }

    /// Destroys snapshots of files, all in one txg. They are gone, on disk, when this returns; what
    /// they alone showed becomes free in the background. Numbers of none count for nothing.
    ///
    /// # Errors
    /// A dataset is gone, or one of them is held.
    pub async fn destroy_file_snapshots(
        &self,
        snapshots: &[(Arc<Dataset>, BTreeSet<FileSnapshotId>)],
    ) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        let mut acts = Vec::new();
        for (dataset, ids) in snapshots {
            if dataset.is_destroyed() {
                return Err(DatasetError::NotFound(self.full_name(dataset)));
            }
            self.check_not_held(dataset, ids.iter().copied())?;
            let ids = ids.iter().copied().collect();
            acts.push(Act::DestroyFiles { line: dataset.id, ids, at_once: false });
        }
        self.act(acts).await
    }

    /// Destroys a snapshot of a file for a call, by its name. It is gone, on disk, when this
    /// returns. Returns what it was.
    ///
    /// # Errors
    /// There is none of this name, or it is held; or the caller gave up before the act began.
    pub async fn destroy_file_snapshot_for(
        &self,
        called: &Called,
        object: ObjectId,
        name: &str,
    ) -> Result<Arc<FileSnapshot>, DatasetError> {
        let _act = self.acts.lock().await;
        let dataset = self.of_call(called)?;
        let known = self.called_of(dataset, object, name)?;
        self.check_not_held(dataset, [known.id])?;
        let (line, ids) = (dataset.id, vec![known.id]);
        self.act_for(vec![Act::DestroyFiles { line, ids, at_once: false }], Some(called)).await?;
        Ok(known)
    }

    /// The snapshot of a file that has this name.
    pub(crate) fn called_of(
        &self,
        dataset: &Dataset,
        object: ObjectId,
        name: &str,
    ) -> Result<Arc<FileSnapshot>, DatasetError> {
        let all = dataset.file_snapshots_of(object, self.pool.committed_txg());
        let known = all.into_iter().find(|of| of.record.name == name);
        let full = || self.file_snapshot_name(dataset, &format!("#{object}"), name);
        known.ok_or_else(|| DatasetError::NotFound(full()))
    }

    /// Bytes that would become free with these snapshots of files of a dataset together.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn unique_bytes_of_files(
        &self,
        dataset: &Dataset,
        ids: &BTreeSet<FileSnapshotId>,
    ) -> Result<u64, PoolError> {
        let mut these = These::default();
        {
            let snapshots = dataset.snapshots.lock();
            for snapshot in ids.iter().filter_map(|id| snapshots.files.list.get(id)) {
                these.files.entry(snapshot.object()).or_default().insert(snapshot.txg());
            }
        }
        self.unique_bytes(dataset, &these).await
    }

    /// A file as of a snapshot of it, to be read and not to be changed; `None` if that is gone.
    /// When it goes later, reads fail.
    pub fn file_view(&self, dataset: &Dataset, id: FileSnapshotId) -> Option<Arc<Object>> {
        let mut snapshots = dataset.snapshots.lock();
        let is_on_disk = id.txg() <= self.pool.committed_txg() && !dataset.is_destroyed();
        let files = &mut snapshots.files;
        let snapshot = files.list.get(&id).filter(|of| is_on_disk && !of.record.hidden)?;
        let object = || Arc::new(Object::new(dataset.id, snapshot.record.inode.clone()));
        Some(files.open.entry(id).or_insert_with(object).clone())
    }

    /// The full name of the snapshot of a file that has this guid.
    pub fn file_snapshot_by_guid(&self, guid: Guid) -> Option<String> {
        let committed = self.pool.committed_txg();
        self.all().into_iter().find_map(|dataset| {
            let all = dataset.file_snapshots(committed);
            let record = &all.iter().find(|of| of.record.guid == guid)?.record;
            Some(self.file_snapshot_name(&dataset, &record.path, &record.name))
        })
    }

    /// The full name of the snapshot of a file for which a key of the namespace stands.
    pub fn file_snapshot_at(&self, (dataset, item): (u64, u64)) -> Option<String> {
        let (class, number) = ItemKey { dataset: DatasetId(dataset), item }.class_and_number();
        let dataset = self.by_id(DatasetId(dataset))?;
        let known = dataset.snapshots.lock().files.list.get(&FileSnapshotId(number)).cloned();
        let known = known.filter(|_| class == ItemClass::FileSnapshot as u8)?;
        Some(self.file_snapshot_name(&dataset, &known.record.path, &known.record.name))
    }

    /// Takes the snapshots of files of a txg. Called by its sync, when all else of the datasets is
    /// written.
    pub(crate) async fn take_files(
        &self,
        sync: &SyncContext,
    ) -> Result<Vec<(ItemKey, Option<Item>)>, PoolError> {
        let takes = self.state.lock().queue.take_file_takes(sync.txg());
        let mut items = Vec::new();
        for Take { new, guid, index, reply, created, schedule, hold, tails_known } in takes {
            let Some(inode) = self.file_of(sync, &new).await? else {
                self.replies.retract(sync.txg(), reply);
                continue;
            };
            let settled = tails_known && self.has_no_tail(sync, &new.dataset, new.object).await?;
            let id = FileSnapshotId::new(sync.txg(), index);
            let NewFileSnapshot { dataset, name, path, .. } = new;
            let record = FileSnapshotRecord {
                guid,
                created,
                name,
                path,
                inode,
                settled,
                hidden: false,
                gathers: false,
                schedule,
            };
            let snapshot = FileSnapshot { id, record };
            items.push(snapshot.item(dataset.id));
            let change = self.change_in(sync.txg());
            {
                let files = &mut dataset.snapshots.lock().files;
                files.put(Arc::new(snapshot));
                files.note_change(change);
                let keep = |hold| KeepRecord { holds: vec![hold], ..KeepRecord::default() };
                let kept = hold.map(|hold| files.keep((dataset.id, id), keep(hold)));
                items.extend(kept.filter(|_| !left_out(Rule::MarksAreOnDisk)));
            }
            sync.pace().await;
        }
        Ok(items)
    }

    /// A file as the txg wrote it; `None` if it was removed, or cannot be read.
    async fn file_of(
        &self,
        sync: &SyncContext,
        NewFileSnapshot { dataset, object, generation, .. }: &NewFileSnapshot,
    ) -> Result<Option<Inode>, PoolError> {
        if dataset.is_destroyed() {
            return Ok(None);
        }
        let root = dataset.synced_root();
        let found = btree::lookup::<Objects, SyncContext>(sync, root, object.0).await;
        let inode = match found {
            Err(error) if error.cannot_be_read() => {
                self.note_damage(dataset, *object, sync.txg(), only(error), false);
                None
            }
            found => found?,
        };
        let in_memory = dataset.cached(*object).filter(|_| left_out(Rule::InodeFromTheTable));
        let inode = inode.map(|inode| match in_memory {
            Some(object) => Inode { root: inode.root, ..object.inode() },
            None => inode,
        });
        let is_it = |inode: &Inode| {
            inode.generation == *generation && inode.nlink > 0 && inode.kind == FileKind::Regular
        };
        Ok(inode.filter(is_it))
    }

    /// Snapshots of files leave the list, or are hidden for now if a file was cloned from them, or
    /// if they need not go at once and a walk may need them.
    pub(crate) fn carry_out_destroy_files(
        &self,
        txg: Txg,
        line: DatasetId,
        (ids, at_once): (Vec<FileSnapshotId>, bool),
    ) -> Vec<(ItemKey, Option<Item>)> {
        let Some(dataset) = self.by_id(line) else { return Vec::new() };
        let mut snapshots = dataset.snapshots.lock();
        if !ids.is_empty() {
            snapshots.files.note_change(self.change_in(txg));
        }
        let leave =
            |id| match snapshots.files.is_pinned(id) || !at_once && snapshots.files.is_walked(id) {
                true => snapshots.files.hide(line, id),
                false => snapshots.files.leave(txg, (line, id)),
            };
        ids.into_iter().flat_map(leave).collect()
    }

    /// Snapshots of files get another name, and no schedule prunes them from now on.
    pub(crate) fn carry_out_rename_files(
        &self,
        txg: Txg,
        line: DatasetId,
        (ids, name): (&BTreeSet<FileSnapshotId>, &str),
    ) -> Vec<(ItemKey, Option<Item>)> {
        let Some(dataset) = self.by_id(line) else { return Vec::new() };
        let mut snapshots = dataset.snapshots.lock();
        snapshots.files.note_change(self.change_in(txg));
        ids.iter().filter_map(|id| snapshots.files.rename(line, *id, name)).collect()
    }

    /// If no walk is under way, forgets rollbacks of files that are over, and destroys what was
    /// hidden for their sake.
    pub(crate) fn forget_file_rollbacks(
        &self,
        txg: Txg,
        dataset: &Dataset,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let mut snapshots = dataset.snapshots.lock();
        if !snapshots.files.has_rollbacks() || self.is_walking() {
            return Vec::new();
        }
        let mut items = Vec::new();
        for id in snapshots.files.forget_rollbacks() {
            items.push((ItemKey::new(dataset.id, ItemClass::FileRollback, id.0), None));
            items.extend(snapshots.files.release(txg, (dataset.id, id)));
        }
        items
    }

    /// Whether a scrub or a resilver is under way.
    fn is_walking(&self) -> bool {
        let is_scrubbed = self
            .scrubbed()
            .is_some_and(|record| matches!(record.state, ScrubState::Active | ScrubState::Paused));
        is_scrubbed || self.pool.is_resilvering()
    }
}
