//! Snapshots as directories: `.aquifer` in each directory of a dataset.
//!
//! ```text
//! .aquifer/FILE/NAME       FILE of this directory as of each snapshot that covers it (`versions`)
//! .aquifer/FILE/control    to roll it back and to clone it (`control::orders`)
//! .aquifer/snapshot/NAME   in the root directory: the whole dataset as of each snapshot of it
//! ```
//! LOOKUP finds `.aquifer`; listings show it if the property `snapdir` says so. The root directory
//! of a snapshot belongs to a file system of its own, the snapshot's. So does each version of a
//! file.
//!
//! # Invariants
//! - What is here is on no disk. Its handles have object ids that the format keeps for them, so
//!   handles survive a restart.
//! - Nothing changes in it ([`Files::check_writable`] refuses), but by acts of hosts that may
//!   ([`control`]).
//! - No entry gets the name of `.aquifer`. One that has it, made while `snapdir` was `disabled` or
//!   by an earlier release, goes before.
//! - The cookie of a snapshot is made from its number. It survives changes and restarts.
//! - A caller learns here no name that the directory above does not tell it.

mod control;
pub(crate) mod places;
mod versions;

use std::sync::Arc;

use futures_util::future::join_all;

use aquifer_dataset::{Dataset, ListChange, ROOT_DIRECTORY, Snapdir, Snapshot, directory_inode};
use aquifer_object::Object;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::types::{HIDDEN_DIRECTORY, SNAPSHOT_DIRECTORY};
use aquifer_ondisk::unstored::Unstored;
use aquifer_ondisk::{Guid, ObjectId};

use crate::core::{Files, Target};
use crate::error::FsError;
use crate::ops::directory::DOT_DOT;
use crate::types::{Attributes, Credentials, DirectoryEntry, FileHandle};

use control::orders::CONTROL;
pub use control::turns::HostLimits;
pub(crate) use control::turns::Turns;
pub(crate) use control::{is_idle, is_versions, may_control, orders};

/// The name of the hidden directory, and of the one in that of a root directory.
const NAME: &[u8] = b".aquifer";
const SNAPSHOT: &[u8] = b"snapshot";

/// The cookie of what has a fixed name here. Those of stored entries are larger
/// ([`aquifer_ondisk::dirent::hash_key`]).
const COOKIE: u64 = DOT_DOT + 1;

/// A directory here.
enum Place {
    /// `.aquifer` of this directory.
    Hidden(ObjectId),
    /// `.aquifer/snapshot`.
    Snapshots,
    /// `.aquifer/FILE` of this file.
    Versions(ObjectId),
    /// The directory of a dataset below ([`crate::shadows`]).
    Shadow,
}

impl Place {
    fn of(directory: &Target) -> Option<Place> {
        match (directory.object.id, Unstored::of(directory.object.id)) {
            (HIDDEN_DIRECTORY, _) => Some(Place::Hidden(ROOT_DIRECTORY)),
            (SNAPSHOT_DIRECTORY, _) => Some(Place::Snapshots),
            (_, Some(Unstored::Hidden(of))) => Some(Place::Hidden(of)),
            (_, Some(Unstored::Versions(of))) => Some(Place::Versions(of)),
            (_, Some(Unstored::Below(_))) => Some(Place::Shadow),
            _ => None,
        }
    }
}

/// Whether an object id is that of something here.
pub(crate) fn is_id(id: ObjectId) -> bool {
    id == HIDDEN_DIRECTORY || id == SNAPSHOT_DIRECTORY || Unstored::of(id).is_some()
}

/// Whether a name in a directory means the hidden directory, unless an entry has it.
pub(crate) fn is_name(directory: &Target, name: &[u8]) -> bool {
    name == NAME && !directory.is_unstored() && is_in(&directory.dataset)
}

