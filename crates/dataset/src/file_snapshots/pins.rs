//! Which snapshots of files clones and lines of files need.
//!
//! A clone of a file began as a snapshot of another one. A file that was rolled back past later
//! snapshots began again as a snapshot of itself: that is a line, one after the other. Each needs
//! its snapshot as long as something shows the file as it was on it.
//!
//! The snapshot may be of a file of another dataset. Then the record is where the clone is, since
//! it comes and goes with that dataset's rollbacks, and the pin where the snapshot is: a set, which
//! all records of the pool make ([`crate::across`]).

use std::collections::{BTreeMap, BTreeSet};

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::file_clone::{FileCloneAcrossRecord, FileCloneRecord, FileLineRecord};
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::{DatasetId, ObjectId, Txg};

use super::FileSnapshot;
use super::list::FileSnapshots;
use crate::dead::These;

/// Record that a file is judged by from one txg on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileLine {
    pub record: FileCloneRecord,
    /// The number of its item among the lines of files; `None`: the file was made as a clone.
    pub number: Option<u64>,
    /// The dataset of the snapshot, if it is another one.
    pub across: Option<DatasetId>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// By the file, and the txg in which it began on the line.
    lines: BTreeMap<(ObjectId, Txg), FileLine>,
    /// How many of them need a snapshot.
    counts: BTreeMap<FileSnapshotId, usize>,
    /// Those of them that need one of another dataset.
    across: usize,
    /// These may have changed since somebody looked.
    across_changed: bool,
    /// Snapshots that files of other datasets began as.
    of_others: BTreeSet<FileSnapshotId>,
}

/// Snapshots of files of a dataset, and lines of its files, that would end together.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    snapshots: BTreeSet<FileSnapshotId>,
    lines: BTreeSet<(ObjectId, Txg)>,
}

/// One of them needs a snapshot no more.
fn unpin(counts: &mut BTreeMap<FileSnapshotId, usize>, snapshot: FileSnapshotId) {
    match counts.get_mut(&snapshot) {
        Some(count) if *count > 1 => *count -= 1,
        _ => drop(counts.remove(&snapshot)),
    }
}

/// Whether one of these snapshots, in order, was taken while a file was on a line.
fn is_in_life(record: &FileCloneRecord, list: &[Txg]) -> bool {
    let from = list.partition_point(|txg| *txg < record.forked);
    list.get(from).is_some_and(|txg| record.may_be_shown(*txg))
}

impl FileLine {
    /// Its item, or that it has none any more.
    pub fn item(&self, dataset: DatasetId, object: ObjectId, stays: bool) -> PinItem {
        let key = self.key(dataset, object);
        let value = match (self.number, self.across) {
            (None, None) => self.record.encode(),
            (None, Some(dataset)) => FileCloneAcrossRecord { dataset, of: self.record }.encode(),
            (Some(_), _) => FileLineRecord { object, of: self.record }.encode(),
        };
        (key, stays.then_some(Item { key, value }))
    }

    fn key(&self, dataset: DatasetId, object: ObjectId) -> ItemKey {
        match self.number {
            None if self.across.is_some() => {
                ItemKey::new(dataset, ItemClass::FileCloneAcross, object.0)
            }
            None => ItemKey::new(dataset, ItemClass::FileClone, object.0),
            Some(number) => ItemKey::new(dataset, ItemClass::FileLine, number),
        }
    }
}

type PinItem = (ItemKey, Option<Item>);

impl Pins {
    fn put(&mut self, object: ObjectId, line: FileLine) {
        let key = (object, line.record.forked);
        self.take(key);
        self.lines.insert(key, line);
        match line.across {
            Some(_) => {
                self.across += 1;
                self.across_changed = true;
            }
            None => *self.counts.entry(line.record.snapshot).or_default() += 1,
        }
    }

    fn take(&mut self, key: (ObjectId, Txg)) {
        if let Some(line) = self.lines.remove(&key) {
            match line.across {
                Some(_) => {
                    self.across -= 1;
                    self.across_changed = true;
                }
                None => unpin(&mut self.counts, line.record.snapshot),
            }
        }
    }

    /// Those of a file, in order.
    fn of_file(&self, object: ObjectId) -> impl DoubleEndedIterator<Item = FileLine> {
        let ends = (object, Txg(0))..=(object, Txg(u64::MAX));
        self.lines.range(ends).map(|(_, line)| *line)
    }

    /// The txg in which a file left a line for the next one.
    fn end(&self, (object, forked): (ObjectId, Txg)) -> Option<Txg> {
        let later = (object, forked.next())..=(object, Txg(u64::MAX));
        self.lines.range(later).next().map(|((_, next), _)| *next)
    }

