//! Trees: nodes, extents, directories, objects, datasets.

use aquifer_inspect::{Kind, Options, Report, inspect};
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::dead::{DeadEntry, DeadKind};
use aquifer_ondisk::extent::Stored;
use aquifer_ondisk::inode::FileKind;
use aquifer_ondisk::tree_node::NodeOwner;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Place, Txg};

use crate::pool::{HandPool, NodeDraft, Shape};
use crate::tree::{
    Content, DEEPER, FIFO, LINKED, ORPHAN, ORPHANS, PACKED, PLAIN, ROOT, SUB, SYMLINK, TAIL,
    compressed, counter, inode, namespace, write_all,
};
use crate::{block_on, changed, good, kinds, look, look_deep, only};

/// A whole pool but for one node (the `nth` of its kind and level).
fn node_changed(
    wanted: (BlockKind, u8, usize),
    change: impl Fn(&mut NodeDraft) + 'static,
) -> HandPool {
    changed(Shape::Single, |pool, _, _| {
        pool.hooks.node = Box::new(move |draft| {
            if (draft.kind, draft.level, draft.nth) == wanted {
                change(draft);
            }
        });
    })
}

/// A whole pool but for the content.
fn content(change: impl FnOnce(&mut HandPool, &mut Content, &mut Content)) -> Report {
    look(changed(Shape::Single, change).arcs())
}

const EXTENTS: BlockKind = BlockKind::Extents;
const OBJECTS: BlockKind = BlockKind::Objects;
const DIRECTORY: BlockKind = BlockKind::Directory;
const NAMESPACE: BlockKind = BlockKind::Namespace;

/// One node of every kind and level of the sample.
const NODES: [(BlockKind, u8, usize); 9] = [
    (EXTENTS, 0, 1),
    (EXTENTS, 1, 0),
    (EXTENTS, 2, 0),
    (OBJECTS, 0, 0),
    (OBJECTS, 1, 0),
    (DIRECTORY, 0, 1),
    (DIRECTORY, 1, 0),
    (NAMESPACE, 0, 1),
    (NAMESPACE, 1, 0),
];

// ---- nodes ------------------------------------------------------------------------------------

#[test]
fn a_damaged_node_is_one_error() {
    for wanted in NODES {
        let pool = node_changed(wanted, |draft| draft.bytes[0] ^= 1);
        let report = look(pool.arcs());
        let found = kinds(&report);
        // What the lost part owned cannot be told from leaks; that is a warning.
        assert_eq!(found.first(), Some(&Kind::NodeInvalid), "{wanted:?} {report}");
        assert_eq!(report.count(Kind::NodeInvalid), 1);
        assert!(found[1..].iter().all(|kind| *kind == Kind::LeakUnknown), "{wanted:?} {report}");
        assert!(!report.summary.roots[0].whole);
    }
}

#[test]
fn rot_in_the_only_copy() {
    let mut places = vec![];
    let pool = good(Shape::Single);
    let mut sectors = pool.disks[0].written();
    sectors.retain(|sector| {
        let page = pool.disks[0].page(*sector);
        let node = page.starts_with(b"AQTN") && page[7] == 0 && page[6] != NAMESPACE as u8;
        if node {
            places.push(Place::new(0, *sector));
        }
        node
    });
    assert!(sectors.len() > 15);
    for place in places {
        let pool = good(Shape::Single);
        pool.disks[0].flip(place.sector(), 4000, 1);
        let report = look(pool.arcs());
        let found = report.findings.iter().find(|finding| finding.kind == Kind::NodeUnreadable);
        assert_eq!(found.unwrap().at.run, Some(Run::new(place, 1)), "{report}");
        assert_eq!(report.count(Kind::NodeUnreadable), 1);
        let pool = good(Shape::Single);
        pool.disks[0].mark_unreadable(place.sector());
        assert_eq!(look(pool.arcs()).count(Kind::NodeUnreadable), 1);
    }
}

