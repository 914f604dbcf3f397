//! Snapshots that clients look into, each as a dataset of its own.

use std::collections::{BTreeMap, HashMap};
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
    /// Which snapshot, of which dataset's list, has which guid. A received one has that of the one
    /// that was sent.
    known: BTreeMap<(Guid, DatasetId), Txg>,
    open: HashMap<(Guid, DatasetId), Arc<Dataset>>,
}

impl Views {
    /// A snapshot that is new in the list of a dataset.
    pub fn enter(&mut self, snapshot: &Snapshot) {
        if let Some(lister) = snapshot.lister {
            self.known.insert((snapshot.record.guid, lister), snapshot.txg);
        }
    }

    /// The datasets that list a snapshot of this guid.
    fn listers(&self, guid: Guid) -> impl Iterator<Item = DatasetId> {
        let all = (guid, DatasetId(0))..=(guid, DatasetId(u64::MAX));
        self.known.range(all).map(|((_, lister), _)| *lister)
    }

    /// The open view of a snapshot that a dataset lists.
    pub fn opened(&self, guid: Guid, lister: DatasetId) -> Option<&Arc<Dataset>> {
        self.open.get(&(guid, lister))
    }

    /// A snapshot leaves the list. From here on nothing reads its objects.
    pub fn leave(&mut self, snapshot: &Snapshot, txg: Txg) {
        let Some(lister) = snapshot.lister else { return };
        let of = (snapshot.record.guid, lister);
        self.known.remove(&of);
        if let Some(view) = self.open.remove(&of) {
            view.set_destroyed(txg);
        }
    }

    /// A dataset lists a snapshot that another one listed. Open views of it stay.
    pub fn pass_on(&mut self, snapshot: &Snapshot, to: DatasetId) {
        let guid = snapshot.record.guid;
        let Some(lister) = snapshot.lister else { return };
        if let Some(txg) = self.known.remove(&(guid, lister)) {
            self.known.insert((guid, to), txg);
        }
        if let Some(view) = self.open.remove(&(guid, lister)) {
            self.open.insert((guid, to), view);
        }
    }
}

impl Dataset {
    /// Itself as of a snapshot, read-only. Its file system guid is the snapshot's.
    pub(crate) fn as_of(&self, snapshot: &Snapshot) -> Dataset {
        let record = self.record.lock().clone();
        let SnapshotRecord { guid, refer_bytes, saved_bytes, objects, name, .. } = &snapshot.record;
        let record = DatasetRecord {
            fs_guid: *guid,
            created: snapshot.record.created,
            refer_bytes: *refer_bytes,
            saved_bytes: *saved_bytes,
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
    /// A snapshot as a dataset of its own, which is read-only, if it is on disk.
    pub fn view(&self, dataset: &Dataset, snapshot: &Snapshot) -> Option<Arc<Dataset>> {
        self.view_in(snapshot.record.guid, dataset.id)
    }

    fn view_in(&self, guid: Guid, lister: DatasetId) -> Option<Arc<Dataset>> {
        let mut views = self.views.lock();
        let of = (guid, lister);
        if let Some(view) = views.open.get(&of) {
            return Some(view.clone());
        }
        let txg = *views.known.get(&of)?;
        if txg > self.pool.committed_txg() {
            return None;
        }
        let dataset = self.by_id(lister).filter(|dataset| !dataset.is_destroyed())?;
        let snapshot = dataset.listing.lock().list.get(&txg).cloned()?;
        let view = Arc::new(dataset.as_of(&snapshot));
        views.open.insert(of, view.clone());
        Some(view)
    }

    /// The snapshot of a guid, if it is on disk and its dataset in service.
    pub(crate) fn view_of(&self, guid: Guid) -> Option<Arc<Dataset>> {
        let head = self.head_of(guid)?;
        self.view_in(guid, head.id)
    }

    /// The dataset whose snapshot has this guid, if that is on disk and the dataset in service.
    pub fn head_of(&self, guid: Guid) -> Option<Arc<Dataset>> {
        let committed = self.pool.committed_txg();
        let known: Vec<(DatasetId, Txg)> = {
            let views = self.views.lock();
            let txg = |lister| views.known.get(&(guid, lister)).copied();
            views.listers(guid).filter_map(|lister| Some((lister, txg(lister)?))).collect()
        };
        let on_disk = known.into_iter().filter(|(_, txg)| *txg <= committed);
        let mut heads = on_disk.filter_map(|(lister, _)| self.by_id(lister));
        heads.find(|head| !head.is_destroyed() && !head.is_standby())
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
        let of_it = views.open.iter().filter(|((_, lister), _)| *lister == dataset.id);
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
        snapshots.bookmarks.close(txg);
        for snapshot in snapshots.all() {
            self.leave_listing(txg, &snapshot);
        }
    }
}
