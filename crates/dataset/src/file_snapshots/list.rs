//! The snapshots of a dataset's files in memory: which there are, and what goes on about them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{FileLists, Object, Returning};
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::dead::DeadKey;
use aquifer_ondisk::file_clone::{FileCloneAcrossRecord, FileCloneRecord, FileLineRecord};
use aquifer_ondisk::file_snapshot::{
    FILE_PATH_BYTES_MAX, FileRollbackRecord, FileSnapshotId, FileSnapshotRecord, FileSweepRecord,
};
use aquifer_ondisk::keeping::KeepRecord;
use aquifer_ondisk::shown_name::path_as_shown;
use aquifer_ondisk::{DatasetId, FormatError, Guid, ObjectId, Txg};

use super::FileSnapshot;
use super::pins::{FileLine, Pins};
use crate::snapshots::ListChange;

/// The snapshots of the files of a dataset.
#[derive(Debug, Default)]
pub(crate) struct FileSnapshots {
    /// As of the last sync.
    pub(super) list: BTreeMap<FileSnapshotId, Arc<FileSnapshot>>,
    /// Their txgs.
    lists: FileLists,
    by_file: BTreeSet<(ObjectId, FileSnapshotId)>,
    /// By the checksum of the last part of the path that they bear.
    by_last: BTreeSet<(u64, FileSnapshotId)>,
    /// By the checksums of what only one has: a file or path, and a name.
    by_name: BTreeSet<(u64, FileSnapshotId)>,
    /// The last change of the list, which may not be on disk yet, and the one before it.
    changed: [ListChange; 2],
    /// Snapshots as the last change found them, by which the list is shown until that change is on
    /// disk.
    before: BTreeMap<FileSnapshotId, Arc<FileSnapshot>>,
    /// Derived ones whose file's dead blocks are not gathered yet, with the key from which to go
    /// on; an import begins once more.
    pub(super) gathers: BTreeMap<FileSnapshotId, Option<DeadKey>>,
    /// Those that left the list and are not swept, with their files.
    sweeps: BTreeMap<FileSnapshotId, ObjectId>,
    /// Rollbacks whose snapshot's blocks the dead tree still names, or that a walk must know.
    rollbacks: BTreeMap<FileSnapshotId, FileRollbackRecord>,
    /// Clones and lines of files, each of which needs the snapshot that it began as.
    pub(super) pins: Pins,
    /// The holds on them.
    holds: BTreeMap<FileSnapshotId, KeepRecord>,
    /// Own bytes of each file of the head that its snapshots show: see [`crate::covered`].
    pub(super) covered: BTreeMap<ObjectId, u64>,
    /// Those that somebody reads.
    pub(super) open: BTreeMap<FileSnapshotId, Arc<Object>>,
}

fn last_of(last: &str) -> u64 {
    checksum64(last.as_bytes())
}

fn names_of(object: ObjectId, path: &str, name: &str) -> [u64; 2] {
    let of_file = [&object.0.to_le_bytes()[..], name.as_bytes()].concat();
    let of_path = [path.as_bytes(), b"@", name.as_bytes()].concat();
    [of_file, of_path].map(|bytes| checksum64(&bytes))
}

impl FileSnapshots {
    /// Import: an item of one of their classes.
    pub fn load(&mut self, class: ItemClass, number: u64, value: &[u8]) -> Result<(), FormatError> {
        let id = FileSnapshotId(number);
        match class {
            ItemClass::FileSweep => {
                self.sweeps.insert(id, FileSweepRecord::decode(value)?.object);
            }
            ItemClass::FileKeep => {
                self.holds.insert(id, KeepRecord::decode(value)?);
            }
            ItemClass::FileRollback => self.load_rollback(id, FileRollbackRecord::decode(value)?),
            ItemClass::FileClone => {
                let record = FileCloneRecord::decode(value)?;
                self.put_line(ObjectId(number), FileLine { record, number: None, across: None });
            }
            ItemClass::FileCloneAcross => {
                let FileCloneAcrossRecord { dataset, of } = FileCloneAcrossRecord::decode(value)?;
                let line = FileLine { record: of, number: None, across: Some(dataset) };
                self.put_line(ObjectId(number), line);
            }
            ItemClass::FileLine => {
                let FileLineRecord { object, of } = FileLineRecord::decode(value)?;
                if of.forked != id.txg() {
                    return Err(FormatError::invalid("file line record: number", number));
                }
                let line = FileLine { record: of, number: Some(number), across: None };
                self.put_line(object, line);
            }
            _ => {
                let mut record = FileSnapshotRecord::decode(value)?;
                let path = path_as_shown(&record.path);
                if path.len() <= FILE_PATH_BYTES_MAX {
                    record.path = path;
                }
                self.put(Arc::new(FileSnapshot { id, record }));
            }
        }
        Ok(())
    }

