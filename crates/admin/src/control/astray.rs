//! Image files that were removed under a pool in service, or moved, or whose file system went
//! read-only: told at once, and not by the next start, which finds no pool there.
//!
//! Invariant: no request and no act waits for a file system here. Each pool's files are looked at
//! in a thread of its own, and not again before that look is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aquifer_api::{Problem, Severity, codes};
use aquifer_blockio::{DiskNumbers, Standing};
use parking_lot::Mutex;

use super::disks::asked;
use super::serving::Serving;

/// The files of a pool that are not what they should be, as of the newest look.
#[derive(Debug, Default)]
pub(super) struct Astray {
    found: Mutex<Vec<(String, Standing)>>,
    is_looked_at: AtomicBool,
}

impl Serving {
    /// Begins to look at its image files, unless that goes on. Waits for nothing.
    pub fn look_at_files(&self) {
        let astray = Arc::clone(&self.astray);
        if astray.is_looked_at.swap(true, Ordering::Relaxed) {
            return;
        }
        let (disks, pool) = (asked(self), self.name().to_string());
        tokio::task::spawn_blocking(move || {
            let files = disks.iter().filter_map(|disk| Some((&disk.path, disk.file.upgrade()?)));
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let standing = files.filter_map(|(path, file)| {
                // What cannot be asked now is asked again.
                let standing = file.standing().ok()?;
                let is_in_place = standing == Standing::InPlace;
                match is_in_place && file.numbers().is_ok_and(|of| is_given_up(&mounts, of)) {
                    true => Some((path.clone(), Standing::ReadOnly)),
                    false => Some((path.clone(), standing)),
                }
            });
            let found = standing.filter(|(_, standing)| *standing != Standing::InPlace).collect();
            astray.note(&pool, found);
            astray.is_looked_at.store(false, Ordering::Relaxed);
        });
    }

    /// Image files that will not be there, or cannot be written.
    pub(super) fn files_astray(&self) -> Vec<Problem> {
        problems(self.name(), &self.astray.found.lock())
    }
}

impl Astray {
    fn note(&self, pool: &str, found: Vec<(String, Standing)>) {
        let mut known = self.found.lock();
        for (path, standing) in found.iter().filter(|of| !known.contains(of)) {
            let (class, what) = match standing {
                Standing::ReadOnly => ("disk.read_only", "the file system of a disk is read-only"),
                _ => ("disk.removed", "the image file of a disk was removed or moved"),
            };
            tracing::error!(class, %pool, disk = %path, "{what}");
        }
        for (path, _) in known.iter().filter(|(path, _)| !found.iter().any(|of| of.0 == *path)) {
            tracing::info!(class = "disk.in_place", %pool, disk = %path, "it is as it should be");
        }
        *known = found;
    }
}

/// Whether the kernel lets nobody write to the file system of an image any more, by its list of
/// mounts: after an error, newer kernels say that there alone.
fn is_given_up(mounts: &str, numbers: DiskNumbers) -> bool {
    let DiskNumbers::Image { device, .. } = numbers else { return false };
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let of_it = mounts.lines().filter(|line| line.split(' ').nth(2) == Some(device.as_str()));
    // Behind the last field are options of the file system itself.
    let options = of_it.filter_map(|line| line.rsplit(' ').next());
    options.flat_map(|options| options.split(',')).any(|of| matches!(of, "ro" | "emergency_ro"))
}

fn problems(pool: &str, found: &[(String, Standing)]) -> Vec<Problem> {
    let of = |wanted: Standing| {
        let paths = found.iter().filter(|(_, standing)| *standing == wanted);
        paths.map(|(path, _)| path.as_str()).collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    let (removed, elsewhere) = (of(Standing::Removed), of(Standing::Elsewhere));
    if let Some(first) = removed.first() {
        let status = format!(
            "Image files of the pool were removed while it is in service: {}. The daemon still has \
             them open. When it stops, or the pool is exported, they are gone.",
            removed.join(", ")
        );
        let action = format!(
            "Do not stop the daemon. Put another disk in the place of each: `aquifer pool replace \
             {pool} {first} NEW_DISK`. Or stop all clients and copy the file back from \
             /proc/$(pidof aquifer)/fd."
        );
        all.push(Problem::new(codes::DISK_REMOVED, Severity::Error, status, Some(action)));
    }
    if let Some(first) = elsewhere.first() {
        let status = format!(
            "Image files of the pool are not at their paths any more: {}. The daemon still has \
             them open. The next start does not find them there.",
            elsewhere.join(", ")
        );
        let action = format!(
            "Move them back, {first} first. If they stay elsewhere, name their directory at the \
             next import: `aquifer pool import -d DIRECTORY {pool}`."
        );
        all.push(Problem::new(codes::DISK_REMOVED, Severity::Error, status, Some(action)));
    }
    let read_only = of(Standing::ReadOnly);
    if !read_only.is_empty() {
        let status = format!(
            "The file systems of these disks are read-only: {}. The pool cannot write there.",
            read_only.join(", ")
        );
        let action = "See why in the kernel's log (`dmesg`): often the disk below has failed. Mend \
                      and remount it, then type `aquifer pool clear POOL`.";
        let action = action.replace("POOL", pool);
        all.push(Problem::new(codes::DISK_READ_ONLY, Severity::Error, status, Some(action)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_was_given_up_is_known_by_its_options() {
        let mounts = "31 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
                      40 31 7:0 / /images rw - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro\n\
                      41 31 7:1 / /mnt rw - xfs /dev/loop1 ro,attr2\n";
        let of = |major, minor| DiskNumbers::Image {
            device: rustix::fs::makedev(major, minor),
            inode: 12,
        };
        let given_up = [(8, 1), (7, 0), (7, 1), (7, 2)].map(|(a, b)| is_given_up(mounts, of(a, b)));
        assert_eq!(given_up, [false, true, true, false]);
        assert!(!is_given_up(mounts, DiskNumbers::Block(rustix::fs::makedev(7, 0))));
    }

    #[test]
    fn each_kind_is_one_problem_with_all_its_files() {
        let of = |path: &str, standing| (path.to_string(), standing);
        assert_eq!(problems("tank", &[]), []);
        let found = [
            of("/a", Standing::Removed),
            of("/b", Standing::ReadOnly),
            of("/c", Standing::Removed),
            of("/d", Standing::Elsewhere),
        ];
        let all = problems("tank", &found);
        assert_eq!(all.len(), 3);
        assert!(all[0].status.contains("/a, /c."), "{}", all[0].status);
        assert!(all[0].action.as_deref().unwrap().contains("pool replace tank /a"));
        assert!(all[2].action.as_deref().unwrap().contains("pool clear tank"));
    }
}
