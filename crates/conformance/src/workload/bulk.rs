//! A large file of seeded content: written in order, verified later, perhaps by another machine.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::drop_cache;
use crate::pattern;
use crate::{Error, Result};

/// Writes `bytes` of the content of `seed` to `path`, which is made or truncated, and syncs it.
///
/// # Errors
/// [`Error::Io`].
pub fn fill(path: &Path, seed: u64, bytes: u64) -> Result<()> {
    let file = File::create(path).map_err(Error::at("create", path))?;
    blocks(bytes, |at, block| {
        pattern::fill(seed, at, block);
        file.write_all_at(block, at).map_err(Error::at("write", path))
    })?;
    file.sync_all().map_err(Error::at("fsync", path))
}

/// As [`fill`], but calls `hold` when everything is written and nothing is synced. On an NFS mount
/// with `write=eager` the server has all of it then, UNSTABLE and not committed.
///
/// # Errors
/// [`Error::Io`].
pub fn fill_and_hold(path: &Path, seed: u64, bytes: u64, hold: impl FnOnce()) -> Result<()> {
    let file = File::create(path).map_err(Error::at("create", path))?;
    blocks(bytes, |at, block| {
        pattern::fill(seed, at, block);
        file.write_all_at(block, at).map_err(Error::at("write", path))
    })?;
    hold();
    file.sync_all().map_err(Error::at("fsync", path))
}

/// Verifies that `path` holds exactly `bytes` of the content of `seed`, as read from the server.
///
/// # Errors
/// [`Error::Mismatch`] with the first wrong offset; [`Error::Io`].
pub fn verify(path: &Path, seed: u64, bytes: u64) -> Result<()> {
    let file = File::open(path).map_err(Error::at("open", path))?;
    let size = file.metadata().map_err(Error::at("stat", path))?.len();
    if size != bytes {
        let what = format!("{}: {size} bytes, expected {bytes}", path.display());
        return Err(Error::Mismatch(what));
    }
    drop_cache(&file)?;
    blocks(bytes, |at, block| {
        file.read_exact_at(block, at).map_err(Error::at("read", path))?;
        match pattern::first_difference(seed, at, block) {
            None => Ok(()),
            Some(offset) => {
                Err(Error::Mismatch(format!("{}: wrong at offset {offset}", path.display())))
            }
        }
    })
}

fn blocks(bytes: u64, mut each: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
        each(at, buffer.get_mut(..length).unwrap_or_default())?;
        at += u64::try_from(length).unwrap_or(u64::MAX);
    }
    Ok(())
}

const BLOCK_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_rig::work::WorkDir;

    #[test]
    fn verify_accepts_what_fill_wrote_and_nothing_else() {
        let scratch = WorkDir::open().unwrap().scratch("bulk").unwrap();
        let path = scratch.join("file");
        let bytes = (3 << 20) + 4097;
        fill(&path, 5, bytes).unwrap();
        verify(&path, 5, bytes).unwrap();
        assert!(matches!(verify(&path, 6, bytes), Err(Error::Mismatch(_))));
        assert!(matches!(verify(&path, 5, bytes - 1), Err(Error::Mismatch(_))));
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0; 16], 2 << 20).unwrap();
        let error = verify(&path, 5, bytes).unwrap_err().to_string();
        assert!(error.contains("offset 2097152"), "{error}");
    }

    #[test]
    fn a_held_file_is_whole_when_it_is_held() {
        let scratch = WorkDir::open().unwrap().scratch("bulk-hold").unwrap();
        let path = scratch.join("file");
        let mut held = None;
        fill_and_hold(&path, 5, 70_000, || held = Some(verify(&path, 5, 70_000))).unwrap();
        held.unwrap().unwrap();
    }
}
