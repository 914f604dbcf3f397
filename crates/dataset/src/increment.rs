//! Changes since a snapshot, received into the dataset that has this snapshot.
//!
//! The changes go into the head, over many txgs. The dataset stands by, so no client sees it
//! meanwhile. Its last txg takes the snapshot that was sent, and takes away the record that stands
//! for a head that is neither one nor the other. Whatever ends it before (a crash, an abort, a bad
//! stream), a rollback to the old snapshot follows: at once, or at the next import.
//!
//! Invariants:
//! - The record is on disk before the first change, and goes in the txg of the snapshot, or of the
//!   rollback.
//! - The receiver alone changes the dataset. Changes of clients that found it before it stood by
//!   have ended, or are refused ([`Dataset::takes_changes`]).
//! - The old snapshot is the newest one on the line, and stays so: none is taken of the dataset or
//!   of its files, and it is not destroyed.
//! - The dead tree names nothing that an earlier rollback brought back: so the next rollback need
//!   not wait, also that of an import.

mod error;
mod slot;

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::btree::{self, Difference};
use aquifer_ondisk::config::{
    FEATURE_RECEIVE, FEATURE_RECEIVE_INCREMENT, FEATURE_ROLLBACK, FEATURE_SNAPSHOTS,
};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::inode::{Inode, Time};
use aquifer_ondisk::receiving::ReceivingRecord;
use aquifer_ondisk::tree_node::Objects;
use aquifer_ondisk::{BlockPointer, DatasetId, Guid, ObjectId, Txg};
use aquifer_pool::{Pool, PoolError, Turns};

use crate::dataset::{Dataset, ORPHANS};
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::feeder::Feeder;
use crate::full_name::check_snapshot;
use crate::property::{LocalValues, Property};
use crate::property_name::{items_of, value_items};
use crate::received_values::Chosen;
use crate::resume::Resumable;
use crate::rollback::RollbackOptions;
use crate::snapshots::{Act, Snapshot, to_be_taken};

pub use error::IncrementError;
pub(crate) use slot::{Coming, Slot, Stage};

/// Txgs for which the end of a receive waits for what was removed.
const FREEING_TXGS_MAX: usize = 100;
/// Txgs for which a receive waits for what was removed, if its id is needed again.
const ID_TXGS_MAX: usize = 10_000;

/// Increment that is to be received.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The full name of the dataset.
    pub name: String,
    /// The file system guid of the one that was sent.
    pub fs_guid: Guid,
    /// The first object id that is free there.
    pub next_object: u64,
    /// The full name of the one that was sent.
    pub sent: String,
    /// The snapshot that the dataset must have: its name, behind the '@', and its guid.
    pub from: (String, Guid),
    /// The name of the one that it has then.
    pub snapshot: String,
    /// Its guid, and when it was taken.
    pub snapshot_guid: Guid,
    /// See `snapshot_guid`.
    pub snapshot_created: Time,
    /// Properties that are set where it comes from.
    pub properties: Vec<(String, String)>,
    /// Drops what was changed in the dataset since its newest snapshot.
    pub force: bool,
    /// It may go on if it breaks off.
    pub resumable: Option<Resumable>,
    /// The one that brings it, if its snapshot is to be marked.
    pub feeder: Option<Feeder>,
    /// The receiver's wishes for properties.
    pub chosen: Chosen,
}

impl Dataset {
    /// Whether something is being received into it.
    pub fn is_receiving(&self) -> bool {
        self.increment.get().is_some()
    }

    /// Whether something is being received into it that may have to go back to this snapshot.
    pub(crate) fn goes_back_to(&self, snapshot: Txg) -> bool {
        self.increment.get().is_some_and(|of| of.from == snapshot)
    }

    /// Whether changes of clients may join a txg. Called under a hold of it.
    pub fn takes_changes(&self) -> bool {
        !self.is_destroyed() && !self.is_receiving()
    }
}

/// Increment that is being received into a dataset.
#[derive(Debug)]
pub struct Increment {
    dataset: Arc<Dataset>,
    wanted: Wanted,
}

impl Increment {
    pub(crate) fn new(dataset: Arc<Dataset>, wanted: Wanted) -> Increment {
        Increment { dataset, wanted }
    }

    /// The object table of the old snapshot.
    pub fn old_objects(&self) -> Option<BlockPointer> {
        let from = self.dataset.increment.get()?.from;
        self.dataset.snapshots.lock().get(from)?.record.objects
    }

    /// The dataset. Only the receiver may change it.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The snapshot since which it has what changed.
    fn from(&self) -> Option<Txg> {
        Some(self.dataset.increment.get()?.from)
    }
}

