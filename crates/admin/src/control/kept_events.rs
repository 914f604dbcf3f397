//! Events that pools keep: over restarts, and on other machines.
//!
//! The ring of the daemon ([`crate::events`]) has all events of its life. What concerns a pool, and
//! matters later, goes into the pool as well.
//!
//! # Invariants
//! - An event of one pool is kept in that pool alone; those of the machine (the clock, the daemon)
//!   in each.
//! - A flood of one kind pushes out no other: a pool keeps a number of each kind in an hour.
//! - Nor does a flood of one disk or file hide another: of each, the first event of an hour is
//!   kept, for a number of them.
//! - What happens until a pool is exported is kept: the daemon's end loses none of it, a kill what
//!   came since the last txg.
//! - Keeping costs an idle pool no txg for what clients do: they come and go unnoted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use aquifer_api::{ApiError, Event};
use tokio::time::Instant;

use super::Control;
use super::serving::Serving;

impl Control {
    /// Keeps events in pools, as long as the daemon runs.
    pub async fn keep_events(&self) {
        self.events.follow(|| self.keep_new_events()).await;
    }

    /// Keeps those that have happened until now.
    pub(super) fn keep_new_events(&self) {
        self.events.catch_up(&self.followers.keeps, |kept, event| self.keep_event(kept, event));
    }

    fn keep_event(&self, Kept(kept): &mut Kept, event: &Event) {
        if !is_kept(event) {
            return;
        }
        kept.retain(|_, hour| hour.begun.elapsed() < HOUR);
        for serving in self.keepers(event) {
            let kind = (serving.name().to_string(), event.class.clone());
            if kept.entry(kind).or_insert_with(Hour::new).has_room(subject(event)) {
                keep(&serving, event);
            }
        }
    }

    /// The events that a pool has kept, oldest first.
    ///
    /// # Errors
    /// There is no such pool in service, or they cannot be read.
    pub async fn kept_events(&self, name: &str) -> Result<Vec<Event>, ApiError> {
        let serving = self.serving(name)?;
        let datasets = serving.service().datasets.clone();
        let read = serving.run(async move { datasets.history().events().await }).await;
        let read = read.map_err(|error| ApiError::failed(error.to_string()))?;
        let unread = |error| ApiError::failed(format!("the events of {name:?}: {error}"));
        let event = |record: aquifer_dataset::history::HistoryRecord| Event {
            sequence: record.order,
            wall_ns: record.began.since_1970_ns(),
            level: record.result,
            class: record.who,
            message: record.act,
            fields: record.changes.into_iter().map(|field| (field.what, field.after)).collect(),
        };
        Ok(read.map_err(unread)?.into_iter().map(event).collect())
    }

    /// The pools that an event concerns: its own, or all if it is of none.
    fn keepers(&self, event: &Event) -> Vec<Arc<Serving>> {
        match self.concerned(event) {
            Some(serving) => vec![serving],
            None if is_of_machine(event) => self.all_serving(),
            None => Vec::new(),
        }
    }
}

/// Whether somebody asks for it days later. What people did stands in the history anyway.
fn is_kept(event: &Event) -> bool {
    let part = event.class.split('.').next().unwrap_or_default();
    match part {
        "pool" | "vdev" | "disk" | "spare" | "log" | "scrub" | "drill" | "file" | "txg"
        | "locks" | "clock" => true,
        "daemon" | "snapshot" | "exports" => event.level != "info",
        _ => false,
    }
}

/// Whether it concerns all pools alike.
fn is_of_machine(event: &Event) -> bool {
    let part = event.class.split('.').next().unwrap_or_default();
    !event.fields.contains_key("pool") && ["clock", "daemon", "exports", "locks"].contains(&part)
}

/// Returns the subject of an event: a file, a snapshot or a disk.
fn subject(event: &Event) -> Vec<&str> {
    let fields = ["dataset", "file", "snapshot", "object", "leaf"];
    fields.iter().filter_map(|name| event.fields.get(*name).map(String::as_str)).collect()
}

fn keep(serving: &Serving, event: &Event) {
    let service = serving.service();
    let fields = event.fields.iter().filter(|(name, _)| *name != "pool");
    let fields = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
    let history = service.datasets.history();
    history.happened(&event.class, &event.level, &event.message, fields);
    service.pool.background_waits();
}

/// Counts of the events that pools have kept within an hour, by pool and class.
#[derive(Debug, Default)]
pub(super) struct Kept(HashMap<(String, String), Hour>);

/// How many of one kind were kept in an hour.
#[derive(Debug)]
struct Hour {
    begun: Instant,
    kept: u32,
    /// Subjects of these events.
    subjects: HashSet<Vec<String>>,
}

impl Hour {
    fn new() -> Hour {
        Hour { begun: Instant::now(), kept: 0, subjects: HashSet::new() }
    }

    /// Whether to keep another one, about this.
    fn has_room(&mut self, about: Vec<&str>) -> bool {
        if self.begun.elapsed() >= HOUR {
            *self = Hour::new();
        }
        let about: Vec<String> = about.into_iter().map(str::to_string).collect();
        let is_new = self.subjects.len() < SUBJECTS_IN_AN_HOUR && self.subjects.insert(about);
        self.kept = self.kept.saturating_add(1);
        is_new || self.kept <= IN_AN_HOUR
    }
}

const HOUR: Duration = Duration::from_secs(3600);
/// Events of one class in an hour: with 64 kinds a pool keeps the last hours of the worst day.
const IN_AN_HOUR: u32 = 16;
/// Files, snapshots or disks of which the first one of a class in an hour is kept in any case.
const SUBJECTS_IN_AN_HOUR: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_do_is_not_kept_and_a_flood_ends() {
        let event = |class: &str, level: &str| Event {
            sequence: 1,
            wall_ns: 1,
            level: level.into(),
            class: class.into(),
            message: String::new(),
            fields: Default::default(),
        };
        assert!(is_kept(&event("disk.failed", "error")) && is_kept(&event("scrub.begun", "info")));
        assert!(
            is_kept(&event("daemon.bug", "error")) && !is_kept(&event("daemon.started", "info"))
        );
        assert!(!is_kept(&event("client.connected", "info")));
        assert!(!is_kept(&event("api.refused", "warn")));
        let mut hour = Hour::new();
        let kept = (0..1000).filter(|_| hour.has_room(vec!["a"])).count();
        assert_eq!(kept, IN_AN_HOUR as usize);
        // Another disk is not hidden. Many of them are bounded.
        assert!(hour.has_room(vec!["b"]) && !hour.has_room(vec!["b"]));
        let disks: Vec<String> = (0..1000).map(|disk| disk.to_string()).collect();
        let kept = disks.iter().filter(|disk| hour.has_room(vec![disk])).count();
        assert_eq!(kept, SUBJECTS_IN_AN_HOUR - 2);
    }
}
