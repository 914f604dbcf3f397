//! Compression of extents. A compressed extent must save an eighth.

use aquifer_blockio::buf::{bytes_of, pages_of};
use aquifer_blockio::{Page, SECTOR_BYTES};
use aquifer_ondisk::extent::Compression;

/// Zstandard's level: the fast end, as its user asked for ratio but not for days.
const ZSTD_LEVEL: i32 = 3;

/// Compresses 2 to 8 pages; `None` if that does not save an eighth of the sectors.
pub fn compress(algorithm: Compression, pages: &[Page]) -> Option<Vec<u8>> {
    let bytes = bytes_of(pages);
    // At least one sector less, and at most 7/8 of them.
    let sectors_max = (pages.len() * 7 / 8).min(pages.len().checked_sub(1)?);
    if sectors_max == 0 {
        return None;
    }
    let out = match algorithm {
        Compression::Lz4 => lz4_flex::block::compress(&bytes),
        Compression::Zstd => zstd::bulk::compress(&bytes, ZSTD_LEVEL).ok()?,
    };
    (out.len() <= sectors_max * SECTOR_BYTES).then_some(out)
}

/// Decompresses to exactly `pages` pages; `None` if the bytes are not that.
pub fn decompress(algorithm: Compression, bytes: &[u8], pages: usize) -> Option<Vec<Page>> {
    let size = pages * SECTOR_BYTES;
    let out = match algorithm {
        Compression::Lz4 => lz4_flex::block::decompress(bytes, size).ok()?,
        Compression::Zstd => zstd::bulk::decompress(bytes, size).ok()?,
    };
    (out.len() == size).then(|| pages_of(&out))
}
