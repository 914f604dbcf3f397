//! Snapshots as directories: `.aquifer/snapshot/NAME` below the root directory of a dataset.
//!
//! LOOKUP finds `.aquifer`; listings show it if the property `snapdir` says so. The root directory
//! of a snapshot belongs to a file system of its own, the snapshot's.
//!
//! # Invariants
//! - `.aquifer` and `snapshot` are on no disk. Their handles have object ids that the format keeps
//!   for them, so handles survive a restart.
//! - Nothing changes in them ([`Files::check_writable`] refuses), but for snapshots that hosts
//!   take, destroy and rename ([`control`]).
//! - No entry gets the name of `.aquifer`. One that has it, made while `snapdir` was `disabled`,
//!   goes before.
//! - The cookie of a snapshot is made from its txg. It survives changes and restarts.

mod control;

use std::sync::Arc;

use futures_util::future::join_all;

use aquifer_dataset::{Dataset, ROOT_DIRECTORY, Snapdir, Snapshot, directory_inode};
use aquifer_object::Object;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::types::{HIDDEN_DIRECTORY, SNAPSHOT_DIRECTORY};
use aquifer_ondisk::{Guid, ObjectId};

use crate::core::{Files, Target};
use crate::error::FsError;
use crate::ops::directory::DOT_DOT;
use crate::types::{Attributes, Credentials, DirectoryEntry, FileHandle};

pub(crate) use control::may_control;

/// The name of the hidden directory, and of the one in it.
const NAME: &[u8] = b".aquifer";
const SNAPSHOT: &[u8] = b"snapshot";

/// The cookie of a directory here. Those of stored entries are larger
/// ([`aquifer_ondisk::dirent::hash_key`]).
const COOKIE: u64 = DOT_DOT + 1;

/// Whether an object id is that of a directory here.
pub(crate) fn is_id(id: ObjectId) -> bool {
    id == HIDDEN_DIRECTORY || id == SNAPSHOT_DIRECTORY
}

/// Whether a name in a directory means the hidden directory, unless an entry has it.
pub(crate) fn is_name(directory: &Target, name: &[u8]) -> bool {
    name == NAME && directory.object.id == ROOT_DIRECTORY && is_in(&directory.dataset)
}

/// Whether a dataset has the hidden directory. A snapshot has none.
fn is_in(dataset: &Dataset) -> bool {
    dataset.snapshot().is_none() && dataset.properties().snapdir != Snapdir::Disabled
}

pub(crate) fn handle(fs_guid: Guid, object: ObjectId) -> FileHandle {
    FileHandle { fs_guid, object, generation: 0 }
}

impl Files {
    /// The file system guid of the dataset whose snapshot has this guid, if clients may look into
    /// it.
    pub fn head_of(&self, snapshot: Guid) -> Option<Guid> {
        let head = self.datasets.head_of(snapshot).filter(|head| is_in(head));
        head.map(|head| head.fs_guid)
    }

    /// The directory of one of these ids.
    pub(crate) fn hidden(&self, dataset: &Arc<Dataset>, id: ObjectId) -> Result<Target, FsError> {
        if !is_in(dataset) {
            return Err(FsError::Stale);
        }
        let object = Arc::new(Object::new(dataset.id, self.hidden_inode(dataset, id)));
        Ok(Target { dataset: dataset.clone(), object })
    }

    fn hidden_inode(&self, dataset: &Dataset, id: ObjectId) -> Inode {
        let committed = self.pool.committed_txg();
        // Before the list: what it gets meanwhile shows as a change later.
        let changed = dataset.snapshots_changed(committed);
        let at = changed.at.max(dataset.created());
        let (parent, below) = match id {
            HIDDEN_DIRECTORY => (ROOT_DIRECTORY, 1),
            _ => (HIDDEN_DIRECTORY, dataset.snapshots(committed).len()),
        };
        Inode {
            mode: if id == SNAPSHOT_DIRECTORY { control::mode(dataset) } else { 0o555 },
            nlink: u32::try_from(below).unwrap_or(u32::MAX).saturating_add(2),
            entries: below as u64,
            crtime: dataset.created(),
            change: changed.txg.0,
            parent,
            ..directory_inode(id, at, 0)
        }
    }

    /// The directory above: above a snapshot's root directory lies `.aquifer/snapshot`.
    pub(crate) async fn parent(&self, directory: &Target) -> Result<Target, FsError> {
        let Target { dataset, object } = directory;
        if dataset.snapshot().is_none() || object.id != ROOT_DIRECTORY {
            return self.object(dataset, directory.inode().parent).await;
        }
        match self.datasets.head_of(dataset.fs_guid).filter(|head| is_in(head)) {
            Some(head) => self.hidden(&head, SNAPSHOT_DIRECTORY),
            None => Ok(directory.clone()),
        }
    }

