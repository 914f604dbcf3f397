//! Snapshots of datasets: the list of each dataset, and the acts that change it.
//!
//! An act joins the open txg and closes it; the sync of that txg carries it out after all changes
//! of clients. So a snapshot is the last thing in its txg, and holds all that was acknowledged
//! before it was asked for. It is known by that txg, whose number never repeats, also after a
//! rewind. An act is answered when it is on disk, and it is not in the log.
//!
//! Invariants:
//! - The list in memory is that of the last sync. The gate of the next one takes it
//!   ([`aquifer_object::Gate`]).
//! - The list is shown as it is on disk. What the last sync changed shows when its txg is there.
//! - A snapshot is on the line of the dataset of which it was taken, and what it shows belongs to
//!   that line. Another dataset may list it ([`crate::promote`]).
//! - A snapshot that leaves its line leaves a sweep, in the same txg. The sweep stays until nothing
//!   that it alone showed is allocated.

mod acts;
mod called;
mod listing;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{Returning, covers};
use aquifer_ondisk::bookmark::BookmarkRecord;
use aquifer_ondisk::config::FEATURE_SNAPSHOTS;
use aquifer_ondisk::dataset::{ItemClass, RollbackRecord, SnapshotRecord, SweepRecord};
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::head_line::HeadLineRecord;
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::KeepRecord;
use aquifer_ondisk::{DatasetId, FormatError, Guid, ObjectId, Space, Txg};
use aquifer_pool::ActError;

use crate::bookmarks::Bookmarks;
use crate::covered::Covered;
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::file_snapshots::FileSnapshots;
use crate::full_name;
use crate::head_lines::HeadLines;
use crate::lines::OnLine;
use crate::rollback::RollbackKind;

pub(crate) use acts::{inherited_item, put};
pub use called::{Called, Gives};
pub use listing::ListChange;
pub(crate) use listing::Listing;
pub(crate) use views::Views;

/// A snapshot of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The txg whose last act it was.
    pub txg: Txg,
    /// Its record.
    pub record: SnapshotRecord,
    /// The line that it is on: that of the dataset of which it was taken.
    pub(crate) line: DatasetId,
    /// The dataset that lists it; `None`: it is hidden.
    pub(crate) lister: Option<DatasetId>,
    /// Of a clone's: bytes that it refers to and the clone's origin owns, if that is known.
    pub(crate) inherited: Option<Space>,
}

/// The snapshots on the line of a dataset.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    list: BTreeMap<Txg, Arc<Snapshot>>,
    /// Those that left the list and are not swept, with the txg in which they left.
    sweeps: BTreeMap<Txg, Txg>,
    /// The newest rollback.
    pub rollback: Option<RollbackRecord>,
    /// The lines that its head began.
    pub head_lines: HeadLines,
    /// Those of its files.
    pub files: FileSnapshots,
    /// Those that keep nodes alone.
    pub bookmarks: Bookmarks,
    /// How much of the head they show.
    pub covered: Covered,
}

/// A snapshot to be taken.
#[derive(Debug)]
pub(crate) struct New {
    pub dataset: Arc<Dataset>,
    /// Behind the '@'.
    pub name: String,
    pub guid: Guid,
    pub keep: KeepRecord,
}

/// An act that a sync carries out.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Take {
        dataset: DatasetId,
        record: SnapshotRecord,
        keep: KeepRecord,
    },
    /// Of the snapshot on a line.
    Destroy {
        line: DatasetId,
        snapshot: Txg,
    },
    /// Destruction of the snapshot on a line, but another line begins with it: it is hidden.
    Hide {
        line: DatasetId,
        snapshot: Txg,
    },
    Rename {
        dataset: DatasetId,
        snapshot: Txg,
        name: String,
    },
    Rollback {
        dataset: DatasetId,
        to: Txg,
        kind: RollbackKind,
    },
    /// Of the snapshot on a line.
    Bookmark {
        line: DatasetId,
        snapshot: Txg,
        name: String,
    },
    DestroyBookmarks {
        line: DatasetId,
        these: BTreeSet<Txg>,
    },
    /// Of snapshots of files. Those that a walk may need stay for now, unless they go at once.
    DestroyFiles {
        line: DatasetId,
        ids: Vec<FileSnapshotId>,
        at_once: bool,
    },
    /// Of snapshots of files.
    RenameFiles {
        line: DatasetId,
        ids: BTreeSet<FileSnapshotId>,
        name: String,
    },
    /// A dataset lists these snapshots from now on, each on its line.
    Promote {
        dataset: DatasetId,
        moved: Vec<(DatasetId, Txg)>,
    },
}

