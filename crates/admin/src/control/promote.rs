//! Promotion of a clone.

use aquifer_api::{ApiError, Promote, Promoted};

use super::Control;
use super::datasets::act_on;

impl Control {
    /// A clone and its origin change places: it lists the snapshots that both come from. When this
    /// returns it is on disk.
    ///
    /// # Errors
    /// There is no such dataset, it is no clone, or it has snapshots of the same names. Then
    /// nothing has changed.
    pub async fn promote(&self, request: Promote) -> Result<Promoted, ApiError> {
        let Promote { name } = request;
        let (_act, serving) = self.act_of(&name, "promote").await?;
        let (datasets, clone) = (serving.service().datasets.clone(), name.clone());
        let done = act_on(&serving, async move { datasets.promote(&clone).await }).await?;
        let names = done.snapshots.into_iter();
        let snapshots: Vec<String> = names.map(|last| format!("{name}@{last}")).collect();
        let origin = done.origin;
        tracing::info!(
            class = "dataset.promoted",
            dataset = %name,
            %origin,
            snapshots = snapshots.join(" "),
            "clone promoted"
        );
        Ok(Promoted { name, origin, snapshots })
    }
}
