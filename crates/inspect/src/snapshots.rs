//! The snapshots of a dataset: what they show is kept, and what is kept is shown.
//!
//! Each block of a snapshot is either the head's, too, or stands in the dead tree, in a bucket that
//! this snapshot lies in. Each dead block is met in a snapshot, or waits for a sweep. What the head
//! and a snapshot share is not looked at again.

mod bookmarks;
mod files;
mod lines;
mod pass;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use aquifer_ondisk::dataset::{DatasetRecord, RollbackRecord, SnapshotRecord};
use aquifer_ondisk::dead::{Bucket, DeadBlock, DeadBody, DeadKind, DeadSums};
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::tree_node::{Dead, NodeOwner};
use aquifer_ondisk::types::{DatasetId, ObjectId, Run, Txg};
use aquifer_ondisk::{BlockPointer, Place};

use crate::finding::{At, Kind};
use crate::scan::{Scan, Use};
use crate::sectors::SectorMap;
use crate::tree::Walk;

pub(crate) use bookmarks::Bookmarks;
use files::Shower;
pub(crate) use files::{Begun, Files};
pub(crate) use lines::{HeadLines, OfLine};
use pass::Coming;

/// Snapshots of a dataset, and the sweeps of those that were destroyed, by the txgs in which they
/// were taken.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pub list: BTreeMap<Txg, SnapshotRecord>,
    /// With the txg in which each left the list.
    pub sweeps: BTreeMap<Txg, Txg>,
    /// Those with holds or marks of schedules.
    pub kept: BTreeSet<Txg>,
    /// The newest rollback.
    pub rollback: Option<RollbackRecord>,
    /// The lines that its head began.
    pub head_lines: HeadLines,
    /// Those of its files.
    pub files: Files,
    /// Its bookmarks.
    pub bookmarks: Bookmarks,
}

impl Snapshots {
    /// Whether there are any.
    pub fn are_there(&self) -> bool {
        !self.list.is_empty() || !self.files.is_empty() || !self.bookmarks.list.is_empty()
    }

    /// Whether the blocks of a bucket mean nothing: a rollback brought them back.
    fn brought_back(&self, bucket: Bucket) -> bool {
        let Bucket { hi, lo, group } = bucket;
        if group == Bucket::OF_BOOKMARKS {
            return false;
        }
        let pending = self.rollback.filter(|rollback| rollback.pending);
        pending.is_some_and(|RollbackRecord { txg, to, .. }| lo < to && to <= hi && hi < txg)
            || self.files.brought_back(bucket)
    }
}

/// Nodes and data that the head of a dataset reaches.
#[derive(Debug)]
pub(crate) struct Head {
    /// When each node was written, by each of its places.
    nodes: HashMap<Place, Txg>,
    /// Nodes and data.
    map: Vec<Option<SectorMap>>,
}

impl Head {
    /// Of the vdevs of this map.
    pub fn new(vdevs: &[Option<SectorMap>]) -> Head {
        let empty = |map: &Option<SectorMap>| map.as_ref().map(SectorMap::emptied);
        Head { nodes: HashMap::new(), map: vdevs.iter().map(empty).collect() }
    }

    /// A node.
    pub fn enter_node(&mut self, pointer: &BlockPointer) {
        self.nodes.extend(pointer.copies().map(|place| (place, pointer.written)));
    }

    /// Sectors.
    pub fn enter(&mut self, place: Place, sectors: u64) {
        if let Some(Some(map)) = self.map.get_mut(usize::from(place.vdev())) {
            map.set(place.sector(), sectors);
        }
    }

    fn has_node(&self, pointer: &BlockPointer) -> bool {
        self.nodes.get(&pointer.places[0]) == Some(&pointer.written)
    }

    fn has(&self, place: Place) -> bool {
        let map = self.map.get(usize::from(place.vdev())).and_then(Option::as_ref);
        map.is_some_and(|map| map.count_in(place.sector(), 1) == 1)
    }
}

