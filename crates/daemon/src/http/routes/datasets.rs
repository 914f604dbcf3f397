//! Routes of datasets, and of differences.

use aquifer_api::{
    ApiError, ClearDamage, CloneSnapshot, CreateDataset, DatasetDone, DatasetQuery, DestroyDataset,
    DiffQuery, Promote, RangesQuery, RenameDataset, SetProperties,
};

use super::super::asked::Asking;
use super::second::note_on_alone;
use super::table::Table;

pub(super) fn routes(table: Table) -> Table {
    table
        .question(async |at, query: DatasetQuery| at.control.datasets(&query, at.scope()))
        .operation(async |at, make: CreateDataset| at.control.create_dataset(make).await)
        .operation(async |at, clone: CloneSnapshot| {
            at.control.clone_snapshot(clone, at.may_let_in()).await
        })
        .operation(set_properties)
        .operation(async |at, of: DestroyDataset| at.control.destroy_dataset(of).await)
        .operation(async |at, to: RenameDataset| at.control.rename_dataset(to).await)
        .operation(async |at, of: Promote| at.control.promote(of).await)
        .operation(async |at, of: ClearDamage| at.control.clear_damage(of).await)
        .question(async |at, query: DiffQuery| at.control.changed_names(query, at.scope()).await)
        .question(async |at, RangesQuery(query)| at.control.changed_ranges(query, at.scope()).await)
}

async fn set_properties(at: Asking, request: SetProperties) -> Result<DatasetDone, ApiError> {
    at.scope().check_set(&request.name, request.properties.keys())?;
    if !at.is_here() {
        at.control.check_hold_max(&request)?;
    }
    let note = note_on_alone(&request, &at.tokens);
    let mut done = at.control.set_properties(request).await?;
    done.notes.extend(note);
    Ok(done)
}
