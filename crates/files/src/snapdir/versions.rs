//! `.aquifer/FILE`: a file as of each snapshot that covers it.
//!
//! First those of the file itself, then those of its dataset. A file is its object, under whatever
//! names: so they are there after a rename, and those of the file itself also when it is removed,
//! under the name that it had.
//!
//! # Invariants
//! - A version is a file of its own: no two have the same file system and file id, and the live
//!   file has other ones. No client takes one for another.
//! - A name means the snapshot of the file before that of the dataset, and `control` neither.
//! - No version changes.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;

use aquifer_dataset::{Dataset, FileSnapshot, ROOT_DIRECTORY, Snapshot, directory_inode};
use aquifer_object::Object;
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::shown_name::{meant, shown};
use aquifer_ondisk::types::HIDDEN_DIRECTORY;
use aquifer_ondisk::unstored::Unstored;
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_pool::Parts;

use super::{CONTROL, COOKIE, SNAPSHOT, control, fixed, is_in};
use crate::core::{Files, Target, require};
use crate::error::FsError;
use crate::types::{Attributes, Credentials, DirectoryEntry, FileHandle};

/// Cookies of snapshots of the dataset are this and their txg: behind those of the file itself.
const OF_DATASET: u64 = 1 << 60;
/// Paths of removed files that a lookup tries. Each costs a walk down.
const PATHS_MAX: usize = 64;

impl Files {
    /// The directory of the versions of a file, which may be gone if a snapshot of it is not.
    pub(super) async fn versions(
        &self,
        dataset: &Arc<Dataset>,
        file: ObjectId,
        generation: u64,
    ) -> Result<Target, FsError> {
        let id = Unstored::Versions(file).id().ok_or(FsError::NotFound)?;
        // Before the list: what it gets meanwhile shows as a change later.
        let changed = self.changed(dataset);
        if self.own(dataset, file, generation).is_empty() {
            let live = self.stored(dataset, file).await?.inode();
            if live.generation != generation || live.nlink == 0 || live.kind != FileKind::Regular {
                return Err(FsError::Stale);
            }
        }
        let inode = Inode {
            mode: control::mode(dataset),
            generation,
            crtime: dataset.created(),
            change: changed.txg.0,
            parent: HIDDEN_DIRECTORY,
            ..directory_inode(id, changed.at, 0)
        };
        Ok(Target::new(dataset, Object::new(dataset.id, inode)))
    }

    /// The snapshots of a file itself, in order.
    pub(super) fn own(
        &self,
        dataset: &Dataset,
        file: ObjectId,
        generation: u64,
    ) -> Vec<Arc<FileSnapshot>> {
        let mut all = dataset.file_snapshots_of(file, self.pool.committed_txg());
        all.retain(|of| of.record.inode.generation == generation);
        all
    }

    /// A file as of a snapshot of it.
    pub(super) fn file_version(
        &self,
        dataset: &Arc<Dataset>,
        id: FileSnapshotId,
        guid: Guid,
    ) -> Result<Target, FsError> {
        let known = dataset.file_snapshot(id, self.pool.committed_txg());
        let known = known.filter(|of| of.record.guid == guid).ok_or(FsError::Stale)?;
        let object = self.datasets.file_view(dataset, id).ok_or(FsError::Stale)?;
        let shown = handle_of(dataset, &known);
        Ok(Target { dataset: dataset.clone(), object, shown: Some(shown.ok_or(FsError::Stale)?) })
    }

    /// A file as of a snapshot of its dataset, which `view` shows.
    pub(super) async fn version_in(
        &self,
        view: &Arc<Dataset>,
        file: ObjectId,
        generation: u64,
    ) -> Result<Target, FsError> {
        if view.snapshot().is_none() {
            return Err(FsError::Stale);
        }
        let target = self.stored(view, file).await?;
        let then = target.inode();
        if then.generation != generation || then.nlink == 0 || then.kind != FileKind::Regular {
            return Err(FsError::Stale);
        }
        let object = Unstored::AsOf(file).id().ok_or(FsError::Stale)?;
        let shown = FileHandle { fs_guid: view.fs_guid, object, generation };
        Ok(Target { shown: Some(shown), ..target })
    }