    /// Import, or the sync of a rollback: the dead tree names what came back.
    pub fn load_rollback(&mut self, id: FileSnapshotId, record: FileRollbackRecord) {
        self.rollbacks.insert(id, record);
    }

    pub(super) fn put(&mut self, snapshot: Arc<FileSnapshot>) {
        if !self.list.contains_key(&snapshot.id) {
            self.covers(&snapshot);
        }
        let txgs = Arc::make_mut(&mut self.lists).entry(snapshot.object()).or_default();
        if let Err(at) = txgs.binary_search(&snapshot.txg()) {
            txgs.insert(at, snapshot.txg());
        }
        self.by_file.insert((snapshot.object(), snapshot.id));
        self.by_last.insert((last_of(snapshot.last_of_path()), snapshot.id));
        self.by_name.extend(snapshot.names().map(|of| (of, snapshot.id)));
        if snapshot.record.gathers {
            self.gathers.insert(snapshot.id, None);
        }
        self.list.insert(snapshot.id, snapshot);
    }

    /// One leaves the list, and leaves a sweep.
    fn take_out(&mut self, id: FileSnapshotId) -> Option<Arc<FileSnapshot>> {
        let gone = self.list.remove(&id)?;
        self.note_before(&gone);
        self.by_file.remove(&(gone.object(), id));
        self.by_last.remove(&(last_of(gone.last_of_path()), id));
        for of in gone.names() {
            self.by_name.remove(&(of, id));
        }
        self.gathers.remove(&id);
        let lists = Arc::make_mut(&mut self.lists);
        if let Some(txgs) = lists.get_mut(&gone.object()) {
            txgs.retain(|txg| *txg != gone.txg());
            if txgs.is_empty() {
                lists.remove(&gone.object());
            }
        }
        if let Some(open) = self.open.remove(&id) {
            open.leave();
        }
        self.sweeps.insert(id, gone.object());
        self.covers_less(gone.object());
        Some(gone)
    }

    /// One leaves the list and leaves a sweep, in this txg.
    pub(super) fn leave(
        &mut self,
        txg: Txg,
        (line, id): (DatasetId, FileSnapshotId),
    ) -> Vec<(ItemKey, Option<Item>)> {
        let Some(gone) = self.take_out(id) else { return Vec::new() };
        let sweep = FileSweepRecord { object: gone.object(), left: txg };
        let key = ItemKey::new(line, ItemClass::FileSweep, id.0);
        let sweep = (key, Some(Item { key, value: sweep.encode() }));
        let mut items = vec![sweep, (ItemKey::new(line, ItemClass::FileSnapshot, id.0), None)];
        items.extend(self.holds.remove(&id).map(|_| (hold_key(line, id), None)));
        items
    }

    /// One that is listed gets another name.
    pub(super) fn rename(
        &mut self,
        line: DatasetId,
        id: FileSnapshotId,
        name: &str,
    ) -> Option<(ItemKey, Option<Item>)> {
        let known = self.list.get(&id).filter(|of| !of.record.hidden)?.clone();
        self.note_before(&known);
        for of in known.names() {
            self.by_name.remove(&(of, id));
        }
        // What somebody gives a name of its own, no schedule prunes.
        let record =
            FileSnapshotRecord { name: name.into(), schedule: None, ..known.record.clone() };
        let renamed = FileSnapshot { id, record };
        self.by_name.extend(renamed.names().map(|of| (of, id)));
        let item = renamed.item(line);
        self.list.insert(id, Arc::new(renamed));
        Some(item)
    }

    /// One is there for walks only.
    pub(super) fn hide(
        &mut self,
        line: DatasetId,
        id: FileSnapshotId,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let Some(known) = self.list.get(&id).cloned() else { return Vec::new() };
        self.note_before(&known);
        let record = FileSnapshotRecord { hidden: true, ..known.record.clone() };
        let hidden = Arc::new(FileSnapshot { id, record });
        let mut items = vec![hidden.item(line)];
        self.list.insert(id, hidden);
        if let Some(open) = self.open.remove(&id) {
            open.leave();
        }
        items.extend(self.holds.remove(&id).map(|_| (hold_key(line, id), None)));
        items
    }

    /// Those of a file in order.
    pub(super) fn txgs_of(&self, object: ObjectId) -> &[Txg] {
        self.lists.get(&object).map_or(&[][..], Vec::as_slice)
    }

    /// The txgs of the snapshots of each file.
    pub fn lists(&self) -> FileLists {
        self.lists.clone()
    }

