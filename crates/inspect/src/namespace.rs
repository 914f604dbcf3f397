//! The pool-wide trees: the namespace with its datasets, and the reply table.

mod lines;
mod users;

use std::collections::{BTreeMap, BTreeSet};

use aquifer_ondisk::Space;
use aquifer_ondisk::codec::{FormatError, Reader};
use aquifer_ondisk::covered::CoveredRecord;
use aquifer_ondisk::damage::{DamageKind, DamageRecord};
use aquifer_ondisk::dataset::{
    DatasetRecord, InheritedRecord, Item, ItemClass, LineRecord, ListerRecord, PROPERTY_STANDBY,
    RollbackRecord, SnapshotRecord, SweepRecord,
};
use aquifer_ondisk::free_work::FreeWorkRecord;
use aquifer_ondisk::head_line::LeftHeadRecord;
use aquifer_ondisk::keeping::{HoldClock, KeepRecord};
use aquifer_ondisk::open_work::OpenWorkRecord;
use aquifer_ondisk::pool_root::{PoolRoot, TreeSlot};
use aquifer_ondisk::receiving::ReceivingRecord;
use aquifer_ondisk::reply::REPLIES_MAX;
use aquifer_ondisk::resume::ResumeRecord;
use aquifer_ondisk::scrub::ScrubRecord;
use aquifer_ondisk::tree_node::{Namespace, NodeOwner, Replies};
use aquifer_ondisk::types::{DatasetId, ObjectId, Txg};
use aquifer_ondisk::user_property::UserPieces;

use crate::finding::{At, Kind};
use crate::objects::{self, How};
use crate::report::DatasetSummary;
use crate::scan::{Scan, Use};
use crate::snapshots::{self, Begun, Head, Snapshots};
use crate::tree::Walk;

/// Datasets above each other at most.
const DEPTH_MAX: usize = 256;

/// A dataset with the birth of the leaf that holds its record.
struct Dataset {
    record: DatasetRecord,
    birth: Txg,
    /// It is being emptied.
    destroyed: bool,
    /// It is a hidden line.
    hidden: bool,
}

impl Dataset {
    /// Whether it has a name, and lists snapshots.
    fn is_living(&self) -> bool {
        !self.destroyed && !self.hidden
    }
}

/// The content of the namespace.
#[derive(Default)]
struct Items {
    datasets: BTreeMap<DatasetId, Dataset>,
    snapshots: BTreeMap<DatasetId, Snapshots>,
    /// Datasets have one line, so far.
    lines: BTreeMap<DatasetId, LineRecord>,
    /// Datasets that list snapshots, if not those on whose lines they are.
    listers: BTreeMap<(DatasetId, Txg), Option<DatasetId>>,
    /// Space that clones, and snapshots of them, have of their origins.
    inherited: BTreeMap<(DatasetId, Txg), Space>,
    /// Datasets that stand by: not in service.
    standby: BTreeSet<DatasetId>,
    /// Datasets that items other than a record belong to.
    /// With the class of one of them.
    others: BTreeMap<DatasetId, u8>,
    /// Datasets of which the head is half of something, with the snapshots they go back to.
    receiving: BTreeMap<DatasetId, Txg>,
    /// Properties that users made up.
    users: BTreeMap<DatasetId, UserPieces>,
    /// How far streams have come that may go on.
    resumes: BTreeMap<DatasetId, ResumeRecord>,
    /// Old heads, with where what they had belongs.
    left_heads: BTreeMap<DatasetId, LeftHeadRecord>,
    /// The counter of dataset ids.
    next: Option<u64>,
}

