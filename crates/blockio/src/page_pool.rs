//! Memory of pages: a pool of its own, shared by all threads.
//!
//! A general allocator serves pages badly. glibc spends up to 8 KiB on a page that must be aligned
//! to 4 KiB. It also gives memory back to the kernel and faults it in again, and took a third of
//! the CPU of large reads. Here a page costs 4 KiB and a few nanoseconds. The pool takes memory
//! from the system in chunks and keeps it. It is as large as the most pages that ever existed at
//! once, which the memory cap bounds. Each page is reused alone, whatever the others of its chunk
//! hold.
//!
//! ```text
//!   chunk, 2 MiB:  |header| 15 frames | 16 frames | 16 frames | ...   512 places of 4 KiB
//!                   counts, free bits   a block, 64 KiB
//! ```
//! A request for many pages gets whole blocks, as long as there are some: neighbours in memory,
//! which the kernel pins, and a disk transfers, as one piece. Single pages come from blocks that
//! are already broken. The chunk's header counts the owners of each page: 16 neighbours in one
//! cache line, and nothing to allocate.
//!
//! Invariants:
//! - Every frame is in one place: with its owners, in one thread's cache, or in the common stock.
//!   (Its free bit is set there, and changes under the stock's lock only.)
//! - A block whose frames are all free is in `whole`, once; any other with a free frame is in
//!   `broken`, once. `broken` may also name blocks that have no free frame, or are whole.
//! - Every page was written once (zeros) before it is handed out, and may hold old content since:
//!   [`take`] promises initialised bytes, not zeros.
//! - The first place of a chunk is its header, so frames of two chunks are never neighbours.
#![expect(
    unsafe_code,
    reason = "chunks of page-aligned memory; reviewed here, used by buf.rs only"
)]

use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};

use aquifer_sync::atomic::AtomicU32;
use aquifer_sync::{Mutex, PERMUTED};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::SECTOR_BYTES;

/// The memory of one page. Its provenance is the whole chunk's.
pub(crate) type Frame = NonNull<[u8; SECTOR_BYTES]>;

/// Bytes that the pool has taken from the system so far; it gives none back.
pub fn pool_bytes() -> u64 {
    POOL_BYTES.load(Ordering::Relaxed)
}

/// A frame for the caller alone, with any content.
pub(crate) fn take() -> Frame {
    let cached = CACHE.try_with(|cache| {
        let mut cache = cache.borrow_mut();
        if cache.0.is_empty() {
            STOCK.lock().take_singles(BATCH_PAGES, &mut cache.0);
            // `pop` takes the last one first.
            cache.0.reverse();
        }
        cache.0.pop()
    });
    match cached {
        Ok(Some(free)) => free.0,
        // The thread is ending and no longer has a cache.
        _ => STOCK.lock().take_single().0,
    }
}

/// Frames for the caller alone, with any content, neighbours in memory as far as possible; `put`
/// gets them in order.
pub(crate) fn take_many(count: usize, mut put: impl FnMut(Frame)) {
    let mut left = count;
    while left >= BLOCK_PAGES {
        let Some(block) = STOCK.lock().take_block() else { break };
        block.frames().for_each(&mut put);
        left -= BLOCK_PAGES;
    }
    (0..left).for_each(|_| put(take()));
}

/// Takes back a frame from [`take`] to which nothing refers any more.
pub(crate) fn give(frame: Frame) {
    let kept = CACHE.try_with(|cache| {
        let mut cache = cache.borrow_mut();
        cache.0.push(Free(frame));
        if cache.0.len() > CACHE_PAGES {
            STOCK.lock().give(cache.0.drain(..BATCH_PAGES));
        }
    });
    if kept.is_err() {
        STOCK.lock().give([Free(frame)]);
    }
}

/// Whether the frame's block was handed out as a whole, and none of its frames has returned to the
/// stock since.
pub(crate) fn is_of_whole(frame: Frame) -> bool {
    Block::of(frame).0.bits().whole.load(Ordering::Relaxed)
}

