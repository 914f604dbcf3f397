//! Rollback of a dataset, or of a file.

use aquifer_api::{ApiError, RollBack, RolledBack};
use aquifer_dataset::{FileVersion, FullName, RollbackOptions};
use aquifer_files::{FileSnapshotNames, Subject};

use super::datasets::act_on;
use super::serving::Serving;
use super::{Control, errors, snapshots, subjects};

impl Control {
    /// Rolls a dataset, or a file, back to a snapshot. When this returns it is on disk.
    ///
    /// # Errors
    /// There is no such snapshot, there are later ones, or clients would lose locks' data or what
    /// waits for their COMMIT. Then nothing has changed.
    pub async fn roll_back(&self, request: RollBack) -> Result<RolledBack, ApiError> {
        let RollBack { name, destroy_later, force } = request;
        let (_act, serving) = self.act_of_one(&name, "rollback").await?;
        let options = RollbackOptions { destroy_later, force };
        let subject = subjects::subject(&serving.service().datasets, &name)?;
        if let Subject::FileSnapshots(of) = subject {
            return self.roll_files_back(&serving, of, options).await;
        }
        let to = subject.one_snapshot(&name).map_err(subjects::api_error)?.full;
        let datasets = serving.service().datasets.clone();
        let (dataset, _) = datasets.snapshot_by_name(&to).map_err(errors::api_error)?;
        let full = datasets.full_name(&dataset);
        let destroyed =
            act_on(&serving, async move { datasets.rollback(&to, options).await }).await?;
        let destroyed: Vec<String> =
            destroyed.into_iter().map(|name| full_name(&full, name)).collect();
        tracing::warn!(
            class = "dataset.rolled_back",
            dataset = %full,
            snapshot = %name,
            destroyed = destroyed.join(" "),
            "dataset rolled back to a snapshot"
        );
        Ok(RolledBack { name: full, destroyed })
    }

    async fn roll_files_back(
        &self,
        serving: &Serving,
        of: FileSnapshotNames,
        options: RollbackOptions,
    ) -> Result<RolledBack, ApiError> {
        let (dataset, files) = snapshots::files::versions(serving, &of).await?;
        let count = files.len();
        let versions: Vec<FileVersion> = files.into_iter().map(|(_, version)| version).collect();
        let these = (dataset, versions);
        let destroyed = snapshots::files::roll_back(serving, &of, these, options).await?;
        tracing::warn!(
            class = "file.rolled_back",
            pool = serving.name(),
            snapshot = of.text(),
            files = count,
            destroyed = destroyed.join(" "),
            "files rolled back to a snapshot"
        );
        Ok(RolledBack { name: of.files().into(), destroyed })
    }
}

/// Those of files have full names.
fn full_name(dataset: &str, name: String) -> String {
    match FullName::of(&name).snapshot() {
        Some(_) => name,
        None => format!("{dataset}@{name}"),
    }
}
