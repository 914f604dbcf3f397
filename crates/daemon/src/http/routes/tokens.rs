//! Routes of tokens.

use aquifer_api as api;
use axum::extract::{Extension, State};
use axum::response::Response;

use super::{Acting, Body, Control_, Name, Tokens_, answer, words};
use crate::caller::Caller;

pub(super) async fn session(
    State(control): Control_,
    Extension(caller): Extension<Caller>,
) -> Response {
    let datasets = caller.scope().datasets().to_vec();
    let (caller, role) = (caller.to_string(), caller.role());
    let api::DaemonInfo { version, commit, .. } = control.info();
    let host = control.host_name().into();
    answer(Ok(api::SessionInfo { caller, role, datasets, host, version, commit }))
}

pub(super) async fn create(
    acting: Acting,
    State(tokens): Tokens_,
    Body(request): Body<api::CreateToken>,
) -> Response {
    acting.carry_out(words::create_token(&request), async { tokens.create(&request) }).await
}

pub(super) async fn rotate(
    acting: Acting,
    State(tokens): Tokens_,
    Name(name): Name,
    Body(request): Body<api::RotateToken>,
) -> Response {
    let told = words::rotate_token(&name, &request);
    acting.carry_out(told, async { tokens.rotate(&name, &request) }).await
}

pub(super) async fn bind(
    acting: Acting,
    State(tokens): Tokens_,
    Name(name): Name,
    Body(request): Body<api::BindToken>,
) -> Response {
    let told = words::bind_token(&name, &request);
    acting.carry_out(told, async { tokens.bind(&name, &request) }).await
}

pub(super) async fn revoke(acting: Acting, State(tokens): Tokens_, Name(name): Name) -> Response {
    acting.carry_out(words::revoke_token(&name), async { tokens.revoke(&name) }).await
}
