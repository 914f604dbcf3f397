//! How an act is carried out: once, noted in the history of the pools that it concerns, with who
//! asked for it, what came of it, and what it changed.
//!
//! Invariant: nobody waits for an answer as long as disks do not answer. An act that was not begun
//! is refused. One that was begun goes on to its end, and its caller hears that.

mod second;

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use aquifer_admin::Control;
use aquifer_admin::control::guard::Guard;
use aquifer_admin::control::history::{Concerned, Facts, Leaving, State};
use aquifer_admin::control::{Named, Puller, Scope};
use aquifer_api::{ApiError, ImportRequest, Role};
use aquifer_files::subject::pools;
use aquifer_pool::BoxFuture;
use axum::extract::FromRequestParts;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;
use tokio::time::sleep;

use super::asked::caller_of;
use super::gate::Early;
use super::routes::answer;
use super::{Api, refusal};
use crate::caller::{Caller, Who};
use second::Waited;

/// An act that was asked for.
#[derive(Debug, Clone)]
pub(super) struct Told {
    /// In words of the command line.
    pub words: String,
    /// Subject of the act.
    pub about: About,
    /// Role that the caller must have, beyond the one that the route needs.
    pub needs: Role,
    /// All datasets that it names; `None`: it is not for those who count for some alone.
    pub named: Option<Vec<Named>>,
    /// It does not wait for an act that may hang.
    pub is_forced: bool,
    /// The pool of an act that is noted nowhere.
    pub of: Option<String>,
    /// Whether it waits for a second person.
    pub guard: Guard,
}

/// Subject of an act.
#[derive(Debug, Clone)]
pub(super) enum About {
    /// A pool.
    Pool(String),
    /// A pool that goes out of service.
    Leaving(String, Leaving),
    /// The pool of this name or guid, which comes into service.
    Coming(String),
    /// These properties of a dataset, or all of it.
    Dataset(String, Vec<String>),
    /// Snapshots of a pool.
    Snapshots(String),
    /// Locks of an address.
    Locks(IpAddr),
    /// A token.
    Token(String),
    /// A decision about an act that waits.
    Waiting(Concerned),
    /// Nothing is changed.
    Nothing,
}

impl Told {
    /// An act that needs no more than its route.
    pub fn new(words: String, about: About) -> Told {
        let (needs, is_forced, of, guard) = (Role::Metrics, false, None, Guard::Free);
        Told { words, about, needs, named: None, is_forced, of, guard }
    }

    /// Returns the act with the list of all datasets that it names.
    pub fn naming(self, named: impl IntoIterator<Item = Named>) -> Told {
        Told { named: Some(named.into_iter().collect()), ..self }
    }

    /// Returns the act with a guard, since it loses something.
    pub fn guarded(self, guard: Guard) -> Told {
        Told { guard, ..self }
    }
}

/// The caller who is to be answered, with the state that an act needs.
pub(super) struct Acting {
    caller: Caller,
    api: Api,
    early: Option<Early>,
    /// Bytes of the request, as far as its head says.
    request_bytes: Option<u64>,
}

impl Acting {
    /// Whether an act on this token takes a second person, unless it is the caller's own.
    pub fn takes_two(&self, token: &str) -> bool {
        self.api.tokens.takes_two(token) && self.caller.token() != Some(token)
    }

    /// The caller as one that fetches copies.
    ///
    /// # Errors
    /// It has no token.
    pub fn puller(&self) -> Result<Puller, ApiError> {
        self.caller.puller()
    }

    /// The daemon.
    pub fn control(&self) -> &Control {
        &self.api.control
    }

    /// The datasets for which the caller counts.
    pub fn scope(&self) -> &Scope {
        self.caller.scope()
    }

    /// Fails unless the caller counts for all that an act names.
    fn check_named(&self, named: Option<&[Named]>) -> Result<(), ApiError> {
        match named {
            Some(named) => self.api.control.check_named(self.scope(), named),
            None if self.scope().is_all() => Ok(()),
            None => Err(self.scope().refused()),
        }
    }

    /// A value that counts only if one at this machine says it.
    pub fn typed_here<T>(&self, typed: Option<T>) -> Option<T> {
        typed.filter(|_| matches!(self.caller.who(), Who::User(_)))
    }

