//! Routes of the daemon itself: its state, its clients, exports and alerts.

use aquifer_api::{
    AlertsQuery, ClearLocks, ConnectQuery, DaemonQuery, LocksQuery, MemoryQuery, NfsQuery,
    ShareQuery, SharesQuery, TestAlerts,
};

use super::table::Table;

pub(super) fn routes(table: Table) -> Table {
    table
        .question(async |at, DaemonQuery| Ok(at.control.info()))
        .question(async |at, LocksQuery| Ok(at.control.locks().await))
        .question(async |at, NfsQuery| Ok(at.control.nfs_stat().await))
        .question(async |at, MemoryQuery| Ok(at.control.memory()))
        .question(async |at, AlertsQuery| Ok(at.control.alerts()))
        .question(async |at, test: TestAlerts| at.control.test_alerts(test).await)
        .question(async |at, SharesQuery| Ok(at.control.shares()))
        .question(async |at, query: ShareQuery| at.control.share_why(query).await)
        .question(async |at, query: ConnectQuery| at.control.connect(&query))
        .operation(async |at, clear: ClearLocks| at.control.clear_locks(&clear))
}
