//! Clones of single files: files that begin as a snapshot of another file.
//!
//! A clone takes the tree of the snapshot as its own, with the snapshot's txg as its floor
//! ([`Inode::clone_floor`]). What was born up to there belongs to the origin: when the clone no
//! longer refers to it, nothing happens ([`aquifer_object::Gate`]). What is born later is the
//! clone's, by the rules of any file.
//!
//! The sync of an act makes clones without a name, last of all that it does to objects. Then each
//! gets its name, by a change like that of any client, which is in the log. So no directory is
//! changed by an act, and a cut leaves a clone whole or not at all: what has no name is freed.
//!
//! A removed file that comes back ([`crate::file_returns`]) is made in the same way, with its own
//! id, as a line of itself.
//!
//! Invariants:
//! - The origin keeps what the clone began with: a record names the snapshot, which does not leave
//!   the list before. Destroyed meanwhile, it is hidden.
//! - The record stays as long as anything shows the clone: the head, also a part that was cut off
//!   it, or a snapshot, of the dataset or of the clone, that was taken while the head did.
//! - The origin may be in another dataset, which keeps the snapshot for it ([`crate::across`]).
//! - A dataset that goes back to before the clone was made loses clone and record; one that goes
//!   back to when the clone was there has both again.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::btree;
use aquifer_ondisk::config::{FEATURE_FILE_CLONES, FEATURE_FILE_CLONES_ACROSS, FEATURE_INHERITED};
use aquifer_ondisk::dataset::{Item, ItemKey};
use aquifer_ondisk::file_clone::{CLONE_ID_LIMIT, FileCloneRecord};
use aquifer_ondisk::inode::{Inode, Time};
use aquifer_ondisk::tree_node::Objects;
use aquifer_ondisk::{Corruption, ObjectId, Space, Txg};
use aquifer_pool::{Demand, Lane, PoolError, SpaceClass, SyncContext};
use aquifer_sync::{AsyncMutexGuard, Mutex};

use crate::dataset::Dataset;
use crate::datasets::{ACT_SECTORS, Datasets};
use crate::error::DatasetError;
use crate::file_snapshots::{FileLine, FileSnapshot, FileVersion, Resolved};
use crate::sync::{Gathered, orphan_entry, orphan_key};
use crate::tails::LOOKED_UP_IN_SYNC_MAX;

/// Clones that one act makes at most.
pub const FILE_CLONES_MAX: usize = 1000;

/// A clone that a sync is to make.
#[derive(Debug, Clone)]
pub(crate) struct NewClone {
    pub dataset: Arc<Dataset>,
    /// The dataset of the snapshot.
    origin: Arc<Dataset>,
    pub snapshot: Arc<FileSnapshot>,
    pub object: ObjectId,
    generation: u64,
    /// It is the file of the snapshot itself, which was removed.
    again: bool,
    stage: Arc<Mutex<Stage>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The sync has not come to it, or could not make it.
    Queued,
    /// It is made, and has no name.
    Made,
    /// It has its name.
    Named,
    /// Nobody waits for it: it is to be freed, if it is made.
    GivenUp,
}

/// A file that a sync began as a snapshot.
#[derive(Debug, Clone)]
pub(crate) struct Began {
    pub object: ObjectId,
    pub snapshot: Arc<FileSnapshot>,
    /// It was there before: a line of it began.
    pub again: bool,
    /// The dataset of the snapshot, if it is another one.
    pub across: Option<Arc<Dataset>>,
}

impl NewClone {
    pub fn new(
        dataset: &Arc<Dataset>,
        (origin, snapshot): (&Arc<Dataset>, &Arc<FileSnapshot>),
        (object, generation): (ObjectId, u64),
    ) -> NewClone {
        let again = object == snapshot.object() && dataset.id == origin.id;
        let (dataset, origin, snapshot) = (dataset.clone(), origin.clone(), snapshot.clone());
        let stage = Arc::new(Mutex::new(Stage::Queued));
        NewClone { dataset, origin, snapshot, object, generation, again, stage }
    }
}

