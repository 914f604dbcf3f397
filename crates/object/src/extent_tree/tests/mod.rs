//! Tests of extent trees. A canvas is painted with extents, page by page. Every tree, every freed
//! sector and every sum is compared with it.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "small numbers of a test"
)]

mod compare;
mod damage;
mod measure;
mod model;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};

use aquifer_ondisk::extent::{Compression, Extent, Stored};
use aquifer_ondisk::tree_node::Extents;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_ondisk::{BlockPointer, Place, Txg};

use super::{FreedExtent, Replace, Replaced, lookup_range, merge_extents, one_tenancy};
use crate::btree::NodeSink;
use crate::mem_store::{MemStore, OWNER, Shape, check_tree};

/// The content of a page: an extent, and which of its pages.
type Cell = (usize, u64);

/// A painted range: where, and with which extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stroke {
    pub(super) page: u64,
    pub(super) paint: Paint,
    /// An op ends before this stroke's first page and after its last, if pages are painted there.
    pub(super) cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    Hole(u64),
    Plain(u64),
    /// Pages, stored sectors.
    Compressed(u64, u64),
}

impl Paint {
    fn pages(self) -> u64 {
        match self {
            Paint::Hole(pages) | Paint::Plain(pages) | Paint::Compressed(pages, _) => pages,
        }
    }
}

/// The life of a sector, to compare when it is freed.
type Life = (Txg, Txg, bool);

/// A file's tree, and the content that it should show.
pub(super) struct Canvas {
    pub(super) store: MemStore,
    pub(super) root: Option<BlockPointer>,
    /// Every extent ever made, whole.
    extents: Vec<Extent>,
    pub(super) cells: BTreeMap<u64, Cell>,
    /// Sectors in use.
    pub(super) live: BTreeMap<Place, Life>,
    next_sector: u64,
}

impl Canvas {
    pub(super) fn new(store: MemStore) -> Self {
        Canvas {
            store,
            root: None,
            extents: Vec::new(),
            cells: BTreeMap::new(),
            live: BTreeMap::new(),
            next_sector: 10,
        }
    }

    /// A new extent at `page`, whole.
    fn make(&mut self, page: u64, paint: Paint) -> Option<usize> {
        let birth = self.store.txg();
        let id = self.extents.len() as u64;
        let salt = id.wrapping_mul(0x9E37_79B9) >> 3;
        // Mostly side by side on disk, sometimes elsewhere.
        self.next_sector += if salt.is_multiple_of(4) { 1 + salt % 5 } else { 0 };
        let place = Place::new(2, self.next_sector);
        let (sectors, pages, stored) = match paint {
            Paint::Hole(_) => return None,
            Paint::Plain(pages) => {
                (pages, pages, Stored::Plain((0..pages).map(|page| id << 8 | page).collect()))
            }
            Paint::Compressed(pages, sectors) => {
                let stored = Stored::Compressed {
                    algorithm: Compression::Lz4,
                    offset_pages: 0,
                    total_pages: pages as u8,
                    stored_sectors: sectors as u8,
                    stored_bytes: (sectors * 4096 - 7) as u16,
                    checksum: id,
                };
                (sectors, pages, stored)
            }
        };
        self.next_sector += sectors;
        let life = salt % 16;
        self.extents.push(Extent {
            page,
            pages: pages as u8,
            birth,
            written: if life == 0 { Txg(birth.0 - 1) } else { birth },
            place,
            counted: life == 1,
            stored,
        });
        Some(self.extents.len() - 1)
    }

    /// Paints strokes, later ones over earlier ones, and returns the matching ops.
    pub(super) fn paint(&mut self, strokes: &[Stroke]) -> Vec<Replace> {
        let mut painted: BTreeMap<u64, Option<Cell>> = BTreeMap::new();
        let mut cuts = BTreeSet::new();
        for stroke in strokes {
            let id = self.make(stroke.page, stroke.paint);
            let end = stroke.page + stroke.paint.pages();
            for page in stroke.page..end {
                painted.insert(page, id.map(|id| (id, page - stroke.page)));
            }
            if stroke.cut {
                cuts.extend([stroke.page, end]);
            }
        }
        let mut ops: Vec<Replace> = Vec::new();
        for (page, cell) in painted {
            match ops.last_mut() {
                Some(op) if op.to_page == page && !cuts.contains(&page) => op.to_page += 1,
                _ => ops.push(Replace { from_page: page, to_page: page + 1, extents: Vec::new() }),
            }
            let op = ops.last_mut().unwrap();
            self.cells.remove(&page);
            let Some((id, at)) = cell else {
                continue;
            };
            self.cells.insert(page, (id, at));
            let whole = &self.extents[id];
            let from = match op.extents.last() {
                Some(last)
                    if last.end() == page
                        && whole.slice(last.page, page).as_ref() == Some(last) =>
                {
                    op.extents.pop().unwrap().page
                }
                _ => page,
            };
            op.extents.push(whole.slice(from, page + 1).unwrap());
        }
        ops
    }

