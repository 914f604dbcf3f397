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

impl Files {
    /// Rolls files back, each to a version of it ([`Files::file_versions`] of this text). If the
    /// text names one file by its path, and that was removed, it comes back. On disk when this
    /// returns. Returns the full names of the snapshots that it destroyed.
    ///
    /// # Errors
    /// As [`aquifer_dataset::Datasets::rollback_files`], or [`Files::return_file`].
    pub async fn roll_back(
        &self,
        text: &str,
        (dataset, versions): (&Arc<Dataset>, &[FileVersion]),
        options: RollbackOptions,
    ) -> Result<Vec<String>, FileNameError> {
        match self.datasets.rollback_files(dataset, versions, options).await {
            Err(DatasetError::FileRemoved(_)) if self.names_one_file(text)? => {
                if options.destroy_later {
                    return Err(FileNameError::ReturnKeepsLater(text.into()));
                }
                self.return_file(text).await.map(|()| Vec::new())
            }
            done => Ok(done?),
        }
    }

    /// Brings a removed file back as a version of it, given as `tank/vms:PATH@NAME`, under that
    /// path. It is on disk when this returns.
    ///
    /// # Errors
    /// There is no such version, the file was not removed or is still being freed, something else
    /// has its name, or its directory is not there; a read-only dataset, or one without room; or as
    /// [`aquifer_dataset::Datasets::return_file`]. Then it is not there.
    pub async fn return_file(&self, text: &str) -> Result<(), FileNameError> {
        let is_one = self.names_one_file(text)?;
        let (dataset, mut found) = self.file_versions(text).await?;
        let (_, version) = found.pop().ok_or_else(|| FileNameError::NoSnapshot(text.into()))?;
        if !is_one || !found.is_empty() {
            return Err(FileNameError::ManyReturn(text.into()));
        }
        let path = text.rsplit_once('@').map_or(text, |(path, _)| path);
        let failed = |error| FileNameError::Return { name: path.into(), error };
        if dataset.is_standby() {
            return Err(failed(FsError::ReadOnly));
        }
        let wanted = [self.wanted(&dataset, path).await.map_err(returning)?];
        let quota = self.datasets.check_quota(&dataset).await;
        quota.map_err(|refused| failed(FsError::from(refused)))?;
        let made = self.datasets.return_file(&dataset, &version).await?;
        self.name_clones(&dataset, made, path, &wanted, None).await.map_err(returning)
    }
}

/// What is wrong with the name of a clone, of a file that comes back.
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
