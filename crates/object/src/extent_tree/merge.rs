//! Applying a file's changes to its extent tree.

use std::iter::Peekable;
use std::ops::Range;
use std::vec::IntoIter;

use aquifer_ondisk::extent::{COMPRESSED_PAGES_MAX, EXTENT_PAGES_MAX, Extent, PAGE_LIMIT, Stored};
use aquifer_ondisk::tree_node::{Extents, NodeOwner};
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_ondisk::{BlockPointer, FormatError, Place, Txg};

use super::{FreedExtent, first_of_tenancies, freed, one_tenancy};
use crate::btree::{
    Batch, Entries, Growth, Leaf, NodeError, NodeSink, Packing, RawEntry, rewrite, tie_end,
};

/// New content of a range of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replace {
    /// First page.
    pub from_page: u64,
    /// Page after the last.
    pub to_page: u64,
    /// The new content of the range, in order; other pages become holes. Newly allocated: never
    /// parts of extents that are already in the tree.
    pub extents: Vec<Extent>,
}

/// The result of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The new root.
    pub root: Option<BlockPointer>,
    /// Extents that the tree no longer uses.
    pub freed: Vec<FreedExtent>,
    /// The plain ones among them, by the pages that they showed, in order.
    pub replaced: Vec<Replaced>,
    /// Change of the sectors that the tree refers to: those of new extents less those freed.
    pub refer_sectors: i64,
    /// Change of the sectors that compression saves of them.
    pub saved_sectors: i64,
}

/// Plain pages that a file no longer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// The first of them.
    pub page: u64,
    /// How many.
    pub pages: u64,
    /// Where the first one is.
    pub place: Place,
    /// When the entry entered the tree.
    pub birth: Txg,
    /// When they were written.
    pub written: Txg,
}

/// The tree of `root` with `ops` applied, which must be in order and not overlap. Extents in their
/// ranges are cut away, and the new extents take their place. New neighbours that are one run in
/// file and on disk are joined up to 16 pages, but not across segments, which may move apart.
///
/// Parts of one compressed extent may come in several ops if these leave no page out between its
/// first and last part.
///
/// `freed` grows with the old content of the ranges. For a file of unknown content, replace huge
/// ranges piece by piece, or cut them off with [`super::split_off`].
///
/// # Errors
/// Errors of the sink, and nodes that make no tree. Then nothing has changed: written nodes are
/// freed again, and no old node is.
///
/// # Panics
/// If the ops break the rules above.
pub async fn merge_extents<S: NodeSink>(
    sink: &S,
    root: Option<BlockPointer>,
    owner: NodeOwner,
    ops: Vec<Replace>,
) -> Result<Merged, S::Error> {
    let mut batch = Replaces::new(ops);
    let root = rewrite::<Extents, S, _>(sink, root, owner, &mut batch).await?;
    assert!(batch.fresh.peek().is_none(), "every new extent has found its leaf");
    let Replaces { freed, replaced, refer_sectors, saved_sectors, .. } = batch;
    Ok(Merged { root, freed, replaced, refer_sectors, saved_sectors })
}

/// The ops, taken apart.
struct Replaces {
    ranges: Vec<(u64, u64)>,
    /// The new extents, each with the page that decides its leaf: its own, or that of the first
    /// extent that it must stay with. Leaves come in order and take them off the front.
    fresh: Peekable<IntoIter<(u64, Extent)>>,
    freed: Vec<FreedExtent>,
    replaced: Vec<Replaced>,
    refer_sectors: i64,
    saved_sectors: i64,
}

impl Replaces {
    fn new(ops: Vec<Replace>) -> Self {
        let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(ops.len());
        let mut extents: Vec<Extent> = Vec::with_capacity(ops.len());
        // For each extent, the start of the unbroken run of ranges in which it lies.
        let mut runs: Vec<u64> = Vec::with_capacity(ops.len());
        let mut run_start = 0;
        for op in ops {
            assert!(op.from_page < op.to_page && op.to_page <= PAGE_LIMIT, "a range of pages");
            let before = ranges.last().map(|(_, to)| *to);
            assert!(before.is_none_or(|to| to <= op.from_page), "ops in order, not overlapping");
            if before != Some(op.from_page) {
                run_start = op.from_page;
            }
            let mut at = op.from_page;
            for extent in op.extents {
                let fits = at <= extent.page && extent.end() <= op.to_page && extent.pages > 0;
                assert!(fits, "extents in order, in their range");
                at = extent.end();
                runs.push(run_start);
                extents.push(extent);
            }
            ranges.push((op.from_page, op.to_page));
        }
        let mut routed = Vec::with_capacity(extents.len());
        let (mut together, mut route) = (0, 0);
        for (at, run_start) in runs.into_iter().enumerate() {
            if at >= together {
                route = extents.get(at).map_or(0, |extent| extent.page);
            }
            assert!(run_start <= route, "no page left out within a compressed extent");
            together = together.max(tie_end(&extents, at, one_tenancy));
            routed.push(route);
        }
        let fresh: Vec<(u64, Extent)> = routed.into_iter().zip(extents).collect();
        Replaces {
            ranges,
            fresh: fresh.into_iter().peekable(),
            freed: Vec::new(),
            replaced: Vec::new(),
            refer_sectors: 0,
            saved_sectors: 0,
        }
    }

