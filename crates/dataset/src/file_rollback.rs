//! Rollback of a file to a snapshot of it, or of several files in one txg.
//!
//! A file's root becomes the snapshot's again, by the sync of the rollback's txg, after all
//! changes of clients in it. It costs the same whatever the file's size. What the file was becomes
//! a tail of it, which the background takes down. The object in memory is rolled back in place:
//! requests and locks keep it. Its names stay.
//!
//! # In line
//! So it is if nothing later shows the file. Two things follow, as with a dataset
//! ([`crate::rollback`]):
//!
//! - The tail's floor is the snapshot: what was born up to then, the file refers to again. So do
//!   the tails that were cut off since, which get the same floor.
//! - What the snapshot shows and has died since lives again. The dead tree names it in the file's
//!   group, in the buckets with `hi` at or after the snapshot and `lo` before it, and nothing else
//!   there. The background takes these out, before any sweep of the dataset. Until that is done,
//!   what dies of the file is filed under the txg of the rollback at least.
//!
//! # On a line of its own
//! A life of a block has no holes. So if later snapshots stay, of the file or of the dataset, or if
//! the file has left the line of the snapshot before, then it begins a line: it becomes a clone of
//! the snapshot ([`crate::file_clones`]), with its own id, handle and names. What was born up to
//! the snapshot is the old head's, which is a tail without a floor of its own and dies as any part
//! of the file that is cut off. A record pins the snapshot.
//!
//! No change of the file may be under way meanwhile: its door is shut ([`Object::write`]), until
//! the txg is on disk and memory has taken it over. Other files are not held up.
//!
//! # What is refused
//! What dies in the file's group must be the file's own, and its sum of bytes that of its tree: a
//! snapshot that was taken while tails of the file were being freed is not
//! [settled](FileSnapshotRecord::settled).
//!
//! [`FileSnapshotRecord::settled`]: aquifer_ondisk::file_snapshot::FileSnapshotRecord::settled

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{Object, TreeRoot};
use aquifer_ondisk::config::{
    FEATURE_FILE_CLONES, FEATURE_FILE_LINES, FEATURE_FILE_ROLLBACK, FEATURE_INHERITED,
};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::file_snapshot::{FileRollbackRecord, FileSnapshotId};
use aquifer_ondisk::inode::{Inode, Time};
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use aquifer_pool::{PoolError, SyncContext};
use aquifer_sync::Mutex;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::file_clones::Began;
use crate::file_snapshots::{FileSnapshot, FileVersion, Resolved};
use crate::rollback::RollbackOptions;
use crate::snapshots::{Act, Called, Snapshots};
use crate::sync::Gathered;

/// A file that a sync rolls back.
#[derive(Debug, Clone)]
pub(crate) struct FileBack {
    pub dataset: DatasetId,
    object: Arc<Object>,
    snapshot: Arc<FileSnapshot>,
    /// It begins a line.
    again: bool,
    /// Later snapshots of it that go when it has gone back.
    later: Vec<FileSnapshotId>,
    /// That of the entry of the call that asks for it, in the reply table.
    reply: Option<u64>,
    /// Inode that the sync has made of the file, once it has.
    done: Arc<Mutex<Option<Inode>>>,
}

/// Files that can be rolled back, in the order of their ids, and later snapshots of them that go.
#[derive(Debug, Default)]
struct Checked {
    wanted: BTreeMap<ObjectId, Wanted>,
    later: Vec<Arc<FileSnapshot>>,
}

/// Snapshot that a file goes back to.
#[derive(Debug)]
struct Wanted {
    /// Its full name.
    full: String,
    snapshot: Arc<FileSnapshot>,
    /// The file begins a line.
    again: bool,
}

/// A file whose door is shut until this is dropped, or its rollback is queued.
struct Shut(Option<Arc<Object>>);

impl Drop for Shut {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            object.open();
        }
    }
}

impl Datasets {
    /// Rolls files of a dataset back, each to a version of it, all in one txg. With
    /// `destroy_later` the later snapshots of the files are destroyed in the same txg. It is on
    /// disk when this returns. Returns the full names of the destroyed snapshots.
    ///
    /// # Errors
    /// There is no such snapshot, two are of one file, a file was removed or is damaged, a client
    /// may lose data that waits for COMMIT, or a file cannot go back to this one. Then nothing has
    /// changed. If the object table cannot be read at one of the files, that one stays as it is,
    /// with all its snapshots.
    pub async fn rollback_files(
        &self,
        dataset: &Arc<Dataset>,
        versions: &[impl Into<FileVersion> + Clone],
        options: RollbackOptions,
    ) -> Result<Vec<String>, DatasetError> {
        let (_act, ()) = self.turn_when_settled(|| Ok(((), dataset.clone()))).await?;
        let versions: Vec<FileVersion> = versions.iter().cloned().map(Into::into).collect();
        self.rollback_files_for(dataset, (&versions, options), None).await
    }