    /// Carries out an act, at once or when it has waited for a second person.
    pub async fn carry_out<T: Serialize + Send + 'static>(
        self,
        told: Told,
        act: impl Future<Output = Result<T, ApiError>> + Send,
    ) -> Response {
        // Some are large, and each future around one would have it whole.
        let act: BoxFuture<'_, Result<T, ApiError>> = Box::pin(act);
        let Told { words, about, needs, named, guard, .. } = &told;
        let may = self.caller.needs(*needs).and_then(|()| self.check_named(named.as_deref()));
        if let Err(refused) = may {
            let (control, asker) = (&self.api.control, self.caller.asker());
            control.note_forbidden(&about.concerned(), asker, words.clone(), &refused);
            return answer::<T>(Err(refused));
        }
        if let About::Nothing = about {
            let pool = self.pool_of(&told);
            return answer(self.to_its_end(pool.as_deref(), None, act).await);
        }
        let mut waited = match self.second_person((words, about), guard).await {
            Ok(waited) => waited,
            Err(response) => return response,
        };
        let result = self.carry(told, &mut waited, act).await;
        if let Some(waited) = &mut waited {
            waited.answer(&result);
        }
        answer(result)
    }

    async fn carry<T: Send + Serialize + 'static>(
        &self,
        told: Told,
        waited: &mut Option<Waited>,
        act: BoxFuture<'_, Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let pool = self.pool_of(&told);
        let Told { words, about, named, is_forced, guard, .. } = told;
        let control = &self.api.control;
        let asker = self.caller.asker();
        let asker = match waited {
            Some(waited) => waited.asker(asker),
            None => asker,
        };
        // What an act is about must not change by another one between the two looks at it. Tokens
        // and locks are not waited for: to take a right away is not to wait for an import.
        let turn = match &pool {
            Some(pool) if !is_forced => Some(control.look_turn(pool, &words).await?),
            _ => None,
        };
        // Datasets may have come or gone while it waited.
        self.check_named(named.as_deref())?;
        let before = self.state(&about);
        let noting = control.note_begin(&about.concerned(), asker, words);
        let may_go = self.may_go(waited.as_ref(), &guard);
        let act = async {
            may_go?;
            act.await
        };
        let (result, noting) = match &about {
            About::Leaving(_, leaving) => {
                leaving.put(noting);
                // Still there if it was not carried out.
                let pool = pool.as_deref().filter(|_| !is_forced);
                (self.to_its_end(pool, waited.as_mut(), act).await, leaving.take())
            }
            _ => (self.to_its_end(pool.as_deref(), waited.as_mut(), act).await, Some(noting)),
        };
        if let Some(noting) = noting {
            let changed = before.changes(&self.state(&about));
            control.note_end(noting, result.as_ref().map(drop), changed);
        }
        drop(turn);
        result
    }

    fn pool_of(&self, told: &Told) -> Option<String> {
        let named = told.about.pool().or_else(|| told.of.clone());
        named.map(|name| self.api.control.pool_meant(&name))
    }

    /// Carries out an act to its end. If the disks of its pool fall silent, its caller hears that
    /// before, and whoever confirmed it.
    async fn to_its_end<T: Serialize>(
        &self,
        pool: Option<&str>,
        waited: Option<&mut Waited>,
        act: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let mut act = pin!(act);
        if let Some((pool, early)) = pool.zip(self.early.as_ref()) {
            let control = &self.api.control;
            let silence = async {
                control.unanswered(pool).await;
                // An act that waits for its turn hears it as well, and says more.
                sleep(GRACE).await;
                control.unanswered(pool).await
            };
            tokio::select! {
                biased;
                done = &mut act => return done,
                disks = silence => {
                    let under_way = control.under_way(pool, &disks);
                    if let Some(waited) = waited {
                        waited.answer::<T>(&Err(under_way.clone()));
                    }
                    early.answer(refusal(under_way));
                }
            }
        }
        act.await
    }

    fn state(&self, about: &About) -> State {
        let control = &self.api.control;
        let values = match about {
            About::Pool(name) => control.facts_of_pool(name),
            About::Dataset(name, properties) => control.facts_of_dataset(name, properties),
            About::Snapshots(pool) => return State::Snapshots(control.state_of_snapshots(pool)),
            About::Locks(address) => control.facts_of_locks(*address),
            About::Token(name) => {
                let tokens = self.api.tokens.list().into_iter();
                let of = tokens.filter(|token| token.name == *name).map(|token| {
                    let ends = token.expires_s.map_or("never".into(), aquifer_api::time::text_s);
                    let made = aquifer_api::time::text_s(token.made_s);
                    let bound = token.certificates.iter().map(|one| format!(", bound to {one}"));
                    let within = token.datasets.iter().map(|one| format!(", for {one}"));
                    let bound: String = bound.chain(within).collect();
                    let fact = format!("{}, made {made}, ends {ends}{bound}", token.role);
                    (format!("token {name}"), fact)
                });
                of.collect()
            }
            About::Leaving(..) | About::Coming(_) | About::Waiting(_) | About::Nothing => {
                Facts::new()
            }
        };
        State::Values(values)
    }
}