/// Walks everything below a root. Returns the datasets.
pub(crate) async fn walk(scan: &mut Scan<'_>, root: &PoolRoot) -> Vec<DatasetSummary> {
    let mut items = Items::default();
    let owner = NodeOwner::default();
    let pointer = root.trees.first().copied().flatten();
    let mut tree = Walk::<Namespace>::new(owner, ObjectId(0), pointer, scan.txg, None);
    while let Some(leaf) = tree.next(scan).await {
        for item in leaf.entries {
            items.take(scan, &item, leaf.pointer.birth);
        }
    }
    items.link_files();
    if tree.whole {
        items.check(scan);
        users::check(scan, &items.users);
    }
    let mut summaries = Vec::new();
    for (id, dataset) in &items.datasets {
        // With that whose head it was.
        if items.left_in(*id).is_some() {
            continue;
        }
        let none = Snapshots::default();
        let of_it = items.snapshots.get(id).unwrap_or(&none);
        // Of others nobody asks what the head reaches.
        scan.head = of_it.are_there().then(|| Head::new(&scan.reach));
        for (old, left) in
            items.datasets.iter().filter(|(old, _)| items.left_in(**old) == Some(*id))
        {
            scan.left = Some(*id);
            summaries.push(walk_head(scan, &items, (*old, left)).await);
            scan.left = None;
        }
        scan.inherits = items.inherits(*id);
        scan.inherited = items.inherited.get(&(*id, Txg(0))).copied();
        scan.begun = of_it.files.begun();
        scan.line_floor = of_it.head_lines.floor();
        let mut summary = walk_head(scan, &items, (*id, dataset)).await;
        scan.line_floor = Txg(0);
        let head = scan.head.take().unwrap_or_else(|| Head::new(&[]));
        let record = (&dataset.record, dataset.birth);
        let pass = snapshots::walk(scan, *id, (record, dataset.destroyed), of_it, head).await;
        (scan.inherits, scan.inherited) = (None, None);
        scan.begun = Begun::default();
        let is_origin = items.has_clones(*id) || of_it.files.are_needed();
        if let Some(pass) = pass.filter(|_| is_origin) {
            scan.passes.insert(*id, pass);
        }
        summary.snapshots = of_it.list.len() as u64;
        summaries.push(summary);
    }
    summaries.sort_by_key(|summary| summary.id);
    snapshots::look_across(scan).await;
    // Replies may name a dataset that is gone.
    let next = items.next.filter(|_| tree.whole);
    walk_replies(scan, root, next).await;
    crate::history::walk(scan, root).await;
    walk_others(scan, root);
    summaries
}

/// The objects of a dataset.
async fn walk_head(
    scan: &mut Scan<'_>,
    items: &Items,
    (id, dataset): (DatasetId, &Dataset),
) -> DatasetSummary {
    let mut summary = DatasetSummary { id, name: items.path(id), ..DatasetSummary::default() };
    let is_half = items.receiving.contains_key(&id);
    let how = How { birth: dataset.birth, destroyed: dataset.destroyed, is_half };
    objects::walk(scan, id, &dataset.record, how, &mut summary).await;
    summary
}

/// A damage that the pool remembers.
fn remember(scan: &mut Scan<'_>, record: &DamageRecord) {
    let DamageRecord { dataset, object, ranges, error, .. } = record;
    let what = match record.kind {
        DamageKind::Unreadable if record.accepted => "could not be read, which was accepted",
        DamageKind::Unreadable => "could not be read",
        DamageKind::Lost => "lost changes",
    };
    let bytes: Vec<String> = ranges
        .iter()
        .map(|(from, to)| format!("{}-{}", from * 4096, to.saturating_mul(4096).saturating_sub(1)))
        .collect();
    scan.findings.add(Kind::DamageRemembered, At::object(*dataset, *object), || {
        format!("object {dataset}:{object} {what}: bytes {} ({error})", bytes.join(", "))
    });
}

/// An item of the pool itself that only has to be readable, if it is one.
fn of_the_pool(class: u8, number: u64, value: &[u8]) -> Option<Result<(), FormatError>> {
    match class {
        CLASS_SCRUB if number == 0 => Some(ScrubRecord::decode(value).map(drop)),
        CLASS_HOLD_CLOCK if number == 0 => Some(HoldClock::decode(value).map(drop)),
        CLASS_FREE_WORK => Some(FreeWorkRecord::decode(value).map(drop)),
        CLASS_OPEN_WORK => Some(OpenWorkRecord::decode(value).map(drop)),
        _ => None,
    }
}

/// Whether an item is of lines and rollbacks.
fn is_of_a_line(class: u8, number: u64) -> bool {
    match class {
        CLASS_LINE | CLASS_HEAD_LINE => true,
        CLASS_ROLLBACK | CLASS_LEFT_HEAD => number == 0,
        _ => false,
    }
}

