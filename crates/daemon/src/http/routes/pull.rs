//! Routes by which another server fetches copies.

use aquifer_api as api;
use axum::extract::{Extension, State};
use axum::response::Response;

use super::{Acting, Body, Control_, Question, answer, refusal, words};
use crate::caller::Caller;

pub(super) async fn known(
    State(control): Control_,
    Extension(caller): Extension<Caller>,
    Question(query): Question<api::PullQuery>,
) -> Response {
    answer(caller.puller().and_then(|puller| control.pull_known(&query, &puller, caller.scope())))
}

pub(super) async fn take(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::TakePull>,
) -> Response {
    let puller = match acting.puller() {
        Ok(puller) => puller,
        Err(error) => return refusal(error),
    };
    let named = words::named(&request.datasets);
    let is_noted = control.check_named(acting.scope(), &named).is_ok()
        && control.is_pull_noted(&puller, &request.datasets);
    let told = words::take_pull(&request, is_noted);
    acting.carry_out(told, async move { control.take_for_pull(request, &puller).await }).await
}

pub(super) async fn settle(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::SettlePull>,
) -> Response {
    let puller = match acting.puller() {
        Ok(puller) => puller,
        Err(error) => return refusal(error),
    };
    let told = words::settle_pull(&request);
    acting.carry_out(told, async move { control.settle_pull(request, &puller).await }).await
}

pub(super) async fn prune(
    acting: Acting,
    State(control): Control_,
    Body(request): Body<api::PrunePull>,
) -> Response {
    let puller = match acting.puller() {
        Ok(puller) => puller,
        Err(error) => return refusal(error),
    };
    let told = words::prune_pull(&request);
    acting.carry_out(told, async move { control.prune_pull(request, &puller).await }).await
}
