//! Routes of replication, and those by which another server fetches copies.

use aquifer_api::{
    PrunePull, PullQuery, ReplicateRequest, ReplicationQuery, SettlePull, StopReplication, TakePull,
};

use super::table::Table;

pub(super) fn routes(table: Table) -> Table {
    table
        .question(async |at, query: ReplicationQuery| at.control.replications(&query, at.scope()))
        .operation(async |at, of: ReplicateRequest| at.control.begin_replication(of))
        .operation(async |at, of: StopReplication| at.control.stop_replication(of))
        .question(async |at, query: PullQuery| {
            at.control.pull_known(&query, &at.caller.puller()?, at.scope())
        })
        .operation(async |at, take: TakePull| {
            at.control.take_for_pull(take, &at.caller.puller()?).await
        })
        .operation(async |at, settle: SettlePull| {
            at.control.settle_pull(settle, &at.caller.puller()?).await
        })
        .operation(async |at, prune: PrunePull| {
            at.control.prune_pull(prune, &at.caller.puller()?).await
        })
}
