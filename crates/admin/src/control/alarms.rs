//! Alarms about what callers do: more destroyed within an hour than anybody means to, and a token
//! that asks again and again for what its role may not.
//!
//! Each is a problem of the server for a day from when it was seen last, so that somebody who looks
//! in the morning finds it. A restart forgets them; alerts, audit and history have told by then.
//!
//! What counts as destroyed: snapshots, of files too, and datasets, by acts of callers over the
//! API. What schedules and feeders of copies prune, and what hosts destroy of snapshots over NFS,
//! is their daily work, and does not count.
//!
//! Invariant: bounded, whatever callers do.

use std::collections::BTreeMap;

use aquifer_alerts::Settings;
use aquifer_api::codes::{self, Code};
use aquifer_api::{Problem, Severity};
use aquifer_dataset::FullName;
use aquifer_dataset::history::HistoryChange;
use parking_lot::Mutex;

/// Callers that count for themselves; all others count together.
const CALLERS_MAX: usize = 64;
/// A span is looked at in so many steps.
const STEPS: u64 = 60;
const HOUR_S: u64 = 3600;
const TEN_MINUTES_S: u64 = 600;
const STANDS_S: u64 = 24 * HOUR_S;

/// Counts of what callers did lately.
#[derive(Debug)]
pub(super) struct Alarms {
    destroyed: Mutex<Counted>,
    refused: Mutex<Counted>,
}

/// Counts by caller within a span of time.
#[derive(Debug)]
struct Counted {
    span_s: u64,
    /// More than so many are too many; 0: any number may be.
    most: u64,
    /// It counts what all did together.
    together: bool,
    /// By caller, in steps of the span.
    callers: BTreeMap<String, BTreeMap<u64, u64>>,
    told: Standing<String>,
}

/// Alarms that are told, each for a day from when it was seen last.
#[derive(Debug)]
pub(super) struct Standing<K>(BTreeMap<K, (String, u64)>);

impl<K> Default for Standing<K> {
    fn default() -> Self {
        Standing(BTreeMap::new())
    }
}

impl<K: Ord> Standing<K> {
    /// It was seen now.
    pub fn put(&mut self, of: K, status: String, now_s: u64) {
        self.0.insert(of, (status, now_s.saturating_add(STANDS_S)));
    }

    pub fn contains(&self, of: &K) -> bool {
        self.0.contains_key(of)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets what has stood for its time.
    pub fn forget(&mut self, now_s: u64) {
        self.0.retain(|_, (_, until_s)| now_s < *until_s);
    }

    /// All that stand.
    pub fn problems(&mut self, now_s: u64, (code, action): (Code, &str)) -> Vec<Problem> {
        self.forget(now_s);
        let problem = |(status, _): &(String, u64)| {
            Problem::new(code, Severity::Warning, status.clone(), Some(action.into()))
        };
        self.0.values().map(problem).collect()
    }
}

impl Alarms {
    pub fn new(settings: &Settings) -> Alarms {
        let counted = |span_s, most, together| {
            let (callers, told) = Default::default();
            Mutex::new(Counted { span_s, most, together, callers, told })
        };
        Alarms {
            destroyed: counted(HOUR_S, settings.destroyed_in_hour.into(), true),
            refused: counted(TEN_MINUTES_S, settings.refused_in_ten_minutes.into(), false),
        }
    }

    /// A caller has destroyed so many snapshots and datasets; `now_s` is of a clock that nobody
    /// sets.
    pub fn destroyed(&self, who: &str, count: u64, now_s: u64) {
        self.destroyed.lock().note((who, count), now_s, |all, each| {
            format!("{all} snapshots and datasets were destroyed within an hour: {each}")
        });
    }

    /// A caller asked for what its role may not.
    pub fn refused(&self, who: &str, now_s: u64) {
        self.refused.lock().note((who, 1), now_s, |all, _| {
            format!("{who} asked {all} times within ten minutes for what its role may not")
        });
    }