    /// The keys of their items.
    pub fn keys(&self, dataset: DatasetId) -> impl Iterator<Item = ItemKey> {
        self.lines.iter().map(move |((object, _), line)| line.key(dataset, *object))
    }

    /// Whether a file began as one, here or elsewhere.
    fn is_needed(&self, id: FileSnapshotId) -> bool {
        self.counts.contains_key(&id) || self.of_others.contains(&id)
    }

    /// Whether nothing shows a file as it was on a line: not the head, nor a snapshot of the
    /// dataset, given in order, or of the file.
    fn is_over(&self, key: (ObjectId, Txg), line: &FileLine, lists: [&[Txg]; 2]) -> bool {
        let [listed, of_it] = lists;
        let record = &line.record;
        // A snapshot of the file shows no tails: it is of the line that the file was on.
        let upto = self.end(key).map_or(of_it.len(), |end| of_it.partition_point(|of| *of < end));
        let of_it = of_it.get(..upto).unwrap_or_default();
        let shown = is_in_life(record, listed) || is_in_life(record, of_it);
        record.died.is_some() && (!shown || left_out(Rule::FilePinsOutliveHeads))
    }
}

impl FileSnapshots {
    /// Import, or a sync: a clone or a line, as it is now.
    pub fn put_line(&mut self, object: ObjectId, line: FileLine) {
        self.pins.put(object, line);
    }

    pub fn has_lines(&self) -> bool {
        !self.pins.lines.is_empty()
    }

    /// The lines of a file, in order, each with the txg in which the next one began.
    pub fn lines_of(&self, object: ObjectId) -> Vec<(FileLine, Option<Txg>)> {
        let all: Vec<FileLine> = self.pins.of_file(object).collect();
        let ends = all.iter().skip(1).map(|next| Some(next.record.forked)).chain([None]);
        all.iter().copied().zip(ends).collect()
    }

    /// The txg from which on a file is on its line; 0: it never left its first one.
    pub fn line_began(&self, object: ObjectId) -> Txg {
        self.pins.of_file(object).next_back().map_or(Txg(0), |line| line.record.forked)
    }

    /// A number for a line that begins in this txg.
    pub fn number_of_line(&self, txg: Txg) -> Option<u64> {
        let of_it = self.pins.lines.values().filter(|line| line.record.forked == txg);
        let index = of_it.filter(|line| line.number.is_some()).count();
        Some(FileLineRecord::number(txg, u16::try_from(index).ok()?))
    }

    /// Whether a file began as one.
    pub fn is_pinned(&self, id: FileSnapshotId) -> bool {
        self.pins.is_needed(id) && !left_out(Rule::FilePinsAreKept)
    }

    /// Snapshots of files of other datasets that files of this one began as.
    pub fn needs_of_others(&self) -> Vec<(DatasetId, FileSnapshotId)> {
        self.needs_left(&Ended::default())
    }

    /// Whether what it needs of others may have changed since this was asked.
    pub fn take_needs_changed(&mut self) -> bool {
        std::mem::take(&mut self.pins.across_changed)
    }

    /// A file of another dataset began as one.
    pub fn need(&mut self, id: FileSnapshotId) {
        self.pins.of_others.insert(id);
    }

    /// Returns the snapshots that files of other datasets began as.
    pub fn needed_by_others(&self) -> &BTreeSet<FileSnapshotId> {
        &self.pins.of_others
    }

    /// Sets the snapshots that files of other datasets began as, from now on. Returns those that
    /// they need no more.
    pub fn set_needed_by_others(
        &mut self,
        needed: BTreeSet<FileSnapshotId>,
    ) -> BTreeSet<FileSnapshotId> {
        let before = std::mem::replace(&mut self.pins.of_others, needed);
        before.difference(&self.pins.of_others).copied().collect()
    }

    /// Takes out the lines of which the head has nothing, and that no snapshot shows: neither one
    /// of the dataset, given in order, nor one of the file.
    pub fn take_lines_over(&mut self, listed: &[Txg]) -> Vec<(ObjectId, FileLine)> {
        let is_over = |key: &(ObjectId, Txg), line: &FileLine| {
            self.pins.is_over(*key, line, [listed, self.txgs_of(key.0)])
        };
        let over = self.pins.lines.iter().filter(|(key, line)| is_over(key, line));
        let over: Vec<_> = over.map(|(key, line)| (*key, *line)).collect();
        over.iter().for_each(|(key, _)| self.pins.take(*key));
        over.into_iter().map(|((object, _), line)| (object, line)).collect()
    }

