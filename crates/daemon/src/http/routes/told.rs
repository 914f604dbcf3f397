//! Routes of what was done and what happened: histories, load, events, alerts.

use aquifer_api as api;
use axum::extract::State;
use axum::response::Response;

use super::{Body, Control_, answer};

pub(super) async fn test_alerts(
    State(control): Control_,
    Body(request): Body<api::TestAlerts>,
) -> Response {
    answer(control.test_alerts(request).await)
}
