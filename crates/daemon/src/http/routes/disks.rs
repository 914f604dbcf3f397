//! Routes of disks of a pool: acts on them, and work that goes on in the background.

use aquifer_api::{
    AttachDisk, ClearDisk, DetachDisk, DrillRequest, FreeWorkRequest, OfflineDisk, On, OnlineDisk,
    RemoveDisk, ReplaceDisk, ScrubRequest,
};

use super::table::Table;

pub(super) fn routes(table: Table) -> Table {
    let table = table
        .operation(async |at, On { name, request }: On<OfflineDisk>| {
            at.control.offline_disk(&name, request).await
        })
        .operation(async |at, On { name, request }: On<OnlineDisk>| {
            at.control.online_disk(&name, request).await
        })
        .operation(async |at, On { name, request: RemoveDisk(disk) }| {
            at.control.remove_disk(&name, disk).await
        })
        .operation(async |at, On { name, request: DetachDisk(disk) }| {
            at.control.detach_disk(&name, disk).await
        })
        .operation(async |at, On { name, request: ClearDisk(disk) }| {
            at.control.clear_disk(&name, disk).await
        })
        .operation(async |at, On { name, request }: On<ReplaceDisk>| {
            at.control.replace_disk(&name, request).await
        })
        .operation(async |at, On { name, request: AttachDisk(disk) }| {
            at.control.attach_disk(&name, disk).await
        })
        .operation(async |at, On { name, request }: On<ScrubRequest>| {
            at.control.scrub_pool(&name, request).await
        })
        .operation(async |at, On { name, request }: On<FreeWorkRequest>| {
            at.control.work_on_free_space(&name, request).await
        })
        .operation(async |at, On { name, request }: On<DrillRequest>| {
            at.control.drill_pool(&name, request).await
        });
    #[cfg(debug_assertions)]
    let table =
        table.operation(async |at, On { name, request }: On<aquifer_api::InjectRequest>| {
            at.control.inject(&name, request)
        });
    table
}
