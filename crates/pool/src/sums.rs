//! Pages and their checksums.

use std::borrow::Borrow;

use aquifer_blockio::Page;
use aquifer_ondisk::codec::checksum64;

/// Whether these are the pages with these checksums, neither more nor fewer.
pub(crate) fn are_pages(pages: &[Page], sums: impl IntoIterator<Item = impl Borrow<u64>>) -> bool {
    let sums = sums.into_iter().map(|sum| *sum.borrow());
    pages.iter().map(|page| checksum64(page.as_slice())).eq(sums)
}
