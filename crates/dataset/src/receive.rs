//! Datasets that are received.
//!
//! A dataset is built over many txgs, and nobody sees it before its last one. Until then its record
//! is that of a destroyed dataset: what a crash or a restart leaves is taken down by what takes
//! down those ([`crate::destroy`]), unless it may go on ([`crate::resume`]), and so is what an
//! abort leaves. The last txg replaces that record by the dataset's own, with its properties, and
//! takes the snapshot. So head and snapshot are there together, or not at all.
//!
//! Invariants:
//! - Nothing of it is logged: its changes are durable with their txg, and the last one has them
//!   all. A record of the log can name it only after that txg, when clients may change it.
//! - It enters the namespace with the txg of its first change, so nothing of it can leak.
//! - Its name is looked at twice: when it begins, and in the txg that gives it.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::{FEATURE_RECEIVE, FEATURE_SNAPSHOTS};
use aquifer_ondisk::dataset::{DatasetRecord, Item, ItemClass, ItemKey, LineRecord};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::types::{FIRST_OBJECT, SEQUENCE_LIMIT};
use aquifer_ondisk::{DatasetId, Guid, Txg};
use aquifer_pool::PoolError;

use crate::create::{directory_inode, new_record};
use crate::dataset::{Dataset, ORPHANS, ROOT_DIRECTORY};
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::feeder::Feeder;
use crate::full_name::check_snapshot;
use crate::increment::IncrementError;
use crate::property::{LocalValues, Properties, Property, SyncMode};
use crate::property_name::{items_of, value_items};
use crate::received_values::Chosen;
use crate::resume::Resumable;
use crate::snapshots::{Act, to_be_taken};
use crate::tree::split_new;

/// Dataset that is to be received.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The full name of the dataset.
    pub name: String,
    /// Its file system guid; `None`: one of its own.
    pub fs_guid: Option<Guid>,
    /// The first object id that is free.
    pub next_object: u64,
    /// The name of its snapshot, behind the '@'.
    pub snapshot: String,
    /// The snapshot's guid, and when it was taken.
    pub snapshot_guid: Guid,
    /// See `snapshot_guid`.
    pub snapshot_created: Time,
    /// Properties that were set where it comes from. Those that make no sense here are left out.
    pub properties: Vec<(String, String)>,
    /// It may go on if it breaks off.
    pub resumable: Option<Resumable>,
    /// The one that brings it, if its snapshot is to be marked.
    pub feeder: Option<Feeder>,
    /// The receiver's wishes for properties.
    pub chosen: Chosen,
}

/// A dataset that is being received.
#[derive(Debug)]
pub struct Receiving {
    dataset: Arc<Dataset>,
    wanted: Wanted,
    begun: Txg,
}

impl Receiving {
    pub(crate) fn new(dataset: Arc<Dataset>, wanted: Wanted, begun: Txg) -> Receiving {
        Receiving { dataset, wanted, begun }
    }

    /// The dataset. Only who receives it may change it.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Whether its file handles are not the sender's.
    pub fn has_own_handles(&self) -> bool {
        self.wanted.fs_guid.is_none()
    }

    /// The full name of its snapshot.
    pub fn full_name(&self) -> String {
        format!("{}@{}", self.wanted.name, self.wanted.snapshot)
    }
}

impl Datasets {
    /// Fails if a dataset cannot be received under this name. Changes nothing.
    ///
    /// # Errors
    /// Bad names, a dataset above that does not exist, a name that does.
    pub fn check_receive(&self, wanted: &Wanted) -> Result<(), DatasetError> {
        self.place_of(wanted).map(drop)
    }

