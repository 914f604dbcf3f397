//! Making datasets.

use std::sync::Arc;

use aquifer_ondisk::dataset::{DatasetRecord, Item, ItemClass, ItemKey, LineRecord};
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::types::{FIRST_OBJECT, SEQUENCE_LIMIT};
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Txg};
use aquifer_pool::{BoxFuture, PoolError};

use crate::clones::Beginning;
use crate::dataset::{Dataset, ORPHANS, ROOT_DIRECTORY};
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::property::{LocalValues, Properties, Property, SyncMode};
use crate::property_name::{PropertyName, check_values, items_of, value_items};
use crate::room::{Sizes, Wanted};
use crate::snapshots::{inherited_item, labels_error};
use crate::tree::split_new;
use crate::values::bytes_of;

/// A dataset to be made.
#[derive(Debug)]
pub(crate) struct New {
    parent: DatasetId,
    name: String,
    local: LocalValues,
}

impl Datasets {
    /// Makes the pool's own dataset if this is the first import.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn ensure_root(&self) -> Result<(), DatasetError> {
        if self.state.lock().datasets.is_empty() {
            let _act = self.acts.lock().await;
            let name = self.pool.name().to_string();
            let new = New { parent: DatasetId(0), name, local: LocalValues::new() };
            self.make(new, None).await?;
        }
        // A rename of the pool may have been cut off between its labels and this.
        if let Some(own) = self.own() {
            own.record.lock().name = self.pool.name().into();
        }
        Ok(())
    }

    /// The pool's own dataset.
    fn own(&self) -> Option<Arc<Dataset>> {
        self.all().into_iter().find(|of| of.record.lock().parent.0 == 0)
    }

    /// Gives the pool another name, which it and its own dataset have from the next import on. On
    /// disk when this returns. Nothing else may be under way in the pool.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn rename_pool(&self, name: &str) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        self.pool.rename(name).await.map_err(labels_error)?;
        {
            let hold = self.hold_act().await?;
            let Some(own) = self.own() else { return Ok(()) };
            own.record.lock().name = name.into();
            self.state.lock().queue.rename(hold.txg(), own.id);
        }
        Ok(self.act_on_disk().await?)
    }

    /// Makes a dataset; it is on disk when this returns.
    ///
    /// # Errors
    /// Bad names and values, a parent that does not exist, a name that already does.
    pub fn create<'a>(
        &'a self,
        name: &'a str,
        properties: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<(), DatasetError>> {
        Box::pin(async move {
            let _act = self.acts.lock().await;
            let new = self.parse_new(name, properties)?;
            self.make(new, None).await
        })
    }

    /// Reads and checks the request for a new dataset.
    pub(crate) fn parse_new(
        &self,
        name: &str,
        properties: &[(String, String)],
    ) -> Result<New, DatasetError> {
        let (parent, last) = split_new(name)?;
        let mut local = LocalValues::new();
        for (name, value) in properties {
            let name = PropertyName::parse(name)?;
            if let PropertyName::Native(property) = name
                && property.is_of_pool()
            {
                return Err(self.belongs_to_pool(property));
            }
            let value = name.parse_value(value)?;
            local.insert(name, value);
        }
        check_together(&local)?;
        check_values(&local)?;
        let parent = self.by_name(parent).ok_or_else(|| DatasetError::NotFound(parent.into()))?;
        if self.by_name(name).is_some() {
            return Err(DatasetError::Exists(name.into()));
        }
        Ok(New { parent: parent.id, name: last.to_string(), local })
    }

    /// Makes a dataset, empty or a clone. The caller holds the lock of acts.
    pub(crate) async fn make(
        &self,
        new: New,
        beginning: Option<Beginning>,
    ) -> Result<(), DatasetError> {
        let New { parent, name, local } = new;
        self.check_retain(None, &local, true)?;
        let world = self.pool.world().clone();
        let now = Time::from_ns(world.wall_ns());
        let record = new_record(self.new_guid(), parent, name, now);
        let record = match &beginning {
            Some(beginning) => beginning.begin(record),
            None => record,
        };
        let hash_seed = world.random();
        let _place = match self.by_id(parent) {
            Some(above) => Some(Box::pin(self.reserve_name(&above, &record.name)).await?),
            None => None,
        };
        let bytes = |property: Property| local.get(&property.into()).map(|of| bytes_of(Some(of)));
        let sizes = Sizes {
            reservation: bytes(Property::Reservation),
            refreservation: bytes(Property::Refreservation),
        };
        let reserves = sizes.are_any().then_some(Wanted::Below(parent, sizes));
        self.admit_names(local.keys()).await?;
        if let Some(wanted) = reserves {
            self.make_room(wanted).await?;
        }
        let id = {
            let hold = self.hold_act_with(items_of(&local).saturating_add(1)).await?;
            let _one = self.promises.lock();
            if let Some(wanted) = reserves {
                self.check_reservation(wanted)?;
            }
            let id = self.enter(hold.txg(), record, local, (hash_seed, beginning))?;
            self.refresh_properties();
            id
        };
        if let Some(made) = self.by_id(id)
            && made.properties().sync == SyncMode::Disabled
        {
            made.unlogged.is_from_the_start();
        }
        self.act_on_disk().await?;
        self.state.lock().hidden.remove(&id);
        Ok(())
    }

    /// Enters a new dataset into `txg`, hidden.
    fn enter(
        &self,
        txg: Txg,
        record: DatasetRecord,
        local: LocalValues,
        (hash_seed, beginning): (u64, Option<Beginning>),
    ) -> Result<DatasetId, DatasetError> {
        let mut state = self.state.lock();
        let id = DatasetId(state.next_dataset);
        if state.datasets.values().filter(|other| !other.is_destroyed()).any(|other| {
            let other = other.record.lock();
            other.parent == record.parent && other.name == record.name
        }) {
            return Err(DatasetError::Exists(record.name));
        }
        let above = state.datasets.get(&record.parent);
        if record.parent.0 != 0 && above.is_none_or(|above| above.is_destroyed()) {
            return Err(DatasetError::NotFound("the dataset above".into()));
        }
        if id.0 >= SEQUENCE_LIMIT - 1 {
            return Err(PoolError::NoSpace.into());
        }
        state.next_dataset += 1;
        let origin = beginning.as_ref().map(Beginning::origin);
        let line = LineRecord {
            fork: txg,
            origin_dataset: origin.map_or(DatasetId(0), |origin| origin.dataset),
            origin_snapshot: origin.map_or(0, |origin| origin.snapshot.0),
            floor: record.floor,
        };
        let key = ItemKey::new(id, ItemClass::Line, record.line);
        state.queue.write(txg, [(key, Some(Item { key, value: line.encode() }))]);
        for (name, value) in &local {
            state.queue.write(txg, value_items(id, name, Some(value)));
        }
        let defaults = Properties::from_values(|property| property.default_value().into());
        let created = record.created;
        let key = ItemKey::new(id, ItemClass::Record, 0);
        state.queue.write(txg, [(key, Some(Item { key, value: record.encode() }))]);
        let rooms = (self.pool.shelf(), state.queue.awake());
        let dataset = Arc::new(Dataset::new(rooms, id, record, local, defaults));
        *dataset.origin.lock() = origin;
        let is_empty = beginning.is_none();
        if let Some(Beginning { orphans, .. }) = beginning {
            *dataset.orphans.lock() = orphans;
            // At first all of it.
            *dataset.inherited.lock() = Some(dataset.refer());
            state.queue.write(txg, [inherited_item(id, Txg(0), dataset.refer())]);
        }
        for object in [ROOT_DIRECTORY, ORPHANS].into_iter().filter(|_| is_empty) {
            let inode = directory_inode(object, created, hash_seed);
            let made = dataset.object_or_new(&inode);
            made.state.lock().overlay.version(txg, &inode);
            dataset.mark_dirty(txg, object);
        }
        state.insert(id, dataset);
        state.hidden.insert(id);
        Ok(id)
    }
}

