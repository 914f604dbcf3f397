//! Single shapes, one rule each.

use aquifer_ondisk::extent::{Compression, Extent, Stored};
use aquifer_ondisk::tree_node::Extents;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{Place, Txg};

use super::{Canvas, Paint, Stroke};
use crate::btree::collect_range;
use crate::extent_tree::{FreedExtent, Merged, Replace, drain, merge_extents, split_off};
use crate::mem_store::{MemStore, OWNER, Rng, check_tree};

fn plain(page: u64, pages: u8, sector: u64) -> Extent {
    Extent {
        page,
        pages,
        birth: Txg(5),
        written: Txg(5),
        place: Place::new(0, sector),
        counted: false,
        stored: Stored::Plain((0..u64::from(pages)).map(|at| sector + at).collect()),
    }
}

fn compressed(page: u64, total: u8, sector: u64) -> Extent {
    Extent {
        stored: Stored::Compressed {
            algorithm: Compression::Zstd,
            offset_pages: 0,
            total_pages: total,
            stored_sectors: total - 1,
            stored_bytes: 4000,
            checksum: sector,
        },
        ..plain(page, total, sector)
    }
}

fn put(extents: Vec<Extent>) -> Replace {
    let (first, last) = (extents.first().unwrap(), extents.last().unwrap());
    Replace { from_page: first.page, to_page: last.end(), extents }
}

fn hole(from_page: u64, to_page: u64) -> Replace {
    Replace { from_page, to_page, extents: Vec::new() }
}

fn merged(
    store: &MemStore,
    root: Option<aquifer_ondisk::BlockPointer>,
    ops: Vec<Replace>,
) -> Merged {
    store.next_txg();
    store.run(merge_extents(store, root, OWNER, ops)).unwrap()
}

fn entries(store: &MemStore, root: Option<aquifer_ondisk::BlockPointer>) -> Vec<Extent> {
    store.run(collect_range::<Extents, _>(store, root, 0, None, usize::MAX)).unwrap()
}

fn joins(left: Extent, right: Extent) -> bool {
    let store = MemStore::new();
    let both = vec![left.clone(), right.clone()];
    let root = merged(&store, None, vec![put(vec![left]), put(vec![right])]).root;
    let found = entries(&store, root);
    assert_eq!(super::page_by_page(&found), super::page_by_page(&both));
    found.len() == 1
}

#[test]
fn neighbours_of_one_run_and_life_are_joined() {
    assert!(joins(plain(0, 3, 100), plain(3, 5, 103)));
    assert!(joins(plain(0, 8, 100), plain(8, 8, 108)));
    assert!(!joins(plain(0, 8, 100), plain(8, 9, 108)), "17 pages");
    assert!(!joins(plain(0, 3, 100), plain(4, 5, 103)), "a hole between them");
    assert!(!joins(plain(0, 3, 100), plain(3, 5, 104)), "not one run");
    assert!(!joins(plain(0, 3, 100), Extent { birth: Txg(4), ..plain(3, 5, 103) }));
    assert!(!joins(plain(0, 3, 100), Extent { written: Txg(4), ..plain(3, 5, 103) }));
    assert!(!joins(plain(0, 3, 100), Extent { counted: true, ..plain(3, 5, 103) }));
    assert!(!joins(plain(0, 3, 1021), plain(3, 5, 1024)), "two segments");
    assert!(!joins(plain(0, 3, 100), Extent { place: Place::new(1, 103), ..plain(3, 5, 103) }));
    assert!(!joins(compressed(0, 4, 100), plain(4, 5, 103)));
}

/// The extents of an earlier merge in the same txg are joined with following ones, on either side.
#[test]
fn neighbours_put_one_after_the_other_are_joined() {
    let store = MemStore::new();
    let root = merged(&store, None, vec![put(vec![plain(3, 5, 103)])]).root;
    let root = merged(&store, root, vec![put(vec![plain(0, 3, 100)])]).root;
    let root = merged(&store, root, vec![put(vec![plain(8, 4, 108)])]).root;
    assert_eq!(entries(&store, root), vec![plain(0, 12, 100)]);
    let root = merged(&store, root, vec![put(vec![plain(20, 1, 120)])]).root;
    let root = merged(&store, root, vec![put(vec![plain(12, 4, 112)])]).root;
    assert_eq!(entries(&store, root), vec![plain(0, 16, 100), plain(20, 1, 120)]);
}