/// The count of this frame's owners. Its meaning is the owners' business.
pub(crate) fn count_of<'a>(frame: Frame) -> &'a AtomicU32 {
    let (header, index) = place_of(frame);
    // SAFETY: the header of the chunk that the frame lies in: chunks are aligned to their size,
    // initialised before any frame is handed out, never freed, and a header is only ever shared.
    let header: &'a Header = unsafe { header.as_ref() };
    match header.counts.get(index) {
        Some(count) => count,
        None => unreachable!("an index in a chunk is below CHUNK_PAGES"),
    }
}

/// Whether `second` follows `first` in memory. Such frames are of one chunk.
pub(crate) fn are_neighbours(first: Frame, second: Frame) -> bool {
    first.as_ptr().wrapping_add(1) == second.as_ptr()
}

fn place_of(frame: Frame) -> (NonNull<Header>, usize) {
    let address = frame.as_ptr();
    let within = address.addr() % CHUNK.size();
    let header = address.cast::<u8>().wrapping_sub(within).cast::<Header>();
    match NonNull::new(header) {
        Some(header) => (header, within / SECTOR_BYTES),
        None => unreachable!("no chunk lies at zero"),
    }
}

/// The content of the first place of a chunk.
struct Header {
    counts: [AtomicU32; CHUNK_PAGES],
    blocks: [Bits; CHUNK_PAGES / BLOCK_PAGES],
}

/// The bits of one block; written under the stock's lock.
struct Bits {
    /// Which frames lie in the stock.
    free: AtomicU16,
    /// `broken` names it.
    listed: AtomicBool,
    /// See [`is_of_whole`], which reads it without the lock.
    whole: AtomicBool,
}

const _: () = assert!(size_of::<Header>() <= SECTOR_BYTES, "a header fits its place");

/// The first frame of a block, which names it. The header is in the first block of a chunk.
#[derive(Clone, Copy)]
struct Block(Frame);

// SAFETY: a name; what it gives access to is guarded by the stock's lock.
unsafe impl Send for Block {}

impl Block {
    /// The block that `frame` is in, and the number of the frame in it.
    fn of(frame: Frame) -> (Self, usize) {
        let at = frame.as_ptr().addr() / SECTOR_BYTES % BLOCK_PAGES;
        match NonNull::new(frame.as_ptr().wrapping_sub(at)) {
            Some(first) => (Block(first), at),
            None => unreachable!("no chunk lies at zero"),
        }
    }

    fn frame(self, at: usize) -> Frame {
        match NonNull::new(self.0.as_ptr().wrapping_add(at)) {
            Some(frame) => frame,
            None => unreachable!("no chunk lies at zero"),
        }
    }

    fn frames(self) -> impl Iterator<Item = Frame> {
        (0..BLOCK_PAGES).map(move |at| self.frame(at))
    }

    fn bits<'a>(self) -> &'a Bits {
        let (header, index) = place_of(self.0);
        // SAFETY: as in `count_of`.
        let header: &'a Header = unsafe { header.as_ref() };
        match header.blocks.get(index / BLOCK_PAGES) {
            Some(bits) => bits,
            None => unreachable!("an index in a chunk is below CHUNK_PAGES"),
        }
    }
}

/// Frames that no thread holds.
struct Stock {
    whole: Vec<Block>,
    broken: Vec<Block>,
}

impl Stock {
    fn give(&mut self, frames: impl IntoIterator<Item = Free>) {
        for Free(frame) in frames {
            let (block, at) = Block::of(frame);
            let bits = block.bits();
            let free = bits.free.load(Ordering::Relaxed) | 1 << at;
            bits.free.store(free, Ordering::Relaxed);
            bits.whole.store(false, Ordering::Relaxed);
            if free == ALL_FREE {
                self.whole.push(block);
            } else if !bits.listed.swap(true, Ordering::Relaxed) {
                self.broken.push(block);
            }
        }
    }

    fn take_singles(&mut self, count: usize, to: &mut Vec<Free>) {
        to.push(self.take_single());
        while to.len() < count {
            let Some(free) = self.take_free() else { return };
            to.push(free);
        }
    }

    fn take_single(&mut self) -> Free {
        loop {
            if let Some(free) = self.take_free() {
                return free;
            }
            self.add_chunk();
        }
    }