    /// The sectors that the cells use.
    fn used(&self) -> BTreeMap<Place, Life> {
        let mut used = BTreeMap::new();
        for (id, at) in self.cells.values() {
            let extent = &self.extents[*id];
            let life = (extent.birth, extent.written, extent.counted);
            match &extent.stored {
                Stored::Plain(_) => drop(used.insert(extent.place.plus(*at), life)),
                Stored::Compressed { stored_sectors, .. } => {
                    let sectors = 0..u64::from(*stored_sectors);
                    used.extend(sectors.map(|sector| (extent.place.plus(sector), life)));
                }
            }
        }
        used
    }

    /// Paints, merges, and compares all results with the canvas.
    pub(super) fn apply(&mut self, strokes: &[Stroke]) -> Shape<Extents> {
        self.apply_unchecked(strokes);
        self.check()
    }

    pub(super) fn apply_unchecked(&mut self, strokes: &[Stroke]) {
        self.store.next_txg();
        let before = self.plain();
        let ops = self.paint(strokes);
        let ranges = ops.iter().flat_map(|op| before.range(op.from_page..op.to_page));
        let replaced: Vec<_> = ranges.map(|(page, at)| (*page, *at)).collect();
        let merge = merge_extents(&self.store, self.root, OWNER, ops);
        let merged = self.store.run(merge).unwrap();
        self.root = merged.root;
        let refer = self.live.len() as i64 + merged.refer_sectors;
        self.settle(&merged.freed);
        assert_eq!(self.live.len() as i64, refer, "the sum of sectors referred to");
        let single = |old: &Replaced| {
            let (page, place, written) = (old.page, old.place, old.written);
            (0..old.pages).map(move |at| (page + at, (place.plus(at), written)))
        };
        assert_eq!(merged.replaced.iter().flat_map(single).collect::<Vec<_>>(), replaced);
    }

    /// The place of each page that a plain extent shows, and since when.
    fn plain(&self) -> BTreeMap<u64, (Place, Txg)> {
        let plain = |(page, (id, at)): (&u64, &Cell)| {
            let extent = &self.extents[*id];
            let is_plain = matches!(extent.stored, Stored::Plain(_));
            is_plain.then(|| (*page, (extent.place.plus(*at), extent.written)))
        };
        self.cells.iter().filter_map(plain).collect()
    }

    /// Compares `freed` with the sectors that just left the cells: no more, no less, nothing twice.
    pub(super) fn settle(&mut self, freed: &[FreedExtent]) {
        let used = self.used();
        let mut gone = std::mem::replace(&mut self.live, used);
        gone.retain(|place, _| !self.live.contains_key(place));
        for freed in freed {
            let life = (freed.birth, freed.written, freed.counted);
            assert!(freed.run.sectors > 0);
            for sector in 0..freed.run.sectors {
                let place = freed.run.place.plus(sector);
                assert_eq!(gone.remove(&place), Some(life), "{place:?} freed");
            }
        }
        assert!(gone.is_empty(), "not freed: {gone:?}");
    }

    /// The content of `cells` between two pages.
    fn shown(&self, from: u64, to: u64) -> BTreeMap<u64, Extent> {
        let cells = self.cells.range(from..to);
        cells
            .map(|(page, (id, at))| {
                let extent = &self.extents[*id];
                let start = extent.page + at;
                let mut single = extent.slice(start, start + 1).unwrap();
                single.page = *page;
                (*page, single)
            })
            .collect()
    }

    pub(super) fn check(&self) -> Shape<Extents> {
        let shape = check_tree::<Extents>(&self.store, self.root);
        assert_eq!(shape.nodes, self.store.live(), "a leaked or lost node");
        assert_eq!(page_by_page(&shape.entries), self.shown(0, u64::MAX));
        let mut rest = shape.entries.as_slice();
        for count in &shape.leaf_counts {
            let (leaf, others) = rest.split_at(*count);
            for entry in leaf {
                assert!(!others.iter().take(20).any(|other| one_tenancy(entry, other)), "split");
            }
            rest = others;
        }
        shape
    }

    pub(super) fn check_range(&self, from: u64, to: u64) {
        let found = self.store.run(lookup_range(&self.store, self.root, from, to)).unwrap();
        assert!(found.iter().all(|extent| from <= extent.page && extent.end() <= to));
        assert_eq!(page_by_page(&found), self.shown(from, to));
    }
}

/// Extents cut to single pages; none may show a page twice.
fn page_by_page(extents: &[Extent]) -> BTreeMap<u64, Extent> {
    let mut pages = BTreeMap::new();
    for extent in extents {
        if let Stored::Plain(_) = extent.stored {
            let first = extent.place.sector() / SEGMENT_SECTORS;
            let last = extent.place.sector() + u64::from(extent.pages) - 1;
            assert!(extent.pages <= 16 && last / SEGMENT_SECTORS - first <= 1);
        }
        for page in extent.page..extent.end() {
            let single = extent.slice(page, page + 1).unwrap();
            assert!(pages.insert(page, single).is_none(), "page {page} is shown twice");
        }
    }
    pages
}
