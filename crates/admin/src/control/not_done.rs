//! Which refusals and failures of callers the history has, and the log: some of each caller.
//!
//! The history keeps a number of acts that were not done, of all callers together. So one that asks
//! as fast as it can for what it may not, or for what cannot be done, has few lines, and silences
//! nobody: each caller counts for itself. (Audit lines have all of them: `aquifer_audit`.)

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How many lines one caller has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Between two lines.
    gap: Duration,
    /// Within [`SPAN`].
    lines: u32,
}

/// Of what a caller may not: nobody does that by mistake again and again.
pub(super) const REFUSALS: Pace = Pace { gap: Duration::from_secs(1), lines: 10 };
/// Of what failed and changed nothing: a script may fail for each of many disks at once.
pub(super) const FAILURES: Pace = Pace { gap: Duration::ZERO, lines: 60 };
const SPAN: Duration = Duration::from_secs(600);
/// Callers that count for themselves; all others count together.
const CALLERS_MAX: usize = 64;

/// Refusals or failures that were noted lately, by caller.
#[derive(Debug)]
pub(super) struct NotDone {
    pace: Pace,
    callers: BTreeMap<String, Caller>,
}

#[derive(Debug)]
struct Caller {
    since: Instant,
    last: Instant,
    lines: u32,
}

impl NotDone {
    pub fn new(pace: Pace) -> NotDone {
        NotDone { pace, callers: BTreeMap::new() }
    }

    /// Whether one more of this caller is noted.
    pub fn is_noted(&mut self, who: &str, now: Instant) -> bool {
        let NotDone { pace, callers } = self;
        let is_of_now = |caller: &mut Caller| now.saturating_duration_since(caller.since) < SPAN;
        callers.retain(|_, caller| is_of_now(caller));
        let has_room = callers.contains_key(who) || callers.len() < CALLERS_MAX;
        let who = if has_room { who } else { "" };
        let Some(caller) = callers.get_mut(who) else {
            callers.insert(who.into(), Caller { since: now, last: now, lines: 1 });
            return true;
        };
        if caller.lines >= pace.lines || now.saturating_duration_since(caller.last) < pace.gap {
            return false;
        }
        (caller.last, caller.lines) = (now, caller.lines + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_asks_all_the_time_silences_nobody() {
        let (mut refused, begin) = (NotDone::new(REFUSALS), Instant::now());
        let (mut noisy, mut others) = (0, 0);
        // An hour, ten times in a second; another one once in ten minutes, at the same moment.
        for tenth in 0..36_000_u64 {
            let now = begin + Duration::from_millis(tenth * 100);
            noisy += u32::from(refused.is_noted("token noisy", now));
            if tenth % 6000 == 0 {
                others += u32::from(refused.is_noted("token other", now));
            }
        }
        assert_eq!((noisy, others), (60, 6));
    }

    #[test]
    fn many_names_have_no_more_than_the_table() {
        let (mut refused, now) = (NotDone::new(REFUSALS), Instant::now());
        let names = (0..10_000).map(|at| format!("token {at}"));
        let noted = names.filter(|name| refused.is_noted(name, now)).count();
        assert_eq!((noted, refused.callers.len()), (CALLERS_MAX + 1, CALLERS_MAX + 1));
    }

    #[test]
    fn a_script_that_fails_has_a_line_for_each_disk_up_to_a_number() {
        let (mut failed, now) = (NotDone::new(FAILURES), Instant::now());
        assert_eq!((0..1000).filter(|_| failed.is_noted("token ci", now)).count(), 60);
        assert!(failed.is_noted("token other", now) && failed.is_noted("token ci", now + SPAN));
    }
}
