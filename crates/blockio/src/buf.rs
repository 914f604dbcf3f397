//! Memory for I/O: pages of 4 KiB, aligned to 4 KiB, immutable once shared.
//!
//! Invariants:
//! - A [`PageMut`] has one owner; [`Page`] is shared and its bytes never change again. What was
//!   handed to a disk or covered by a checksum therefore cannot change under it.
//! - Fresh pages are zeroed: no memory of one client reaches another, or a disk.
#![expect(unsafe_code, reason = "access to a page's frame; reviewed here, used nowhere else")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::SECTOR_BYTES;
use crate::page_pool::{self, Frame};

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

    /// A page with any old content: only for who fills all of it before anybody can see it.
    pub(crate) fn unfilled() -> Self {
        PageMut { bytes: page_pool::take() }
    }

    /// A page that starts with `prefix`, zero after it. What does not fit is left out.
    pub fn with_prefix(prefix: &[u8]) -> Self {
        let mut page = PageMut::unfilled();
        let length = prefix.len().min(SECTOR_BYTES);
        let (head, tail) = page.split_at_mut(length);
        let (prefix, _) = prefix.split_at(length);
        head.copy_from_slice(prefix);
        tail.fill(0);
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
