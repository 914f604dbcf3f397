//! A dataset with a snapshot, which shares a page with the head, and what can be wrong with it.

use aquifer_inspect::{Kind, Report};
use aquifer_ondisk::dataset::{ItemClass, PROPERTY_STANDBY, SnapshotRecord, SweepRecord};
use aquifer_ondisk::dead::{Bucket, DeadBlock, DeadBody, DeadEntry, DeadKey, DeadKind, DeadSums};
use aquifer_ondisk::file_clone::FileCloneRecord;
use aquifer_ondisk::file_snapshot::{FileSnapshotId, FileSnapshotRecord};
use aquifer_ondisk::inode::{FileKind, Time};
use aquifer_ondisk::receiving::ReceivingRecord;
use aquifer_ondisk::tree_node::{Dead, Extents, NodeOwner, Objects};
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{BlockPointer, DatasetId, Guid, ObjectId, Txg};

use crate::tree::{PLAIN, ROOT, inode};
use crate::{content, kinds, only};

const TAKEN: Txg = Txg(11);
const DATASET: u64 = 2;

/// Snapshots of the second dataset, with what belongs to them, about to be written.
struct Sketch {
    snapshots: Vec<(u64, SnapshotRecord)>,
    sweeps: Vec<(u64, SweepRecord)>,
    bucket: Bucket,
    died: Txg,
    blocks: Vec<(u64, DeadBlock)>,
    /// Added to the sums that the tree claims.
    surplus: u64,
    more: Vec<(ItemClass, u64, Vec<u8>)>,
}

fn owner(object: u64) -> NodeOwner {
    NodeOwner { dataset: DatasetId(DATASET), object: ObjectId(object) }
}

fn block(kind: DeadKind, run: Run, birth: Txg) -> DeadBlock {
    DeadBlock { kind, run, birth, saved_sectors: 0 }
}

fn node_block(pointer: &BlockPointer) -> DeadBlock {
    block(DeadKind::Node, Run::new(pointer.places[0], 1), pointer.birth)
}

fn entries(sketch: &Sketch) -> Vec<DeadEntry> {
    let sectors: u64 = sketch.blocks.iter().map(|(_, block)| block.run.sectors).sum();
    let blocks = sketch.blocks.len() as u64 + sketch.surplus;
    let sums = |bucket: Bucket| {
        let sums = DeadSums { sectors, saved_sectors: 0, blocks };
        DeadEntry { key: bucket.sums(), body: DeadBody::Sums(sums) }
    };
    let mut entries = vec![sums(Bucket::ALL), sums(sketch.bucket)];
    for (index, (object, dead)) in (0..).zip(&sketch.blocks) {
        let (bucket, object) = (sketch.bucket, ObjectId(*object));
        let key = DeadKey { bucket, object, txg: sketch.died, index };
        entries.push(DeadEntry { key, body: DeadBody::Blocks(vec![*dead]) });
    }
    entries.sort_by_key(|entry| entry.key);
    entries
}

/// The snapshot of txg 11 shows a file of three pages and its trees; the head has written two of
/// the pages again.
fn with_snapshot(change: impl FnOnce(&mut Sketch)) -> Report {
    content(|pool, _, below| {
        let now = pool.txg;
        pool.txg = TAKEN;
        let old = pool.data(0, &[1, 2, 3]);
        let root = pool.tree::<Extents>(owner(PLAIN), vec![old.clone()], 3);
        let mut file = inode(PLAIN, FileKind::Regular, ROOT);
        (file.size, file.refer_bytes, file.root) = (3 * 4096, 3 * 4096, root);
        let objects = pool.tree::<Objects>(owner(0), vec![file.clone()], 3);
        pool.txg = now;
        below.add(ROOT, "plain", inode(PLAIN, FileKind::Regular, ROOT));
        let new = pool.data(0, &[4, 5]);
        below.file(PLAIN, vec![new, old.slice(2, 3).unwrap()]);
        below.settle();
        let record = SnapshotRecord {
            guid: Guid(77),
            created: Time::default(),
            refer_bytes: 3 * 4096,
            saved_bytes: 0,
            line: 1,
            objects,
            name: "before".into(),
        };
        let mut sketch = Sketch {
            snapshots: vec![(TAKEN.0, record)],
            sweeps: vec![],
            bucket: Bucket { group: 0, hi: TAKEN, lo: Txg(0) },
            died: now,
            blocks: vec![
                (0, node_block(&objects.unwrap())),
                (PLAIN, node_block(&root.unwrap())),
                (PLAIN, block(DeadKind::Extent, Run::new(old.place, 2), TAKEN)),
            ],
            surplus: 0,
            more: vec![],
        };
        change(&mut sketch);
        below.record.dead = pool.tree::<Dead>(owner(0), entries(&sketch), 2);
        let snapshots = sketch.snapshots.into_iter();
        below.more = snapshots.map(|(at, of)| (ItemClass::Snapshot, at, of.encode())).collect();
        let sweeps = sketch.sweeps.into_iter();
        below.more.extend(sweeps.map(|(at, of)| (ItemClass::Sweep, at, of.encode())));
        below.more.extend(sketch.more);
    })
}