    /// Where a received dataset comes: the one above, and its own last component.
    fn place_of<'w>(&self, wanted: &'w Wanted) -> Result<(DatasetId, &'w str), DatasetError> {
        check_snapshot(&format!("{}@{}", wanted.name, wanted.snapshot), &wanted.snapshot)?;
        let (above, last) = split_new(&wanted.name)?;
        let above = self.by_name(above).ok_or_else(|| DatasetError::NotFound(above.into()))?;
        let taken = self.living().into_iter().find(|other| {
            let other = other.record.lock();
            other.parent == above.id && other.name == last
        });
        match taken {
            Some(taken) if taken.is_parked() => {
                Err(IncrementError::Partial(wanted.name.clone()).into())
            }
            Some(_) => Err(DatasetError::Exists(wanted.name.clone())),
            None => Ok((above.id, last)),
        }
    }

    /// Begins to receive a dataset. It is hidden, and after a crash it is gone.
    ///
    /// # Errors
    /// As [`Datasets::check_receive`]; errors of the pool.
    pub async fn begin_receive(&self, wanted: Wanted) -> Result<Receiving, DatasetError> {
        let _act = self.acts.lock().await;
        let (parent, last) = self.place_of(&wanted)?;
        let above =
            self.by_id(parent).ok_or_else(|| DatasetError::NotFound(wanted.name.clone()))?;
        let _place = self.reserve_name(&above, last).await?;
        self.use_feature(FEATURE_SNAPSHOTS).await?;
        self.use_feature(FEATURE_RECEIVE).await?;
        self.admit_resumable(wanted.resumable.as_ref()).await?;
        self.admit_marks(wanted.feeder.as_ref(), &wanted.snapshot).await?;
        let now = Time::from_ns(self.pool.world().wall_ns());
        let fs_guid = wanted.fs_guid.unwrap_or_else(|| self.new_guid());
        let record = DatasetRecord {
            next_object: wanted.next_object.max(FIRST_OBJECT.0),
            ..new_record(fs_guid, parent, last.to_string(), now)
        };
        let (dataset, begun) = {
            let hold = self.hold_act().await?;
            let dataset = self.enter_received(hold.txg(), record, local_values(&wanted))?;
            let of = (None, wanted.fs_guid.is_none());
            self.begin_resumable((&dataset, hold.txg()), wanted.resumable.as_ref(), of);
            self.refresh_properties();
            (dataset, hold.txg())
        };
        if dataset.properties().sync == SyncMode::Disabled {
            dataset.unlogged.is_from_the_start();
        }
        Ok(Receiving { dataset, wanted, begun })
    }

    /// Enters a dataset that is received into `txg`.
    fn enter_received(
        &self,
        txg: Txg,
        record: DatasetRecord,
        local: LocalValues,
    ) -> Result<Arc<Dataset>, DatasetError> {
        let mut state = self.state.lock();
        let id = DatasetId(state.next_dataset);
        if id.0 >= SEQUENCE_LIMIT - 1 {
            return Err(PoolError::NoSpace.into());
        }
        state.next_dataset += 1;
        let defaults = Properties::from_values(|property| property.default_value().into());
        let (created, is_named) = (record.created, left_out(Rule::ReceivedIsNamedLast));
        let rooms = (self.pool.shelf(), state.queue.awake());
        let dataset = Arc::new(Dataset::new(rooms, id, record, local, defaults));
        if !is_named {
            dataset.set_received();
        }
        for object in [ROOT_DIRECTORY, ORPHANS] {
            let inode = directory_inode(object, created, 0);
            let made = dataset.object_or_new(&inode);
            made.state.lock().overlay.version(txg, &inode);
            dataset.mark_dirty(txg, object);
        }
        if is_named {
            let item = line_item(&dataset, txg);
            state.queue.write(txg, [(item.key, Some(item))]);
        }
        state.hidden.insert(id);
        state.insert(id, dataset.clone());
        Ok(dataset)
    }

    /// Gives a received dataset its name, and takes its snapshot, in one txg. It is on disk when
    /// this returns.
    ///
    /// # Errors
    /// The dataset above was destroyed, and this one with it; errors of the pool.
    pub async fn finish_receive(&self, receiving: &Receiving) -> Result<(), DatasetError> {
        let Receiving { dataset, wanted, begun } = receiving;
        let _act = self.acts.lock().await;
        let mut taken_later = Vec::new();
        let local = dataset.local.lock().clone();
        self.admit_names(local.keys()).await?;
        self.admit_marks(wanted.feeder.as_ref(), &wanted.snapshot).await?;
        let retained = self.retained(dataset).await?;
        {
            let hold = self.hold_act_with(items_of(&local).saturating_add(1)).await?;
            if dataset.is_destroyed() {
                return Err(DatasetError::ReceiveEnded(wanted.name.clone()));
            }
            let txg = hold.txg();
            let (name, guid) = (wanted.snapshot.clone(), wanted.snapshot_guid);
            let record = to_be_taken(dataset, name, guid, wanted.snapshot_created);
            let of = (dataset.as_ref(), wanted.snapshot.as_str());
            let (mut keep, _) = self.marks(wanted.feeder.as_ref(), of, None);
            keep.holds.extend(retained);
            let take = Act::Take { dataset: dataset.id, record, keep };
            let mut state = self.state.lock();
            let destroyed = ItemKey::new(dataset.id, ItemClass::Destroyed, 0);
            let line = line_item(dataset, *begun);
            state.queue.write(txg, [(destroyed, None), (line.key, Some(line))]);
            for (name, value) in &local {
                state.queue.write(txg, value_items(dataset.id, name, Some(value)));
            }
            // Its record is written whatever else changes.
            state.queue.rename(txg, dataset.id);
            self.end_resumable(&mut state, dataset, txg);
            dataset.set_named(txg);
            match left_out(Rule::ReceivedIsOneTxg) {
                true => taken_later.push(take),
                false => state.queue.act(txg, [take]),
            }
        }
        self.act_on_disk().await?;
        self.act(taken_later).await?;
        *dataset.resume.lock() = None;
        self.state.lock().hidden.remove(&dataset.id);
        Ok(())
    }

    /// Gives up a dataset that is being received: what came of it is freed in the background.
    ///
    /// # Errors
    /// Errors of the pool: then the next import frees it.
    pub async fn abort_receive(&self, receiving: &Receiving) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        self.drop_received(&receiving.dataset).await
    }

    /// Gives up a dataset that is being received, as [`Datasets::abort_receive`]. The caller holds
    /// the lock of acts.
    pub(crate) async fn drop_received(&self, dataset: &Dataset) -> Result<(), DatasetError> {
        {
            let hold = self.hold_act().await?;
            if dataset.is_destroyed() || !dataset.is_received() {
                return Ok(());
            }
            self.end_resumable(&mut self.state.lock(), dataset, hold.txg());
            dataset.set_destroyed(hold.txg());
            self.refresh_properties();
        }
        Ok(self.act_on_disk().await?)
    }
}

fn line_item(dataset: &Dataset, fork: Txg) -> Item {
    let line = LineRecord { fork, origin_dataset: DatasetId(0), origin_snapshot: 0, floor: Txg(0) };
    let key = ItemKey::new(dataset.id, ItemClass::Line, dataset.record.lock().line);
    Item { key, value: line.encode() }
}

/// The values that a received dataset has of its own.
pub(crate) fn local_values(wanted: &Wanted) -> LocalValues {
    let mut local = wanted.chosen.of_new(&wanted.properties, wanted.feeder.as_ref());
    if wanted.fs_guid.is_some() {
        local.insert(Property::Standby.into(), "on".into());
    }
    local
}