#[test]
fn rot_in_one_of_two_copies() {
    let pool = good(Shape::Single);
    let [first, second] = pool.trees[0].unwrap().places;
    pool.disks[0].flip(first.sector(), 4000, 1);
    // The first one is read in any case, the second one on demand.
    assert_eq!(only(&look(pool.arcs()), Kind::CopyBad).at.run.unwrap().place, first);
    pool.disks[0].flip(first.sector(), 4000, 1);
    pool.disks[0].flip(second.sector(), 4000, 1);
    assert_eq!(kinds(&look(pool.arcs())), []);
    assert_eq!(only(&look_deep(pool.arcs()), Kind::CopyBad).at.run.unwrap().place, second);
}

#[test]
fn rot_on_one_side() {
    for disk in 0..2 {
        let pool = good(Shape::Mirror);
        let place = pool.trees[0].unwrap().places[0];
        pool.disks[disk].flip(place.sector(), 4000, 1);
        let report = look_deep(pool.arcs());
        let name = format!("diskd{disk}");
        assert_eq!(only(&report, Kind::CopyBad).at.disk, Some(name));
    }
}

#[test]
fn pointers_that_do_not_fit() {
    for wanted in NODES {
        for change in [
            |draft: &mut NodeDraft| draft.pointer.level += 1,
            |draft: &mut NodeDraft| draft.pointer.stored_bytes = 8192,
            |draft: &mut NodeDraft| draft.pointer.logical_bytes = 100,
            |draft: &mut NodeDraft| draft.pointer.kind = BlockKind::Dead,
            |draft: &mut NodeDraft| draft.pointer.level = 200,
        ] {
            let report = look(node_changed(wanted, change).arcs());
            // A root of a wrong level is only seen when it is decoded.
            let count = report.count(Kind::PointerInvalid) + report.count(Kind::NodeInvalid);
            assert_eq!(count, 1, "{wanted:?} {report}");
        }
    }
}

#[test]
fn keys_outside_the_parents_range() {
    // The second key of an inner node becomes smaller than what lies below the first.
    for (wanted, offset) in [((EXTENTS, 1, 0), 64 + 72), ((OBJECTS, 1, 0), 64 + 72)] {
        let pool = node_changed(wanted, move |draft| draft.bytes[offset] = 5);
        let report = look(pool.arcs());
        assert!(report.count(Kind::NodeBounds) >= 1, "{wanted:?} {report}");
    }
    // A first key above the first entry below it.
    let pool = node_changed((DIRECTORY, 1, 0), |draft| draft.bytes[64 + 1] ^= 1);
    let report = look(pool.arcs());
    let lower = report.count(Kind::NodeBounds) == 1;
    assert!(lower || report.is_clean(), "a lower bound may lie lower: {report}");
}

#[test]
fn children_in_the_wrong_order_are_no_node() {
    let pool = node_changed((NAMESPACE, 1, 0), |draft| draft.bytes[64] = 0xff);
    assert_eq!(look(pool.arcs()).count(Kind::NodeInvalid), 1);
}

#[test]
fn an_empty_node() {
    let pool = node_changed((DIRECTORY, 0, 0), |draft| draft.bytes[8..12].fill(0));
    assert_eq!(look(pool.arcs()).count(Kind::NodeInvalid), 1);
}

#[test]
fn nodes_of_another_owner() {
    for wanted in NODES {
        // Dataset, object, txg of writing.
        for offset in [16, 24, 32] {
            let pool = node_changed(wanted, move |draft| draft.bytes[offset] ^= 0x40);
            only(&look(pool.arcs()), Kind::NodeOwner);
        }
    }
}

#[test]
fn births_above_what_they_lie_in() {
    for wanted in NODES {
        let pool = node_changed(wanted, |draft| draft.pointer.birth.0 += 1);
        let report = look(pool.arcs());
        assert_eq!(kinds(&report), [Kind::BirthOrder], "{wanted:?} {report}");
        let pool = node_changed(wanted, |draft| draft.pointer.birth.0 -= 1);
        let report = look(pool.arcs());
        assert!(report.count(Kind::BirthOrder) >= 1, "{wanted:?} {report}");
    }
}

