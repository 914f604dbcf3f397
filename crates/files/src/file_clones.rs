//! Clones of files by their names: `clone tank/vms:gold.vhd@v1 tank/vms:web07/disk.vhd`.
//!
//! The datasets make clones without names ([`aquifer_dataset::FileClones`]). Each then gets its
//! name by a change like a client's, with its record in the log. What gets none is freed.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_dataset::sync::orphan_key;
use aquifer_dataset::{Called, Dataset, FILE_CLONES_MAX, FileClones, FileVersion, ORPHANS};
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::shown_name::{meant, shown};
use aquifer_pool::SpaceClass;

use crate::change::Change;
use crate::core::{Files, Target, lock_all};
use crate::error::FsError;
use crate::file_snapshots::FileNameError;
use crate::made::Promised;
use crate::ops::create::touched;
use crate::ops::names::{check_name, is_dot};
use crate::subject::{FilePlace, FileSnapshotNames, SubjectError};
use crate::types::Credentials;

/// A name that a clone is to get.
pub(crate) struct Wanted {
    /// As it was given.
    text: String,
    directory: Target,
    name: Vec<u8>,
}

impl Files {
    /// Clones a file as of a snapshot of it or of its dataset, under each of these names in one
    /// dataset, the same or another one. They are on disk when this returns.
    ///
    /// # Errors
    /// A snapshot that is none, names that exist, or whose directories do not, or that are of
    /// several datasets; a read-only dataset, one without room; or as
    /// [`aquifer_dataset::Datasets::clone_file`]. Unless the error says otherwise, none was made.
    pub async fn clone_file(
        &self,
        from: &FileSnapshotNames,
        to: &[FilePlace],
    ) -> Result<(), FileNameError> {
        let (origin, mut found) = self.file_versions(from).await?;
        let from = from.text();
        let (_, version) = found.pop().ok_or_else(|| FileNameError::NoSnapshot(from.into()))?;
        if !found.is_empty() {
            return Err(FileNameError::ManySnapshots(from.into()));
        }
        let Some(first) = to.first() else { return Ok(()) };
        let dataset = first.dataset.clone();
        if dataset.is_standby() {
            return Err(FileNameError::clone(from, FsError::ReadOnly));
        }
        if to.len() > FILE_CLONES_MAX {
            return Err(FileNameError::TooManyClones(to.len()));
        }
        let (mut wanted, mut names) = (Vec::new(), BTreeSet::new());
        for place in to {
            let new = self.wanted(&dataset, place).await?;
            if !names.insert((new.directory.object.id, new.name.clone())) {
                return Err(FileNameError::Twice(place.text.clone()));
            }
            wanted.push(new);
        }
        self.clone_as((&origin, version), &dataset, from, &wanted, None).await
    }

    /// Clones a version of a file for a call, under this path from the root directory of
    /// its dataset on.
    ///
    /// # Errors
    /// As [`Files::clone_file`]; or the caller gave up before the clone got its name.
    pub(crate) async fn clone_file_for(
        &self,
        called: &Called,
        version: FileVersion,
        path: &[Vec<u8>],
    ) -> Result<(), FileNameError> {
        let dataset = called.dataset();
        let shown: Vec<String> = path.iter().map(|part| shown(part)).collect();
        let text = format!("{}:{}", self.datasets.full_name(dataset), shown.join("/"));
        let wanted = [self.wanted_at(dataset, &text, path).await?];
        self.clone_as((dataset, version), dataset, &text, &wanted, Some(called)).await
    }

    async fn clone_as(
        &self,
        origin: (&Arc<Dataset>, FileVersion),
        dataset: &Arc<Dataset>,
        from: &str,
        wanted: &[Wanted],
        by: Option<&Called>,
    ) -> Result<(), FileNameError> {
        let quota = self.datasets.check_quota(dataset).await;
        quota.map_err(|refused| FileNameError::clone(from, FsError::from(refused)))?;
        let clones = self.datasets.clone_file(dataset, origin, wanted.len()).await?;
        self.name_clones(dataset, clones, from, wanted, by).await
    }