impl Items {
    fn take(&mut self, scan: &mut Scan<'_>, item: &Item, birth: Txg) {
        let dataset = item.key.dataset;
        let (class, number) = item.key.class_and_number();
        let mut invalid = |why: String| {
            scan.findings.add(Kind::ItemInvalid, At::object(dataset, ObjectId(0)), || {
                format!("item {class}:{number} of dataset {dataset}: {why}")
            });
        };
        let mut twice = None;
        let read = match (dataset.0, class) {
            (0, CLASS_RECORD) if number == 0 => {
                let next = Reader::new(&item.value, "dataset counter").u64();
                next.map(|next| self.next = Some(next))
            }
            (0, CLASS_PROPERTY) => return,
            (0, CLASS_DAMAGE) => {
                match DamageRecord::decode(&item.value) {
                    Ok(record) => remember(scan, &record),
                    Err(error) => invalid(error.to_string()),
                }
                return;
            }
            (0, _) if let Some(read) = of_the_pool(class, number, &item.value) => {
                read.err().into_iter().for_each(|error| invalid(error.to_string()));
                return;
            }
            (0, _) => return invalid("dataset 0 is the pool itself".into()),
            (_, CLASS_RECORD | CLASS_DESTROYED | CLASS_HIDDEN_LINE) if number != 0 => {
                return invalid("a dataset has one record".into());
            }
            (_, CLASS_RECORD | CLASS_DESTROYED | CLASS_HIDDEN_LINE) => {
                DatasetRecord::decode(&item.value).map(|record| {
                    let (destroyed, hidden) =
                        (class == CLASS_DESTROYED, class == CLASS_HIDDEN_LINE);
                    let of = Dataset { record, birth, destroyed, hidden };
                    twice = self.datasets.insert(dataset, of);
                })
            }
            (_, class) if OF_FILES.contains(&class) => {
                let snapshots = self.snapshots.entry(dataset).or_default();
                snapshots.files.take(class, number, &item.value)
            }
            (_, CLASS_PROPERTY | CLASS_USER_PROPERTY) => {
                self.of_a_property(dataset, (class, number), &item.value);
                Ok(())
            }
            (_, class) if OF_SNAPSHOTS.contains(&class) => {
                self.of_a_snapshot(dataset, (class, Txg(number)), &item.value)
            }
            (_, CLASS_RECEIVING | CLASS_RESUME) if number == 0 => {
                self.of_a_receive(dataset, class, &item.value)
            }
            (_, CLASS_COVERED) => CoveredRecord::decode(&item.value).map(drop),
            (_, class) if is_of_a_line(class, number) => {
                self.of_a_line(dataset, (class, number), &item.value)
            }
            _ => return invalid("of no known class".into()),
        };
        if twice.is_some() {
            invalid("it has a record already".into());
        }
        let is_record = matches!(class, CLASS_RECORD | CLASS_DESTROYED | CLASS_HIDDEN_LINE);
        if !is_record && !matches!(class, CLASS_RESUME | CLASS_LEFT_HEAD) {
            self.others.insert(dataset, class);
        }
        if let Err(error) = read {
            // A dataset whose record is lost may own anything.
            scan.whole = scan.whole && !is_record;
            scan.findings.add(Kind::ItemInvalid, At::object(dataset, ObjectId(0)), || {
                format!("item {class}:{number} of dataset {dataset}: {error}")
            });
        }
    }

    fn of_a_line(
        &mut self,
        dataset: DatasetId,
        (class, number): (u8, u64),
        value: &[u8],
    ) -> Result<(), FormatError> {
        let snapshots = &mut self.snapshots;
        match class {
            CLASS_HEAD_LINE => {
                snapshots.entry(dataset).or_default().head_lines.take(Txg(number), value)?;
            }
            CLASS_ROLLBACK => {
                let record = RollbackRecord::decode(value)?;
                snapshots.entry(dataset).or_default().rollback = Some(record);
            }
            CLASS_LEFT_HEAD => {
                self.left_heads.insert(dataset, LeftHeadRecord::decode(value)?);
            }
            _ => drop(self.lines.insert(dataset, LineRecord::decode(value)?)),
        }
        Ok(())
    }

    fn of_a_receive(
        &mut self,
        dataset: DatasetId,
        class: u8,
        value: &[u8],
    ) -> Result<(), FormatError> {
        match class {
            CLASS_RESUME => drop(self.resumes.insert(dataset, ResumeRecord::decode(value)?)),
            _ => drop(self.receiving.insert(dataset, ReceivingRecord::decode(value)?.from)),
        }
        Ok(())
    }

    fn of_a_property(&mut self, dataset: DatasetId, (class, number): (u8, u64), value: &[u8]) {
        if class == CLASS_USER_PROPERTY {
            self.users.entry(dataset).or_default().take(number, value);
        } else if number == PROPERTY_STANDBY && value == b"on" {
            self.standby.insert(dataset);
        }
    }