#[test]
fn a_missing_second_copy() {
    let mut left = None;
    let pool = changed(Shape::Single, |pool, _, _| {
        pool.hooks.node = Box::new(|draft| {
            if (draft.kind, draft.level) == (OBJECTS, 1) && draft.nth == 0 {
                draft.pointer.places[1] = Place::NULL;
            }
        });
        left = Some(());
    });
    let report = look(pool.arcs());
    assert_eq!(report.count(Kind::CopyMissing), 1, "{report}");
}

#[test]
fn a_tree_that_leads_into_itself() {
    // An inner node whose first child is its second child's sector: met twice, read once.
    let pool = node_changed((OBJECTS, 1, 0), |draft| {
        let second = draft.bytes[64 + 72 + 8..64 + 72 + 16].to_vec();
        draft.bytes[64 + 8..64 + 16].copy_from_slice(&second);
    });
    let report = look(pool.arcs());
    assert!(!report.is_clean());
    // A node that is its own child cannot be: its checksum would have to hold itself. But every
    // child may be the same node.
    let pool = node_changed((EXTENTS, 1, 0), |draft| {
        let first = draft.bytes[64 + 8..64 + 72].to_vec();
        draft.bytes[64 + 72 + 8..64 + 144].copy_from_slice(&first);
    });
    let report = look(pool.arcs());
    assert_eq!(report.count(Kind::UsedTwice), 1, "{report}");
}

// ---- extents ----------------------------------------------------------------------------------

#[test]
fn extents_that_overlap() {
    let report = content(|_, sample, _| {
        let extents = sample.files.get_mut(&PLAIN).unwrap();
        extents[4].page = extents[3].page + 3;
    });
    only(&report, Kind::ExtentOverlap);
    // Across a leaf's end: the next leaf's first extent begins before the end of this one's last.
    let report = content(|_, sample, _| {
        let extents = sample.files.get_mut(&PLAIN).unwrap();
        extents[2].page = extents[3].page - 2;
    });
    assert_eq!(kinds(&report), [Kind::ExtentOverlap]);
    assert_eq!(report.count(Kind::ExtentOverlap), 2);
}

#[test]
fn extents_that_contradict_themselves() {
    let cases: [(Kind, fn(&mut aquifer_ondisk::extent::Extent)); 5] = [
        (Kind::BirthOrder, |extent| extent.birth = Txg(13)),
        (Kind::BirthOrder, |extent| extent.written = Txg(13)),
        (Kind::BirthOrder, |extent| (extent.birth, extent.written) = (Txg(0), Txg(0))),
        (Kind::Unsupported, |extent| extent.counted = true),
        (Kind::ExtentInvalid, |extent| extent.page = (1 << 48) - 2),
    ];
    for (kind, change) in cases {
        let report = content(|_, sample, _| {
            change(sample.files.get_mut(&PLAIN).unwrap().last_mut().unwrap());
        });
        only(&report, kind);
    }
    // Early data: written before it entered the tree.
    let report = content(|_, sample, _| {
        sample.files.get_mut(&PLAIN).unwrap()[3].written = Txg(11);
    });
    assert_eq!(kinds(&report), []);
}

#[test]
fn extents_beyond_the_end() {
    let report = content(|_, sample, _| sample.inodes.get_mut(&PLAIN).unwrap().size -= 4096);
    only(&report, Kind::ExtentBeyondSize);
    assert!(report.is_clean());
}

#[test]
fn extents_across_segments() {
    let report = content(|pool, sample, _| {
        let extent = &mut sample.files.get_mut(&PLAIN).unwrap()[0];
        pool.free(Run::new(extent.place, 4));
        pool.cursor[0] = pool.cursor[0].next_multiple_of(1024) + 1022;
        extent.place = Place::new(0, pool.cursor[0]);
        let run = Run::new(extent.place, 4);
        pool.allocated.push(run);
        pool.used[0][run.place.sector() as usize..][..4].fill(true);
        pool.cursor[0] += 4;
    });
    only(&report, Kind::ExtentAcrossSegments);
}

