//! Rollback of a dataset.

use aquifer_api::{ApiError, RollBack, RolledBack};
use aquifer_dataset::RollbackOptions;

use super::datasets::act_on;
use super::{Control, properties, snapshots};

impl Control {
    /// Rolls a dataset back to a snapshot. When this returns it is on disk.
    ///
    /// # Errors
    /// There is no such snapshot, there are later ones, or clients would lose locks' data or what
    /// waits for their COMMIT. Then nothing has changed.
    pub async fn roll_back(&self, request: RollBack) -> Result<RolledBack, ApiError> {
        let _act = self.act().await?;
        let RollBack { name, destroy_later, force } = request;
        let serving = self.pool_of_one(&name)?;
        snapshots::files::refuse(&serving, &name, "be rolled back to")?;
        let datasets = serving.service().datasets.clone();
        let (dataset, _) = datasets.snapshot_by_name(&name).map_err(properties::api_error)?;
        let full = datasets.full_name(&dataset);
        if !force {
            let (locks, _) = self.frontend.locks();
            let held = locks.iter().filter(|lock| lock.file.fs_guid == dataset.fs_guid).count();
            if held > 0 {
                return Err(ApiError::conflict(format!(
                    "clients hold {held} locks in {full:?}, and would find other content under \
                     them: `aquifer locks` shows whose they are. Stop them, or use -f"
                )));
            }
        }
        let options = RollbackOptions { destroy_later, force };
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
}

/// Those of files have full names.
fn full_name(dataset: &str, name: String) -> String {
    if name.contains('@') { name } else { format!("{dataset}@{name}") }
}