    /// Finds a name that no stored entry has.
    pub(crate) async fn lookup_hidden(
        &self,
        directory: &Target,
        name: &[u8],
    ) -> Result<Attributes, FsError> {
        let Target { dataset, object } = directory;
        if is_name(directory, name) {
            return Ok(self.hidden(dataset, HIDDEN_DIRECTORY)?.attributes());
        }
        match object.id {
            HIDDEN_DIRECTORY if name == SNAPSHOT => {
                Ok(self.hidden(dataset, SNAPSHOT_DIRECTORY)?.attributes())
            }
            SNAPSHOT_DIRECTORY => {
                let mut snapshots = dataset.snapshots(self.pool.committed_txg()).into_iter();
                let found = snapshots.find(|snapshot| snapshot.record.name.as_bytes() == name);
                let found = found.ok_or(FsError::NotFound)?;
                self.snapshot_root(dataset, &found).await
            }
            _ => Err(FsError::NotFound),
        }
    }

    /// The attributes of a snapshot's root directory.
    async fn snapshot_root(
        &self,
        dataset: &Dataset,
        snapshot: &Snapshot,
    ) -> Result<Attributes, FsError> {
        // It may have gone since it was found.
        let view = self.datasets.view(dataset, snapshot).ok_or(FsError::NotFound)?;
        Ok(self.object(&view, ROOT_DIRECTORY).await?.attributes())
    }

    /// The entry of the hidden directory in a directory that a listing shows, if it shows it.
    pub(crate) async fn visible(
        &self,
        directory: &Target,
        with_attributes: bool,
    ) -> Result<Option<DirectoryEntry>, FsError> {
        let is_visible = directory.dataset.properties().snapdir == Snapdir::Visible;
        if !is_visible || !is_name(directory, NAME) {
            return Ok(None);
        }
        let stored = self.find(&Credentials::root(), directory, NAME).await?.entry;
        let Target { dataset, .. } = directory;
        let entry = || self.hidden_entry(dataset, HIDDEN_DIRECTORY, NAME, with_attributes);
        Ok(stored.is_none().then(entry))
    }

    fn hidden_entry(
        &self,
        dataset: &Arc<Dataset>,
        id: ObjectId,
        name: &[u8],
        with_attributes: bool,
    ) -> DirectoryEntry {
        let attributes = || self.hidden(dataset, id).ok().map(|target| target.attributes());
        DirectoryEntry {
            cookie: COOKIE,
            name: name.to_vec(),
            handle: handle(dataset.fs_guid, id),
            kind: FileKind::Directory,
            attributes: with_attributes.then(attributes).flatten(),
        }
    }

    /// Lists at most `limit` entries of a directory here after `cookie`, without `.` and `..`, and
    /// whether these are the last ones.
    pub(crate) async fn list_hidden(
        &self,
        directory: &Target,
        cookie: u64,
        limit: usize,
        with_attributes: bool,
    ) -> (Vec<DirectoryEntry>, bool) {
        let Target { dataset, object } = directory;
        if object.id == HIDDEN_DIRECTORY {
            let entry = self.hidden_entry(dataset, SNAPSHOT_DIRECTORY, SNAPSHOT, with_attributes);
            let left: Vec<_> = [entry].into_iter().filter(|entry| entry.cookie > cookie).collect();
            let eof = left.len() <= limit;
            return (left.into_iter().take(limit).collect(), eof);
        }
        let cookie_of = |snapshot: &Snapshot| snapshot.txg.0.saturating_add(DOT_DOT);
        let mut left = dataset.snapshots(self.pool.committed_txg());
        left.retain(|snapshot| cookie_of(snapshot) > cookie);
        let eof = left.len() <= limit;
        let entries = left.iter().take(limit).map(|snapshot| async move {
            let attributes = match with_attributes {
                true => self.snapshot_root(dataset, snapshot).await.ok(),
                false => None,
            };
            DirectoryEntry {
                cookie: cookie_of(snapshot),
                name: snapshot.record.name.clone().into_bytes(),
                handle: handle(snapshot.record.guid, ROOT_DIRECTORY),
                kind: FileKind::Directory,
                attributes,
            }
        });
        (join_all(entries).await, eof)
    }

    /// A client found an entry with the name of the hidden directory: says so, once.
    pub(crate) fn tell_covered(&self, dataset: &Dataset) {
        if dataset.snapshot_count() > 0 && self.covered.lock().insert(dataset.fs_guid) {
            tracing::warn!(
                class = "snapshot.covered",
                pool = self.pool.name(),
                dataset = self.datasets.full_name(dataset),
                "an entry with the name .aquifer in the root directory hides the snapshots from \
                 clients: rename it"
            );
        }
    }
}
