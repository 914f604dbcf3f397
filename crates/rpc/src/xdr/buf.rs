//! The buffer in which replies are built: owned bytes with shared pages in between.
//!
//! ```text
//!  owned   |RRRR hhhhhhhhhhhhhhhhhhh|pp RRRR hhhhhhhhhhh|RRRR hhhhh|   one Vec<u8>
//!  pieces                           ^page page page      ^page          each at an owned offset
//!  sent    RRRR hhhhh page page page pp RRRR hhhhh page RRRR hhhhh      one vectored write
//! ```
//! Owned bytes of all replies of a batch share one allocation. So building a small reply allocates
//! nothing, and a length word before a payload can be filled in later.
//!
//! Invariants:
//! - Pieces are sorted by place; none is empty; each piece's range lies inside its page.
//! - `end` of a piece is its end in the stream as sent, so any offset is found by binary search. A
//!   write that the socket took in part is resumed without a walk over the sent part.

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;

use aquifer_blockio::{Page, SECTOR_BYTES};

/// A range of a shared page, never empty when it lies in an [`EncodeBuf`].
#[derive(Clone)]
pub struct PagePiece {
    page: Page,
    start: u16,
    end: u16,
}

impl PagePiece {
    /// The bytes `range` of `page`; `None` if the range does not lie inside the page.
    pub fn new(page: Page, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > SECTOR_BYTES {
            return None;
        }
        let start = u16::try_from(range.start).ok()?;
        let end = u16::try_from(range.end).ok()?;
        Some(PagePiece { page, start, end })
    }

    /// The whole page.
    pub fn whole(page: Page) -> Self {
        PagePiece { page, start: 0, end: PAGE_END }
    }

    /// The bytes.
    #[expect(clippy::indexing_slicing, reason = "both constructors keep the range in the page")]
    pub fn bytes(&self) -> &[u8] {
        &self.page[usize::from(self.start)..usize::from(self.end)]
    }

    /// The page that is shared.
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        usize::from(self.end - self.start)
    }

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

impl fmt::Debug for PagePiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PagePiece({}..{})", self.start, self.end)
    }
}

/// A place in an [`EncodeBuf`] to come back to with [`EncodeBuf::truncate`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    owned: usize,
    pieces: usize,
    total: usize,
}

/// A word left open by [`EncodeBuf::hole`], to be filled once its value is known.
#[derive(Debug)]
#[must_use = "an unfilled hole goes out as zero"]
pub struct Hole {
    at: usize,
}

/// Bytes to be sent: owned ones and shared pages, in order.
#[derive(Clone, Debug, Default)]
pub struct EncodeBuf {
    owned: Vec<u8>,
    pieces: Vec<Placed>,
    piece_bytes: usize,
}

#[derive(Clone, Debug)]
struct Placed {
    piece: PagePiece,
    /// How many owned bytes are sent before the piece.
    at: usize,
    /// Offset one past the piece, in all that is sent.
    end: usize,
}

impl EncodeBuf {
    /// An empty buffer that has allocated nothing.
    pub fn new() -> Self {
        EncodeBuf::default()
    }

    /// An empty buffer with room for `owned` bytes besides pages.
    pub fn with_capacity(owned: usize) -> Self {
        EncodeBuf { owned: Vec::with_capacity(owned), ..EncodeBuf::default() }
    }