/// The dataset is marked, in memory, until this is dropped.
struct Marked<'a>(&'a Dataset);

impl Marked<'_> {
    /// The mark stays.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.0.increment.set(None);
    }
}

impl Datasets {
    /// The dataset that this would be received into. Changes nothing.
    ///
    /// # Errors
    /// The dataset is not there, is in service, has other handles, another newest snapshot, or
    /// changes since; the snapshot exists; errors of the pool.
    pub async fn check_increment(&self, wanted: &Wanted) -> Result<Arc<Dataset>, DatasetError> {
        let (dataset, from) = self.place_of_increment(wanted)?;
        self.check_no_increment(&dataset)?;
        self.pool.sync().await?;
        if !wanted.force && self.has_changed(&dataset, &from).await? {
            return Err(IncrementError::Changed(wanted.name.clone()).into());
        }
        Ok(dataset)
    }

    /// Fails if something is being received into a dataset.
    pub(crate) fn check_no_increment(&self, dataset: &Dataset) -> Result<(), DatasetError> {
        match dataset.is_receiving() {
            true if dataset.is_parked() => {
                Err(IncrementError::Partial(self.full_name(dataset)).into())
            }
            true => Err(IncrementError::Busy(self.full_name(dataset)).into()),
            false => Ok(()),
        }
    }

    /// The dataset, and the old snapshot.
    fn place_of_increment(
        &self,
        wanted: &Wanted,
    ) -> Result<(Arc<Dataset>, Arc<Snapshot>), DatasetError> {
        let Wanted { name, snapshot, .. } = wanted;
        let full = format!("{name}@{snapshot}");
        check_snapshot(&full, snapshot)?;
        let from = format!("{}@{}", wanted.sent, wanted.from.0);
        let dataset = self.by_name(name).filter(|dataset| !dataset.is_destroyed());
        let no_copy = || IncrementError::NoCopy { name: name.clone(), from: from.clone() };
        let dataset = dataset.ok_or_else(no_copy)?;
        if dataset.fs_guid != wanted.fs_guid {
            let (name, sent) = (name.clone(), wanted.sent.clone());
            return Err(IncrementError::OtherHandles { name, sent }.into());
        }
        if self.value(&dataset, Property::Standby).0 != "on" {
            return Err(IncrementError::InService(name.clone()).into());
        }
        let listed = dataset.snapshots(self.pool.committed_txg());
        let is_it = |of: &Arc<Snapshot>| of.record.guid == wanted.snapshot_guid;
        if dataset.listing.lock().has_name(snapshot) || listed.iter().any(is_it) {
            return Err(DatasetError::Exists(full));
        }
        let known = listed.iter().find(|of| of.record.guid == wanted.from.1).cloned();
        let later = |of: &Snapshot| self.later_than(&dataset, &listed, of);
        match (known, listed.last()) {
            (Some(known), _) => match later(&known) {
                None => {
                    self.check_none_hidden(&dataset, &known)?;
                    self.check_feeder(wanted.feeder.as_ref(), &dataset, &known)?;
                    Ok((dataset.clone(), known))
                }
                Some(newest) => {
                    Err(IncrementError::NotNewest { from, newest, is_there: true }.into())
                }
            },
            (None, newest) => {
                let newest = match newest {
                    Some(newest) => format!("{name:?} has {:?} as its newest", newest.record.name),
                    None => format!("{name:?} has no snapshot"),
                };
                Err(IncrementError::NotNewest { from, newest, is_there: false }.into())
            }
        }
    }

    /// Fails if something needs a later snapshot of a file, which was destroyed: it has no name to
    /// tell.
    fn check_none_hidden(&self, dataset: &Dataset, of: &Snapshot) -> Result<(), DatasetError> {
        let later = dataset.snapshots.lock().files.after(of.txg);
        if later.is_empty() {
            return Ok(());
        }
        let ids = later.iter().map(|of| of.id).collect();
        self.check_not_needed(dataset, &ids, &[])?;
        let name = self.full_name(dataset);
        Err(DatasetError::NeededByFiles { by: vec![name.clone()], name })
    }

