//! Acts over the network that wait for a second person.
//!
//! The task that was asked for an act keeps it, as it came, and waits: what is carried out is what
//! was shown. Here stands who waits for what, and who may decide.
//!
//! Invariants:
//! - Nobody confirms what was asked for in the same name, from wherever, and however often its
//!   token was made again.
//! - Bounded, in all and by who asks: whoever asks all the time pushes out nobody.
//! - What was asked, and what came of that, is in the history and has an audit line, with who asked
//!   and who decided.

use std::collections::BTreeMap;

use aquifer_api::time::{now_s, text_s};
use aquifer_api::{AfterWait, ApiError, HISTORY_ITSELF, Problem, Severity, WaitingAct, codes};
use aquifer_dataset::TwoPersons;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use super::Control;
use super::audit::Asker;
use super::history::Concerned;

/// How long an act waits for a second person.
const WAITS_S: u64 = 3600;
/// Acts of one who asks.
const ACTS_OF_ONE: usize = 8;
/// Acts of all.
const ACTS: usize = 64;
/// Longest act in words: somebody must read it.
const WORDS_BYTES: usize = 4096;
/// Longest request that is kept.
const REQUEST_BYTES: u64 = 16 << 10;

/// An act that is to wait.
#[derive(Debug, Clone)]
pub struct Ask {
    /// All of it, in words of the command line.
    pub act: String,
    /// Caller that asks.
    pub asker: Asker,
    /// The pools in whose history it is noted.
    pub concerned: Concerned,
    /// Bytes of the request, as far as its head says.
    pub request_bytes: Option<u64>,
}

/// The answer of an act, for the one who confirmed it.
pub type Reply = oneshot::Sender<Result<Value, ApiError>>;

/// Decision of somebody about an act that waits.
#[derive(Debug)]
pub enum Verdict {
    /// To carry it out.
    Confirmed {
        /// Name of the one who confirmed it, as the history has it.
        by: String,
        /// Hears what came of it.
        reply: Reply,
    },
    /// To drop it, for this reason.
    Dropped(String),
}

/// All acts that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Acts>);

#[derive(Debug, Default)]
struct Acts {
    last: u64,
    all: BTreeMap<u64, Waits>,
}

#[derive(Debug)]
struct Waits {
    shown: WaitingAct,
    asker: Asker,
    concerned: Concerned,
    verdict: oneshot::Sender<Verdict>,
}

impl Waiting {
    /// Lists as problems the acts that wait.
    pub fn problems(&self) -> Vec<Problem> {
        let acts = self.0.lock();
        let problem = |waits: &Waits| {
            let WaitingAct { number, act, who, until_s, then, .. } = &waits.shown;
            let then = match then {
                AfterWait::Dropped => "waits for a second person until",
                AfterWait::CarriedOut => "is carried out, unless somebody refuses it, at",
            };
            let status = format!("\"{act}\", which {who} asked for, {then} {}", text_s(*until_s));
            let action = format!(
                "If it is meant, type `aquifer confirm {number}`. If not, type `aquifer confirm \
                 --refuse {number}`, and revoke the token on the server."
            );
            Problem::new(codes::ACT_WAITS, Severity::Warning, status, Some(action))
        };
        acts.all.values().map(problem).collect()
    }

    fn put(&self, ask: Ask, how: TwoPersons) -> Result<Put, ApiError> {
        let Ask { act, asker, concerned, request_bytes } = ask;
        let is_short = request_bytes.is_some_and(|bytes| bytes <= REQUEST_BYTES);
        if act.len() > WORDS_BYTES || !is_short {
            return Err(ApiError::conflict(format!(
                "it would wait for a second person, who cannot read so much: ask for less at once, \
                 of up to {WORDS_BYTES} bytes in words, or on the server by its socket"
            )));
        }
        let mut acts = self.0.lock();
        let of_one = acts.all.values().filter(|of| of.asker.principal == asker.principal).count();
        if of_one >= ACTS_OF_ONE || acts.all.len() >= ACTS {
            return Err(ApiError::conflict(format!(
                "{} acts wait for a second person already ({of_one} of {}): `aquifer confirm` \
                 lists them; on the server, by its socket, none waits",
                acts.all.len(),
                asker.principal
            )));
        }
        let (waits_s, then) = match how {
            TwoPersons::Delay(seconds) => (seconds, AfterWait::CarriedOut),
            TwoPersons::Off | TwoPersons::On => (WAITS_S, AfterWait::Dropped),
        };
        // Numbers of an earlier life, which somebody has read, mean nothing now.
        let number = acts.last.max(now_s() % NUMBERS) + 1;
        acts.last = number;
        let asked_s = now_s();
        let (who, until_s) = (asker.who.clone(), asked_s.saturating_add(waits_s));
        let shown = WaitingAct { number, act, who, asked_s, until_s, then };
        let (verdict, heard) = oneshot::channel();
        let waits = Waits { shown: shown.clone(), asker, concerned, verdict };
        acts.all.insert(number, waits);
        Ok(Put { shown, waits_s, heard })
    }

