//! Where the memory of pages comes from: a pool of its own, shared by all threads.
//!
//! A general allocator serves pages badly: glibc spends up to 8 KiB on a page that must be aligned
//! to 4 KiB, gives memory back to the kernel and faults it in again, and took a third of the CPU of
//! large reads. Here a page costs 4 KiB and a few nanoseconds. Memory is taken from the system in
//! chunks and kept: the pool is as large as the most pages that ever existed at once, which the
//! memory cap bounds. Each page is reused alone, whatever the others of its chunk hold.
//!
//! Invariants:
//! - Every page is in one place: with its owner, in one thread's cache, or in the common stock.
//! - Every page was written once (zeros) before it is handed out, and may hold old content since:
//!   [`take`] promises initialised bytes, not zeros.
#![expect(
    unsafe_code,
    reason = "chunks of page-aligned memory; reviewed here, used by buf.rs only"
)]

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::mm::{Advice, madvise};

use crate::SECTOR_BYTES;

/// The memory of one page.
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
            refill(&mut cache.0);
        }
        cache.0.pop()
    });
    match cached {
        Ok(Some(free)) => free.0,
        // The thread is ending and has no cache any more.
        _ => take_from_stock(),
    }
}

/// Takes back a frame from [`take`] that nothing refers to any more.
pub(crate) fn give(frame: Frame) {
    let kept = CACHE.try_with(|cache| {
        let mut cache = cache.borrow_mut();
        cache.0.push(Free(frame));
        if cache.0.len() > CACHE_PAGES {
            STOCK.lock().extend(cache.0.drain(..BATCH_PAGES));
        }
    });
    if kept.is_err() {
        STOCK.lock().push(Free(frame));
    }
}

fn take_from_stock() -> Frame {
    let mut few = Vec::new();
    refill(&mut few);
    let mut stock = STOCK.lock();
    let taken = few.pop();
    stock.append(&mut few);
    drop(stock);
    match taken {
        Some(free) => free.0,
        None => handle_alloc_error(CHUNK),
    }
}

/// Adds frames, at least one.
fn refill(cache: &mut Vec<Free>) {
    let mut stock = STOCK.lock();
    if stock.is_empty() {
        add_chunk(&mut stock);
    }
    let rest = stock.len().saturating_sub(BATCH_PAGES);
    cache.extend(stock.drain(rest..));
}

fn add_chunk(stock: &mut Vec<Free>) {
    // SAFETY: CHUNK has a non-zero size.
    let base = unsafe { alloc(CHUNK) };
    let Some(base) = NonNull::new(base) else {
        handle_alloc_error(CHUNK);
    };
    // SAFETY: exactly the chunk, which is ours. The advice changes nothing that can be read, and
    // a kernel that does not take it gives small pages.
    let _ = unsafe { madvise(base.as_ptr().cast(), CHUNK.size(), Advice::LinuxHugepage) };
    // SAFETY: exactly the chunk, which is ours and has no other reference yet.
    unsafe { base.write_bytes(0, CHUNK.size()) };
    POOL_BYTES.fetch_add(CHUNK.size() as u64, Ordering::Relaxed);
    // The last is taken first: pages come in the order of their addresses, so that those taken
    // together are often neighbours, which one segment of a transfer can cover.
    stock.extend((0..CHUNK_PAGES).rev().map(|index| {
        // SAFETY: within the chunk that was just allocated, which is never freed.
        let frame = unsafe { base.add(index * SECTOR_BYTES) };
        Free(frame.cast())
    }));
}

/// A frame that nobody owns.
struct Free(Frame);

// SAFETY: memory without an owner may pass to any thread.
unsafe impl Send for Free {}

/// The frames that a thread has at hand; they go to the stock when it ends.
struct Cache(Vec<Free>);

impl Drop for Cache {
    fn drop(&mut self) {
        STOCK.lock().append(&mut self.0);
    }
}

thread_local! {
    static CACHE: RefCell<Cache> = const { RefCell::new(Cache(Vec::new())) };
}

static STOCK: Mutex<Vec<Free>> = Mutex::new(Vec::new());

static POOL_BYTES: AtomicU64 = AtomicU64::new(0);

/// 2 MiB, a huge page where the system gives one: fewer page-table entries, and neighbouring pages
/// are neighbours in memory.
const CHUNK_PAGES: usize = 512;

const CHUNK: Layout = match Layout::from_size_align(CHUNK_PAGES * SECTOR_BYTES, 2 << 20) {
    Ok(layout) => layout,
    Err(_) => panic!("a chunk has a valid layout"),
};

/// What a thread keeps at most: 2 MiB.
const CACHE_PAGES: usize = 512;

/// What moves between a thread's cache and the stock at a time.
const BATCH_PAGES: usize = 256;

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
        // What was given back is used again: far fewer than five rounds' worth were taken.
        assert!(pool_bytes() < 3 * 4 * 3000 * 4096, "{}", pool_bytes());
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
