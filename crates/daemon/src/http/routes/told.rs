//! Routes of what was done and what happened: histories, load, events, alerts.

use aquifer_api::{self as api, EventQuery, IoQuery, LoadQuery};
use axum::extract::State;
use axum::response::Response;

use super::{Body, Control_, Name, Question, answer};

pub(super) async fn history(State(control): Control_, Name(name): Name) -> Response {
    answer(control.history(&name).await)
}

pub(super) async fn kept_events(State(control): Control_, Name(name): Name) -> Response {
    answer(control.kept_events(&name).await)
}

pub(super) async fn load(
    State(control): Control_,
    Name(name): Name,
    Question(query): Question<LoadQuery>,
) -> Response {
    answer(control.load(&name, &query).await)
}

pub(super) async fn loaded_disks(
    State(control): Control_,
    Name(name): Name,
    Question(query): Question<LoadQuery>,
) -> Response {
    answer(control.loaded_disks(&name, &query).await)
}

pub(super) async fn iostat(
    State(control): Control_,
    Question(query): Question<IoQuery>,
) -> Response {
    answer(control.iostat(&query))
}

pub(super) async fn events(
    State(control): Control_,
    Question(query): Question<EventQuery>,
) -> Response {
    answer(Ok(control.events_after(&query).await))
}

pub(super) async fn test_alerts(
    State(control): Control_,
    Body(request): Body<api::TestAlerts>,
) -> Response {
    answer(control.test_alerts(request).await)
}