    /// Rolls a file back for a call, unless a client may lose something. Later snapshots stay. It
    /// is on disk when this returns.
    ///
    /// # Errors
    /// As [`Datasets::rollback_files`]; or the caller gave up before the act began.
    pub async fn rollback_file_for(
        &self,
        called: &Called,
        version: FileVersion,
    ) -> Result<(), DatasetError> {
        let look = || self.of_call(called).map(|dataset| ((), dataset.clone()));
        let (_act, ()) = self.turn_when_settled(look).await?;
        let dataset = self.of_call(called)?;
        let options = RollbackOptions::default();
        self.rollback_files_for(dataset, (&[version], options), Some(called)).await.map(drop)
    }

    /// The caller holds the lock of acts.
    async fn rollback_files_for(
        &self,
        dataset: &Arc<Dataset>,
        (versions, options): (&[FileVersion], RollbackOptions),
        by: Option<&Called>,
    ) -> Result<Vec<String>, DatasetError> {
        self.settle(dataset).await?;
        let mut to = Vec::new();
        for version in versions {
            to.push(self.resolve(dataset, version, to.len()).await?);
        }
        let Checked { wanted, later } = self.check_rollback_files(dataset, to, options)?;
        self.check_not_held(dataset, later.iter().map(|of| of.id))?;
        self.wait_for_returning(dataset).await?;
        self.find_all_tails(dataset).await?;
        let mut backs = Vec::new();
        for Wanted { full, snapshot, again } in wanted.into_values() {
            let object = dataset.object(&self.pool, snapshot.object()).await?;
            let generation = snapshot.record.inode.generation;
            let is_it = |object: &Arc<Object>| object.inode().generation == generation;
            let object = object.filter(is_it);
            let object = object.ok_or_else(|| DatasetError::FileRemoved(full.clone()))?;
            let of_it = later.iter().filter(|of| of.object() == object.id);
            let later = of_it.map(|of| of.id).collect();
            let (dataset, reply, done) = (dataset.id, None, Arc::default());
            backs.push((full, FileBack { dataset, object, snapshot, again, later, reply, done }));
        }
        if backs.iter().any(|(_, back)| !back.again) {
            self.use_feature(FEATURE_FILE_ROLLBACK).await?;
        }
        if backs.iter().any(|(_, back)| back.again) {
            self.use_lines().await?;
        }
        // Before the doors are shut: changes that wait at them hold admissions.
        let admission = self.admit_act((backs.len() + later.len()) as u64).await?;
        let mut shut = Vec::new();
        for (full, FileBack { object, .. }) in &backs {
            shut.push(self.shut_file(dataset, full, object, options).await?);
        }
        {
            let hold = self.pool.hold(admission)?;
            if let (Some(called), [(_, back)]) = (by, &mut backs[..]) {
                back.reply = called.join(self, (&hold, 0))?;
            }
            let all = backs.iter().map(|(_, back)| back.clone());
            self.state.lock().queue.roll_files_back(hold.txg(), all);
        }
        // From here on the commit opens the doors, also if this is cut off.
        shut.iter_mut().for_each(|shut| shut.0 = None);
        self.act_on_disk().await?;
        if let Some((full, _)) = backs.into_iter().find(|(_, back)| back.done.lock().is_none()) {
            return Err(DatasetError::FileDamaged(full));
        }
        let shown = later.iter().filter(|of| !of.record.hidden);
        Ok(shown.map(|of| self.name_of_file(dataset, of)).collect())
    }

    /// Names in the labels what a pool needs before its first line.
    pub(crate) async fn use_lines(&self) -> Result<(), DatasetError> {
        for feature in [FEATURE_INHERITED, FEATURE_FILE_CLONES, FEATURE_FILE_LINES] {
            self.use_feature(feature).await?;
        }
        Ok(())
    }

    /// Finds all that was cut off files, so that syncs know of it.
    ///
    /// # Errors
    /// Some of what is to be freed cannot be read.
    pub(crate) async fn find_all_tails(&self, dataset: &Dataset) -> Result<(), DatasetError> {
        if dataset.dead.lock().damaged || !self.find_tails(dataset, usize::MAX).await? {
            return Err(DatasetError::DeadUnreadable(self.full_name(dataset)));
        }
        Ok(())
    }

