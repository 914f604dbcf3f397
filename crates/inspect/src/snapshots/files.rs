//! Snapshots of single files, as the items of a dataset name them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;

use aquifer_ondisk::FormatError;
use aquifer_ondisk::dataset::{ItemClass, SnapshotRecord};
use aquifer_ondisk::dead::Bucket;
use aquifer_ondisk::file_clone::{FileCloneAcrossRecord, FileCloneRecord, FileLineRecord};
use aquifer_ondisk::file_snapshot::{
    FileRollbackRecord, FileSnapshotId, FileSnapshotRecord, FileSweepRecord,
};
use aquifer_ondisk::keeping::KeepRecord;
use aquifer_ondisk::types::{DatasetId, ObjectId, Txg};

use super::{Cloned, Kept, Of, invalid};
use crate::scan::Scan;

/// The snapshots of the files of a dataset, and the sweeps of those that were destroyed.
#[derive(Debug, Default)]
pub(crate) struct Files {
    list: BTreeMap<FileSnapshotId, FileSnapshotRecord>,
    sweeps: BTreeMap<FileSnapshotId, FileSweepRecord>,
    /// Those with holds.
    kept: BTreeSet<FileSnapshotId>,
    /// Rollbacks whose blocks still stand in the dead tree.
    rollbacks: BTreeMap<FileSnapshotId, FileRollbackRecord>,
    lines: Lines,
    /// Of them, those that began as a snapshot of a file of another dataset.
    across: BTreeMap<(ObjectId, Txg), DatasetId>,
    /// Snapshots as which files of other datasets began.
    needed: BTreeSet<FileSnapshotId>,
    shown: BTreeSet<(ObjectId, Txg)>,
    gathering: BTreeSet<(ObjectId, Txg)>,
    swept: BTreeSet<(ObjectId, Txg)>,
    /// Two are of one file and one txg.
    twice: Option<FileSnapshotId>,
}

/// Clones and lines of files, by the file and the txg in which it began so.
type Lines = BTreeMap<(ObjectId, Txg), FileCloneRecord>;

fn line_of<'l>(
    lines: &'l Lines,
    object: &Cloned,
) -> Option<((ObjectId, Txg), &'l FileCloneRecord)> {
    let before = (object.of.object, Txg(0))..(object.of.object, object.cut);
    let (key, record) = lines.range(before).next_back()?;
    (record.floor() == object.of.floor).then_some((*key, record))
}

/// Files that began as snapshots of files.
#[derive(Debug, Default)]
pub(crate) struct Begun(Lines);

impl Begun {
    /// Whether the head has an object on a line that began in it. A part that was cut off before
    /// that is not on it, though the line may have begun as the same snapshot.
    pub fn has(&self, object: Cloned) -> bool {
        line_of(&self.0, &object).is_some_and(|(_, record)| record.died.is_none())
    }
}

/// A snapshot that shows blocks.
#[derive(Debug, Clone)]
pub(super) struct Shower {
    pub txg: Txg,
    pub name: String,
    /// It is one of this file.
    pub file: Option<ObjectId>,
    /// Whether the data that it shows of the file may stand in group 0 still.
    pub gathers: bool,
    /// It is a bookmark, which has no data.
    pub bare: bool,
}

impl Shower {
    pub fn of((txg, record): (&Txg, &SnapshotRecord)) -> Shower {
        Shower { name: record.name.clone(), ..Shower::at(*txg) }
    }

    /// One of all files, without a name.
    pub fn at(txg: Txg) -> Shower {
        Shower { txg, name: String::new(), file: None, gathers: false, bare: false }
    }

    /// One of a file.
    pub fn of_file(txg: Txg, record: &FileSnapshotRecord) -> Shower {
        let name = format!("{}@{}", record.path, record.name);
        let (file, gathers) = (Some(record.inode.object), record.gathers);
        Shower { name, file, gathers, ..Shower::at(txg) }
    }

    /// Whether a dead block is one that it shows.
    pub fn shows(&self, Kept { bucket, object, block, died, .. }: &Kept) -> bool {
        if self.bare {
            return block.birth <= self.txg && self.txg < *died;
        }
        let in_life = bucket.lo < self.txg && self.txg <= bucket.hi;
        let in_group = self.file.is_none_or(|file| {
            file.0 == bucket.group || self.gathers && bucket.group == 0 && file == *object
        });
        in_life && in_group && bucket.group != Bucket::OF_BOOKMARKS
    }
}

