//! Routes of tokens.

use aquifer_api as api;
use axum::extract::State;
use axum::response::Response;

use super::{Acting, Body, Name, Tokens_, words};

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

pub(super) async fn revoke(acting: Acting, State(tokens): Tokens_, Name(name): Name) -> Response {
    acting.carry_out(words::revoke_token(&name), async { tokens.revoke(&name) }).await
}
