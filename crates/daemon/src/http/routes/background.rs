//! Routes of work that goes on in the background: scrub, trim, initialize.

use aquifer_api as api;
use axum::extract::State;
use axum::response::Response;

use super::{Acting, Body, Control_, Name, words};

pub(super) async fn scrub_pool(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::ScrubRequest>,
) -> Response {
    acting.carry_out(words::scrub_pool(&name, request), control.scrub_pool(&name, request)).await
}

pub(super) async fn work_on_free_space(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::FreeWorkRequest>,
) -> Response {
    let told = words::work_on_free_space(&name, &request);
    acting.carry_out(told, control.work_on_free_space(&name, request)).await
}
