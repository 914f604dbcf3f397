//! Differences of trees, held against those of their models.

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::tree_node::{Directory, Namespace, Objects};

use super::{Ops, Sample, Twin};
use crate::btree::journal::Journal;
use crate::btree::{Difference, compare, compare_from, merge};
use crate::mem_store::{Keeping, MemStore, OWNER, Rng};

fn differences<F: Sample>(
    store: &MemStore,
    old: Option<BlockPointer>,
    new: Option<BlockPointer>,
) -> Vec<Difference<F::Key, F::Entry>> {
    store.run(async {
        let mut compare = compare::<F, _>(store, old, new).unwrap();
        let mut all = Vec::new();
        while let Some(difference) = compare.next().await.unwrap() {
            all.push(difference);
        }
        all
    })
}

/// From a key on, and without keys before it.
fn later<F: Sample>(
    store: &MemStore,
    (old, new): (Option<BlockPointer>, Option<BlockPointer>),
    from: F::Key,
) -> Vec<Difference<F::Key, F::Entry>> {
    store.run(async {
        let mut compare = compare_from::<F, _>(store, old, new, from).unwrap();
        let mut all = Vec::new();
        while let Some(difference) = compare.next().await.unwrap() {
            all.push(difference);
        }
        all.retain(|difference| difference.key >= from);
        all
    })
}

fn expected<F: Sample>(old: &Twin<F>, new: &Twin<F>) -> Vec<Difference<F::Key, F::Entry>> {
    let keys: std::collections::BTreeSet<F::Key> =
        old.model.keys().chain(new.model.keys()).copied().collect();
    let at = |key: F::Key| Difference {
        key,
        old: old.model.get(&key).cloned(),
        new: new.model.get(&key).cloned(),
    };
    keys.into_iter().map(at).filter(|found| found.old != found.new).collect()
}

fn follows<F: Sample>(seed: u64) {
    let mut rng = Rng::new(seed);
    let numbers = 3000;
    let mut old = Twin::<F>::new(MemStore::new());
    for _ in 0..4 {
        let some: Vec<u64> = (0..600).map(|_| rng.below(numbers)).collect();
        old.apply_unchecked(old.ops(some, &mut rng, 20));
    }
    let mut new = Twin::<F>::new(MemStore::new());
    (new.root, new.model) = (old.root, old.model.clone());
    for _ in 0..rng.below(5) {
        let base = rng.below(numbers);
        let numbers: Vec<u64> = match rng.below(3) {
            0 => (base..base + rng.below(500)).collect(),
            1 => (0..rng.below(500)).map(|_| rng.below(numbers)).collect(),
            _ => vec![base],
        };
        let percent = [0, 50, 100][rng.below(3) as usize];
        let ops: Ops<F> = new.ops(numbers, &mut rng, percent);
        for (key, entry) in &ops {
            match entry {
                Some(entry) => drop(new.model.insert(*key, entry.clone())),
                None => drop(new.model.remove(key)),
            }
        }
        old.store.next_txg();
        let keeping = Keeping(&old.store);
        new.root = old.store.run(merge::<F, _>(&keeping, new.root, OWNER, ops)).unwrap();
    }
    assert_eq!(differences::<F>(&old.store, old.root, new.root), expected(&old, &new));
    assert_eq!(differences::<F>(&old.store, new.root, old.root), expected(&new, &old));
    for _ in 0..4 {
        let from = F::key(&F::entry(rng.below(numbers + 10), 0));
        let mut expected = expected(&old, &new);
        expected.retain(|difference| difference.key >= from);
        assert_eq!(later::<F>(&old.store, (old.root, new.root), from), expected);
    }
    assert_eq!(differences::<F>(&old.store, old.root, None).len(), old.model.len());
    assert_eq!(differences::<F>(&old.store, None, new.root).len(), new.model.len());
}

#[test]
fn differences_follow_the_model() {
    for seed in 0..60 {
        follows::<Objects>(seed);
        follows::<Directory>(seed);
        follows::<Namespace>(seed);
    }
}

#[test]
fn what_is_shared_is_not_read() {
    let mut twin = Twin::<Objects>::new(MemStore::instant());
    let mut rng = Rng::new(1);
    for _ in 0..20 {
        let some: Vec<u64> = (0..5000).map(|_| 10 + rng.below(1 << 20)).collect();
        twin.apply_unchecked(twin.ops(some, &mut rng, 0));
    }
    let levels = u64::from(twin.root.unwrap().level) + 1;
    assert!(levels >= 3);
    let store = &twin.store;
    store.take_counts();
    assert!(differences::<Objects>(store, twin.root, twin.root).is_empty());
    assert_eq!(store.take_counts().0, 0);

    // One new entry: both paths, and no more even where a leaf was split.
    for number in [5, 1 << 19, 1 << 21] {
        let ops = twin.ops([number], &mut rng, 0);
        let new = store.run(merge::<Objects, _>(&Keeping(store), twin.root, OWNER, ops)).unwrap();
        store.take_counts();
        let found = differences::<Objects>(store, twin.root, new);
        assert_eq!(found.len(), 1);
        let (reads, _, _) = store.take_counts();
        assert!(reads <= 2 * levels + 1, "{reads} reads at {levels} levels");
    }
}

#[test]
fn a_journal_that_is_dropped_frees_what_it_wrote() {
    let store = MemStore::new();
    let mut journal = Journal::new(&store, OWNER);
    let body = aquifer_ondisk::tree_node::NodeBody::<Objects>::Leaf(vec![Objects::entry(1, 1)]);
    journal.write(0, body.into()).unwrap();
    assert_eq!(store.live().len(), 1);
    drop(journal);
    assert!(store.live().is_empty());
}
