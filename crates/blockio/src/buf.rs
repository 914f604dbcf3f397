//! Memory for I/O: pages of 4 KiB, aligned to 4 KiB, immutable once shared.
//!
//! Invariants:
//! - A [`PageMut`] has one owner; [`Page`] is shared and its bytes never change again. So memory
//!   cannot change while a disk has it or a checksum covers it.
//! - Fresh pages are zeroed: no memory of one client reaches another, or a disk.
#![expect(unsafe_code, reason = "access to a page's frame; reviewed here, used nowhere else")]

use std::fmt;
use std::io::IoSliceMut;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use aquifer_sync::atomic::{AtomicU32, Ordering, fence};

use crate::SECTOR_BYTES;
use crate::page_pool::{self, Frame};
use crate::sabotage::{Rule, left_out};

/// One page with a single owner: may be written.
pub struct PageMut {
    bytes: Frame,
}

// SAFETY: a `PageMut` owns its frame alone, as a `Box<[u8; 4096]>` would.
unsafe impl Send for PageMut {}
// SAFETY: shared references only give shared access to plain bytes.
unsafe impl Sync for PageMut {}

impl PageMut {
    /// A zeroed page.
    pub fn zeroed() -> Self {
        let mut page = PageMut::unfilled();
        page.fill(0);
        page
    }

    /// A page with any old content. The caller must fill all of it before anybody can see it.
    pub(crate) fn unfilled() -> Self {
        PageMut { bytes: page_pool::take() }
    }

    /// Many of those, neighbours in memory as far as the pool has them.
    pub(crate) fn unfilled_many(count: usize) -> Vec<Self> {
        let mut pages = Vec::with_capacity(count);
        page_pool::take_many(count, |bytes| pages.push(PageMut { bytes }));
        pages
    }

    /// A page that starts with `prefix`, zero after it. Surplus bytes are left out.
    pub fn with_prefix(prefix: &[u8]) -> Self {
        let mut page = PageMut::unfilled();
        let length = prefix.len().min(SECTOR_BYTES);
        let (head, tail) = page.split_at_mut(length);
        let (prefix, _) = prefix.split_at(length);
        head.copy_from_slice(prefix);
        tail.fill(0);
        page
    }

    /// The page's address, for the engines that pass it to the kernel. It stays valid until this
    /// value (or the `Page` made of it) is dropped, wherever the value itself is moved.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.bytes.cast()
    }

    /// Ends the writing: the page can now be shared.
    pub fn freeze(self) -> Page {
        let frame = ManuallyDrop::new(self).bytes;
        // Nobody else knows of the frame yet; handing the page to a thread orders this.
        page_pool::count_of(frame).store(1, Ordering::Relaxed);
        Page { bytes: frame }
    }
}

impl Drop for PageMut {
    fn drop(&mut self) {
        page_pool::give(self.bytes);
    }
}

impl Deref for PageMut {
    type Target = [u8; SECTOR_BYTES];
    fn deref(&self) -> &[u8; SECTOR_BYTES] {
        // SAFETY: valid and initialised (see page_pool) for the life of this value.
        unsafe { self.bytes.as_ref() }
    }
}

impl DerefMut for PageMut {
    fn deref_mut(&mut self) -> &mut [u8; SECTOR_BYTES] {
        // SAFETY: as above, and `&mut self` makes the access unique.
        unsafe { self.bytes.as_mut() }
    }
}

impl fmt::Debug for PageMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PageMut")
    }
}

/// One immutable, shared page. Its owners are counted beside the frame ([`page_pool`]). The last
/// owner frees the frame.
pub struct Page {
    bytes: Frame,
}

