//! A sparse file larger than any disk of the test: sizes and offsets over 32 and 41 bits.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use aquifer_rig::random::Random;

use super::drop_cache;
use crate::pattern;
use crate::{Error, Result};

/// Makes `path` `size` bytes long, with a few blocks of seeded content, the last one at its end.
/// Verifies content, holes and used space, and that the part cut off by a truncate reads as zeros.
///
/// # Errors
/// [`Error::Mismatch`]; [`Error::Io`], for instance if the server cannot store such a file.
pub fn run(path: &Path, seed: u64, size: u64) -> Result<()> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
    let file = file.map_err(Error::at("open", path))?;
    file.set_len(size).map_err(Error::io(format!("truncate to {size}")))?;
    let places = places(seed, size);
    for at in &places {
        let mut block = vec![0; BLOCK];
        pattern::fill(seed, *at, &mut block);
        file.write_all_at(&block, *at).map_err(Error::io(format!("write at {at}")))?;
    }
    check(&file, seed, size, &places, size)?;
    // Truncate in the middle, then extend again: the second half must be gone for good.
    let half = size / 2;
    file.set_len(half).map_err(Error::io(format!("truncate to {half}")))?;
    file.set_len(size).map_err(Error::io(format!("truncate to {size}")))?;
    check(&file, seed, size, &places, half)?;
    drop(file);
    std::fs::remove_file(path).map_err(Error::at("remove", path))
}

/// Blocks at `places`, and their neighbours, have their content below `cut`, and zeros from there
/// on.
fn check(file: &File, seed: u64, size: u64, places: &[u64], cut: u64) -> Result<()> {
    drop_cache(file)?;
    let metadata = file.metadata().map_err(Error::io("fstat"))?;
    if metadata.len() != size {
        return Err(Error::Mismatch(format!("size {}, expected {size}", metadata.len())));
    }
    let used = metadata.blocks().saturating_mul(512);
    if used > USED_BYTES_MAX {
        return Err(Error::Mismatch(format!("{used} bytes used by a few blocks")));
    }
    for at in places {
        let mut expected = vec![0; BLOCK];
        pattern::fill(seed, *at, &mut expected);
        let kept = usize::try_from(cut.saturating_sub(*at)).unwrap_or(BLOCK).min(BLOCK);
        expected.get_mut(kept..).unwrap_or_default().fill(0);
        compare(file, *at, &expected)?;
        for neighbour in [at.checked_sub(STRIDE), at.checked_add(STRIDE)].into_iter().flatten() {
            if neighbour + STRIDE <= size && !places.iter().any(|p| p.abs_diff(neighbour) < STRIDE)
            {
                compare(file, neighbour, &vec![0; BLOCK])?;
            }
        }
    }
    Ok(())
}

fn compare(file: &File, at: u64, expected: &[u8]) -> Result<()> {
    let mut found = vec![0; expected.len()];
    file.read_exact_at(&mut found, at).map_err(Error::io(format!("read at {at}")))?;
    if found == expected {
        return Ok(());
    }
    let holds_zeros = found.iter().all(|byte| *byte == 0);
    Err(Error::Mismatch(format!("wrong content at {at} (all zeros: {holds_zeros})")))
}

/// Start, end, both sides of the powers of two at which offsets could be truncated, and random
/// places.
fn places(seed: u64, size: u64) -> Vec<u64> {
    let last = size.saturating_sub(STRIDE);
    let mut random = Random::new(seed);
    let powers = [31, 32, 33, 40, 41, 42].map(|bits| (1_u64 << bits) - STRIDE / 2);
    let randoms = (0..8).map(|_| random.below(last));
    let mut places: Vec<u64> = powers.into_iter().chain(randoms).chain([0, size / 2]).collect();
    places.sort_unstable();
    places.retain(|at| *at < last.saturating_sub(STRIDE));
    places.dedup_by(|b, a| *b < *a + 2 * STRIDE);
    places.push(size.saturating_sub(u64::try_from(BLOCK).unwrap_or(STRIDE)));
    places
}

/// Length of a piece of content; odd, so that it ends within a page.
const BLOCK: usize = 10_001;
/// Pieces do not overlap at this distance.
const STRIDE: u64 = 1 << 20;
/// A file system may use large blocks, but not the whole size.
const USED_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_rig::work::WorkDir;

    #[test]
    fn passes_on_a_local_file_system_and_finds_a_wrapped_offset() {
        let scratch = WorkDir::open().unwrap().scratch("sparse").unwrap();
        let path = scratch.join("file");
        run(&path, 1, 5 << 40).unwrap();
        assert!(!path.exists());
        // The behaviour of a server that truncates offsets to 32 bits: two places are one.
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(5 << 40).unwrap();
        let places = [0, 1 << 32];
        for at in places {
            let mut block = vec![0; BLOCK];
            pattern::fill(1, at, &mut block);
            file.write_all_at(&block, at & 0xffff_ffff).unwrap();
        }
        assert!(matches!(check(&file, 1, 5 << 40, &places, 5 << 40), Err(Error::Mismatch(_))));
    }

    #[test]
    fn places_do_not_overlap_and_reach_both_ends() {
        let places = places(3, 5 << 40);
        assert_eq!(places.first(), Some(&0));
        assert_eq!(places.last(), Some(&((5 << 40) - 10_001)));
        assert!(places.windows(2).all(|pair| pair[0] + STRIDE < pair[1]), "{places:?}");
    }
}
