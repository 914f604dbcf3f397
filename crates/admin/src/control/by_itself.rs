//! Notes in the histories of pools about what they do by themselves: a spare that stands in, a disk
//! that is taken out of use or replaced, a pool that comes back.
//!
//! It goes by the events that say so. They come after what they tell of, and the history is written
//! with a later txg: a kill in between loses the note, and nothing else. An orderly end loses
//! nothing.
//!
//! # Invariants
//! - The same is noted once an hour at most. So a disk that fails again and again does not push
//!   what people did out of the history.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_api::{Event, HISTORY_ITSELF};
use aquifer_dataset::history::{Asked, Outcome};
use tokio::time::Instant;

use super::Control;
use super::serving::Serving;

impl Control {
    /// Notes what pools do by themselves, as long as the daemon runs.
    pub async fn note_acts_by_itself(&self) {
        self.events.follow(|| self.note_new_acts()).await;
    }

    /// Notes what they have done until now.
    pub(super) fn note_new_acts(&self) {
        self.events.catch_up(&self.followers.notes, |noted, event| self.note_act(noted, event));
    }

    fn note_act(&self, Noted(noted): &mut Noted, event: &Event) {
        let Some(act) = act_of(event) else { return };
        let Some(serving) = self.concerned(event) else { return };
        noted.retain(|_, at| at.elapsed() < AGAIN_AFTER);
        let what = (serving.name().to_string(), act.clone());
        if noted.insert(what, Instant::now()).is_none() {
            self.note_by_itself(&serving, act);
        }
    }

    fn note_by_itself(&self, serving: &Serving, act: String) {
        let service = serving.service();
        let (who, host) = (HISTORY_ITSELF.to_string(), self.host.name.clone());
        let history = service.datasets.history();
        let begun = history.begin(Asked { who: who.clone(), host, act: act.clone() });
        history.finish(begun, Outcome::Done, String::new(), Vec::new());
        self.audit_act(who.into(), act, (Outcome::Done, ""));
        service.pool.background_waits();
    }

    /// The pool that an event tells of: by name, or by one of its disks.
    pub(super) fn concerned(&self, event: &Event) -> Option<Arc<Serving>> {
        if let Some(pool) = event.fields.get("pool") {
            return self.serving(pool).ok();
        }
        let leaf = event.fields.get("leaf")?;
        let has = |serving: &Arc<Serving>| {
            serving.service().pool.status().paths().any(|path| path == leaf)
        };
        self.all_serving().into_iter().find(has)
    }
}

/// When an act of a pool was noted last.
#[derive(Debug, Default)]
pub(super) struct Noted(HashMap<(String, String), Instant>);

/// Describes an event for the history; `None` if the history does not have it.
fn act_of(event: &Event) -> Option<String> {
    let field = |name: &str| event.fields.get(name).map(String::as_str).unwrap_or_default();
    let leaf = field("leaf");
    Some(match event.class.as_str() {
        "spare.taken" if field("by_order") != "true" => {
            format!("spare {} stands in for {leaf}", field("spare"))
        }
        "disk.left" => format!("{leaf} leaves its vdev, which is whole without it"),
        "disk.failed" => format!("{leaf} is taken out of use: {}", field("error")),
        "disk.resilvered" => format!("{leaf} is up to date"),
        "disk.autoreplaced" => {
            format!("{leaf} is replaced by {} (autoreplace)", field("new"))
        }
        "pool.resumed" => "the pool is in service again: its disks are back".into(),
        _ => return None,
    })
}

/// Time in which the same act is not noted again.
const AGAIN_AFTER: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn event(class: &str, fields: &[(&str, &str)]) -> Event {
        let field = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Event {
            sequence: 1,
            wall_ns: 1,
            level: "info".into(),
            class: class.into(),
            message: String::new(),
            fields: fields.iter().map(field).collect::<BTreeMap<_, _>>(),
        }
    }

    #[test]
    fn orders_are_not_noted_a_second_time() {
        let taken = [("spare", "/dev/c"), ("leaf", "/dev/b")];
        let by =
            |word| act_of(&event("spare.taken", &[&taken[..], &[("by_order", word)]].concat()));
        assert_eq!(by("false").unwrap(), "spare /dev/c stands in for /dev/b");
        assert_eq!(by("true"), None);
        assert_eq!(act_of(&event("disk.attached", &[("disk", "/dev/c")])), None);
    }
}