    fn of_a_snapshot(
        &mut self,
        dataset: DatasetId,
        (class, txg): (u8, Txg),
        value: &[u8],
    ) -> Result<(), FormatError> {
        let snapshots = self.snapshots.entry(dataset).or_default();
        match class {
            CLASS_LISTER => {
                let lister = ListerRecord::decode(value)?.dataset;
                self.listers.insert((dataset, txg), lister);
            }
            CLASS_INHERITED => {
                let InheritedRecord(space) = InheritedRecord::decode(value)?;
                self.inherited.insert((dataset, txg), space);
            }
            CLASS_SNAPSHOT => {
                snapshots.list.insert(txg, SnapshotRecord::decode(value)?);
            }
            CLASS_BOOKMARK => snapshots.bookmarks.take(txg, value)?,
            CLASS_SWEEP => {
                snapshots.sweeps.insert(txg, SweepRecord::decode(value)?.left);
            }
            _ => {
                KeepRecord::decode(value)?;
                snapshots.kept.insert(txg);
            }
        }
        Ok(())
    }

    fn check(&self, scan: &mut Scan<'_>) {
        let mut invalid = |dataset: DatasetId, why: String| {
            scan.findings.add(Kind::DatasetInvalid, At::object(dataset, ObjectId(0)), || {
                format!("dataset {dataset}: {why}")
            });
        };
        for (dataset, class) in self.others.iter().filter(|(id, _)| !self.datasets.contains_key(id))
        {
            invalid(*dataset, format!("has items, of class {class}, and no record"));
        }
        let top = |dataset: &&Dataset| dataset.is_living() && dataset.record.parent.0 == 0;
        let roots = self.datasets.values().filter(top).count();
        if roots != 1 && !self.datasets.is_empty() {
            invalid(DatasetId(0), format!("{roots} datasets have none above them"));
        }
        self.check_lines(&mut invalid);
        self.check_across(&mut invalid);
        self.check_listers(&mut invalid);
        self.check_receiving(&mut invalid);
        self.check_resumes(&mut invalid);
        let (mut names, mut guids) = (BTreeSet::new(), BTreeSet::new());
        for id in self.others.keys() {
            if self.datasets.get(id).is_some_and(|dataset| dataset.destroyed) {
                invalid(*id, "is destroyed and has items besides its record".into());
            }
        }
        for (id, dataset) in &self.datasets {
            let record = &dataset.record;
            if self.next.is_none_or(|next| id.0 >= next) {
                invalid(*id, format!("the next new dataset is {:?}", self.next));
            }
            if !dataset.is_living() {
                continue;
            }
            let (parent, name) = (record.parent, record.name.as_str());
            if parent.0 != 0 && self.datasets.get(&parent).is_none_or(|above| !above.is_living()) {
                invalid(*id, format!("stands below dataset {parent}, which is not"));
            } else if self.components(*id).is_none() {
                invalid(*id, "stands below itself, or too deep".into());
            }
            if !names.insert((parent, name)) {
                invalid(*id, format!("name {name:?} stands twice below dataset {parent}"));
            }
            if name.is_empty() || name.contains(['/', '\0']) {
                invalid(*id, format!("{name:?} is no name"));
            }
            let guid = record.fs_guid;
            // What was received stands by, with the guid of what was sent.
            if guid.0 == 0 || !self.standby.contains(id) && !guids.insert(guid) {
                invalid(*id, format!("file system guid {:016x} is not its own", guid.0));
            }
        }
    }