    /// Those that stand.
    pub fn problems(&self, now_s: u64) -> Vec<Problem> {
        let mut all = Vec::new();
        for (counted, what) in [(&self.destroyed, MANY_DESTROYED), (&self.refused, REFUSED_OFTEN)] {
            all.extend(counted.lock().told.problems(now_s, what));
        }
        all
    }
}

impl Counted {
    fn note(
        &mut self,
        (who, count): (&str, u64),
        now_s: u64,
        words: impl FnOnce(u64, &str) -> String,
    ) {
        if count == 0 || self.most == 0 {
            return;
        }
        let step_s = (self.span_s / STEPS).max(1);
        let (now, oldest) = (now_s / step_s, now_s.saturating_sub(self.span_s) / step_s);
        for steps in self.callers.values_mut() {
            steps.retain(|step, _| *step > oldest || now < STEPS);
        }
        self.callers.retain(|_, steps| !steps.is_empty());
        let is_known = self.callers.contains_key(who) || self.callers.len() < CALLERS_MAX;
        let who = if is_known { who } else { "others" };
        let steps = self.callers.entry(who.to_string()).or_default();
        let step = steps.entry(now).or_default();
        *step = step.saturating_add(count);
        let of_each = self.callers.iter().map(|(who, steps)| (steps.values().sum::<u64>(), who));
        let mut each: Vec<(u64, &String)> =
            of_each.filter(|(_, of)| self.together || *of == who).collect();
        each.sort_by(|a, b| b.cmp(a));
        let all = each.iter().map(|(count, _)| count).sum::<u64>();
        if all > self.most {
            let each = each.iter().take(3).map(|(count, who)| format!("{count} by {who}"));
            let text = words(all, &each.collect::<Vec<_>>().join(", "));
            let of = if self.together { String::new() } else { who.to_string() };
            self.told.put(of, text, now_s);
        }
    }
}

/// How many snapshots and datasets an act destroyed, by the changes that were observed.
pub(super) fn destroyed_by(act: &str, changes: &[HistoryChange]) -> u64 {
    let is_gone = |of: &&HistoryChange| !of.before.is_empty() && of.after.is_empty();
    if let Some(datasets) = changes.iter().find(|of| of.what == DATASETS) {
        // One that was renamed is not where it was, too.
        let is_destroyed = is_gone(&datasets) && act.starts_with("destroy ");
        let both = changes.iter().filter(|of| [DATASETS, SNAPSHOTS].contains(&of.what.as_str()));
        let count = both.filter_map(|of| of.before.parse::<u64>().ok()).sum();
        return if is_destroyed { count } else { 0 };
    }
    let of_snapshots = |of: &&HistoryChange| FullName::of(&of.what).snapshot().is_some();
    let came = |of: &&HistoryChange| of.before.is_empty() && !of.after.is_empty();
    let gone = changes.iter().filter(of_snapshots).filter(is_gone).count();
    // What has another name came and went.
    let came = changes.iter().filter(of_snapshots).filter(came).count();
    gone.saturating_sub(came).try_into().unwrap_or(u64::MAX)
}

/// Name that the history gives to the number of datasets.
pub(super) const DATASETS: &str = "datasets";
/// Name that the history gives to the number of their snapshots.
pub(super) const SNAPSHOTS: &str = "snapshots";

const MANY_DESTROYED: (Code, &str) = (
    codes::DESTROYED_MANY,
    "`aquifer pool history` says by whom. If nobody meant to: `aquifer token revoke` ends a token; \
     what is held with a time, and copies elsewhere, are still there.",
);
const REFUSED_OFTEN: (Code, &str) = (
    codes::TOKEN_REFUSED,
    "Somebody tries what they can do, or a script has the wrong token. `aquifer token revoke` ends \
     it; `aquifer events` and audit lines say from where it came.",
);

#[cfg(test)]
mod tests {
    use super::*;

    fn alarms() -> Alarms {
        Alarms::new(&Settings::default())
    }

    fn told(alarms: &Alarms, now_s: u64) -> Vec<String> {
        alarms.problems(now_s).into_iter().map(|of| of.status).collect()
    }

    #[test]
    fn what_is_destroyed_in_small_pieces_counts_together() {
        let alarms = alarms();
        for minute in 0..50 {
            alarms.destroyed("token ci", 1, minute * 60);
        }
        assert!(told(&alarms, 3000).is_empty());
        alarms.destroyed("uid 0", 3, 3001);
        let text =
            "53 snapshots and datasets were destroyed within an hour: 50 by token ci, 3 by uid 0.";
        assert_eq!(told(&alarms, 3002), [text]);
        // It stands for a day, and then it is over.
        assert_eq!(told(&alarms, 3001 + STANDS_S - 1).len(), 1);
        assert!(told(&alarms, 3001 + STANDS_S).is_empty());
    }

    #[test]
    fn what_goes_on_slowly_is_no_alarm() {
        let alarms = alarms();
        for quarter in 0..1000 {
            alarms.destroyed("token backup", 10, quarter * 900);
            alarms.refused("token m", quarter * 900);
        }
        assert!(told(&alarms, 900_000).is_empty());
        alarms.destroyed("uid 0", 0, 900_001);
        alarms.destroyed("uid 0", 51, 900_002);
        assert_eq!(told(&alarms, 900_003).len(), 1);
    }

    #[test]
    fn each_token_is_refused_for_itself_and_the_table_is_bounded() {
        let alarms = alarms();
        for at in 0..21 {
            alarms.refused("token ci", at);
            alarms.refused(&format!("token {at}"), at);
        }
        let text = "token ci asked 21 times within ten minutes for what its role may not.";
        assert_eq!(told(&alarms, 30), [text]);
        for at in 0..100_000 {
            alarms.refused(&format!("token x{at}"), 40);
        }
        let counted = alarms.refused.lock();
        assert!(counted.callers.len() <= CALLERS_MAX + 1 && counted.told.len() <= CALLERS_MAX + 1);
    }

    #[test]
    fn none_is_set_off_by_0() {
        let none =
            Settings { destroyed_in_hour: 0, refused_in_ten_minutes: 0, ..Settings::default() };
        let alarms = Alarms::new(&none);
        alarms.destroyed("uid 0", 10_000, 1);
        (0..1000).for_each(|_| alarms.refused("token a", 1));
        assert!(told(&alarms, 2).is_empty());
    }

    #[test]
    fn what_has_another_name_is_not_destroyed() {
        let change = |what: &str, before: &str, after: &str| HistoryChange {
            what: what.into(),
            before: before.into(),
            after: after.into(),
        };
        let gone = [change("tank@a", "txg 7", ""), change("tank:f@b", "txg 8", "")];
        assert_eq!(destroyed_by("destroy tank@a", &gone), 2);
        assert_eq!(destroyed_by("rollback -r tank@0", &gone), 2);
        let renamed = [change("tank@a", "txg 7", ""), change("tank@b", "", "txg 7")];
        assert_eq!(destroyed_by("rename tank@a @b", &renamed), 0);
        let whole = [
            change("datasets", "2", ""),
            change("snapshots", "700", ""),
            change("used", "4096", ""),
        ];
        assert_eq!(destroyed_by("destroy -r tank/vms", &whole), 702);
        assert_eq!(destroyed_by("rename tank/vms tank/old", &whole), 0);
        assert_eq!(destroyed_by("set quota=none tank", &[change("quota", "1", "")]), 0);
    }
}
