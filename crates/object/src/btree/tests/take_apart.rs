//! Cutting trees in two and draining them.

use std::collections::BTreeSet;

use aquifer_ondisk::Place;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::tree_node::{Directory, Namespace, Objects};

use super::{Sample, Twin};
use crate::btree::{drain, split_off};
use crate::mem_store::{MemStore, OWNER, Rng, check_tree};

fn grown<F: Sample>(seed: u64, numbers: u64, batches: u64) -> Twin<F> {
    let mut rng = Rng::new(seed);
    let mut twin = Twin::<F>::new(MemStore::instant());
    for _ in 0..batches {
        let some: Vec<u64> = (0..numbers / 4).map(|_| rng.below(numbers)).collect();
        twin.apply_unchecked(twin.ops(some, &mut rng, 20));
    }
    twin
}

/// Cuts a tree, checks both sides, puts more into both, and drains one.
fn cut<F: Sample>(seed: u64, numbers: u64, at: u64) {
    let mut twin = grown::<F>(seed, numbers, 5);
    let key = F::key_of(at);
    let levels = twin.root.map_or(0, |root| u64::from(root.level) + 1);
    twin.store.take_counts();
    twin.store.next_txg();
    let split = split_off::<F, _>(&twin.store, twin.root, OWNER, key);
    let halves = twin.store.run(split).unwrap();
    let (reads, writes, _) = twin.store.take_counts();
    assert!(reads <= 3 * levels && writes <= 2 * levels, "{reads} reads, {writes} writes");

    let right_model = twin.model.split_off(&key);
    let left = check_tree::<F>(&twin.store, halves.left);
    assert!(left.entries.iter().eq(twin.model.values()));
    let right = check_tree::<F>(&twin.store, halves.right);
    assert!(right.entries.iter().eq(right_model.values()));
    let both: BTreeSet<Place> = left.nodes.union(&right.nodes).copied().collect();
    assert_eq!(both, twin.store.live(), "a leaked or lost node");
    assert_eq!(both.len(), left.nodes.len() + right.nodes.len(), "a shared node");

    // Drain the right side, and go on with the left one.
    let mut rng = Rng::new(seed);
    let (mut root, mut taken) = (halves.right, Vec::new());
    while root.is_some() {
        let budget = 1 + rng.below(500) as usize;
        twin.store.take_counts();
        twin.store.next_txg();
        let drained = twin.store.run(drain::<F, _>(&twin.store, root, OWNER, budget)).unwrap();
        let (_, writes, _) = twin.store.take_counts();
        assert!(writes <= levels);
        assert!(!drained.entries.is_empty() && drained.entries.len() < budget + 200);
        assert!(drained.done() || drained.entries.len() >= budget);
        root = drained.root;
        taken.splice(0..0, drained.entries);
        let rest = check_tree::<F>(&twin.store, root);
        assert!(rest.entries.iter().chain(&taken).eq(right_model.values()));
        assert!(
            rest.nodes.iter().chain(&left.nodes).eq(&twin.store.live()) || {
                let both: BTreeSet<Place> = rest.nodes.union(&left.nodes).copied().collect();
                both == twin.store.live()
            }
        );
    }
    assert!(taken.iter().eq(right_model.values()));
    twin.root = halves.left;
    for _ in 0..3 {
        let some: Vec<u64> = (0..numbers / 4).map(|_| rng.below(numbers)).collect();
        twin.apply(twin.ops(some, &mut rng, 40));
    }
}

#[test]
fn cut_anywhere() {
    for seed in 0..40 {
        let at = Rng::new(seed + 5).below(4000);
        cut::<Objects>(seed, 4000, at);
        cut::<Directory>(seed, 4000, at);
        cut::<Namespace>(seed, 4000, at);
    }
}

#[test]
fn cut_before_the_first_and_after_the_last() {
    for at in [0, 1, 10, 3990, 3999, 4000, 5000] {
        cut::<Objects>(1, 4000, at);
    }
    let empty = Twin::<Objects>::new(MemStore::new());
    let halves = empty.store.run(split_off::<Objects, _>(&empty.store, None, OWNER, 5)).unwrap();
    assert!(halves.left.is_none() && halves.right.is_none());
}

/// A cut between nodes writes no node that it need not write.
#[test]
fn cut_at_an_edge_keeps_the_tree() {
    let twin = grown::<Objects>(9, 4000, 3);
    twin.store.take_counts();
    let split = |at| twin.store.run(split_off::<Objects, _>(&twin.store, twin.root, OWNER, at));
    assert_eq!(split(5000).unwrap().left, twin.root);
    assert_eq!(split(0).unwrap().right, twin.root);
    let (_, writes, _) = twin.store.take_counts();
    assert_eq!(writes, 0);
}

#[test]
fn draining_reads_each_node_about_once() {
    let twin = grown::<Objects>(3, 20_000, 6);
    let nodes = twin.check().nodes.len() as u64;
    twin.store.take_counts();
    let mut root = twin.root;
    while root.is_some() {
        root = twin.store.run(drain::<Objects, _>(&twin.store, root, OWNER, 400)).unwrap().root;
    }
    let (reads, _, _) = twin.store.take_counts();
    assert!(twin.store.live().is_empty());
    assert!(reads < 2 * nodes, "{reads} reads of {nodes} nodes");
}

/// Where short leaves follow full ones, the drain reads more ahead than the budget has room for.
#[test]
fn draining_keeps_to_its_budget() {
    let mut twin = Twin::<Directory>::new(MemStore::new());
    let entry = |number: u64| {
        let bytes = if number < 6000 { 1 } else { 255 };
        let name = vec![b'x'; bytes];
        (number, Some(Dirent { name, ..Directory::entry(number, 1) }))
    };
    twin.apply((0..6100).map(entry).collect());
    let mut root = twin.root;
    while root.is_some() {
        let drained = twin.store.run(drain::<Directory, _>(&twin.store, root, OWNER, 400));
        let drained = drained.unwrap();
        assert!(drained.entries.len() < 400 + 144, "{} entries", drained.entries.len());
        root = drained.root;
    }
}