impl About {
    /// Snapshots of the pool of this one.
    pub fn snapshots(name: &str) -> About {
        About::Snapshots(pools(name).next().unwrap_or_default().into())
    }

    fn concerned(&self) -> Concerned {
        match self {
            About::Pool(name) | About::Leaving(name, _) | About::Snapshots(name) => {
                Concerned::Pool(name.clone())
            }
            About::Dataset(name, _) => {
                let pool = name.split_once('/').map_or(name.as_str(), |(pool, _)| pool);
                Concerned::Pool(pool.into())
            }
            About::Locks(_) | About::Token(_) => Concerned::All,
            About::Coming(which) => Concerned::New(which.clone()),
            About::Waiting(concerned) => concerned.clone(),
            About::Nothing => Concerned::New(String::new()),
        }
    }

    /// The pool that an act is about, by a name that begins with its own.
    fn pool(&self) -> Option<String> {
        match self {
            About::Pool(name)
            | About::Leaving(name, _)
            | About::Snapshots(name)
            | About::Coming(name)
            | About::Dataset(name, _) => Some(name.clone()),
            About::Locks(_) | About::Token(_) | About::Waiting(_) | About::Nothing => None,
        }
    }
}

impl FromRequestParts<Api> for Acting {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Acting, Response> {
        let caller = caller_of(parts)?;
        let early = parts.extensions.get::<Early>().cloned();
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let request_bytes = length.and_then(|length| length.parse().ok());
        Ok(Acting { caller, api: api.clone(), early, request_bytes })
    }
}

/// For the words of an act that waits for its turn.
const GRACE: Duration = Duration::from_secs(1);

/// Returns the role that an import needs.
pub(super) fn import_needs(request: &ImportRequest) -> Role {
    let loses = request.rewind > 0
        || request.discard_log
        || request.missing_log
        || request.missing_vdev
        || request.discard_unreadable
        || request.use_offline
        || request.old_config
        || request.force
        || request.new_name.is_some();
    if loses { Role::Admin } else { Role::Operator }
}

/// Returns the role needed to set properties: `sharenfs` lets hosts in, which then write every
/// disk; `snapcontrol` lets them destroy snapshots; `sync=disabled` loses what was acknowledged;
/// `snapshots` and `filesnapshots` prune; `standby` takes a dataset out of service, or lets hosts
/// in; `replicate` sends all of it elsewhere, and `pull` brings it from there; `hold_max` bounds
/// what nobody can take back, and `retain` places it.
pub(super) fn properties_need<'a>(
    set: impl Iterator<Item = (&'a String, Option<&'a String>)>,
) -> Role {
    let is_admins = |(name, value): (&'a String, Option<&'a String>)| match name.as_str() {
        "sharenfs" | "snapcontrol" | "snapshots" | "filesnapshots" | "standby" | "replicate"
        | "pull" | "hold_max" | "retain" => true,
        // Inherited, it may be disabled.
        "sync" => value.is_none_or(|value| value.starts_with("disabled")),
        _ => false,
    };
    let mut set = set;
    if set.any(is_admins) { Role::Admin } else { Role::Operator }
}
