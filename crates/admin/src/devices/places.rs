//! Places to search for disks.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::{DISK_BYTES_MIN, Identity};

/// The usual places: `also`, block devices by their persistent names, then by the kernel's names.
pub(super) fn usual(also: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut paths = entries(Path::new("/dev/disk/by-id"));
    let kernel = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        KERNEL_NAMES.iter().any(|start| name.starts_with(start))
    };
    paths.extend(entries(Path::new("/dev")).into_iter().filter(kernel));
    let block =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
    paths.retain(block);
    let also = also.into_iter().filter(|path| path.exists());
    once_each(also.chain(paths).collect())
}

/// The disks at the given places. A directory stands for the devices and image files in it that are
/// large enough.
pub(super) fn named(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for place in places {
        if !place.is_dir() {
            paths.push(place.clone());
            continue;
        }
        let fits = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|meta| {
                meta.file_type().is_block_device() || meta.is_file() && meta.len() >= DISK_BYTES_MIN
            })
        };
        paths.extend(entries(place).into_iter().filter(fits));
    }
    once_each(paths)
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Each disk once, under its first name. A path that cannot be read stays: opening it shows the
/// reason.
fn once_each(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = std::collections::HashSet::new();
    let new = |path: &PathBuf| Identity::of(path).map_or(true, |identity| seen.insert(identity));
    paths.into_iter().filter(new).collect()
}

const KERNEL_NAMES: [&str; 6] = ["sd", "nvme", "vd", "xvd", "loop", "mmcblk"];
