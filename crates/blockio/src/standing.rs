//! Whether an opened image file is still what its path names, and may be written.
//!
//! An open file stays readable and writable when its name is removed. So nothing fails until the
//! file is closed, and then it is gone. This tells of it before.

use std::io;
use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;

use crate::backing::BackingKind;
use crate::file::FileDisk;
use crate::open::DiskNumbers;

/// Fate of an opened image file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Its path names it, and it can be written.
    InPlace,
    /// Its file system is read-only.
    ReadOnly,
    /// It has a name, but its path names another file or nothing.
    Elsewhere,
    /// It has no name: when it is closed, it is gone.
    Removed,
}

impl FileDisk {
    /// Finds out what has become of the image file. A block device counts as in place: it answers
    /// for itself. Blocks the thread, as long as the file system does.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn standing(&self) -> io::Result<Standing> {
        if self.kind() != BackingKind::Image {
            return Ok(Standing::InPlace);
        }
        let (stat, name) = (self.stat()?, self.name_at_opening());
        if stat.st_nlink == 0 {
            return Ok(Standing::Removed);
        }
        let named = match rustix::fs::stat(Path::new(name)) {
            Ok(named) => Some(DiskNumbers::of(&named)),
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(error) => return Err(error.into()),
        };
        if named != Some(DiskNumbers::of(&stat)) {
            return Ok(Standing::Elsewhere);
        }
        let flags = self.file_system()?.f_flag;
        match flags.contains(StatVfsMountFlags::RDONLY) {
            true => Ok(Standing::ReadOnly),
            false => Ok(Standing::InPlace),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::open::OpenOptions;

    struct Directory(PathBuf);

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_that_its_path_names_no_more_is_told_from_one_without_a_name() {
        let name = format!("aquifer-standing-{}", std::process::id());
        let directory = Directory(std::env::temp_dir().join(name));
        fs::create_dir_all(&directory.0).unwrap();
        let (path, other) = (directory.0.join("a"), directory.0.join("b"));
        let image = fs::File::create(&path).unwrap();
        image.set_len(64 << 20).unwrap();
        let disk = FileDisk::open(&path, OpenOptions::exclusive()).unwrap();
        assert_eq!(disk.standing().unwrap(), Standing::InPlace);
        fs::rename(&path, &other).unwrap();
        assert_eq!(disk.standing().unwrap(), Standing::Elsewhere);
        fs::write(&path, "another").unwrap();
        assert_eq!(disk.standing().unwrap(), Standing::Elsewhere);
        fs::rename(&other, &path).unwrap();
        assert_eq!(disk.standing().unwrap(), Standing::InPlace);
        fs::remove_file(&path).unwrap();
        assert_eq!(disk.standing().unwrap(), Standing::Removed);
    }
}