    /// Finds a file as of a snapshot that a dataset lists; `None` if the snapshot does not show the
    /// file.
    async fn as_of(
        &self,
        dataset: &Dataset,
        snapshot: &Snapshot,
        (file, generation): (ObjectId, u64),
    ) -> Result<Option<Target>, FsError> {
        let Some(view) = self.datasets.view(dataset, snapshot) else { return Ok(None) };
        match self.version_in(&view, file, generation).await {
            Err(FsError::Stale) => Ok(None),
            version => version.map(Some),
        }
    }

    /// The version of a file that a name means.
    pub(super) async fn version(
        &self,
        directory: &Target,
        file: ObjectId,
        name: &[u8],
    ) -> Result<Option<Target>, FsError> {
        let (dataset, generation) = (&directory.dataset, directory.inode().generation);
        let own = self.own(dataset, file, generation);
        if let Some(of) = own.iter().find(|of| of.record.name.as_bytes() == name) {
            return self.file_version(dataset, of.id, of.record.guid).map(Some);
        }
        let all = dataset.snapshots(self.pool.committed_txg());
        match all.iter().find(|snapshot| snapshot.record.name.as_bytes() == name) {
            Some(snapshot) => self.as_of(dataset, snapshot, (file, generation)).await,
            None => Ok(None),
        }
    }

    pub(super) async fn list_versions(
        &self,
        directory: &Target,
        file: ObjectId,
        (cookie, limit): (u64, usize),
        with_attributes: bool,
    ) -> (Vec<DirectoryEntry>, bool) {
        let (dataset, generation) = (&directory.dataset, directory.inode().generation);
        let own = self.own(dataset, file, generation);
        let names: HashSet<&str> = own.iter().map(|of| of.record.name.as_str()).collect();
        let left = own.iter().filter(|of| of.id.0 > cookie && of.record.name.as_bytes() != CONTROL);
        let control = self.control_of(directory, file).ok().filter(|_| cookie < COOKIE);
        let own_entries = left.take(limit.saturating_add(1)).filter_map(|of| {
            let target = || self.file_version(dataset, of.id, of.record.guid).ok();
            Some(DirectoryEntry {
                cookie: of.id.0,
                name: of.record.name.clone().into_bytes(),
                handle: handle_of(dataset, of)?,
                kind: FileKind::Regular,
                attributes: with_attributes
                    .then(target)
                    .flatten()
                    .map(|target| target.attributes()),
            })
        });
        let control = control.map(|control| fixed(CONTROL, &control, with_attributes));
        let mut list: Vec<DirectoryEntry> = control.into_iter().chain(own_entries).collect();
        let cookie_of = |snapshot: &Snapshot| OF_DATASET | snapshot.txg.0;
        let mut whole = dataset.snapshots(self.pool.committed_txg());
        whole.retain(|of| {
            let name = of.record.name.as_str();
            cookie_of(of) > cookie && !names.contains(name) && name.as_bytes() != CONTROL
        });
        let mut whole = whole.iter();
        // One more than wanted, to see whether the end is reached.
        while list.len() <= limit {
            let some: Vec<_> = whole.by_ref().take(limit + 1 - list.len()).collect();
            if some.is_empty() {
                return (list, true);
            }
            let looked_up = some.iter().map(|of| self.as_of(dataset, of, (file, generation)));
            for (of, version) in some.iter().zip(join_all(looked_up).await) {
                // One that cannot be read is left out; LOOKUP says why.
                let Ok(Some(version)) = version else { continue };
                let attributes = version.attributes();
                list.push(DirectoryEntry {
                    cookie: cookie_of(of),
                    name: of.record.name.clone().into_bytes(),
                    handle: attributes.handle,
                    kind: FileKind::Regular,
                    attributes: with_attributes.then_some(attributes),
                });
            }
        }
        list.truncate(limit);
        (list, false)
    }