    /// The names from the root dataset on; `None` if the path up does not end.
    fn components(&self, id: DatasetId) -> Option<Vec<&str>> {
        let (mut at, mut names) = (id, Vec::new());
        while let Some(dataset) = self.datasets.get(&at) {
            names.push(dataset.record.name.as_str());
            at = dataset.record.parent;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        Some(names)
    }

    /// The dataset, still there, whose head an old head was.
    fn left_in(&self, id: DatasetId) -> Option<DatasetId> {
        let of = self.left_heads.get(&id)?.dataset;
        let is_old = self.datasets.get(&id).is_some_and(|old| old.destroyed);
        (is_old
            && of != id
            && self.datasets.contains_key(&of)
            && !self.left_heads.contains_key(&of))
        .then_some(of)
    }

    fn path(&self, id: DatasetId) -> String {
        let record = self.datasets.get(&id).map(|dataset| &dataset.record);
        let own = || record.map_or(String::new(), |record| record.name.clone());
        self.components(id).map_or_else(own, |names| names.join("/"))
    }
}

/// The reply table: bounded, with calls that succeeded, in datasets that exist or existed.
/// (Ascending orders are checked in any tree.)
async fn walk_replies(scan: &mut Scan<'_>, root: &PoolRoot, next: Option<u64>) {
    let pointer = root.trees.get(TreeSlot::Replies as usize).copied().flatten();
    let owner = NodeOwner::default();
    let mut tree = Walk::<Replies>::new(owner, ObjectId(0), pointer, scan.txg, None);
    let mut entries = 0;
    while let Some(leaf) = tree.next(scan).await {
        entries += leaf.entries.len();
        let place = leaf.pointer.places[0];
        for entry in &leaf.entries {
            let unknown = next.is_some_and(|next| entry.dataset.0 >= next);
            if unknown || entry.dataset.0 == 0 || entry.status != 0 {
                scan.findings.add(Kind::ReplyInvalid, At::place(place, 1), || {
                    let (order, status, dataset) = (entry.order, entry.status, entry.dataset);
                    format!("reply {order}: status {status} for a change of dataset {dataset}")
                });
            }
        }
    }
    if entries > REPLIES_MAX {
        scan.findings.add(Kind::ReplyInvalid, At::nowhere(), || {
            format!("{entries} entries in the reply table, at most {REPLIES_MAX}")
        });
    }
}

/// Slots of the trees that are walked.
const KNOWN: [usize; 2] = [TreeSlot::Replies as usize, TreeSlot::History as usize];

/// Trees that only newer software writes.
fn walk_others(scan: &mut Scan<'_>, root: &PoolRoot) {
    for (slot, pointer) in root.trees.iter().enumerate().skip(TreeSlot::Namespace as usize + 1) {
        let Some(pointer) = pointer.filter(|_| !KNOWN.contains(&slot)) else {
            continue;
        };
        scan.whole = false;
        let first = pointer.places[0];
        scan.findings.add(Kind::Unsupported, At::place(first, 1), || {
            format!("the root's tree {slot} ({:?}, at {first:?}) is not known yet", pointer.kind)
        });
        for place in pointer.copies() {
            scan.mark(place, pointer.sectors(), Use::PoolNode, || {
                format!("tree {slot} of the root")
            });
        }
    }
}

// The classes of items.
const CLASS_RECORD: u8 = ItemClass::Record as u8;
const CLASS_PROPERTY: u8 = ItemClass::Property as u8;
const CLASS_SNAPSHOT: u8 = ItemClass::Snapshot as u8;
const CLASS_LINE: u8 = ItemClass::Line as u8;
const CLASS_SWEEP: u8 = ItemClass::Sweep as u8;
const CLASS_KEEP: u8 = ItemClass::Keep as u8;
const CLASS_HOLD_CLOCK: u8 = ItemClass::HoldClock as u8;
const CLASS_ROLLBACK: u8 = ItemClass::Rollback as u8;
const CLASS_SCRUB: u8 = ItemClass::Scrub as u8;
const CLASS_FREE_WORK: u8 = ItemClass::FreeWork as u8;
const CLASS_OPEN_WORK: u8 = ItemClass::OpenWork as u8;
const CLASS_DAMAGE: u8 = ItemClass::Damage as u8;
const CLASS_DESTROYED: u8 = ItemClass::Destroyed as u8;
const CLASS_INHERITED: u8 = ItemClass::Inherited as u8;
const CLASS_LISTER: u8 = ItemClass::Lister as u8;
const CLASS_HIDDEN_LINE: u8 = ItemClass::HiddenLine as u8;
/// Those of snapshots of datasets.
const OF_SNAPSHOTS: [u8; 6] =
    [CLASS_SNAPSHOT, CLASS_SWEEP, CLASS_KEEP, CLASS_LISTER, CLASS_INHERITED, CLASS_BOOKMARK];
/// Those of snapshots of files.
const OF_FILES: [u8; 7] = [
    ItemClass::FileSnapshot as u8,
    ItemClass::FileSweep as u8,
    ItemClass::FileKeep as u8,
    ItemClass::FileRollback as u8,
    ItemClass::FileClone as u8,
    ItemClass::FileLine as u8,
    ItemClass::FileCloneAcross as u8,
];
const CLASS_RECEIVING: u8 = ItemClass::Receiving as u8;
const CLASS_HEAD_LINE: u8 = ItemClass::HeadLine as u8;
const CLASS_COVERED: u8 = ItemClass::Covered as u8;
const CLASS_LEFT_HEAD: u8 = ItemClass::LeftHead as u8;
const CLASS_RESUME: u8 = ItemClass::Resume as u8;
const CLASS_BOOKMARK: u8 = ItemClass::Bookmark as u8;
const CLASS_USER_PROPERTY: u8 = ItemClass::UserProperty as u8;
