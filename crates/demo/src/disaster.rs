//! Damage to a disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use aquifer_conformance::{Error, Result, pattern};

/// Overwrites a quarter of the first GiB of a disk with garbage, 1 MiB in every 4, after the labels
/// at its front. The pieces alternate between those that readers ask this side of the mirror for
/// first and those that they ask the other side for. Returns the number of bytes.
pub fn rot(disk: &Path) -> Result<u64> {
    let file = File::options().write(true).open(disk).map_err(Error::at("open", disk))?;
    let mut garbage = vec![0; PIECE_BYTES];
    let piece = u64::try_from(PIECE_BYTES).unwrap_or(u64::MAX);
    let places = (4 * piece..1 << 30).step_by(4 * PIECE_BYTES);
    let mut bytes = 0;
    for (turn, place) in (0..).zip(places) {
        let place = place + turn % 2 * piece;
        pattern::fill(place, 0, &mut garbage);
        file.write_all_at(&garbage, place).map_err(Error::at("write", disk))?;
        bytes += piece;
    }
    file.sync_all().map_err(Error::at("flush", disk))?;
    Ok(bytes)
}

const PIECE_BYTES: usize = 1 << 20;
