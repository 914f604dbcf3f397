//! Files that are replaced whole: after a power cut there is the old one or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aquifer_sync::Mutex;

/// Makes a file or replaces it. It is on disk when this returns.
///
/// The temporary file beside it is always a new one. So a file or link that somebody left there is
/// not written to, and does not give the new file its mode.
///
/// # Errors
/// Errors of the system. The old file is still there then, unless the last step failed: writing its
/// directory.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Facts of a file that change if it is replaced, or written by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    bytes: u64,
    changed_ns: (i64, i64),
}

impl Stamp {
    /// Of the regular file at this path; `None`, if there is none.
    pub fn of(path: &Path) -> Option<Stamp> {
        let meta = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        let changed_ns = (meta.ctime(), meta.ctime_nsec());
        Some(Stamp { inode: meta.ino(), bytes: meta.len(), changed_ns })
    }
}

/// A file that the daemon can do without, written whole now and then. If it is spoilt, it is
/// written again.
#[derive(Debug)]
pub struct Replaced {
    path: PathBuf,
    mode: u32,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    bytes: Option<Vec<u8>>,
    stamp: Option<Stamp>,
    problem: Option<String>,
}

impl Replaced {
    /// The file at this path.
    pub fn at(path: PathBuf, mode: u32) -> Replaced {
        Replaced { path, mode, last: Mutex::default() }
    }

    /// Accepts the content that the file has now as the right one.
    pub fn adopt(&self) {
        if let Ok(bytes) = fs::read(&self.path) {
            let (bytes, stamp) = (Some(bytes), Stamp::of(&self.path));
            *self.last.lock() = Last { bytes, stamp, problem: None };
        }
    }

    /// Replaces it. It is on disk when this returns.
    ///
    /// # Errors
    /// Errors of the system. [`Replaced::look_again`] tries again.
    pub fn store(&self, bytes: Vec<u8>) -> io::Result<()> {
        let mut last = self.last.lock();
        last.bytes = Some(bytes);
        self.write(&mut last)
    }

    /// Writes it again if it is not there as it was written.
    pub fn look_again(&self) {
        let mut last = self.last.lock();
        let is_there = last.stamp.is_some() && last.stamp == Stamp::of(&self.path);
        if last.bytes.is_some() && !is_there {
            let _ = self.write(&mut last);
        }
    }

    /// Why it could not be written.
    pub fn problem(&self) -> Option<String> {
        self.last.lock().problem.clone()
    }

    fn write(&self, last: &mut Last) -> io::Result<()> {
        let bytes = last.bytes.as_deref().unwrap_or_default();
        let written = replace(&self.path, bytes, self.mode);
        last.stamp = if written.is_ok() { Stamp::of(&self.path) } else { None };
        let why = |error: &io::Error| format!("{}: {error}", self.path.display());
        last.problem = written.as_ref().err().map(why);
        written
    }
}

/// A small file that the daemon cannot do without, with a copy beside it (`NAME~`).
///
/// Invariant: the copy is written first, so it is never older than the file.
#[derive(Debug, Clone)]
pub struct Copied {
    path: PathBuf,
    copy: PathBuf,
    mode: u32,
}

/// Result of [`Copied::load`].
#[derive(Debug)]
pub struct Loaded<T> {
    /// The content; `None`, if there was none that could be used.
    pub content: Option<T>,
    /// Problem with the file, if it was there.
    pub problem: Option<String>,
}

