//! LINK.

use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::FileKind;
use aquifer_pool::SpaceClass;

use crate::change::Change;
use crate::core::{Files, Target, attributes, before, lock_all, require, unchanged};
use crate::error::FsError;
use crate::limits::LINKS_MAX;
use crate::made::{Made, Promised};
use crate::ops::create::touched;
use crate::ops::names::{check_name, is_dot};
use crate::ops::remove::same_dataset;
use crate::types::{Around, Attributes, Credentials, FileHandle};

impl Files {
    /// Makes a hard link. Returns the file's attributes afterwards, and those around the directory.
    pub async fn link(
        &self,
        cred: &Credentials,
        file: FileHandle,
        dir: FileHandle,
        name: &[u8],
    ) -> Made<(), (Option<Attributes>, Around)> {
        let target = match self.target(file).await {
            Ok(target) => target,
            Err(error) => return Made::failed(error, (None, Around::default())),
        };
        let directory = match self.directory(dir).await {
            Ok(directory) => directory,
            Err(error) => {
                return Made::failed(error, (Some(target.attributes()), Around::default()));
            }
        };
        let linked = self.link_in(cred, &target, &directory, name).await;
        let linked =
            linked.map(|(around, promised)| ((), (Some(target.attributes()), around), promised));
        Made::new(linked, || (Some(target.attributes()), unchanged(&directory)))
    }

    async fn link_in(
        &self,
        cred: &Credentials,
        target: &Target,
        directory: &Target,
        name: &[u8],
    ) -> Result<(Around, Promised), FsError> {
        check_name(name)?;
        if is_dot(name) {
            return Err(FsError::Exists);
        }
        same_dataset(&target.dataset, &directory.dataset)?;
        if target.is_unstored() {
            return Err(FsError::CrossDevice);
        }
        self.check_directory(directory)?;
        if target.object.kind() == FileKind::Directory {
            return Err(FsError::NotPermitted);
        }
        let admission =
            self.admit_names(&directory.dataset, (SpaceClass::Write, self.lane(directory))).await?;
        let locks = lock_all(&[&target.object, &directory.object]).await;
        let (old, mut inode) = (directory.inode(), target.inode());
        if old.nlink == 0 || inode.nlink == 0 {
            return Err(FsError::Stale);
        }
        require(cred, &old, 3)?;
        let found = self.find(cred, directory, name).await?;
        if found.entry.is_some() {
            return Err(FsError::Exists);
        }
        let key = found.free_key?;
        if inode.nlink >= LINKS_MAX {
            return Err(FsError::TooManyLinks);
        }
        let now = self.now();
        inode.nlink += 1;
        inode.touch(now);
        let mut parent = touched(&old, now);
        parent.entry_added();
        let entry = Dirent {
            key,
            object: inode.object,
            generation: inode.generation,
            kind: inode.kind,
            name: name.to_vec(),
        };
        let changes = [
            Change::Inode(inode),
            Change::Entry(directory.object.id, entry),
            Change::Inode(parent),
        ];
        let promised = self.change(cred, (&directory.dataset, None), admission, &changes)?;
        let after = attributes(&directory.dataset, &directory.inode());
        drop(locks);
        Ok((Around { before: Some(before(&old)), after: Some(after) }, promised))
    }
}