#[test]
fn tenancies_split_or_crossed() {
    let split = content(|_, sample, _| {
        // Three entries a leaf instead of seven.
        sample.owners.insert(SYMLINK, SYMLINK);
        let extents = sample.files.remove(&PACKED).unwrap();
        sample.inodes.get_mut(&SYMLINK).unwrap().size = 1 << 20;
        sample.inodes.get_mut(&SYMLINK).unwrap().refer_bytes += 25 * 4096;
        let packed = sample.inodes.get_mut(&PACKED).unwrap();
        (packed.size, packed.refer_bytes) = (0, 0);
        let link = sample.files.get_mut(&SYMLINK).unwrap();
        link.extend(extents.into_iter().map(|mut extent| {
            extent.page += 16;
            extent
        }));
    });
    assert_eq!(kinds(&split), [Kind::TenancySplit], "{split}");

    let crossed = content(|pool, sample, _| {
        let one = compressed(pool, 40, 70, &[(0, 1), (2, 1)]);
        let mut other = compressed(pool, 41, 71, &[(0, 1), (2, 1)]);
        let extents = sample.files.get_mut(&PACKED).unwrap();
        extents.truncate(6);
        extents.push(one[0].clone());
        extents.push(other.remove(0));
        extents.push(one[1].clone());
        extents.push(other.remove(0));
        let mut left = sample.files.remove(&PACKED).unwrap();
        let left = left.split_off(6);
        sample.file(PACKED, left);
        sample.settle();
    });
    assert!(crossed.count(Kind::ExtentInvalid) >= 1, "{crossed}");

    let contradicting = content(|_, sample, _| {
        let part = &mut sample.files.get_mut(&PACKED).unwrap()[2];
        let Stored::Compressed { checksum, .. } = &mut part.stored else { panic!() };
        *checksum += 1;
    });
    only(&contradicting, Kind::ExtentInvalid);

    let before_the_file = content(|pool, sample, _| {
        let mut extents = compressed(pool, 0, 70, &[(4, 1)]);
        extents[0].page = 1;
        sample.file(SYMLINK, extents);
        sample.settle();
    });
    assert_eq!(before_the_file.count(Kind::ExtentInvalid), 1, "{before_the_file}");
}

#[test]
fn sums_of_referred_bytes() {
    let report = content(|_, sample, _| {
        sample.inodes.get_mut(&PLAIN).unwrap().refer_bytes += 4096;
        sample.settle();
    });
    assert_eq!(only(&report, Kind::ReferBytes).at.object, Some(ObjectId(PLAIN)));
    let report = content(|_, sample, _| sample.record.refer_bytes -= 1);
    assert_eq!(only(&report, Kind::ReferBytes).at.object, None);
}

#[test]
fn bad_data() {
    for page in [0, 3] {
        let mut place = Place::NULL;
        let pool = changed(Shape::Single, |_, sample, _| {
            place = Place(sample.files[&PLAIN][4].place.0 + page);
        });
        pool.disks[0].flip(place.sector(), 17, 1);
        assert_eq!(kinds(&look(pool.arcs())), []);
        let report = look_deep(pool.arcs());
        assert_eq!(only(&report, Kind::DataBad).at.run, Some(Run::new(place, 1)));
        pool.disks[0].flip(place.sector(), 17, 1);
        pool.disks[0].mark_unreadable(place.sector());
        only(&look_deep(pool.arcs()), Kind::DataBad);
    }
    let mut place = Place::NULL;
    let pool = changed(Shape::Single, |_, sample, _| place = sample.files[&PACKED][0].place);
    pool.disks[0].flip(place.sector() + 2, 17, 1);
    assert_eq!(only(&look_deep(pool.arcs()), Kind::DataBad).at.run, Some(Run::new(place, 3)));
}