#[test]
fn a_run_freed_in_one_piece_is_said_in_one_piece() {
    let store = MemStore::new();
    let root = merged(&store, None, vec![put(vec![plain(0, 16, 100), plain(16, 16, 116)])]).root;
    let all = merged(&store, root, vec![hole(2, 30)]);
    let freed = FreedExtent {
        run: Run::new(Place::new(0, 102), 28),
        birth: Txg(5),
        written: Txg(5),
        counted: false,
        saved_sectors: 0,
    };
    assert_eq!((all.freed, all.refer_sectors), (vec![freed], -28));
}

#[test]
fn a_compressed_extent_is_freed_with_its_last_part() {
    let store = MemStore::new();
    let mut root = merged(&store, None, vec![put(vec![compressed(10, 8, 100)])]).root;
    for page in [12, 10, 17, 14, 11, 16, 13] {
        let step = merged(&store, root, vec![hole(page, page + 1)]);
        assert_eq!((step.freed, step.refer_sectors), (Vec::new(), 0));
        root = step.root;
    }
    let step = merged(&store, root, vec![hole(0, 100)]);
    assert_eq!(step.freed.len(), 1);
    assert_eq!(step.freed[0].run, Run::new(Place::new(0, 100), 7));
    assert_eq!((step.root, step.refer_sectors), (None, -7));
}

/// One extent twice in one txg at two places in the file, as a clone of a range would have it: two
/// tenancies, each given up by itself.
#[test]
fn one_extent_at_two_places_is_two_tenancies() {
    let store = MemStore::new();
    let first = Extent { counted: true, ..compressed(0, 2, 100) };
    let second = Extent { page: 2, ..first.clone() };
    let start = merged(&store, None, vec![put(vec![first, second])]);
    assert_eq!(start.refer_sectors, 2);
    let step = merged(&store, start.root, vec![hole(0, 2)]);
    assert_eq!((step.freed.len(), step.refer_sectors), (1, -1));
    let step = merged(&store, step.root, vec![hole(3, 4)]);
    assert_eq!((step.freed.len(), step.refer_sectors), (0, 0));

    // A long row of them does not count as one tenancy.
    let row = |at: u64| Extent { page: 1000 + 2 * at, counted: true, ..compressed(0, 2, 100) };
    let start = merged(&store, step.root, vec![put((0..2000).map(row).collect())]);
    assert_eq!(start.refer_sectors, 2000);
    check_tree::<Extents>(&store, start.root);
    let step = merged(&store, start.root, vec![hole(1000, 5000)]);
    assert_eq!((step.freed.len(), step.refer_sectors), (2000, -2000));
}

/// A cut through a compressed extent whose middle was overwritten page by page: all its rest stays
/// left, however many entries lie between.
#[test]
fn a_cut_through_an_overwritten_extent() {
    for at in 1..8 {
        let store = MemStore::new();
        let root = merged(&store, None, vec![put(vec![compressed(0, 8, 100)])]).root;
        let singles = (1..7).map(|page| plain(page, 1, 200 + 2 * page));
        let root = merged(&store, root, vec![put(singles.collect())]).root;
        let halves = store.run(split_off(&store, root, OWNER, at)).unwrap();
        let pages = |root| entries(&store, root).iter().map(|e| e.page).collect::<Vec<_>>();
        assert_eq!(pages(halves.left), (0..at).collect::<Vec<_>>());
        assert_eq!(pages(halves.right), (at..7).collect::<Vec<_>>());
        let step = merged(&store, halves.left, vec![hole(0, 1)]);
        assert_eq!((step.freed.len(), step.refer_sectors), (1, -7));
    }
}

