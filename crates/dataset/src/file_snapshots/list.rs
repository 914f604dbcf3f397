//! The snapshots of a dataset's files in memory: which there are, and what goes on about them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{FileLists, Object, Returning};
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::file_clone::FileCloneRecord;
use aquifer_ondisk::file_snapshot::{
    FileRollbackRecord, FileSnapshotId, FileSnapshotRecord, FileSweepRecord,
};
use aquifer_ondisk::{DatasetId, FormatError, Guid, ObjectId, Txg};

use super::FileSnapshot;
use crate::dead::These;
use crate::snapshots::ListChange;

/// The names of the snapshots of a dataset's files.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub of_files: HashSet<(ObjectId, String)>,
    pub of_paths: HashSet<(String, String)>,
}

/// The snapshots of the files of a dataset.
#[derive(Debug, Default)]
pub(crate) struct FileSnapshots {
    pub(super) list: BTreeMap<FileSnapshotId, Arc<FileSnapshot>>,
    /// Their txgs.
    lists: FileLists,
    by_file: BTreeSet<(ObjectId, FileSnapshotId)>,
    /// By the checksum of the last part of the path that they bear.
    by_last: BTreeSet<(u64, FileSnapshotId)>,
    /// The last change of the list, which may not be on disk yet, and the one before it.
    changed: [ListChange; 2],
    /// Those that left the list and are not swept, with their files.
    sweeps: BTreeMap<FileSnapshotId, ObjectId>,
    /// Rollbacks whose snapshot's blocks the dead tree still names, or that a walk must know.
    rollbacks: BTreeMap<FileSnapshotId, FileRollbackRecord>,
    /// Clones of files, by their ids, each of which needs the snapshot that it began as.
    clones: BTreeMap<ObjectId, FileCloneRecord>,
    /// How many clones need a snapshot.
    pins: BTreeMap<FileSnapshotId, usize>,
    /// Those that somebody reads.
    pub(super) open: BTreeMap<FileSnapshotId, Arc<Object>>,
}

fn last_of(last: &str) -> u64 {
    checksum64(last.as_bytes())
}

/// Whether one of these snapshots, in order, was taken while a clone was there.
fn is_in_life(record: &FileCloneRecord, list: &[Txg]) -> bool {
    let from = list.partition_point(|txg| *txg < record.forked);
    list.get(from).is_some_and(|txg| record.may_be_shown(*txg))
}

/// One clone less needs a snapshot.
fn unpin(pins: &mut BTreeMap<FileSnapshotId, usize>, snapshot: FileSnapshotId) {
    match pins.get_mut(&snapshot) {
        Some(pins) if *pins > 1 => *pins -= 1,
        _ => drop(pins.remove(&snapshot)),
    }
}