    fn take(&self, number: u64, act: &str, by: &Asker, confirms: bool) -> Result<Waits, ApiError> {
        let mut acts = self.0.lock();
        let none = || {
            ApiError::not_found(format!(
                "no act {number} waits: `aquifer confirm` lists those that do"
            ))
        };
        let waits = acts.all.get(&number).ok_or_else(none)?;
        if waits.shown.act != act {
            let is = &waits.shown.act;
            let why = format!("act {number} is \"{is}\", and not \"{act}\": nothing was done");
            return Err(ApiError::conflict(why));
        }
        if confirms && waits.asker.principal == by.principal {
            return Err(ApiError::forbidden(format!(
                "{} asked for it itself: another administrator's token confirms it, or the \
                 server's own socket",
                by.principal
            )));
        }
        acts.all.remove(&number).ok_or_else(none)
    }
}

/// An act that waits now.
#[derive(Debug)]
pub struct Put {
    /// It.
    pub shown: WaitingAct,
    /// For how many seconds.
    pub waits_s: u64,
    /// Hears what is decided.
    pub heard: oneshot::Receiver<Verdict>,
}

/// The first number is the time within so many seconds.
const NUMBERS: u64 = 10_000;

impl Control {
    /// Has an act wait.
    ///
    /// # Errors
    /// It is too long, or too many wait.
    pub fn ask_second(&self, ask: Ask, how: TwoPersons) -> Result<Put, ApiError> {
        let (asker, concerned) = (ask.asker.clone(), ask.concerned.clone());
        let put = self.waiting.put(ask, how)?;
        let WaitingAct { number, act, who, .. } = &put.shown;
        tracing::warn!(class = "act.waits", number, act, who, "an act waits for a second person");
        self.note_said(&concerned, asker, format!("ask {number}: {act}"));
        Ok(put)
    }

    /// All acts that wait, in the order in which they were asked for.
    pub fn waiting_acts(&self) -> Vec<WaitingAct> {
        self.waiting.0.lock().all.values().map(|waits| waits.shown.clone()).collect()
    }

    /// Where a decision about an act is noted.
    pub fn waiting_concerns(&self, number: u64) -> Concerned {
        let acts = self.waiting.0.lock();
        acts.all.get(&number).map_or(Concerned::All, |waits| waits.concerned.clone())
    }

    /// Confirms an act. Returns it, and what its answer is heard by.
    ///
    /// # Errors
    /// None of this number waits, it is another one, or the one who asked for it confirms it.
    pub fn confirm_act(
        &self,
        (number, act): (u64, &str),
        by: &Asker,
    ) -> Result<(WaitingAct, oneshot::Receiver<Result<Value, ApiError>>), ApiError> {
        let waits = self.waiting.take(number, act, by, true)?;
        let (reply, heard) = oneshot::channel();
        // Its task ends only with the daemon; the receiver says so then.
        let _ = waits.verdict.send(Verdict::Confirmed { by: by.who.clone(), reply });
        Ok((waits.shown, heard))
    }

    /// Drops an act.
    ///
    /// # Errors
    /// None of this number waits, or it is another one.
    pub fn refuse_act(&self, number: u64, act: &str, by: &Asker) -> Result<WaitingAct, ApiError> {
        let waits = self.waiting.take(number, act, by, false)?;
        let _ = waits.verdict.send(Verdict::Dropped(format!("{} refused it", by.who)));
        Ok(waits.shown)
    }

    /// Drops the acts of one whose token is another one now, or none.
    pub fn drop_acts_of(&self, principal: &str) {
        let mut acts = self.waiting.0.lock();
        let numbers: Vec<u64> = acts
            .all
            .iter()
            .filter(|(_, waits)| waits.asker.principal == principal)
            .map(|(number, _)| *number)
            .collect();
        let gone: Vec<Waits> = numbers.iter().filter_map(|at| acts.all.remove(at)).collect();
        drop(acts);
        for waits in gone {
            let why = format!("{principal} is no longer what it was");
            self.note_over(&waits.shown, &waits.concerned, &why);
            let _ = waits.verdict.send(Verdict::Dropped(why));
        }
    }