    /// The new extents of the leaf whose range ends at `upper`.
    fn take_fresh(&mut self, upper: Option<u64>) -> Vec<Extent> {
        let mut taken = Vec::new();
        let here = |(route, _): &(u64, Extent)| upper.is_none_or(|upper| *route < upper);
        while let Some((_, extent)) = self.fresh.next_if(here) {
            taken.push(extent);
        }
        taken
    }

    fn free(&mut self, extent: &Extent) {
        self.refer_sectors = self.refer_sectors.saturating_sub_unsigned(extent.stored_sectors());
        self.saved_sectors =
            self.saved_sectors.saturating_sub_unsigned(extent.saved_sectors().into());
        let next = freed(extent);
        // Plain sectors can be joined, but a counted extent is identified by its place.
        if let Some(last) = self.freed.last_mut()
            && !next.counted
            && last.run.place.vdev() == next.run.place.vdev()
            && last.run.end_sector() == next.run.place.sector()
            && (last.birth, last.written, last.counted) == (next.birth, next.written, next.counted)
            && matches!(extent.stored, Stored::Plain(_))
            && !begins_segment(extent)
        {
            last.run.sectors += next.run.sectors;
        } else {
            self.freed.push(next);
        }
    }

    /// Cuts the ranges of `ops` out of `old` and puts `fresh` in. `None`: there was nothing to cut
    /// or put.
    fn replace<E: NodeError>(
        &mut self,
        ops: Range<usize>,
        old: &mut Entries<'_, Extents>,
        fresh: Vec<Extent>,
    ) -> Result<Option<Leaf<Extents>>, E> {
        let ranges = self.ranges.get(ops).unwrap_or_default().to_vec();
        let mut ranges = ranges.into_iter().peekable();
        let mut rebuilt = Rebuilt::new(fresh);
        let mut broken: Vec<Extent> = Vec::new();
        while let Some(entry) = old.next()? {
            while ranges.next_if(|(_, to)| *to <= entry.first).is_some() {}
            if ranges.peek().is_none_or(|(from, _)| *from > entry.last) {
                rebuilt.keep(entry)?;
                continue;
            }
            rebuilt.growth.gone();
            let entry = entry.decode()?;
            let plain = matches!(entry.stored, Stored::Plain(_));
            let mut at = entry.page;
            for (from, to) in ranges.clone().take_while(|(from, _)| *from < entry.end()) {
                if let Some(part) = entry.slice(at, from) {
                    rebuilt.put_before(part.page)?;
                    rebuilt.push(part)?;
                }
                if plain && let Some(part) = entry.slice(from, to) {
                    self.free(&part);
                    self.replaced.push(Replaced {
                        page: part.page,
                        pages: part.pages.into(),
                        place: part.place,
                        birth: part.birth,
                        written: part.written,
                    });
                }
                at = to;
            }
            if let Some(part) = entry.slice(at, u64::MAX) {
                rebuilt.put_before(part.page)?;
                rebuilt.push(part)?;
            }
            if !plain {
                broken.push(entry);
            }
        }
        let Some(leaf) = rebuilt.finish()? else {
            return Ok(None);
        };
        for extent in first_of_tenancies(&broken) {
            if !shows(leaf.entries.entries(), extent)? {
                self.free(extent);
            }
        }
        Ok(Some(leaf))
    }
}

impl<E: NodeError> Batch<Extents, E> for Replaces {
    fn len(&self) -> usize {
        self.ranges.len()
    }

    fn within(&self, ops: Range<usize>, lower: Option<u64>, upper: Option<u64>) -> Range<usize> {
        let list = self.ranges.get(ops.clone()).unwrap_or_default();
        let first = lower.map_or(0, |lower| list.partition_point(|(_, to)| *to <= lower));
        let end = upper.map_or(list.len(), |upper| list.partition_point(|(from, _)| *from < upper));
        ops.start + first..ops.start + end.max(first)
    }