/// A dead block.
#[derive(Debug)]
struct Kept {
    bucket: Bucket,
    object: ObjectId,
    block: DeadBlock,
    /// It was cut off the object before.
    cut_off: bool,
    /// When it died.
    died: Txg,
    /// A snapshot shows it.
    met: bool,
}

/// Part that a dataset has of a file of another one.
#[derive(Debug)]
pub(crate) struct Across {
    /// The snapshot of that file.
    origin: (DatasetId, FileSnapshotId),
    what: AcrossWhat,
}

#[derive(Debug)]
enum AcrossWhat {
    Sectors(Run, (DeadKind, Txg)),
    /// A clone, and its tree.
    Tree(ObjectId, BlockPointer),
}

/// A clone of a file, and its floor: what was born up to there belongs to the file that it was
/// cloned from. A floor of 0 is that of any other object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Of {
    pub object: ObjectId,
    pub floor: Txg,
}

impl Of {
    fn inode(inode: &Inode) -> Of {
        Of { object: inode.object, floor: inode.clone_floor() }
    }

    /// Itself, if its floor is older: so who follows what files began as comes to an end.
    fn below(self, txg: Txg) -> Of {
        Some(self).filter(|of| of.floor < txg).unwrap_or_default()
    }
}

/// A clone of a file in the head, or a tail of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cloned {
    pub of: Of,
    /// The txg in which a tail was cut off; the last one of all for the file itself.
    pub cut: Txg,
}

/// Content with which a clone began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inherits {
    /// Up to this birth.
    pub floor: Txg,
    /// Dataset and txg of the snapshot.
    pub origin: (DatasetId, Txg),
}

/// Knowledge about a dataset while its snapshots, and its clones, are looked at.
#[derive(Debug)]
pub(crate) struct Pass {
    dataset: DatasetId,
    list: BTreeMap<Txg, SnapshotRecord>,
    lines: HeadLines,
    inherits: Option<Inherits>,
    /// Beginning of each clone of a file: the snapshot, and what its file was cloned from.
    origins: BTreeMap<Of, (Shower, Of)>,
    /// Beginning of those clones of files whose origin is in another dataset.
    across: BTreeMap<Of, (DatasetId, FileSnapshotId)>,
    /// Snapshots of files that files of other datasets began as.
    needed: BTreeMap<FileSnapshotId, (Shower, Of)>,
    head: Head,
    /// By place.
    dead: Vec<Kept>,
    /// Nodes of snapshots that were looked at.
    met: HashSet<(Place, Txg)>,
    /// And those that were left to other datasets.
    left: HashSet<(Place, Txg)>,
    whole: bool,
}

