//! Names in directories: finding them, and the keys that they are stored under.

use std::sync::Arc;

use aquifer_dataset::{Dataset, ROOT_DIRECTORY};
use aquifer_ondisk::dirent::{COLLISIONS_MAX, Dirent, NAME_BYTES_MAX, hash_key};
use aquifer_ondisk::inode::FileKind;

use crate::core::{Files, Target, require};
use crate::error::FsError;
use crate::snapdir;
use crate::types::Credentials;

/// A name, and the place where it is or would be stored.
pub(crate) struct Found {
    /// The entry, if the name exists.
    pub entry: Option<Dirent>,
    /// A free key for it, if it does not, or why a new entry cannot have it.
    pub free_key: Result<u64, FsError>,
}

/// Whether a client may give this name to something.
pub(crate) fn check_name(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(FsError::Invalid);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    Ok(())
}

pub(crate) fn is_dot(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

impl Files {
    /// The directory of a path from the root directory of a dataset on; `None` if there is none.
    pub(crate) async fn directory_at(
        &self,
        dataset: &Arc<Dataset>,
        path: &[Vec<u8>],
    ) -> Result<Option<Target>, FsError> {
        let mut directory = self.stored(dataset, ROOT_DIRECTORY).await?;
        for part in path {
            let found = self.find(&Credentials::root(), &directory, part).await?.entry;
            let Some(entry) = found.filter(|entry| entry.kind == FileKind::Directory) else {
                return Ok(None);
            };
            directory = self.stored(dataset, entry.object).await?;
        }
        Ok(Some(directory))
    }

    /// Looks up a name in a directory, and a free key for it. A caller without search permission
    /// learns no name.
    pub(crate) async fn find(
        &self,
        cred: &Credentials,
        directory: &Target,
        name: &[u8],
    ) -> Result<Found, FsError> {
        let seed = {
            let state = directory.object.state.lock();
            require(cred, &state.inode, 1)?;
            state.inode.hash_seed
        };
        let base = hash_key(seed, name);
        let last = base + (COLLISIONS_MAX - 1);
        let limit = usize::try_from(COLLISIONS_MAX).unwrap_or(usize::MAX);
        let entries = directory.object.read_entries(&self.pool, base, last, limit).await;
        let entries = match entries {
            Err(error) => {
                let Target { dataset, object, .. } = directory;
                return Err(self.unreadable_object(dataset, object.id, error).await);
            }
            Ok(entries) => entries,
        };
        let taken = |key: u64| entries.iter().any(|entry| entry.key == key);
        let entry = entries.iter().find(|entry| entry.name == name).cloned();
        let is_other = entry.is_none()
            && (snapdir::is_name(directory, name) || self.is_dataset(directory, name));
        let free_key = match is_other {
            true => Err(FsError::Exists),
            false => (base..=last).find(|key| !taken(*key)).ok_or(FsError::NoSpace),
        };
        Ok(Found { entry, free_key })
    }

    /// Why what no entry has cannot be removed or moved: clients see datasets below, which are not
    /// theirs to take.
    pub(crate) fn no_entry(&self, directory: &Target, name: &[u8]) -> FsError {
        match self.is_dataset(directory, name) {
            true => FsError::NotPermitted,
            false => FsError::NotFound,
        }
    }

    /// Whether a name in a directory is that of a dataset below its own.
    fn is_dataset(&self, directory: &Target, name: &[u8]) -> bool {
        let Target { dataset, object, .. } = directory;
        object.id == ROOT_DIRECTORY
            && dataset.snapshot().is_none()
            && self.datasets.is_dataset_below(dataset.id, name)
    }
}