#[test]
fn bad_data_on_one_side() {
    let mut place = Place::NULL;
    let pool = changed(Shape::Mirror, |_, sample, _| place = sample.files[&PLAIN][4].place);
    pool.disks[1].flip(place.sector() + 1, 17, 1);
    let sides = Options {
        deep: true,
        ..Options::default()
    };
    let report = block_on(inspect(pool.arcs(), &sides));
    assert_eq!(only(&report, Kind::CopyBad).at.disk.as_deref(), Some("diskd1"));
    // Another page is bad on the other side: each page is good somewhere.
    pool.disks[0].flip(place.sector() + 2, 17, 1);
    let report = look_deep(pool.arcs());
    assert_eq!(kinds(&report), [Kind::CopyBad], "{report}");
    assert_eq!(report.count(Kind::CopyBad), 2);
    pool.disks[0].flip(place.sector() + 1, 17, 1);
    assert_eq!(look_deep(pool.arcs()).count(Kind::DataBad), 1);
}

// ---- directories ------------------------------------------------------------------------------

#[test]
fn names_that_may_not_be() {
    for name in ["", ".", "..", "a/b", "a\0b"] {
        let report = content(|_, sample, _| {
            let node = inode(30, FileKind::Fifo, ROOT);
            sample.add(ROOT, name, node);
        });
        only(&report, Kind::NameInvalid);
    }
}

#[test]
fn names_that_stand_twice() {
    let report = content(|_, sample, _| {
        let node = inode(30, FileKind::Fifo, ROOT);
        sample.add(ROOT, "fifo", node);
        sample.directories.get_mut(&ROOT).unwrap().last_mut().unwrap().key += 1;
    });
    only(&report, Kind::NameTwice);
    // Across the leaves of a directory, and between others of the same hash.
    let report = content(|_, sample, _| {
        for (id, name) in (30..).zip(["fifo", "x", "y", "z"]) {
            sample.add(ROOT, name, inode(id, FileKind::Fifo, ROOT));
            let key = sample.directories[&ROOT].iter().find(|entry| entry.object.0 == FIFO);
            let key = key.unwrap().key;
            sample.directories.get_mut(&ROOT).unwrap().last_mut().unwrap().key = key + 37 - id;
        }
    });
    assert_eq!(kinds(&report), [Kind::NameTwice, Kind::KeyMismatch]);
    assert_eq!((report.count(Kind::NameTwice), report.count(Kind::KeyMismatch)), (1, 3));
}

#[test]
fn keys_that_do_not_follow_from_the_name() {
    for object in [ROOT, ORPHANS] {
        let report = content(move |_, sample, _| {
            sample.directories.get_mut(&object).unwrap()[0].key ^= 1 << 20;
        });
        only(&report, Kind::KeyMismatch);
    }
}

#[test]
fn counts_of_entries() {
    let report = content(|_, sample, _| sample.inodes.get_mut(&SUB).unwrap().entries += 1);
    assert_eq!(only(&report, Kind::EntryCount).at.object, Some(ObjectId(SUB)));
}

#[test]
fn entries_that_name_nothing() {
    let report = content(|_, sample, _| {
        sample.inodes.remove(&FIFO);
    });
    assert_eq!(only(&report, Kind::EntryDangling).at.object, Some(ObjectId(ROOT)));
}

#[test]
fn entries_that_say_other_things() {
    let report = content(|_, sample, _| {
        sample.directories.get_mut(&ROOT).unwrap()[0].generation += 1;
    });
    only(&report, Kind::EntryWrong);
    let report = content(|_, sample, _| {
        sample.directories.get_mut(&SUB).unwrap()[0].kind = FileKind::Symlink;
    });
    only(&report, Kind::EntryWrong);
}

