//! The list of imported pools and their disks, kept across restarts, as `zpool.cache` is. Beside it
//! the file keeps the losses of pools that nobody has cleared yet, those of exported pools
//! included.
//!
//! # Invariants
//! - The file is replaced whole: written to a second file, flushed, renamed, the directory flushed.
//!   After kill -9 or a power cut it is the old list or the new one. It has a copy beside it, which
//!   counts if the file is spoilt.
//! - A file that cannot be used keeps nothing from starting. A list that is lost, copy and all, is
//!   set aside before another one is written.
//! - The list is a hint where to look. The labels of a disk say which pool it belongs to.
//! - One daemon uses a state directory: it holds a lock on it as long as it lives.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aquifer_blockio::durable::{Copied, Loaded};
use parking_lot::Mutex;
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
    /// Its property `two_persons`, if it is not `off`: it counts while the pool is not in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub two_persons: Option<String>,
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
    list: Copied,
    host_id: Copied,
    /// There was a list, and nobody knows what it had. Held over writes of it.
    is_lost: Mutex<bool>,
    _locks: Vec<File>,
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
        // The directory, and the file that earlier releases lock. Something may stand in that one's
        // place, or there is no room for it.
        let of_file = File::options().create(true).append(true).mode(0o600).open(&lock_path);
        if let Err(error) = &of_file {
            let path = lock_path.display();
            tracing::warn!(%path, %error, "the state directory alone is locked");
        }
        let locks: Vec<File> =
            [File::open(dir).map_err(failed(dir))?].into_iter().chain(of_file).collect();
        for lock in &locks {
            match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(CacheError::InUse(dir.to_path_buf()));
                }
                Err(error) => return Err(failed(dir)(error.into())),
            }
        }
        Ok(Cache {
            dir: dir.to_path_buf(),
            list: Copied::at(dir.join(FILE_NAME), 0o600),
            host_id: Copied::at(dir.join(HOST_ID_NAME), 0o600),
            is_lost: Mutex::new(false),
            _locks: locks,
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The identity that this host writes to its pools' disks, made once: 16 hexadecimal digits in
    /// a file. It is not the machine's own identity, which copies of a virtual machine share.
    /// Beside it, what is wrong with the file. A new identity is made if it is lost: pools that
    /// were not exported can then be imported a minute later.
    pub fn host_id(&self) -> (u64, Option<String>) {
        let Loaded { content, problem } = self.host_id.load(parse_host_id);
        match content {
            Some(id) => (id, problem),
            None => {
                // Without randomness, the time is as good as none of another host.
                let id = getrandom::u64().unwrap_or_else(|_| aquifer_api::time::now_ns()).max(1);
                let stored = self.mend_host_id(id).err().map(|error| error.to_string());
                (id, problem.or(stored))
            }
        }
    }

    /// Writes the identity again if it is spoilt.
    ///
    /// # Errors
    /// The system's.
    pub fn mend_host_id(&self, id: u64) -> Result<(), CacheError> {
        let mended = self.host_id.mend(parse_host_id, format!("{id:016x}\n").as_bytes());
        mended.map_err(|source| CacheError::Io { path: self.dir.clone(), source })
    }

    /// The content of the file; empty if there is no file yet, or it cannot be used. Beside it,
    /// what is wrong with it.
    pub fn load(&self) -> (Kept, Option<String>) {
        let Loaded { content, problem } = self.list.load(parse_list);
        match (content, problem) {
            (Some(kept), problem) => (kept, problem),
            (None, None) => (Kept::default(), None),
            (None, Some(why)) => {
                *self.is_lost.lock() = true;
                let why = format!(
                    "{why}. The list of pools is lost; bring them back with `aquifer pool import`"
                );
                (Kept::default(), Some(why))
            }
        }
    }

    /// Whether there was a list that could not be used, and none was written since.
    pub fn is_lost(&self) -> bool {
        *self.is_lost.lock()
    }

    /// Whether the file has something else.
    pub fn differs(&self, kept: &Kept) -> bool {
        let Loaded { content, .. } = self.list.load(parse_list);
        content.is_some_and(|there| there != *kept)
    }

    /// Writes the list again if it is spoilt, and there is something to write.
    ///
    /// # Errors
    /// The system's.
    pub fn mend(&self, kept: impl FnOnce() -> Kept) -> Result<(), CacheError> {
        let _writing = self.is_lost.lock();
        let kept = kept();
        if kept == Kept::default() && !self.list.path().exists() {
            return Ok(());
        }
        let mended = bytes_of(&kept).and_then(|bytes| self.list.mend(parse_list, &bytes));
        mended.map_err(|source| CacheError::Io { path: self.dir.clone(), source })
    }

    /// Replaces the content of the file; it is on disk when this returns. `kept` is asked when
    /// nobody else writes, so that of two writers the later one has the newer state.
    ///
    /// # Errors
    /// The system's errors; the old list stays then.
    pub fn store(&self, kept: impl FnOnce() -> Kept) -> Result<(), CacheError> {
        let mut is_lost = self.is_lost.lock();
        let kept = kept();
        let path = self.list.path();
        if *is_lost && path.exists() {
            // Somebody may still read from it where disks are.
            let aside = fs::rename(path, path.with_extension("lost"));
            aside.map_err(|source| CacheError::Io { path: path.to_path_buf(), source })?;
        }
        let stored = bytes_of(&kept).and_then(|bytes| self.list.store(&bytes));
        stored.map_err(|source| CacheError::Io { path: path.to_path_buf(), source })?;
        *is_lost = false;
        Ok(())
    }
}

fn parse_host_id(bytes: &[u8]) -> Result<u64, String> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    // A part of one would be another host's.
    let digits = Some(text.trim_end()).filter(|digits| digits.len() == 16);
    let id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    id.filter(|id| *id != 0).ok_or_else(|| "is no identity of a host".into())
}

fn parse_list(bytes: &[u8]) -> Result<Kept, String> {
    serde_json::from_slice(bytes).map_err(|why| format!("is no list of pools ({why})"))
}

fn bytes_of(kept: &Kept) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(kept)?;
    bytes.push(b'\n');
    Ok(bytes)
}

const FILE_NAME: &str = "pools.json";
const LOCK_NAME: &str = "lock";
const HOST_ID_NAME: &str = "host_id";