impl Copied {
    /// The file at this path.
    pub fn at(path: PathBuf, mode: u32) -> Copied {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push("~");
        let copy = path.with_file_name(name);
        Copied { path, copy, mode }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces both. They are on disk when this returns.
    ///
    /// # Errors
    /// Errors of the system. The file is then as it was.
    pub fn store(&self, bytes: &[u8]) -> io::Result<()> {
        replace(&self.copy, bytes, self.mode)?;
        replace(&self.path, bytes, self.mode)
    }

    /// Writes `bytes`, if the file is not there or not what `parse` takes. A copy that differs from
    /// the file is replaced.
    ///
    /// # Errors
    /// They are spoilt, and cannot be written.
    pub fn mend<T>(
        &self,
        parse: impl Fn(&[u8]) -> Result<T, String>,
        bytes: &[u8],
    ) -> io::Result<()> {
        let written = match fs::read(&self.path) {
            Ok(there) if parse(&there).is_ok() => {
                match fs::read(&self.copy).is_ok_and(|copy| copy == there) {
                    true => Ok(()),
                    false => replace(&self.copy, &there, self.mode),
                }
            }
            _ => self.store(bytes),
        };
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        })
    }

    /// Reads the file, or its copy, if `parse` does not take the file.
    pub fn load<T>(&self, parse: impl Fn(&[u8]) -> Result<T, String>) -> Loaded<T> {
        let read = |path: &Path| match fs::read(path) {
            Ok(bytes) => {
                parse(&bytes).map(Some).map_err(|why| format!("{}: {why}", path.display()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("{}: {error}", path.display())),
        };
        let problem = match read(&self.path) {
            Ok(Some(content)) => return Loaded { content: Some(content), problem: None },
            Ok(None) => None,
            Err(why) => Some(why),
        };
        match read(&self.copy) {
            Ok(Some(content)) => {
                let missing = || format!("{}: is gone", self.path.display());
                let why = problem.unwrap_or_else(missing);
                let problem = Some(format!("{why}; the copy beside it is used"));
                Loaded { content: Some(content), problem }
            }
            Ok(None) => Loaded { content: None, problem },
            Err(why) => Loaded { content: None, problem: problem.or(Some(why)) },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_lies_beside_is_not_written_to_and_the_mode_is_that_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("list.json"), dir.path().join("other"));
        fs::write(&other, "other").unwrap();
        fs::write(&path, "old").unwrap();
        symlink(&other, dir.path().join("list.new")).unwrap();
        replace(&path, b"new", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&other).unwrap(), b"other");
        assert!(!dir.path().join("list.new").exists());
        let missing = replace(&dir.path().join("none/list.json"), b"new", 0o600);
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_is_spoilt_is_read_from_its_copy() {
        let dir = tempfile::tempdir().unwrap();
        let file = Copied::at(dir.path().join("list.json"), 0o600);
        let parse = |bytes: &[u8]| match bytes {
            b"good" | b"better" => Ok(bytes.to_vec()),
            _ => Err("makes no sense".to_string()),
        };
        let load = || file.load(parse);
        let nothing = load();
        assert_eq!((nothing.content, nothing.problem), (None, None));
        file.store(b"good").unwrap();
        file.store(b"better").unwrap();
        assert_eq!(fs::read(dir.path().join("list.json~")).unwrap(), b"better");
        for spoilt in [&b""[..], b"goo", b"\0\0\0\0"] {
            fs::write(file.path(), spoilt).unwrap();
            let Loaded { content, problem } = load();
            assert_eq!(content.as_deref(), Some(&b"better"[..]));
            assert!(problem.unwrap().contains("list.json: makes no sense; the copy"));
        }
        fs::remove_file(file.path()).unwrap();
        assert!(load().problem.unwrap().contains("is gone"));
        fs::create_dir(file.path()).unwrap();
        assert_eq!(load().content.as_deref(), Some(&b"better"[..]));
        file.store(b"good").unwrap_err();
        fs::remove_dir(file.path()).unwrap();
        file.store(b"good").unwrap();
        assert!(load().problem.is_none());
        for path in [file.path(), &dir.path().join("list.json~")] {
            fs::write(path, "").unwrap();
        }
        let lost = load();
        assert!(lost.content.is_none() && lost.problem.is_some());
        file.mend(parse, b"better").unwrap();
        assert_eq!(load().content.as_deref(), Some(&b"better"[..]));
        file.mend(parse, b"good").unwrap();
        assert_eq!(load().content.as_deref(), Some(&b"better"[..]), "what is whole stays");
    }

    #[test]
    fn a_stamp_tells_a_file_that_somebody_else_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.json");
        assert_eq!(Stamp::of(&path), None);
        replace(&path, b"one", 0o600).unwrap();
        let one = Stamp::of(&path);
        assert!(one.is_some() && one == Stamp::of(&path));
        replace(&path, b"two", 0o600).unwrap();
        assert_ne!(Stamp::of(&path), one);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(Stamp::of(&path), None);
    }

    #[test]
    fn a_file_that_somebody_spoils_is_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list.json");
        let file = Replaced::at(path.clone(), 0o600);
        file.look_again();
        assert!(!path.exists());
        fs::write(&path, "good").unwrap();
        file.adopt();
        for spoil in [|path: &Path| fs::remove_file(path), |path: &Path| fs::write(path, "?")] {
            spoil(&path).unwrap();
            file.look_again();
            assert_eq!(fs::read(&path).unwrap(), b"good");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        file.store(b"better".to_vec()).unwrap_err();
        assert!(file.problem().unwrap().contains("list.json"));
        fs::remove_dir(&path).unwrap();
        file.look_again();
        assert_eq!((file.problem(), fs::read(&path).unwrap()), (None, b"better".to_vec()));
    }
}
