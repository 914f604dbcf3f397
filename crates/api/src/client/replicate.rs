//! The client's part for replication.

use super::{Answer, Client};
use crate::{
    DatasetDone, ReplicateRequest, ReplicationBegun, ReplicationInfo, ReplicationQuery,
    StopReplication,
};

impl Client {
    /// Begins to bring a copy up to date.
    pub async fn replicate(&self, request: &ReplicateRequest) -> Answer<ReplicationBegun> {
        self.post("/replicate", request).await
    }

    /// Ends what is under way.
    pub async fn stop_replication(&self, request: &StopReplication) -> Answer<DatasetDone> {
        self.post("/replicate/stop", request).await
    }

    /// How copies stand.
    pub async fn replications(&self, query: &ReplicationQuery) -> Answer<Vec<ReplicationInfo>> {
        let query = query.id.map_or_else(String::new, |id| format!("?id={id}"));
        self.get(&format!("/replications{query}")).await
    }
}