    pub(crate) fn name_of_file(&self, dataset: &Dataset, of: &FileSnapshot) -> String {
        self.file_snapshot_name(dataset, &of.record.path, &of.record.name)
    }

    /// Refuses what cannot be rolled back to.
    fn check_rollback_files(
        &self,
        dataset: &Dataset,
        to: Vec<Resolved>,
        options: RollbackOptions,
    ) -> Result<Checked, DatasetError> {
        let snapshots = dataset.snapshots.lock();
        let mut checked = Checked::default();
        for Resolved { snapshot, full, is_whole } in to {
            let mut later = snapshots.files.after(snapshot.txg());
            later.retain(|of| of.object() == snapshot.object());
            // In line, what the file has given up of what its dataset began with would have to be
            // counted again.
            let of_clone = dataset.origin.lock().is_some() || !snapshots.head_lines.is_first();
            let of_clone = of_clone && dataset.inherited.lock().is_some();
            let of_clone = of_clone && !left_out(Rule::FilesOfClonesBeginLines);
            let again = is_whole || of_clone || !is_in_line(&snapshots, &snapshot, &later, options);
            if again {
                // The hidden ones are in nobody's way.
                later.retain(|of| options.destroy_later && !of.record.hidden);
            }
            if !snapshot.record.settled && !left_out(Rule::SettledSnapshotsOnly) {
                return Err(DatasetError::Unsettled(full));
            }
            if again {
                dataset.check_counted(&full)?;
            }
            if checked.wanted.contains_key(&snapshot.object()) {
                let why = "is the second of one file: one command rolls it back to one".into();
                return Err(DatasetError::BadName { name: full, why });
            }
            checked.wanted.insert(snapshot.object(), Wanted { full, snapshot, again });
            checked.later.extend(later);
        }
        Ok(checked)
    }

    /// Waits until no change of a file is under way, and shuts its door.
    async fn shut_file(
        &self,
        dataset: &Dataset,
        full: &str,
        object: &Arc<Object>,
        options: RollbackOptions,
    ) -> Result<Shut, DatasetError> {
        let _none_under_way = object.writer.lock().await;
        let state = object.state.lock();
        if state.inode.nlink == 0 || state.destroyed {
            return Err(DatasetError::FileRemoved(full.into()));
        }
        if state.damaged && !options.force {
            return Err(DatasetError::FileDamaged(full.into()));
        }
        let waits = state.overlay.count_unlogged(0, u64::MAX, 1) > 0;
        if waits && !options.force && dataset.is_logged(&self.pool) {
            return Err(DatasetError::WaitsForCommit(full.into()));
        }
        if left_out(Rule::FileRollbackShutsTheDoor) {
            return Ok(Shut(None));
        }
        drop(state);
        object.shut();
        let shut = Shut(Some(object.clone()));
        self.check_locks(full, (dataset, Some(object.id)), options)?;
        Ok(shut)
    }

    /// Rolls back the files of a dataset that this txg rolls back. Called by its sync, when all
    /// else of the dataset's objects is written.
    pub(crate) async fn roll_files_back(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        gathered: &mut Gathered,
    ) -> Result<(), PoolError> {
        for back in self.backs_of(dataset, sync.txg()) {
            let FileBack { object, snapshot, again, done, .. } = &back;
            let is_gone = matches!(gathered.inodes.get(&object.id.0), Some(None));
            let has_place = self.has_place(sync, dataset, object.id, None).await?;
            if is_gone || !has_place {
                continue;
            }
            let Some(snapshot) = &gathered.begin_as(dataset, snapshot) else { continue };
            let to = (object.id, snapshot.txg());
            let before = Inode { root: None, ..object.state.lock().inode.clone() };
            let old = Dataset::tree_of(object);
            let mut inode = self.as_it_was(&snapshot.record.inode, &before);
            if *again {
                begin_again(&mut inode, (snapshot, old));
                if let Some(root) = old.root {
                    self.keep_tail(dataset, (&before, sync.txg()), (root, Txg(0)), gathered)?;
                }
                dataset.knows_inherited();
                let (object, snapshot) = (object.id, snapshot.clone());
                gathered.began.push(Began { object, snapshot, again: true, across: None });
            } else if !self.lift_tails(sync, dataset, to, gathered).await? {
                continue;
            } else if let Some(root) = old.root.filter(|root| root.birth > snapshot.txg()) {
                let floor = if left_out(Rule::OldFilesHaveAFloor) { Txg(0) } else { to.1 };
                self.keep_tail(dataset, (&before, sync.txg()), (root, floor), gathered)?;
            }
            let tree = TreeRoot::of(&inode);
            gathered.refer.add(old.refer, tree.refer);
            gathered.inherited.add(old.inherited, tree.inherited);
            object.state.lock().synced = tree;
            gathered.inodes.insert(object.id.0, Some(inode.clone()));
            *done.lock() = Some(inode);
        }
        Ok(())
    }

