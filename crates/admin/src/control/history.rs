//! The history of a pool: each act is noted in the pool itself, before and after it.
//!
//! Invariants:
//! - An act is in the history on disk no later than its effect. Its outcome follows within seconds,
//!   or with the next act or the export, whichever comes first.
//! - The changes of an act are the differences between the states before and after it, not the
//!   request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use aquifer_api::{self as api, ApiError, ErrorKind, HistoryEntry, HistoryOutcome, guid_text};
use aquifer_dataset::history::{Act, Asked, HistoryChange, Noted, Outcome};
use aquifer_dataset::{Dataset, PropertyName};
use parking_lot::Mutex;
use serde::Serialize;

use super::Control;
use super::alarms::{DATASETS, SNAPSHOTS, destroyed_by};
use super::audit::Asker;
use super::serving::Serving;
use super::snapshots::SnapshotState;
use super::turns::Held;
use crate::status::{self, Beside};

/// A state, as named values.
pub type Facts = BTreeMap<String, String>;

/// State of the things that an act is about, at one moment.
#[derive(Debug, Clone)]
pub enum State {
    /// Named values.
    Values(Facts),
    /// The snapshots of a pool, of which there may be tens of thousands.
    Snapshots(SnapshotState),
}

impl State {
    /// The differences between this state and a later one of the same kind.
    pub fn changes(&self, after: &State) -> Vec<HistoryChange> {
        match (self, after) {
            (State::Values(before), State::Values(after)) => changes(before, after),
            (State::Snapshots(before), State::Snapshots(after)) => {
                let (before, after) = before.differing(after);
                changes(&before, &after)
            }
            _ => Vec::new(),
        }
    }
}

/// The pools in which an act is noted.
#[derive(Debug, Clone)]
pub enum Concerned {
    /// This one, if it is in service.
    Pool(String),
    /// All that are in service.
    All,
    /// The one that the act brings into service, by its name or guid; empty: none.
    New(String),
}

/// An act in progress.
#[derive(Debug)]
pub struct Noting {
    asked: Asked,
    asker: Asker,
    begun: Vec<(Arc<Serving>, Act)>,
    /// For [`Concerned::New`]: which one, and the pools in service before.
    new: Option<(String, BTreeSet<String>)>,
}

/// The note of an act that takes a pool out of service: its outcome must be noted before the pool
/// leaves.
#[derive(Debug, Clone, Default)]
pub struct Leaving(Arc<Mutex<Option<Noting>>>);

impl Leaving {
    /// Hands the note over, before the act.
    pub fn put(&self, noting: Noting) {
        *self.0.lock() = Some(noting);
    }

    /// Takes the note back after the act, if it is still there.
    pub fn take(&self) -> Option<Noting> {
        self.0.lock().take()
    }
}

impl Control {
    /// The acts on a pool, in order.
    ///
    /// # Errors
    /// There is no such pool in service, or its history cannot be read.
    pub async fn history(&self, name: &str) -> Result<Vec<HistoryEntry>, ApiError> {
        let serving = self.serving(name)?;
        let datasets = serving.service().datasets.clone();
        let noted = serving.run(async move { datasets.history().list().await }).await;
        let noted = noted.map_err(|error| ApiError::failed(error.to_string()))?;
        let unread = |error| ApiError::failed(format!("the history of {name:?}: {error}"));
        Ok(noted.map_err(unread)?.into_iter().map(entry).collect())
    }

    /// Waits until no other act on this pool is between its two looks at the state; `act` in words.
    ///
    /// # Errors
    /// One is, and waits for disks that do not answer.
    pub async fn look_turn(&self, pool: &str, act: &str) -> Result<Held, ApiError> {
        self.take_turn(&self.looks, (pool, act)).await
    }

    /// The name of the pool that a dataset, snapshot or file is in, as far as it is in service.
    pub fn pool_meant(&self, text: &str) -> String {
        self.pool_of_one(text).map_or_else(|_| text.into(), |serving| serving.name().into())
    }

    /// Notes that an act begins.
    pub fn note_begin(
        &self,
        concerned: &Concerned,
        asker: impl Into<Asker>,
        act: String,
    ) -> Noting {
        let asker = asker.into();
        let asked = Asked { who: asker.who.clone(), host: self.host.name.clone(), act };
        let (serving, new) = match concerned {
            Concerned::Pool(name) => (self.pool_of_one(name).into_iter().collect(), None),
            Concerned::All => (self.all_serving(), None),
            Concerned::New(which) => (Vec::new(), Some((which.clone(), self.names_in_service()))),
        };
        let begin = |serving: Arc<Serving>| {
            let act = serving.service().datasets.history().begin(asked.clone());
            (serving, act)
        };
        let begun = serving.into_iter().map(begin).collect();
        Noting { asked, asker, begun, new }
    }

