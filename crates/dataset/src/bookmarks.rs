//! Bookmarks: what a snapshot was, without its content. What changed since one can be found and
//! sent when the snapshot is gone, and it takes about one hundredth of what the snapshot may take.
//!
//! A bookmark needs the nodes of the snapshot's trees and none of the data. So it is a snapshot
//! that covers nodes alone. Nodes that no snapshot shows go to a group of their own in the dead
//! tree ([`crate::dead`]), if a bookmark lies in their life.
//!
//! Invariants:
//! - A bookmark is made of a snapshot that is in the list of its own dataset and on its line. So
//!   all its nodes are the head's then, or in the dead tree.
//! - There is one to a snapshot at most: it is known by its txg.
//! - A rollback of the dataset in line takes it away if its snapshot is later: it may need nodes of
//!   the old head. One that begins a line leaves it, and so does one of a file. It may then need
//!   less than the lives of nodes say; that much stays until it is destroyed.
//! - Clones of files that it shows stay pinned as for a snapshot: their nodes may be their
//!   origin's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_ondisk::bookmark::BookmarkRecord;
use aquifer_ondisk::config::{FEATURE_BOOKMARKS, FEATURE_SNAPSHOTS};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::dead::DeadKey;
use aquifer_ondisk::{DatasetId, Guid, Txg};

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::full_name::{self, FullName};
use crate::snapshots::{Act, Snapshot, put};

/// The bookmarks on a line.
#[derive(Debug, Default)]
pub(crate) struct Bookmarks {
    list: BTreeMap<Txg, Bookmark>,
    /// Destroyed ones of which some nodes may not be freed yet, with how far that is. A restart
    /// begins again.
    freed_to: BTreeMap<Txg, Option<DeadKey>>,
}

#[derive(Debug)]
struct Bookmark {
    /// As the snapshot was, with the bookmark's name.
    of: Arc<Snapshot>,
    /// The txg of the act.
    made: Txg,
    /// The dataset as of then, if somebody compares.
    view: Option<Arc<Dataset>>,
}

impl Bookmarks {
    /// Import: one from disk.
    pub fn load(&mut self, line: DatasetId, txg: Txg, record: BookmarkRecord) {
        match record {
            BookmarkRecord::Stands(record) => {
                let of = Snapshot { txg, record, line, lister: Some(line), inherited: None };
                self.list.insert(txg, Bookmark { of: Arc::new(of), made: txg, view: None });
            }
            BookmarkRecord::Destroyed { .. } => drop(self.freed_to.insert(txg, None)),
        }
    }

    /// Their txgs, in order.
    pub fn listed(&self) -> Vec<Txg> {
        self.list.keys().copied().collect()
    }

    /// Those of later snapshots.
    pub fn after(&self, txg: Txg) -> BTreeSet<Txg> {
        self.list.keys().copied().filter(|of| *of > txg).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Whether nodes of destroyed ones wait to be freed.
    pub fn are_freed(&self) -> bool {
        !self.freed_to.is_empty()
    }

    /// Destroyed ones, with how far their nodes were looked at.
    pub fn destroyed(&self) -> Vec<(Txg, Option<DeadKey>)> {
        self.freed_to.iter().map(|(txg, to)| (*txg, *to)).collect()
    }

    /// The nodes of a destroyed one were looked at so far.
    pub fn note_freed(&mut self, txg: Txg, to: DeadKey) {
        if let Some(of) = self.freed_to.get_mut(&txg) {
            *of = Some(to);
        }
    }

    /// Nothing of a destroyed one is left.
    pub fn is_freed(&mut self, txg: Txg) {
        self.freed_to.remove(&txg);
    }

    /// Its line is emptied from this txg on: nothing reads below them any more.
    pub fn close(&mut self, txg: Txg) {
        for view in self.list.values().filter_map(|bookmark| bookmark.view.as_ref()) {
            view.set_destroyed(txg);
        }
        *self = Bookmarks::default();
    }

    /// The keys of all their items.
    pub fn keys(&self, line: DatasetId) -> Vec<ItemKey> {
        let txgs = self.list.keys().chain(self.freed_to.keys());
        txgs.map(|txg| ItemKey::new(line, ItemClass::Bookmark, txg.0)).collect()
    }

    fn make(&mut self, of: Arc<Snapshot>, made: Txg) {
        // A destroyed one of the same snapshot: what it needed, this one needs.
        self.freed_to.remove(&of.txg);
        self.list.insert(of.txg, Bookmark { of, made, view: None });
    }

    fn destroy(&mut self, of: Txg, txg: Txg) -> bool {
        let Some(bookmark) = self.list.remove(&of) else { return false };
        bookmark.view.iter().for_each(|view| view.set_destroyed(txg));
        self.freed_to.insert(of, None);
        true
    }
}

impl Dataset {
    /// Its bookmarks that are on disk, in the order of their snapshots: what each snapshot was,
    /// with the bookmark's name.
    pub fn bookmarks(&self, committed: Txg) -> Vec<Arc<Snapshot>> {
        let snapshots = self.snapshots.lock();
        let all = snapshots.bookmarks.list.values();
        all.filter(|of| of.made <= committed).map(|of| of.of.clone()).collect()
    }
}

impl Datasets {
    /// Makes a bookmark, `tank/vms#sent` or `#sent`, of a snapshot, `tank/vms@monday`. It is on
    /// disk when this returns. Returns its full name.
    ///
    /// # Errors
    /// Bad names, a snapshot that does not exist or has one, a name that is taken, another dataset,
    /// and a snapshot that came by a promote.
    pub async fn bookmark(&self, snapshot: &str, name: &str) -> Result<String, DatasetError> {
        let _act = self.acts.lock().await;
        let (dataset, of) = self.snapshot_by_name(snapshot)?;
        let own = self.full_name(&dataset);
        let full = FullName::completed(&own, name);
        let bad = |why: String| DatasetError::BadName { name: full.clone(), why };
        let (named, last) = full_name::of_bookmark(&full)?;
        if named != own {
            return Err(bad(format!("is no bookmark of {own:?}, which {snapshot:?} is of")));
        }
        if of.line != dataset.id {
            let why = format!(
                "{snapshot:?} came to {own:?} by a promote; bookmark a later snapshot of it"
            );
            return Err(bad(why));
        }
        for other in dataset.bookmarks(Txg(u64::MAX)) {
            if other.record.name == last {
                return Err(DatasetError::Exists(full));
            }
            if other.txg == of.txg {
                let other = format!("{own}#{}", other.record.name);
                return Err(bad(format!("{snapshot:?} has the bookmark {other:?} already")));
            }
        }
        self.use_feature(FEATURE_SNAPSHOTS).await?;
        self.use_feature(FEATURE_BOOKMARKS).await?;
        let (line, snapshot, name) = (dataset.id, of.txg, last.to_string());
        self.act(vec![Act::Bookmark { line, snapshot, name }]).await?;
        Ok(full)
    }

