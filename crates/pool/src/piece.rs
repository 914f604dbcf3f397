//! A piece of a walk: blocks of one root, to be read in the order of the disk.
//!
//! The order of the trees is that in which files were written, the order of the disk is cheap to
//! read. A piece collects blocks in the one, up to a limit of memory and time, and sorts them into
//! the other. Blocks that lie near each other are read together.

use std::ops::{ControlFlow, Range};

use aquifer_blockio::Page;
use aquifer_blockio::buf::bytes_of;
use aquifer_ondisk::codec::{checksum64, checksum128};
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::{BlockPointer, Place, Txg};
use aquifer_vdev::Part;
use smallvec::SmallVec;

use crate::error::PoolError;
use crate::lost::LostBlocks;
use crate::patience::Patience;
use crate::walk::{Span, Visitor};

/// Runs that are read at a time.
pub(crate) const RUNS_AT_ONCE: usize = 8;
/// Sectors that are read together at most (1 MiB).
const RUN_SECTORS_MAX: u64 = 256;
/// Sectors between two blocks that are read with them rather than passed over (64 KiB).
const GAP_SECTORS_MAX: u64 = 16;
/// The checksums of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sums {
    /// A node of a tree; and its other place, which may be null.
    Node(u128, Place),
    /// A compressed extent of so many sectors, as it is stored.
    Compressed(u64, u16),
    /// Pages, one each.
    Pages(SmallVec<[u64; 4]>),
}

/// A block at one of its places.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub place: Place,
    pub written: Txg,
    pub sums: Sums,
    /// Positions that are lost with it. Of an extent: its pages.
    pub span: Span,
}

impl Block {
    pub fn sectors(&self) -> u64 {
        match &self.sums {
            Sums::Node(..) => 1,
            Sums::Compressed(_, sectors) => u64::from(*sectors),
            Sums::Pages(sums) => sums.len() as u64,
        }
    }

    /// Parts that are verified by themselves, from `skip` sectors before it: pages, or the whole.
    fn parts(&self, skip: usize) -> impl Iterator<Item = Part> {
        let (count, sectors) = match &self.sums {
            Sums::Node(..) => (1, 1),
            Sums::Compressed(_, sectors) => (1, usize::from(*sectors)),
            Sums::Pages(sums) => (sums.len(), 1),
        };
        (0..count).map(move |at| (skip + at, sectors))
    }

    /// Whether this is the content of a part.
    pub fn verifies(&self, part: usize, pages: &[Page]) -> bool {
        match (&self.sums, pages) {
            (Sums::Node(sum, _), [page]) => checksum128(page.as_slice()) == *sum,
            (Sums::Compressed(sum, sectors), pages) => {
                pages.len() == usize::from(*sectors) && checksum64(&bytes_of(pages)) == *sum
            }
            (Sums::Pages(sums), [page]) => sums.get(part) == Some(&checksum64(page.as_slice())),
            _ => false,
        }
    }

    /// Returns the positions that are lost if a part of the block is.
    pub fn lost_with(&self, part: usize) -> Span {
        match &self.sums {
            Sums::Node(..) | Sums::Compressed(..) => self.span,
            Sums::Pages(_) => {
                let at = |page| WalkPosition { within: page, ..self.span.from };
                let page = self.span.from.within + part as u64;
                Span { from: at(page), to: at(page + 1) }
            }
        }
    }
}

/// Which blocks a piece takes.
pub(crate) type Wanted = Box<dyn Fn(Place, Txg) -> bool + Send + Sync>;

/// Collects the blocks of a piece.
pub(crate) struct Piece {
    wanted: Wanted,
    /// It ends here at the latest.
    to: WalkPosition,
    /// It ends with so many blocks, or so many bytes.
    full: (usize, u64),
    blocks: Vec<Block>,
    bytes: u64,
    /// Blocks that are lost as far as is known, if the piece is a scrub's: such a block is not read
    /// once more.
    known: Option<LostBlocks>,
    /// Nodes that no copy gives, where they lie, and why.
    pub unread: Vec<(BlockPointer, Span, PoolError)>,
}

/// Blocks that are read together: their vdev, first sector, sectors, and which they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub first: Place,
    pub sectors: usize,
    pub blocks: Range<usize>,
}

impl Piece {
    pub fn new(full: (usize, u64), to: WalkPosition, wanted: Wanted) -> Piece {
        Piece { wanted, to, full, blocks: Vec::new(), bytes: 0, known: None, unread: Vec::new() }
    }

    /// A scrub's: takes no node that the walk cannot read, since it has read every copy.
    pub fn of_scrub(full: (usize, u64), to: WalkPosition, known: LostBlocks) -> Piece {
        Piece { known: Some(known), ..Piece::new(full, to, Box::new(|_, _| true)) }
    }

