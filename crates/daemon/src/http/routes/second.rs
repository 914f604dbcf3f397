//! Routes of acts that wait for a second person.

use aquifer_api::{self as api, ApiError, Confirmed};
use axum::extract::State;
use axum::response::Response;

use super::{Acting, Body, Control_, Name, answer, words};
use crate::remote::tokens::Tokens;

pub(super) async fn list(State(control): Control_) -> Response {
    answer(Ok(control.waiting_acts()))
}

/// Answered when the act is carried out, by what came of it.
pub(super) async fn confirm(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::ConfirmAct>,
) -> Response {
    let number = match number(&name) {
        Ok(number) => number,
        Err(error) => return answer::<()>(Err(error)),
    };
    let concerned = control.waiting_concerns(number);
    let told = words::decide("confirm", (&name, &request.act), concerned);
    let (by, mut heard) = (acting.asker(), None);
    let confirm = async {
        let (waited, answer) = control.confirm_act((number, &request.act), &by)?;
        heard = Some((waited.clone(), answer));
        Ok(waited)
    };
    let confirmed = acting.carry_out(told, confirm).await;
    let Some((waited, result)) = heard else { return confirmed };
    let stopped =
        || ApiError::failed("the daemon stops: `aquifer pool history` says what was done");
    let result = result.await.unwrap_or_else(|_| Err(stopped()));
    answer(result.map(|answer| Confirmed { waited, answer }))
}

pub(super) async fn refuse(
    acting: Acting,
    State(control): Control_,
    Name(name): Name,
    Body(request): Body<api::ConfirmAct>,
) -> Response {
    let number = match number(&name) {
        Ok(number) => number,
        Err(error) => return answer::<()>(Err(error)),
    };
    let concerned = control.waiting_concerns(number);
    let told = words::decide("refuse", (&name, &request.act), concerned);
    let by = acting.asker();
    acting.carry_out(told, async { control.refuse_act(number, &request.act, &by) }).await
}

/// Returns a note for one who sets `two_persons` where nobody can be the second person.
pub(super) fn note_on_alone(request: &api::SetProperties, tokens: &Tokens) -> Option<String> {
    let value = request.properties.get("two_persons")?.as_deref().unwrap_or("off");
    let is_admins = |token: &api::TokenInfo| token.role == api::Role::Admin && !token.expired;
    let admins = tokens.list().iter().filter(|token| is_admins(token)).count();
    (value != "off" && admins < 2).then(|| {
        "fewer than two tokens of the role admin are there: only the server's own socket confirms \
         what waits"
            .into()
    })
}

fn number(name: &str) -> Result<u64, ApiError> {
    let none =
        |_| ApiError::not_found(format!("no act {name:?} waits: `aquifer confirm` lists them"));
    name.parse().map_err(none)
}