// SAFETY: shared plain bytes that nobody writes, counted atomically: as an `Arc<[u8; 4096]>`.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// A page of zeros.
    pub fn zeroed() -> Self {
        PageMut::zeroed().freeze()
    }

    /// A page that starts with `prefix`, zero after it.
    pub fn with_prefix(prefix: &[u8]) -> Self {
        PageMut::with_prefix(prefix).freeze()
    }

    /// Whether every byte is zero: such a page is stored as a hole.
    pub fn is_zero(&self) -> bool {
        let (words, rest) = self.as_chunks::<16>();
        debug_assert!(rest.is_empty());
        words.iter().all(|word| u128::from_ne_bytes(*word) == 0)
    }

    /// The page's address; see [`PageMut::address`]. Nobody may write there.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.bytes.cast()
    }

    /// Whether two handles share one allocation.
    pub fn same(&self, other: &Page) -> bool {
        self.bytes == other.bytes
    }

    /// The bytes of the first of `pages` and of those after it that also follow it in memory, and
    /// the number of those pages. `None` if there are no pages.
    pub fn neighbours<'a>(pages: impl IntoIterator<Item = &'a Page>) -> Option<(&'a [u8], usize)> {
        let mut pages = pages.into_iter();
        let first = pages.next()?.bytes;
        let (mut last, mut count) = (first, 1);
        for page in pages {
            if !page_pool::are_neighbours(last, page.bytes) {
                break;
            }
            (last, count) = (page.bytes, count + 1);
        }
        // SAFETY: frames of one chunk that follow each other, whose provenance is the chunk's;
        // initialised, and shared for `'a` by pages that nobody writes.
        let bytes: &'a [u8] =
            unsafe { std::slice::from_raw_parts(first.as_ptr().cast(), count * SECTOR_BYTES) };
        Some((bytes, count))
    }

    /// This content in the memory of `old`, if nobody else shows `old` and its neighbours came with
    /// it. So pages that were read or written together stay neighbours while they are rewritten one
    /// by one. Otherwise, or if this page came with neighbours of its own, this page as it is.
    pub fn in_place_of(self, old: Page) -> Page {
        if page_pool::is_of_whole(self.bytes) || !page_pool::is_of_whole(old.bytes) {
            return self;
        }
        match old.into_mut() {
            Some(mut place) => {
                place.copy_from_slice(self.as_slice());
                place.freeze()
            }
            None => self,
        }
    }

    /// The page for its only owner; `None` if there are others.
    fn into_mut(self) -> Option<PageMut> {
        // As `Arc::try_unwrap`: an owner that finds itself to be the last stays the only one. The
        // reads of earlier owners happen before the coming writes.
        let taken = self.owners().compare_exchange(1, 0, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_err() && !left_out(Rule::SharedPageStays) {
            return None;
        }
        fence(Ordering::Acquire);
        Some(PageMut { bytes: ManuallyDrop::new(self).bytes })
    }

    fn owners(&self) -> &AtomicU32 {
        page_pool::count_of(self.bytes)
    }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        // As in `Arc`: the caller of `clone` is an owner, so the page needs no order to stay. If
        // forgotten pages bring the count near its end, the process aborts before it wraps.
        let before = self.owners().fetch_add(1, Ordering::Relaxed);
        if before > OWNERS_MAX {
            std::process::abort();
        }
        Page { bytes: self.bytes }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // As in `Arc`: the reads of other owners happen before the frame is reused.
        let owners = if left_out(Rule::OwnersCountedAtOnce) {
            let owners = self.owners().load(Ordering::Relaxed);
            self.owners().store(owners.wrapping_sub(1), Ordering::Relaxed);
            owners
        } else {
            self.owners().fetch_sub(1, Ordering::Release)
        };
        if owners == 1 {
            fence(Ordering::Acquire);
            page_pool::give(self.bytes);
        }
    }
}

impl Deref for Page {
    type Target = [u8; SECTOR_BYTES];
    fn deref(&self) -> &[u8; SECTOR_BYTES] {
        // SAFETY: valid and initialised (see page_pool) while there is an owner, and nobody writes.
        unsafe { self.bytes.as_ref() }
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

/// Whole pages that are filled from the front as bytes come from a socket. They are neighbours in
/// memory as far as the pool has them.
#[derive(Debug)]
pub struct Filling {
    pages: Vec<PageMut>,
    filled: usize,
}

impl Filling {
    /// Room for that many pages.
    pub fn new(pages: usize) -> Self {
        Filling { pages: PageMut::unfilled_many(pages), filled: 0 }
    }

    /// Bytes that still have room.
    pub fn missing(&self) -> usize {
        self.pages.len() * SECTOR_BYTES - self.filled
    }

    /// Takes as many of `bytes` as there is room for, and returns their number.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        let mut spaces: Vec<IoSliceMut<'_>> = Vec::new();
        self.spaces(&mut spaces);
        for space in &mut spaces {
            let (now, later) = rest.split_at(rest.len().min(space.len()));
            if let Some(to) = space.get_mut(..now.len()) {
                to.copy_from_slice(now);
            }
            rest = later;
        }
        let taken = bytes.len() - rest.len();
        self.filled += taken;
        taken
    }

    /// The unfilled space, in order, for one vectored read. It holds old bytes of other users: only
    /// write to it.
    pub fn spaces<'a>(&'a mut self, to: &mut Vec<IoSliceMut<'a>>) {
        let (first, within) = (self.filled / SECTOR_BYTES, self.filled % SECTOR_BYTES);
        let rest = self.pages.get(first..).unwrap_or_default();
        let neighbours =
            |left: &PageMut, right: &PageMut| page_pool::are_neighbours(left.bytes, right.bytes);
        let mut skip = within;
        for run in rest.chunk_by(neighbours) {
            let Some(head) = run.first() else { continue };
            let length = run.len() * SECTOR_BYTES;
            // SAFETY: frames of one chunk that follow each other, initialised, owned by `self`
            // alone, which is borrowed mutably for `'a`; each is in one run.
            let bytes: &'a mut [u8] =
                unsafe { std::slice::from_raw_parts_mut(head.bytes.as_ptr().cast(), length) };
            to.push(IoSliceMut::new(bytes.get_mut(skip..).unwrap_or_default()));
            skip = 0;
        }
    }

