//! Faults in the middle of a change, and nodes that verify but make no tree.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use aquifer_ondisk::block_pointer::BlockKind;
use aquifer_ondisk::tree_node::{Node, NodeBody, Objects};
use aquifer_ondisk::{BlockPointer, FormatError};
use proptest::prelude::*;

use super::{Sample, Twin};
use crate::btree::{
    Scan, TreeError, collect_range, compare, drain, last, lookup, merge, split_off,
};
use crate::mem_store::{MemError, MemStore, OWNER, Rng};

fn grown() -> Twin<Objects> {
    let mut twin = Twin::<Objects>::new(MemStore::new());
    twin.apply(twin.ops((0..3000).map(|n| n * 3), &mut Rng::new(1), 0));
    twin
}

/// A change that fails at any read or write leaves the store as it was.
#[test]
fn a_change_happens_whole_or_not_at_all() {
    let twin = grown();
    let mut rng = Rng::new(2);
    let store = &twin.store;
    let before = store.live();
    let numbers: Vec<u64> = (0..200).map(|_| rng.below(9000)).collect();
    let ops = twin.ops(numbers, &mut rng, 70);
    for after in (0..40).chain([100]) {
        for write in [false, true] {
            let limit = (Some(after), None);
            let (writes, reads) = if write { limit } else { (None, limit.0) };
            store.fail_read_after(reads);
            store.fail_write_after(writes);
            let merged = store.run(merge::<Objects, _>(store, twin.root, OWNER, ops.clone()));
            assert_eq!(merged, Err(MemError::Fault), "after {after}");
            assert_eq!(store.live(), before);
        }
    }
    for after in 0..4 {
        store.fail_read_after(None);
        store.fail_write_after(Some(after));
        let split = store.run(split_off::<Objects, _>(store, twin.root, OWNER, 4501));
        assert_eq!(split, Err(MemError::Fault));
        store.fail_write_after(None);
        store.fail_read_after(Some(after));
        let drained = store.run(drain::<Objects, _>(store, twin.root, OWNER, 100));
        assert_eq!(drained, Err(MemError::Fault));
        assert_eq!(store.live(), before);
    }
    store.fail_read_after(None);
    twin.check();
}

/// A merge that is dropped at any of its waits leaves the store as it was.
#[test]
fn a_dropped_change_did_not_happen() {
    let twin = grown();
    let store = &twin.store;
    let before = store.live();
    let mut rng = Rng::new(2);
    let numbers: Vec<u64> = (0..200).map(|_| rng.below(9000)).collect();
    let ops = twin.ops(numbers, &mut rng, 70);
    let mut grew = false;
    let mut done = false;
    for polls in 1..5000 {
        let mut merging = pin!(Some(merge::<Objects, _>(store, twin.root, OWNER, ops.clone())));
        for _ in 0..polls {
            let inner = merging.as_mut().as_pin_mut().unwrap();
            let polled = inner.poll(&mut Context::from_waker(Waker::noop()));
            done = polled.is_ready();
            store.complete_one();
        }
        if done {
            break;
        }
        grew |= store.live().len() > before.len();
        merging.set(None);
        assert_eq!(store.live(), before);
        store.forget_reads();
    }
    assert!(done, "some number of polls is enough");
    assert!(grew, "it was dropped after it had written");
}

fn leaf(store: &MemStore, numbers: impl IntoIterator<Item = u64>) -> BlockPointer {
    let entries = numbers.into_iter().map(|number| Objects::entry(number, 1)).collect();
    plant(store, 0, NodeBody::Leaf(entries))
}

fn plant(store: &MemStore, level: u8, body: NodeBody<Objects>) -> BlockPointer {
    let node = Node { level, owner: OWNER, written: aquifer_ondisk::Txg(1), body };
    store.plant(BlockKind::Objects, level, &node.encode().unwrap())
}

/// Every way to descend, at once: all must fail the same way, and none may panic.
fn all_fail(store: &MemStore, root: BlockPointer) -> MemError {
    let some = Some(root);
    let live = store.live();
    let put = |number| vec![(number, Some(Objects::entry(number, 2)))];
    let everything = (0..300).flat_map(put).collect();
    let failed = store.run(merge::<Objects, _>(store, some, OWNER, everything)).unwrap_err();
    assert_eq!(store.live(), live);
    assert!(store.run(split_off::<Objects, _>(store, some, OWNER, 15)).is_err() || root.level < 2);
    let _ = store.run(lookup::<Objects, _>(store, some, 15));
    let _ = store.run(last::<Objects, _>(store, some));
    let _ = store.run(collect_range::<Objects, _>(store, some, 5, Some(25), 100));
    let _ = store.run(drain::<Objects, _>(store, some, OWNER, usize::MAX));
    let _ = store.run(async { compare::<Objects, _>(store, some, None)?.next().await });
    failed
}

