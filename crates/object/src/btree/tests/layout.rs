//! The layout of entries over nodes, by itself.

use aquifer_ondisk::tree_node::NODE_CAPACITY_BYTES;
use proptest::prelude::*;

use crate::btree::TreeError;
use crate::btree::pack::{Fill, Grown, Growth, Item, NodeSize, layout};

fn plain(bytes: usize, count: usize) -> Vec<Item> {
    vec![Item { bytes, tied: false }; count]
}

/// Bytes of each node.
fn nodes(items: &[Item], fill: Fill) -> Vec<usize> {
    let starts = layout(items, fill, NodeSize::FULL).unwrap();
    let ends = starts.iter().skip(1).copied().chain([items.len()]);
    let sum =
        |(start, end): (&usize, usize)| items[*start..end].iter().map(|item| item.bytes).sum();
    starts.iter().zip(ends).map(sum).collect()
}

#[test]
fn one_too_many_makes_two_halves() {
    let sizes = nodes(&plain(28, 145), Fill::Even);
    assert_eq!(sizes, [73 * 28, 72 * 28]);
    assert_eq!(nodes(&plain(28, 145), Fill::BrimAtEdge), [144 * 28, 28]);
    // The last one gets just enough not to be light: 36 entries.
    assert_eq!(nodes(&plain(28, 145), Fill::Brim), [109 * 28, 36 * 28]);
}

#[test]
fn many_are_filled_evenly_or_to_the_brim() {
    let even = nodes(&plain(28, 10_000), Fill::Even);
    assert_eq!(even.len(), (10_000 * 28usize).div_ceil(NODE_CAPACITY_BYTES * 7 / 8));
    let (least, most) = (even.iter().min().unwrap(), even.iter().max().unwrap());
    assert!(most - least <= 28, "{least} to {most}");
    let brim = nodes(&plain(28, 10_000), Fill::BrimAtEdge);
    assert_eq!(brim.len(), 10_000usize.div_ceil(144));
    assert!(brim[..brim.len() - 1].iter().all(|bytes| *bytes == 144 * 28));
}

#[test]
fn what_cannot_be_cut_is_an_error() {
    let mut items = plain(1000, 5);
    items[1..].iter_mut().for_each(|item| item.tied = true);
    assert_eq!(
        layout(&items, Fill::Even, NodeSize::FULL),
        Err(TreeError::Inseparable { bytes: 5000 })
    );
}

#[test]
fn growth_tells_where() {
    let grown = |steps: &str| {
        let mut growth = Growth::default();
        for step in steps.chars() {
            match step {
                '.' => growth.stands(),
                '+' => growth.put(),
                _ => growth.gone(),
            }
        }
        growth.any().then(|| growth.grown())
    };
    assert_eq!(grown("...."), None);
    assert_eq!(grown("..+"), Some(Grown::AtEnd));
    assert_eq!(grown("..-++"), Some(Grown::AtEnd));
    assert_eq!(grown(".-+.-+..+"), Some(Grown::AtEnd), "what is replaced is no growth");
    assert_eq!(grown("..-+"), Some(Grown::Scattered));
    assert_eq!(grown("..-"), Some(Grown::Scattered));
    assert_eq!(grown(".+."), Some(Grown::Scattered));
    assert_eq!(grown(".+-+++++-.."), Some(Grown::InOnePlace));
    assert_eq!(grown(".++.++"), Some(Grown::Scattered));
    assert_eq!(grown(".-.++++."), Some(Grown::InOnePlace));
}

/// Simulators make nodes so small that one entry may fill them.
#[test]
fn no_node_is_left_empty() {
    let items = [300, 390, 50].map(|bytes| Item { bytes, tied: false });
    assert_eq!(layout(&items, Fill::Brim, NodeSize::at_most(400)), Ok(vec![0, 1, 2]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_layout_fits_and_keeps_what_is_tied(
        sizes in prop::collection::vec((20usize..=1344, prop::bool::weighted(0.2)), 4..400),
        small in any::<bool>(),
        fill in prop_oneof![Just(Fill::Even), Just(Fill::Brim), Just(Fill::BrimAtEdge)],
    ) {
        let mut run = 0;
        let item = |(bytes, tied): &(usize, bool)| {
            // Small entries may be tied, as those of extents are; long ones are not.
            let bytes = if small { bytes % 140 + 20 } else { *bytes };
            let tied = small && *tied && run < 7;
            run = if tied { run + 1 } else { 0 };
            Item { bytes, tied }
        };
        let mut items: Vec<Item> = sizes.iter().map(item).collect();
        items[0].tied = false;
        let total: usize = items.iter().map(|item| item.bytes).sum();
        prop_assume!(total > NODE_CAPACITY_BYTES);
        let starts = layout(&items, fill, NodeSize::FULL).unwrap();
        prop_assert_eq!(starts[0], 0);
        prop_assert!(starts.is_sorted_by(|a, b| a < b));
        prop_assert!(starts.iter().all(|start| !items[*start].tied));
        let nodes = nodes(&items, fill);
        prop_assert!(nodes.iter().all(|bytes| (1..=NODE_CAPACITY_BYTES).contains(bytes)));
        prop_assert_eq!(nodes.iter().sum::<usize>(), total);
        if fill != Fill::BrimAtEdge {
            let light = nodes.iter().filter(|bytes| **bytes < NodeSize::FULL.light_bytes()).count();
            prop_assert!(light == 0, "{:?}", nodes);
        }
        // No two neighbours would fit one node, unless the fill was to be even.
        if fill == Fill::BrimAtEdge {
            let tight = nodes.windows(2).all(|pair| pair[0] + 1344 + 8 * 160 > NODE_CAPACITY_BYTES);
            prop_assert!(tight, "{:?}", nodes);
        }
    }
}