#[test]
fn counts_of_links() {
    for (id, by) in [(LINKED, 1), (PLAIN, 3), (ROOT, 1), (SUB, 1), (ORPHANS, 5)] {
        let report = content(move |_, sample, _| sample.inodes.get_mut(&id).unwrap().nlink += by);
        assert_eq!(only(&report, Kind::LinkCount).at.object, Some(ObjectId(id)));
    }
    let report = content(|_, sample, _| sample.inodes.get_mut(&PLAIN).unwrap().nlink = 0);
    assert_eq!(only(&report, Kind::LinkCount).at.object, Some(ObjectId(PLAIN)));
    // A directory in two places.
    let report = content(|_, sample, _| {
        let node = sample.inodes[&DEEPER].clone();
        sample.name(SUB, "twice", &node);
        sample.inodes.get_mut(&SUB).unwrap().nlink += 1;
    });
    assert_eq!(only(&report, Kind::LinkCount).at.object, Some(ObjectId(DEEPER)));
}

#[test]
fn parents_that_are_not() {
    let report = content(|_, sample, _| {
        sample.inodes.get_mut(&DEEPER).unwrap().parent = ObjectId(ROOT);
    });
    assert_eq!(only(&report, Kind::ParentWrong).at.object, Some(ObjectId(DEEPER)));
}

#[test]
fn directories_that_hold_each_other() {
    let report = content(|_, sample, _| {
        let mut one = inode(30, FileKind::Directory, 31);
        let mut two = inode(31, FileKind::Directory, 30);
        (one.nlink, two.nlink) = (3, 3);
        sample.inodes.insert(30, one.clone());
        sample.inodes.insert(31, two.clone());
        sample.name(30, "two", &two);
        sample.name(31, "one", &one);
    });
    assert_eq!(kinds(&report), [Kind::DirectoryLoop]);
    assert_eq!(report.count(Kind::DirectoryLoop), 2);
}

#[test]
fn objects_in_no_directory() {
    let report = content(|_, sample, _| {
        sample.inodes.insert(30, inode(30, FileKind::Regular, 0));
    });
    assert_eq!(only(&report, Kind::Unreachable).at.object, Some(ObjectId(30)));
}

#[test]
fn orphans_must_be_listed() {
    let report = content(|_, sample, _| {
        let mut lost = inode(30, FileKind::Regular, 0);
        lost.nlink = 0;
        sample.inodes.insert(30, lost);
    });
    assert_eq!(only(&report, Kind::OrphanLost).at.object, Some(ObjectId(30)));
    let report = content(|_, sample, _| {
        sample.inodes.get_mut(&ORPHAN).unwrap().nlink = 1;
        let orphan = sample.inodes[&ORPHAN].clone();
        sample.name(ROOT, "alive", &orphan);
    });
    assert_eq!(only(&report, Kind::OrphanAlive).at.object, Some(ObjectId(ORPHAN)));
}

#[test]
fn the_tops_of_a_dataset() {
    for id in [ROOT, ORPHANS] {
        let report = content(move |_, _, below| {
            below.inodes.remove(&id);
        });
        assert_eq!(only(&report, Kind::RootDirectory).at.object, Some(ObjectId(id)));
        let report = content(move |_, _, below| {
            below.inodes.get_mut(&id).unwrap().parent = ObjectId(5);
        });
        assert_eq!(only(&report, Kind::RootDirectory).at.object, Some(ObjectId(id)));
    }
}

// ---- objects and datasets ---------------------------------------------------------------------

#[test]
fn inodes_that_contradict_themselves() {
    let changes: [fn(&mut aquifer_ondisk::inode::Inode); 4] = [
        |inode| inode.generation = 1000,
        |inode| inode.mode = 0o100_644,
        |inode| inode.mtime.nanoseconds = 1_000_000_000,
        |inode| inode.entries = 1,
    ];
    for change in changes {
        // An object that is in no list by generation.
        let report = content(|_, sample, _| {
            change(sample.inodes.get_mut(&TAIL).unwrap());
            let generation = sample.inodes[&TAIL].generation;
            let listed = sample.directories.get_mut(&ORPHANS).unwrap();
            listed.iter_mut().find(|entry| entry.object.0 == TAIL).unwrap().generation = generation;
        });
        assert_eq!(only(&report, Kind::ObjectInvalid).at.object, Some(ObjectId(TAIL)));
    }
    let report = content(|_, _, below| below.record.next_object = 2);
    assert_eq!(only(&report, Kind::ObjectInvalid).at.object, Some(ObjectId(2)));
    let report = content(|pool, sample, _| {
        let extent = pool.data(0, &[1]);
        sample.files.insert(FIFO, vec![extent]);
    });
    assert_eq!(report.count(Kind::ObjectInvalid), 1, "{report}");
}

