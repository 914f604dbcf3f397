//! Trials: drills, and faults that tests put before disks.

use aquifer_api as api;
use axum::extract::State;
use axum::response::Response;

use super::{Acting, Body, Control_, Name, words};

pub(super) async fn drill_pool(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::DrillRequest>,
) -> Response {
    acting.carry_out(words::drill_pool(&name, &request), control.drill_pool(&name, request)).await
}

#[cfg(debug_assertions)]
pub(super) async fn inject(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::InjectRequest>,
) -> Response {
    acting.carry_out(words::inject(), async { control.inject(&name, request) }).await
}
