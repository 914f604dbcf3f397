//! A dataset's object table: each inode, and the tree below it.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_ondisk::Space;
use aquifer_ondisk::dataset::DatasetRecord;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{NodeOwner, Objects};
use aquifer_ondisk::types::{DatasetId, ORPHANS, ObjectId, Txg};

use crate::directory::{self, Reference};
use crate::extents;
use crate::finding::{At, Kind};
use crate::links::{Links, Object};
use crate::report::DatasetSummary;
use crate::scan::Scan;
use crate::snapshots::{Cloned, Of};
use crate::tree::Walk;

/// Results over all objects of a dataset.
#[derive(Default)]
struct Gathered {
    objects: Vec<Object>,
    references: Vec<Reference>,
    refer: Space,
    /// Files whose own extents do not add up to their claimed sum: the claim, and the extents' sum.
    unequal: BTreeMap<ObjectId, (Space, Space)>,
    /// Space of tails that were cut off a file and are not freed yet: they count in its sum.
    tails: BTreeMap<ObjectId, Space>,
    /// Space that a clone's origin owns.
    inherited: Space,
    /// Files that could not be read to their end, so that their sums are unknown.
    unread: BTreeSet<ObjectId>,
    /// Every directory could be read to its end.
    whole: bool,
    /// Its names have no meaning.
    unnamed: bool,
    /// It is being emptied.
    destroyed: bool,
    /// Of clones of files: what each says that it has of its origin, and what it and its tails
    /// have.
    cloned: BTreeMap<ObjectId, (Option<Space>, Space)>,
}

impl Gathered {
    /// A file, or a tail of one, whose extents were counted.
    fn count_cloned(&mut self, inode: &Inode, file: &extents::FileExtents) {
        if !inode.cloned {
            return;
        }
        let is_tail = inode.is_tail();
        let id = if is_tail { inode.origin } else { inode.object };
        let (says, has) = self.cloned.entry(id).or_default();
        *has = has.plus(file.cloned);
        if !is_tail {
            *says = Some(inode.inherited());
        }
    }
}

/// A dataset whose objects are walked.
#[derive(Clone, Copy)]
pub(crate) struct How {
    /// Birth of the node in which its record lies.
    pub birth: Txg,
    /// It is being emptied, or was being received: its names have no meaning any more, or none yet.
    /// If it has a floor, it is an old head that a rollback left: it owns only what was born above.
    pub destroyed: bool,
    /// Whether changes are being received into it: its names have no meaning for now.
    pub is_half: bool,
}

/// Walks the objects of a dataset.
pub(crate) async fn walk(
    scan: &mut Scan<'_>,
    id: DatasetId,
    record: &DatasetRecord,
    How { birth, destroyed, is_half }: How,
    summary: &mut DatasetSummary,
) {
    scan.floor = if destroyed { record.floor } else { Txg(0) };
    scan.file_clones.clear();
    scan.cloned.clear();
    scan.of_line.clear();
    let owner = NodeOwner { dataset: id, object: ObjectId(0) };
    let unnamed = destroyed || is_half;
    let mut gathered = Gathered { whole: true, unnamed, destroyed, ..Gathered::default() };
    let mut table = Walk::<Objects>::new(owner, ObjectId(0), record.objects, birth, None);
    while let Some(leaf) = table.next(scan).await {
        let roots: Vec<_> = leaf.entries.iter().filter_map(|inode| inode.root.as_ref()).collect();
        let mut pages =
            if scan.options.deep { Vec::new() } else { scan.media.read_ahead(&roots).await }
                .into_iter();
        for inode in &leaf.entries {
            let page = inode.root.and_then(|_| pages.next().flatten());
            let birth = leaf.pointer.birth;
            walk_object(scan, (id, record), inode, (birth, page), &mut gathered).await;
        }
    }
    summary.objects = gathered.objects.len() as u64;
    summary.entries = gathered.references.len() as u64;
    summary.refer_bytes = gathered.refer.bytes;
    if !unnamed {
        let mut links = Links::new(id, &mut gathered.objects);
        links.enter(scan, &gathered.references, table.whole);
        if table.whole && gathered.whole {
            links.check(scan, summary);
        }
    }
    // Of an old head only a part was looked at.
    let is_all = scan.floor == Txg(0);
    if is_all {
        check_sums(scan, id, &gathered, table.whole);
        if !destroyed {
            check_cloned(scan, id, &gathered);
        }
    }
    let says = Space { bytes: record.refer_bytes, saved_bytes: record.saved_bytes };
    if is_all && table.whole && gathered.refer != says {
        scan.findings.add(Kind::ReferBytes, At::object(id, ObjectId(0)), || {
            let sum = gathered.refer;
            format!("dataset {id}: says that it refers to {says}, its objects to {sum}")
        });
    }
    let is_read = table.whole && gathered.unread.is_empty();
    if let Some(says) = scan.inherited.filter(|says| is_read && *says != gathered.inherited) {
        scan.findings.add(Kind::ReferBytes, At::object(id, ObjectId(0)), || {
            let sum = gathered.inherited;
            format!("dataset {id}: says that its origin owns {says} of it, its objects {sum}")
        });
    }
    scan.floor = Txg(0);
    let directories = gathered.objects.iter().filter(|object| object.is_directory());
    summary.directories = directories.count() as u64;
}

