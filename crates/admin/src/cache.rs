//! The list of imported pools and their disks, kept across restarts, as `zpool.cache` is. Beside it
//! the file keeps the losses of pools that nobody has cleared yet, those of exported pools
//! included.
//!
//! # Invariants
//! - The file is replaced whole: written to a second file, flushed, renamed, the directory flushed.
//!   After kill -9 or a power cut it is the old list or the new one.
//! - The list is a hint where to look. The labels of a disk say which pool it belongs to.
//! - One daemon uses a state directory: it holds a lock on it as long as it lives.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aquifer_blockio::durable;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use aquifer_api::{DroppedLog, guid_text};
use aquifer_ondisk::Guid;

#[cfg(test)]
mod tests;

/// A pool that was in service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedPool {
    /// Name.
    pub name: String,
    /// Identity: 16 hexadecimal digits.
    pub guid: String,
    /// Paths of its disks when it was imported; for missing disks, where they were last seen.
    pub disks: Vec<PathBuf>,
    /// It was suspended, and has not been in service since: the disks that then held everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<WholeNote>,
}

/// The disks that held everything when a pool was suspended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeNote {
    /// Those of each vdev. None of a vdev that the pool did without.
    pub vdevs: Vec<Vec<WholeDisk>>,
    /// Each has an uberblock at least this new.
    pub sequence: u64,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeDisk {
    /// Identity: 16 hexadecimal digits.
    pub guid: String,
    /// Where it was.
    pub path: PathBuf,
}

impl WholeDisk {
    /// Whether it is this one.
    pub fn is(&self, leaf: Guid) -> bool {
        self.guid == guid_text(leaf.0)
    }
}

/// The file's content.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The list.
    pub pools: Vec<CachedPool>,
    /// Losses by imports without a log device, by the pool's guid.
    #[serde(default)]
    pub dropped_logs: BTreeMap<String, DroppedLog>,
}

/// The state directory, locked.
#[derive(Debug)]
pub struct Cache {
    dir: PathBuf,
    _lock: File,
}

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Another daemon has it.
    #[error(
        "{0}: another aquifer daemon uses this state directory; stop it first, or give this one a \
         directory of its own with --state-dir"
    )]
    InUse(PathBuf),
    /// The file is no identity of a host.
    #[error(
        "{0}: is no identity of a host; remove it and start again. Pools that were not exported \
         can then be imported a minute later"
    )]
    NoHostId(PathBuf),
    /// The file is no list of pools.
    #[error(
        "{path}: is no list of pools ({why}); move it away, start again, and bring the pools back \
         with `aquifer pool import`"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error in it.
        why: String,
    },
    /// A system call failed.
    #[error("{path}: {source}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Cache {
    /// Opens and locks the state directory, and makes it if there is none.
    ///
    /// # Errors
    /// [`CacheError::InUse`], and the system's errors.
    pub fn open(dir: &Path) -> Result<Cache, CacheError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| CacheError::Io { path, source }
        };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(failed(dir))?;
        let lock_path = dir.join(LOCK_NAME);
        let lock = File::options().create(true).append(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(failed(&lock_path))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Cache { dir: dir.to_path_buf(), _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(CacheError::InUse(dir.to_path_buf())),
            Err(error) => Err(failed(&lock_path)(error.into())),
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The identity that this host writes to its pools' disks, made once: 16 hexadecimal digits in
    /// a file. It is not the machine's own identity, which copies of a virtual machine share.
    ///
    /// # Errors
    /// [`CacheError::NoHostId`], and the system's errors.
    pub fn host_id(&self) -> Result<u64, CacheError> {
        let path = self.dir.join(HOST_ID_NAME);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let id = u64::from_str_radix(text.trim_end(), 16).ok().filter(|id| *id != 0);
                id.ok_or(CacheError::NoHostId(path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = getrandom::u64()
                    .map_err(|error| io::Error::other(error.to_string()))
                    .and_then(|random| {
                        let id = random.max(1);
                        durable::replace(&path, format!("{id:016x}\n").as_bytes(), 0o600)
                            .map(|()| id)
                    });
                made.map_err(|source| CacheError::Io { path, source })
            }
            Err(source) => Err(CacheError::Io { path, source }),
        }
    }

    /// The content of the file; empty if there is no file yet.
    ///
    /// # Errors
    /// [`CacheError::Unreadable`], and the system's errors.
    pub fn load(&self) -> Result<Kept, CacheError> {
        let path = self.dir.join(FILE_NAME);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
            Err(source) => return Err(CacheError::Io { path, source }),
        };
        let kept = serde_json::from_slice(&bytes);
        kept.map_err(|why| CacheError::Unreadable { path, why: why.to_string() })
    }

    /// Replaces the content of the file; it is on disk when this returns.
    ///
    /// # Errors
    /// The system's errors; the old list stays then.
    pub fn store(&self, kept: &Kept) -> Result<(), CacheError> {
        let path = self.dir.join(FILE_NAME);
        let stored = serde_json::to_vec_pretty(kept).map_err(io::Error::from);
        let stored = stored.and_then(|mut bytes| {
            bytes.push(b'\n');
            durable::replace(&path, &bytes, 0o600)
        });
        stored.map_err(|source| CacheError::Io { path, source })
    }
}

const FILE_NAME: &str = "pools.json";
const LOCK_NAME: &str = "lock";
const HOST_ID_NAME: &str = "host_id";