    /// The newest one of a file.
    pub fn newest_of(&self, object: ObjectId) -> Option<Txg> {
        self.lists.get(&object).and_then(|txgs| txgs.last()).copied()
    }

    /// All of a file, in order.
    pub(super) fn of_file(&self, object: ObjectId) -> impl Iterator<Item = &Arc<FileSnapshot>> {
        let (first, last) = (FileSnapshotId(0), FileSnapshotId(u64::MAX));
        let ids = self.by_file.range((object, first)..=(object, last));
        ids.filter_map(|(_, id)| self.list.get(id))
    }

    /// All that bear a path that ends so, in order.
    pub(super) fn with_last(&self, last: &str) -> impl Iterator<Item = &Arc<FileSnapshot>> {
        let of = last_of(last);
        let ids = self.by_last.range((of, FileSnapshotId(0))..=(of, FileSnapshotId(u64::MAX)));
        let found = ids.filter_map(|(_, id)| self.list.get(id));
        found.filter(move |of| of.last_of_path() == last)
    }

    /// The list changes. Changes come one at a time: each is on disk before the next one.
    pub(super) fn note_change(&mut self, change: ListChange) {
        // An act may change it several times.
        if self.changed[0].txg != change.txg {
            self.changed[1] = self.changed[0];
            self.before.clear();
        }
        self.changed[0] = change;
    }

    /// Before one changes in the last change, or without one: then nobody sees it.
    fn note_before(&mut self, of: &Arc<FileSnapshot>) {
        if !of.record.hidden {
            self.before.entry(of.id).or_insert_with(|| of.clone());
        }
    }

