//! Memory for I/O: pages of 4 KiB, aligned to 4 KiB, immutable once shared.
//!
//! Invariants:
//! - A [`PageMut`] has one owner; [`Page`] is shared and its bytes never change again. What was
//!   handed to a disk or covered by a checksum therefore cannot change under it.
//! - Fresh pages are zeroed: no memory of one client reaches another, or a disk.
#![expect(
    unsafe_code,
    reason = "page-aligned allocation; reviewed here, used nowhere else"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::SECTOR_BYTES;

const LAYOUT: Layout = match Layout::from_size_align(SECTOR_BYTES, SECTOR_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a page has a valid layout"),
};

/// One page with a single owner: may be written.
pub struct PageMut {
    bytes: NonNull<[u8; SECTOR_BYTES]>,
}

// SAFETY: a `PageMut` owns its allocation alone, as a `Box<[u8; 4096]>` would.
unsafe impl Send for PageMut {}
// SAFETY: shared references only give shared access to plain bytes.
unsafe impl Sync for PageMut {}

impl PageMut {
    /// A zeroed page.
    pub fn zeroed() -> Self {
        // SAFETY: LAYOUT has a non-zero size.
        let pointer = unsafe { alloc_zeroed(LAYOUT) };
        match NonNull::new(pointer.cast::<[u8; SECTOR_BYTES]>()) {
            Some(bytes) => PageMut { bytes },
            None => handle_alloc_error(LAYOUT),
        }
    }

    /// A page that starts with `prefix`, zero after it. What does not fit is left out.
    pub fn with_prefix(prefix: &[u8]) -> Self {
        let mut page = PageMut::zeroed();
        for (to, from) in page.iter_mut().zip(prefix) {
            *to = *from;
        }
        page
    }

    /// Where the page lies, for the engines that hand it to the kernel. The page stays there until
    /// this value (or the `Page` made of it) is dropped, wherever the value itself is moved.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.bytes.cast()
    }

    /// Ends the writing: the page can now be shared.
    pub fn freeze(self) -> Page {
        Page(Arc::new(self))
    }
}

impl Drop for PageMut {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with LAYOUT and owned by this value alone.
        unsafe { dealloc(self.bytes.as_ptr().cast::<u8>(), LAYOUT) }
    }
}

impl Deref for PageMut {
    type Target = [u8; SECTOR_BYTES];
    fn deref(&self) -> &[u8; SECTOR_BYTES] {
        // SAFETY: valid and initialised (zeroed) for the life of this value.
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

/// One immutable, shared page.
#[derive(Clone)]
pub struct Page(Arc<PageMut>);

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
        let (words, rest) = self.0.as_chunks::<16>();
        debug_assert!(rest.is_empty());
        words.iter().all(|word| u128::from_ne_bytes(*word) == 0)
    }

    /// Where the page lies; see [`PageMut::address`]. Nobody may write there.
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.0.address()
    }

    /// Whether two handles share one allocation.
    pub fn same(&self, other: &Page) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Page {
    type Target = [u8; SECTOR_BYTES];
    fn deref(&self) -> &[u8; SECTOR_BYTES] {
        &self.0
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

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
