//! Snapshots that clients look into, each as a dataset of its own.

use std::collections::HashMap;
use std::sync::Arc;

use aquifer_ondisk::dataset::{DatasetRecord, SnapshotRecord};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::{DatasetId, Guid, Txg};

use super::{ListChange, Snapshot, Snapshots};
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::property::{LocalValues, Properties};

/// Snapshots that clients look into, by their guids.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// Which snapshot has which guid.
    known: HashMap<Guid, (DatasetId, Txg)>,
    open: HashMap<Guid, Arc<Dataset>>,
}

impl Views {
    /// A snapshot that is in the list of a dataset.
    pub fn enter(&mut self, dataset: DatasetId, snapshot: &Snapshot) {
        self.known.insert(snapshot.record.guid, (dataset, snapshot.txg));
    }

    /// The open view of a snapshot.
    pub fn opened(&self, guid: Guid) -> Option<&Arc<Dataset>> {
        self.open.get(&guid)
    }

    /// A snapshot leaves the list. From here on nothing reads its objects.
    pub fn leave(&mut self, guid: Guid, txg: Txg) {
        self.known.remove(&guid);
        if let Some(view) = self.open.remove(&guid) {
            view.set_destroyed(txg);
        }
    }
}

impl Dataset {
    /// Itself as of a snapshot, read-only. Its file system guid is the snapshot's.
    fn as_of(&self, snapshot: &Snapshot) -> Dataset {
        let record = self.record.lock().clone();
        let SnapshotRecord { guid, refer_bytes, objects, name, .. } = &snapshot.record;
        let record = DatasetRecord {
            fs_guid: *guid,
            created: snapshot.record.created,
            refer_bytes: *refer_bytes,
            objects: *objects,
            dead: None,
            name: format!("{}@{name}", record.name),
            ..record
        };
        let properties = Properties { readonly: true, ..Properties::clone(&self.properties()) };
        let mut view = Dataset::new(self.id, record, LocalValues::new(), properties);
        view.snapshot = Some(snapshot.txg);
        view
    }
}

impl Datasets {
    /// A snapshot as a dataset of its own, which is read-only.
    pub fn view(&self, dataset: &Dataset, snapshot: &Snapshot) -> Option<Arc<Dataset>> {
        self.view_of(snapshot.record.guid).filter(|view| view.id == dataset.id)
    }

    /// The snapshot of a guid, if it is on disk.
    pub(crate) fn view_of(&self, guid: Guid) -> Option<Arc<Dataset>> {
        let mut views = self.views.lock();
        if let Some(view) = views.open.get(&guid) {
            return Some(view.clone());
        }
        let (dataset, txg) = *views.known.get(&guid)?;
        if txg > self.pool.committed_txg() {
            return None;
        }
        let dataset = self.by_id(dataset).filter(|dataset| !dataset.is_destroyed())?;
        let snapshot = dataset.snapshots.lock().list.get(&txg).cloned()?;
        let view = Arc::new(dataset.as_of(&snapshot));
        views.open.insert(guid, view.clone());
        Some(view)
    }

    /// The dataset whose snapshot has this guid, if it is on disk.
    pub fn head_of(&self, guid: Guid) -> Option<Arc<Dataset>> {
        let (dataset, txg) = *self.views.lock().known.get(&guid)?;
        let is_on_disk = txg <= self.pool.committed_txg();
        self.by_id(dataset).filter(|dataset| is_on_disk && !dataset.is_destroyed())
    }

    /// Import: makes the snapshots of a dataset known.
    pub(crate) fn enter_views(&self, dataset: &Dataset) {
        let mut views = self.views.lock();
        let mut snapshots = dataset.snapshots.lock();
        let at = Time::from_ns(self.pool.world().wall_ns());
        snapshots.note_change(ListChange { txg: self.pool.committed_txg(), at });
        snapshots.list.values().for_each(|snapshot| views.enter(dataset.id, snapshot));
    }

    /// A dataset has another name: so have the open views of its snapshots.
    pub(crate) fn rename_views(&self, dataset: &Dataset) {
        let head = dataset.record.lock().clone();
        let views = self.views.lock();
        for view in views.open.values().filter(|view| view.id == dataset.id) {
            let mut record = view.record.lock();
            let last = record.name.rsplit_once('@').map(|(_, last)| last.to_string());
            record.name = format!("{}@{}", head.name, last.unwrap_or_default());
            record.parent = head.parent;
        }
    }

    /// A dataset is destroyed in this txg, with all its snapshots.
    pub(crate) fn forget_snapshots(&self, dataset: &Dataset, txg: Txg) {
        let mut views = self.views.lock();
        let mut snapshots = dataset.snapshots.lock();
        snapshots.list.values().for_each(|snapshot| views.leave(snapshot.record.guid, txg));
        *snapshots = Snapshots::default();
    }
}
