//! REMOVE and RMDIR.

use aquifer_dataset::sync::{orphan_entry, orphan_key};
use aquifer_dataset::{Dataset, ORPHANS};
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_pool::SpaceClass;

use crate::change::Change;
use crate::core::{Files, Target, attributes, before, lock_all, require, unchanged};
use crate::error::FsError;
use crate::made::{Made, Promised};
use crate::ops::create::touched;
use crate::ops::names::{check_name, is_dot};
use crate::snapdir;
use crate::types::{Around, Credentials, FileHandle};

impl Files {
    /// Removes a name that is not a directory's.
    pub async fn remove(&self, cred: &Credentials, dir: FileHandle, name: &[u8]) -> Made<()> {
        match snapdir::is_versions(dir) {
            true => Box::pin(self.destroy_version(cred, dir, name)).await,
            false => self.remove_any(cred, dir, name, false).await,
        }
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, cred: &Credentials, dir: FileHandle, name: &[u8]) -> Made<()> {
        match self.list_of_snapshots(dir) {
            Some(list) => Box::pin(self.destroy_snapshot(cred, &list, name)).await,
            None => self.remove_any(cred, dir, name, true).await,
        }
    }

    async fn remove_any(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        name: &[u8],
        directory_wanted: bool,
    ) -> Made<()> {
        let directory = match self.directory(dir).await {
            Ok(directory) => directory,
            Err(error) => return Made::failed(error, Around::default()),
        };
        let removed = self.remove_from(cred, &directory, name, directory_wanted).await;
        Made::new(removed, || unchanged(&directory))
    }

    async fn remove_from(
        &self,
        cred: &Credentials,
        directory: &Target,
        name: &[u8],
        directory_wanted: bool,
    ) -> Result<((), Around, Promised), FsError> {
        check_name(name)?;
        if is_dot(name) {
            let inside = name == b".." && directory_wanted;
            return Err(if inside { FsError::NotEmpty } else { FsError::Invalid });
        }
        self.check_directory(directory)?;
        let orphans = self.orphans(&directory.dataset).await?;
        let admission = self
            .admit_names(&directory.dataset, (SpaceClass::Remove, self.lane(directory)))
            .await?;
        loop {
            let entry = self.find(cred, directory, name).await?.entry;
            let entry = entry.ok_or_else(|| self.no_entry(directory, name))?;
            let target = self.object(&directory.dataset, entry.object).await?;
            let locks = lock_all(&[&directory.object, &target.object, &orphans]).await;
            let old = directory.inode();
            if old.nlink == 0 {
                return Err(FsError::Stale);
            }
            let found = self.find(cred, directory, name).await?.entry;
            let found = found.ok_or_else(|| self.no_entry(directory, name))?;
            if found.object != entry.object {
                continue;
            }
            let inode = target.inode();
            require(cred, &old, 3)?;
            check_sticky(cred, &old, &inode)?;
            let is_directory = inode.kind == FileKind::Directory;
            match (is_directory, directory_wanted) {
                (true, false) => return Err(FsError::IsDirectory),
                (false, true) => return Err(FsError::NotDirectory),
                (true, true) if inode.entries > 0 => return Err(FsError::NotEmpty),
                _ => {}
            }
            let now = self.now();
            let mut parent = touched(&old, now);
            parent.entry_removed();
            if is_directory {
                parent.nlink = parent.nlink.saturating_sub(1);
            }
            let mut changes = vec![Change::Drop(directory.object.id, entry.key)];
            changes.push(Change::Inode(parent));
            changes.extend(unlink(&inode, now));
            let promised = self.change(cred, (&directory.dataset, None), admission, &changes)?;
            let after = attributes(&directory.dataset, &directory.inode());
            drop(locks);
            return Ok(((), Around { before: Some(before(&old)), after: Some(after) }, promised));
        }
    }
}

/// In a sticky directory only the owners of file and directory may remove a name.
pub(crate) fn check_sticky(
    cred: &Credentials,
    directory: &Inode,
    inode: &Inode,
) -> Result<(), FsError> {
    let sticky = directory.mode & 0o1000 != 0;
    let owner = cred.uid == 0 || cred.uid == inode.uid || cred.uid == directory.uid;
    if sticky && !owner { Err(FsError::AccessDenied) } else { Ok(()) }
}

/// Changes of an object that loses a name. An object that loses its last name goes on the list of
/// orphans, which a background task frees.
pub(crate) fn unlink(inode: &Inode, now: Time) -> Vec<Change> {
    let mut left = inode.clone();
    left.touch(now);
    let last = inode.kind == FileKind::Directory || inode.nlink <= 1;
    left.nlink = if last { 0 } else { inode.nlink - 1 };
    let mut changes = Vec::new();
    if last {
        changes.push(Change::Entry(ORPHANS, orphan_entry(&left)));
        debug_assert_eq!(orphan_entry(&left).key, orphan_key(left.object));
    }
    changes.push(Change::Inode(left));
    changes
}

/// Fails unless both are the same dataset.
pub(crate) fn same_dataset(left: &Dataset, right: &Dataset) -> Result<(), FsError> {
    // A snapshot shares the id of its dataset, and one that stands by the guid of another.
    match (left.id, left.fs_guid) == (right.id, right.fs_guid) {
        true => Ok(()),
        false => Err(FsError::CrossDevice),
    }
}
