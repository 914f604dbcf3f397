//! Routes of pools, and of what they did.

use aquifer_admin::control::history::Leaving;
use aquifer_api::{
    AddVdevs, ClearPool, CreatePool, DestroyPool, EventQuery, ExportPool, HistoryQuery,
    ImportRequest, IoQuery, KeptEventsQuery, LoadQuery, LoadedDisksQuery, On, PoolQuery,
    PoolsQuery, ScanRequest,
};
use axum::extract::State;
use axum::response::Response;

use super::super::asked::Asked;
use super::super::operations::leaves;
use super::table::Table;
use super::{Acting, Control_};

pub(super) fn routes(table: Table) -> Table {
    operations(questions(table))
}

fn questions(table: Table) -> Table {
    table
        .question_of(async |at, PoolsQuery| Ok(at.control.pools()))
        .question_of(async |at, of: On<PoolQuery>| at.control.pool_status(&of.name).await)
        .question_of(async |at, of: On<HistoryQuery>| at.control.history(&of.name).await)
        .question_of(async |at, of: On<KeptEventsQuery>| at.control.kept_events(&of.name).await)
        .question_of(async |at, of: On<LoadQuery>| at.control.load(&of.name, &of.request).await)
        .question_of(async |at, On { name, request: LoadedDisksQuery(query) }| {
            at.control.loaded_disks(&name, &query).await
        })
        .question_of(async |at, query: IoQuery| at.control.iostat(&query))
        .question_of(async |at, query: EventQuery| Ok(at.control.events_after(&query).await))
        .question_of(async |at, scan: ScanRequest| at.control.scan(scan).await)
}

fn operations(table: Table) -> Table {
    table
        .operation_of(async |at, make: CreatePool| at.control.create_pool(make).await)
        .operation_of(async |at, of: ImportRequest| at.control.import_pool(of).await)
        .operation_of(async |at, of: On<ClearPool>| at.control.clear_pool(&of.name).await)
        .operation_of(async |at, On { name, request }: On<AddVdevs>| {
            at.control.add_vdevs(&name, request).await
        })
        .act_of::<On<ExportPool>, _>(export)
        .act_of::<On<DestroyPool>, _>(destroy)
}

async fn export(
    acting: Acting,
    State(control): Control_,
    Asked(export): Asked<On<ExportPool>>,
) -> Response {
    let leaving = Leaving::default();
    let told = leaves(&export, &leaving, export.request.force);
    let may = acting.may_let_in().0;
    let On { name, request } = export;
    let export = async {
        if !may {
            control.check_export_of_held(&name)?;
        }
        control.export_pool(&name, request, &leaving).await
    };
    acting.carry_out(told, export).await
}

async fn destroy(
    acting: Acting,
    State(control): Control_,
    Asked(destroy): Asked<On<DestroyPool>>,
) -> Response {
    let leaving = Leaving::default();
    let told = leaves(&destroy, &leaving, false);
    let On { name, request } = destroy;
    acting.carry_out(told, control.destroy_pool(&name, request, &leaving)).await
}