async fn walk_object(
    scan: &mut Scan<'_>,
    (dataset, record): (DatasetId, &DatasetRecord),
    inode: &Inode,
    (birth, page): (Txg, Option<aquifer_blockio::Page>),
    gathered: &mut Gathered,
) {
    let id = inode.object;
    let owner = NodeOwner { dataset, object: id };
    let at = At::object(dataset, id);
    check_inode(scan, record, inode, &at);
    gathered.objects.push(Object::new(inode));
    gathered.refer = gathered.refer.plus(inode.refer());
    match inode.kind {
        FileKind::Directory => {
            let tree = Walk::new(owner, inode.origin, inode.root, birth, page);
            let references = &mut gathered.references;
            let count = directory::walk(scan, tree, owner, inode, references).await;
            gathered.whole &= count.is_some();
            // The list of orphans does not count its entries.
            let counts = id != ORPHANS && !gathered.unnamed && scan.floor == Txg(0);
            if let Some(count) = count.filter(|count| counts && *count != inode.entries) {
                scan.findings.add(Kind::EntryCount, at, || {
                    let says = inode.entries;
                    format!("directory {dataset}:{id}: says {says} entries, has {count}")
                });
            }
        }
        FileKind::Regular | FileKind::Symlink => {
            // What a tail shares with its file is looked at there, or may be gone.
            let (floor, counts) = (scan.floor, inode.floor() == Txg(0));
            scan.floor = floor.max(inode.floor());
            if floor > Txg(0) || gathered.destroyed {
                // What it began with is not looked at there.
                scan.floor = scan.floor.max(inode.clone_floor());
                if inode.cloned {
                    gathered.unread.extend([id, inode.origin]);
                }
            } else {
                enter_clone(scan, inode);
            }
            let tree = Walk::new(owner, inode.origin, inode.root, birth, page);
            // The size of a file that waits to be freed has no meaning any more.
            let size = if inode.nlink > 0 { inode.size.div_ceil(4096) } else { u64::MAX };
            let mut file = extents::walk(scan, tree, owner, size).await;
            (scan.floor, scan.of) = (floor, Of::default());
            if !counts {
                (file.inherited, file.refer, file.cloned) = Default::default();
            }
            gathered.count_cloned(inode, &file);
            gathered.inherited = gathered.inherited.plus(file.inherited);
            let (says, mut sum) = (inode.refer(), file.refer);
            if inode.origin != ObjectId(0) && inode.nlink == 0 {
                // A cut-off tail: its bytes count as those of the file it was cut from.
                let tails = gathered.tails.entry(inode.origin).or_default();
                *tails = tails.plus(sum);
                if !file.whole {
                    gathered.unread.insert(inode.origin);
                }
                sum = Space::default();
            }
            if !file.whole {
                gathered.unread.insert(id);
            } else if says != sum {
                gathered.unequal.insert(id, (says, sum));
            }
        }
        FileKind::Block | FileKind::Character | FileKind::Fifo | FileKind::Socket => {
            if inode.root.is_some() {
                let kind = inode.kind;
                scan.whole = false;
                scan.findings.add(Kind::ObjectInvalid, at, || {
                    format!("object {dataset}:{id}: a {kind:?} has no content, this one has a tree")
                });
            }
        }
    }
}