impl Act {
    /// The dataset, or the line, that it is about.
    pub fn dataset(&self) -> DatasetId {
        match self {
            Act::Take { dataset, .. }
            | Act::Rename { dataset, .. }
            | Act::Rollback { dataset, .. }
            | Act::Promote { dataset, .. } => *dataset,
            Act::Destroy { line, .. }
            | Act::Hide { line, .. }
            | Act::Bookmark { line, .. }
            | Act::DestroyBookmarks { line, .. }
            | Act::DestroyFiles { line, .. }
            | Act::RenameFiles { line, .. } => *line,
        }
    }
}

impl Snapshots {
    /// Import: an item from disk, of one of their classes.
    pub fn load(
        &mut self,
        line: DatasetId,
        (class, number): (ItemClass, u64),
        value: &[u8],
    ) -> Result<(), FormatError> {
        let txg = Txg(number);
        match class {
            ItemClass::Snapshot => {
                let record = SnapshotRecord::decode(value)?;
                let lister = Some(line);
                self.set(Arc::new(Snapshot { txg, record, line, lister, inherited: None }));
            }
            ItemClass::Bookmark => {
                self.bookmarks.load(line, txg, BookmarkRecord::decode(value)?);
            }
            ItemClass::Sweep => {
                self.sweeps.insert(txg, SweepRecord::decode(value)?.left);
            }
            ItemClass::HeadLine => self.head_lines.load(txg, HeadLineRecord::decode(value)?),
            ItemClass::Rollback => self.rollback = Some(RollbackRecord::decode(value)?),
            ItemClass::Covered => self.load_covered(number, value)?,
            _ => self.files.load(class, number, value)?,
        }
        Ok(())
    }

    /// A snapshot that is new, or not as before.
    pub fn set(&mut self, snapshot: Arc<Snapshot>) {
        self.list.insert(snapshot.txg, snapshot);
    }

    /// All of them, in order.
    pub fn all(&self) -> Vec<Arc<Snapshot>> {
        self.list.values().cloned().collect()
    }

    /// Those that no dataset lists, in order.
    pub fn hidden(&self) -> impl Iterator<Item = Txg> {
        self.list.values().filter(|of| of.lister.is_none()).map(|of| of.txg)
    }

    /// Whether another dataset lists some.
    pub fn are_of_another(&self, not: DatasetId) -> bool {
        self.newest_of_another(Txg(u64::MAX), not).is_some()
    }

    /// The newest one up to a txg that a dataset lists, and not this one.
    pub fn newest_of_another(&self, upto: Txg, not: DatasetId) -> Option<Arc<Snapshot>> {
        self.newest_by(upto, |of| of.lister.is_some_and(|lister| lister != not))
    }

    /// The newest one up to a txg that is so.
    pub fn newest_by(&self, upto: Txg, is_it: impl Fn(&Snapshot) -> bool) -> Option<Arc<Snapshot>> {
        let mut older = self.list.range(..=upto).rev().map(|(_, snapshot)| snapshot);
        older.find(|older| is_it(older)).cloned()
    }

    /// Import: what snapshots of a clone have of its origin.
    pub fn load_inherited(&mut self, line: DatasetId, all: &BTreeMap<OnLine, Space>) {
        for (txg, snapshot) in &mut self.list {
            let inherited = all.get(&(line, *txg)).copied();
            *snapshot = Arc::new(Snapshot { inherited, ..Snapshot::clone(snapshot) });
        }
    }

    /// Their txgs, in order.
    pub fn listed(&self) -> Vec<Txg> {
        self.list.keys().copied().collect()
    }

    /// Lists their txgs in order, from the one before `first` to the one after `last`.
    pub fn listed_around(&self, first: Txg, last: Txg) -> Vec<Txg> {
        let txgs = |range| self.list.range(range).map(|(txg, _)| *txg);
        let from = txgs((Unbounded, Excluded(first))).next_back().unwrap_or(first);
        let to = txgs((Excluded(last), Unbounded)).next().unwrap_or(last);
        txgs((Included(from), Included(to))).collect()
    }

