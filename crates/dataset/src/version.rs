//! A dataset as of a snapshot, or as it is now, or a file as of a snapshot of it: what is compared
//! with another one.
//!
//! Trees are read from their roots alone, never from objects in memory: those may be a txg ahead.
//!
//! Invariants:
//! - Nothing is read below a root without a [`Look`] that was taken before, and that found the
//!   snapshot or dataset there. What it reaches is not reused until it ends.
//! - A look at a snapshot is short, and is renewed in the course of long work. So a snapshot that
//!   is destroyed meanwhile gives an error, and its space comes back soon.
//! - A look at a head lasts for [`HEAD_LOOK_MAX`] at most: its root is another one after a renewal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aquifer_ondisk::{BlockPointer, DatasetId, Guid, Txg};
use aquifer_pool::{Pool, Reading};

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::file_snapshots::FileSnapshot;
use crate::full_name::FullName;

/// The longest time that a head's root is read: what is freed meanwhile waits to be reused.
pub const HEAD_LOOK_MAX: Duration = Duration::from_secs(30);

/// See the module's head.
#[derive(Debug, Clone)]
pub struct Version {
    name: String,
    /// The head, or the view of a snapshot.
    dataset: Arc<Dataset>,
    /// It is this snapshot of a file of the head, and shows nothing else.
    file: Option<Arc<FileSnapshot>>,
}

/// A time in which nothing is reused that the version reaches.
pub struct Look<'a> {
    pool: &'a Pool,
    version: &'a Version,
    objects: Option<BlockPointer>,
    since: Duration,
    _reading: Reading<'a>,
}

/// A look cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookError {
    /// The snapshot or the dataset was destroyed.
    #[error("{0:?} was destroyed meanwhile")]
    Destroyed(String),
    /// The head was looked at for too long.
    #[error("{0:?} changes while it is compared, and that takes too long")]
    TooLong(String),
}

impl Version {
    /// Its full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file system guid: a snapshot has its own.
    pub fn guid(&self) -> Guid {
        self.file.as_ref().map_or(self.dataset.fs_guid, |file| file.record.guid)
    }

    /// Whether it is the dataset itself, which goes on changing.
    pub fn is_head(&self) -> bool {
        self.dataset.snapshot.is_none() && self.file.is_none()
    }

    /// Whether it is there no more.
    fn is_gone(&self) -> bool {
        let is_listed =
            |file: &Arc<FileSnapshot>| self.dataset.file_snapshot(file.id, Txg(u64::MAX)).is_some();
        self.dataset.is_destroyed() || !self.file.as_ref().is_none_or(is_listed)
    }

    /// Begins to read it.
    ///
    /// # Errors
    /// It was destroyed.
    pub fn look<'a>(&'a self, pool: &'a Pool) -> Result<Look<'a>, LookError> {
        // Before the root is looked at: from here on nothing below it is reused.
        let reading = pool.reading();
        let table = || self.dataset.table.lock().committed;
        let objects = if self.file.is_some() { None } else { table() };
        if self.is_gone() {
            return Err(LookError::Destroyed(self.name.clone()));
        }
        let since = pool.world().now();
        Ok(Look { pool, version: self, objects, since, _reading: reading })
    }
}

impl Look<'_> {
    /// The root of its object table; `None` also of a snapshot of a file.
    pub fn objects(&self) -> Option<BlockPointer> {
        self.objects
    }

    /// Goes on looking at the same.
    ///
    /// # Errors
    /// It was destroyed meanwhile, or is a head that was looked at for too long.
    pub fn renew(&mut self) -> Result<(), LookError> {
        if !self.version.is_head() {
            *self = self.version.look(self.pool)?;
            return Ok(());
        }
        match self.pool.world().now().saturating_sub(self.since) > HEAD_LOOK_MAX {
            true => Err(LookError::TooLong(self.version.name.clone())),
            false => Ok(()),
        }
    }
}

impl Datasets {
    /// A dataset (`tank/vms`), a snapshot (`tank/vms@before`) or a bookmark (`tank/vms#sent`) by
    /// its full name.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn version(&self, name: &str) -> Result<Version, DatasetError> {
        let not_found = || DatasetError::NotFound(name.into());
        let dataset = match FullName::of(name) {
            FullName::Snapshot(..) => {
                let (dataset, snapshot) = self.snapshot_by_name(name)?;
                self.view(&dataset, &snapshot)
            }
            FullName::Bookmark(..) => {
                let (dataset, bookmark) = self.bookmark_by_name(name)?;
                self.bookmark_view(&dataset, bookmark.record.guid)
            }
            FullName::Dataset(_) => self.by_name(name).filter(|dataset| !dataset.is_destroyed()),
        };
        if let Some(head) = dataset.as_ref().filter(|of| of.snapshot().is_none()) {
            self.check_no_increment(head)?;
        }
        Ok(Version { name: name.into(), dataset: dataset.ok_or_else(not_found)?, file: None })
    }

    /// A snapshot of a file.
    pub fn file_version(&self, dataset: &Arc<Dataset>, file: Arc<FileSnapshot>) -> Version {
        let name = self.file_snapshot_name(dataset, &file.record.path, &file.record.name);
        Version { name, dataset: dataset.clone(), file: Some(file) }
    }

    /// Whether two versions have a past in common: then an object's id and generation mean the same
    /// file in both.
    pub fn are_related(&self, one: &Version, other: &Version) -> bool {
        let past = |of: &Version| self.past(&of.dataset).into_iter().map(|(line, _)| line.id);
        let of_one: BTreeSet<DatasetId> = past(one).collect();
        past(other).any(|line| of_one.contains(&line))
    }
}
