//! Acts on snapshots, as the sync of their txg carries them out.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::dataset::{
    InheritedRecord, Item, ItemClass, ItemKey, ListerRecord, SnapshotRecord, SweepRecord,
};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::KeepRecord;
use aquifer_ondisk::{DatasetId, Space, Txg};

use super::{Act, ListChange, Snapshot};
use crate::dataset::Dataset;
use crate::datasets::Datasets;

impl Datasets {
    /// Carries out the acts of a txg. Called by its sync, when all else of the datasets is written.
    pub(crate) fn carry_out(&self, txg: Txg) -> Vec<(ItemKey, Option<Item>)> {
        let acts = self.state.lock().queue.take_acts(txg);
        acts.into_iter().flat_map(|act| self.carry_out_one(txg, act)).collect()
    }

    fn carry_out_one(&self, txg: Txg, act: Act) -> Vec<(ItemKey, Option<Item>)> {
        // Acts come one at a time, and no other txg is synced meanwhile: what they name is there.
        let living = |id| self.by_id(id).filter(|of| !of.is_destroyed());
        match act {
            Act::Rollback { dataset, to, kind } => {
                self.carry_out_rollback(txg, dataset, (to, kind))
            }
            Act::Destroy { line, snapshot } => self.unlist(txg, (line, snapshot), false),
            Act::Hide { line, snapshot } => self.unlist(txg, (line, snapshot), true),
            Act::Take { dataset, record, keep } => living(dataset)
                .map_or_else(Vec::new, |of| self.carry_out_take(txg, &of, record, keep)),
            Act::Rename { dataset, snapshot, name } => living(dataset)
                .map_or_else(Vec::new, |of| self.carry_out_rename(txg, &of, snapshot, name)),
            Act::DestroyFiles { line, ids, at_once } => {
                self.carry_out_destroy_files(txg, line, (ids, at_once))
            }
            Act::RenameFiles { line, ids, name } => {
                self.carry_out_rename_files(txg, line, (&ids, &name))
            }
            Act::Bookmark { line, snapshot, name } => {
                self.carry_out_bookmark(txg, (line, snapshot), name)
            }
            Act::DestroyBookmarks { line, these } => {
                self.carry_out_destroy_bookmarks(txg, line, &these)
            }
            Act::Promote { dataset, moved } => {
                living(dataset).map_or_else(Vec::new, |of| self.carry_out_promote(txg, &of, moved))
            }
        }
    }

    /// A change of lists in this txg.
    pub(crate) fn change_in(&self, txg: Txg) -> ListChange {
        ListChange { txg, at: Time::from_ns(self.pool.world().wall_ns()) }
    }

    fn carry_out_take(
        &self,
        txg: Txg,
        dataset: &Dataset,
        mut record: SnapshotRecord,
        keep: KeepRecord,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let id = dataset.id;
        record.objects = dataset.synced_root();
        let refer = dataset.refer();
        (record.refer_bytes, record.saved_bytes) = (refer.bytes, refer.saved_bytes);
        let mut items = vec![put(id, ItemClass::Snapshot, txg, Some(record.encode()))];
        let inherited = *dataset.inherited.lock();
        items.extend(inherited.map(|space| inherited_item(id, txg, space)));
        let snapshot = Snapshot { txg, record, line: id, lister: Some(id), inherited };
        let snapshot = Arc::new(snapshot);
        self.views.lock().enter(&snapshot);
        {
            let own_bytes = dataset.head_space().bytes;
            let mut snapshots = dataset.snapshots.lock();
            snapshots.set(snapshot.clone());
            snapshots.covers_all_of(own_bytes);
        }
        dataset.listing.lock().put(snapshot, self.change_in(txg));
        if !keep.is_empty() {
            if !left_out(Rule::MarksAreOnDisk) {
                items.push(put(id, ItemClass::Keep, txg, Some(keep.encode())));
            }
            dataset.keeping.lock().insert(txg, keep);
        }
        items
    }

