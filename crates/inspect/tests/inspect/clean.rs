//! Whole pools: no finding, and everything is counted.

use aquifer_inspect::{Kind, LeafRole, inspect};

use crate::pool::{HandPool, POOL, SECTORS, SESSION, Shape};
use crate::{Options, block_on, deep, good, kinds, look, look_deep};

const SHAPES: [Shape; 4] = [Shape::Single, Shape::Mirror, Shape::TwoSingles, Shape::WithLog];

#[test]
fn whole_pools_are_clean() {
    for shape in SHAPES {
        let pool = good(shape);
        for report in [look(pool.arcs()), look_deep(pool.arcs())] {
            assert!(report.is_clean(), "{shape:?}\n{report}");
            assert_eq!(kinds(&report), [], "{shape:?}\n{report}");
            assert_eq!(report.count(Kind::Orphan), 2, "{report}");
        }
    }
}

#[test]
fn an_empty_pool_is_clean() {
    let mut pool = HandPool::new(Shape::Single);
    pool.commit();
    let report = look_deep(pool.arcs());
    assert_eq!(report.findings, [], "{report}");
    assert_eq!(report.summary.roots.len(), 1);
}

#[test]
fn the_summary_counts_everything() {
    let pool = good(Shape::Single);
    let report = look_deep(pool.arcs());
    let summary = &report.summary;
    assert_eq!((summary.name.as_str(), summary.guid), ("tank", POOL));
    assert_eq!((summary.txg.0, summary.session, summary.sequence), (12, SESSION, 103));
    assert_eq!(summary.leaves.len(), 1);
    assert_eq!((summary.leaves[0].role, summary.leaves[0].labels), (LeafRole::Online, 4));
    let txgs: Vec<u64> = summary.roots.iter().map(|root| root.txg.0).collect();
    assert_eq!(txgs, [12, 11, 10]);
    let root = &summary.roots[0];
    assert!(root.whole);
    let names: Vec<&str> = root.datasets.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(names, ["tank", "tank/vms"]);
    let sample = &root.datasets[0];
    assert_eq!((sample.objects, sample.directories, sample.orphans), (11, 4, 2));
    // Four in the root, three in sub, one in deeper, two orphans.
    assert_eq!(sample.entries, 10);
    let sectors = &root.sectors;
    let geometry = pool.geometries[0];
    assert_eq!(sectors.total, geometry.sectors());
    assert!(geometry.sectors() < SECTORS);
    // Two copies of four slots of a sector, in four metaslabs, and the labels.
    assert_eq!(sectors.reserved, 4 * 2 * 4 * geometry.slot_sectors() + 512);
    assert_eq!((sectors.records, sectors.log), (4 * 1024, 2 * 1024));
    // 20 * 4; 3 + 2 + 1 + 3 + 16; a symlink; two orphans.
    assert_eq!(sectors.data, 80 + 25 + 1 + 3);
    let parts = [
        sectors.reserved,
        sectors.records,
        sectors.log,
        sectors.pool_nodes,
        sectors.object_nodes,
        sectors.directory_nodes,
        sectors.extent_nodes,
        sectors.data,
    ];
    assert_eq!(parts.iter().sum::<u64>(), sectors.allocated);
    assert_eq!((sectors.leaked, sectors.twice, sectors.not_allocated), (0, 0, 0));
    let text = report.to_string();
    assert!(text.contains("pool tank") && text.contains("no errors"), "{text}");
}

#[test]
fn futures_move_between_threads() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let pool = good(Shape::Mirror);
    let options = deep();
    let report = block_on(is_send(inspect(pool.arcs(), &options)));
    assert!(report.is_clean());
}

#[test]
fn findings_of_a_kind_are_kept_up_to_a_limit_and_counted() {
    let pool = crate::changed(Shape::Single, |_, sample, _| {
        for inode in sample.inodes.values_mut() {
            inode.mode = 0o100_644;
        }
    });
    let options = Options { findings_per_kind_max: 2, ..Options::default() };
    let report = block_on(inspect(pool.arcs(), &options));
    assert_eq!(report.count(Kind::ObjectInvalid), 11);
    let kept = report.findings.iter().filter(|finding| finding.kind == Kind::ObjectInvalid);
    assert_eq!(kept.count(), 2);
    assert!(report.to_string().contains("ObjectInvalid: 9 more"), "{report}");
}