    /// The time of an act is over. Returns whether nobody has decided meanwhile.
    pub fn end_wait(&self, number: u64) -> bool {
        let Some(waits) = self.waiting.0.lock().all.remove(&number) else { return false };
        if waits.shown.then == AfterWait::Dropped {
            self.note_over(&waits.shown, &waits.concerned, "nobody confirmed it in time");
        }
        true
    }

    fn note_over(&self, shown: &WaitingAct, concerned: &Concerned, why: &str) {
        let WaitingAct { number, act, .. } = shown;
        tracing::warn!(class = "act.dropped", number, act, why, "an act that waited was dropped");
        let itself = HISTORY_ITSELF.to_string();
        self.note_said(concerned, itself.into(), format!("drop {number}: {act} ({why})"));
    }

    fn note_said(&self, concerned: &Concerned, asker: Asker, said: String) {
        let noting = self.note_begin(concerned, asker, said);
        self.note_end(noting, Ok(()), Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use aquifer_api::ErrorKind;

    use super::*;

    fn asker(principal: &str) -> Asker {
        Asker { who: format!("{principal} from 10.0.0.1"), ..Asker::from(principal.to_string()) }
    }

    fn ask(principal: &str, act: &str) -> Ask {
        let (act, asker, concerned) = (act.to_string(), asker(principal), Concerned::All);
        Ask { act, asker, concerned, request_bytes: Some(10) }
    }

    #[test]
    fn only_another_one_confirms_what_was_shown() {
        let waiting = Waiting::default();
        let put = waiting.put(ask("token a", "pool destroy tank"), TwoPersons::On).unwrap();
        let WaitingAct { number, asked_s, until_s, then, .. } = put.shown;
        assert_eq!((until_s - asked_s, then), (WAITS_S, AfterWait::Dropped));
        let take = |number, act: &str, by: &str, confirms| {
            waiting.take(number, act, &asker(by), confirms).map_err(|error| error.kind)
        };
        let act = "pool destroy tank";
        assert_eq!(take(number, act, "token a", true).unwrap_err(), ErrorKind::Forbidden);
        assert_eq!(take(number + 1, act, "token b", true).unwrap_err(), ErrorKind::NotFound);
        let other = take(number, "pool destroy tank2", "token b", true).unwrap_err();
        assert_eq!(other, ErrorKind::Conflict);
        let problems = waiting.problems();
        let status = &problems[0].status;
        let told = "\"pool destroy tank\", which token a from 10.0.0.1 asked for, waits for a";
        assert!(problems.len() == 1 && status.starts_with(told), "{status}");
        take(number, act, "token b", true).unwrap();
        assert_eq!(take(number, act, "token b", true).unwrap_err(), ErrorKind::NotFound);
        assert!(waiting.problems().is_empty());
        // To take one's own back loses nothing.
        let again = waiting.put(ask("token a", act), TwoPersons::Delay(5)).unwrap().shown;
        assert!(again.number > number && again.then == AfterWait::CarriedOut);
        take(again.number, act, "token a", false).unwrap();
    }

    #[test]
    fn who_asks_all_the_time_fills_nothing_and_pushes_out_nobody() {
        let waiting = Waiting::default();
        let kept = waiting.put(ask("token b", "destroy tank/a"), TwoPersons::On).unwrap();
        let mut refused = 0;
        for _ in 0..1000 {
            refused += usize::from(waiting.put(ask("token a", "x"), TwoPersons::On).is_err());
        }
        assert_eq!(refused, 1000 - ACTS_OF_ONE);
        for at in 0..1000 {
            let _ = waiting.put(ask(&format!("token {at}"), "x"), TwoPersons::On);
        }
        assert_eq!(waiting.0.lock().all.len(), ACTS);
        let by = asker("uid 0");
        waiting.take(kept.shown.number, "destroy tank/a", &by, true).unwrap();
        // What nobody can read is not kept.
        assert!(waiting.put(ask("token n", &"x".repeat(WORDS_BYTES + 1)), TwoPersons::On).is_err());
        for request_bytes in [None, Some(REQUEST_BYTES + 1)] {
            let ask = Ask { request_bytes, ..ask("token n", "x") };
            assert!(waiting.put(ask, TwoPersons::On).is_err(), "{request_bytes:?}");
        }
        waiting.put(ask("token n", "x"), TwoPersons::On).unwrap();
    }
}
