//! Routes of replication.

use aquifer_api as api;
use axum::extract::State;
use axum::response::Response;

use super::{Acting, Body, Control_, Question, answer, words};

pub(super) async fn list(
    State(control): Control_,
    Question(query): Question<api::ReplicationQuery>,
) -> Response {
    answer(control.replications(&query))
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
