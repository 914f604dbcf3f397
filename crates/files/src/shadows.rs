//! Datasets below one, as directories in its top directory.
//!
//! A client that mounts `/tank` sees `iso` there, if `tank/iso` is a dataset: an empty directory
//! that nobody changes, as the mount point of a file system is to clients of the one above. A
//! client that mounts `/tank/iso` gets the dataset. No handle of one file system leads into another
//! one, so each export decides alone who reads and writes a dataset.
//!
//! Invariants:
//! - Such a directory is on no disk ([`Unstored::Below`]). Its generation is the dataset's guid, so
//!   the handle of a dataset that is gone, or has moved, is stale.
//! - Its cookie is the last key that its name could have as an entry. So listings go on in order.
//! - An entry of the same name, which a pool may have from before, goes before.

use std::sync::Arc;

use aquifer_dataset::{Dataset, ROOT_DIRECTORY, directory_inode};
use aquifer_object::Object;
use aquifer_ondisk::dirent::{COLLISIONS_MAX, hash_key};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::unstored::Unstored;
use aquifer_ondisk::{DatasetId, Guid};

use crate::core::{Files, Target};
use crate::error::FsError;
use crate::types::{Credentials, DirectoryEntry, FileHandle};

/// The guid of the dataset that a directory shows to clients of the one above it; `None`: it is
/// another object.
pub fn dataset_below(handle: FileHandle) -> Option<Guid> {
    match Unstored::of(handle.object) {
        Some(Unstored::Below(_)) => Some(Guid(handle.generation)),
        _ => None,
    }
}

fn has_shadows(directory: &Target) -> bool {
    directory.object.id == ROOT_DIRECTORY && directory.dataset.snapshot().is_none()
}

/// The directory that shows a dataset.
fn shadow(above: &Arc<Dataset>, child: &Dataset) -> Option<Target> {
    let inode = Inode {
        mode: 0o555,
        generation: child.fs_guid.0,
        nlink: 2,
        parent: ROOT_DIRECTORY,
        ..directory_inode(Unstored::Below(child.id).id()?, child.created(), 0)
    };
    Some(Target::new(above, Object::new(above.id, inode)))
}

impl Files {
    /// The directory that shows a dataset in the one above it, by its handle.
    pub(crate) fn shadow_of(
        &self,
        above: &Arc<Dataset>,
        (child, guid): (DatasetId, Guid),
    ) -> Result<Target, FsError> {
        let known = self.datasets.children(above).into_iter();
        let child = known.into_iter().find(|of| (of.id, of.fs_guid) == (child, guid));
        child.and_then(|child| shadow(above, &child)).ok_or(FsError::Stale)
    }

    /// The directory of a name that no entry has.
    pub(crate) fn shadow_at(&self, directory: &Target, name: &[u8]) -> Option<Target> {
        if !has_shadows(directory) {
            return None;
        }
        let child = self.datasets.child(&directory.dataset, name)?;
        shadow(&directory.dataset, &child)
    }

    /// Adds the datasets below to entries of a directory behind a cookie, of which at most `room`
    /// stay. `eof`: the entries are its last ones. Returns whether what is left is.
    pub(crate) async fn with_shadows(
        &self,
        directory: &Target,
        (cookie, room): (u64, usize),
        (mut entries, eof): (Vec<DirectoryEntry>, bool),
        with_attributes: bool,
    ) -> Result<(Vec<DirectoryEntry>, bool), FsError> {
        if !has_shadows(directory) {
            return Ok((entries, eof));
        }
        let upto = entries.last().filter(|_| !eof).map_or(u64::MAX, |last| last.cookie);
        let seed = directory.inode().hash_seed;
        for child in self.datasets.children(&directory.dataset) {
            let name = child.name().into_bytes();
            let key = hash_key(seed, &name) + (COLLISIONS_MAX - 1);
            if key <= cookie || key > upto {
                continue;
            }
            // As root: the caller may list the directory.
            let stored = self.find(&Credentials::root(), directory, &name).await?.entry;
            let Some(shadow) = shadow(&directory.dataset, &child).filter(|_| stored.is_none())
            else {
                continue;
            };
            let attributes = shadow.attributes();
            entries.push(DirectoryEntry {
                cookie: key,
                name,
                handle: attributes.handle,
                kind: FileKind::Directory,
                attributes: with_attributes.then_some(attributes),
            });
        }
        entries.sort_by_key(|entry| entry.cookie);
        let is_cut = entries.len() > room;
        entries.truncate(room);
        Ok((entries, eof && !is_cut))
    }
}