    /// `bytes` of the spaces were filled.
    ///
    /// # Panics
    /// If there was less room.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.missing(), "filled more than the space given");
        self.filled += bytes;
    }

    /// The pages, once they are full; `None` before, so that nobody sees unfilled bytes.
    pub fn finish(self) -> Option<Vec<Page>> {
        let full = self.missing() == 0;
        full.then(|| self.pages.into_iter().map(PageMut::freeze).collect())
    }
}

/// Half of what the count of a page's owners can hold; the other half is a margin.
const OWNERS_MAX: u32 = u32::MAX / 2;

/// Cuts `bytes` into pages, the last one padded with zeros.
pub fn pages_of(bytes: &[u8]) -> Vec<Page> {
    bytes.chunks(SECTOR_BYTES).map(Page::with_prefix).collect()
}

/// Joins pages into one buffer.
pub fn bytes_of(pages: &[Page]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(pages.len() * SECTOR_BYTES);
    for page in pages {
        bytes.extend_from_slice(page.as_slice());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..=250).cycle().take(bytes).collect()
    }

    #[test]
    fn pages_filled_in_any_steps_hold_what_came() {
        let content = pattern(40 * SECTOR_BYTES);
        for step in [1, 4095, 4096, 5000, 65_536, 1 << 20] {
            let mut filling = Filling::new(40);
            let mut rest = content.as_slice();
            let mut turn = 0;
            while filling.missing() > 0 {
                assert_eq!(filling.missing(), rest.len());
                turn += 1;
                if step < 4096 || turn % 2 == 0 {
                    let some = &rest[..rest.len().min(step)];
                    assert_eq!(filling.put(some), some.len());
                    rest = &rest[some.len()..];
                    continue;
                }
                let mut spaces = Vec::new();
                filling.spaces(&mut spaces);
                let room: usize = spaces.iter().map(|space| space.len()).sum();
                assert_eq!(room, rest.len());
                let count = spaces[0].len().min(step);
                spaces[0][..count].copy_from_slice(&rest[..count]);
                filling.advance(count);
                rest = &rest[count..];
            }
            assert_eq!(filling.put(&[1]), 0);
            assert!(bytes_of(&filling.finish().unwrap()) == content);
        }
        let mut part = Filling::new(2);
        part.put(&pattern(5000));
        assert!(part.finish().is_none());
    }

    #[test]
    fn neighbours_are_one_piece() {
        let mut filling = Filling::new(20);
        filling.put(&pattern(20 * SECTOR_BYTES));
        let mut pages = filling.finish().unwrap();
        let (bytes, count) = Page::neighbours(&pages).unwrap();
        assert!(count >= 16, "a block of 64 KiB is one piece");
        assert!(bytes == &pattern(count * SECTOR_BYTES)[..]);
        // A page that does not follow in memory ends the piece.
        pages.swap(3, 4);
        let (bytes, count) = Page::neighbours(&pages).unwrap();
        assert_eq!((bytes.as_ptr(), bytes.len(), count), (pages[0].as_ptr(), 3 * 4096, 3));
        assert_eq!(Page::neighbours([&pages[0], &pages[0]]).unwrap().1, 1);
        assert!(Page::neighbours([]).is_none());
    }

    #[test]
    fn what_is_written_anew_lies_where_the_old_lay() {
        let mut filling = Filling::new(16);
        filling.put(&pattern(16 * SECTOR_BYTES));
        let mut pages = filling.finish().unwrap();
        let place = pages[3].address();
        let new = Page::with_prefix(b"new");
        let old = std::mem::replace(&mut pages[3], Page::zeroed());
        pages[3] = new.clone().in_place_of(old);
        assert_eq!((pages[3].address(), &pages[3][..4]), (place, &b"new\0"[..]));
        assert_eq!(Page::neighbours(&pages).unwrap().1, 16);
        // Another handle still shows the old one: it stays as it is.
        let shown = pages[4].clone();
        let content = shown.to_vec();
        let old = std::mem::replace(&mut pages[4], Page::zeroed());
        assert!(new.clone().in_place_of(old).same(&new));
        assert!(shown.as_slice() == content);
        // No neighbours came with this one: a copy would gain nothing.
        assert!(new.clone().in_place_of(Page::zeroed()).same(&new));
        // Pages rewritten in whole blocks have neighbours as good as the old ones.
        let mut filling = Filling::new(16);
        filling.put(&pattern(16 * SECTOR_BYTES));
        let block = filling.finish().unwrap();
        let old = std::mem::replace(&mut pages[5], Page::zeroed());
        assert!(block[5].clone().in_place_of(old).same(&block[5]));
    }

    #[test]
    fn a_page_lives_as_long_as_its_last_owner() {
        let page = Page::with_prefix(b"here");
        let others: Vec<Page> = (0..100).map(|_| page.clone()).collect();
        assert!(others.iter().all(|other| other.same(&page)));
        drop(page);
        let threads: Vec<_> = others
            .into_iter()
            .map(|page| std::thread::spawn(move || assert_eq!(&page[..5], b"here\0")))
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