#[test]
fn a_hole_in_a_hole_changes_nothing() {
    let store = MemStore::new();
    let root = merged(&store, None, vec![put(vec![plain(10, 5, 100)])]).root;
    let same = merged(&store, root, vec![hole(0, 10), hole(15, 1 << 40)]);
    let (freed, replaced) = (Vec::new(), Vec::new());
    let nothing = Merged { root, freed, replaced, refer_sectors: 0, saved_sectors: 0 };
    assert_eq!(same, nothing);
    assert_eq!(merged(&store, None, vec![hole(0, 10)]).root, None);
}

/// New extents laid over every page on which one leaf ends and the next begins.
#[test]
fn extents_across_the_edges_of_leaves() {
    for paint in
        [Paint::Plain(16), Paint::Compressed(8, 5), Paint::Compressed(2, 1), Paint::Hole(9)]
    {
        for before in 0..8 {
            let mut canvas = Canvas::new(MemStore::instant());
            let singles =
                (0..9000).map(|at| Stroke { page: at * 3, paint: Paint::Plain(1), cut: true });
            let shape = canvas.apply(&singles.collect::<Vec<_>>());
            let mut edges = Vec::new();
            let mut at = 0;
            for count in &shape.leaf_counts[..shape.leaf_counts.len() - 1] {
                at += count;
                edges.push(shape.entries[at].page);
            }
            assert!(edges.len() > 56);
            let over = |edge: &u64| Stroke { page: edge - before, paint, cut: false };
            canvas.apply(&edges.iter().map(over).collect::<Vec<_>>());
            // Again, with something inside.
            let inside =
                |edge: &u64| Stroke { page: edge - before + 2, paint: Paint::Plain(1), cut: false };
            canvas.apply(&edges.iter().flat_map(|e| [over(e), inside(e)]).collect::<Vec<_>>());
            for edge in &edges {
                canvas.check_range(edge - 20, edge + 20);
            }
        }
    }
}

/// Small overwrites of large extents, as a guest makes them, down to the last old page.
#[test]
fn a_file_of_large_extents_overwritten_page_by_page() {
    let mut rng = Rng::new(3);
    let mut canvas = Canvas::new(MemStore::instant());
    let large = |at: u64| Stroke {
        page: at * 16,
        paint: if at.is_multiple_of(2) { Paint::Plain(16) } else { Paint::Compressed(8, 3) },
        cut: false,
    };
    canvas.apply(&(0..300).map(large).collect::<Vec<_>>());
    let mut pages: Vec<u64> = (0..4800).collect();
    for at in (1..pages.len()).rev() {
        pages.swap(at, rng.below(at as u64 + 1) as usize);
    }
    for some in pages.chunks(120) {
        let single = |page: &u64| Stroke { page: *page, paint: Paint::Plain(1), cut: true };
        let shape = canvas.apply(&some.iter().map(single).collect::<Vec<_>>());
        assert!(shape.light <= 1);
    }
    assert_eq!(canvas.live.len(), 4800);
    let mut root = canvas.root;
    let mut sectors = 0;
    while root.is_some() {
        let drained = canvas.store.run(drain(&canvas.store, root, OWNER, 1000)).unwrap();
        sectors += drained.refer_sectors;
        root = drained.root;
    }
    assert_eq!(sectors, 4800);
}

#[test]
#[should_panic(expected = "no page left out within a compressed extent")]
fn parts_of_one_extent_with_older_pages_between_are_our_bug() {
    let store = MemStore::new();
    let whole = compressed(0, 8, 100);
    let ops = vec![put(vec![whole.slice(0, 2).unwrap()]), put(vec![whole.slice(4, 8).unwrap()])];
    drop(merged(&store, None, ops));
}

#[test]
#[should_panic(expected = "ops in order")]
fn overlapping_ops_are_our_bug() {
    drop(merged(&MemStore::new(), None, vec![hole(0, 10), hole(9, 12)]));
}

#[test]
#[should_panic(expected = "extents in order, in their range")]
fn extents_outside_their_op_are_our_bug() {
    let op = Replace { from_page: 0, to_page: 4, extents: vec![plain(2, 3, 100)] };
    drop(merged(&MemStore::new(), None, vec![op]));
}
