//! Routes of acts that wait for a second person.

use aquifer_api::{
    self as api, ApiError, ConfirmAct, ConfirmationsQuery, Confirmed, On, Operation, RefuseAct,
};
use axum::response::Response;

use super::super::acts::{About, Acting, Told};
use super::super::asked::{Asked, Asking};
use super::answer;
use super::table::Table;
use crate::remote::tokens::Tokens;

pub(super) fn routes(table: Table) -> Table {
    table
        .question(async |at, ConfirmationsQuery| Ok(at.control.waiting_acts()))
        .act::<On<ConfirmAct>, _>(confirm)
        .act::<On<RefuseAct>, _>(refuse)
}

/// Answered when the act is carried out, by what came of it.
async fn confirm(acting: Acting, at: Asking, Asked(act): Asked<On<ConfirmAct>>) -> Response {
    let number = match number(&act.name) {
        Ok(number) => number,
        Err(error) => return answer::<()>(Err(error)),
    };
    let concerned = at.control.waiting_concerns(number);
    let told = Told::new(act.words(), About::Waiting(concerned));
    let (by, mut heard) = (at.caller.asker(), None);
    let confirm = async {
        let (waited, answer) = at.control.confirm_act((number, &act.request.act), &by)?;
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

async fn refuse(acting: Acting, at: Asking, Asked(act): Asked<On<RefuseAct>>) -> Response {
    let number = match number(&act.name) {
        Ok(number) => number,
        Err(error) => return answer::<()>(Err(error)),
    };
    let concerned = at.control.waiting_concerns(number);
    let told = Told::new(act.words(), About::Waiting(concerned));
    let by = at.caller.asker();
    acting.carry_out(told, async { at.control.refuse_act(number, &act.request.0.act, &by) }).await
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
