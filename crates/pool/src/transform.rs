//! Compression of extents. A compressed extent must save an eighth.

use std::cell::RefCell;

use aquifer_blockio::buf::{bytes_of, pages_of};
use aquifer_blockio::{Page, SECTOR_BYTES};
use aquifer_ondisk::extent::Compression;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

/// Zstandard's level: at the fast end, since its user wants a good ratio but not at any price.
const ZSTD_LEVEL: i32 = 3;

thread_local! {
    /// Table and output of LZ4, kept by each thread. Allocating and zeroing them for each extent
    /// took a seventh of the time of finding that it is incompressible.
    static LZ4: RefCell<(CompressTable, Vec<u8>)> = RefCell::default();
}

/// Compresses 2 to 8 pages; `None` if that does not save an eighth of the sectors.
pub fn compress(algorithm: Compression, pages: &[Page]) -> Option<Vec<u8>> {
    // At least one sector less, and at most 7/8 of them.
    let sectors_max = (pages.len() * 7 / 8).min(pages.len().checked_sub(1)?);
    if sectors_max == 0 {
        return None;
    }
    let bytes_max = sectors_max * SECTOR_BYTES;
    let bytes = bytes_of(pages);
    match algorithm {
        Compression::Lz4 => LZ4.with_borrow_mut(|(table, output)| {
            let room = get_maximum_output_size(bytes.len());
            output.resize(output.len().max(room), 0);
            let taken = compress_into_with_table(&bytes, output, table).ok()?;
            output.get(..taken).filter(|out| out.len() <= bytes_max).map(<[u8]>::to_vec)
        }),
        Compression::Zstd => {
            let out = zstd::bulk::compress(&bytes, ZSTD_LEVEL).ok()?;
            (out.len() <= bytes_max).then_some(out)
        }
    }
}

/// Decompresses to exactly `pages` pages; `None` if the bytes do not decompress to that.
pub fn decompress(algorithm: Compression, bytes: &[u8], pages: usize) -> Option<Vec<Page>> {
    let size = pages * SECTOR_BYTES;
    let out = match algorithm {
        Compression::Lz4 => lz4_flex::block::decompress(bytes, size).ok()?,
        Compression::Zstd => zstd::bulk::decompress(bytes, size).ok()?,
    };
    (out.len() == size).then(|| pages_of(&out))
}

#[cfg(test)]
mod tests {
    use aquifer_sim::Rng;

    use super::*;

    /// Pages of random bytes, except for the first `same` bytes of each, which are equal.
    fn pages(count: usize, same: usize, seed: u64) -> Vec<Page> {
        let mut bytes = vec![7; count * SECTOR_BYTES];
        let mut rng = Rng::stream(seed, "pages");
        bytes.chunks_mut(SECTOR_BYTES).for_each(|page| rng.fill(&mut page[same..]));
        pages_of(&bytes)
    }

    #[test]
    fn what_is_compressed_comes_back_whatever_was_compressed_before_it() {
        for algorithm in [Compression::Lz4, Compression::Zstd] {
            // Long and short extents, with large, small and no savings, in turn on one thread.
            for (seed, count) in [8, 2, 5, 8, 3, 2, 8].into_iter().enumerate() {
                for same in [4000, 0, 3000, 300] {
                    let pages = pages(count, same, seed as u64 + 1);
                    let Some(bytes) = compress(algorithm, &pages) else {
                        assert!(same < 3000, "{count} pages with {same} bytes alike");
                        continue;
                    };
                    assert!(same > 300 && bytes.len() <= count * SECTOR_BYTES * 7 / 8);
                    let back = decompress(algorithm, &bytes, count).unwrap();
                    assert_eq!(bytes_of(&back), bytes_of(&pages));
                    assert!(decompress(algorithm, &bytes, count + 1).is_none());
                }
            }
        }
    }

    #[test]
    fn a_page_alone_is_not_compressed() {
        assert!(compress(Compression::Lz4, &pages(1, 4000, 1)).is_none());
        assert!(compress(Compression::Lz4, &[]).is_none());
    }
}
