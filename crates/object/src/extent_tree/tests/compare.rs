//! Changed pages of two versions of a file, held against the canvas: histories with branches, as
//! snapshots and clones have them.

use std::collections::BTreeMap;

use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::tree_node::{Extents, Node, NodeBody};

use super::model::strokes;
use super::{Canvas, Cell};
use crate::btree::NodeSink;
use crate::extent_tree::{ChangedPages, compare_extents, merge_extents, split_off};
use crate::mem_store::{Keeping, MemError, MemStore, OWNER, Rng};

/// A file as of a snapshot: its tree, and what each page is.
#[derive(Clone)]
struct Version {
    root: Option<BlockPointer>,
    cells: BTreeMap<u64, Cell>,
}

fn changed(
    store: &MemStore,
    old: Option<BlockPointer>,
    new: Option<BlockPointer>,
    from: u64,
) -> Result<Vec<ChangedPages>, MemError> {
    store.run(async {
        let mut compare = compare_extents(store, old, new, from)?;
        let mut all = Vec::new();
        loop {
            let before = all.len();
            let more = compare.next(&mut all).await?;
            assert!(all.len() - before <= 32, "bounded");
            if !more {
                return Ok(all);
            }
        }
    })
}

fn single(ranges: &[ChangedPages]) -> Vec<(u64, bool)> {
    let pages = |range: &ChangedPages| {
        let is_data = range.is_data;
        (range.from_page..range.to_page).map(move |page| (page, is_data))
    };
    ranges.iter().flat_map(pages).collect()
}

fn expected(old: &Version, new: &Version, from: u64) -> Vec<(u64, bool)> {
    let pages: std::collections::BTreeSet<u64> =
        old.cells.range(from..).chain(new.cells.range(from..)).map(|(page, _)| *page).collect();
    let differs = |page: &u64| old.cells.get(page) != new.cells.get(page);
    pages.into_iter().filter(differs).map(|page| (page, new.cells.contains_key(&page))).collect()
}

impl Canvas {
    /// Goes on from a version, in one txg, and keeps all nodes.
    fn go_on(&mut self, version: &Version, rng: &mut Rng, pages: u64) -> Version {
        (self.root, self.cells) = (version.root, version.cells.clone());
        self.store.next_txg();
        // Places are used again, in other txgs.
        if rng.chance(70) {
            self.next_sector = 10;
        }
        if rng.chance(15) {
            let at = rng.below(pages);
            let keeping = Keeping(&self.store);
            let split = split_off(&keeping, self.root, OWNER, at);
            self.root = self.store.run(split).unwrap().left;
            self.cells.split_off(&at);
            return Version { root: self.root, cells: self.cells.clone() };
        }
        let ops = self.paint(&strokes(rng, pages, 50));
        let keeping = Keeping(&self.store);
        let merge = merge_extents(&keeping, self.root, OWNER, ops);
        self.root = self.store.run(merge).unwrap().root;
        Version { root: self.root, cells: self.cells.clone() }
    }
}

fn follows(seed: u64) {
    let mut rng = Rng::new(seed + 5);
    let store = if seed.is_multiple_of(4) { MemStore::new() } else { MemStore::instant() };
    let mut canvas = Canvas::new(store);
    let pages = [200, 3000, 20_000][rng.below(3) as usize];
    let mut versions = vec![Version { root: None, cells: BTreeMap::new() }];
    for _ in 0..4 + rng.below(12) {
        let back = if rng.chance(25) { rng.below(versions.len() as u64) as usize } else { 0 };
        let from = versions[versions.len() - 1 - back].clone();
        versions.push(canvas.go_on(&from, &mut rng, pages));
    }
    for old in &versions {
        for new in &versions {
            let from = if rng.chance(50) { 0 } else { rng.below(pages) };
            let found = changed(&canvas.store, old.root, new.root, from).unwrap();
            let is_joined = |pair: &[ChangedPages]| pair[0].to_page <= pair[1].from_page;
            assert!(found.windows(2).all(is_joined), "in order: {found:?}");
            assert_eq!(single(&found), expected(old, new, from), "seed {seed}, from {from}");
        }
    }
}

#[test]
fn changed_pages_follow_the_canvas() {
    let seeds = std::env::var("AQUIFER_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    (0..seeds).for_each(follows);
}

/// A version a thousand pages away from another, of many.
#[test]
fn only_what_differs_is_read() {
    let mut rng = Rng::new(3);
    let mut canvas = Canvas::new(MemStore::instant());
    let single = |page: u64| super::Stroke { page, paint: super::Paint::Plain(1), cut: false };
    let all: Vec<_> = (0..100_000).map(|at| single(at * 3)).collect();
    let few: Vec<_> = (0..1000).map(|_| single(rng.below(100_000) * 3)).collect();
    canvas.apply_unchecked(&all);
    let old = canvas.root;
    canvas.store.next_txg();
    let ops = canvas.paint(&few);
    let keeping = Keeping(&canvas.store);
    let merge = merge_extents(&keeping, canvas.root, OWNER, ops);
    let new = canvas.store.run(merge).unwrap().root;
    let written = canvas.store.live_of(canvas.store.txg()).len() as u64;
    canvas.store.take_counts();
    let found = changed(&canvas.store, old, new, 0).unwrap();
    assert!((980..=1000).contains(&found.len()), "{}", found.len());
    let (reads, _, _) = canvas.store.take_counts();
    // Each new node, and the one in its place before.
    assert!(reads <= 2 * written + 40, "{reads} reads, {written} nodes written");
}

#[test]
fn extents_out_of_order_are_an_error() {
    let store = MemStore::instant();
    let extent = |page: u64, pages: u8| Extent {
        page,
        pages,
        birth: store.txg(),
        written: store.txg(),
        place: aquifer_ondisk::Place::new(0, 100 + page),
        counted: false,
        stored: Stored::Plain((0..u64::from(pages)).collect()),
    };
    let leaf = |entries: Vec<Extent>| {
        let body = NodeBody::<Extents>::Leaf(entries);
        let node = Node { level: 0, owner: OWNER, written: store.txg(), body };
        let kind = aquifer_ondisk::block_pointer::BlockKind::Extents;
        store.plant(kind, 0, &node.encode().unwrap())
    };
    let root = leaf(vec![extent(0, 5), extent(4, 2)]);
    let found = changed(&store, None, Some(root), 0);
    assert!(matches!(found, Err(MemError::Format(_))), "{found:?}");
    let other = leaf(vec![extent(3, 2)]);
    assert!(changed(&store, Some(other), None, 0).is_ok());
}
