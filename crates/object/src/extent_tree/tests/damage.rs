//! Leaves that verify but break the rules of extents, and bytes that are no leaves.

use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::tree_node::{Extents, Node, NodeBody};
use aquifer_ondisk::{BlockPointer, FormatError, Place, Reader, Txg};
use proptest::prelude::*;

use crate::btree::TreeError;
use crate::extent_tree::{Replace, drain, lookup_range, merge_extents, split_off};
use crate::mem_store::{MemError, MemStore, OWNER};

fn plain(page: u64, pages: u8) -> Extent {
    Extent {
        page,
        pages,
        birth: Txg(1),
        written: Txg(1),
        place: Place::new(0, 100 + page),
        counted: false,
        stored: Stored::Plain((0..u64::from(pages)).collect()),
    }
}

fn plant(store: &MemStore, level: u8, body: NodeBody<Extents>) -> BlockPointer {
    let node = Node { level, owner: OWNER, written: Txg(1), body };
    store.plant(BlockKind::Extents, level, &node.encode().unwrap())
}

fn hole(from_page: u64, to_page: u64) -> Vec<Replace> {
    vec![Replace { from_page, to_page, extents: Vec::new() }]
}

#[test]
fn extents_that_overlap_or_reach_beyond_their_leaf_are_errors() {
    let store = MemStore::new();
    let root = plant(&store, 0, NodeBody::Leaf(vec![plain(0, 5), plain(4, 2)]));
    let found = store.run(merge_extents(&store, Some(root), OWNER, hole(0, 1)));
    assert_eq!(
        found,
        Err(MemError::Format(FormatError::invalid("tree node: order of keys", 0u64)))
    );

    let low = plant(&store, 0, NodeBody::Leaf(vec![plain(0, 11)]));
    let high = plant(&store, 0, NodeBody::Leaf(vec![plain(10, 1)]));
    let root = plant(&store, 1, NodeBody::Inner(vec![(0, low), (10, high)]));
    let found = store.run(merge_extents(&store, Some(root), OWNER, hole(0, 1)));
    assert_eq!(found, Err(MemError::Tree(TreeError::KeyRange { level: 0 })));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn garbage_never_panics(changes in prop::collection::vec((0usize..300, any::<u8>()), 1..20)) {
        let store = MemStore::instant();
        let entries = (0..6).map(|at| plain(at * 10, 4)).collect();
        let good = plant(&store, 0, NodeBody::Leaf(entries));
        let mut bytes = store.sector(&good).to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        let bad = store.plant(BlockKind::Extents, 0, &bytes);
        let _ = store.run(lookup_range(&store, Some(bad), 5, 25));
        let merge = merge_extents(&store, Some(bad), OWNER, hole(12, 23));
        if store.run(merge).is_err() {
            let _ = store.run(split_off(&store, Some(bad), OWNER, 12));
        }
        let _ = store.live().len();
    }

    /// Skipping an entry and decoding it read the same bytes.
    #[test]
    fn skipping_agrees_with_decoding(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (mut skipped, mut decoded) = (Reader::new(&bytes, "x"), Reader::new(&bytes, "x"));
        let skip = Extent::skip(&mut skipped);
        if let Ok(extent) = Extent::decode(&mut decoded) {
            prop_assert_eq!(skip, Ok((extent.page, extent.end() - 1)));
            prop_assert_eq!(skipped.rest(), decoded.rest());
        }
    }
}

#[test]
fn draining_nothing_is_done() {
    let store = MemStore::new();
    let drained = store.run(drain(&store, None, OWNER, 10)).unwrap();
    assert!(drained.root.is_none() && drained.freed.is_empty());
}
