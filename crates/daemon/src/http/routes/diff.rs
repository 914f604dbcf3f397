//! Routes of differences.

use aquifer_api as api;
use axum::extract::{Extension, State};
use axum::response::Response;

use super::{Control_, Question, answer};
use crate::caller::Caller;

pub(super) async fn names(
    State(control): Control_,
    Extension(caller): Extension<Caller>,
    Question(query): Question<api::DiffQuery>,
) -> Response {
    answer(control.changed_names(query, caller.scope()).await)
}

pub(super) async fn ranges(
    State(control): Control_,
    Extension(caller): Extension<Caller>,
    Question(query): Question<api::DiffQuery>,
) -> Response {
    answer(control.changed_ranges(query, caller.scope()).await)
}
