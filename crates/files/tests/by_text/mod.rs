//! Acts on files by texts, as commands give them.

use std::sync::Arc;

use aquifer_dataset::{Dataset, FileVersion, RollbackOptions};
use aquifer_files::file_snapshots::{FileNameError, OfFiles, OfVersions};
use aquifer_files::{FilePlace, FileSnapshotNames, Files, SubjectError};

/// The snapshots of files that a text names.
pub fn named(files: &Files, text: &str) -> Result<FileSnapshotNames, SubjectError> {
    FileSnapshotNames::parse(files.datasets(), text)
}

/// Each parses its texts, and does the act.
pub trait ByText {
    async fn take_named(&self, names: &[String]) -> Result<Vec<String>, FileNameError>;
    async fn listed_named(&self, text: &str) -> Result<OfFiles, FileNameError>;
    async fn versions_named(&self, text: &str) -> Result<OfVersions, FileNameError>;
    async fn clone_named(&self, from: &str, to: &[String]) -> Result<(), FileNameError>;
    async fn return_named(&self, text: &str) -> Result<(), FileNameError>;
    async fn roll_back_named(
        &self,
        text: &str,
        of: (&Arc<Dataset>, &[FileVersion]),
        options: RollbackOptions,
    ) -> Result<Vec<String>, FileNameError>;
}

impl ByText for Files {
    async fn take_named(&self, names: &[String]) -> Result<Vec<String>, FileNameError> {
        let names: Result<Vec<_>, _> = names.iter().map(|text| named(self, text)).collect();
        self.snapshot_files(&names?).await
    }

    async fn listed_named(&self, text: &str) -> Result<OfFiles, FileNameError> {
        self.listed_file_snapshots(&named(self, text)?).await
    }

    async fn versions_named(&self, text: &str) -> Result<OfVersions, FileNameError> {
        self.file_versions(&named(self, text)?).await
    }

    async fn clone_named(&self, from: &str, to: &[String]) -> Result<(), FileNameError> {
        let place = |text: &String| FilePlace::parse(self.datasets(), text);
        let to: Result<Vec<_>, _> = to.iter().map(place).collect();
        self.clone_file(&named(self, from)?, &to?).await
    }

    async fn return_named(&self, text: &str) -> Result<(), FileNameError> {
        self.return_file(&named(self, text)?).await
    }

    async fn roll_back_named(
        &self,
        text: &str,
        of: (&Arc<Dataset>, &[FileVersion]),
        options: RollbackOptions,
    ) -> Result<Vec<String>, FileNameError> {
        self.roll_back(&named(self, text)?, of, options).await
    }
}