    /// A free frame, from a broken block if there is one.
    fn take_free(&mut self) -> Option<Free> {
        loop {
            let block = match self.broken.last() {
                Some(block) => *block,
                None => {
                    let block = self.whole.pop()?;
                    self.broken.push(block);
                    block.bits().listed.store(true, Ordering::Relaxed);
                    return Some(self.take_of(block, ALL_FREE));
                }
            };
            match block.bits().free.load(Ordering::Relaxed) {
                0 | ALL_FREE => {
                    block.bits().listed.store(false, Ordering::Relaxed);
                    self.broken.pop();
                }
                free => return Some(self.take_of(block, free)),
            }
        }
    }

    fn take_of(&mut self, block: Block, free: u16) -> Free {
        block.bits().free.store(free & (free - 1), Ordering::Relaxed);
        Free(block.frame(usize::try_from(free.trailing_zeros()).unwrap_or(0)))
    }

    fn take_block(&mut self) -> Option<Block> {
        if self.whole.is_empty() && self.broken.is_empty() {
            self.add_chunk();
        }
        let block = self.whole.pop()?;
        block.bits().free.store(0, Ordering::Relaxed);
        block.bits().whole.store(true, Ordering::Relaxed);
        Some(block)
    }

    fn add_chunk(&mut self) {
        let base = map_chunk().unwrap_or_else(|| handle_alloc_error(CHUNK));
        // SAFETY: exactly the chunk, which is ours. The advice changes nothing that can be read,
        // and a kernel that does not take it gives small pages.
        let _ = unsafe { madvise(base.as_ptr().cast(), CHUNK.size(), Advice::LinuxHugepage) };
        // SAFETY: exactly the chunk, which is ours and has no other reference yet. It is zero
        // already, and so a valid header (nothing is shared, free or listed): this has its memory
        // here, in one piece.
        unsafe { base.write_bytes(0, CHUNK.size()) };
        POOL_BYTES.fetch_add(CHUNK.size() as u64, Ordering::Relaxed);
        // `pop` takes the last one first: blocks come in the order of their addresses. The frames
        // beside the header make no whole block and are used first.
        let frame = |index: usize| {
            // SAFETY: within the chunk that was just allocated, which is never freed.
            Free(unsafe { base.add(index * SECTOR_BYTES) }.cast())
        };
        self.give((1..CHUNK_PAGES).rev().map(frame));
    }
}

/// Puts the stock in an order that does not depend on earlier use, and makes it large enough to
/// last. No thread may use the pool meanwhile.
#[cfg(feature = "permute")]
pub fn settle() {
    let mut stock = STOCK.lock();
    let mut free: Vec<Free> = Vec::new();
    loop {
        free.extend(std::iter::from_fn(|| stock.take_free()));
        if free.len() >= SETTLED_PAGES {
            break;
        }
        stock.add_chunk();
    }
    free.sort_unstable_by_key(|Free(frame)| std::cmp::Reverse(frame.addr()));
    stock.give(free);
}

#[cfg(feature = "permute")]
const SETTLED_PAGES: usize = 16 * CHUNK_PAGES;

/// New memory for a chunk, aligned, from the system itself: memory that an allocator had partly
/// used before would not become a huge page.
fn map_chunk() -> Option<NonNull<u8>> {
    let (size, flags) = (CHUNK.size(), MapFlags::PRIVATE);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping wherever the system likes.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * size, access, flags) };
    let start = NonNull::new(mapped.ok()?)?.cast::<u8>();
    let before = start.as_ptr().align_offset(CHUNK.align());
    // SAFETY: within the mapping: `before` is less than the alignment, which is `size`.
    let (base, after) = unsafe { (start.add(before), start.add(before + size)) };
    for (part, bytes) in [(start, before), (after, size - before)] {
        if bytes > 0 {
            // SAFETY: parts of the mapping beside the chunk, that nobody knows of.
            let _ = unsafe { munmap(part.as_ptr().cast(), bytes) };
        }
    }
    Some(base)
}

/// A frame without an owner.
struct Free(Frame);

// SAFETY: memory without an owner may pass to any thread.
unsafe impl Send for Free {}

/// A thread's frames; they go to the stock when it ends.
struct Cache(Vec<Free>);

impl Drop for Cache {
    fn drop(&mut self) {
        STOCK.lock().give(self.0.drain(..));
    }
}

aquifer_sync::thread_local! {
    static CACHE: RefCell<Cache> = const { RefCell::new(Cache(Vec::new())) };
}

