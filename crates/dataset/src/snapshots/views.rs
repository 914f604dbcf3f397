//! Snapshots that clients look into, each as a dataset of its own.

use std::collections::HashMap;
use std::sync::Arc;

use aquifer_ondisk::dataset::{DatasetRecord, SnapshotRecord};
use aquifer_ondisk::{DatasetId, Guid, Txg};

use super::Snapshot;
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::property::{LocalValues, Properties};

/// Snapshots that clients look into, by their guids.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// Which snapshot, of which dataset's list, has which guid.
    known: HashMap<Guid, (DatasetId, Txg)>,
    open: HashMap<Guid, Arc<Dataset>>,
}

impl Views {
    /// A snapshot that is new in the list of a dataset.
    pub fn enter(&mut self, snapshot: &Snapshot) {
        if let Some(lister) = snapshot.lister {
            self.known.insert(snapshot.record.guid, (lister, snapshot.txg));
        }
    }

    fn is_of(&self, guid: Guid, dataset: DatasetId) -> bool {
        self.known.get(&guid).is_some_and(|(lister, _)| *lister == dataset)
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
        let guid = snapshot.record.guid;
        self.view_of(guid).filter(|_| self.views.lock().is_of(guid, dataset.id))
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
        let snapshot = dataset.listing.lock().list.get(&txg).cloned()?;
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
        let mut listing = dataset.listing.lock();
        listing.note_change(self.change_in(self.pool.committed_txg()));
        listing.list.values().for_each(|snapshot| views.enter(snapshot));
    }

    /// A dataset has another name, or lists other snapshots: the open views of its snapshots are
    /// called so.
    pub(crate) fn rename_views(&self, dataset: &Dataset) {
        let head = dataset.record.lock().clone();
        let properties = Properties { readonly: true, ..Properties::clone(&dataset.properties()) };
        let properties = Arc::new(properties);
        let views = self.views.lock();
        let of_it = views.open.iter().filter(|(guid, _)| views.is_of(**guid, dataset.id));
        for (_, view) in of_it {
            let mut record = view.record.lock();
            let last = record.name.rsplit_once('@').map(|(_, last)| last.to_string());
            record.name = format!("{}@{}", head.name, last.unwrap_or_default());
            record.parent = head.parent;
            *view.properties.write() = properties.clone();
        }
    }

    /// A line is emptied from this txg on, with all its snapshots.
    pub(crate) fn forget_snapshots(&self, line: &Dataset, txg: Txg) {
        let mut snapshots = std::mem::take(&mut *line.snapshots.lock());
        snapshots.files.close();
        for snapshot in snapshots.all() {
            self.leave_listing(txg, &snapshot);
        }
    }
}
