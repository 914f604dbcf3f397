//! The known state of a file's pages: the last acknowledged generation, and the calls in progress
//! on them.
//!
//! Invariant: a page that is being written is neither read nor written by another call, and a page
//! that is being read is not written. So a READ must return one known generation, in whatever order
//! a server executes outstanding calls.

use crate::pattern::{self, PAGE_BYTES};
use crate::random::mix;
use crate::{Error, Result};

/// A file of the generator's.
#[derive(Clone, Debug)]
pub struct Pages {
    states: Vec<State>,
    counts: bool,
    /// The file has so many pages for each that is written.
    spread: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    generation: u32,
    readers: u16,
    written: bool,
}

impl Pages {
    /// A file of `bytes`, none of whose pages was written. A server that stores nothing always
    /// returns generation 0. Without `counts`, every write is of that generation.
    #[must_use]
    pub fn new(bytes: usize, counts: bool) -> Self {
        Pages { states: vec![State::default(); bytes / PAGE_BYTES], counts, spread: 1 }
    }

    /// Spreads the pages over a sparse file of about `file_bytes`: each alone at a random place of
    /// an equal part of it.
    #[must_use]
    pub fn over(self, file_bytes: u64) -> Self {
        let spread = file_bytes / (self.bytes() as u64).max(1);
        Pages { spread: spread.max(1), ..self }
    }

    /// Whether pages lie apart, so that blocks have one page.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        self.spread > 1
    }

    /// Length of all its pages in bytes; that of the file, unless it is sparse.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.states.len() * PAGE_BYTES
    }

    /// Cuts the file into `shares` of whole blocks of `block_bytes`, one for each connection.
    ///
    /// # Errors
    /// [`Error::Malformed`] if there is no block for each.
    pub fn shares(&mut self, shares: usize, block_bytes: usize) -> Result<Vec<Share<'_>>> {
        let block_pages = block_bytes.div_ceil(PAGE_BYTES).max(1);
        let blocks = self.states.len() / block_pages / shares.max(1);
        let apart = self.is_sparse() && block_pages > 1;
        if blocks == 0 || apart || !block_bytes.is_multiple_of(PAGE_BYTES) {
            let bytes = self.bytes();
            let what =
                format!("{bytes} bytes give no {shares} shares of {block_bytes}-byte blocks");
            return Err(Error::Malformed(what));
        }
        let (counts, spread) = (self.counts, self.spread);
        let cut = self.states.chunks_exact_mut(blocks * block_pages).take(shares);
        let share = |(number, states)| {
            let first_page = number * blocks * block_pages;
            Share { states, first_page, block_pages, blocks, counts, spread }
        };
        Ok(cut.enumerate().map(share).collect())
    }
}

/// One connection's part of a file, in blocks of one size.
#[derive(Debug)]
pub struct Share<'a> {
    states: &'a mut [State],
    first_page: usize,
    block_pages: usize,
    blocks: usize,
    counts: bool,
    spread: u64,
}