    /// The newest one.
    pub fn newest(&self) -> Option<Txg> {
        self.list.last_key_value().map(|(txg, _)| *txg)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// One of them.
    pub fn get(&self, txg: Txg) -> Option<Arc<Snapshot>> {
        self.list.get(&txg).cloned()
    }

    /// The rollback whose snapshot's blocks the dead tree still names.
    pub fn returning(&self) -> Option<Returning> {
        let rollback = self.rollback.filter(|rollback| rollback.pending);
        rollback.map(|RollbackRecord { txg, to, .. }| Returning { txg, to })
    }

    /// Whether sweeps wait, or blocks to be brought back.
    pub fn are_swept(&self) -> bool {
        let own = !self.sweeps.is_empty() || self.returning().is_some();
        own || self.files.are_swept() || self.bookmarks.are_freed()
    }

    /// The txgs of snapshots and of bookmarks, in order.
    pub fn listed_and_bookmarked(&self) -> Vec<Txg> {
        let bookmarks = self.bookmarks.listed();
        let bookmarks = if left_out(Rule::BookmarksPinClones) { Vec::new() } else { bookmarks };
        let all: BTreeSet<Txg> = self.listed().into_iter().chain(bookmarks).collect();
        all.into_iter().collect()
    }

    /// Snapshots that left the list and wait to be swept, in order.
    pub fn sweeps(&self) -> Vec<Txg> {
        self.sweeps.keys().copied().collect()
    }

    /// The dead tree names nothing any more that a rollback brought back. Returns its new record.
    pub fn returned(&mut self) -> Option<RollbackRecord> {
        let rollback = self.rollback.as_mut()?;
        rollback.pending = false;
        Some(*rollback)
    }

    /// A sweep has nothing left to do.
    pub fn swept(&mut self, snapshot: Txg) {
        self.sweeps.remove(&snapshot);
    }
}

impl Dataset {
    /// Its snapshots as they are on disk, in order.
    pub fn snapshots(&self, committed: Txg) -> Vec<Arc<Snapshot>> {
        self.listing.lock().on_disk(committed)
    }

    /// The last change of [`Dataset::snapshots`]; if there was none since it was made, all zeros.
    pub fn snapshots_changed(&self, committed: Txg) -> ListChange {
        self.listing.lock().last_change(committed)
    }

    /// Whether an overwrite of what was born in that txg, in an object, frees nothing, since a
    /// snapshot shows it.
    pub fn is_shown(&self, object: ObjectId, birth: Txg) -> bool {
        // Writes ask for each extent: without a copy of the list.
        let floor = self.record.lock().floor;
        let snapshots = self.snapshots.lock();
        let floor = floor.max(snapshots.head_lines.floor());
        covers(birth, floor, snapshots.newest().max(snapshots.files.newest_of(object)))
    }

    /// The snapshot that it shows, if it is no head.
    pub fn snapshot(&self) -> Option<Txg> {
        self.snapshot
    }

    /// The line on which a snapshot is that it lists.
    pub(crate) fn line_of(&self, snapshot: Txg) -> DatasetId {
        self.listing.lock().list.get(&snapshot).map_or(self.id, |snapshot| snapshot.line)
    }

    /// How many snapshots it lists.
    pub fn snapshot_count(&self) -> usize {
        self.listing.lock().list.len()
    }
}

impl Datasets {
    /// Takes snapshots, given as `dataset@name`, all in one txg; with `recursive` also of all
    /// datasets below. They are on disk when this returns. Returns their full names.
    ///
    /// # Errors
    /// Bad names, a dataset that does not exist or is named twice, a snapshot that does. Then none
    /// was taken.
    pub async fn snapshot(
        &self,
        names: &[String],
        recursive: bool,
    ) -> Result<Vec<String>, DatasetError> {
        let _act = self.acts.lock().await;
        let mut wanted: BTreeMap<DatasetId, New> = BTreeMap::new();
        for full in names {
            let (name, last) = full_name::of_snapshot(full)?;
            let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
            let named = dataset.id;
            let is_standby = dataset.is_standby();
            let below = if recursive { self.below(&dataset) } else { vec![dataset] };
            let is_wanted = |of: &Arc<Dataset>| of.id == named || !is_copy_below(of, is_standby);
            for dataset in below.into_iter().filter(is_wanted) {
                self.check_new(&dataset, last)?;
                let (id, name) = (dataset.id, last.into());
                let (guid, keep) = (self.new_guid(), KeepRecord::default());
                let new = New { dataset, name, guid, keep };
                if wanted.insert(id, new).is_some() {
                    let why = "is the second of one dataset: one command takes one of each".into();
                    return Err(DatasetError::BadName { name: full.clone(), why });
                }
            }
        }
        self.use_feature(FEATURE_SNAPSHOTS).await?;
        let created = Time::from_ns(self.pool.world().wall_ns());
        self.take(wanted.into_values().collect(), created, None).await
    }

