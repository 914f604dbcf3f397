//! Rollback of a dataset, or of a file.

use aquifer_api::{ApiError, RollBack, RolledBack};
use aquifer_dataset::{FileVersion, RollbackOptions};

use super::datasets::act_on;
use super::serving::Serving;
use super::{Control, properties, snapshots};

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
        if serving.service().files.names_files(&name) {
            return self.roll_files_back(&serving, name, options).await;
        }
        let datasets = serving.service().datasets.clone();
        let (dataset, _) = datasets.snapshot_by_name(&name).map_err(properties::api_error)?;
        let full = datasets.full_name(&dataset);
        let to = name.clone();
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
        name: String,
        options: RollbackOptions,
    ) -> Result<RolledBack, ApiError> {
        let (dataset, files) = snapshots::files::versions(serving, &name).await?;
        let of_files = name.rsplit_once('@').map_or(name.as_str(), |(files, _)| files).to_string();
        let count = files.len();
        let versions: Vec<FileVersion> = files.into_iter().map(|(_, version)| version).collect();
        let of = (dataset.clone(), versions);
        let destroyed = snapshots::files::roll_back(serving, &name, of, options).await?;
        tracing::warn!(
            class = "file.rolled_back",
            snapshot = %name,
            files = count,
            destroyed = destroyed.join(" "),
            "files rolled back to a snapshot"
        );
        Ok(RolledBack { name: of_files, destroyed })
    }
}

/// Those of files have full names.
fn full_name(dataset: &str, name: String) -> String {
    if name.contains('@') { name } else { format!("{dataset}@{name}") }
}
