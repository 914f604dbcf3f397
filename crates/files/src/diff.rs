//! The differences of two versions of a dataset: of their names ([`names`]) and of the content of
//! one file ([`ranges`]).
//!
//! Both are answered in pages, each within bounds of memory and time. A page is made from the roots
//! of both versions alone. Its cursor says where the next one begins, and which versions it is
//! about: one that was destroyed and taken again under its name is another one.

pub mod names;
pub(crate) mod paths;
pub mod ranges;
#[cfg(test)]
mod tests;

use std::str::FromStr;

use aquifer_dataset::{DatasetError, Look, LookError};
use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::inode::Inode;
use aquifer_pool::{Pool, PoolError, Turns};

use crate::core::Files;
use crate::file_snapshots::FileNameError;
use crate::one_file::OneFile;

/// Where the next page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// Of the two versions.
    versions: u64,
    /// The first object or page that comes.
    next: u64,
}

/// Two versions cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// A name of a dataset or snapshot.
    #[error("{0}")]
    Dataset(DatasetError),
    /// They have no past in common.
    #[error(
        "{0:?} and {1:?} have no past in common: compare two snapshots of one dataset, one with \
         its dataset, or a clone with a snapshot of its origin"
    )]
    Strangers(String, String),
    /// The text names no file of a dataset or snapshot.
    #[error(
        "{0:?} names no file of a dataset or snapshot that exists: write DATASET@SNAPSHOT:PATH, \
         such as tank/vms@before:web01/disk.vhd"
    )]
    NoFile(String),
    /// There is no such file in that version.
    #[error("there is no file {path:?} in {version:?}")]
    NotThere {
        /// The path.
        path: String,
        /// The version.
        version: String,
    },
    /// A snapshot of a file.
    #[error("{0}")]
    Name(#[from] FileNameError),
    /// It has no ranges.
    #[error("{path:?} in {version:?} is {kind}: only regular files have ranges")]
    NotRegular {
        /// The path.
        path: String,
        /// The version.
        version: String,
        /// Kind of the object there.
        kind: &'static str,
    },
    /// It lost changes, and its content is not certain.
    #[error("{path:?} in {version:?} is damaged: `aquifer pool status -v` says more")]
    Damaged {
        /// The path.
        path: String,
        /// The version.
        version: String,
    },
    /// The cursor is none.
    #[error("{0:?} is no place to go on from: begin again without one")]
    BadCursor(String),
    /// The cursor is about others.
    #[error(
        "{0:?} or {1:?} is not what it was when the answer began: it was destroyed and made again, \
         or the file was changed or replaced. Begin again, best with two snapshots"
    )]
    Others(String, String),
    /// A look could not go on.
    #[error("{0}; take a snapshot, and compare that")]
    Look(#[from] LookError),
    /// The pool failed.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

impl From<DatasetError> for DiffError {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::Pool(error) => DiffError::Pool(error),
            other => DiffError::Dataset(other),
        }
    }
}

impl Cursor {
    /// The first object or page that comes, if this is about these versions.
    fn next_of(cursor: Option<Cursor>, versions: u64) -> Option<u64> {
        match cursor {
            None => Some(0),
            Some(cursor) => (cursor.versions == versions).then_some(cursor.next),
        }
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}-{:x}", self.versions, self.next)
    }
}

impl FromStr for Cursor {
    type Err = DiffError;

    fn from_str(text: &str) -> Result<Cursor, DiffError> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let parts = text.split_once('-').and_then(|(versions, next)| {
            Some(Cursor { versions: number(versions)?, next: number(next)? })
        });
        parts.ok_or_else(|| DiffError::BadCursor(text.into()))
    }
}

/// A number of what an answer is about.
pub(crate) fn mark_of(parts: &[u64]) -> u64 {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_le_bytes()).collect();
    checksum64(&bytes)
}

/// Looks at versions in the course of long work.
pub(crate) struct Looks<'a> {
    pool: &'a Pool,
    looks: Vec<Look<'a>>,
    turns: Turns,
}

impl<'a> Looks<'a> {
    pub(crate) fn new(pool: &'a Pool, looks: Vec<Look<'a>>) -> Looks<'a> {
        Looks { pool, looks, turns: Turns::new(pool) }
    }

    /// The root of the object table of one of them, as they were given.
    pub(crate) fn objects(&self, side: usize) -> Option<BlockPointer> {
        self.looks.get(side).and_then(Look::objects)
    }

    /// A file that one of them shows.
    pub(crate) async fn inode(
        &self,
        files: &Files,
        of: &OneFile,
        side: usize,
    ) -> Result<Option<Inode>, PoolError> {
        match self.looks.get(side) {
            Some(look) => of.inode(files, look).await,
            None => Ok(None),
        }
    }

    /// One more step: now and then lets the others on this thread run, and looks again.
    pub(crate) async fn step(&mut self) -> Result<(), LookError> {
        if !self.turns.step(self.pool).await {
            return Ok(());
        }
        for look in &mut self.looks {
            look.renew()?;
        }
        Ok(())
    }
}

impl Files {
    /// Syncs the pool: everything acknowledged before is in the roots on disk.
    async fn bring_to_disk(&self) -> Result<(), DiffError> {
        Ok(self.pool.sync().await.map(drop)?)
    }
}