/// Whether a dataset has hidden directories. A snapshot has none.
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

    /// Finds the target of a handle that names something that is on no disk.
    pub(crate) async fn unstored(
        &self,
        dataset: &Arc<Dataset>,
        (of, generation): (Unstored, u64),
    ) -> Result<Target, FsError> {
        match of {
            Unstored::Below(child) => self.shadow_of(dataset, (child, Guid(generation))),
            Unstored::AsOf(file) => self.version_in(dataset, file, generation).await,
            _ if !is_in(dataset) => Err(FsError::Stale),
            // That of the root directory has another handle.
            Unstored::Hidden(ROOT_DIRECTORY) => Err(FsError::Stale),
            Unstored::Hidden(of) => {
                let directory = self.stored(dataset, of).await?;
                let inode = directory.inode();
                let is_it = (inode.generation, inode.kind) == (generation, FileKind::Directory);
                match is_it && inode.nlink > 0 {
                    true => self.hidden_in(&directory),
                    false => Err(FsError::Stale),
                }
            }
            Unstored::Versions(file) => self.versions(dataset, file, generation).await,
            Unstored::FileSnapshot(id) => self.file_version(dataset, id, Guid(generation)),
            Unstored::Control(file) => {
                self.control_of(&self.versions(dataset, file, generation).await?, file)
            }
        }
    }

    /// `.aquifer` of a dataset's root directory, or the directory of its snapshots.
    pub(crate) async fn hidden(
        &self,
        dataset: &Arc<Dataset>,
        id: ObjectId,
    ) -> Result<Target, FsError> {
        match id {
            SNAPSHOT_DIRECTORY => self.list_of(dataset),
            HIDDEN_DIRECTORY => self.hidden_in(&self.stored(dataset, ROOT_DIRECTORY).await?),
            // Only a handle with its generation names other ones.
            _ => Err(FsError::Stale),
        }
    }

    /// `.aquifer` of a directory. It tells names of files there: to those to whom the directory
    /// does.
    fn hidden_in(&self, directory: &Target) -> Result<Target, FsError> {
        let Target { dataset, object, .. } = directory;
        if !is_in(dataset) {
            return Err(FsError::Stale);
        }
        let id = match object.id {
            ROOT_DIRECTORY => HIDDEN_DIRECTORY,
            other => Unstored::Hidden(other).id().ok_or(FsError::NotFound)?,
        };
        let above = directory.inode();
        let changed = self.changed(dataset);
        let at = changed.at.max(above.mtime);
        // At most: not all are files.
        let below = above.entries.saturating_add(u64::from(id == HIDDEN_DIRECTORY));
        let inode = Inode {
            mode: above.mode & 0o555,
            uid: above.uid,
            gid: above.gid,
            generation: if id == HIDDEN_DIRECTORY { 0 } else { above.generation },
            nlink: u32::try_from(below).unwrap_or(u32::MAX).saturating_add(2),
            entries: below,
            ctime: at.max(above.ctime),
            crtime: above.crtime,
            change: above.change.saturating_add(changed.txg.0),
            parent: above.object,
            ..directory_inode(id, at, 0)
        };
        Ok(Target::new(dataset, Object::new(dataset.id, inode)))
    }

    /// The directory of a dataset's snapshots.
    fn list_of(&self, dataset: &Arc<Dataset>) -> Result<Target, FsError> {
        if !is_in(dataset) {
            return Err(FsError::Stale);
        }
        let committed = self.pool.committed_txg();
        // Before the list: what it gets meanwhile shows as a change later.
        let changed = dataset.snapshots_changed(committed);
        let at = changed.at.max(dataset.created());
        let below = dataset.snapshots(committed).len();
        let inode = Inode {
            mode: control::mode(dataset),
            nlink: u32::try_from(below).unwrap_or(u32::MAX).saturating_add(2),
            entries: below as u64,
            crtime: dataset.created(),
            change: changed.txg.0,
            parent: HIDDEN_DIRECTORY,
            ..directory_inode(SNAPSHOT_DIRECTORY, at, 0)
        };
        Ok(Target::new(dataset, Object::new(dataset.id, inode)))
    }

    /// The last change of the snapshots of a dataset, of both kinds.
    fn changed(&self, dataset: &Dataset) -> ListChange {
        let committed = self.pool.committed_txg();
        let whole = dataset.snapshots_changed(committed);
        let files = dataset.file_snapshots_changed(committed);
        let at = whole.at.max(files.at).max(dataset.created());
        ListChange { txg: whole.txg.max(files.txg), at }
    }

    /// The directory above: above a snapshot's root directory lies `.aquifer/snapshot`.
    pub(crate) async fn parent(&self, directory: &Target) -> Result<Target, FsError> {
        let Target { dataset, object, .. } = directory;
        if dataset.snapshot().is_none() || object.id != ROOT_DIRECTORY {
            return self.object(dataset, directory.inode().parent).await;
        }
        match self.datasets.head_of(dataset.fs_guid).filter(|head| is_in(head)) {
            Some(head) => self.list_of(&head),
            None => Ok(directory.clone()),
        }
    }

    /// Finds a name that no stored entry has.
    pub(crate) async fn lookup_hidden(
        &self,
        cred: &Credentials,
        directory: &Target,
        name: &[u8],
    ) -> Result<Attributes, FsError> {
        let dataset = &directory.dataset;
        if is_name(directory, name) {
            return Ok(self.hidden_in(directory)?.attributes());
        }
        if let Some(shadow) = self.shadow_at(directory, name) {
            return Ok(shadow.attributes());
        }
        match Place::of(directory) {
            Some(Place::Hidden(ROOT_DIRECTORY)) if name == SNAPSHOT => {
                Ok(self.list_of(dataset)?.attributes())
            }
            Some(Place::Hidden(of)) => {
                let above = self.stored(dataset, of).await?;
                self.lookup_file(cred, &above, name).await
            }
            Some(Place::Snapshots) => {
                let mut snapshots = dataset.snapshots(self.pool.committed_txg()).into_iter();
                let found = snapshots.find(|snapshot| snapshot.record.name.as_bytes() == name);
                let found = found.ok_or(FsError::NotFound)?;
                self.snapshot_root(dataset, &found).await
            }
            Some(Place::Versions(file)) if name == CONTROL => {
                Ok(self.control_of(directory, file)?.attributes())
            }
            Some(Place::Versions(file)) => {
                let version = self.version(directory, file, name).await?;
                Ok(version.ok_or(FsError::NotFound)?.attributes())
            }
            Some(Place::Shadow) | None => Err(FsError::NotFound),
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
        let hidden = self.hidden_in(directory).ok().filter(|_| stored.is_none());
        Ok(hidden.map(|hidden| fixed(NAME, &hidden, with_attributes)))
    }

    /// Lists at most `limit` entries of a directory here after `cookie`, without `.` and `..`, and
    /// whether these are the last ones.
    pub(crate) async fn list_hidden(
        &self,
        cred: &Credentials,
        directory: &Target,
        (cookie, limit): (u64, usize),
        with_attributes: bool,
    ) -> Result<(Vec<DirectoryEntry>, bool), FsError> {
        match Place::of(directory) {
            Some(Place::Hidden(of)) => {
                let above = self.stored(&directory.dataset, of).await?;
                self.list_files(cred, &above, (cookie, limit), with_attributes).await
            }
            Some(Place::Versions(file)) => {
                Ok(self.list_versions(directory, file, (cookie, limit), with_attributes).await)
            }
            Some(Place::Shadow) => Ok((Vec::new(), true)),
            _ => Ok(self.list_snapshots(directory, (cookie, limit), with_attributes).await),
        }
    }

    async fn list_snapshots(
        &self,
        directory: &Target,
        (cookie, limit): (u64, usize),
        with_attributes: bool,
    ) -> (Vec<DirectoryEntry>, bool) {
        let dataset = &directory.dataset;
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
    pub(crate) fn tell_covered(&self, directory: &Target) {
        let dataset = &directory.dataset;
        let is_shown = dataset.snapshot_count() > 0 || dataset.file_snapshot_count() > 0;
        if is_shown && self.covered.lock().insert(dataset.fs_guid) {
            tracing::warn!(
                class = "snapshot.covered",
                pool = self.pool.name(),
                dataset = self.datasets.full_name(dataset),
                directory = %directory.object.id,
                "an entry with the name .aquifer hides snapshots from clients: rename it"
            );
        }
    }
}

/// The entry of what has a fixed name.
fn fixed(name: &[u8], target: &Target, with_attributes: bool) -> DirectoryEntry {
    let attributes = target.attributes();
    DirectoryEntry {
        cookie: COOKIE,
        name: name.to_vec(),
        handle: attributes.handle,
        kind: attributes.kind,
        attributes: with_attributes.then_some(attributes),
    }
}
