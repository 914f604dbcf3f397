//! Random batches on trees of every form, compared with a map.

use std::collections::BTreeMap;

use aquifer_ondisk::Reader;
use aquifer_ondisk::Writer;
use aquifer_ondisk::tree_node::{Dead, Directory, Extents, Form, Namespace, Objects};
use proptest::prelude::*;

use super::{Ops, Sample, Twin, levels};
use crate::btree::view::View;
use crate::btree::{Scan, first_from, last, lookup, merge, split_off};
use crate::mem_store::{MemStore, OWNER, Rng};

const NUMBERS: u64 = 3000;

/// One batch of a random style.
fn batch<F: Sample>(rng: &mut Rng, twin: &Twin<F>) -> Ops<F> {
    let base = rng.below(NUMBERS);
    let many = rng.chance(20);
    let count = 1 + rng.below(if many { 800 } else { 40 });
    match rng.below(8) {
        // All over.
        0..=2 => {
            let numbers: Vec<u64> = (0..count).map(|_| rng.below(NUMBERS)).collect();
            twin.ops(numbers, rng, 30)
        }
        3 => {
            let numbers: Vec<u64> = (0..count).map(|_| rng.below(NUMBERS)).collect();
            twin.ops(numbers, rng, 80)
        }
        // A dense range, put or deleted.
        4 => twin.ops(base..base + count, rng, 0),
        5 => twin.ops(base..base + count, rng, 100),
        // After the end, before the beginning.
        6 => {
            let end = twin.model.len() as u64 + NUMBERS;
            twin.ops(end..end + count % 60, rng, 0)
        }
        // Existing entries again, and deletes of nothing.
        _ => twin
            .model
            .iter()
            .skip(base as usize % (twin.model.len() + 1))
            .take(count as usize)
            .map(|(key, entry)| (*key, Some(entry.clone())))
            .collect(),
    }
}

fn many_batches<F: Sample>(seeds: u64, batches: u64) {
    for seed in 0..seeds {
        let mut rng = Rng::new(seed + 1);
        let mut twin =
            Twin::<F>::new(if seed % 2 == 0 { MemStore::new() } else { MemStore::instant() });
        for _ in 0..batches {
            let ops = batch(&mut rng, &twin);
            let shape = twin.apply(ops);
            assert!(
                shape.light <= 1 + shape.leaf_bytes.len() / 20,
                "{} light nodes beside {} leaves",
                shape.light,
                shape.leaf_bytes.len()
            );
            let from = F::key_of(rng.below(NUMBERS));
            let to = rng.chance(70).then(|| F::key_of(rng.below(NUMBERS)));
            twin.check_range(from, to, rng.below(300) as usize);
        }
        // Down to an empty tree.
        let rest: Ops<F> = twin.model.keys().map(|key| (*key, None)).collect();
        twin.apply(rest);
        assert!(twin.root.is_none() && twin.store.live().is_empty());
    }
}

#[test]
fn objects_follow_the_model() {
    many_batches::<Objects>(24, 60);
}

#[test]
fn directories_follow_the_model() {
    many_batches::<Directory>(24, 60);
}

#[test]
fn namespaces_follow_the_model() {
    many_batches::<Namespace>(24, 60);
}

#[test]
fn dead_trees_follow_the_model() {
    many_batches::<Dead>(24, 60);
}

#[test]
fn extents_as_plain_entries_follow_the_model() {
    many_batches::<Extents>(24, 60);
}

/// A batch that can shrink: (number, salt, or delete).
fn small_batches() -> impl Strategy<Value = Vec<BTreeMap<u64, Option<u64>>>> {
    let op = prop_oneof![2 => any::<u32>().prop_map(|salt| Some(u64::from(salt))), 1 => Just(None)];
    prop::collection::vec(prop::collection::btree_map(0u64..200, op, 0..60), 1..12)
}

fn follows<F: Sample>(batches: Vec<BTreeMap<u64, Option<u64>>>) {
    let mut twin = Twin::<F>::new(MemStore::new());
    for batch in batches {
        let op = |(number, salt): (u64, Option<u64>)| {
            (F::key_of(number), salt.map(|salt| F::entry(number, salt)))
        };
        twin.apply(batch.into_iter().map(op).collect());
        twin.check_range(F::key_of(50), Some(F::key_of(150)), usize::MAX);
    }
    let store = &twin.store;
    for number in 0..200 {
        let key = F::key_of(number);
        let found = store.run(lookup::<F, _>(store, twin.root, key)).unwrap();
        assert_eq!(found.as_ref(), twin.model.get(&key));
        let next = store.run(first_from::<F, _>(store, twin.root, key)).unwrap();
        assert_eq!(next.as_ref(), twin.model.range(key..).next().map(|(_, entry)| entry));
    }
    let end = store.run(last::<F, _>(store, twin.root)).unwrap();
    assert_eq!(end.as_ref(), twin.model.values().next_back());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn small_trees_of_long_entries(batches in small_batches()) {
        follows::<Namespace>(batches);
    }

    #[test]
    fn small_trees_of_dead_blocks(batches in small_batches()) {
        follows::<Dead>(batches);
    }

    #[test]
    fn small_trees_of_names(batches in small_batches()) {
        follows::<Directory>(batches);
    }

    #[test]
    fn entries_are_passed_over_as_they_are_decoded(
        salts in prop::collection::vec(any::<u32>(), 1..50)
    ) {
        passed_over::<Objects>(&salts);
        passed_over::<Directory>(&salts);
        passed_over::<Namespace>(&salts);
        passed_over::<Extents>(&salts);
    }
}