impl Share<'_> {
    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Offset of a block in the file, in bytes.
    #[must_use]
    pub fn offset(&self, block: usize) -> u64 {
        let page = self.page(block);
        let place = page * self.spread + mix(page).checked_rem(self.spread).unwrap_or(0);
        place * PAGE_BYTES as u64
    }

    /// Takes a block for reading; `false` if it is being written.
    pub fn begin_read(&mut self, block: usize) -> bool {
        let states = self.block(block);
        let free = states.iter().all(|state| !state.written);
        if free {
            states.iter_mut().for_each(|state| state.readers += 1);
        }
        free
    }

    /// Takes a block for writing and puts its new content into `to`; `false` if another call uses
    /// it.
    pub fn begin_write(&mut self, block: usize, to: &mut Vec<u8>) -> bool {
        let (page, counts, pages) = (self.page(block), self.counts, self.block_pages);
        let states = self.block(block);
        if states.iter().any(|state| state.written || state.readers > 0) {
            return false;
        }
        to.resize(pages * PAGE_BYTES, 0);
        let bytes = to.chunks_exact_mut(PAGE_BYTES);
        for ((page, state), bytes) in (page..).zip(states).zip(bytes) {
            state.written = true;
            state.generation += u32::from(counts);
            pattern::fill(page, state.generation, bytes);
        }
        true
    }

    /// Releases a block after reading, and compares the data.
    ///
    /// # Errors
    /// [`Error::Mismatch`]: the server is wrong.
    pub fn end_read(&mut self, block: usize, found: &[u8]) -> Result<()> {
        let (page, pages) = (self.page(block), self.block_pages);
        if found.len() != pages * PAGE_BYTES {
            let (wanted, len) = (pages * PAGE_BYTES, found.len());
            return Err(Error::Mismatch(format!("READ of {wanted} bytes gave {len}")));
        }
        let bytes = found.chunks_exact(PAGE_BYTES);
        for ((page, state), bytes) in (page..).zip(self.block(block)).zip(bytes) {
            state.readers -= 1;
            if !pattern::holds(page, state.generation, bytes) {
                return Err(Error::Mismatch(pattern::describe(page, state.generation, bytes)));
            }
        }
        Ok(())
    }

    /// Releases a block after writing: the write is acknowledged.
    pub fn end_write(&mut self, block: usize) {
        self.block(block).iter_mut().for_each(|state| state.written = false);
    }

    fn page(&self, block: usize) -> u64 {
        (self.first_page + block * self.block_pages) as u64
    }

    fn block(&mut self, block: usize) -> &mut [State] {
        let first = block * self.block_pages;
        self.states.get_mut(first..first + self.block_pages).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_and_writers_keep_apart_and_content_is_the_last_written() {
        let mut pages = Pages::new(16 * PAGE_BYTES, true);
        let mut shares = pages.shares(2, 2 * PAGE_BYTES).unwrap();
        assert_eq!((shares[0].blocks(), shares[1].offset(0)), (4, 8 * PAGE_BYTES as u64));
        let share = &mut shares[1];
        let (mut first, mut second) = (Vec::new(), Vec::new());
        assert!(share.begin_write(3, &mut first));
        assert!(!share.begin_write(3, &mut second) && !share.begin_read(3));
        share.end_write(3);
        assert!(share.begin_read(3) && share.begin_read(3));
        assert!(!share.begin_write(3, &mut second));
        share.end_read(3, &first).unwrap();
        share.end_read(3, &first).unwrap();
        assert!(share.begin_write(3, &mut second));
        share.end_write(3);
        assert!(share.begin_read(3));
        let stale = share.end_read(3, &first).unwrap_err();
        assert!(stale.to_string().contains("generation 1 found"), "{stale}");
        assert!(share.begin_read(2) && share.end_read(2, &second[..PAGE_BYTES]).is_err());
    }

    #[test]
    fn pages_of_a_sparse_file_lie_apart_each_in_its_part() {
        let (pages, file) = (1 << 10, 1 << 40);
        let mut sparse = Pages::new(pages * PAGE_BYTES, true).over(file);
        assert!(sparse.is_sparse() && sparse.shares(1, 2 * PAGE_BYTES).is_err());
        assert_eq!(sparse.bytes(), pages * PAGE_BYTES);
        let shares = sparse.shares(2, PAGE_BYTES).unwrap();
        let offsets =
            shares.iter().flat_map(|share| (0..share.blocks()).map(|at| share.offset(at)));
        let offsets: Vec<u64> = offsets.collect();
        assert!(offsets.iter().all(|offset| offset.is_multiple_of(PAGE_BYTES as u64)));
        let parts: Vec<u64> = offsets.iter().map(|offset| offset >> 30).collect();
        assert_eq!(parts, (0..1 << 10).collect::<Vec<u64>>());
        let within: std::collections::BTreeSet<u64> =
            offsets.iter().map(|offset| offset & ((1 << 30) - 1)).collect();
        assert!(within.len() > 1000, "at random places: {}", within.len());
    }

    #[test]
    fn too_small_a_file_is_refused() {
        let mut pages = Pages::new(4 * PAGE_BYTES, true);
        assert!(pages.shares(5, PAGE_BYTES).is_err());
        assert!(pages.shares(1, 5 * PAGE_BYTES).is_err());
        assert!(pages.shares(1, 1000).is_err());
    }
}
