//! Random strokes, compared with the canvas.

use aquifer_ondisk::tree_node::Extents;
use proptest::prelude::*;

use super::{Canvas, Paint, Stroke};
use crate::btree::first_from;
use crate::extent_tree::{drain, split_off};
use crate::mem_store::{MemStore, OWNER, Rng};

fn paint(rng: &mut Rng, compressed_percent: u64) -> Paint {
    if rng.chance(12) {
        return Paint::Hole(1 + rng.below(40));
    }
    if rng.chance(compressed_percent) {
        let pages = 2 + rng.below(7);
        return Paint::Compressed(pages, 1 + rng.below(pages - 1));
    }
    let single = rng.chance(60);
    Paint::Plain(if single { 1 } else { 1 + rng.below(16) })
}

pub(super) fn strokes(rng: &mut Rng, pages: u64, compressed_percent: u64) -> Vec<Stroke> {
    let many = rng.chance(15);
    let count = 1 + rng.below(if many { 600 } else { 40 });
    // All over, or in one small region.
    let (base, width) = if rng.chance(50) { (0, pages) } else { (rng.below(pages), 64) };
    let mut stroke = || Stroke {
        page: base + rng.below(width),
        paint: paint(rng, compressed_percent),
        cut: rng.chance(30),
    };
    (0..count).map(|_| stroke()).collect()
}

fn many_batches(seeds: u64, batches: u64, pages: u64, compressed_percent: u64) {
    for seed in 0..seeds {
        let mut rng = Rng::new(seed + 77);
        let store = if seed % 2 == 0 { MemStore::new() } else { MemStore::instant() };
        let mut canvas = Canvas::new(store);
        for _ in 0..batches {
            let strokes = strokes(&mut rng, pages, compressed_percent);
            let shape = canvas.apply(&strokes);
            assert!(shape.light <= 1 + shape.leaf_bytes.len() / 20, "{} light", shape.light);
            for _ in 0..3 {
                let from = rng.below(pages);
                canvas.check_range(from, from + rng.below(200));
            }
        }
    }
}

#[test]
fn plain_extents_follow_the_canvas() {
    many_batches(15, 40, 3000, 0);
}

#[test]
fn compressed_extents_follow_the_canvas() {
    many_batches(15, 40, 3000, 100);
}

#[test]
fn mixed_extents_follow_the_canvas() {
    many_batches(20, 40, 4000, 50);
}

#[test]
fn a_crowded_canvas() {
    many_batches(20, 60, 200, 70);
}

fn any_paint() -> impl Strategy<Value = Paint> {
    prop_oneof![
        1 => (1u64..30).prop_map(Paint::Hole),
        3 => prop_oneof![Just(1u64), 1u64..=16].prop_map(Paint::Plain),
        4 => (2u64..=8).prop_flat_map(|pages| (Just(pages), 1..pages))
            .prop_map(|(pages, sectors)| Paint::Compressed(pages, sectors)),
    ]
}

fn any_batches() -> impl Strategy<Value = Vec<Vec<Stroke>>> {
    let stroke = (0u64..400, any_paint(), prop::bool::weighted(0.3))
        .prop_map(|(page, paint, cut)| Stroke { page, paint, cut });
    prop::collection::vec(prop::collection::vec(stroke, 1..50), 1..16)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_strokes(batches in any_batches()) {
        let mut canvas = Canvas::new(MemStore::new());
        for strokes in &batches {
            canvas.apply(strokes);
        }
        for page in 0..450 {
            canvas.check_range(page, page + 1);
            let next = first_from::<Extents, _>(&canvas.store, canvas.root, page);
            let next = canvas.store.run(next).unwrap().map(|extent| extent.page.max(page));
            prop_assert_eq!(next, canvas.cells.range(page..).next().map(|(page, _)| *page));
        }
    }

    #[test]
    fn cut_anywhere_then_drained(batches in any_batches(), at in 0u64..460, budget in 1usize..200) {
        let mut canvas = Canvas::new(MemStore::new());
        for strokes in &batches {
            canvas.apply_unchecked(strokes);
        }
        cut_and_drain(canvas, at, budget);
    }
}

/// Cuts a canvas, checks both sides, goes on with the left and drains the right.
pub(super) fn cut_and_drain(mut canvas: Canvas, at: u64, budget: usize) {
    canvas.store.next_txg();
    let split = split_off(&canvas.store, canvas.root, OWNER, at);
    let halves = canvas.store.run(split).unwrap();
    let all = canvas.store.live();
    let right_cells = canvas.cells.split_off(&at);
    let left_uses: Vec<usize> = canvas.cells.values().map(|(id, _)| *id).collect();

    // The right side, a canvas of its own over the same store.
    let mut right = Canvas { root: halves.right, ..Canvas::new(canvas.store) };
    right.extents = canvas.extents;
    right.cells = right_cells;
    let plain =
        |id: usize| matches!(right.extents[id].stored, aquifer_ondisk::extent::Stored::Plain(_));
    right.cells.retain(|_, (id, _)| plain(*id) || !left_uses.contains(id));
    right.live = right.used();
    let right_shape = crate::mem_store::check_tree::<Extents>(&right.store, right.root);
    assert_eq!(super::page_by_page(&right_shape.entries), right.shown(0, u64::MAX));

    // Of the left side, the live sectors are exactly the rest: nothing is freed by a cut.
    let mut left = Canvas { root: halves.left, ..Canvas::new(MemStore::new()) };
    left.extents = right.extents.clone();
    left.cells = canvas.cells;
    left.live = left.used();
    let mut both = left.live.clone();
    both.extend(right.live.clone());
    assert_eq!(both.len(), left.live.len() + right.live.len());
    assert_eq!(both, canvas.live);
    let left_shape = crate::mem_store::check_tree::<Extents>(&right.store, left.root);
    assert_eq!(super::page_by_page(&left_shape.entries), left.shown(0, u64::MAX));
    assert!(right_shape.nodes.is_disjoint(&left_shape.nodes));
    assert_eq!(
        right_shape
            .nodes
            .union(&left_shape.nodes)
            .copied()
            .collect::<std::collections::BTreeSet<_>>(),
        all
    );

    while right.root.is_some() {
        right.store.next_txg();
        let drained = right.store.run(drain(&right.store, right.root, OWNER, budget)).unwrap();
        right.root = drained.root;
        let before = right.live.len() as u64;
        let shape = crate::mem_store::check_tree::<Extents>(&right.store, right.root);
        let end = shape.entries.last().map_or(0, |last| last.end());
        right.cells.retain(|page, _| *page < end);
        right.settle(&drained.freed);
        assert_eq!(before - right.live.len() as u64, drained.refer_sectors);
        let nodes: std::collections::BTreeSet<_> =
            shape.nodes.union(&left_shape.nodes).copied().collect();
        assert_eq!(nodes, right.store.live());
    }
    assert!(right.live.is_empty());

    // The left tree goes on living.
    left.next_sector = right.next_sector.max(canvas.next_sector) + 100_000;
    left.store = right.store;
    let mut rng = Rng::new(at);
    for _ in 0..3 {
        let strokes = strokes(&mut rng, 460, 50);
        left.apply(&strokes);
    }
}

#[test]
fn large_trees_cut_and_drained() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut canvas = Canvas::new(MemStore::instant());
        for _ in 0..30 {
            let strokes = strokes(&mut rng, 20_000, 50);
            canvas.apply_unchecked(&strokes);
        }
        canvas.check();
        let at = rng.below(20_000);
        cut_and_drain(canvas, at, 1 + rng.below(700) as usize);
    }
}
