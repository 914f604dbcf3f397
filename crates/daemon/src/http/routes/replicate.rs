//! Routes of replication.

use aquifer_api as api;
use axum::extract::{Extension, State};
use axum::response::Response;

use super::{Acting, Body, Control_, Question, answer, words};
use crate::caller::Caller;

pub(super) async fn list(
    State(control): Control_,
    Extension(caller): Extension<Caller>,
    Question(query): Question<api::ReplicationQuery>,
) -> Response {
    answer(control.replications(&query, caller.scope()))
}

pub(super) async fn begin(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::ReplicateRequest>,
) -> Response {
    let told = words::replicate(&request);
    acting.carry_out(told, async move { control.begin_replication(request) }).await
}

pub(super) async fn stop(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::StopReplication>,
) -> Response {
    let told = words::stop_replication(&request);
    acting.carry_out(told, async move { control.stop_replication(request) }).await
}
