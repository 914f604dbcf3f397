//! Rollback of files by their names: of those that are there, in place, and of a removed one.
//!
//! A removed file comes back under the path that names its snapshot, with its own id and
//! generation, so with its own handle ([`Datasets::return_file`]). It gets that name by a change
//! like a client's, as a clone does ([`crate::file_clones`]).
//!
//! [`Datasets::return_file`]: aquifer_dataset::Datasets::return_file

use std::sync::Arc;

use aquifer_dataset::{Dataset, DatasetError, FileVersion, RollbackOptions};

use crate::core::Files;
use crate::error::FsError;
use crate::file_snapshots::FileNameError;
use crate::subject::{FilePlace, FileSnapshotNames};

impl Files {
    /// Rolls files back, each to a version of it ([`Files::file_versions`] of these names). If they
    /// name one file by its path, and that was removed, it comes back. On disk when this
    /// returns. Returns the full names of the snapshots that it destroyed.
    ///
    /// # Errors
    /// As [`aquifer_dataset::Datasets::rollback_files`], or [`Files::return_file`]; or another file
    /// has the path of one that was renamed.
    pub async fn roll_back(
        &self,
        of: &FileSnapshotNames,
        (dataset, versions): (&Arc<Dataset>, &[FileVersion]),
        options: RollbackOptions,
    ) -> Result<Vec<String>, FileNameError> {
        for version in versions {
            self.check_path(of, dataset, version).await?;
        }
        match self.datasets.rollback_files(dataset, versions, options).await {
            Err(DatasetError::FileRemoved(_)) if of.one_path().is_some() => {
                if options.destroy_later {
                    return Err(FileNameError::ReturnKeepsLater(of.text().into()));
                }
                self.return_file(of).await.map(|()| Vec::new())
            }
            done => Ok(done?),
        }
    }

    /// Refuses a version whose file has another path by now, if another file has this one. XCP-ng
    /// renames a disk when it takes a snapshot, and others build on it from then on.
    async fn check_path(
        &self,
        of: &FileSnapshotNames,
        dataset: &Arc<Dataset>,
        version: &FileVersion,
    ) -> Result<(), FileNameError> {
        let (object, borne) = match version {
            FileVersion::Whole { object, path, .. } => (*object, path.clone()),
            FileVersion::Own(id) => match dataset.file_snapshot(*id, self.pool.committed_txg()) {
                Some(of) => (of.object(), of.record.path.clone()),
                None => return Ok(()),
            },
        };
        let path = of.one_path().map_or(borne, str::to_string);
        if self.now_at(dataset, &path).await?.is_none_or(|(now, _)| now == object) {
            return Ok(());
        }
        let file = dataset.object(&self.pool, object).await.map_err(DatasetError::from)?;
        match file.is_some_and(|file| file.inode().nlink > 0) {
            true => {
                let full = self.datasets.full_name(dataset);
                let now = self.likely_path(&full, object).await;
                let now = format!("{full}:{}", now.trim_start_matches('/'));
                Err(FileNameError::AnotherFile { name: format!("{full}:{path}"), now })
            }
            // It was removed: that comes out later.
            false => Ok(()),
        }
    }

    /// Brings a removed file back as a version of it, under the path that names it. It is on disk
    /// when this returns.
    ///
    /// # Errors
    /// There is no such version, the file was not removed or is still being freed, something else
    /// has its name, or its directory is not there; a read-only dataset, or one without room; or as
    /// [`aquifer_dataset::Datasets::return_file`]. Then it is not there.
    pub async fn return_file(&self, of: &FileSnapshotNames) -> Result<(), FileNameError> {
        let (dataset, mut found) = self.file_versions(of).await?;
        let text = of.text();
        let (_, version) = found.pop().ok_or_else(|| FileNameError::NoSnapshot(text.into()))?;
        if of.one_path().is_none() || !found.is_empty() {
            return Err(FileNameError::ManyReturn(text.into()));
        }
        let path = of.files();
        let failed = |error| FileNameError::Return { name: path.into(), error };
        if dataset.is_standby() {
            return Err(failed(FsError::ReadOnly));
        }
        let place = FilePlace::parse(&self.datasets, path)?;
        let wanted = [self.wanted(&dataset, &place).await.map_err(returning)?];
        let quota = self.datasets.check_quota(&dataset).await;
        quota.map_err(|refused| failed(FsError::from(refused)))?;
        let made = self.datasets.return_file(&dataset, &version).await?;
        self.name_clones(&dataset, made, path, &wanted, None).await.map_err(returning)
    }
}

/// Turns an error about the name of a clone into one about a file that comes back.
fn returning(error: FileNameError) -> FileNameError {
    match error {
        FileNameError::Clone { name, error } | FileNameError::NotNamed { name, error, .. } => {
            match error {
                FsError::Exists => FileNameError::NameTaken(name),
                error => FileNameError::Return { name, error },
            }
        }
        other => other,
    }
}
