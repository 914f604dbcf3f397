//! Comparison of what is wrong now with what was: when something is new, another, still there, or
//! over.
//!
//! Invariants:
//! - A problem is sent when two looks in a row have seen it, and is over when none has seen it for
//!   a while. So one that comes and goes is sent once.
//! - A pool that could not be looked at keeps its problems.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_api::{ActiveAlert, Problem, Severity};
use serde::{Deserialize, Serialize};

use crate::message::{Item, Kind};

/// Problems that a look has seen, and pools that did not answer.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Problems, each of a pool, or of the server.
    pub problems: Vec<(Option<String>, Problem)>,
    /// Pools that did not answer.
    pub unanswered: BTreeSet<String>,
}

/// A problem is known by this: a pool has one of each code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Key {
    pool: Option<String>,
    code: String,
}

/// A problem that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    key: Key,
    problem: Problem,
    since_ns: u64,
    /// When it was last told; `None`: not yet.
    told_ns: Option<u64>,
    /// It was not there at the last look, and was last seen then.
    #[serde(default)]
    gone_since_ns: Option<u64>,
}

/// All known problems.
#[derive(Debug, Default)]
pub struct Watch {
    known: BTreeMap<Key, Known>,
}

impl Watch {
    /// Goes on from what an earlier daemon has told.
    pub fn restored(told: Vec<Known>) -> Watch {
        Watch { known: told.into_iter().map(|known| (known.key.clone(), known)).collect() }
    }

    /// Returns the problems that were told, for a later daemon.
    pub fn told(&self) -> Vec<Known> {
        self.known.values().filter(|known| known.told_ns.is_some()).cloned().collect()
    }

    /// Lists the problems that are there now, the worst first.
    pub fn active(&self) -> Vec<ActiveAlert> {
        let there = self.known.values().filter(|known| known.gone_since_ns.is_none());
        let mut active: Vec<ActiveAlert> = there
            .map(|known| ActiveAlert {
                pool: known.key.pool.clone(),
                problem: known.problem.clone(),
                since_ns: known.since_ns,
            })
            .collect();
        active.sort_by_key(|alert| std::cmp::Reverse(alert.problem.severity));
        active
    }

    /// Notes what was seen at `now_ns`. Returns what is to be sent. What is still there is sent
    /// again after `remind_ns`, unless that is 0.
    pub fn look(&mut self, now_ns: u64, seen: &Seen, remind_ns: u64) -> Vec<Item> {
        let mut there: BTreeMap<Key, Problem> = BTreeMap::new();
        for (pool, problem) in &seen.problems {
            let key = Key { pool: pool.clone(), code: problem.code.clone() };
            match there.get_mut(&key) {
                Some(one) => join(one, problem),
                None => drop(there.insert(key, problem.clone())),
            }
        }
        let mut items = Vec::new();
        self.known.retain(|key, known| {
            let is_seen = there.contains_key(key);
            let is_answered = key.pool.as_ref().is_none_or(|pool| !seen.unanswered.contains(pool));
            if is_seen || !is_answered {
                return true;
            }
            let gone_since_ns = *known.gone_since_ns.get_or_insert(now_ns);
            if known.told_ns.is_some() && now_ns.saturating_sub(gone_since_ns) < CLEAR_AFTER_NS {
                return true;
            }
            if known.told_ns.is_some() {
                items.push(known.item(Kind::Cleared));
            }
            false
        });
        for (key, problem) in there {
            match self.known.get_mut(&key) {
                Some(known) => items.extend(known.again(now_ns, problem, remind_ns)),
                None => {
                    let (since_ns, told_ns, gone_since_ns) = (now_ns, None, None);
                    let known = Known { key, problem, since_ns, told_ns, gone_since_ns };
                    self.known.insert(known.key.clone(), known);
                }
            }
        }
        items
    }
}

impl Known {
    /// It was seen once more.
    fn again(&mut self, now_ns: u64, problem: Problem, remind_ns: u64) -> Option<Item> {
        self.gone_since_ns = None;
        let before = std::mem::replace(&mut self.problem, problem);
        let kind = match self.told_ns {
            None => Kind::Raised,
            Some(_) if says(&before) != says(&self.problem) => Kind::Changed,
            Some(told_ns)
                if remind_ns > 0
                    && self.problem.severity > Severity::Info
                    && now_ns.saturating_sub(told_ns) >= remind_ns =>
            {
                Kind::Reminder
            }
            Some(_) => return None,
        };
        self.told_ns = Some(now_ns);
        Some(self.item(kind))
    }

    fn item(&self, kind: Kind) -> Item {
        let Problem { code, severity, status, action, see } = self.problem.clone();
        let (pool, since_ns) = (self.key.pool.clone(), self.since_ns);
        Item { kind, severity, pool, code, status, action, see, since_ns }
    }
}

/// A pool has two problems of a code: two slow disks. They are one alert.
fn join(one: &mut Problem, other: &Problem) {
    one.severity = one.severity.max(other.severity);
    one.status = format!("{} {}", one.status, other.status);
    one.action = match (one.action.take(), other.action.clone()) {
        (Some(one), Some(other)) if one != other => Some(format!("{one} {other}")),
        (one, other) => one.or(other),
    };
}

