//! The client's part for snapshots.

use super::{Answer, Client};
use crate::{COUNTED_SNAPSHOTS_MAX, SnapshotInfo, SnapshotQuery};

impl Client {
    /// Lists snapshots. Those of which is counted what they take come in pages, unless the query
    /// asks for one.
    pub async fn snapshots(&self, query: &SnapshotQuery) -> Answer<Vec<SnapshotInfo>> {
        if !query.used || query.limit.is_some() {
            return self.ask(query).await;
        }
        let limit = COUNTED_SNAPSHOTS_MAX;
        let mut query = SnapshotQuery { limit: Some(limit), ..query.clone() };
        let mut all: Vec<SnapshotInfo> = Vec::new();
        loop {
            let mut page = self.ask(&query).await?;
            query.after = page.last().map(|last| last.cursor.clone());
            let is_last = page.len() < limit;
            all.append(&mut page);
            if is_last {
                return Ok(all);
            }
        }
    }
}