    /// The head begins a line: it has none of them any more. Returns those whose records change.
    pub fn end_lines(&mut self, txg: Txg) -> Vec<(ObjectId, FileLine)> {
        let lives = self.pins.lines.iter().filter(|(_, line)| line.record.died.is_none());
        let end = |((object, _), line): (&(ObjectId, Txg), &FileLine)| {
            let record = FileCloneRecord { died: Some(txg), ..line.record };
            (*object, FileLine { record, ..*line })
        };
        let ended: Vec<_> = lives.map(end).collect();
        ended.iter().for_each(|(object, line)| self.pins.put(*object, *line));
        ended
    }

    /// The head goes back to a txg. Returns the lines whose records change, and whether each stays.
    pub fn roll_lines_back(&mut self, to: Txg) -> Vec<(ObjectId, FileLine, bool)> {
        let mut changed = Vec::new();
        for ((object, forked), line) in &self.pins.lines {
            if *forked > to || line.record.died.is_some_and(|died| died > to) {
                let record = FileCloneRecord { died: None, ..line.record };
                changed.push((*object, FileLine { record, ..*line }, *forked <= to));
            }
        }
        for (object, line, stays) in &changed {
            match stays {
                true => self.pins.put(*object, *line),
                false => self.pins.take((*object, line.record.forked)),
            }
        }
        changed
    }

    /// Snapshots that are to be destroyed, of `listed` and of files, as their blocks go: without
    /// those that clones and lines need, and with hidden ones that none needs then.
    pub fn with_pinned(&self, listed: impl FnOnce() -> Vec<Txg>, these: &These) -> These {
        let mut these = these.clone();
        if self.pins.lines.is_empty() && self.pins.of_others.is_empty() {
            return these;
        }
        let left: Vec<Txg> =
            listed().into_iter().filter(|of| !these.snapshots.contains(of)).collect();
        let wanted = |of: &FileSnapshot| {
            these.files.get(&of.object()).is_some_and(|txgs| txgs.contains(&of.txg()))
        };
        let mut ended = Ended::default();
        self.end_more(&left, &self.pins.of_others, wanted, &mut ended);
        these.files.clear();
        for of in ended.snapshots.iter().filter_map(|id| self.list.get(id)) {
            these.files.entry(of.object()).or_default().insert(of.txg());
        }
        these
    }

    /// Adds what ends too: those of the `wanted` snapshots, and of the hidden ones, that nothing
    /// needs, and lines that nothing shows then. `listed`: the snapshots of the dataset that stay,
    /// in order. `needed`: what files of other datasets began as. Returns whether that is more.
    pub fn end_more(
        &self,
        listed: &[Txg],
        needed: &BTreeSet<FileSnapshotId>,
        wanted: impl Fn(&FileSnapshot) -> bool,
        ended: &mut Ended,
    ) -> bool {
        let mut counts = self.pins.counts.clone();
        for key in &ended.lines {
            let line = self.pins.lines.get(key).filter(|line| line.across.is_none());
            line.iter().for_each(|line| unpin(&mut counts, line.record.snapshot));
        }
        let count = |ended: &Ended| (ended.snapshots.len(), ended.lines.len());
        let first = count(ended);
        loop {
            let before = count(ended);
            for (id, of) in &self.list {
                let is_hidden = of.record.hidden && !self.is_walked(*id);
                let is_needed = counts.contains_key(id) || needed.contains(id);
                if !is_needed && (is_hidden || wanted(of)) {
                    ended.snapshots.insert(*id);
                }
            }
            for (key, line) in self.pins.lines.iter().filter(|(_, of)| of.record.died.is_some()) {
                let of_it = self.of_file(key.0).filter(|of| !ended.snapshots.contains(&of.id));
                let of_it: Vec<Txg> = of_it.map(|of| of.txg()).collect();
                if self.pins.is_over(*key, line, [listed, &of_it])
                    && ended.lines.insert(*key)
                    && line.across.is_none()
                {
                    unpin(&mut counts, line.record.snapshot);
                }
            }
            if before == count(ended) {
                return first != before;
            }
        }
    }

    /// As [`FileSnapshots::needs_of_others`], without what the lines that ended need.
    pub fn needs_left(&self, ended: &Ended) -> Vec<(DatasetId, FileSnapshotId)> {
        if self.pins.across == 0 || left_out(Rule::FileClonesPinAcross) {
            return Vec::new();
        }
        let left = self.pins.lines.iter().filter(|(key, _)| !ended.lines.contains(key));
        left.filter_map(|(_, line)| Some((line.across?, line.record.snapshot))).collect()
    }
}