/// Returns the words of a problem, without its numbers: those that rise tell nothing new.
fn says(problem: &Problem) -> (Severity, Vec<&str>) {
    let is_number = |word: &&str| word.chars().any(|char| char.is_ascii_digit());
    let is_path = |word: &&str| word.contains('/');
    let words = problem.status.split_whitespace();
    (problem.severity, words.filter(|word| is_path(word) || !is_number(word)).collect())
}

/// For so long a problem must be gone to be over.
const CLEAR_AFTER_NS: u64 = 120 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn problem(code: &str, status: &str) -> Problem {
        let (code, status, action) = (code.into(), status.into(), Some("Do it.".into()));
        Problem { code, severity: Severity::Error, status, action, see: None }
    }

    fn seen(problems: &[Problem]) -> Seen {
        let of = |problem: &Problem| (Some("tank".to_string()), problem.clone());
        Seen { problems: problems.iter().map(of).collect(), unanswered: BTreeSet::new() }
    }

    fn kinds(items: &[Item]) -> Vec<Kind> {
        items.iter().map(|item| item.kind).collect()
    }

    #[test]
    fn a_problem_is_told_at_the_second_look_and_when_it_is_over() {
        let mut watch = Watch::default();
        let missing = seen(&[problem("disk-missing", "/dev/b is missing")]);
        assert_eq!(watch.look(10 * SECOND, &missing, 0), []);
        assert_eq!(watch.active().len(), 1, "it is shown at once");
        let told = watch.look(20 * SECOND, &missing, 0);
        assert_eq!(kinds(&told), [Kind::Raised]);
        assert_eq!(told[0].since_ns, 10 * SECOND);
        assert_eq!(watch.look(30 * SECOND, &missing, 0), []);
        // It comes and goes.
        assert_eq!(watch.look(40 * SECOND, &seen(&[]), 0), []);
        assert_eq!(watch.active(), []);
        assert_eq!(watch.look(50 * SECOND, &missing, 0), []);
        assert_eq!(watch.look(60 * SECOND, &seen(&[]), 0), []);
        assert_eq!(watch.look(179 * SECOND, &seen(&[]), 0), []);
        assert_eq!(kinds(&watch.look(180 * SECOND, &seen(&[]), 0)), [Kind::Cleared]);
        assert_eq!(watch.look(190 * SECOND, &seen(&[]), 0), []);
        // One that nobody was told of goes without a word.
        assert_eq!(watch.look(200 * SECOND, &missing, 0), []);
        assert_eq!(watch.look(500 * SECOND, &seen(&[]), 0), []);
        assert!(watch.known.is_empty());
    }

    #[test]
    fn another_disk_is_told_and_a_higher_count_is_not() {
        let mut watch = Watch::default();
        let mut look = |at: u64, status: &str| {
            kinds(&watch.look(at * SECOND, &seen(&[problem("x", status)]), 100 * SECOND))
        };
        look(1, "/dev/b had 3 errors");
        assert_eq!(look(2, "/dev/b had 4 errors"), [Kind::Raised]);
        assert_eq!(look(3, "/dev/b had 5 errors"), []);
        assert_eq!(look(4, "/dev/b, /dev/c had 5 errors"), [Kind::Changed]);
        assert_eq!(look(103, "/dev/b, /dev/c had 9 errors"), []);
        assert_eq!(look(104, "/dev/b, /dev/c had 9 errors"), [Kind::Reminder]);
        assert_eq!(look(105, "/dev/b, /dev/c had 9 errors"), []);
    }

    #[test]
    fn a_pool_that_does_not_answer_keeps_its_problems() {
        let mut watch = Watch::default();
        let missing = seen(&[problem("disk-missing", "/dev/b is missing")]);
        watch.look(1, &missing, 0);
        watch.look(2, &missing, 0);
        let nothing =
            Seen { problems: Vec::new(), unanswered: BTreeSet::from(["tank".to_string()]) };
        assert_eq!(watch.look(1000 * SECOND, &nothing, 0), []);
        assert_eq!(watch.active().len(), 1);
    }

    #[test]
    fn a_restart_tells_nothing_twice() {
        let mut watch = Watch::default();
        let missing = seen(&[problem("disk-missing", "/dev/b is missing")]);
        watch.look(1, &missing, 0);
        assert_eq!(watch.look(2, &missing, 0).len(), 1);
        let kept = serde_json::to_vec(&watch.told()).unwrap();
        let mut later = Watch::restored(serde_json::from_slice(&kept).unwrap());
        assert_eq!(later.look(3, &missing, 0), []);
        assert_eq!(later.look(4, &missing, 0), []);
        // One that nobody has heard of is sent after it.
        let mut other = Watch::default();
        other.look(5, &missing, 0);
        assert_eq!(other.told(), []);
    }

    #[test]
    fn two_slow_disks_are_one_alert() {
        let mut watch = Watch::default();
        let two = seen(&[problem("disk-slow", "b is slow."), problem("disk-slow", "c is slow.")]);
        watch.look(1, &two, 0);
        let told = watch.look(2, &two, 0);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].status, "b is slow. c is slow.");
        assert_eq!(told[0].action.as_deref(), Some("Do it."));
    }
}