/// A namespace of these items beside the sample.
fn items(change: impl FnOnce(&mut Vec<Item>)) -> Report {
    let pool = changed(Shape::Single, |_, _, _| {});
    let mut pool = {
        // Written again, in a txg of its own, over the same trees.
        let mut pool = pool;
        let mut sample = Content::sample(&mut pool);
        let mut below = Content::empty(1, "vms");
        let old = pool.trees[0].take();
        assert!(old.is_some());
        write_all(&mut pool, &mut sample, &mut below);
        let mut items = vec![counter(3)];
        items.extend(sample.items(1));
        items.extend(below.items(2));
        change(&mut items);
        items.sort_by_key(|item| item.key);
        namespace(&mut pool, items);
        pool
    };
    pool.commit();
    look(pool.arcs())
}

#[test]
fn items_that_cannot_be_understood() {
    let key = |dataset, class: ItemClass, number| ItemKey::new(DatasetId(dataset), class, number);
    let cases = [
        (key(1, ItemClass::Line, 9), vec![1]),
        (key(1, ItemClass::Record, 9), vec![1]),
        (key(0, ItemClass::Line, 9), vec![1]),
        (ItemKey { dataset: DatasetId(1), item: 200 << 56 }, vec![1]),
    ];
    for (key, value) in cases {
        let report = items(|items| items.push(Item { key, value: value.clone() }));
        assert_eq!(report.count(Kind::ItemInvalid), 1, "{key:?} {report}");
    }
    let report = items(|items| items[1].value.truncate(9));
    assert_eq!(report.count(Kind::ItemInvalid), 1, "{report}");
    assert_eq!(report.count(Kind::Leaked), 0, "a lost record may own anything: {report}");
    let report = items(|items| items[0].value.clear());
    assert_eq!(report.count(Kind::ItemInvalid), 1, "{report}");
    let report = items(|items| {
        let key = ItemKey::new(DatasetId(1), ItemClass::Snapshot, 4);
        items.push(Item { key, value: vec![] });
    });
    assert_eq!(report.count(Kind::Unsupported), 1, "{report}");
}

#[test]
fn datasets_that_contradict_each_other() {
    type Change = fn(&mut HandPool, &mut Content, &mut Content);
    let cases: [(Change, &str); 6] = [
        (|_, _, below| below.record.parent = DatasetId(9), "which is not"),
        (|_, _, below| below.record.parent = DatasetId(0), "none above"),
        (|_, sample, below| below.record.fs_guid = sample.record.fs_guid, "not its own"),
        (|_, _, below| below.record.fs_guid = Guid(0), "not its own"),
        (|_, _, below| below.record.name = "a/b".into(), "is no name"),
        (|_, _, below| below.record.name = String::new(), "is no name"),
    ];
    for (change, says) in cases {
        let report = content(change);
        let finding = only(&report, Kind::DatasetInvalid);
        assert!(finding.sentence.contains(says), "{finding}");
    }
    // Below itself.
    let report = content(|_, sample, below| {
        sample.record.parent = DatasetId(2);
        below.record.parent = DatasetId(1);
    });
    assert_eq!(report.count(Kind::DatasetInvalid), 3, "{report}");
    // The counter.
    let pool = changed(Shape::Single, |_, _, _| {});
    assert!(look(pool.arcs()).is_clean());
    let orphaned = items(|items| {
        let key = ItemKey::new(DatasetId(7), ItemClass::Property, 1);
        items.push(Item { key, value: vec![] });
    });
    assert_eq!(orphaned.count(Kind::DatasetInvalid), 1, "{orphaned}");
    let counter_low = items(|items| items[0] = counter(2));
    assert_eq!(counter_low.count(Kind::DatasetInvalid), 1, "{counter_low}");
}