/// A clone of a file shares with another file what was born up to its floor.
fn enter_clone(scan: &mut Scan<'_>, inode: &Inode) {
    let object = if inode.is_tail() { inode.origin } else { inode.object };
    scan.of = Of { object, floor: inode.clone_floor() };
    scan.cut = if inode.is_tail() { Txg(inode.hash_seed) } else { Txg(u64::MAX) };
    if !inode.cloned || !scan.is_begun_here() {
        return;
    }
    scan.cloned.insert(Cloned { of: scan.of, cut: scan.cut });
    if inode.floor() == Txg(0) {
        let clone = inode.root.map(|root| (scan.of, root));
        scan.file_clones.extend(clone);
    }
}

/// Compares what clones of files say that they have of their origins with what they have.
fn check_cloned(scan: &mut Scan<'_>, dataset: DatasetId, gathered: &Gathered) {
    for (id, (says, has)) in &gathered.cloned {
        let Some(says) = says.filter(|says| says != has && !gathered.unread.contains(id)) else {
            continue;
        };
        scan.findings.add(Kind::ReferBytes, At::object(dataset, *id), || {
            format!(
                "object {dataset}:{id}: says that it has {says} of the file that it was \
                 cloned from, its extents {has}"
            )
        });
    }
}

/// Compares the referred bytes that files claim with their extents and the tails cut off them.
fn check_sums(scan: &mut Scan<'_>, dataset: DatasetId, gathered: &Gathered, whole: bool) {
    let tails_of = |id: &ObjectId| gathered.tails.get(id).copied().unwrap_or_default();
    let mut wrong: Vec<(ObjectId, Option<Space>, Space)> = Vec::new();
    for (id, (says, sum)) in &gathered.unequal {
        let sum = sum.plus(tails_of(id));
        if *says != sum && (whole || says.bytes < sum.bytes) {
            wrong.push((*id, Some(*says), sum));
        }
    }
    // Those whose own extents give the sum, without tails. (A file may go before its tail.)
    let mut there: Vec<ObjectId> = gathered.objects.iter().map(|object| object.id).collect();
    there.sort_unstable();
    for (id, tails) in &gathered.tails {
        let equal = !gathered.unequal.contains_key(id) && there.binary_search(id).is_ok();
        if equal && *tails != Space::default() {
            wrong.push((*id, None, *tails));
        }
    }
    for (id, says, sum) in wrong {
        if gathered.unread.contains(&id) {
            continue;
        }
        scan.findings.add(Kind::ReferBytes, At::object(dataset, id), || match says {
            Some(says) => format!(
                "object {dataset}:{id}: says that it refers to {says}, its extents to {sum}"
            ),
            None => format!("object {dataset}:{id}: does not count {sum} cut off it"),
        });
    }
}

fn check_inode(scan: &mut Scan<'_>, record: &DatasetRecord, inode: &Inode, at: &At) {
    let id = inode.object;
    if inode.damaged {
        scan.findings.add(Kind::ObjectDamaged, at.clone(), || {
            format!("object {id}: changes were lost, it is marked damaged")
        });
    }
    let mut invalid = |why: String| {
        scan.findings.add(Kind::ObjectInvalid, at.clone(), || format!("object {id}: {why}"));
    };
    if id == ObjectId(0) || id.0 >= record.next_object {
        invalid(format!("the next new object is {}", record.next_object));
    }
    if inode.mode & !0o7777 != 0 {
        invalid(format!("has mode {:o}", inode.mode));
    }
    let times = [inode.atime, inode.mtime, inode.ctime, inode.crtime];
    if times.iter().any(|time| time.nanoseconds >= 1_000_000_000) {
        invalid("has a time with more than a second of nanoseconds".into());
    }
    if !matches!(inode.kind, FileKind::Directory | FileKind::Regular | FileKind::Symlink)
        && inode.saved_bytes != 0
    {
        invalid(format!("has no content, and compression saves {} bytes", inode.saved_bytes));
    }
}
