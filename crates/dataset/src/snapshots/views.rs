//! Snapshots that clients look into, each as a dataset of its own.
//!
//! A view is open as long as somebody looks into it, and a minute longer. One client may look into
//! all snapshots in turn: of more than [`OPEN_MAX`] the one closes that nobody has used for
//! longest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aquifer_ondisk::dataset::{DatasetRecord, SnapshotRecord};
use aquifer_ondisk::{DatasetId, Guid, Txg};
use aquifer_pool::Room;
use aquifer_sync::atomic::Ordering;

use super::Snapshot;
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::full_name::FullName;
use crate::property::{LocalValues, Properties};

/// A view that nobody has used for so long closes.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// Views of a pool that are open at a time, unless more are in use.
const OPEN_MAX: usize = 256;
/// Bytes of a view in memory beside its objects: the dataset, and about a quarter more
/// for its names and lists.
const VIEW_BYTES: u64 = (size_of::<Dataset>() / 4 * 5) as u64;

/// Snapshots that clients look into, by their guids.
#[derive(Debug, Default)]
pub(crate) struct Views {
    /// Which snapshot, of which dataset's list, has which guid. A received one has that of the one
    /// that was sent.
    known: BTreeMap<(Guid, DatasetId), Txg>,
    open: HashMap<(Guid, DatasetId), Open>,
}

#[derive(Debug)]
struct Open {
    view: Arc<Dataset>,
    /// When somebody looked into it last, by the world's clock.
    used: Duration,
    _room: Room,
}

impl Open {
    /// Nobody has it, or anything of it: nobody can read what its snapshot showed after that was
    /// destroyed.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.view) == 1 && self.view.table.lock().is_idle()
    }
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
        self.open.get(&(guid, lister)).map(|open| &open.view)
    }

    /// Takes out views to close: those that nobody has used for so long, and of too many the one
    /// for longest.
    fn idle(&mut self, now: Duration) -> Vec<Open> {
        let is_old = |open: &Open| now.saturating_sub(open.used) >= IDLE_MAX;
        let mut gone: Vec<Open> = self
            .open
            .extract_if(|_, open| is_old(open) && open.is_idle())
            .map(|(_, of)| of)
            .collect();
        if self.open.len() > OPEN_MAX {
            let mut by_use: Vec<_> = self.open.iter().map(|(of, open)| (open.used, *of)).collect();
            by_use.sort_unstable();
            // Mostly the first: the look at objects of each would take long.
            let is_idle = |of: &(Guid, DatasetId)| self.open.get(of).is_some_and(Open::is_idle);
            let longest = by_use.into_iter().map(|(_, of)| of).find(is_idle);
            gone.extend(longest.and_then(|of| self.open.remove(&of)));
        }
        gone
    }

    /// A snapshot leaves the list. From here on nothing reads its objects.
    pub fn leave(&mut self, snapshot: &Snapshot, txg: Txg) {
        let Some(lister) = snapshot.lister else { return };
        let of = (snapshot.record.guid, lister);
        self.known.remove(&of);
        if let Some(open) = self.open.remove(&of) {
            open.view.set_destroyed(txg);
        }
    }

    /// A dataset lists a snapshot that another one listed. Open views of it stay.
    pub fn pass_on(&mut self, snapshot: &Snapshot, to: DatasetId) {
        let guid = snapshot.record.guid;
        let Some(lister) = snapshot.lister else { return };
        if let Some(txg) = self.known.remove(&(guid, lister)) {
            self.known.insert((guid, to), txg);
        }
        if let Some(open) = self.open.remove(&(guid, lister)) {
            self.open.insert((guid, to), open);
        }
    }
}

impl Dataset {
    /// Itself as of a snapshot, read-only. Its file system guid is the snapshot's.
    pub(crate) fn as_of(&self, snapshot: &Snapshot) -> Dataset {
        let record = self.record.lock().clone();
        let (parent, own) = self.shown_place();
        let SnapshotRecord { guid, refer_bytes, saved_bytes, objects, name, .. } = &snapshot.record;
        let record = DatasetRecord {
            fs_guid: *guid,
            created: snapshot.record.created,
            refer_bytes: *refer_bytes,
            saved_bytes: *saved_bytes,
            objects: *objects,
            dead: None,
            parent,
            name: format!("{own}@{name}"),
            ..record
        };
        let properties = Properties { readonly: true, ..Properties::clone(&self.properties()) };
        // No sync looks at it.
        let rooms = (self.table.shelf(), &Arc::default());
        let mut view = Dataset::new(rooms, self.id, record, LocalValues::new(), properties);
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
        let now = self.pool.world().now();
        let of = (guid, lister);
        if let Some(open) = self.views.lock().open.get_mut(&of) {
            open.used = now;
            return Some(open.view.clone());
        }
        // Before the lock.
        let room = self.pool.shelf().room(VIEW_BYTES);
        let (view, gone) = {
            let mut views = self.views.lock();
            let view = self.opened_at(&mut views, of, (now, room))?;
            (view, views.idle(now))
        };
        drop(gone);
        self.pool.shelf().tidy();
        Some(view)
    }

    /// The view of a snapshot; a new one if it is not open.
    fn opened_at(
        &self,
        views: &mut Views,
        of: (Guid, DatasetId),
        (now, room): (Duration, Room),
    ) -> Option<Arc<Dataset>> {
        if let Some(open) = views.open.get(&of) {
            return Some(open.view.clone());
        }
        let txg = *views.known.get(&of)?;
        if txg > self.pool.committed_txg() {
            return None;
        }
        let dataset = self.by_id(of.1).filter(|dataset| !dataset.is_destroyed())?;
        let snapshot = dataset.listing.lock().list.get(&txg).cloned()?;
        let view = Arc::new(dataset.as_of(&snapshot));
        views.open.insert(of, Open { view: view.clone(), used: now, _room: room });
        Some(view)
    }

    /// Closes views that nobody has used for [`IDLE_MAX`]. Called from time to time.
    pub fn close_idle_views(&self) {
        let gone = self.views.lock().idle(self.pool.world().now());
        // Many objects: not under the lock.
        drop(gone);
    }

    /// Views that are open.
    pub fn open_views(&self) -> usize {
        self.views.lock().open.len()
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
        for (_, Open { view, .. }) in of_it {
            let mut record = view.record.lock();
            let last = FullName::of(&record.name).snapshot().unwrap_or_default();
            record.name = format!("{}@{last}", head.name);
            record.parent = head.parent;
            *view.properties.write() = properties.clone();
        }
    }

    /// A line is emptied from this txg on, with all its snapshots.
    pub(crate) fn forget_snapshots(&self, line: &Dataset, txg: Txg) {
        let mut snapshots = std::mem::take(&mut *line.snapshots.lock());
        snapshots.files.close();
        if !snapshots.files.needs_of_others().is_empty() {
            self.needs_changed.store(true, Ordering::Relaxed);
        }
        snapshots.bookmarks.close(txg);
        for snapshot in snapshots.all() {
            self.leave_listing(txg, &snapshot);
        }
    }
}
