//! A dataset's object table: each inode, and the tree below it.

use aquifer_ondisk::dataset::DatasetRecord;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{NodeOwner, Objects};
use aquifer_ondisk::types::{DatasetId, ObjectId, Txg};

use crate::directory::{self, Reference};
use crate::extents;
use crate::finding::{At, Kind};
use crate::links::{Links, ORPHANS, Object};
use crate::report::DatasetSummary;
use crate::scan::Scan;
use crate::tree::Walk;

/// What is gathered over all objects of a dataset.
struct Gathered {
    objects: Vec<Object>,
    references: Vec<Reference>,
    refer_bytes: u64,
    /// Every directory could be read to its end.
    whole: bool,
}

/// Walks the objects of a dataset whose record lies in a node born in `birth`.
pub(crate) async fn walk(
    scan: &mut Scan<'_>,
    id: DatasetId,
    record: &DatasetRecord,
    birth: Txg,
    summary: &mut DatasetSummary,
) {
    let owner = NodeOwner { dataset: id, object: ObjectId(0) };
    let mut gathered =
        Gathered { objects: Vec::new(), references: Vec::new(), refer_bytes: 0, whole: true };
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
    summary.refer_bytes = gathered.refer_bytes;
    let mut links = Links::new(id, &mut gathered.objects);
    links.enter(scan, &gathered.references, table.whole);
    if table.whole && gathered.whole {
        links.check(scan, summary);
    }
    if table.whole && gathered.refer_bytes != record.refer_bytes {
        scan.findings.add(Kind::ReferBytes, At::object(id, ObjectId(0)), || {
            let (says, sum) = (record.refer_bytes, gathered.refer_bytes);
            format!("dataset {id}: says that it refers to {says} bytes, its objects to {sum}")
        });
    }
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
    gathered.refer_bytes = gathered.refer_bytes.saturating_add(inode.refer_bytes);
    match inode.kind {
        FileKind::Directory => {
            let tree = Walk::new(owner, inode.origin, inode.root, birth, page);
            let references = &mut gathered.references;
            let count = directory::walk(scan, tree, owner, inode, references).await;
            gathered.whole &= count.is_some();
            // The list of orphans does not count its entries.
            let counts = id != ORPHANS;
            if let Some(count) = count.filter(|count| counts && *count != inode.entries) {
                scan.findings.add(Kind::EntryCount, at, || {
                    let says = inode.entries;
                    format!("directory {dataset}:{id}: says {says} entries, has {count}")
                });
            }
        }
        FileKind::Regular | FileKind::Symlink => {
            let tree = Walk::new(owner, inode.origin, inode.root, birth, page);
            // Of what waits to be freed, the size says nothing any more.
            let size = if inode.nlink > 0 { inode.size.div_ceil(4096) } else { u64::MAX };
            let file = extents::walk(scan, tree, owner, size).await;
            // A cut-off tail counts nothing: its bytes went with the cut.
            let counts = inode.origin == ObjectId(0) || inode.nlink > 0;
            if counts && file.whole && file.refer_bytes != inode.refer_bytes {
                scan.findings.add(Kind::ReferBytes, at, || {
                    let (says, sum) = (inode.refer_bytes, file.refer_bytes);
                    format!(
                        "object {dataset}:{id}: says that it refers to {says} bytes, its \
                         extents to {sum}"
                    )
                });
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

fn check_inode(scan: &mut Scan<'_>, record: &DatasetRecord, inode: &Inode, at: &At) {
    let id = inode.object;
    let mut invalid = |why: String| {
        scan.findings.add(Kind::ObjectInvalid, at.clone(), || format!("object {id}: {why}"));
    };
    if id == ObjectId(0) || id.0 >= record.next_object {
        invalid(format!("the next new object is {}", record.next_object));
    }
    if inode.generation >= record.next_generation {
        let (is, next) = (inode.generation, record.next_generation);
        invalid(format!("is of generation {is}, the next new one is {next}"));
    }
    if inode.mode & !0o7777 != 0 {
        invalid(format!("has mode {:o}", inode.mode));
    }
    let times = [inode.atime, inode.mtime, inode.ctime, inode.crtime];
    if times.iter().any(|time| time.nanoseconds >= 1_000_000_000) {
        invalid("has a time with more than a second of nanoseconds".into());
    }
    if inode.kind != FileKind::Directory && inode.entries != 0 {
        invalid(format!("is no directory and has {} entries", inode.entries));
    }
}