/// Clones on disk that have no name yet. What has none when this is dropped is freed. No other act
/// comes between.
#[derive(Debug)]
pub struct FileClones<'a> {
    datasets: &'a Datasets,
    clones: Vec<NewClone>,
    _act: AsyncMutexGuard<'a, ()>,
}

impl FileClones<'_> {
    /// Their ids, in the order in which they were asked for.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.clones.iter().map(|clone| clone.object).collect()
    }

    /// One has its name.
    pub fn named(&mut self, object: ObjectId) {
        for clone in self.clones.iter().filter(|clone| clone.object == object) {
            *clone.stage.lock() = Stage::Named;
        }
    }
}

impl Drop for FileClones<'_> {
    fn drop(&mut self) {
        for NewClone { dataset, object, stage, .. } in &self.clones {
            let mut stage = stage.lock();
            if *stage == Stage::Made {
                dataset.mark_orphan(*object);
                self.datasets.pool.background_waits();
            }
            if *stage != Stage::Named {
                *stage = Stage::GivenUp;
            }
        }
    }
}

impl Datasets {
    /// Makes so many clones of a version of a file of `origin` in a dataset, the same or another
    /// one, in one txg. They are on disk when this returns, and have no names.
    ///
    /// # Errors
    /// There is no such version, a file cannot be cloned from it, or as for any new file.
    pub async fn clone_file(
        &self,
        dataset: &Arc<Dataset>,
        (origin, version): (&Arc<Dataset>, impl Into<FileVersion>),
        count: usize,
    ) -> Result<FileClones<'_>, DatasetError> {
        let act = self.acts.lock().await;
        if dataset.is_destroyed() {
            return Err(DatasetError::NotFound(self.full_name(dataset)));
        }
        for of in [dataset, origin] {
            self.check_no_increment(of)?;
        }
        let Resolved { snapshot, full, .. } = self.resolve(origin, &version.into(), 0).await?;
        check_clone_file(dataset, &snapshot, full)?;
        self.use_feature(FEATURE_INHERITED).await?;
        self.use_feature(FEATURE_FILE_CLONES).await?;
        if dataset.id != origin.id {
            self.use_feature(FEATURE_FILE_CLONES_ACROSS).await?;
        }
        let world = self.pool.world();
        let mut clones = Vec::new();
        for _ in 0..count.min(FILE_CLONES_MAX) {
            let (object, generation) = dataset.new_object_id(world.as_ref())?;
            if object.0 >= CLONE_ID_LIMIT {
                return Err(PoolError::NoSpace.into());
            }
            clones.push(NewClone::new(dataset, (origin, &snapshot), (object, generation)));
        }
        let made = self.make_clones(act, clones).await?;
        made.ok_or_else(|| PoolError::from(Corruption::ObjectTable(dataset.id)).into())
    }

    /// Makes clones by the sync of one txg. Returns `None` if it could not make all of them.
    pub(crate) async fn make_clones<'a>(
        &'a self,
        act: AsyncMutexGuard<'a, ()>,
        clones: Vec<NewClone>,
    ) -> Result<Option<FileClones<'a>>, DatasetError> {
        let queued = clones.clone();
        // From here on what is made is freed, also if this is cut off.
        let made = FileClones { datasets: self, clones, _act: act };
        let items = queued.len() as u64;
        let demand = Demand {
            dirty_bytes: items.saturating_mul(4096),
            // Inode, record and entry of the list of orphans each, in two places.
            sectors: ACT_SECTORS.saturating_add(items.saturating_mul(6)),
            log_bytes: 0,
            class: SpaceClass::Write,
            lane: Lane::Sparse,
        };
        {
            let admission = self.pool.admit(demand).await?;
            let hold = self.pool.hold(admission)?;
            self.state.lock().queue.clone_files(hold.txg(), queued);
        }
        self.act_on_disk().await?;
        let all = made.clones.iter().all(|clone| *clone.stage.lock() == Stage::Made);
        Ok(all.then_some(made))
    }

    /// Makes the clones of this txg. Called by its sync, when all else of the dataset's objects is
    /// written.
    pub(crate) async fn make_file_clones(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        gathered: &mut Gathered,
    ) -> Result<(), PoolError> {
        for clone in self.clones_in(dataset, sync.txg()) {
            if !self.has_place(sync, dataset, clone.object, None).await?
                || clone.again && !self.is_id_free(sync, dataset, clone.object, gathered).await?
            {
                continue;
            }
            let mut stage = clone.stage.lock();
            if *stage == Stage::GivenUp {
                continue;
            }
            let origin = &clone.origin;
            let Some(snapshot) = gathered.begin_as(origin, &clone.snapshot) else { continue };
            let inode = match clone.again {
                true => self.come_back(dataset, &snapshot),
                false => self.begin_as(&clone),
            };
            gathered.refer.add(Space::default(), inode.refer());
            gathered.inherited.add(Space::default(), inode.inherited());
            gathered.orphans.insert(orphan_key(clone.object), Some(orphan_entry(&inode)));
            gathered.inodes.insert(clone.object.0, Some(inode));
            dataset.knows_inherited();
            let across = (origin.id != dataset.id).then(|| origin.clone());
            let (object, again) = (clone.object, clone.again);
            gathered.began.push(Began { object, snapshot, again, across });
            *stage = Stage::Made;
        }
        Ok(())
    }

    /// The inode of a clone, without a name.
    fn begin_as(&self, NewClone { snapshot, object, generation, .. }: &NewClone) -> Inode {
        let then = &snapshot.record.inode;
        let now = Time::from_ns(self.pool.world().wall_ns());
        let mut inode = Inode {
            object: *object,
            generation: *generation,
            cloned: true,
            nlink: 0,
            origin: ObjectId(0),
            verifier: 0,
            line: snapshot.txg().0,
            atime: now,
            mtime: now,
            crtime: now,
            change: 0,
            ..then.clone()
        };
        inode.set_inherited(then.refer());
        inode.touch(now);
        inode
    }

    fn clones_in(&self, dataset: &Dataset, txg: Txg) -> Vec<NewClone> {
        let state = self.state.lock();
        let clones = state.queue.file_clones(txg).iter();
        clones.filter(|clone| clone.dataset.id == dataset.id).cloned().collect()
    }

    /// The records of the clones and lines that this sync began, and of those of which the head
    /// has nothing any more. `ended`: objects that are gone, and the files that they were cut off.
    pub(crate) async fn note_file_clones(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        (began, mut ended): (Vec<Began>, BTreeSet<ObjectId>),
    ) -> Result<Vec<(ItemKey, Option<Item>)>, PoolError> {
        let mut items = Vec::new();
        for Began { object, snapshot, again, across } in began {
            let origin = across.as_deref().unwrap_or(dataset);
            {
                let files = &mut origin.snapshots.lock().files;
                items.extend(files.put_derived(origin.id, &snapshot));
                if across.is_some() && !left_out(Rule::FileClonesPinAcross) {
                    files.need(snapshot.id);
                }
            }
            let files = &mut dataset.snapshots.lock().files;
            let snapshot = snapshot.id;
            let record = FileCloneRecord { snapshot, forked: sync.txg(), died: None };
            let rule = if again { Rule::FileLinesPin } else { Rule::FileClonesPin };
            if left_out(rule) {
                continue;
            }
            let number = files.number_of_line(sync.txg()).filter(|_| again);
            let line = FileLine { record, number, across: across.map(|origin| origin.id) };
            files.put_line(object, line);
            items.push(line.item(dataset.id, object, true));
            // What it was on before may have gone with that.
            ended.insert(object);
        }
        for object in ended {
            let lines = dataset.snapshots.lock().files.lines_of(object);
            for (line, end) in lines {
                let lives = line.record.died.is_none();
                if lives && self.is_out_of_head(sync, dataset, (object, &line, end)).await? {
                    let record = FileCloneRecord { died: Some(sync.txg()), ..line.record };
                    let line = FileLine { record, ..line };
                    dataset.snapshots.lock().files.put_line(object, line);
                    items.push(line.item(dataset.id, object, true));
                }
            }
        }
        Ok(items)
    }

    /// Whether the head has neither a file that is on a line, nor a part that was cut off it then.
    /// `end`: the txg in which the file left the line.
    async fn is_out_of_head(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        (file, line, end): (ObjectId, &FileLine, Option<Txg>),
    ) -> Result<bool, PoolError> {
        let root = dataset.synced_root();
        let find = async |object: ObjectId| {
            let found = btree::lookup::<Objects, SyncContext>(sync, root, object.0).await;
            match found {
                Err(error) if error.cannot_be_read() => Ok(None),
                found => found.map(Some),
            }
        };
        if left_out(Rule::FilePinsOutliveTails) {
            return Ok(true);
        }
        if end.is_none() && !matches!(find(file).await?, Some(None)) {
            return Ok(false);
        }
        // All of them are known, those too that this sync cut off: the act saw to that, or the part
        // of the sync that frees. If not, some of them cannot be read.
        if !self.find_tails(dataset, LOOKED_UP_IN_SYNC_MAX).await? {
            return Ok(false);
        }
        for tail in dataset.tails_of(file) {
            let Some(found) = find(tail).await? else { return Ok(false) };
            let on_it = |cut: Txg| line.record.forked < cut && end.is_none_or(|end| cut <= end);
            if found.is_some_and(|tail| on_it(Txg(tail.hash_seed))) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Drops the records of clones that nothing shows any more, and the hidden snapshots that
    /// nothing needs. Called by a sync, behind its acts.
    pub(crate) fn settle_file_pins(
        &self,
        txg: Txg,
        dataset: &Dataset,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let mut snapshots = dataset.snapshots.lock();
        let mut items = Vec::new();
        // A snapshot that goes may have been the last to show a clone of another file.
        while snapshots.files.has_lines() {
            let listed = snapshots.listed_and_bookmarked();
            let over = snapshots.files.take_lines_over(&listed);
            if over.is_empty() {
                break;
            }
            for (object, line) in over {
                items.push(line.item(dataset.id, object, false));
                if line.across.is_none() {
                    items.extend(snapshots.files.release(txg, (dataset.id, line.record.snapshot)));
                }
            }
        }
        items
    }

    /// The head goes back to a snapshot, or to what its line began with: what was made since is
    /// not, what died since is.
    pub(crate) fn roll_file_clones_back(
        &self,
        dataset: &Dataset,
        (txg, to): (Txg, Txg),
    ) -> Vec<(ItemKey, Option<Item>)> {
        if left_out(Rule::FilePinsGoBack) {
            return Vec::new();
        }
        let files = &mut dataset.snapshots.lock().files;
        let mut items = Vec::new();
        for (object, line, stays) in files.roll_lines_back(to) {
            items.push(line.item(dataset.id, object, stays));
            if line.across.is_none() {
                items.extend(files.release(txg, (dataset.id, line.record.snapshot)));
            }
        }
        items
    }
}

/// Refuses what no file can begin as in a dataset.
fn check_clone_file(
    dataset: &Dataset,
    snapshot: &FileSnapshot,
    full: String,
) -> Result<(), DatasetError> {
    dataset.check_counted(&full)?;
    // Its sum of bytes would be that of more than its tree.
    if !snapshot.record.settled {
        return Err(DatasetError::UnsettledOrigin(full));
    }
    match snapshot.record.inode.damaged {
        true => Err(DatasetError::DamagedOrigin(full)),
        false => Ok(()),
    }
}

impl Dataset {
    /// Fails if it is a clone of which it is not known what it has of its origin: then it would not
    /// be known what files have of theirs.
    pub(crate) fn check_counted(&self, full: &str) -> Result<(), DatasetError> {
        match self.origin.lock().is_some() && self.inherited.lock().is_none() {
            true => Err(DatasetError::UncountedClone(full.into())),
            false => Ok(()),
        }
    }

    /// From here on it is known what clones and lines of files have of their origins.
    pub(crate) fn knows_inherited(&self) {
        self.inherited.lock().get_or_insert_default();
    }
}