    /// A file as it was in a snapshot, with the names that it has, and changed since.
    fn as_it_was(&self, then: &Inode, now: &Inode) -> Inode {
        let mut inode = Inode {
            nlink: now.nlink,
            parent: now.parent,
            line: now.line,
            change: now.change,
            ..then.clone()
        };
        inode.touch(Time::from_ns(self.pool.world().wall_ns()).max(now.ctime));
        inode
    }

    /// Notes the rollbacks of files of this txg: blocks that the files refer to again are still in
    /// the dead tree. Has their later snapshots destroyed.
    pub(crate) async fn files_return(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
    ) -> Result<Vec<(ItemKey, Option<Item>)>, PoolError> {
        let mut backs = self.backs_of(dataset, sync.txg());
        backs.retain(|back| {
            let is_done = back.done.lock().is_some();
            if !is_done {
                self.replies.retract(sync.txg(), back.reply);
            }
            is_done
        });
        let later: Vec<FileSnapshotId> =
            backs.iter().flat_map(|back| back.later.iter().copied()).collect();
        if !later.is_empty() {
            let act = Act::DestroyFiles { line: dataset.id, ids: later, at_once: true };
            self.state.lock().queue.act(sync.txg(), [act]);
        }
        if backs.is_empty() || left_out(Rule::FileRollbackRevives) {
            return Ok(Vec::new());
        }
        let mut items = Vec::new();
        for FileBack { snapshot, .. } in backs.into_iter().filter(|back| !back.again) {
            let record =
                FileRollbackRecord { object: snapshot.object(), txg: sync.txg(), pending: true };
            {
                let mut snapshots = dataset.snapshots.lock();
                snapshots.files.load_rollback(snapshot.id, record);
                snapshots.files.covers_again(&snapshot);
                snapshots.covers_what_is_newest();
            }
            let key = ItemKey::new(dataset.id, ItemClass::FileRollback, snapshot.id.0);
            items.push((key, Some(Item { key, value: record.encode() })));
        }
        self.sum_files_returning(sync, dataset).await?;
        Ok(items)
    }

    fn backs_of(&self, dataset: &Dataset, txg: Txg) -> Vec<FileBack> {
        let state = self.state.lock();
        let backs = state.queue.file_backs(txg).iter();
        backs.filter(|back| back.dataset == dataset.id).cloned().collect()
    }

    /// A txg is on disk: memory takes the files over that it rolled back.
    pub(crate) fn files_are_back(backs: Vec<FileBack>) {
        for FileBack { object, done, .. } in backs {
            if let Some(inode) = done.lock().clone() {
                object.roll_back(inode);
            }
            object.open();
        }
    }
}

/// Whether nothing later shows a file, with `later` snapshots of it out of the way, and it is on
/// the line of the snapshot. Then the rollback is in line.
fn is_in_line(
    snapshots: &Snapshots,
    snapshot: &FileSnapshot,
    later: &[Arc<FileSnapshot>],
    options: RollbackOptions,
) -> bool {
    let (files, txg) = (&snapshots.files, snapshot.txg());
    let on_it = files.line_began(snapshot.object()) <= txg || left_out(Rule::InLineOnItsLine);
    let past = snapshots.newest().is_some_and(|newest| newest > txg);
    let past = past && !left_out(Rule::NoRollbackPastSnapshots);
    let goes = |of: &Arc<FileSnapshot>| {
        (options.destroy_later || of.record.hidden) && !files.is_pinned(of.id)
    };
    on_it && !past && later.iter().all(goes)
}

/// A file begins again as a snapshot of itself. What it was is cut off, and counts in its sums
/// until it is freed.
pub(crate) fn begin_again(inode: &mut Inode, (snapshot, old): (&FileSnapshot, TreeRoot)) {
    let then = snapshot.record.inode.refer();
    inode.cloned = true;
    inode.line = if left_out(Rule::FileLinesHaveAFloor) { 0 } else { snapshot.txg().0 };
    inode.set_refer(then.plus(old.refer));
    inode.set_inherited(then.plus(old.inherited));
}