fn passed_over<F: Sample>(salts: &[u32]) {
    let mut w = Writer::new();
    let entries: Vec<F::Entry> =
        (0u64..).zip(salts).map(|(number, salt)| F::entry(number, u64::from(*salt))).collect();
    entries.iter().for_each(|entry| F::encode_entry(entry, &mut w));
    let mut r = Reader::new(w.as_bytes(), "entries");
    for entry in &entries {
        assert_eq!(F::skip(&mut r).unwrap(), (F::key(entry), F::key(entry)));
    }
    assert!(r.rest().is_empty());
}

#[test]
fn nothing_to_do_changes_nothing() {
    let mut twin = Twin::<Objects>::new(MemStore::new());
    twin.apply(Vec::new());
    assert!(twin.root.is_none());
    twin.apply(vec![(5, None)]);
    assert!(twin.root.is_none());
    twin.apply(twin.ops(0..500, &mut Rng::new(1), 0));
    let same: Ops<Objects> =
        twin.model.iter().map(|(key, entry)| (*key, Some(entry.clone()))).collect();
    twin.apply(same);
    assert_eq!(twin.counts.1, 0);
}

#[test]
fn a_path_is_rewritten_once_and_the_rest_stands() {
    let mut twin = Twin::<Objects>::new(MemStore::new());
    twin.apply(twin.ops((0..20_000).map(|n| n * 2), &mut Rng::new(1), 0));
    assert_eq!(levels(twin.root), 3);
    let old = twin.store.live();
    // Many ops in one leaf that do not grow it: overwrites.
    twin.apply(twin.ops([1000, 1002, 1004, 1006], &mut Rng::new(2), 0));
    assert_eq!(twin.counts, (3, 3));
    let new = twin.store.live();
    assert_eq!(old.difference(&new).count(), 3);
    assert_eq!(new.difference(&old).count(), 3);
}

/// Nodes on the leftmost path begin at KEY_MIN, whatever their first entry.
#[test]
fn the_leftmost_path_begins_at_the_smallest_key() {
    let mut twin = Twin::<Objects>::new(MemStore::new());
    twin.apply(twin.ops((0..20_000).map(|n| 70 + n * 2), &mut Rng::new(1), 0));
    let split = split_off::<Objects, _>(&twin.store, twin.root, OWNER, 20_001);
    let halves = twin.store.run(split).unwrap();
    for root in [halves.left, halves.right] {
        let mut pointer = root.unwrap();
        assert_eq!(pointer.level, 2);
        while pointer.level > 0 {
            let page = twin.store.sector(&pointer);
            let view = View::<Objects>::open(page.as_slice(), &pointer).unwrap();
            let (key, child) = view.child(0).unwrap();
            assert_eq!(key, 0, "level {}", pointer.level);
            pointer = child;
        }
    }
}

/// A leaf that loses nearly all its entries is joined with a neighbour that no op touches, right or
/// left. So are inner nodes.
#[test]
fn light_nodes_are_joined_with_their_neighbours() {
    let grow = || {
        let mut twin = Twin::<Objects>::new(MemStore::instant());
        twin.apply(twin.ops((0..3000).map(|n| n * 2), &mut Rng::new(1), 0));
        twin
    };
    let leaves = grow().check().leaf_counts;
    assert!(leaves.len() > 120, "{} leaves under several nodes", leaves.len());
    let mut start = 0;
    for (at, count) in leaves.iter().enumerate() {
        let mut twin = grow();
        let numbers = (start..start + *count as u64).map(|n| n * 2).skip(1);
        let shape = twin.apply(twin.ops(numbers, &mut Rng::new(2), 100));
        assert_eq!(shape.light, 0, "leaf {at}");
        assert!(shape.leaf_counts.iter().all(|count| *count > 3), "leaf {at}");
        start += *count as u64;
    }
    // Whole inner nodes except for one leaf.
    for end in [600, 1200, 2000, 2990] {
        let mut twin = grow();
        let shape = twin.apply(twin.ops((100..end).map(|n| n * 2), &mut Rng::new(2), 100));
        assert_eq!(shape.light, 0, "up to {end}");
    }
}