impl FileSnapshots {
    /// Import: an item of one of their classes.
    pub fn load(&mut self, class: ItemClass, number: u64, value: &[u8]) -> Result<(), FormatError> {
        let id = FileSnapshotId(number);
        match class {
            ItemClass::FileSweep => {
                self.sweeps.insert(id, FileSweepRecord::decode(value)?.object);
            }
            ItemClass::FileRollback => self.load_rollback(id, FileRollbackRecord::decode(value)?),
            ItemClass::FileClone => {
                self.put_clone(ObjectId(number), FileCloneRecord::decode(value)?);
            }
            _ => {
                let record = FileSnapshotRecord::decode(value)?;
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
        let txgs = Arc::make_mut(&mut self.lists).entry(snapshot.object()).or_default();
        if let Err(at) = txgs.binary_search(&snapshot.txg()) {
            txgs.insert(at, snapshot.txg());
        }
        self.by_file.insert((snapshot.object(), snapshot.id));
        self.by_last.insert((last_of(snapshot.last_of_path()), snapshot.id));
        self.list.insert(snapshot.id, snapshot);
    }

    /// One leaves the list, and leaves a sweep.
    fn take_out(&mut self, id: FileSnapshotId) -> Option<Arc<FileSnapshot>> {
        let gone = self.list.remove(&id)?;
        self.by_file.remove(&(gone.object(), id));
        self.by_last.remove(&(last_of(gone.last_of_path()), id));
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
        vec![sweep, (ItemKey::new(line, ItemClass::FileSnapshot, id.0), None)]
    }

    /// One is there for walks only.
    pub(super) fn hide(
        &mut self,
        line: DatasetId,
        id: FileSnapshotId,
    ) -> Vec<(ItemKey, Option<Item>)> {
        let Some(known) = self.list.get_mut(&id) else { return Vec::new() };
        let record = FileSnapshotRecord { hidden: true, ..known.record.clone() };
        let key = ItemKey::new(line, ItemClass::FileSnapshot, id.0);
        let item = (key, Some(Item { key, value: record.encode() }));
        *known = Arc::new(FileSnapshot { id, record });
        if let Some(open) = self.open.remove(&id) {
            open.leave();
        }
        vec![item]
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
        }
        self.changed[0] = change;
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

    /// Those that left the list and wait to be swept, with their files.
    pub fn sweeps(&self) -> impl Iterator<Item = (FileSnapshotId, ObjectId)> {
        self.sweeps.iter().map(|(id, object)| (*id, *object))
    }

    pub fn are_swept(&self) -> bool {
        !self.sweeps.is_empty() || self.are_returning()
    }

    /// What came back to files, and the dead tree still names.
    pub fn returning(&self) -> impl Iterator<Item = (FileSnapshotId, ObjectId, Returning)> {
        let pending = self.rollbacks.iter().filter(|(_, record)| record.pending);
        pending.map(|(id, FileRollbackRecord { object, txg, .. })| {
            (*id, *object, Returning { txg: *txg, to: id.txg() })
        })
    }

    pub(super) fn has_rollbacks(&self) -> bool {
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

    /// Import, or a sync: a clone, as it is now.
    pub fn put_clone(&mut self, clone: ObjectId, record: FileCloneRecord) {
        self.take_clone(clone);
        self.clones.insert(clone, record);
        *self.pins.entry(record.snapshot).or_default() += 1;
    }

    fn take_clone(&mut self, clone: ObjectId) {
        if let Some(record) = self.clones.remove(&clone) {
            unpin(&mut self.pins, record.snapshot);
        }
    }

    pub fn has_clones(&self) -> bool {
        !self.clones.is_empty()
    }

    pub fn clone_record(&self, clone: ObjectId) -> Option<FileCloneRecord> {
        self.clones.get(&clone).copied()
    }

    /// How many clones of one there are.
    pub fn clones_of(&self, id: FileSnapshotId) -> usize {
        self.pins.get(&id).copied().unwrap_or(0)
    }

    /// Takes out the clones of which the head has nothing, and that no snapshot shows: neither one
    /// of the dataset, given in order, nor one of the clone.
    pub fn take_clones_over(&mut self, listed: &[Txg]) -> Vec<(ObjectId, FileCloneRecord)> {
        let is_over = |id: &ObjectId, record: &FileCloneRecord| {
            let of_it = self.lists.get(id).map_or(&[][..], Vec::as_slice);
            let shown = is_in_life(record, listed) || is_in_life(record, of_it);
            record.died.is_some() && (!shown || left_out(Rule::FilePinsOutliveHeads))
        };
        let over = self.clones.iter().filter(|(id, record)| is_over(id, record));
        let over: Vec<_> = over.map(|(id, record)| (*id, *record)).collect();
        over.iter().for_each(|(id, _)| self.take_clone(*id));
        over
    }

    /// Snapshots that are to be destroyed, of `listed` and of files, as their blocks go: without
    /// those that clones need, and with hidden ones that no clone needs then.
    pub fn with_pinned(&self, listed: impl FnOnce() -> Vec<Txg>, these: &These) -> These {
        let mut these = these.clone();
        if self.clones.is_empty() {
            return these;
        }
        let left: Vec<Txg> =
            listed().into_iter().filter(|of| !these.snapshots.contains(of)).collect();
        let wanted = |these: &These, of: &FileSnapshot| {
            these.files.get(&of.object()).is_some_and(|txgs| txgs.contains(&of.txg()))
        };
        let (mut pins, mut over) = (self.pins.clone(), BTreeSet::new());
        let mut goes: BTreeSet<FileSnapshotId> = BTreeSet::new();
        loop {
            let before = (goes.len(), over.len());
            for (id, of) in &self.list {
                let is_hidden = of.record.hidden && !self.is_walked(*id);
                if !pins.contains_key(id) && (wanted(&these, of) || is_hidden) {
                    goes.insert(*id);
                }
            }
            for (clone, record) in self.clones.iter().filter(|(_, record)| record.died.is_some()) {
                let of_it =
                    self.list.iter().filter(|(id, of)| of.object() == *clone && !goes.contains(id));
                let of_it: Vec<Txg> = of_it.map(|(id, _)| id.txg()).collect();
                let shown = is_in_life(record, &left) || is_in_life(record, &of_it);
                if !shown && over.insert(*clone) {
                    unpin(&mut pins, record.snapshot);
                }
            }
            if before == (goes.len(), over.len()) {
                break;
            }
        }
        these.files.clear();
        for of in goes.iter().filter_map(|id| self.list.get(id)) {
            these.files.entry(of.object()).or_default().insert(of.txg());
        }
        these
    }

    /// The head goes back to a txg. Returns the records that change, and whether each stays.
    pub fn roll_clones_back(&mut self, to: Txg) -> Vec<(ObjectId, FileCloneRecord, bool)> {
        let changes = |of: &FileCloneRecord| of.forked > to || of.died.is_some_and(|on| on > to);
        let changed = self.clones.iter().filter(|(_, record)| changes(record));
        let changed = changed.map(|(id, record)| {
            (*id, FileCloneRecord { died: None, ..*record }, record.forked <= to)
        });
        let changed: Vec<_> = changed.collect();
        for (id, record, stays) in &changed {
            match stays {
                true => self.put_clone(*id, *record),
                false => self.take_clone(*id),
            }
        }
        changed
    }

    /// Whether a file began as one.
    pub fn is_pinned(&self, id: FileSnapshotId) -> bool {
        self.pins.contains_key(&id) && !left_out(Rule::FilePinsAreKept)
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
        let clones = self.clones.keys();
        list.chain(clones.map(|id| ItemKey::new(line, ItemClass::FileClone, id.0))).collect()
    }

    /// The names that are taken: by file, and by path.
    pub(super) fn names(&self) -> Names {
        let mut names = Names::default();
        for of in self.list.values().filter(|of| !of.record.hidden) {
            let FileSnapshotRecord { name, path, .. } = &of.record;
            names.of_files.insert((of.object(), name.clone()));
            names.of_paths.insert((path.clone(), name.clone()));
        }
        names
    }
}
