//! Routes of differences.

use aquifer_api as api;
use axum::extract::State;
use axum::response::Response;

use super::{Control_, Question, answer};

pub(super) async fn names(
    State(control): Control_,
    Question(query): Question<api::DiffQuery>,
) -> Response {
    answer(control.changed_names(query).await)
}

pub(super) async fn ranges(
    State(control): Control_,
    Question(query): Question<api::DiffQuery>,
) -> Response {
    answer(control.changed_ranges(query).await)
}