/// Checks the snapshots of a dataset whose record lies in a node born in `birth`, after its head. A
/// `destroyed` one is being emptied.
pub(crate) async fn walk(
    scan: &mut Scan<'_>,
    dataset: DatasetId,
    ((record, birth), destroyed): ((&DatasetRecord, Txg), bool),
    snapshots: &Snapshots,
    head: Head,
) -> Option<Pass> {
    let head_whole = scan.whole;
    let (dead, whole) = read_dead(scan, dataset, (record, birth), (snapshots, destroyed)).await;
    let (list, inherits) = (snapshots.list.clone(), scan.inherits);
    let (met, left, origins) = (HashSet::new(), HashSet::new(), snapshots.files.origins());
    let (across, needed) = (snapshots.files.origins_across(), snapshots.files.needed());
    let lines = snapshots.head_lines.clone();
    let mut pass = Pass {
        dataset,
        list,
        lines,
        inherits,
        origins,
        across,
        needed,
        head,
        dead,
        met,
        left,
        whole,
    };
    check_records(scan, dataset, record, snapshots);
    lines::check(scan, dataset, snapshots);
    snapshots.files.check(scan, dataset);
    snapshots.bookmarks.check(scan, dataset);
    let showing = snapshots.list.keys().chain(snapshots.bookmarks.list.keys());
    snapshots.files.check_clones(scan, dataset, &showing.copied().collect());
    // What was destroyed shows nothing any more: all of it waits to be freed.
    if !head_whole || !whole || destroyed {
        return None;
    }
    for (txg, snapshot) in &snapshots.list {
        let object = ObjectId(0);
        let (above, floor, of) = (*txg, Txg(0), Of::default());
        let root = snapshot.objects.map(|pointer| Coming { pointer, object, above, floor, of });
        pass.snapshot(scan, &Shower::of((txg, snapshot)), root).await;
    }
    for (txg, snapshot) in snapshots.files.iter() {
        let object = snapshot.inode.object;
        let (above, floor, of) = (txg, Txg(0), Of::inode(&snapshot.inode));
        let root = snapshot.inode.root;
        let root = root.map(|pointer| Coming { pointer, object, above, floor, of });
        pass.snapshot(scan, &Shower::of_file(txg, snapshot), root).await;
    }
    let of_line = std::mem::take(&mut scan.of_line);
    pass.line(scan, snapshots.head_lines.floor(), of_line).await;
    for (of, pointer) in std::mem::take(&mut scan.file_clones) {
        pass.file_clone(scan, of, pointer).await;
    }
    // Behind all that has data: what snapshots show is met.
    for (txg, bookmark) in &snapshots.bookmarks.list {
        let object = ObjectId(0);
        let (above, floor, of) = (*txg, Txg(0), Of::default());
        let root = bookmark.objects.map(|pointer| Coming { pointer, object, above, floor, of });
        let shower = Shower { bare: true, ..Shower::of((txg, bookmark)) };
        pass.snapshot(scan, &shower, root).await;
    }
    pass.check_dead(scan, snapshots);
    Some(pass)
}

/// A clone of a snapshot, or a snapshot of it, refers to these sectors, which it does not own.
pub(crate) fn meet_in(
    scan: &mut Scan<'_>,
    (dataset, txg): (DatasetId, Txg),
    run: Run,
    what: ((DeadKind, Txg), Of),
) {
    // Taken out meanwhile: so a chain of origins ends.
    let Some(mut pass) = scan.passes.remove(&dataset) else { return };
    if let Some(shower) = pass.list.get_key_value(&txg).map(Shower::of) {
        pass.meet(scan, &shower, run, what);
    }
    scan.passes.insert(dataset, pass);
}

/// Checks that what clones of files have of files of other datasets is kept there. Comes behind all
/// datasets.
pub(crate) async fn look_across(scan: &mut Scan<'_>) {
    while let Some(Across { origin: (dataset, snapshot), what }) = scan.across.pop() {
        let Some(mut pass) = scan.passes.remove(&dataset) else { continue };
        if let Some((shower, of)) = pass.needed.get(&snapshot).cloned() {
            // The file may be such a clone itself, of something older: so this comes to an end.
            let of = of.below(shower.txg);
            match what {
                AcrossWhat::Sectors(run, kind) => {
                    pass.meet(scan, &shower, run, (kind, of));
                }
                AcrossWhat::Tree(object, root) => {
                    pass.began_as(scan, (&shower, of), (object, root)).await;
                }
            }
        }
        scan.passes.insert(dataset, pass);
    }
}

fn invalid(scan: &mut Scan<'_>, dataset: DatasetId, why: impl Fn() -> String) {
    scan.findings.add(Kind::SnapshotInvalid, At::object(dataset, ObjectId(0)), || {
        format!("dataset {dataset}: {}", why())
    });
}