    /// Notes the outcome of an act. Of those of one caller that fail and change nothing, the
    /// history has some.
    pub fn note_end(
        &self,
        noting: Noting,
        result: Result<(), &ApiError>,
        changes: Vec<HistoryChange>,
    ) {
        let (outcome, result) = match result {
            Ok(()) => (Outcome::Done, String::new()),
            Err(error) if error.kind == ErrorKind::Forbidden => {
                (Outcome::Forbidden, error.message.clone())
            }
            Err(error) => (Outcome::Failed, error.message.clone()),
        };
        let Noting { asked, asker, mut begun, new } = noting;
        let is_noted = outcome == Outcome::Done
            || !changes.is_empty()
            || self.failed.lock().is_noted(&asker.principal, Instant::now());
        // Feeders that prune their copies have no role here.
        if !asker.role.is_empty() {
            let count = destroyed_by(&asked.act, &changes);
            self.alarms.destroyed(&asker.principal, count, self.began.elapsed().as_secs());
        }
        self.audit_act(asker, asked.act.clone(), (outcome, &result));
        if let Some((which, before)) = new {
            let new = self.all_serving().into_iter();
            let is_it = |serving: &Arc<Serving>| {
                let guid = guid_text(serving.service().pool.guid().0);
                which == serving.name() || which == guid
            };
            let new = new.filter(|of| !before.contains(of.name()) && is_it(of));
            begun.extend(new.map(|serving| {
                let act = serving.service().datasets.history().begin(asked.clone());
                (serving, act)
            }));
        }
        for (serving, act) in begun {
            let service = serving.service();
            let history = service.datasets.history();
            match is_noted {
                true => history.finish(act, outcome, result.clone(), changes.clone()),
                false => history.forget(act),
            }
            // Soon, but not at once: no rewind can go back behind each further txg.
            service.pool.background_waits();
        }
    }

    /// Notes that a caller asked for a forbidden act: some of each caller, in log and history. One
    /// that repeats the request fills neither, and silences nobody.
    pub fn note_forbidden(
        &self,
        concerned: &Concerned,
        asker: Asker,
        act: String,
        refused: &ApiError,
    ) {
        let who = asker.who.clone();
        self.audit_refused(asker.clone(), act.clone(), refused);
        if !self.forbidden.lock().is_noted(&asker.principal, Instant::now()) {
            return;
        }
        tracing::warn!(class = "api.forbidden", who, act, "refused: the caller may not do this");
        for (serving, begun) in self.note_begin(concerned, asker, act).begun {
            let datasets = &serving.service().datasets;
            datasets.history().finish(begun, Outcome::Forbidden, String::new(), Vec::new());
            serving.service().pool.background_waits();
        }
    }

    pub(super) fn names_in_service(&self) -> BTreeSet<String> {
        self.all_serving().iter().map(|serving| serving.name().to_string()).collect()
    }

    /// The state of a pool's disks, and its notices that await clearing.
    pub fn facts_of_pool(&self, name: &str) -> Facts {
        let Ok(serving) = self.serving(name) else { return Facts::new() };
        let beside = Beside::default();
        let status = status::status(&serving.service().pool.status(), beside);
        let mut facts = Facts::new();
        for vdev in &status.vdevs {
            for leaf in &vdev.leaves {
                let of = match vdev.class {
                    api::VdevClass::Data => "",
                    api::VdevClass::Log => " (log)",
                };
                facts.insert(leaf.path.clone(), word(leaf.state) + of);
            }
        }
        let spares = status.waiting_spares();
        facts.extend(spares.map(|spare| (spare.path.clone(), word(spare.state) + " (spare)")));
        let caches = status.caches.iter();
        facts.extend(caches.map(|cache| (cache.path.clone(), word(cache.state) + " (cache)")));
        let guid = self.listed(name).map(|listed| listed.cached.guid);
        let dropped = guid.ok().and_then(|guid| self.dropped_logs.lock().get(&guid).cloned());
        facts.extend(dropped.map(|dropped| ("notice".to_string(), dropped.to_string())));
        facts
    }