#[test]
fn nodes_that_make_no_tree_are_errors() {
    let store = MemStore::instant();
    let inner =
        |children: Vec<(u64, BlockPointer)>, level| plant(&store, level, NodeBody::Inner(children));

    // A child two levels below, or above.
    let deep = inner(vec![(0, leaf(&store, [1])), (10, leaf(&store, [10]))], 2);
    let found = all_fail(&store, deep);
    assert_eq!(found, MemError::Tree(TreeError::ChildLevel { parent: 2, child: 0 }));
    let store = MemStore::instant();
    let inner =
        |children: Vec<(u64, BlockPointer)>, level| plant(&store, level, NodeBody::Inner(children));
    let one = inner(vec![(0, leaf(&store, [1]))], 1);
    let looped = inner(vec![(0, one), (10, one)], 1);
    let found = all_fail(&store, looped);
    assert_eq!(found, MemError::Tree(TreeError::ChildLevel { parent: 1, child: 1 }));

    // No child at all.
    let store = MemStore::instant();
    let found = all_fail(&store, plant(&store, 1, NodeBody::Inner(Vec::new())));
    assert_eq!(found, MemError::Tree(TreeError::MissingChild { level: 1 }));

    // A leaf with keys of its neighbour's.
    let store = MemStore::instant();
    let children = vec![(0, leaf(&store, [1, 2, 30])), (10, leaf(&store, [10]))];
    let root = plant(&store, 1, NodeBody::Inner(children));
    let ops = vec![(5, None), (6, Some(Objects::entry(6, 6)))];
    let found = store.run(merge::<Objects, _>(&store, Some(root), OWNER, ops));
    assert_eq!(found, Err(MemError::Tree(TreeError::KeyRange { level: 0 })));

    // An inner node with keys of its neighbour's.
    let store = MemStore::instant();
    let low = vec![(0, leaf(&store, [1])), (20, leaf(&store, [20]))];
    let high = vec![(10, leaf(&store, [10])), (30, leaf(&store, [30]))];
    let (low, high) =
        (plant(&store, 1, NodeBody::Inner(low)), plant(&store, 1, NodeBody::Inner(high)));
    let root = plant(&store, 2, NodeBody::Inner(vec![(0, low), (10, high)]));
    let ops = vec![(5, Some(Objects::entry(5, 6)))];
    let found = store.run(merge::<Objects, _>(&store, Some(root), OWNER, ops));
    assert_eq!(found, Err(MemError::Tree(TreeError::KeyRange { level: 1 })));
}

#[test]
fn a_root_too_high_is_refused_and_none_grows_so_high() {
    let store = MemStore::instant();
    let mut root = leaf(&store, 0..17);
    for level in 1..=15 {
        root = plant(&store, level, NodeBody::Inner(vec![(0, root)]));
    }
    // 16 levels are allowed.
    assert!(store.run(lookup::<Objects, _>(&store, Some(root), 3)).unwrap().is_some());
    let full: Vec<(u64, BlockPointer)> = (0..56).map(|at| (at, root)).collect();
    let tall = plant(&store, 16, NodeBody::Inner(full));
    let found = store.run(lookup::<Objects, _>(&store, Some(tall), 3));
    assert_eq!(found, Err(MemError::Tree(TreeError::TooDeep { level: 16 })));
    assert!(store.run(merge::<Objects, _>(&store, Some(tall), OWNER, vec![(1, None)])).is_err());
    assert!(store.run(last::<Objects, _>(&store, Some(tall))).is_err());
    assert!(Scan::<Objects, _>::new(&store, Some(tall), 0, None).is_err());
    assert!(compare::<Objects, _>(&store, Some(tall), None).is_err());

    // A split all the way up would make a 17th level.
    let store = MemStore::instant();
    let mut root = leaf(&store, 0..17);
    for level in 1..=15u8 {
        let fill =
            |at: u64| (at + 1000 * u64::from(level), BlockPointer { level: level - 1, ..root });
        let children = [(0, root)].into_iter().chain((1..56).map(fill)).collect();
        root = plant(&store, level, NodeBody::Inner(children));
    }
    let more: Vec<_> = (17..30).map(|number| (number, Some(Objects::entry(number, 1)))).collect();
    let live = store.live();
    let found = store.run(merge::<Objects, _>(&store, Some(root), OWNER, more));
    assert_eq!(found, Err(MemError::Tree(TreeError::TooDeep { level: 16 })));
    assert_eq!(store.live(), live);
}

#[test]
fn a_node_of_another_form_is_refused() {
    let store = MemStore::instant();
    let root = leaf(&store, 0..5);
    let found = store.run(lookup::<aquifer_ondisk::tree_node::Directory, _>(&store, Some(root), 3));
    assert!(matches!(found, Err(MemError::Format(FormatError::Invalid { .. }))));
    let mut bytes = store.sector(&root).to_vec();
    bytes[4] = 2;
    let newer = store.plant(BlockKind::Objects, 0, &bytes);
    let found = store.run(lookup::<Objects, _>(&store, Some(newer), 3));
    assert!(matches!(found, Err(MemError::Format(FormatError::NewerVersion { .. }))));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Any bytes behind a pointer that verifies them: an answer or an error, never a panic.
    #[test]
    fn garbage_never_panics(
        changes in prop::collection::vec((0usize..400, any::<u8>()), 1..30),
        inner in any::<bool>(),
    ) {
        let store = MemStore::lenient();
        let low = leaf(&store, 0..10);
        let root = if inner {
            plant(&store, 1, NodeBody::Inner(vec![(0, low), (10, leaf(&store, 10..20))]))
        } else {
            low
        };
        let mut bytes = store.sector(&root).to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        let bad = store.plant(BlockKind::Objects, root.level, &bytes);
        let _ = store.run(lookup::<Objects, _>(&store, Some(bad), 7));
        let _ = store.run(last::<Objects, _>(&store, Some(bad)));
        let _ = store.run(collect_range::<Objects, _>(&store, Some(bad), 3, None, 100));
        let live = store.live();
        let put = vec![(7, Some(Objects::entry(7, 9)))];
        if store.run(merge::<Objects, _>(&store, Some(bad), OWNER, put)).is_err() {
            prop_assert_eq!(store.live(), live);
            let _ = store.run(split_off::<Objects, _>(&store, Some(bad), OWNER, 7));
        }
    }
}