    /// Destroys bookmarks. They are gone, on disk, when this returns; the nodes that they alone
    /// needed become free in the background.
    ///
    /// # Errors
    /// One does not exist: then none was destroyed.
    pub async fn destroy_bookmarks(&self, names: &[String]) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        let mut doomed: BTreeMap<DatasetId, BTreeSet<Txg>> = BTreeMap::new();
        for name in names {
            let (dataset, of) = self.bookmark_by_name(name)?;
            doomed.entry(dataset.id).or_default().insert(of.txg);
        }
        let acts = doomed.into_iter().map(|(line, these)| Act::DestroyBookmarks { line, these });
        self.act(acts.collect()).await
    }

    /// A bookmark by its full name, as `tank/vms#sent`.
    ///
    /// # Errors
    /// There is no such dataset or bookmark.
    pub fn bookmark_by_name(
        &self,
        full: &str,
    ) -> Result<(Arc<Dataset>, Arc<Snapshot>), DatasetError> {
        let (name, last) = full_name::of_bookmark(full)?;
        let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
        let mut found = dataset.bookmarks(self.pool.committed_txg()).into_iter();
        let found = found.find(|of| of.record.name == last);
        found.map(|found| (dataset, found)).ok_or_else(|| DatasetError::NotFound(full.into()))
    }

    /// The dataset as of a bookmark, to be compared. None of its data is there.
    pub(crate) fn bookmark_view(&self, dataset: &Dataset, guid: Guid) -> Option<Arc<Dataset>> {
        let mut snapshots = dataset.snapshots.lock();
        let mut all = snapshots.bookmarks.list.values_mut();
        let bookmark = all.find(|of| of.of.record.guid == guid)?;
        let view = bookmark.view.get_or_insert_with(|| Arc::new(dataset.as_of(&bookmark.of)));
        Some(view.clone())
    }

    /// The sync of `txg` makes a bookmark of a snapshot.
    pub(crate) fn carry_out_bookmark(
        &self,
        txg: Txg,
        (line, snapshot): (DatasetId, Txg),
        name: String,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let Some(dataset) = self.by_id(line) else { return Vec::new() };
        let mut snapshots = dataset.snapshots.lock();
        let Some(known) = snapshots.get(snapshot) else { return Vec::new() };
        let mut of = Snapshot::clone(&known);
        of.record.name = name;
        let value = BookmarkRecord::Stands(of.record.clone()).encode();
        snapshots.bookmarks.make(Arc::new(of), txg);
        vec![put(line, ItemClass::Bookmark, snapshot, Some(value))]
    }

    /// The sync of `txg` destroys bookmarks.
    pub(crate) fn carry_out_destroy_bookmarks(
        &self,
        txg: Txg,
        line: DatasetId,
        these: &BTreeSet<Txg>,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let Some(dataset) = self.by_id(line) else { return Vec::new() };
        let mut snapshots = dataset.snapshots.lock();
        let gone = these.iter().filter(|of| snapshots.bookmarks.destroy(**of, txg));
        let value = BookmarkRecord::Destroyed { left: txg }.encode();
        gone.map(|of| put(line, ItemClass::Bookmark, *of, Some(value.clone()))).collect()
    }
}