    /// The values in force of these properties of a dataset. Without properties: `used`, and the
    /// numbers of datasets, itself and those below it, and of their snapshots.
    pub fn facts_of_dataset(&self, name: &str, properties: &[String]) -> Facts {
        let Ok(serving) = self.pool_of(name) else { return Facts::new() };
        let datasets = &serving.service().datasets;
        let Some(dataset) = datasets.by_name(name) else { return Facts::new() };
        if properties.is_empty() {
            let used = datasets.used_bytes(&dataset);
            let below = datasets.below(&dataset);
            let count = |of: &Arc<Dataset>| of.snapshot_count() + of.file_snapshot_count();
            return Facts::from([
                (DATASETS.to_string(), below.len().to_string()),
                (SNAPSHOTS.to_string(), below.iter().map(count).sum::<usize>().to_string()),
                ("used".to_string(), used.to_string()),
            ]);
        }
        let users = datasets.user_values(&dataset);
        let known = properties.iter().filter_map(|name| PropertyName::parse(name).ok());
        let value = |name: PropertyName| {
            let (value, source) = match &name {
                PropertyName::Native(property) => datasets.value(&dataset, *property),
                PropertyName::User(name) => {
                    let found = users.iter().find(|(of, ..)| of == name);
                    let value = found.map(|(_, value, source)| (value.clone(), source.clone()));
                    value.unwrap_or_else(|| ("-".into(), "local".into()))
                }
            };
            let of = if source == "local" { String::new() } else { format!(" ({source})") };
            (name.name().to_string(), format!("{value}{of}"))
        };
        known.map(value).collect()
    }

    /// The number of locks of an address.
    pub fn facts_of_locks(&self, address: IpAddr) -> Facts {
        let (locks, _) = self.frontend.locks();
        let of = locks.iter().filter(|lock| lock.owner.client.address == address.to_canonical());
        Facts::from([(format!("locks of {address}"), of.count().to_string())])
    }
}

/// A state in the API's word for it.
fn word(state: impl Serialize) -> String {
    let word = serde_json::to_value(state).unwrap_or_default();
    word.as_str().unwrap_or_default().into()
}

fn changes(before: &Facts, after: &Facts) -> Vec<HistoryChange> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |facts: &Facts, name: &String| facts.get(name).cloned().unwrap_or_default();
    let change = |name: &String| HistoryChange {
        what: name.clone(),
        before: of(before, name),
        after: of(after, name),
    };
    names.into_iter().map(change).filter(|change| change.before != change.after).collect()
}

fn entry(Noted { record, running }: Noted) -> HistoryEntry {
    let some = |text: String| (!text.is_empty()).then_some(text);
    let changes = record.changes.into_iter().map(|change| api::HistoryChange {
        what: change.what,
        before: some(change.before),
        after: some(change.after),
    });
    HistoryEntry {
        order: record.order,
        began_ns: record.began.since_1970_ns(),
        who: record.who,
        host: record.host,
        act: record.act,
        outcome: match record.outcome {
            Outcome::Done => HistoryOutcome::Done,
            Outcome::Failed => HistoryOutcome::Failed,
            Outcome::Forbidden => HistoryOutcome::Forbidden,
            Outcome::Begun if running => HistoryOutcome::Running,
            Outcome::Begun => HistoryOutcome::Unknown,
        },
        result: record.result,
        changes: changes.collect(),
        cut: record.cut || record.more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_what_came_went_or_is_other() {
        let facts = |some: &[(&str, &str)]| {
            some.iter().map(|(name, is)| (name.to_string(), is.to_string())).collect::<Facts>()
        };
        let before = facts(&[("a", "ONLINE"), ("b", "ONLINE"), ("c", "ONLINE")]);
        let after = facts(&[("a", "ONLINE"), ("b", "OUTDATED"), ("d", "ONLINE (log)")]);
        let told: Vec<(String, String, String)> = changes(&before, &after)
            .into_iter()
            .map(|change| (change.what, change.before, change.after))
            .collect();
        let line = |what: &str, before: &str, after: &str| {
            (what.to_string(), before.to_string(), after.to_string())
        };
        let expected = [
            line("b", "ONLINE", "OUTDATED"),
            line("c", "ONLINE", ""),
            line("d", "", "ONLINE (log)"),
        ];
        assert_eq!(told, expected);
    }
}