    /// Those of these that are shown, as they are on disk, in order: `now`, as they are in the
    /// list, and `is_it` for what may have left it.
    pub(super) fn on_disk<'a>(
        &'a self,
        committed: Txg,
        now: impl Iterator<Item = &'a Arc<FileSnapshot>>,
        is_it: impl Fn(&FileSnapshot) -> bool,
    ) -> Vec<Arc<FileSnapshot>> {
        let is_shown = |of: &&Arc<FileSnapshot>| of.txg() <= committed && !of.record.hidden;
        let now = now.filter(is_shown).cloned();
        if self.changed[0].txg <= committed || left_out(Rule::SeenWhenOnDisk) {
            return now.collect();
        }
        let mut shown: BTreeMap<FileSnapshotId, _> = now.map(|of| (of.id, of)).collect();
        let before = self.before.values().filter(|of| is_it(of));
        shown.extend(before.filter(is_shown).map(|of| (of.id, of.clone())));
        shown.into_values().collect()
    }

    pub(super) fn last_change(&self, committed: Txg) -> ListChange {
        let [last, before] = self.changed;
        if last.txg <= committed { last } else { before }
    }

    /// Those that a txg took.
    pub(super) fn guids_of(&self, txg: Txg) -> HashSet<Guid> {
        let range = FileSnapshotId::new(txg, 0)..FileSnapshotId::new(txg.next(), 0);
        self.list.range(range).map(|(_, of)| of.record.guid).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// One of them.
    pub fn get(&self, id: FileSnapshotId) -> Option<Arc<FileSnapshot>> {
        self.list.get(&id).cloned()
    }

    /// Those that were taken after a txg.
    pub fn after(&self, txg: Txg) -> Vec<Arc<FileSnapshot>> {
        self.list.range(FileSnapshotId::new(txg.next(), 0)..).map(|(_, of)| of.clone()).collect()
    }

    /// The last number of a txg that is taken: by one of the list, a sweep or a rollback.
    pub(super) fn last_number(&self, txg: Txg) -> Option<FileSnapshotId> {
        let range = || FileSnapshotId::new(txg, 0)..FileSnapshotId::new(txg.next(), 0);
        let list = self.list.range(range()).next_back().map(|(id, _)| *id);
        let sweep = self.sweeps.range(range()).next_back().map(|(id, _)| *id);
        let rollback = self.rollbacks.range(range()).next_back().map(|(id, _)| *id);
        [list, sweep, rollback].into_iter().flatten().max()
    }

    /// Those that left the list and wait to be swept, with their files.
    pub fn sweeps(&self) -> impl Iterator<Item = (FileSnapshotId, ObjectId)> {
        self.sweeps.iter().map(|(id, object)| (*id, *object))
    }

    pub fn are_swept(&self) -> bool {
        !self.sweeps.is_empty() || !self.gathers.is_empty() || self.are_returning()
    }

    /// Lists rollbacks of files that brought back blocks which the dead tree still names.
    pub fn returning(&self) -> impl Iterator<Item = (FileSnapshotId, ObjectId, Returning)> {
        let pending = self.rollbacks.iter().filter(|(_, record)| record.pending);
        pending.map(|(id, FileRollbackRecord { object, txg, .. })| {
            (*id, *object, Returning { txg: *txg, to: id.txg() })
        })
    }

    pub fn has_rollbacks(&self) -> bool {
        !self.rollbacks.is_empty()
    }

    pub fn are_returning(&self) -> bool {
        self.rollbacks.values().any(|record| record.pending)
    }

    /// The dead tree names nothing any more that came back to a file. Returns the new record.
    pub fn returned(&mut self, id: FileSnapshotId) -> Option<FileRollbackRecord> {
        let record = self.rollbacks.get_mut(&id)?;
        record.pending = false;
        Some(*record)
    }

    /// No walk is under way: forgets the rollbacks that are over. Returns their snapshots.
    pub fn forget_rollbacks(&mut self) -> Vec<FileSnapshotId> {
        let over = self.rollbacks.iter().filter(|(_, record)| !record.pending);
        let over: Vec<FileSnapshotId> = over.map(|(id, _)| *id).collect();
        self.rollbacks.retain(|_, record| record.pending);
        over
    }

    /// Whether a walk may need one, since a file was rolled back to it.
    pub fn is_walked(&self, id: FileSnapshotId) -> bool {
        self.rollbacks.contains_key(&id) && !left_out(Rule::RolledBackToIsWalked)
    }

    /// Something needs one no more: if it is hidden, and nothing else does, it leaves in this txg.
    pub(crate) fn release(
        &mut self,
        txg: Txg,
        (line, id): (DatasetId, FileSnapshotId),
    ) -> Vec<(ItemKey, Option<Item>)> {
        let is_hidden = self.list.get(&id).is_some_and(|of| of.record.hidden);
        match is_hidden && !self.is_walked(id) && !self.is_pinned(id) {
            true => self.leave(txg, (line, id)),
            false => Vec::new(),
        }
    }

    /// The holds on one that is listed, also those that have ended.
    pub fn keep_record(&self, id: FileSnapshotId) -> KeepRecord {
        self.holds.get(&id).cloned().unwrap_or_default()
    }

    /// All of them.
    pub fn keep_records(&self) -> impl Iterator<Item = (FileSnapshotId, &KeepRecord)> {
        self.holds.iter().map(|(id, record)| (*id, record))
    }

    /// One has these holds. Returns the item that changes.
    pub fn keep(
        &mut self,
        (line, id): (DatasetId, FileSnapshotId),
        record: KeepRecord,
    ) -> (ItemKey, Option<Item>) {
        let key = hold_key(line, id);
        if record.is_empty() {
            self.holds.remove(&id);
            return (key, None);
        }
        let item = Item { key, value: record.encode() };
        self.holds.insert(id, record);
        (key, Some(item))
    }

    /// A sweep has nothing left to do.
    pub fn swept(&mut self, id: FileSnapshotId) {
        self.sweeps.remove(&id);
    }

    /// The line is emptied: nobody reads any of them.
    pub fn close(&mut self) {
        std::mem::take(&mut self.open).into_values().for_each(|open| open.leave());
    }

    /// The keys of their items, and of their sweeps.
    pub fn keys(&self, line: DatasetId) -> Vec<ItemKey> {
        let of = |class| move |id: &FileSnapshotId| ItemKey::new(line, class, id.0);
        let list = self.list.keys().map(of(ItemClass::FileSnapshot));
        let list = list.chain(self.sweeps.keys().map(of(ItemClass::FileSweep)));
        let list = list.chain(self.rollbacks.keys().map(of(ItemClass::FileRollback)));
        let list = list.chain(self.holds.keys().map(of(ItemClass::FileKeep)));
        list.chain(self.pins.keys(line)).collect()
    }

    /// Whether one that is listed has this name, of the file or under the path.
    pub fn has_name(&self, object: ObjectId, path: &str, name: &str) -> bool {
        let ids = names_of(object, path, name).into_iter().flat_map(|of| {
            self.by_name.range((of, FileSnapshotId(0))..=(of, FileSnapshotId(u64::MAX)))
        });
        let mut found = ids.filter_map(|(_, id)| self.list.get(id));
        found.any(|of| {
            let is_it = of.object() == object || of.record.path == path;
            is_it && of.record.name == name && !of.record.hidden
        })
    }
}

/// The key of the holds on one.
fn hold_key(line: DatasetId, id: FileSnapshotId) -> ItemKey {
    ItemKey::new(line, ItemClass::FileKeep, id.0)
}

impl FileSnapshot {
    fn names(&self) -> [u64; 2] {
        names_of(self.object(), &self.record.path, &self.record.name)
    }
}