static STOCK: Mutex<Stock> = Mutex::new(Stock { whole: Vec::new(), broken: Vec::new() });

static POOL_BYTES: AtomicU64 = AtomicU64::new(0);

/// 2 MiB, a huge page where the system gives one: fewer page-table entries, and neighbouring pages
/// are neighbours in memory.
const CHUNK_PAGES: usize = 512;

const CHUNK: Layout = match Layout::from_size_align(CHUNK_PAGES * SECTOR_BYTES, 2 << 20) {
    Ok(layout) => layout,
    Err(_) => panic!("a chunk has a valid layout"),
};

/// 64 KiB: large enough to hide the cost of each piece of a transfer, small enough that pages used
/// singly leave whole blocks.
const BLOCK_PAGES: usize = 16;

const ALL_FREE: u16 = u16::MAX;
const _: () = assert!(BLOCK_PAGES == 16, "a block's free frames are 16 bits");

/// The most that a thread keeps: 2 MiB.
const CACHE_PAGES: usize = if PERMUTED { 4 } else { 512 };

/// The number that moves between a thread's cache and the stock at a time.
const BATCH_PAGES: usize = if PERMUTED { 2 } else { 256 };

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{Page, PageMut};

    #[test]
    fn no_page_is_handed_out_twice_on_any_thread() {
        // Pages made on some threads are dropped on others, more than a cache holds.
        let make = |mark: u8| (0..3000).map(move |_| PageMut::with_prefix(&[mark; 4096]));
        for round in 1..5 {
            let threads: Vec<_> = (1..5)
                .map(|thread| std::thread::spawn(move || make(round * thread).collect::<Vec<_>>()))
                .collect();
            let pages: Vec<Vec<PageMut>> =
                threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let places: HashSet<_> = pages.iter().flatten().map(PageMut::address).collect();
            assert_eq!(places.len(), 4 * 3000);
            for (thread, pages) in (1u8..).zip(&pages) {
                assert!(pages.iter().all(|page| **page == [round * thread; 4096]));
            }
        }
        // Freed frames are reused: the pool took far less than five rounds' worth.
        assert!(pool_bytes() < 3 * 4 * 3000 * 4096, "{}", pool_bytes());
    }

    /// On a stock of its own: frames come back in any order.
    #[test]
    fn blocks_are_neighbours_and_come_back_whole() {
        let mut stock = Stock { whole: Vec::new(), broken: Vec::new() };
        let blocks = CHUNK_PAGES / BLOCK_PAGES - 1;
        for step in [1, 5, 101, 510] {
            let mut taken: Vec<Free> = Vec::new();
            stock.take_singles(20, &mut taken);
            // The frames beside the header, then those of one block.
            assert_eq!(taken.len(), 20);
            for _ in 0..blocks - 1 {
                let frames: Vec<Frame> = stock.take_block().unwrap().frames().collect();
                assert!(frames.windows(2).all(|pair| are_neighbours(pair[0], pair[1])));
                taken.extend(frames.into_iter().map(Free));
            }
            assert_eq!(stock.whole.len(), 0);
            assert!(stock.take_block().is_none(), "singles are left: nothing is added for a block");
            while let Some(free) = stock.take_free() {
                taken.push(free);
            }
            let places: HashSet<usize> = taken.iter().map(|free| free.0.addr().get()).collect();
            assert_eq!(places.len(), CHUNK_PAGES - 1);
            assert!(taken.iter().all(|free| place_of(free.0).1 > 0), "no header is given away");
            // Each comes back once: 511 and the steps have no common divisor.
            let mut back: Vec<Option<Free>> = taken.into_iter().map(Some).collect();
            for at in 0..back.len() {
                let index = at * step % back.len();
                stock.give(back[index].take());
            }
            assert_eq!(stock.whole.len(), blocks);
        }
    }

    #[test]
    fn fresh_pages_are_zero_though_their_memory_was_used() {
        for _ in 0..3 {
            let used: Vec<Page> = (0..1000).map(|_| Page::with_prefix(&[9; 4096])).collect();
            drop(used);
            assert!((0..1000).map(|_| Page::zeroed()).all(|page| page.is_zero()));
            assert!((0..1000).all(|_| Page::with_prefix(&[9; 100])[100..] == [0; 3996]));
        }
    }
}