impl Files {
    /// An item of one of their classes.
    pub fn take(&mut self, class: u8, number: u64, value: &[u8]) -> Result<(), FormatError> {
        let id = FileSnapshotId(number);
        if class == ItemClass::FileSweep as u8 {
            let record = FileSweepRecord::decode(value)?;
            self.swept.insert((record.object, id.txg()));
            self.sweeps.insert(id, record);
            return Ok(());
        }
        if class == ItemClass::FileClone as u8 {
            let record = FileCloneRecord::decode(value)?;
            self.lines.insert((ObjectId(number), record.forked), record);
            return Ok(());
        }
        if class == ItemClass::FileCloneAcross as u8 {
            let FileCloneAcrossRecord { dataset, of } = FileCloneAcrossRecord::decode(value)?;
            let key = (ObjectId(number), of.forked);
            self.across.insert(key, dataset);
            return match self.lines.insert(key, of) {
                None => Ok(()),
                Some(_) => Err(FormatError::invalid("file clone record: number", number)),
            };
        }
        if class == ItemClass::FileLine as u8 {
            let FileLineRecord { object, of } = FileLineRecord::decode(value)?;
            if of.forked != id.txg() || self.lines.insert((object, of.forked), of).is_some() {
                return Err(FormatError::invalid("file line record: number", number));
            }
            return Ok(());
        }
        if class == ItemClass::FileKeep as u8 {
            if KeepRecord::decode(value)?.schedule.is_some() {
                return Err(FormatError::invalid("keep record of a file: schedule", number));
            }
            self.kept.insert(id);
            return Ok(());
        }
        if class == ItemClass::FileRollback as u8 {
            self.rollbacks.insert(id, FileRollbackRecord::decode(value)?);
            return Ok(());
        }
        let record = FileSnapshotRecord::decode(value)?;
        if !self.shown.insert((record.inode.object, id.txg())) {
            self.twice = Some(id);
        }
        if record.gathers {
            self.gathering.insert((record.inode.object, id.txg()));
        }
        self.list.insert(id, record);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Txg, &FileSnapshotRecord)> {
        self.list.iter().map(|(id, record)| (id.txg(), record))
    }

    /// Returns the beginning of each clone or line of a file: the snapshot, and what its file was
    /// judged by. That is older, whatever the records say: so who follows them comes to an end.
    pub(super) fn origins(&self) -> BTreeMap<Of, (Shower, Of)> {
        let origin = |(key, record): (&(ObjectId, Txg), &FileCloneRecord)| {
            if self.across.contains_key(key) {
                return None;
            }
            let object = &key.0;
            let (txg, known) = (record.floor(), self.list.get(&record.snapshot)?);
            let of = Of::inode(&known.inode).below(txg);
            Some((Of { object: *object, floor: txg }, (Shower::of_file(txg, known), of)))
        };
        self.lines.iter().filter_map(origin).collect()
    }

    /// Returns the snapshot as which each clone of a file of another dataset began.
    pub(super) fn origins_across(&self) -> BTreeMap<Of, (DatasetId, FileSnapshotId)> {
        let origin = |(key, dataset): (&(ObjectId, Txg), &DatasetId)| {
            let record = self.lines.get(key)?;
            let of = Of { object: key.0, floor: record.floor() };
            Some((of, (*dataset, record.snapshot)))
        };
        self.across.iter().filter_map(origin).collect()
    }

    /// The files that began as snapshots of files.
    pub fn begun(&self) -> Begun {
        Begun(self.lines.clone())
    }

    /// Lists the snapshots that other datasets keep for files of this one.
    pub fn needs(&self) -> Vec<(DatasetId, FileSnapshotId)> {
        self.origins_across().into_values().collect()
    }

    /// A file of another dataset began as one.
    pub fn need(&mut self, id: FileSnapshotId) {
        self.needed.insert(id);
    }

    /// Whether files of other datasets began as some of them.
    pub fn are_needed(&self) -> bool {
        !self.needed.is_empty()
    }

    /// Those that files of other datasets began as, and are not there.
    pub fn missing(&self) -> impl Iterator<Item = FileSnapshotId> {
        self.needed.iter().filter(|id| !self.list.contains_key(id)).copied()
    }

