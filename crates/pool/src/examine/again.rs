//! Blocks that no copy gives: each is counted once, and looked for once more only where that may
//! help.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use aquifer_blockio::Page;
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::{BlockPointer, Place, Txg};
use aquifer_vdev::{Copies, Part, Vdev};
use smallvec::SmallVec;

use super::{Examined, Lost, Watch};
use crate::error::PoolError;
use crate::lost::LostBlocks;
use crate::patience::Patience;
use crate::piece::{Block, Sums};
use crate::pool::{Pool, Roots};
use crate::walk::{Span, Visitor};

/// A part of a run that is verified by itself.
pub(super) struct Wanted<'b> {
    /// A block of which it is, and which part of it.
    pub block: &'b Block,
    /// See `block`.
    pub number: usize,
    /// Where it lies in the run.
    pub part: Part,
    /// All blocks that show it, that one too.
    pub shown: SmallVec<[(&'b Block, usize); 1]>,
}

/// The parts of a run, each once, without those that are known to be lost: these go to `examined`.
pub(super) fn each_once<'b>(
    parts: Vec<(&'b Block, usize, Part)>,
    watch: &Watch,
    examined: &mut Examined,
) -> Vec<Wanted<'b>> {
    let mut wanted = BTreeMap::<Part, Wanted<'b>>::new();
    for (block, number, part) in parts {
        let (place, written) = (block.place_of(number), block.written);
        if watch.lost.has(place, written) {
            let (vdev, sector, count) = (place.vdev(), place.sector(), part.1);
            let error = aquifer_vdev::ReadError::Corrupt { vdev, sector, count };
            examined.lose(block.lost(number, error.into()), false);
            continue;
        }
        let new = || Wanted { block, number, part, shown: SmallVec::new() };
        wanted.entry(part).or_insert_with(new).shown.push((block, number));
    }
    wanted.into_values().collect()
}

impl Block {
    /// The first sector of a part.
    fn place_of(&self, number: usize) -> Place {
        match &self.sums {
            Sums::Node(..) | Sums::Compressed(..) => self.place,
            Sums::Pages(_) => self.place.plus(number as u64),
        }
    }

    /// The loss of a part of it.
    pub(super) fn lost(&self, number: usize, error: PoolError) -> Lost {
        let is_node = matches!(self.sums, Sums::Node(..));
        let node = is_node.then_some((self.place, self.written));
        Lost { span: self.lost_with(number), error, node }
    }

    /// Notes the loss of a part. Whether it is new.
    pub(super) fn note(&self, number: usize, watch: &Watch) -> bool {
        match &self.sums {
            Sums::Node(_, other) => watch.lost.insert_node([self.place, *other], self.written),
            _ => watch.lost.insert(self.place_of(number), self.written),
        }
    }
}

impl Lost {
    /// Takes another one that is its neighbour, or the same node. Whether it did.
    pub(super) fn takes(&mut self, next: &Lost) -> bool {
        let (own, other) = (&mut self.span, &next.span);
        if self.node.is_some() || next.node.is_some() {
            return self.node.is_some() && next.node.is_some() && own == other;
        }
        let file = |at: WalkPosition| WalkPosition { within: 0, ..at };
        let touch = file(own.from) == file(other.from)
            && own.from.within <= other.from.within
            && other.from.within <= own.to.within;
        if touch {
            own.to.within = own.to.within.max(other.to.within);
        }
        touch
    }
}

impl Pool {
    /// Looks once more at those parts of a run that no leaf gave which holds everything: other
    /// leaves may hold them, or the other place of a node. A read that failed is repeated, as long
    /// as a client would wait, for all of the run together.
    pub(super) async fn look_again(
        &self,
        vdev: &Vdev,
        first: u64,
        parts: &[Wanted<'_>],
        found: &mut [Copies],
    ) -> Result<(), PoolError> {
        let mut failures = 0;
        loop {
            let mut failed = None;
            for (Wanted { block, number, part: (skip, count), .. }, copies) in
                parts.iter().zip(found.iter_mut())
            {
                let is_again = failures > 0;
                if copies.good.is_some() || is_again && copies.unreadable.is_none() {
                    continue;
                }
                let sector = first + *skip as u64;
                let verify = |pages: &[Page]| block.verifies(*number, pages);
                copies.good = vdev.look_again(sector, *count, is_again, &verify).await;
                if let (None, false, Sums::Node(_, other)) = (&copies.good, is_again, &block.sums)
                    && !other.is_null()
                {
                    let other_vdev = self.vdev(*other)?;
                    copies.good = other_vdev.look_again(other.sector(), 1, true, &verify).await;
                }
                if copies.good.is_none() && copies.unreadable.is_some() {
                    failed.get_or_insert_with(|| copies.error(vdev.index, sector, *count));
                }
            }
            let Some(error) = failed else { return Ok(()) };
            failures += 1;
            match self.wait_to_read_again(error, failures, Patience::Short).await {
                Ok(()) => {}
                Err(error) if error.cannot_be_read() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Drops lost nodes that the newest root does not show any more.
    pub(super) async fn forget_replaced(
        &self,
        examined: &mut Examined,
        roots: Roots,
        lost: &LostBlocks,
    ) -> Result<(), PoolError> {
        let newest = self.roots();
        if newest == roots {
            return Ok(());
        }
        for found in std::mem::take(&mut examined.lost) {
            if let Some(node) = found.node {
                let mut search =
                    Search { node, to: found.span.to, lost: lost.clone(), is_found: false };
                self.trees()?.walk(newest, Txg(0), found.span.from, &mut search).await?;
                if !search.is_found {
                    continue;
                }
            }
            examined.lost.push(found);
        }
        Ok(())
    }
}

/// Looks for a node that is lost, and reads none that is.
struct Search {
    node: (Place, Txg),
    to: WalkPosition,
    lost: LostBlocks,
    is_found: bool,
}

impl Search {
    fn goes_on(&self, at: &WalkPosition) -> ControlFlow<()> {
        let ends = self.is_found || *at >= self.to;
        if ends { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Visitor for Search {
    fn node(
        &mut self,
        pointer: &BlockPointer,
        _: Option<&PoolError>,
        span: &Span,
    ) -> ControlFlow<()> {
        let (place, written) = self.node;
        self.is_found |= pointer.written == written && pointer.places.contains(&place);
        self.goes_on(&span.from)
    }

    fn known_unreadable(&self, pointer: &BlockPointer) -> Option<PoolError> {
        self.lost.error_of(pointer)
    }

    fn extent(&mut self, _: &Extent, at: &WalkPosition) -> ControlFlow<()> {
        self.goes_on(at)
    }
}
