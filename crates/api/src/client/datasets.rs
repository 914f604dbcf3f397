//! The client's part for acts on whole datasets.

use super::{Answer, Client};
use crate::{DatasetDone, DestroyDataset, RenameDataset};

impl Client {
    /// Destroys a dataset.
    pub async fn destroy_dataset(&self, request: &DestroyDataset) -> Answer<DatasetDone> {
        self.post("/datasets/destroy", request).await
    }

    /// Renames a dataset.
    pub async fn rename_dataset(&self, request: &RenameDataset) -> Answer<DatasetDone> {
        self.post("/datasets/rename", request).await
    }
}