    /// Those that they began as, and what their files were judged by.
    pub(super) fn needed(&self) -> BTreeMap<FileSnapshotId, (Shower, Of)> {
        let known = |id: &FileSnapshotId| {
            let known = self.list.get(id)?;
            Some((*id, (Shower::of_file(id.txg(), known), Of::inode(&known.inode))))
        };
        self.needed.iter().filter_map(known).collect()
    }

    /// Whether a file was cloned from one, or began again as it.
    fn is_pinned(&self, id: FileSnapshotId) -> bool {
        let is_of_it = |(key, record): (&(ObjectId, Txg), &FileCloneRecord)| {
            record.snapshot == id && !self.across.contains_key(key)
        };
        self.needed.contains(&id) || self.lines.iter().any(is_of_it)
    }

    /// The line that an object of the head is on: the newest one that its file began before the
    /// object was cut off it.
    fn line_of(&self, object: &Cloned) -> Option<((ObjectId, Txg), &FileCloneRecord)> {
        line_of(&self.lines, object)
    }

    /// Whether each of them is there for clones of files only.
    pub fn are_hidden_and_pinned(&self) -> bool {
        self.list.iter().all(|(id, of)| of.hidden && self.is_pinned(*id))
    }

    /// Each clone has the snapshot that it began as, and something shows the clone. `listed`: the
    /// snapshots of the dataset, and its bookmarks.
    pub fn check_clones(&self, scan: &mut Scan<'_>, dataset: DatasetId, listed: &BTreeSet<Txg>) {
        let mut has = BTreeSet::new();
        for object in &std::mem::take(&mut scan.cloned) {
            match self.line_of(object) {
                Some((key, _)) => drop(has.insert(key)),
                None => invalid(scan, dataset, || {
                    let (id, floor) = (object.of.object, object.of.floor);
                    format!("object {id} began as a snapshot of {floor}, and nothing keeps that")
                }),
            }
        }
        for (key, record) in &self.lines {
            let FileCloneRecord { snapshot, forked, died } = *record;
            let id = key.0;
            if !self.across.contains_key(key) && !self.list.contains_key(&snapshot) {
                invalid(scan, dataset, || {
                    let txg = snapshot.txg();
                    format!("file {id} began as a snapshot of a file of {txg}, which is not")
                });
            }
            if forked > scan.txg || died.is_some_and(|died| died > scan.txg) {
                invalid(scan, dataset, || format!("file {id} began again in {forked}"));
            }
            let has = has.contains(key);
            if scan.whole && has != died.is_none() {
                invalid(scan, dataset, || {
                    format!(
                        "file {id} as it began in {forked} died in {died:?}, and the head has it: \
                         {has}"
                    )
                });
            }
            let Some(died) = died else { continue };
            let life = forked..=Txg(died.0.saturating_sub(1));
            if listed.range(life.clone()).next().is_none() && !self.shows(id, &life) {
                invalid(scan, dataset, || {
                    format!("nothing shows file {id} as it began in {forked}")
                });
            }
        }
    }

    /// Whether a rollback of a file brought back the blocks of a bucket.
    pub fn brought_back(&self, Bucket { group, hi, lo }: Bucket) -> bool {
        self.rollbacks.iter().any(|(to, FileRollbackRecord { object, txg, pending })| {
            let to = to.txg();
            *pending && object.0 == group && lo < to && to <= hi && hi < *txg
        })
    }

    /// Whether one of a file lies in a life.
    pub fn shows(&self, file: ObjectId, life: &RangeInclusive<Txg>) -> bool {
        is_in(&self.shown, file, life)
    }

    /// Whether one of a file does that finds some of it in group 0 still.
    pub fn gathers(&self, file: ObjectId, life: &RangeInclusive<Txg>) -> bool {
        is_in(&self.gathering, file, life)
    }

    /// Whether the sweep of one of a file does.
    pub fn sweeps(&self, file: ObjectId, life: &RangeInclusive<Txg>) -> bool {
        is_in(&self.swept, file, life)
    }