    fn apply(
        &mut self,
        ops: Range<usize>,
        upper: Option<u64>,
        old: &mut Entries<'_, Extents>,
    ) -> Result<Option<Leaf<Extents>>, E> {
        let fresh = self.take_fresh(upper);
        for extent in first_of_tenancies(&fresh) {
            let sectors = extent.stored_sectors();
            self.refer_sectors = self.refer_sectors.saturating_add_unsigned(sectors);
            let saved = extent.saved_sectors().into();
            self.saved_sectors = self.saved_sectors.saturating_add_unsigned(saved);
        }
        self.replace(ops, old, fresh)
    }
}

/// A leaf's new entries, in the making.
struct Rebuilt<'a> {
    entries: Packing<Extents>,
    /// The last entry, not packed yet: it may be joined with the next.
    last: Last<'a>,
    fresh: Peekable<IntoIter<Extent>>,
    growth: Growth,
}

enum Last<'a> {
    None,
    /// Unchanged.
    Stands(RawEntry<'a, Extents>),
    /// New, or a part of one that was cut.
    Made(Extent),
}

impl<'a> Rebuilt<'a> {
    fn new(fresh: Vec<Extent>) -> Self {
        Rebuilt {
            entries: Packing::new(),
            last: Last::None,
            fresh: fresh.into_iter().peekable(),
            growth: Growth::default(),
        }
    }

    /// An unchanged old entry, after the new ones before it.
    fn keep(&mut self, entry: RawEntry<'a, Extents>) -> Result<(), FormatError> {
        self.put_before(entry.first)?;
        if let Last::Made(last) = &mut self.last
            && last.end() == entry.first
            && join(last, &entry.decode()?)
        {
            self.growth.gone();
            return Ok(());
        }
        self.pack();
        self.growth.stands();
        self.last = Last::Stands(entry);
        Ok(())
    }

    /// The new entries before `page`.
    fn put_before(&mut self, page: u64) -> Result<(), FormatError> {
        while let Some(fresh) = self.fresh.next_if(|fresh| fresh.page < page) {
            self.push(fresh)?;
        }
        Ok(())
    }

    /// A new entry, or the rest of an old one.
    fn push(&mut self, entry: Extent) -> Result<(), FormatError> {
        self.growth.put();
        if let Last::Stands(last) = &self.last
            && last.last + 1 == entry.page
        {
            self.last = Last::Made(last.decode()?);
        }
        if let Last::Made(last) = &mut self.last
            && join(last, &entry)
        {
            self.growth.gone();
            return Ok(());
        }
        self.pack();
        self.last = Last::Made(entry);
        Ok(())
    }

    fn pack(&mut self) {
        match std::mem::replace(&mut self.last, Last::None) {
            Last::None => {}
            Last::Stands(entry) => self.entries.copy(entry),
            Last::Made(entry) => drop(self.entries.push(&entry)),
        }
    }

    fn finish(mut self) -> Result<Option<Leaf<Extents>>, FormatError> {
        self.put_before(u64::MAX)?;
        self.pack();
        let (entries, grown) = (self.entries, self.growth.grown());
        Ok(self.growth.any().then_some(Leaf { entries, grown }))
    }
}

/// Whether some of `entries` show parts of the compressed extent that `extent` is a part of.
fn shows(mut entries: Entries<'_, Extents>, extent: &Extent) -> Result<bool, FormatError> {
    while let Some(entry) = entries.next()? {
        if entry.first >= extent.page + COMPRESSED_PAGES_MAX {
            break;
        }
        if entry.last + COMPRESSED_PAGES_MAX > extent.page && one_tenancy(&entry.decode()?, extent)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn begins_segment(extent: &Extent) -> bool {
    extent.place.sector().is_multiple_of(SEGMENT_SECTORS)
}

/// Adds `next` to `last` if they are one run in file and on disk, of one life.
fn join(last: &mut Extent, next: &Extent) -> bool {
    let (Stored::Plain(sums), Stored::Plain(more)) = (&mut last.stored, &next.stored) else {
        return false;
    };
    let pages = u64::from(last.pages) + u64::from(next.pages);
    let one_run = last.page + u64::from(last.pages) == next.page
        && last.place.vdev() == next.place.vdev()
        && last.place.sector() + u64::from(last.pages) == next.place.sector()
        && !begins_segment(next);
    let one_life =
        (last.birth, last.written, last.counted) == (next.birth, next.written, next.counted);
    if !one_run || !one_life || pages > EXTENT_PAGES_MAX {
        return false;
    }
    sums.extend_from_slice(more);
    last.pages += next.pages;
    true
}