#[test]
fn a_tree_shrinks_to_one_leaf() {
    for keep in [0, 7_000, 19_999] {
        let mut twin = Twin::<Objects>::new(MemStore::new());
        twin.apply(twin.ops(0..20_000, &mut Rng::new(1), 0));
        assert_eq!(twin.root.unwrap().level, 2);
        let rest = (0..20_000).filter(|number| *number != keep);
        let shape = twin.apply(twin.ops(rest, &mut Rng::new(1), 100));
        assert_eq!((shape.levels, shape.leaf_counts), (1, vec![1]));
    }
}

#[test]
fn cold_leaves_are_read_many_at_a_time() {
    let mut twin = Twin::<Objects>::new(MemStore::new());
    twin.apply(twin.ops(0..40_000, &mut Rng::new(1), 0));
    twin.apply(twin.ops((0..400).map(|n| n * 100), &mut Rng::new(2), 0));
    let (_, _, in_flight) = twin.store.take_counts();
    // 32 leaves, and as many nodes of the level above.
    assert!((32..=96).contains(&in_flight), "{in_flight} in flight");
}

#[test]
fn a_scan_stands_still_when_dropped_and_goes_on() {
    let mut twin = Twin::<Directory>::new(MemStore::new());
    twin.apply(twin.ops(0..5000, &mut Rng::new(1), 0));
    let store = &twin.store;
    let mut scan = Scan::<Directory, _>::new(store, twin.root, 17, None).unwrap();
    let mut expected = twin.model.range(17..).map(|(_, entry)| entry);
    store.run(async {
        while let Some(entry) = scan.next().await.unwrap() {
            assert_eq!(Some(&entry), expected.next());
        }
    });
    assert!(expected.next().is_none());
}

#[test]
fn fill_after_ascending_and_random_inserts() {
    // Ascending, a few at a time, as a growing file or table does.
    let mut twin = Twin::<Extents>::new(MemStore::instant());
    let mut rng = Rng::new(1);
    for at in 0..400 {
        twin.apply_unchecked(twin.ops(at * 37..(at + 1) * 37, &mut rng, 0));
    }
    let shape = twin.check();
    assert!(shape.leaf_fill() > 0.9, "ascending: {}", shape.leaf_fill());

    // While entries a little before the end are replaced.
    let mut twin = Twin::<Objects>::new(MemStore::instant());
    for at in 0..600u64 {
        let back = at * 5 - (at * 5).min(12);
        twin.apply_unchecked(twin.ops((at * 5..at * 5 + 5).chain([back]), &mut rng, 0));
    }
    let shape = twin.check();
    // 17 inodes fill a leaf to 0.96.
    assert!(shape.leaf_fill() > 0.95, "ascending with a follower: {}", shape.leaf_fill());

    // The same in the middle of a tree, between existing entries.
    let mut twin = Twin::<Extents>::new(MemStore::instant());
    twin.apply(twin.ops((0..1000).chain(100_000..101_000), &mut rng, 0));
    for at in 0..400 {
        twin.apply_unchecked(twin.ops(1000 + at * 37..1000 + (at + 1) * 37, &mut rng, 0));
    }
    let shape = twin.check();
    assert!(shape.leaf_fill() > 0.75, "ascending in a gap: {}", shape.leaf_fill());

    for batch in [20u64, 500, 5000] {
        let mut twin = Twin::<Extents>::new(MemStore::instant());
        let (mut least, mut sum, mut times) = (1.0f64, 0.0, 0.0);
        for _ in 0..(60_000 / batch) {
            let numbers: Vec<u64> = (0..batch).map(|_| rng.below(1 << 40)).collect();
            twin.apply_unchecked(twin.ops(numbers, &mut rng, 0));
            if twin.model.len() > 20_000 && twin.model.len() % 5000 < batch as usize {
                let fill = twin.check().leaf_fill();
                (least, sum, times) = (least.min(fill), sum + fill, times + 1.0);
            }
        }
        let mean = sum / times;
        println!("random, {batch} at a time: least {least:.3} mean {mean:.3}");
        assert!(least > 0.5 && mean > 0.62, "random: {least} {mean}");
    }
}

#[test]
#[should_panic(expected = "the keys of a merge ascend")]
fn unsorted_ops_are_our_bug() {
    let store = MemStore::new();
    let ops = vec![(2, None), (1, None)];
    drop(store.run(merge::<Objects, _>(&store, None, OWNER, ops)));
}

const _: () = assert!(<Namespace as Form>::KEY_BYTES == 16);