    pub fn check(&self, scan: &mut Scan<'_>, dataset: DatasetId) {
        let (mut guids, mut names) = (HashSet::new(), HashSet::new());
        for (id, of) in &self.list {
            let (txg, name, path) = (id.txg(), of.name.as_str(), of.path.as_str());
            let mut wrong = |why: &str| {
                invalid(scan, dataset, || format!("snapshot {name:?} of file {path:?} {why}"));
            };
            if txg == Txg(0) || self.twice == Some(*id) {
                wrong("has no txg of its own");
            }
            if name.is_empty() || name.contains(['/', '@', '\0']) || path.is_empty() {
                wrong("has no such name");
            }
            if of.guid.0 == 0 || !guids.insert(of.guid) {
                wrong("has no guid of its own");
            }
            if of.hidden && !self.rollbacks.contains_key(id) && !self.is_pinned(*id) {
                wrong("is hidden for no rollback and no clone");
            }
            if of.hidden {
                continue;
            }
            if !names.insert((None, Some(path), name))
                || !names.insert((Some(of.inode.object), None, name))
            {
                wrong("has the name of another");
            }
            if of.inode.root.is_some_and(|root| root.birth > txg) || of.inode.nlink == 0 {
                wrong("is of no file of its txg");
            }
        }
        for id in &self.kept {
            if self.list.get(id).is_none_or(|of| of.hidden) {
                invalid(scan, dataset, || {
                    format!("no snapshot of a file is listed in {}, which has holds", id.txg())
                });
            }
        }
        for (id, sweep) in &self.sweeps {
            let FileSweepRecord { object, left } = *sweep;
            if self.list.contains_key(id) || left <= id.txg() {
                invalid(scan, dataset, || {
                    format!("the snapshot of file {object} in {} is swept since {left}", id.txg())
                });
            }
        }
        let mut files = BTreeSet::new();
        for (id, FileRollbackRecord { object, txg, pending }) in &self.rollbacks {
            if *pending && !files.insert(*object) || *txg <= id.txg() || *txg > scan.txg {
                invalid(scan, dataset, || {
                    format!("file {object} was rolled back to {} in {txg}", id.txg())
                });
            }
        }
        let txgs = self.list.keys().map(|id| id.txg());
        let txgs = txgs.chain(self.sweeps.values().map(|sweep| sweep.left));
        if let Some(txg) = txgs.max().filter(|txg| *txg > scan.txg) {
            invalid(scan, dataset, || format!("has a snapshot of a file, or its sweep, of {txg}"));
        }
    }
}

fn is_in(of: &BTreeSet<(ObjectId, Txg)>, file: ObjectId, life: &RangeInclusive<Txg>) -> bool {
    of.range((file, *life.start())..=(file, *life.end())).next().is_some()
}

#[cfg(test)]
mod tests {
    use aquifer_ondisk::Guid;
    use aquifer_ondisk::inode::{FileKind, Inode, Time};

    use super::*;

    fn inode(object: u64, floor: Txg) -> Inode {
        let time = Time::default();
        Inode {
            object: ObjectId(object),
            generation: 1,
            kind: FileKind::Regular,
            damaged: false,
            cloned: true,
            mode: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            refer_bytes: 0,
            saved_bytes: 0,
            entries: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            change: 0,
            parent: ObjectId(0),
            line: floor.0,
            origin: ObjectId(0),
            verifier: 0,
            hash_seed: 0,
            root: None,
        }
    }

    #[test]
    fn a_clone_began_as_something_older_whatever_its_records_say() {
        let snapshot = FileSnapshotId::new(Txg(8), 0);
        for (floor, judged_by) in [(8, 0), (9, 0), (7, 7)] {
            let mut files = Files::default();
            let record = FileSnapshotRecord {
                guid: Guid(1),
                created: Time::default(),
                name: "a".into(),
                path: "f".into(),
                inode: inode(20, Txg(floor)),
                settled: true,
                hidden: false,
                gathers: false,
                schedule: None,
            };
            let clone = FileCloneRecord { snapshot, forked: Txg(9), died: None };
            let (of_snapshot, of_clone) = (ItemClass::FileSnapshot, ItemClass::FileClone);
            files.take(of_snapshot as u8, snapshot.0, &record.encode()).unwrap();
            files.take(of_clone as u8, 20, &clone.encode()).unwrap();
            let origins = files.origins();
            let (_, of) = &origins[&Of { object: ObjectId(20), floor: Txg(8) }];
            assert_eq!(of.floor, Txg(judged_by), "{floor}");
        }
    }
}
