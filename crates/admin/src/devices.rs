//! Disks: from their names to open ones that no one else uses.
//!
//! # Invariants
//! - A disk under two names is one disk. Its identity is the inode of an image file, the device
//!   number of a block device, and for a loop device the file behind it.
//! - A search writes nothing. It opens disks for inspection only, so it disturbs no other user.

mod answers;
#[cfg(debug_assertions)]
mod inject;
mod places;
mod search;
mod take;

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aquifer_blockio::{DiskNumbers, FileDisk};
use aquifer_ondisk::layout::{LEAF_SEGMENTS_MIN, leaf_segments};
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_pool::create::NamedDisk;

pub(crate) use answers::{Silent, unanswering_error, while_they_answer};
#[cfg(debug_assertions)]
pub(crate) use inject::Faults;
pub use search::disks_of_pool;
pub(crate) use search::{
    Claimed, Search, Sought, Unanswered, all_paths, claim, found_pool, is_complete, is_importable,
    older_copies, search, search_answering, search_patiently,
};
pub(crate) use take::{TakeRequest, Taken, Taker, open_again, resolve, take};

#[cfg(test)]
mod tests;

/// A disk that we hold exclusively.
#[derive(Debug, Clone)]
pub(crate) struct OpenDisk {
    /// The path that was opened.
    pub path: String,
    pub file: Arc<FileDisk>,
}

impl OpenDisk {
    /// In the engine's form.
    pub fn named(&self) -> NamedDisk {
        let (path, file) = (self.path.clone(), self.file.clone());
        #[cfg(debug_assertions)]
        let disk = inject::Injected::before(file);
        #[cfg(not(debug_assertions))]
        let disk = file;
        NamedDisk { path, disk }
    }
}

/// The identity of a disk, independent of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// An image file: its file system and inode.
    File(u64, u64),
    /// A block device: its number.
    Device(u64),
}

impl Identity {
    /// The identity of the disk at `path`; follows symbolic links.
    pub fn of(path: &Path) -> io::Result<Identity> {
        let meta = fs::metadata(path)?;
        Ok(match meta.file_type().is_block_device() {
            false => Identity::File(meta.dev(), meta.ino()),
            true => Identity::of_device(meta.rdev()),
        })
    }

    /// The identity of an open disk.
    pub fn of_opened(disk: &FileDisk) -> io::Result<Identity> {
        Ok(match disk.numbers()? {
            DiskNumbers::Image { device, inode } => Identity::File(device, inode),
            DiskNumbers::Block(number) => Identity::of_device(number),
        })
    }

    fn of_device(number: u64) -> Identity {
        // A loop device counts as the file behind it, if that file still has a path.
        let behind = loop_file(number).and_then(|file| fs::metadata(file).ok());
        match behind {
            Some(file) => Identity::File(file.dev(), file.ino()),
            None => Identity::Device(number),
        }
    }
}

/// The file behind a loop device.
fn loop_file(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/dev/block/{major}:{minor}/loop/backing_file");
    let text = fs::read_to_string(path).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

/// The loop device that an image file is attached to.
fn loop_device_of(file: Identity) -> Option<PathBuf> {
    let mut devices = fs::read_dir("/sys/block").ok()?.flatten();
    let device = devices.find(|entry| {
        let text = fs::read_to_string(entry.path().join("loop/backing_file"));
        let path = text.ok().map(|text| PathBuf::from(text.trim_end_matches('\n')));
        path.is_some_and(|path| fs::metadata(path).is_ok_and(|meta| is_file(&meta, file)))
    })?;
    Some(Path::new("/dev").join(device.file_name()))
}

fn is_file(meta: &fs::Metadata, file: Identity) -> bool {
    Identity::File(meta.dev(), meta.ino()) == file
}

/// Whether a disk of this many sectors can be part of a pool.
pub(crate) fn large_enough(sectors: u64) -> bool {
    leaf_segments(sectors) >= LEAF_SEGMENTS_MIN
}

/// The smallest disk, in bytes.
pub(crate) const DISK_BYTES_MIN: u64 = LEAF_SEGMENTS_MIN * SEGMENT_SECTORS * SECTOR;

/// A sector's bytes as the API counts them.
pub(crate) const SECTOR: u64 = 4096;
