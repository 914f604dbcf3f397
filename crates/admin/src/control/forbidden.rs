//! Which refusals of callers the history and the log have: some of each caller.
//!
//! The history keeps a number of acts that were not done, of all callers together. So one that asks
//! for what it may not as fast as it can has few lines, and silences nobody: each caller counts for
//! itself. (Audit lines have all of them: `aquifer_audit`.)

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two lines of one caller.
const GAP: Duration = Duration::from_secs(1);
/// Lines of one caller within [`SPAN`].
const LINES: u32 = 10;
const SPAN: Duration = Duration::from_secs(600);
/// Callers that count for themselves; all others count together.
const CALLERS_MAX: usize = 64;

/// Refusals that were noted lately, by caller.
#[derive(Debug, Default)]
pub(super) struct Forbidden(BTreeMap<String, Caller>);

#[derive(Debug)]
struct Caller {
    since: Instant,
    last: Instant,
    lines: u32,
}

impl Forbidden {
    /// Whether a refusal of this caller is noted.
    pub fn is_noted(&mut self, who: &str, now: Instant) -> bool {
        let is_of_now = |caller: &mut Caller| now.saturating_duration_since(caller.since) < SPAN;
        self.0.retain(|_, caller| is_of_now(caller));
        let has_room = self.0.contains_key(who) || self.0.len() < CALLERS_MAX;
        let who = if has_room { who } else { "" };
        let Some(caller) = self.0.get_mut(who) else {
            self.0.insert(who.into(), Caller { since: now, last: now, lines: 1 });
            return true;
        };
        if caller.lines >= LINES || now.saturating_duration_since(caller.last) < GAP {
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
        let (mut forbidden, begin) = (Forbidden::default(), Instant::now());
        let (mut noisy, mut others) = (0, 0);
        // An hour, ten times in a second; another one once in ten minutes, at the same moment.
        for tenth in 0..36_000_u64 {
            let now = begin + Duration::from_millis(tenth * 100);
            noisy += u32::from(forbidden.is_noted("token noisy", now));
            if tenth % 6000 == 0 {
                others += u32::from(forbidden.is_noted("token other", now));
            }
        }
        assert_eq!((noisy, others), (60, 6));
    }

    #[test]
    fn many_names_have_no_more_than_the_table() {
        let (mut forbidden, now) = (Forbidden::default(), Instant::now());
        let names = (0..10_000).map(|at| format!("token {at}"));
        let noted = names.filter(|name| forbidden.is_noted(name, now)).count();
        assert_eq!((noted, forbidden.0.len()), (CALLERS_MAX + 1, CALLERS_MAX + 1));
    }
}