    /// Describes what is later than a snapshot that a dataset lists, or in the way of a rollback to
    /// it.
    fn later_than(
        &self,
        dataset: &Dataset,
        listed: &[Arc<Snapshot>],
        of: &Snapshot,
    ) -> Option<String> {
        let name = self.full_name(dataset);
        if let Some(newest) = listed.last().filter(|newest| newest.txg > of.txg) {
            return Some(format!("{name:?} has {:?} as its newest", newest.record.name));
        }
        let snapshots = dataset.snapshots.lock();
        let later = snapshots.files.after(of.txg);
        if let Some(newest) = later.iter().rfind(|of| !of.record.hidden) {
            let record = &newest.record;
            let newest = self.file_snapshot_name(dataset, &record.path, &record.name);
            return Some(format!("{newest:?} is newer"));
        }
        let is_newest = of.line == dataset.id && snapshots.newest() == Some(of.txg);
        (!is_newest).then(|| format!("that is not on the line of {name:?}"))
    }

    /// Begins to receive. From here on only the receiver changes the dataset, until
    /// [`Datasets::finish_increment`] or [`Datasets::abort_increment`].
    ///
    /// # Errors
    /// As [`Datasets::check_increment`].
    pub async fn begin_increment(&self, wanted: Wanted) -> Result<Increment, DatasetError> {
        let look = || {
            let (dataset, from) = self.place_of_increment(&wanted)?;
            Ok(((dataset.clone(), from), dataset))
        };
        loop {
            let (_act, (dataset, from)) = self.turn_when_settled(look).await?;
            if self.begin_in_turn((&dataset, &from), &wanted).await? {
                return Ok(Increment { dataset, wanted });
            }
        }
    }

    /// Returns `false` if it had to roll the dataset back first. The caller holds the lock of acts.
    async fn begin_in_turn(
        &self,
        (dataset, from): (&Arc<Dataset>, &Arc<Snapshot>),
        wanted: &Wanted,
    ) -> Result<bool, DatasetError> {
        if dataset.dead.lock().damaged {
            return Err(DatasetError::DeadUnreadable(wanted.name.clone()));
        }
        self.admit_resumable(wanted.resumable.as_ref()).await?;
        self.admit_marks(wanted.feeder.as_ref(), &wanted.snapshot).await?;
        for feature in
            [FEATURE_SNAPSHOTS, FEATURE_ROLLBACK, FEATURE_RECEIVE, FEATURE_RECEIVE_INCREMENT]
        {
            self.use_feature(feature).await?;
        }
        let marked = self.mark(dataset, from).await;
        // What was changed before is on disk then.
        self.pool.sync().await?;
        if self.has_changed(dataset, from).await? {
            drop(marked);
            if !wanted.force {
                return Err(IncrementError::Changed(wanted.name.clone()).into());
            }
            let options = RollbackOptions { destroy_later: false, force: true };
            let full = format!("{}@{}", wanted.name, from.record.name);
            self.rollback_in_turn(&full, options).await?;
            return Ok(false);
        }
        {
            let hold = self.hold_act().await?;
            if dataset.is_destroyed() {
                return Err(DatasetError::NotFound(wanted.name.clone()));
            }
            // If its txg fails, the record may be on disk all the same.
            dataset.increment.set(Some(Coming { from: from.txg, stage: Stage::Left }));
            marked.keep();
            if !left_out(Rule::IncrementIsMarked) {
                let key = ItemKey::new(dataset.id, ItemClass::Receiving, 0);
                let value = ReceivingRecord { from: from.txg }.encode();
                let mut state = self.state.lock();
                state.queue.write(hold.txg(), [(key, Some(Item { key, value }))]);
            }
            let of = (Some(wanted.from.1), false);
            self.begin_resumable((dataset, hold.txg()), wanted.resumable.as_ref(), of);
        }
        self.act_on_disk().await?;
        dataset.increment.set(Some(Coming { from: from.txg, stage: Stage::Comes }));
        dataset.keep_id(ObjectId(wanted.next_object.saturating_sub(1)));
        Ok(true)
    }