fn check_records(
    scan: &mut Scan<'_>,
    dataset: DatasetId,
    record: &DatasetRecord,
    snapshots: &Snapshots,
) {
    let mut guids = HashSet::from([record.fs_guid]);
    for (txg, snapshot) in &snapshots.list {
        let name = snapshot.name.as_str();
        if *txg > scan.txg || *txg == Txg(0) {
            invalid(scan, dataset, || format!("snapshot {name:?} is of txg {txg}"));
        }
        if name.is_empty() || name.contains(['/', '@', '\0']) {
            invalid(scan, dataset, || format!("{name:?} is no name of a snapshot"));
        }
        if snapshot.guid.0 == 0 || !guids.insert(snapshot.guid) {
            invalid(scan, dataset, || format!("snapshot {name:?} has no guid of its own"));
        }
    }
    if let Some(RollbackRecord { txg, to, .. }) = snapshots.rollback
        && (to >= txg || txg > scan.txg || to == Txg(0))
    {
        invalid(scan, dataset, || format!("was rolled back to {to} in {txg}"));
    }
    for (txg, left) in &snapshots.sweeps {
        if snapshots.list.contains_key(txg) || left <= txg || *left > scan.txg {
            invalid(scan, dataset, || format!("the snapshot of {txg} is swept since {left}"));
        }
    }
    for txg in snapshots.kept.iter().filter(|txg| !snapshots.list.contains_key(txg)) {
        invalid(scan, dataset, || format!("no snapshot is of {txg}, which has a keep record"));
    }
}

/// The dead blocks, by place, and whether all could be read.
async fn read_dead(
    scan: &mut Scan<'_>,
    dataset: DatasetId,
    (record, birth): (&DatasetRecord, Txg),
    (snapshots, destroyed): (&Snapshots, bool),
) -> (Vec<Kept>, bool) {
    let owner = NodeOwner { dataset, object: ObjectId(0) };
    let mut tree = Walk::<Dead>::new(owner, ObjectId(0), record.dead, birth, None);
    let (mut dead, mut all) = (Vec::new(), DeadSums::default());
    let (mut says, mut sums) = (BTreeMap::new(), BTreeMap::<Bucket, DeadSums>::new());
    while let Some(leaf) = tree.next(scan).await {
        for entry in leaf.entries {
            let (bucket, object) = (entry.key.bucket, entry.key.object);
            let blocks = match entry.body {
                DeadBody::Sums(sums) => {
                    says.insert(bucket, sums);
                    continue;
                }
                DeadBody::Blocks(blocks) => blocks,
            };
            // What was cut off a file has an id of its own, in the file's group.
            let is_of_none = !matches!(bucket.group, 0 | Bucket::OF_BOOKMARKS) && object.0 == 0;
            if entry.key.txg > leaf.pointer.birth || is_of_none {
                let at = At::object(dataset, object);
                scan.findings.add(Kind::BirthOrder, at, || {
                    let (died, above) = (entry.key.txg, leaf.pointer.birth);
                    format!("dead blocks of {dataset}:{object} died in {died}, a node of {above}")
                });
            }
            for block in blocks {
                for sums in [&mut all, sums.entry(bucket).or_default()] {
                    sums.add(&block);
                }
                if !snapshots.brought_back(bucket) {
                    let who = || format!("a dead {:?} of object {dataset}:{object}", block.kind);
                    scan.mark(block.run.place, block.run.sectors, Use::Dead, who);
                    let (died, cut_off) = (entry.key.txg, entry.key.is_cut_off());
                    dead.push(Kept { bucket, object, block, cut_off, died, met: false });
                }
            }
        }
    }
    if all != DeadSums::default() {
        sums.insert(Bucket::ALL, all);
    }
    // While it is emptied, from its end on, its sums stay as they were.
    if tree.whole && !destroyed && says != sums {
        scan.findings.add(Kind::DeadSums, At::object(dataset, ObjectId(0)), || {
            let differs = |bucket: &&Bucket| says.get(bucket) != sums.get(bucket);
            let wrong = says.keys().chain(sums.keys()).find(differs);
            let of = |of: &BTreeMap<Bucket, DeadSums>| wrong.and_then(|at| of.get(at)).copied();
            let (says, sum) = (of(&says), of(&sums));
            format!("dead tree of dataset {dataset}: bucket {wrong:?} says {says:?}, holds {sum:?}")
        });
    }
    dead.sort_unstable_by_key(|kept| kept.block.run.place);
    (dead, tree.whole)
}