    /// A snapshot leaves its dataset's list. Unless it is only hidden, it leaves its line too.
    pub(crate) fn unlist(
        &self,
        txg: Txg,
        (line, snapshot): (DatasetId, Txg),
        hidden: bool,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let Some(dataset) = self.by_id(line) else { return Vec::new() };
        let Some(known) = dataset.snapshots.lock().get(snapshot) else { return Vec::new() };
        let kept = self.leave_listing(txg, &known);
        let mut snapshots = dataset.snapshots.lock();
        let mut items = Vec::new();
        if hidden {
            let nobody = ListerRecord { dataset: None }.encode();
            items.push(put(line, ItemClass::Lister, snapshot, Some(nobody)));
            snapshots.set(Arc::new(Snapshot { lister: None, ..Snapshot::clone(&known) }));
        } else {
            snapshots.list.remove(&snapshot);
            snapshots.sweeps.insert(snapshot, txg);
            let sweep = SweepRecord { left: txg }.encode();
            items.push(put(line, ItemClass::Sweep, snapshot, Some(sweep)));
            items.push(put(line, ItemClass::Snapshot, snapshot, None));
            items.extend(known.inherited.map(|_| put(line, ItemClass::Inherited, snapshot, None)));
            if known.lister != Some(line) {
                items.push(put(line, ItemClass::Lister, snapshot, None));
            }
        }
        items.extend(kept.then(|| put(line, ItemClass::Keep, snapshot, None)));
        items
    }

    /// A snapshot leaves the list of the dataset that lists it. Returns whether that had a record
    /// on why it stays or goes.
    pub(crate) fn leave_listing(&self, txg: Txg, snapshot: &Snapshot) -> bool {
        self.views.lock().leave(snapshot, txg);
        self.strike(txg, snapshot).is_some()
    }

    /// A snapshot is in the list of the dataset that lists it no more; open views of it stay.
    /// Returns why it stayed or went, if that was known.
    pub(crate) fn strike(&self, txg: Txg, snapshot: &Snapshot) -> Option<KeepRecord> {
        let lister = self.by_id(snapshot.lister?)?;
        lister.listing.lock().take_out(snapshot.txg, self.change_in(txg));
        lister.keeping.lock().remove(&snapshot.txg)
    }

    fn carry_out_rename(
        &self,
        txg: Txg,
        dataset: &Dataset,
        snapshot: Txg,
        name: String,
    ) -> Vec<(ItemKey, Option<Item>)> {
        // Not under the lock of the listing: who opens a view takes that under the one of views.
        let known = dataset.listing.lock().list.get(&snapshot).cloned();
        let Some(known) = known else { return Vec::new() };
        // Calls that hold the view must hear when the snapshot is destroyed: it stays.
        if let Some(view) = self.views.lock().opened(known.record.guid, dataset.id) {
            let head = dataset.record.lock().name.clone();
            view.record.lock().name = format!("{head}@{name}");
        }
        let line = known.line;
        let record = SnapshotRecord { name, ..known.record.clone() };
        let value = record.encode();
        let renamed = Arc::new(Snapshot { record, ..Snapshot::clone(&known) });
        if let Some(line) = self.by_id(line) {
            line.snapshots.lock().set(renamed.clone());
        }
        dataset.listing.lock().put(renamed, self.change_in(txg));
        let mut items = vec![put(line, ItemClass::Snapshot, snapshot, Some(value))];
        // What somebody gives a name of its own, no schedule prunes.
        if let Some(keep) = dataset.without_schedule(snapshot) {
            let value = (!keep.is_empty()).then(|| keep.encode());
            items.push(put(line, ItemClass::Keep, snapshot, value));
        }
        items
    }
}

/// The item of what a clone, or a snapshot of it, has of its origin.
pub(crate) fn inherited_item(line: DatasetId, of: Txg, space: Space) -> (ItemKey, Option<Item>) {
    put(line, ItemClass::Inherited, of, Some(InheritedRecord(space).encode()))
}

/// An item of a snapshot on this line.
pub(crate) fn put(
    line: DatasetId,
    class: ItemClass,
    snapshot: Txg,
    value: Option<Vec<u8>>,
) -> (ItemKey, Option<Item>) {
    let key = ItemKey::new(line, class, snapshot.0);
    (key, value.map(|value| Item { key, value }))
}
