//! Refusals of one caller: so many in a minute have lines, and one line counts the rest.
//!
//! Somebody with the least token can ask for what it may not as fast as the network goes. That must
//! neither fill the disk nor push lines of others out of a queue. An act has always its line: it
//! takes the turn of its pool.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::line::{Entry, Kind};

/// Refusals of one caller that have lines, within [`SPAN`].
const LINES: u32 = 30;
const SPAN: Duration = Duration::from_secs(60);
/// Callers that count for themselves; all others count together.
const CALLERS_MAX: usize = 256;

/// Refusals of callers lately.
#[derive(Debug, Default)]
pub(crate) struct Flood(BTreeMap<String, Caller>);

#[derive(Debug)]
struct Caller {
    since: Instant,
    lines: u32,
    /// Of those that have no line: how many, and the last.
    rest: u64,
    last: Entry,
}

impl Flood {
    /// Returns the entries to be noted now, for this one and for what was left out before.
    pub fn pass(&mut self, entry: Entry, now: Instant) -> Vec<Entry> {
        let mut all = self.over(|caller| now.saturating_duration_since(caller.since) >= SPAN);
        let entry = entry.at_now();
        if entry.kind != Kind::Refused {
            all.push(entry);
            return all;
        }
        let mut key = if entry.who.is_empty() { entry.from.clone() } else { entry.who.clone() };
        if !self.0.contains_key(&key) && self.0.len() >= CALLERS_MAX {
            key = String::new();
        }
        let new = || Caller { since: now, lines: 0, rest: 0, last: Entry::default() };
        let caller = self.0.entry(key).or_insert_with(new);
        if caller.lines < LINES {
            caller.lines += 1;
            all.push(entry);
        } else {
            caller.rest = caller.rest.saturating_add(1);
            caller.last = entry;
        }
        all
    }

    /// Returns the entries that tell of what was left out and not told yet.
    pub fn rest(&mut self) -> Vec<Entry> {
        self.over(|_| true)
    }

    fn over(&mut self, is_over: impl Fn(&Caller) -> bool) -> Vec<Entry> {
        let mut told = Vec::new();
        self.0.retain(|_, caller| {
            let ends = is_over(caller);
            if ends && caller.rest > 0 {
                let why = format!("{} more were refused within a minute", caller.rest);
                told.push(Entry { why, ..caller.last.clone() });
            }
            !ends
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(who: &str) -> Entry {
        Entry { kind: Kind::Refused, who: who.into(), ..Entry::default() }
    }

    #[test]
    fn one_who_asks_all_the_time_has_some_lines_and_takes_none_from_others() {
        let (mut flood, begin) = (Flood::default(), Instant::now());
        let mut lines = Vec::new();
        for at in 0..10_000_u64 {
            let now = begin + Duration::from_millis(at);
            lines.extend(flood.pass(refused("token a"), now));
            if at % 1000 == 0 {
                lines.extend(flood.pass(refused("token b"), now));
                lines.extend(flood.pass(Entry::default(), now));
            }
        }
        let of = |lines: &[Entry], who: &str| lines.iter().filter(|of| of.who == who).count();
        assert_eq!((of(&lines, "token a"), of(&lines, "token b"), of(&lines, "")), (30, 10, 10));
        // The rest is told with the next line of anybody.
        let later = flood.pass(Entry::default(), begin + SPAN);
        assert_eq!(later.len(), 2);
        assert_eq!(later[0].why, "9970 more were refused within a minute");
        assert_eq!(flood.pass(refused("token a"), begin + SPAN).len(), 1);
    }

    #[test]
    fn who_comes_under_many_names_has_as_many_lines_as_one_behind_a_bound() {
        let (mut flood, begin) = (Flood::default(), Instant::now());
        let mut lines = 0;
        for at in 0..100_000 {
            lines += flood.pass(refused(&format!("{at}")), begin).len();
        }
        assert!(lines <= CALLERS_MAX + LINES as usize, "{lines}");
        assert!(flood.0.len() <= CALLERS_MAX + 1);
        assert_eq!(flood.rest().len(), 1);
    }
}