    /// Gives files that were made without names their names. They are on disk when this returns.
    pub(crate) async fn name_clones(
        &self,
        dataset: &Arc<Dataset>,
        mut clones: FileClones<'_>,
        from: &str,
        wanted: &[Wanted],
        by: Option<&Called>,
    ) -> Result<(), FileNameError> {
        let mut last = None;
        for (made, (object, new)) in clones.objects().into_iter().zip(wanted).enumerate() {
            let named = async {
                let clone = self.object(dataset, object).await?;
                self.give_name(dataset, &clone, new, by).await
            };
            match named.await {
                Ok(promised) => last = Some(promised),
                Err(error) => {
                    let of = wanted.len();
                    return Err(FileNameError::NotNamed {
                        name: new.text.clone(),
                        error,
                        made,
                        of,
                    });
                }
            }
            clones.named(object);
        }
        // Records become durable in their order.
        let kept = match last {
            Some(promised) => promised.kept().await,
            None => Ok(()),
        };
        kept.map_err(|error| FileNameError::clone(from, error))?;
        if !dataset.is_logged(&self.pool) {
            self.pool.sync().await?;
        }
        Ok(())
    }

    /// Looks for the directory of a name that is to be made.
    pub(crate) async fn wanted(
        &self,
        dataset: &Arc<Dataset>,
        FilePlace { text, dataset: of, parts }: &FilePlace,
    ) -> Result<Wanted, FileNameError> {
        if of.id != dataset.id {
            return Err(FileNameError::OtherDataset(text.clone()));
        }
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| meant(part)).collect();
        self.wanted_at(dataset, text, &parts).await
    }

    async fn wanted_at(
        &self,
        dataset: &Arc<Dataset>,
        text: &str,
        parts: &[Vec<u8>],
    ) -> Result<Wanted, FileNameError> {
        let error = |error| FileNameError::clone(text, error);
        let root = Credentials::root();
        let Some((name, above)) = parts.split_last() else {
            return Err(SubjectError::NoPlace(text.into()).into());
        };
        check_name(name).map_err(error)?;
        if is_dot(name) {
            return Err(error(FsError::Exists));
        }
        let directory = self.directory_at(dataset, above).await.map_err(error)?;
        let directory = directory.ok_or_else(|| FileNameError::NoDirectory(text.into()))?;
        self.check_directory(&directory).map_err(error)?;
        if self.find(&root, &directory, name).await.map_err(error)?.entry.is_some() {
            return Err(error(FsError::Exists));
        }
        Ok(Wanted { text: text.into(), directory, name: name.clone() })
    }

    /// Gives a clone its name.
    async fn give_name(
        &self,
        dataset: &Arc<Dataset>,
        clone: &Target,
        Wanted { directory, name, .. }: &Wanted,
        by: Option<&Called>,
    ) -> Result<Promised, FsError> {
        let orphans = self.orphans(dataset).await?;
        let admission =
            self.admit_names(dataset, (SpaceClass::Write, self.lane(directory))).await?;
        let locks = lock_all(&[&directory.object, &clone.object, &orphans]).await;
        let (old, mut inode) = (directory.inode(), clone.inode());
        if old.nlink == 0 {
            return Err(FsError::Stale);
        }
        let root = Credentials::root();
        let found = self.find(&root, directory, name).await?;
        if found.entry.is_some() {
            return Err(FsError::Exists);
        }
        let now = self.now();
        inode.nlink = 1;
        // Of one that comes back, clients saw changes until it was removed from there.
        inode = inode.at_least(old.change, old.ctime);
        inode.touch(now.max(inode.ctime));
        let mut parent = touched(&old, now);
        parent.entry_added();
        let entry = Dirent {
            key: found.free_key?,
            object: inode.object,
            generation: inode.generation,
            kind: inode.kind,
            name: name.clone(),
        };
        let changes = [
            Change::Drop(ORPHANS, orphan_key(inode.object)),
            Change::Inode(inode),
            Change::Entry(directory.object.id, entry),
            Change::Inode(parent),
        ];
        // The call is in the record of the name. Before, there is no clone.
        let cred = Credentials { call: by.and_then(Called::call), ..root };
        let made = || self.change(&cred, (dataset, None), admission, &changes);
        let promised = match by {
            Some(called) => called.while_waited_for(made)??,
            None => made()?,
        };
        drop(locks);
        Ok(promised)
    }
}
