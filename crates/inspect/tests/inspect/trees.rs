//! Nodes of trees, and the trees that stand beside the datasets.

use aquifer_inspect::Kind;
use aquifer_ondisk::Place;
use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::tree_node::NodeOwner;
use aquifer_ondisk::types::Run;

use crate::pool::{HandPool, NodeDraft, Shape};
use crate::tree::SYMLINK;
use crate::{changed, good, kinds, look, look_deep, only};

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
        let owns = wanted != (DIRECTORY, 0, 1);
        assert_eq!(found[1..], [Kind::LeakUnknown][..usize::from(owns)], "{wanted:?} {report}");
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
    let pool = node_changed((OBJECTS, 1, 0), |draft| draft.pointer.places[1] = Place::NULL);
    let report = look(pool.arcs());
    // The sector that was taken for it is leaked.
    assert_eq!(kinds(&report), [Kind::CopyMissing, Kind::Leaked], "{report}");
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
