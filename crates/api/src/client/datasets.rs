//! The client's part for acts on whole datasets.

use super::{Answer, Client};
use crate::{CloneSnapshot, DatasetDone, DestroyDataset, Promote, Promoted, RenameDataset};

impl Client {
    /// Destroys a dataset.
    pub async fn destroy_dataset(&self, request: &DestroyDataset) -> Answer<DatasetDone> {
        self.post("/datasets/destroy", request).await
    }

    /// Renames a dataset.
    pub async fn rename_dataset(&self, request: &RenameDataset) -> Answer<DatasetDone> {
        self.post("/datasets/rename", request).await
    }

    /// Makes a dataset that begins as a snapshot.
    pub async fn clone_snapshot(&self, request: &CloneSnapshot) -> Answer<DatasetDone> {
        self.post("/datasets/clone", request).await
    }

    /// Promotes a clone.
    pub async fn promote(&self, request: &Promote) -> Answer<Promoted> {
        self.post("/datasets/promote", request).await
    }
}
