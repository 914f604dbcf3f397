//! Audit lines of acts and refusals: see `aquifer_audit`.
//!
//! They are noted where the history of pools is ([`super::history`]): an act that has words there
//! has a line. Beside those, each refusal has one, also of a question, and each act of a host.

use std::sync::Arc;

use aquifer_api::{ApiError, Event};
use aquifer_audit::{Audit, Entry, Kind};
use aquifer_dataset::history::Outcome;

use super::Control;
use crate::events::Witness;

/// Caller that asks for an act.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asker {
    /// As the history has it.
    pub who: String,
    /// By what limits count: `token ci`, `uid 0`.
    pub principal: String,
    /// The role, if there is one.
    pub role: String,
    /// An address, or `socket`.
    pub from: String,
}

impl From<String> for Asker {
    fn from(who: String) -> Asker {
        Asker { principal: who.clone(), who, ..Asker::default() }
    }
}

impl Control {
    /// Where audit lines go.
    pub fn audit(&self) -> &Audit {
        &self.config.audit
    }

    /// An act has ended.
    pub(super) fn audit_act(&self, asker: Asker, act: String, end: (Outcome, &str)) {
        let (outcome, why) = (word(end.0).into(), end.1.into());
        let kind = if end.0 == Outcome::Forbidden { Kind::Refused } else { Kind::Act };
        let Asker { principal: who, role, from, .. } = asker;
        self.audit().note(Entry { kind, who, role, from, act, outcome, why, ..Entry::default() });
    }

    /// Somebody may not ask for this: an act or a question.
    pub fn audit_refused(&self, asker: Asker, act: String, refused: &ApiError) {
        self.alarms.refused(&asker.principal, self.began.elapsed().as_secs());
        self.audit_act(asker, act, (Outcome::Forbidden, &refused.message));
    }
}

/// Notes what hosts do over NFS. It goes by the events that say so.
pub(super) fn of_hosts(audit: Arc<Audit>) -> Witness {
    Witness(Box::new(move |event| entry_of_host(event).into_iter().for_each(|of| audit.note(of))))
}

/// The line of an act of a host; `None` if the event tells of none.
fn entry_of_host(event: &Event) -> Option<Entry> {
    let field = |name: &str| event.fields.get(name).cloned().unwrap_or_default();
    let who = field("who");
    let from = who.strip_prefix("host ")?.to_string();
    let is_refused = event.class == "snapshot.refused";
    let named = || {
        let names = ["snapshot", "snapshots", "new", "file"].map(field);
        let names = names.into_iter().filter(|name| !name.is_empty());
        names.fold(event.message.clone(), |text, name| format!("{text} {name}"))
    };
    let act = if is_refused { field("act") } else { named() };
    let (outcome, why) = match is_refused {
        true => (word(Outcome::Failed), field("error")),
        false => (word(Outcome::Done), String::new()),
    };
    let (outcome, wall_ns) = (outcome.into(), event.wall_ns);
    // Refusals of a host are bounded as those of others.
    let kind = if is_refused { Kind::Refused } else { Kind::Act };
    Some(Entry { kind, who, from, act, outcome, why, wall_ns, ..Entry::default() })
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Forbidden => "forbidden",
        Outcome::Failed => "failed",
        Outcome::Begun => "begun",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(class: &str, fields: &[(&str, &str)]) -> Event {
        let field = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Event {
            sequence: 1,
            wall_ns: 7,
            level: "info".into(),
            class: class.into(),
            message: "snapshots destroyed".into(),
            fields: fields.iter().map(field).collect(),
        }
    }

    #[test]
    fn acts_of_hosts_have_lines_and_no_others() {
        let host = ("who", "host 10.0.0.7");
        let done = event("snapshot.destroyed", &[host, ("snapshots", "tank/vms@a")]);
        let entry = entry_of_host(&done).unwrap();
        assert_eq!((entry.from.as_str(), entry.wall_ns), ("10.0.0.7", 7));
        assert_eq!((entry.act.as_str(), entry.kind), ("snapshots destroyed tank/vms@a", Kind::Act));
        let refused = [host, ("act", "rmdir a"), ("error", "it is held")];
        let entry = entry_of_host(&event("snapshot.refused", &refused)).unwrap();
        assert_eq!((entry.outcome.as_str(), entry.why.as_str()), ("failed", "it is held"));
        assert_eq!(entry_of_host(&event("snapshot.destroyed", &[("who", "token a")])), None);
        assert_eq!(entry_of_host(&event("disk.failed", &[])), None);
    }
}
