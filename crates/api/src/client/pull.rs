//! The client's part for pulling copies.

use super::{Answer, Client, escaped};
use crate::{DatasetDone, PrunePull, PullQuery, PullSource, PullTaken, SettlePull, TakePull};

impl Client {
    /// Returns the snapshots and bookmarks of a dataset that a copy of it may have too.
    pub async fn pull_known(&self, query: &PullQuery) -> Answer<PullSource> {
        self.get(&format!("/pull/known?dataset={}", escaped(query.dataset.as_str()))).await
    }

    /// Takes snapshots that are to be pulled.
    pub async fn take_pull(&self, request: &TakePull) -> Answer<PullTaken> {
        self.post("/pull/take", request).await
    }

    /// Says that a copy has a snapshot.
    pub async fn settle_pull(&self, request: &SettlePull) -> Answer<DatasetDone> {
        self.post("/pull/settle", request).await
    }

    /// Destroys what no copy needs any more.
    pub async fn prune_pull(&self, request: &PrunePull) -> Answer<DatasetDone> {
        self.post("/pull/prune", request).await
    }
}
