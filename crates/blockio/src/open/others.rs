//! Whether other users can change what is found at a path.
//!
//! A disk is opened by its path, again at each start. A user who can write a directory on the way
//! can put another file or link there: last week's copy of the pool, or another disk of the
//! machine.
//!
//! Invariant: every directory and link on the way, and an image file itself, belongs to root or to
//! this process's user, and no other user or group may exchange it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::{OpenError, io_error, open_error};

/// Refuses a path on which other users could exchange the file.
///
/// # Errors
/// [`OpenError::Exchangeable`], and errors of reading the path.
pub(super) fn check(path: &Path) -> Result<(), OpenError> {
    let whole = std::path::absolute(path).map_err(|error| io_error(path, error))?;
    let refuse = |at: &Path, why: &'static str| {
        Err(OpenError::Exchangeable { path: path.into(), at: at.into(), why })
    };
    let mut ahead = steps(&whole);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(step) = ahead.pop() {
        match step {
            Step::Root => at = PathBuf::from("/"),
            Step::Up => {
                at.pop();
            }
            Step::Down(name) => at.push(name),
        }
        let stat = rustix::fs::lstat(&at).map_err(|error| open_error(path, error))?;
        if let Some(why) = exchangeable(&stat) {
            return refuse(&at, why);
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            links += 1;
            if links > LINKS_MAX {
                return Err(open_error(path, Errno::LOOP));
            }
            let target = rustix::fs::readlink(&at, Vec::new());
            let target = target.map_err(|error| open_error(path, error))?;
            at.pop();
            ahead.extend(steps(Path::new(&OsString::from_vec(target.into_bytes()))));
        }
    }
    Ok(())
}

/// A step on the way.
enum Step {
    Root,
    Up,
    Down(OsString),
}

/// The steps of a path, the last one first.
fn steps(path: &Path) -> Vec<Step> {
    let step = |component: Component<'_>| match component {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(step).collect()
}

/// Why other users could exchange this file, or one below it. `None` if they cannot.
fn exchangeable(stat: &Stat) -> Option<&'static str> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::BlockDevice {
        // Users who may write the device control its content, whatever the path.
        return None;
    }
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&stat.st_uid) {
        return Some("belongs to another user");
    }
    if kind == FileType::Symlink || kind == FileType::Directory && stat.st_mode & STICKY != 0 {
        // In a sticky directory the owner of each entry counts.
        return None;
    }
    let own_group = rustix::process::getegid().as_raw();
    let by_group = stat.st_mode & GROUP_WRITES != 0 && ![0, own_group].contains(&stat.st_gid);
    let by_others = stat.st_mode & OTHERS_WRITE != 0;
    (by_group || by_others).then_some("may be written by others")
}

const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// As many as Linux follows.
const LINKS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn why(path: &Path) -> Option<String> {
        check(path).err().map(|error| error.to_string())
    }

    #[test]
    fn each_step_of_the_way_is_ours() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().canonicalize().unwrap();
        let (inner, image) = (at.join("inner"), at.join("inner/image"));
        fs::create_dir(&inner).unwrap();
        fs::write(&image, "").unwrap();
        set(&image, 0o600);
        assert_eq!(why(&image), None);
        for (path, wrong, right) in [(&at, 0o777, 0o700), (&inner, 0o757, 0o755)] {
            set(path, wrong);
            let refused = why(&image).unwrap();
            assert!(refused.contains(path.to_str().unwrap()), "{refused}");
            assert!(refused.contains("may be written by others"), "{refused}");
            set(path, 0o1777);
            assert_eq!(why(&image), None, "a sticky directory");
            set(path, right);
        }
        set(&image, 0o606);
        assert!(why(&image).unwrap().contains("may be written by others"));
        set(&image, 0o600);
        if !rustix::process::geteuid().is_root() {
            return;
        }
        for path in [&at, &inner, &image] {
            chown(path, Some(7), None).unwrap();
            assert!(why(&image).unwrap().contains("belongs to another user"));
            chown(path, Some(0), None).unwrap();
        }
        chown(&inner, None, Some(7)).unwrap();
        set(&inner, 0o770);
        assert!(why(&image).unwrap().contains("may be written by others"));
    }

    #[test]
    fn links_are_followed_as_they_stand() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().canonicalize().unwrap();
        let (open, shut) = (at.join("open"), at.join("shut"));
        fs::create_dir(&open).unwrap();
        fs::create_dir(&shut).unwrap();
        fs::write(shut.join("image"), "").unwrap();
        symlink("../shut/image", open.join("link")).unwrap();
        symlink(&open, at.join("directory")).unwrap();
        let path = at.join("directory/link");
        assert_eq!(why(&path), None);
        // Users who can write there decide where the link leads.
        set(&open, 0o777);
        assert!(why(&path).unwrap().contains(open.to_str().unwrap()));
        set(&open, 0o755);
        set(&shut, 0o777);
        assert!(why(&path).unwrap().contains(shut.to_str().unwrap()));
        symlink("again", at.join("again")).unwrap();
        assert!(why(&at.join("again")).is_some());
        assert!(check(&at.join("missing")).is_err());
    }
}
