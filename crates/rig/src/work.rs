//! The directory that the harness writes to, with a cache that outlives runs, and scratch
//! directories that do not.
//!
//! Invariant: the root is `$AQUIFER_WORK_DIR`, else `conformance` under the cargo target directory
//! of the running program, else under the system's temporary directory. A cache entry appears by
//! one rename, complete or not at all, and only one process at a time makes one. A scratch
//! directory is removed when its owner is dropped, but kept when the test is failing or
//! `AQUIFER_KEEP` is set.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, Result};

/// The harness's root directory.
#[derive(Clone, Debug)]
pub struct WorkDir {
    root: PathBuf,
}

impl WorkDir {
    /// Opens (and makes) the root directory of this run.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be made.
    pub fn open() -> Result<Self> {
        let root = match std::env::var_os("AQUIFER_WORK_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => target_dir().unwrap_or_else(std::env::temp_dir).join("conformance"),
        };
        Self::at(&root)
    }

    /// Uses `root`, and makes it if need be.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be made.
    pub fn at(root: &Path) -> Result<Self> {
        fs::create_dir_all(root.join("cache")).map_err(Error::at("create", root))?;
        let root = root.canonicalize().map_err(Error::at("resolve", root))?;
        Ok(Self { root })
    }

    /// The root itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The cache entry `name`: the existing one, or one that `make` makes in a directory that then
    /// gets this name. Other processes that need it wait meanwhile.
    ///
    /// # Errors
    /// What `make` returns, or [`Error::Io`].
    pub fn cached(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let cache = self.root.join("cache");
        let entry = cache.join(name);
        let lock_path = cache.join(format!("{name}.lock"));
        let lock = File::create(&lock_path).map_err(Error::at("create", &lock_path))?;
        lock.lock().map_err(Error::at("lock", &lock_path))?;
        if entry.exists() {
            return Ok(entry);
        }
        let partial = cache.join(format!("{name}.partial"));
        if partial.exists() {
            fs::remove_dir_all(&partial).map_err(Error::at("remove", &partial))?;
        }
        fs::create_dir(&partial).map_err(Error::at("create", &partial))?;
        make(&partial)?;
        fs::rename(&partial, &entry).map_err(Error::at("rename", &partial))?;
        Ok(entry)
    }

    /// A new, empty directory for one test; `name` helps a person who looks into a kept one.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be made.
    pub fn scratch(&self, name: &str) -> Result<Scratch> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = self.root.join(format!("run/{name}-{}-{number}", std::process::id()));
        if path.exists() {
            fs::remove_dir_all(&path).map_err(Error::at("remove", &path))?;
        }
        fs::create_dir_all(&path).map_err(Error::at("create", &path))?;
        Ok(Scratch { path, keep: false })
    }
}

/// A directory of one test, removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `name` inside the directory.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes `name` a directory inside and returns its path.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be made.
    pub fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.join(name);
        fs::create_dir_all(&path).map_err(Error::at("create", &path))?;
        Ok(path)
    }

    /// Keeps the directory, for a person who looks into a failure.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let wanted = std::env::var_os("AQUIFER_KEEP").is_some();
        if !self.keep && !wanted && !std::thread::panicking() {
            // A directory that cannot be removed does no harm: the next run uses another name.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Cargo marks its target directory with a `CACHEDIR.TAG`; test programs lie below it.
fn target_dir() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let found = program.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists())?;
    Some(found.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_entry_is_made_once_and_a_failed_make_leaves_none() {
        let scratch = WorkDir::open().unwrap().scratch("work-cache").unwrap();
        let work = WorkDir::at(&scratch.join("root")).unwrap();
        let failed = work.cached("thing", |dir| {
            fs::write(dir.join("half"), "x").unwrap();
            Err(Error::Malformed("no".into()))
        });
        assert!(failed.is_err());
        assert!(!work.root().join("cache/thing").exists());
        let entry = work.cached("thing", |dir| {
            assert!(!dir.join("half").exists(), "left over from the failed make");
            fs::write(dir.join("whole"), "x").map_err(Error::at("write", dir))
        });
        assert!(entry.unwrap().join("whole").exists());
        let again = work.cached("thing", |_| panic!("made twice")).unwrap();
        assert!(again.join("whole").exists());
    }

    #[test]
    fn scratch_goes_with_its_owner_unless_kept() {
        let work = WorkDir::open().unwrap();
        let path = work.scratch("work-gone").unwrap().path().to_path_buf();
        assert!(!path.exists());
        let mut kept = work.scratch("work-kept").unwrap();
        kept.keep();
        let path = kept.path().to_path_buf();
        drop(kept);
        assert!(path.exists());
        fs::remove_dir_all(path).unwrap();
    }
}
