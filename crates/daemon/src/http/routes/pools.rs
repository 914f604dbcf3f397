//! Routes of pools, and of what they did.

use aquifer_admin::control::history::Leaving;
use aquifer_api::{
    AddVdevs, ClearPool, CreatePool, DestroyPool, EventQuery, ExportPool, HistoryQuery,
    ImportRequest, IoQuery, KeptEventsQuery, LoadQuery, LoadedDisksQuery, On, PoolQuery,
    PoolsQuery, ScanRequest,
};
use axum::response::Response;

use super::super::acts::Acting;
use super::super::asked::{Asked, Asking};
use super::super::operations::leaves;
use super::table::Table;

pub(super) fn routes(table: Table) -> Table {
    operations(questions(table))
}

fn questions(table: Table) -> Table {
    table
        .question(async |at, PoolsQuery| Ok(at.control.pools()))
        .question(async |at, of: On<PoolQuery>| at.control.pool_status(&of.name).await)
        .question(async |at, of: On<HistoryQuery>| at.control.history(&of.name).await)
        .question(async |at, of: On<KeptEventsQuery>| at.control.kept_events(&of.name).await)
        .question(async |at, of: On<LoadQuery>| at.control.load(&of.name, &of.request).await)
        .question(async |at, On { name, request: LoadedDisksQuery(query) }| {
            at.control.loaded_disks(&name, &query).await
        })
        .question(async |at, query: IoQuery| at.control.iostat(&query))
        .question(async |at, query: EventQuery| Ok(at.control.events_after(&query).await))
        .question(async |at, scan: ScanRequest| at.control.scan(scan).await)
}

fn operations(table: Table) -> Table {
    table
        .operation(async |at, make: CreatePool| at.control.create_pool(make).await)
        .operation(async |at, of: ImportRequest| at.control.import_pool(of).await)
        .operation(async |at, of: On<ClearPool>| at.control.clear_pool(&of.name).await)
        .operation(async |at, On { name, request }: On<AddVdevs>| {
            at.control.add_vdevs(&name, request).await
        })
        .act::<On<ExportPool>, _>(export)
        .act::<On<DestroyPool>, _>(destroy)
}

async fn export(acting: Acting, at: Asking, Asked(export): Asked<On<ExportPool>>) -> Response {
    let leaving = Leaving::default();
    let told = leaves(&export, &leaving, export.request.force);
    let On { name, request } = export;
    let export = async {
        if !at.may_let_in().0 {
            at.control.check_export_of_held(&name)?;
        }
        at.control.export_pool(&name, request, &leaving).await
    };
    acting.carry_out(told, export).await
}

async fn destroy(acting: Acting, at: Asking, Asked(destroy): Asked<On<DestroyPool>>) -> Response {
    let leaving = Leaving::default();
    let told = leaves(&destroy, &leaving, false);
    let On { name, request } = destroy;
    acting.carry_out(told, at.control.destroy_pool(&name, request, &leaving)).await
}