#[test]
fn a_whole_snapshot() {
    let report = with_snapshot(|_| {});
    assert_eq!(kinds(&report), [], "{report}");
    let root = &report.summary.roots[0];
    assert_eq!((root.sectors.dead, root.datasets[1].snapshots), (4, 1));
}

#[test]
fn a_block_that_nothing_keeps() {
    // The page is free, or another's, while the snapshot shows it.
    let report = with_snapshot(|sketch| sketch.blocks[2].1.run.sectors = 1);
    let found = kinds(&report);
    assert!(found.contains(&Kind::SnapshotBlockGone), "{report}");
    let report = with_snapshot(|sketch| sketch.blocks.truncate(1));
    assert!(kinds(&report).contains(&Kind::SnapshotBlockGone), "{report}");
    // It is kept for other snapshots only.
    let report = with_snapshot(|sketch| {
        sketch.blocks[2].1.birth = Txg(10);
    });
    assert!(kinds(&report).contains(&Kind::SnapshotBlockGone), "{report}");
}

#[test]
fn what_is_kept_is_shown_or_swept() {
    let report = with_snapshot(|sketch| sketch.snapshots.clear());
    assert_eq!(report.count(Kind::DeadUnreached), 3, "{report}");
    assert_eq!(kinds(&report), [Kind::DeadUnreached], "{report}");
    let report = with_snapshot(|sketch| {
        sketch.snapshots.clear();
        sketch.sweeps.push((TAKEN.0, SweepRecord { left: Txg(12) }));
    });
    assert_eq!(kinds(&report), [], "{report}");
    // A snapshot lies between, and does not show it.
    let report = with_snapshot(|sketch| {
        let record = &mut sketch.snapshots[0].1;
        (record.objects, record.refer_bytes) = (None, 0);
    });
    assert_eq!(report.count(Kind::DeadUnreached), 3, "{report}");
}

#[test]
fn sums_and_records() {
    let report = with_snapshot(|sketch| sketch.surplus = 1);
    only(&report, Kind::DeadSums);
    let report = with_snapshot(|sketch| sketch.snapshots[0].1.name = "a/b".into());
    only(&report, Kind::SnapshotInvalid);
    let report = with_snapshot(|sketch| sketch.snapshots[0].1.guid = Guid(0));
    only(&report, Kind::SnapshotInvalid);
    let report = with_snapshot(|sketch| {
        sketch.sweeps.push((TAKEN.0, SweepRecord { left: Txg(12) }));
    });
    only(&report, Kind::SnapshotInvalid);
    let report = with_snapshot(|sketch| {
        let twin = SnapshotRecord { guid: Guid(78), ..sketch.snapshots[0].1.clone() };
        sketch.snapshots.push((12, twin));
    });
    assert!(kinds(&report).contains(&Kind::DatasetInvalid), "two of one name: {report}");
}