    /// Lets no change of a client join a txg from now on.
    async fn mark<'a>(&self, dataset: &'a Arc<Dataset>, from: &Snapshot) -> Marked<'a> {
        let shut = dataset.entrance.shut_for_a_while();
        dataset.entrance.is_empty().await;
        dataset.increment.set(Some(Coming { from: from.txg, stage: Stage::Comes }));
        drop(shut);
        Marked(dataset)
    }

    /// Whether clients would see another dataset than this snapshot, as of the last commit.
    async fn has_changed(&self, dataset: &Dataset, from: &Snapshot) -> Result<bool, PoolError> {
        // Before the root is looked at: from here on nothing below it is reused.
        let _reading = self.pool.reading();
        let (old, new) = (from.record.objects, dataset.table.lock().committed);
        let mut compare = btree::compare::<Objects, Pool>(&self.pool, old, new)?;
        let mut turns = Turns::new(&self.pool);
        while let Some(Difference { old, new, .. }) = compare.next().await? {
            if seen(old) != seen(new) {
                return Ok(true);
            }
            turns.step(&self.pool).await;
        }
        Ok(false)
    }

    /// The snapshot that was sent is taken, and the dataset is whole again, in one txg. It is on
    /// disk when this returns.
    ///
    /// # Errors
    /// The dataset was destroyed, or has a snapshot of this name by now; errors of the pool.
    pub async fn finish_increment(&self, increment: &Increment) -> Result<(), DatasetError> {
        let Increment { dataset, wanted } = increment;
        self.free_removed(dataset).await?;
        let (sync, own) = {
            let _act = self.acts.lock().await;
            self.end_increment(dataset, wanted).await?;
            let own = dataset.local.lock().get(&Property::Sync.into()).cloned();
            (wanted.chosen.sync(), own)
        };
        // Its changes are logged from now on, or are not: that takes txgs of its own.
        if sync.is_some() && sync != own.as_ref() && !dataset.is_destroyed() {
            let sync = sync.map(String::as_str);
            self.set(&self.full_name(dataset), Property::Sync.name(), sync).await?;
        }
        Ok(())
    }

    /// The caller holds the lock of acts.
    async fn end_increment(
        &self,
        dataset: &Arc<Dataset>,
        wanted: &Wanted,
    ) -> Result<(), DatasetError> {
        let mut taken_later = Vec::new();
        let (before, after) = self.values_with(dataset, wanted);
        self.admit_names(after.keys()).await?;
        self.admit_marks(wanted.feeder.as_ref(), &wanted.snapshot).await?;
        let asked = self.ask_for_one(dataset).await?;
        let retained = self.retained(dataset).await?;
        {
            let hold = self.hold_act_with(items_of(&after).saturating_add(1)).await?;
            let coming = dataset.increment.get().filter(|of| of.stage == Stage::Comes);
            let Some(coming) = coming.filter(|_| !dataset.is_destroyed()) else {
                return Err(DatasetError::ReceiveEnded(wanted.name.clone()));
            };
            if dataset.listing.lock().has_name(&wanted.snapshot) {
                let name = self.full_name(dataset);
                return Err(DatasetError::Exists(format!("{name}@{}", wanted.snapshot)));
            }
            let (name, guid) = (wanted.snapshot.clone(), wanted.snapshot_guid);
            let record = to_be_taken(dataset, name, guid, wanted.snapshot_created);
            let of = (dataset.as_ref(), wanted.snapshot.as_str());
            let (mut keep, moved) = self.marks(wanted.feeder.as_ref(), of, Some(coming.from));
            keep.holds.extend(retained);
            let take = Act::Take { dataset: dataset.id, record, keep };
            let mut state = self.state.lock();
            state.queue.keep_room(hold.txg(), asked);
            state.queue.write(hold.txg(), [no_record(dataset.id)]);
            state.queue.write(hold.txg(), moved);
            self.end_resumable(&mut state, dataset, hold.txg());
            for name in before.keys().chain(after.keys()) {
                state.queue.write(hold.txg(), value_items(dataset.id, name, after.get(name)));
            }
            *dataset.local.lock() = after;
            // Its record is written whatever else changes.
            state.queue.rename(hold.txg(), dataset.id);
            dataset.increment.set(Some(Coming { stage: Stage::Ends, ..coming }));
            match left_out(Rule::IncrementIsOneTxg) {
                true => taken_later.push(take),
                false => state.queue.act(hold.txg(), [take]),
            }
        }
        self.refresh_properties();
        self.act_on_disk().await?;
        self.act(taken_later).await?;
        dataset.increment.set(None);
        *dataset.resume.lock() = None;
        // Objects that are read from disk again show what clients must see.
        dataset.table.lock().let_clean_ones_go();
        Ok(())
    }

    /// The values of a copy, before and after.
    fn values_with(&self, dataset: &Dataset, wanted: &Wanted) -> (LocalValues, LocalValues) {
        let before = dataset.local.lock().clone();
        let after = wanted.chosen.of_old(&before, &wanted.properties);
        (before, after)
    }

    /// Whether the one that brings this fed the copy before, or may do all.
    pub fn has_fed_before(&self, increment: &Increment) -> bool {
        let from = increment.from().zip(increment.wanted.feeder.as_ref());
        from.is_some_and(|(from, feeder)| self.has_fed(feeder, &increment.dataset, from))
    }

    /// Gives up what is being received: the dataset goes back to the old snapshot.
    ///
    /// # Errors
    /// Errors of the pool: then the next import does that.
    pub async fn abort_increment(&self, increment: &Increment) -> Result<(), DatasetError> {
        let dataset = &increment.dataset;
        let (_act, ()) = self.turn_when_filed(|| Ok(((), vec![dataset.clone()]))).await?;
        let coming = dataset.increment.get().filter(|of| of.stage == Stage::Comes);
        let Some(coming) = coming.filter(|_| !dataset.is_destroyed()) else { return Ok(()) };
        dataset.increment.set(Some(Coming { stage: Stage::Left, ..coming }));
        self.settle(dataset).await
    }

    /// Import, before clients come: what a crash left half goes back to the old snapshot. If that
    /// fails, the dataset stays out of use: no pool stays out of service for a copy.
    pub async fn settle_all(&self) {
        let _act = self.acts.lock().await;
        let is_left =
            |of: &Arc<Dataset>| of.increment.get().is_some_and(|of| of.stage == Stage::Left);
        for dataset in self.living().into_iter().filter(is_left) {
            if let Err(error) = self.settle(&dataset).await {
                tracing::error!(
                    class = "receive.half", dataset = %self.full_name(&dataset), %error,
                    "what was received by half is not rolled back: the dataset stays out of use"
                );
            }
        }
    }

    /// Rolls a dataset back, if somebody left something half. The caller holds the lock of acts.
    pub(crate) async fn settle(&self, dataset: &Arc<Dataset>) -> Result<(), DatasetError> {
        let Some(Coming { from, stage }) = dataset.increment.get() else { return Ok(()) };
        if stage != Stage::Left {
            return self.check_no_increment(dataset);
        }
        if left_out(Rule::IncrementIsRolledBack) {
            dataset.increment.set(None);
            return Ok(());
        }
        let known = {
            let snapshots = dataset.snapshots.lock();
            snapshots.get(from).filter(|_| snapshots.newest() == Some(from))
        };
        let no_way = || IncrementError::NoWayBack(self.full_name(dataset));
        let snapshot = known.ok_or_else(no_way)?;
        self.wait_for_returning(dataset).await?;
        let options = RollbackOptions { destroy_later: false, force: true };
        let kind = dataset.rollback_kind(&snapshot);
        self.go_back(dataset, &snapshot, (options, kind), Vec::new()).await?;
        dataset.table.lock().let_clean_ones_go();
        Ok(())
    }

    /// Waits a while until what was removed is freed. What the next snapshot shows of it would stay
    /// until that is destroyed.
    async fn free_removed(&self, dataset: &Dataset) -> Result<(), PoolError> {
        for _ in 0..FREEING_TXGS_MAX {
            if dataset.orphans.lock().is_empty() {
                break;
            }
            self.pool.sync().await?;
        }
        Ok(())
    }

    /// Waits until an object that was removed is freed, and its id means nothing any more.
    ///
    /// # Errors
    /// That takes too long; errors of the pool.
    pub async fn wait_for_id(&self, dataset: &Dataset, id: ObjectId) -> Result<(), DatasetError> {
        if self.is_freed(dataset, id, ID_TXGS_MAX).await? {
            return Ok(());
        }
        let (name, object) = (self.full_name(dataset), id.0);
        Err(IncrementError::NotFreed { name, object }.into())
    }

    /// Waits until an object that was removed is freed, at most so many txgs. Returns whether it
    /// is.
    pub(crate) async fn is_freed(
        &self,
        dataset: &Dataset,
        id: ObjectId,
        txgs: usize,
    ) -> Result<bool, DatasetError> {
        // It leaves the list before the txg that frees it is on disk.
        let mut off_the_list = 0;
        for _ in 0..txgs {
            if dataset.object(&self.pool, id).await?.is_none() {
                return Ok(true);
            }
            off_the_list += usize::from(!dataset.orphans.lock().contains(&id));
            if off_the_list > 3 {
                break;
            }
            self.pool.sync().await?;
        }
        Ok(false)
    }
}

/// The item of what is being received, gone.
pub(crate) fn no_record(id: DatasetId) -> (ItemKey, Option<Item>) {
    (ItemKey::new(id, ItemClass::Receiving, 0), None)
}

/// An object as far as clients see it.
fn seen(inode: Option<Inode>) -> Option<Inode> {
    let inode = inode.filter(|of| of.nlink > 0 && of.object != ORPHANS && of.origin.0 == 0)?;
    Some(Inode { refer_bytes: 0, saved_bytes: 0, ..inode })
}
