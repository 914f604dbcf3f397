//! Routes of tokens.

use aquifer_admin::Control;
use aquifer_admin::control::guard::Guard;
use aquifer_api::{self as api, ApiError};
use axum::extract::{Extension, State};
use axum::response::Response;

use super::{Acting, Body, Control_, Name, Tokens_, answer, words};
use crate::caller::{Caller, principal_of};
use crate::http::acts::{About, Told};
use crate::remote::tokens::Tokens;

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

/// Guards an act on a token: one who has an administrator's token does not get another one, or that
/// of a feeder, nor takes one from others, alone.
fn guarded(told: Told, acting: &Acting, tokens: &Tokens) -> Told {
    match &told.about {
        About::Token(name) if tokens.takes_two(name) && !acting.has_token(name) => {
            told.guarded(Guard::All)
        }
        _ => told,
    }
}

pub(super) async fn rotate(
    acting: Acting,
    State(control): Control_,
    State(tokens): Tokens_,
    Name(name): Name,
    Body(request): Body<api::RotateToken>,
) -> Response {
    let told = guarded(words::rotate_token(&name, &request), &acting, &tokens);
    let rotate = async { ended(&control, &name, tokens.rotate(&name, &request)) };
    acting.carry_out(told, rotate).await
}

pub(super) async fn bind(
    acting: Acting,
    State(tokens): Tokens_,
    Name(name): Name,
    Body(request): Body<api::BindToken>,
) -> Response {
    let told = guarded(words::bind_token(&name, &request), &acting, &tokens);
    acting.carry_out(told, async { tokens.bind(&name, &request) }).await
}

pub(super) async fn revoke(
    acting: Acting,
    State(control): Control_,
    State(tokens): Tokens_,
    Name(name): Name,
) -> Response {
    let told = guarded(words::revoke_token(&name), &acting, &tokens);
    acting.carry_out(told, async { ended(&control, &name, tokens.revoke(&name)) }).await
}

/// Drops the acts that a token asked for and that wait, once the token has ended.
fn ended<T>(control: &Control, name: &str, ended: Result<T, ApiError>) -> Result<T, ApiError> {
    ended.inspect(|_| control.drop_acts_of(&principal_of(name)))
}
