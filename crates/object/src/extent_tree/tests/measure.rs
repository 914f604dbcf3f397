//! Depth and cost of a large tree.
//! `cargo test --release -p aquifer-object -- --ignored --nocapture cost_of` prints the figures.

use std::time::Instant;

use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::tree_node::Extents;
use aquifer_ondisk::{BlockPointer, Place};

use crate::btree::NodeSink;
use crate::extent_tree::{Replace, lookup_range, merge_extents};
use crate::mem_store::{MemStore, OWNER, Rng, Shape, check_tree};

/// Ops of single pages at random among `pages`, each on a place of its own.
fn singles(rng: &mut Rng, store: &MemStore, count: usize, pages: u64) -> Vec<Replace> {
    let mut at: Vec<u64> = (0..count).map(|_| rng.below(pages)).collect();
    at.sort_unstable();
    at.dedup();
    let single = |page: u64| Replace {
        from_page: page,
        to_page: page + 1,
        extents: vec![Extent {
            page,
            pages: 1,
            birth: store.txg(),
            written: store.txg(),
            place: Place::new(0, 1 + 2 * rng.below(1 << 40)),
            counted: false,
            stored: Stored::Plain([page].into_iter().collect()),
        }],
    };
    at.into_iter().map(single).collect()
}

struct Grown {
    store: MemStore,
    root: Option<BlockPointer>,
    entries: i64,
    rng: Rng,
}

/// A tree of `count` extents of single pages, put at random, 20,000 at a time.
fn grow(count: i64, pages: u64) -> Grown {
    let mut grown = Grown { store: MemStore::instant(), root: None, entries: 0, rng: Rng::new(8) };
    while grown.entries < count {
        grown.merge(20_000, pages);
    }
    grown
}

impl Grown {
    /// Returns reads and writes of nodes, and ns, each for one op.
    fn merge(&mut self, count: usize, pages: u64) -> (f64, f64, f64) {
        self.store.next_txg();
        self.store.take_counts();
        let ops = singles(&mut self.rng, &self.store, count, pages);
        let count = ops.len() as f64;
        let start = Instant::now();
        let merge = merge_extents(&self.store, self.root, OWNER, ops);
        let merged = self.store.run(merge).unwrap();
        let ns = start.elapsed().as_nanos() as f64;
        let (reads, writes, _) = self.store.take_counts();
        self.root = merged.root;
        self.entries += merged.refer_sectors;
        (reads as f64 / count, writes as f64 / count, ns / count)
    }

    fn check(&self) -> Shape<Extents> {
        let shape = check_tree::<Extents>(&self.store, self.root);
        assert_eq!(shape.nodes, self.store.live());
        assert_eq!(shape.entries.len() as i64, self.entries);
        shape
    }
}

#[test]
fn a_million_extents_put_at_random() {
    let mut grown = grow(1_000_000, 1 << 36);
    let shape = grown.check();
    assert_eq!(shape.levels, 4);
    assert!((0.6..0.85).contains(&shape.leaf_fill()), "{}", shape.leaf_fill());
    assert!(shape.light <= shape.leaf_bytes.len() / 1000, "{} light", shape.light);
    // At most one leaf and its path for each op, and ops share the paths.
    let (reads, writes, _) = grown.merge(10_000, 1 << 36);
    assert!(reads < 1.0 && writes < 1.2, "{reads} reads, {writes} writes an op");
    grown.store.take_counts();
    for entry in shape.entries.iter().step_by(997) {
        let found = lookup_range(&grown.store, grown.root, entry.page, entry.page + 1);
        assert_eq!(grown.store.run(found).unwrap().len(), 1);
    }
    let lookups = shape.entries.len().div_ceil(997) as u64;
    assert_eq!(grown.store.take_counts().0, 4 * lookups, "one read a level");
}

#[test]
#[ignore = "a measurement: run it in a release build"]
fn cost_of_merges_and_lookups() {
    let pages = 1 << 21;
    let mut grown = grow(1_000_000, pages);
    let shape = grown.check();
    println!(
        "{} extents, {} leaves {:.3} full, {} levels",
        grown.entries,
        shape.leaf_bytes.len(),
        shape.leaf_fill(),
        shape.levels
    );
    for count in [1_000, 10_000, 100_000, 10_000] {
        let (reads, writes, ns) = grown.merge(count, pages);
        println!("merge of {count}: {ns:.0} ns, {reads:.2} reads, {writes:.2} writes an op");
    }
    let shape = grown.check();
    let pages: Vec<u64> = shape.entries.iter().map(|entry| entry.page).collect();
    let mut rng = Rng::new(3);
    let count = 200_000;
    for width in [1, 256] {
        let start = Instant::now();
        let mut found = 0;
        for _ in 0..count / width {
            let page = pages[rng.below(pages.len() as u64) as usize];
            let range = lookup_range(&grown.store, grown.root, page, page + width);
            found += grown.store.run(range).unwrap().len();
        }
        let ns = start.elapsed().as_nanos() as u64 / (count / width);
        println!("lookup of {width} pages: {ns} ns, {found} found");
    }
    // The store's share of that: its lock, map and checksum of each node.
    let root = grown.root.unwrap();
    let start = Instant::now();
    (0..count).for_each(|_| drop(grown.store.sector(&root)));
    println!("a read of the store: {} ns", start.elapsed().as_nanos() as u64 / count);
}