/// Fails if a reservation is larger than the quota that comes with it.
fn check_together(local: &LocalValues) -> Result<(), DatasetError> {
    let bytes = |property: Property| bytes_of(local.get(&property.into()));
    let quota = bytes(Property::Quota);
    for property in [Property::Reservation, Property::Refreservation] {
        let reserved = bytes(property);
        if quota > 0 && reserved > quota {
            let why = format!("{reserved} bytes are more than its quota of {quota} allows");
            return Err(DatasetError::BadProperty { property: property.name().into(), why });
        }
    }
    Ok(())
}

/// The record of a dataset that has nothing yet, on a line of its own.
pub(crate) fn new_record(
    fs_guid: Guid,
    parent: DatasetId,
    name: String,
    created: Time,
) -> DatasetRecord {
    DatasetRecord {
        fs_guid,
        parent,
        created,
        next_object: FIRST_OBJECT.0,
        next_generation: 1,
        next_snapshot: 1,
        refer_bytes: 0,
        saved_bytes: 0,
        line: 1,
        floor: Txg(0),
        origin: 0,
        objects: None,
        dead: None,
        name,
    }
}

/// An empty directory that is its own parent.
pub fn directory_inode(object: ObjectId, now: Time, hash_seed: u64) -> Inode {
    Inode {
        object,
        generation: 0,
        kind: FileKind::Directory,
        damaged: false,
        cloned: false,
        mode: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        refer_bytes: 0,
        saved_bytes: 0,
        entries: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        change: 1,
        parent: object,
        line: 1,
        origin: ObjectId(0),
        verifier: 0,
        hash_seed,
        root: None,
    }
}
