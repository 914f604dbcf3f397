//! The cost of an inspection of a small pool that is nearly full. For the time:
//! `cargo test --release -p aquifer-inspect --test inspect speed -- --nocapture`

use std::time::Instant;

use aquifer_inspect::{Options, inspect};
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::inode::FileKind;

use crate::pool::{HandPool, Shape};
use crate::tree::{Content, ROOT, inode, write_all};
use crate::{block_on, kinds};

/// Files of 1,000 extents of that many pages, until the pool is nearly full.
fn nearly_full(shape: Shape, pages: u64) -> HandPool {
    let mut pool = HandPool::new(shape);
    pool.merge_runs = true;
    pool.commit();
    let mut content = Content::empty(0, "tank");
    content.objects_fanout = 17;
    // As packed as the engine packs them.
    content.fanout = 4032 / (20 + 8 * pages as usize);
    let room = pool.used[0].len() as u64 - pool.cursor[0];
    let total = room * 96 / 100 / pages;
    let mut left = total;
    for id in 100.. {
        if left == 0 {
            break;
        }
        content.add(ROOT, &format!("disk{id}"), inode(id, FileKind::Regular, ROOT));
        let count = left.min(1000);
        let data: Vec<Extent> =
            (0..count).map(|at| pool.data(at * pages, &vec![1; pages as usize])).collect();
        content.file(id, data);
        left -= count;
    }
    content.settle();
    let mut below = Content::empty(1, "vms");
    write_all(&mut pool, &mut content, &mut below);
    pool.commit();
    pool
}

#[test]
fn a_nearly_full_pool_is_inspected_quickly() {
    for (shape, pages) in [(Shape::Single, 1), (Shape::Single, 16), (Shape::Mirror, 4)] {
        let pool = nearly_full(shape, pages);
        let before: u64 = pool.disks.iter().map(|disk| disk.reads()).sum();
        let report = block_on(inspect(pool.arcs(), &Options::default()));
        assert_eq!(kinds(&report), [], "{report}");
        let reads = pool.disks.iter().map(|disk| disk.reads()).sum::<u64>() - before;
        let sectors = &report.summary.roots[0].sectors;
        assert!(sectors.allocated * 10 > sectors.total * 9, "{sectors:?}");
        // Neighbouring nodes are read in one go.
        assert!(reads < 500, "{reads}");
        let began = Instant::now();
        let rounds = 20;
        for _ in 0..rounds {
            let report = block_on(inspect(pool.arcs(), &Options::default()));
            assert!(report.is_clean());
        }
        let took = began.elapsed() / rounds;
        let leaves = sectors.extent_nodes;
        println!(
            "{shape:?}, extents of {pages} pages: {leaves} extent nodes, {reads} reads, {took:?}"
        );
    }
}