    /// The copies below a dataset, of which a snapshot of all below it takes none: full names.
    pub fn copies_below(&self, dataset: &Arc<Dataset>) -> Vec<String> {
        let below = self.below(dataset).into_iter().filter(|of| of.id != dataset.id);
        let copies = below.filter(|of| is_copy_below(of, dataset.is_standby()));
        copies.map(|of| self.full_name(&of)).collect()
    }

    /// Takes these, at most one of a dataset, maybe for a call. Returns their full names. The
    /// caller holds the lock of acts.
    pub(crate) async fn take(
        &self,
        all: Vec<New>,
        created: Time,
        by: Option<&Called>,
    ) -> Result<Vec<String>, DatasetError> {
        let (mut taken, mut acts) = (Vec::new(), Vec::new());
        for New { dataset, name, guid, mut keep } in all {
            keep.holds.extend(self.retained(&dataset).await?);
            taken.push(format!("{}@{name}", self.full_name(&dataset)));
            let record = to_be_taken(&dataset, name, guid, created);
            acts.push(Act::Take { dataset: dataset.id, record, keep });
        }
        taken.sort();
        self.act_for(acts, by).await?;
        Ok(taken)
    }

    /// A snapshot by its full name, as `tank/vms@before`.
    ///
    /// # Errors
    /// There is no such dataset or snapshot.
    pub fn snapshot_by_name(
        &self,
        full: &str,
    ) -> Result<(Arc<Dataset>, Arc<Snapshot>), DatasetError> {
        let (name, last) = full_name::of_snapshot(full)?;
        let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
        let found = dataset.snapshots(self.pool.committed_txg()).into_iter();
        let found = found.into_iter().find(|snapshot| snapshot.record.name == last);
        let found = found.ok_or_else(|| DatasetError::NotFound(full.into()))?;
        Ok((dataset, found))
    }

    pub(crate) fn check_new(&self, dataset: &Dataset, name: &str) -> Result<(), DatasetError> {
        self.check_no_increment(dataset)?;
        match dataset.listing.lock().has_name(name) {
            true => Err(DatasetError::Exists(format!("{}@{name}", self.full_name(dataset)))),
            false => Ok(()),
        }
    }

    /// Has the labels name a feature, before anything of it is on disk.
    pub(crate) async fn use_feature(&self, feature: &str) -> Result<(), DatasetError> {
        self.pool.use_feature(feature).await.map_err(labels_error)
    }

    /// Has the sync of the open txg carry these out, and waits until that is on disk. The caller
    /// holds the lock of acts.
    pub(crate) async fn act(&self, acts: Vec<Act>) -> Result<(), DatasetError> {
        if acts.is_empty() {
            return Ok(());
        }
        self.act_for(acts, None).await
    }

    /// Has the sync of the open txg carry these out, and waits until that is on disk: for a call,
    /// if it is for one. The call is on disk also if there is nothing to do.
    pub(crate) async fn act_for(
        &self,
        acts: Vec<Act>,
        by: Option<&Called>,
    ) -> Result<(), DatasetError> {
        self.queue(acts, by).await?;
        Ok(self.act_on_disk().await?)
    }

    /// Has the sync of the open txg carry these out.
    pub(crate) async fn queue(
        &self,
        acts: Vec<Act>,
        by: Option<&Called>,
    ) -> Result<(), DatasetError> {
        let asked = self.ask_for_acts(&acts).await?;
        let hold = self.hold_act_of(by).await?;
        let mut state = self.state.lock();
        state.queue.keep_room(hold.txg(), asked);
        state.queue.act(hold.txg(), acts);
        Ok(())
    }
}

/// Whether a dataset below the one that was named is left out by a snapshot of all below: one that
/// is being received into gets the sender's, and a copy has those that it receives. A snapshot of
/// its own would be in the way of the next one. A command that names a tree of copies means them.
fn is_copy_below(of: &Dataset, named_stands_by: bool) -> bool {
    of.is_receiving() || of.is_standby() && !named_stands_by
}

/// A change of the labels failed.
pub(crate) fn labels_error(error: ActError) -> DatasetError {
    match error {
        ActError::Pool(error) => DatasetError::Pool(error),
        other => DatasetError::Labels(other.to_string()),
    }
}

/// The record of a snapshot that is to be taken. The sync adds the tree, and the size of what it
/// refers to.
pub(crate) fn to_be_taken(
    dataset: &Dataset,
    name: String,
    guid: Guid,
    created: Time,
) -> SnapshotRecord {
    let line = dataset.record.lock().line;
    SnapshotRecord { guid, created, refer_bytes: 0, saved_bytes: 0, line, objects: None, name }
}