/// Changes that are being received into a dataset can be rolled back, and no client sees them.
#[test]
fn a_head_that_is_half_of_something() {
    let receiving = |from| (ItemClass::Receiving, 0, ReceivingRecord { from }.encode());
    let standby = || (ItemClass::Property, PROPERTY_STANDBY, b"on".to_vec());
    let report = with_snapshot(|sketch| sketch.more = vec![standby(), receiving(TAKEN)]);
    assert_eq!(kinds(&report), [], "{report}");
    let report = with_snapshot(|sketch| sketch.more = vec![receiving(TAKEN)]);
    only(&report, Kind::DatasetInvalid);
    let report = with_snapshot(|sketch| sketch.more = vec![standby(), receiving(Txg(10))]);
    only(&report, Kind::DatasetInvalid);
    // The stream may go on: it is of what changed since that snapshot.
    let resume = |from: Option<u64>| {
        let record = crate::datasets::resume(from.map(Guid));
        (ItemClass::Resume, 0, record.encode())
    };
    let guid = 77;
    let report = with_snapshot(|sketch| {
        sketch.more = vec![standby(), receiving(TAKEN), resume(Some(guid))];
    });
    assert_eq!(kinds(&report), [], "{report}");
    for of in [None, Some(guid ^ 1)] {
        let report = with_snapshot(|sketch| {
            sketch.more = vec![standby(), receiving(TAKEN), resume(of)];
        });
        only(&report, Kind::DatasetInvalid);
    }
    let report = with_snapshot(|sketch| sketch.more = vec![standby(), resume(Some(guid))]);
    only(&report, Kind::DatasetInvalid);
    let odd = (ItemClass::Receiving, 0, vec![1, 0, 0]);
    let report = with_snapshot(|sketch| sketch.more = vec![standby(), odd]);
    only(&report, Kind::ItemInvalid);
}

/// A clone of a file has the snapshot that it began as, and something shows the clone.
#[test]
fn a_record_of_a_clone_of_a_file() {
    let origin = |hidden| {
        let inode = inode(17, FileKind::Regular, 0);
        let (name, path, created) = ("v1".into(), "gold".into(), Time::default());
        let (guid, settled, schedule) = (Guid(99), true, None);
        let record = FileSnapshotRecord {
            guid,
            created,
            name,
            path,
            inode,
            settled,
            hidden,
            gathers: false,
            schedule,
        };
        (ItemClass::FileSnapshot, FileSnapshotId::new(Txg(10), 0).0, record.encode())
    };
    let clone = |died: Option<u64>| {
        let snapshot = FileSnapshotId::new(Txg(10), 0);
        let record = FileCloneRecord { snapshot, forked: TAKEN, died: died.map(Txg) };
        (ItemClass::FileClone, 18, record.encode())
    };
    let report = with_snapshot(|sketch| sketch.more = vec![origin(true), clone(Some(12))]);
    assert_eq!(kinds(&report), [], "{report}");
    // It is pinned by nothing.
    let report = with_snapshot(|sketch| sketch.more = vec![origin(true)]);
    only(&report, Kind::SnapshotInvalid);
    let report = with_snapshot(|sketch| sketch.more = vec![clone(Some(12))]);
    only(&report, Kind::SnapshotInvalid);
    // The head has no such file.
    let report = with_snapshot(|sketch| sketch.more = vec![origin(true), clone(None)]);
    only(&report, Kind::SnapshotInvalid);
    // Nothing shows it.
    let report = with_snapshot(|sketch| {
        sketch.snapshots.clear();
        sketch.sweeps.push((TAKEN.0, SweepRecord { left: Txg(12) }));
        sketch.more = vec![origin(true), clone(Some(12))];
    });
    only(&report, Kind::SnapshotInvalid);
    let odd = (ItemClass::FileClone, 18, vec![1, 0, 0]);
    let report = with_snapshot(|sketch| sketch.more = vec![odd]);
    only(&report, Kind::ItemInvalid);
}

#[test]
fn a_dead_block_of_the_head_is_used_twice() {
    let report = with_snapshot(|sketch| sketch.blocks[2].1.run.sectors = 3);
    assert!(kinds(&report).contains(&Kind::UsedTwice), "{report}");
}