    /// The versions of a file of a directory, by the name that it has or had there.
    pub(super) async fn lookup_file(
        &self,
        cred: &Credentials,
        above: &Target,
        name: &[u8],
    ) -> Result<Attributes, FsError> {
        let (file, generation) = match self.find(cred, above, name).await?.entry {
            Some(entry) if entry.kind == FileKind::Regular => (entry.object, entry.generation),
            Some(_) => return Err(FsError::NotFound),
            None => self.removed(above, name).await?.ok_or(FsError::NotFound)?,
        };
        self.note_place(&above.dataset, file, (above.object.id, name));
        match self.versions(&above.dataset, file, generation).await {
            // Removed a moment ago.
            Err(FsError::Stale) => Err(FsError::NotFound),
            versions => Ok(versions?.attributes()),
        }
    }

    /// A file that had this name in a directory when a snapshot of it was taken: the last one.
    async fn removed(
        &self,
        above: &Target,
        name: &[u8],
    ) -> Result<Option<(ObjectId, u64)>, FsError> {
        let last = shown(name);
        let all = above.dataset.file_snapshots_at(&last, self.pool.committed_txg());
        let mut tried: HashSet<&str> = HashSet::new();
        for of in all.iter().rev() {
            let path = of.record.path.strip_suffix(last.as_str()).unwrap_or_default();
            if tried.len() >= PATHS_MAX || !tried.insert(path) {
                continue;
            }
            if self.is_path_of(above, path).await? {
                return Ok(Some((of.object(), of.record.inode.generation)));
            }
        }
        Ok(None)
    }

    /// Whether a path, as it is shown, is that of a directory.
    async fn is_path_of(&self, directory: &Target, path: &str) -> Result<bool, FsError> {
        let parts: Vec<Vec<u8>> =
            path.split('/').filter(|part| !part.is_empty()).map(meant).collect();
        match self.directory_at(&directory.dataset, &parts).await {
            Err(FsError::Stale) => Ok(false),
            found => Ok(found?.is_some_and(|found| found.object.id == directory.object.id)),
        }
    }

    /// Lists the files of a directory, each as the directory of its versions.
    pub(super) async fn list_files(
        &self,
        cred: &Credentials,
        above: &Target,
        (mut cookie, limit): (u64, usize),
        with_attributes: bool,
    ) -> Result<(Vec<DirectoryEntry>, bool), FsError> {
        require(cred, &above.inode(), 4)?;
        let (dataset, is_root) = (&above.dataset, above.object.id == ROOT_DIRECTORY);
        let mut list = Vec::new();
        if is_root && cookie < COOKIE && limit > 0 {
            list.push(fixed(SNAPSHOT, &self.list_of(dataset)?, with_attributes));
        }
        let mut parts = Parts::default();
        loop {
            let room = limit - list.len();
            let (entries, eof) = self.list_stored(above, cookie, room, false).await?;
            cookie = entries.last().map_or(cookie, |last| last.cookie);
            let files = entries.into_iter().filter(|entry| {
                entry.kind == FileKind::Regular && !(is_root && entry.name == SNAPSHOT)
            });
            for entry in files {
                let FileHandle { object: file, generation, .. } = entry.handle;
                let Some(object) = Unstored::Versions(file).id() else { continue };
                let versions = match with_attributes {
                    true => self.versions(dataset, file, generation).await.ok(),
                    false => None,
                };
                list.push(DirectoryEntry {
                    handle: FileHandle { object, ..entry.handle },
                    kind: FileKind::Directory,
                    attributes: versions.map(|versions| versions.attributes()),
                    ..entry
                });
            }
            if eof || list.len() >= limit {
                return Ok((list, eof));
            }
            parts.step(&self.pool).await;
        }
    }
}

/// The handle of a file as of a snapshot of it.
fn handle_of(dataset: &Dataset, of: &FileSnapshot) -> Option<FileHandle> {
    let object = Unstored::FileSnapshot(of.id).id().filter(|_| is_in(dataset))?;
    Some(FileHandle { fs_guid: dataset.fs_guid, object, generation: of.record.guid.0 })
}