    /// Total length in bytes, pages included.
    pub fn len(&self) -> usize {
        self.owned.len() + self.piece_bytes
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory that the buffer itself holds, in bytes, without the shared pages: the connection
    /// charges this to its share.
    pub fn held_bytes(&self) -> usize {
        self.owned.capacity() + self.pieces.capacity() * size_of::<Placed>()
    }

    /// Empties the buffer and keeps its memory; drops the pages.
    pub fn clear(&mut self) {
        self.owned.clear();
        self.pieces.clear();
        self.piece_bytes = 0;
    }

    /// The present end, to come back to.
    pub fn mark(&self) -> Mark {
        Mark { owned: self.owned.len(), pieces: self.pieces.len(), total: self.len() }
    }

    /// Drops everything appended since `mark` was taken.
    ///
    /// # Panics
    /// If the buffer is shorter than at the mark: the mark belongs to another buffer.
    pub fn truncate(&mut self, mark: Mark) {
        assert!(mark.total <= self.len(), "the mark was taken from a shorter buffer");
        self.owned.truncate(mark.owned);
        self.pieces.truncate(mark.pieces);
        self.piece_bytes = mark.total - mark.owned;
    }

    /// Bytes appended since `mark` was taken.
    pub fn len_since(&self, mark: Mark) -> usize {
        self.len().saturating_sub(mark.total)
    }

    /// Appends a word whose value is not known yet.
    pub fn hole(&mut self) -> Hole {
        let at = self.owned.len();
        self.u32(0);
        Hole { at }
    }

    /// Fills a word left open.
    ///
    /// # Panics
    /// If the hole is not in this buffer any more.
    pub fn fill(&mut self, hole: Hole, value: u32) {
        let word = self.owned.get_mut(hole.at..).and_then(|rest| rest.first_chunk_mut());
        *word.expect("a hole is filled in the buffer it was left in") = value.to_be_bytes();
    }

    /// Appends a shared page's range as it is: no length word, no padding. An empty one is left
    /// out.
    pub fn piece(&mut self, piece: PagePiece) {
        if piece.is_empty() {
            return;
        }
        self.piece_bytes += piece.len();
        self.pieces.push(Placed { piece, at: self.owned.len(), end: self.len() });
    }

    /// Appends all of `other`: its owned bytes are copied, its pages are not. Its marks and holes
    /// are not valid here.
    pub fn append(&mut self, other: EncodeBuf) {
        if self.is_empty() && other.pieces.len() > self.pieces.capacity() {
            // This buffer is empty: the list of pieces need not be copied.
            *self = other;
            return;
        }
        let (owned, total) = (self.owned.len(), self.len());
        self.owned.extend_from_slice(&other.owned);
        self.pieces.extend(other.pieces.into_iter().map(|placed| Placed {
            piece: placed.piece,
            at: placed.at + owned,
            end: placed.end + total,
        }));
        self.piece_bytes += other.piece_bytes;
    }

    /// The bytes to send from offset `from` on, as slices in order, none empty. Pages that are
    /// neighbours in memory are one slice.
    pub fn segments(&self, from: usize) -> Segments<'_> {
        let next = self.pieces.partition_point(|placed| placed.end <= from);
        let (sent, owned) = match next.checked_sub(1).and_then(|last| self.pieces.get(last)) {
            Some(placed) => (placed.end, placed.at),
            None => (0, 0),
        };
        let owned_end = self.pieces.get(next).map_or(self.owned.len(), |placed| placed.at);
        let skip = from - sent;
        let skip_owned = skip.min(owned_end - owned);
        Segments { buf: self, owned: owned + skip_owned, next, skip: skip - skip_owned }
    }

    /// Fills `slices` with at most `bytes_max` of the bytes to send from offset `from` on, for one
    /// vectored write. Returns how many slices it filled. Linux takes at most 1024 at once. The
    /// rest follows in the next call, with `from` moved on by the bytes that the socket took.
    pub fn io_slices<'a>(
        &'a self,
        from: usize,
        bytes_max: usize,
        slices: &mut [IoSlice<'a>],
    ) -> usize {
        let (mut filled, mut left) = (0, bytes_max);
        for (slice, segment) in slices.iter_mut().zip(self.segments(from)) {
            let segment = segment.get(..left).unwrap_or(segment);
            *slice = IoSlice::new(segment);
            left -= segment.len();
            filled += 1;
            if left == 0 {
                break;
            }
        }
        filled
    }

    /// All bytes in one slice, if there are no pages among them.
    pub fn contiguous(&self) -> Option<&[u8]> {
        self.pieces.is_empty().then_some(&self.owned)
    }

    /// A copy of all bytes, for datagrams and tests.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        for segment in self.segments(0) {
            bytes.extend_from_slice(segment);
        }
        bytes
    }

    /// Makes room for that many pieces.
    pub(super) fn reserve_pieces(&mut self, count: usize) {
        self.pieces.reserve(count);
    }

    /// Appends owned bytes as they are.
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.owned.extend_from_slice(bytes);
    }
}

/// The slices of an [`EncodeBuf`], see [`EncodeBuf::segments`].
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    buf: &'a EncodeBuf,
    /// Next owned byte to give.
    owned: usize,
    /// Next piece to give.
    next: usize,
    /// Bytes to leave out of that piece.
    skip: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let placed = self.buf.pieces.get(self.next);
        let owned_end = placed.map_or(self.buf.owned.len(), |placed| placed.at);
        if self.owned < owned_end {
            let segment = self.buf.owned.get(self.owned..owned_end);
            self.owned = owned_end;
            return segment;
        }
        let (bytes, pieces) = together(self.buf.pieces.get(self.next..)?)?;
        let segment = bytes.get(self.skip..);
        self.next += pieces;
        self.skip = 0;
        segment
    }
}

/// The bytes of the first piece and of those that follow it both in the stream and in memory, and
/// the number of those pieces.
fn together(pieces: &[Placed]) -> Option<(&[u8], usize)> {
    let first = pieces.first()?;
    let follows = |left: &Placed, right: &Placed| {
        left.piece.end == PAGE_END && right.piece.start == 0 && left.at == right.at
    };
    let run = pieces.chunk_by(follows).next()?;
    let (bytes, count) = Page::neighbours(run.iter().map(|placed| &placed.piece.page))?;
    let last = run.get(count - 1)?;
    let end = bytes.len() - usize::from(PAGE_END - last.piece.end);
    Some((bytes.get(first.piece.start.into()..end)?, count))
}

const PAGE_END: u16 = 4096;
const _: () = assert!(SECTOR_BYTES == 4096, "PAGE_END is SECTOR_BYTES in 16 bits");