    fn take(&mut self, (place, written): (Place, Txg), sums: Sums, span: Span) {
        let block = Block { place, written, sums, span };
        self.bytes += block.sectors() * 4096;
        self.blocks.push(block);
    }

    fn is_within(&self, at: &WalkPosition) -> ControlFlow<()> {
        if *at < self.to { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn goes_on(&self) -> ControlFlow<()> {
        let (blocks_max, bytes_max) = self.full;
        let is_full = self.blocks.len() >= blocks_max || self.bytes >= bytes_max;
        if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Its blocks in the order of the disks. Extents that show parts of one compressed extent stay
    /// beside each other.
    pub fn into_blocks(self) -> Vec<Block> {
        let mut blocks = self.blocks;
        blocks.sort_by_key(|block| block.place.0);
        blocks
    }
}

impl Visitor for Piece {
    fn node(
        &mut self,
        pointer: &BlockPointer,
        unread: Option<&PoolError>,
        span: &Span,
    ) -> ControlFlow<()> {
        self.is_within(&span.from)?;
        if let Some(error) = unread {
            self.unread.push((*pointer, *span, error.clone()));
            if self.known.is_some() {
                return self.goes_on();
            }
        }
        let [first, second] = pointer.places;
        for (place, other) in [(first, second), (second, first)] {
            if !place.is_null() && (self.wanted)(place, pointer.written) {
                let sums = Sums::Node(pointer.checksum, other);
                self.take((place, pointer.written), sums, *span);
            }
        }
        self.goes_on()
    }

    fn known_unreadable(&self, pointer: &BlockPointer) -> Option<PoolError> {
        self.known.as_ref().and_then(|known| known.error_of(pointer))
    }

    /// A disk that has given nothing for so long is not waited for at each node.
    fn patience(&self) -> Patience {
        let has_waited = self.unread.iter().any(|(.., error)| !error.is_damage());
        if self.known.is_some() && has_waited { Patience::Short } else { Patience::Long }
    }

    fn extent(&mut self, extent: &Extent, at: &WalkPosition) -> ControlFlow<()> {
        self.is_within(at)?;
        if (self.wanted)(extent.place, extent.written) {
            let sums = match &extent.stored {
                Stored::Plain(sums) => Sums::Pages(sums.clone()),
                Stored::Compressed { stored_sectors, checksum, .. } => {
                    Sums::Compressed(*checksum, u16::from(*stored_sectors))
                }
            };
            let to = WalkPosition { within: extent.end(), ..*at };
            self.take((extent.place, extent.written), sums, Span { from: *at, to });
        }
        self.goes_on()
    }
}

/// The runs in which blocks, in the order of the disks, are read.
pub(crate) fn runs(blocks: &[Block]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let begin = block.place.sector();
        let joined = runs.last_mut().filter(|run| {
            let end = run.first.sector() + run.sectors as u64;
            run.first.vdev() == block.place.vdev()
                && begin <= end + GAP_SECTORS_MAX
                && begin + block.sectors() <= run.first.sector() + RUN_SECTORS_MAX
        });
        let sectors = |first: u64| usize::try_from(begin + block.sectors() - first).unwrap_or(0);
        match joined {
            Some(run) => {
                run.sectors = run.sectors.max(sectors(run.first.sector()));
                run.blocks.end = at + 1;
            }
            None => {
                runs.push(Run { first: block.place, sectors: sectors(begin), blocks: at..at + 1 })
            }
        }
    }
    runs
}

impl Run {
    /// Its blocks, each with its distance from the run's first sector.
    pub fn of<'b>(&self, blocks: &'b [Block]) -> impl Iterator<Item = (usize, &'b Block)> {
        let first = self.first.sector();
        let blocks = blocks.get(self.blocks.clone()).unwrap_or_default();
        let skip = move |block: &Block| usize::try_from(block.place.sector() - first).unwrap_or(0);
        blocks.iter().map(move |block| (skip(block), block))
    }

    /// Its blocks without what lies between them: sectors from the run's first, and how many.
    pub fn spans(&self, blocks: &[Block]) -> Vec<Part> {
        let mut spans: Vec<Part> = Vec::new();
        for (skip, block) in self.of(blocks) {
            let end = skip + usize::try_from(block.sectors()).unwrap_or(0);
            match spans.last_mut() {
                Some((first, count)) if skip <= *first + *count => {
                    *count = (*count).max(end - *first);
                }
                _ => spans.push((skip, end - skip)),
            }
        }
        spans
    }

    /// All parts of its blocks: the block, the part's number in it, and where it lies in the run.
    pub fn parts<'b>(&self, blocks: &'b [Block]) -> Vec<(&'b Block, usize, Part)> {
        let of = |(skip, block): (usize, &'b Block)| {
            block.parts(skip).enumerate().map(move |(number, part)| (block, number, part))
        };
        self.of(blocks).flat_map(of).collect()
    }
}