// ---- other trees ------------------------------------------------------------------------------

/// A pool whose second dataset has a dead tree of these entries.
fn with_dead(make: impl FnOnce(&mut HandPool) -> Vec<DeadEntry>) -> Report {
    content(|pool, _, below| {
        let entries = make(pool);
        let owner = NodeOwner {
            dataset: DatasetId(2),
            object: ObjectId(0),
        };
        below.record.dead = pool.tree::<dead::DeadTree>(owner, entries, 2);
    })
}

fn dead_entry(address: Place, sectors: u16) -> DeadEntry {
    DeadEntry {
        group: 0,
        hi: Txg(11),
        birth: Txg(10),
        address,
        kind: DeadKind::Extent,
        sectors,
        written: Txg(10),
    }
}

#[test]
fn dead_blocks_have_an_owner() {
    let report = with_dead(|pool| {
        (0..5).map(|at| dead_entry(pool.take(at + 1), at as u16 + 1)).collect()
    });
    assert_eq!(kinds(&report), [], "{report}");
    assert_eq!(report.summary.roots[0].sectors.dead, 15);
    let report = with_dead(|pool| {
        let place = pool.take(4);
        vec![dead_entry(place, 3), dead_entry(Place(place.0 + 2), 2)]
    });
    only(&report, Kind::UsedTwice);
    let report = with_dead(|pool| {
        let mut entry = dead_entry(pool.take(1), 1);
        entry.birth = Txg(12);
        vec![entry]
    });
    only(&report, Kind::BirthOrder);
    let report = with_dead(|pool| {
        let mut entry = dead_entry(pool.take(1), 1);
        entry.kind = DeadKind::Subtree;
        vec![entry]
    });
    assert_eq!(report.count(Kind::Unsupported), 1);
}

#[test]
fn trees_of_newer_software() {
    let pool = changed(Shape::Single, |pool, sample, _| {
        let pointer = pool.tree::<aquifer_ondisk::tree_node::Extents>(
            NodeOwner::default(),
            sample.files[&SYMLINK].clone(),
            1,
        );
        pool.trees[1] = pointer;
    });
    let report = look(pool.arcs());
    assert_eq!(kinds(&report), [Kind::Unsupported], "{report}");
}

/// The form of dead trees, as the inspector has it for itself.
mod dead {
    use aquifer_ondisk::FormatError;
    use aquifer_ondisk::block_pointer::BlockKind;
    use aquifer_ondisk::codec::{Reader, Writer};
    use aquifer_ondisk::dead::DeadEntry;
    use aquifer_ondisk::tree_node::Form;

    #[derive(Debug)]
    pub struct DeadTree;

    impl Form for DeadTree {
        const KIND: BlockKind = BlockKind::Dead;
        type Key = [u64; 4];
        type Entry = DeadEntry;
        const KEY_BYTES: usize = 32;
        const KEY_MIN: [u64; 4] = [0; 4];

        fn key(entry: &DeadEntry) -> [u64; 4] {
            [entry.group, entry.hi.0, entry.birth.0, entry.address.0]
        }
        fn entry_bytes(_: &DeadEntry) -> usize {
            DeadEntry::BYTES
        }
        fn encode_key(key: [u64; 4], w: &mut Writer) {
            key.into_iter().for_each(|word| w.u64(word));
        }
        fn decode_key(r: &mut Reader<'_>) -> Result<[u64; 4], FormatError> {
            Ok([r.u64()?, r.u64()?, r.u64()?, r.u64()?])
        }
        fn encode_entry(entry: &DeadEntry, w: &mut Writer) {
            entry.encode(w);
        }
        fn decode_entry(r: &mut Reader<'_>) -> Result<DeadEntry, FormatError> {
            DeadEntry::decode(r)
        }
    }
}
