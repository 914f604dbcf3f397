//! An act by TCP that waits for a second person, or for its delay: see
//! [`aquifer_admin::control::guard`].
//!
//! The act waits here, in its own task, as it was asked for. Nobody changes it meanwhile, and its
//! caller has heard that it waits.
//!
//! Invariant: an act that waited is carried out only while its pools have the property no stricter
//! than when it was asked for, its names mean what they meant, and its token is the same.

use std::time::Duration;

use aquifer_admin::control::audit::Asker;
use aquifer_admin::control::guard::{Guard, Meant, TwoPersons};
use aquifer_admin::control::{Ask, Put, Reply, Verdict};
use aquifer_api::time::text_s;
use aquifer_api::{AfterWait, ApiError, WaitingAct};
use axum::response::Response;
use serde::Serialize;
use tokio::time::sleep;

use super::{About, Acting};
use crate::http::refusal;
use crate::remote::tokens::Standing;

/// An act that may be carried out now.
pub(super) struct Waited {
    /// How it waited.
    how: TwoPersons,
    /// Meaning of its names when it was asked for.
    meant: Meant,
    /// Its token.
    token: Option<Standing>,
    /// Name of the one who decided.
    by: String,
    confirmed: bool,
    reply: Option<Reply>,
}

impl Waited {
    /// Adds the one who decided to the one who asks.
    pub fn asker(&self, asker: Asker) -> Asker {
        Asker { who: format!("{}, {}", asker.who, self.by), ..asker }
    }

    /// Whoever confirmed it hears what came of it.
    pub fn answer<T: Serialize>(&mut self, result: &Result<T, ApiError>) {
        let Some(reply) = self.reply.take() else { return };
        let value = |done: &T| {
            serde_json::to_value(done).map_err(|error| ApiError::failed(error.to_string()))
        };
        // Nobody may listen any more.
        let _ = reply.send(result.as_ref().map_err(Clone::clone).and_then(value));
    }
}

impl Acting {
    /// Waits, if the act has to.
    ///
    /// # Errors
    /// The answer, if it is not carried out.
    pub(super) async fn second_person(
        &self,
        (words, about): (&str, &About),
        guard: &Guard,
    ) -> Result<Option<Waited>, Response> {
        let how = self.must_wait(guard);
        if how == TwoPersons::Off {
            return Ok(None);
        }
        let control = &self.api.control;
        let asker = self.caller.asker();
        let refuse = |error: ApiError| {
            control.note_forbidden(&about.concerned(), asker.clone(), words.into(), &error);
            refusal(error)
        };
        if let Guard::Never(name) = guard {
            return Err(refuse(ApiError::conflict(format!(
                "the pool of {name:?} has two_persons, and this cannot wait for a second person: \
                 use the server's own socket"
            ))));
        }
        let meant = control.meant(guard).map_err(refusal)?;
        let (request_bytes, token) = (self.request_bytes, self.token());
        let concerned = about.asked_concerned();
        let ask = Ask { act: words.into(), asker: asker.clone(), concerned, request_bytes };
        let Put { shown, waits_s, mut heard } = control.ask_second(ask, how).map_err(refuse)?;
        if let Some(early) = &self.early {
            early.answer(refusal(waits(&shown, how)));
        }
        let waited = |by: String, confirmed, reply| {
            Ok(Some(Waited { how, meant, token, by, confirmed, reply }))
        };
        let verdict = tokio::select! {
            verdict = &mut heard => verdict,
            () = sleep(Duration::from_secs(waits_s)) => {
                if control.end_wait(shown.number) {
                    return match shown.then {
                        AfterWait::CarriedOut => waited(format!("waited, as {how}"), false, None),
                        AfterWait::Dropped => Err(dropped("nobody confirmed it in time")),
                    };
                }
                // Somebody decided at the last moment.
                heard.await
            }
        };
        match verdict {
            Ok(Verdict::Confirmed { by, reply }) => {
                waited(format!("confirmed by {by}"), true, Some(reply))
            }
            Ok(Verdict::Dropped(why)) => Err(dropped(&why)),
            Err(_) => Err(dropped("the daemon stops")),
        }
    }

    /// Fails if an act must not be carried out, now that it has its turn.
    pub(super) fn may_go(&self, waited: Option<&Waited>, guard: &Guard) -> Result<(), ApiError> {
        let now = self.must_wait(guard);
        let Some(waited) = waited else {
            return match now {
                TwoPersons::Off => Ok(()),
                _ => Err(again("two_persons was set meanwhile")),
            };
        };
        if !waited.confirmed && now > waited.how {
            return Err(again("two_persons is stricter now"));
        }
        if self.token() != waited.token {
            return Err(again("the token that asked for it has ended or changed since"));
        }
        match self.api.control.meant(guard)? == waited.meant {
            true => Ok(()),
            false => Err(again("what it names is something else now")),
        }
    }

    fn must_wait(&self, guard: &Guard) -> TwoPersons {
        match self.caller.token() {
            Some(_) => self.api.control.two_persons(guard),
            // Root of the machine.
            None => TwoPersons::Off,
        }
    }

    fn token(&self) -> Option<Standing> {
        self.api.tokens.standing(self.caller.token()?)
    }
}

impl About {
    /// Where it is noted that somebody asks: what is not there yet has no history.
    fn asked_concerned(&self) -> super::Concerned {
        match self {
            About::Coming(_) => super::Concerned::All,
            other => other.concerned(),
        }
    }
}

fn again(why: &str) -> ApiError {
    ApiError::conflict(format!("{why}: nothing was done. Ask for it again"))
}

fn dropped(why: &str) -> Response {
    refusal(ApiError::conflict(format!("it was dropped: {why}")))
}

/// Makes the answer that the caller hears while the act waits.
fn waits(shown: &WaitingAct, how: TwoPersons) -> ApiError {
    let WaitingAct { number, act, who, until_s, then, .. } = shown;
    let until = text_s(*until_s);
    ApiError::needs_second(match then {
        AfterWait::Dropped => format!(
            "\"{act}\" waits for a second person until {until}, asked for by {who}. Nothing is \
             done yet. Another administrator carries it out with `aquifer confirm {number}`, or \
             drops it with `aquifer confirm --refuse {number}`"
        ),
        AfterWait::CarriedOut => format!(
            "\"{act}\" waits until {until} (two_persons={how}), asked for by {who}, and is carried \
             out then. Nothing is done yet. Another administrator carries it out before with \
             `aquifer confirm {number}`, or drops it with `aquifer confirm --refuse {number}`"
        ),
    })
}
