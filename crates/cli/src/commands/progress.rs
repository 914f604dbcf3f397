//! How far work of the daemon is, while somebody waits for it: a bar on a terminal, else a line
//! from time to time. Both go to stderr, and neither is shown with `--json`.

use std::time::{Duration, Instant};

use aquifer_api::shown::shown;
use indicatif::{ProgressBar, ProgressStyle};

use super::pool::percent;
use super::{Output, tell};

/// How far some work is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Work {
    /// Name of the work: `scrub of tank`.
    pub what: String,
    /// Amount that is done, and all that there is to do, if that is known.
    pub done: u64,
    pub total: Option<u64>,
    /// How it is counted.
    pub unit: Unit,
    /// How long it has taken.
    pub took_ms: u64,
    /// More about it.
    pub note: String,
}

/// Unit in which work is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    /// Time that passes: its rate says nothing.
    Seconds,
}

impl Work {
    /// Share, rate and the time that is left at this rate.
    pub fn text(&self, output: Output) -> String {
        let &Work { done, total, unit, took_ms, .. } = self;
        let one = |count| match unit {
            Unit::Bytes => output.size(count),
            Unit::Seconds => format!("{count} s"),
        };
        let share = match total {
            Some(total) => {
                let share = percent(done.min(total.max(1)), total);
                format!("{} of {} ({share})", one(done), one(total))
            }
            None => one(done),
        };
        let mut parts = vec![share];
        let per_s = u128::from(done) * 1000 / u128::from(took_ms.max(1));
        if unit == Unit::Bytes && done > 0 && took_ms > 0 {
            parts.push(format!("{}/s", output.size(u64::try_from(per_s).unwrap_or(u64::MAX))));
            if let Some(total) = total {
                let left = u128::from(total.saturating_sub(done)) / per_s.max(1);
                parts.push(format!("{} left", span(u64::try_from(left).unwrap_or(u64::MAX))));
            }
        }
        parts.extend((!self.note.is_empty()).then(|| self.note.clone()));
        parts.join(", ")
    }
}

/// Shows work to those who wait for it.
#[derive(Debug)]
pub(super) struct Progress {
    output: Output,
    bar: ProgressBar,
    /// When and about what the last line was written, where there is no terminal.
    last: Option<(Instant, String)>,
}

impl Progress {
    pub fn new(output: Output) -> Progress {
        let bar = if output.json { ProgressBar::hidden() } else { ProgressBar::no_length() };
        Progress { output, bar, last: None }
    }

    /// Shows how far it is now.
    pub fn show(&mut self, work: &Work) {
        let (what, text) = (shown(&work.what), shown(&work.text(self.output)));
        if !self.bar.is_hidden() {
            let style = match work.total {
                Some(total) => {
                    self.bar.set_length(total);
                    self.bar.set_position(work.done.min(total));
                    "{prefix} [{bar:30}] {msg}"
                }
                None => "{prefix} {spinner} {msg}",
            };
            let style = ProgressStyle::with_template(style);
            self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            self.bar.set_prefix(what);
            self.bar.set_message(text);
            self.bar.tick();
        } else if !self.output.json && self.is_due(&what) {
            tell(self.output, &[format!("{what}: {text}")]);
        }
    }

    /// Whether a line is due about this: a new thing, or long after the last line.
    fn is_due(&mut self, what: &str) -> bool {
        let is_late = |(at, of): &(Instant, String)| of != what || at.elapsed() >= LINE_EVERY;
        let is_due = self.last.as_ref().is_none_or(is_late);
        if is_due {
            self.last = Some((Instant::now(), what.to_string()));
        }
        is_due
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// So many seconds, as `1 days 02:03:04`, in the manner of zpool.
pub(super) fn span(seconds: u64) -> String {
    let (days, hours) = (seconds / 86400, seconds / 3600 % 24);
    let rest = format!("{hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days} days {rest}") } else { rest }
}

/// How often work is looked at while somebody waits for it.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often a line says how far it is, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    const PEOPLE: Output = Output { json: false, script: false, exact: false, colour: false };

    fn work() -> Work {
        Work {
            what: "scrub of tank".into(),
            done: 1 << 30,
            total: Some(4 << 30),
            unit: Unit::Bytes,
            took_ms: 8000,
            note: String::new(),
        }
    }

    #[test]
    fn share_rate_and_time_left() {
        let text = work().text(PEOPLE);
        assert_eq!(text, "1G of 4G (25%), 128M/s, 00:00:24 left");
        let note = Work { note: "2 errors".into(), ..work() };
        assert!(note.text(PEOPLE).ends_with(" left, 2 errors"));
        let unknown = Work { total: None, ..work() };
        assert_eq!(unknown.text(PEOPLE), "1G, 128M/s");
        // Nothing is done yet, or there is nothing to do, or more is done than there was to do.
        assert_eq!(Work { done: 0, ..work() }.text(PEOPLE), "0B of 4G (0%)");
        assert_eq!(Work { done: 0, total: Some(0), ..work() }.text(PEOPLE), "0B of 0B (0%)");
        let more = Work { done: 5 << 30, ..work() };
        assert_eq!(more.text(PEOPLE), "5G of 4G (100%), 640M/s, 00:00:00 left");
        let time = Work { done: 3, total: Some(10), unit: Unit::Seconds, ..work() };
        assert_eq!(time.text(PEOPLE), "3 s of 10 s (30%)");
    }

    #[test]
    fn without_a_terminal_a_line_is_due_for_each_thing_and_not_for_each_look() {
        let mut progress = Progress::new(PEOPLE);
        assert!(progress.is_due("scrub of tank") && !progress.is_due("scrub of tank"));
        assert!(progress.is_due("resilver of a") && !progress.is_due("resilver of a"));
        let long_ago = Instant::now().checked_sub(LINE_EVERY).unwrap();
        progress.last = Some((long_ago, "resilver of a".into()));
        assert!(progress.is_due("resilver of a"));
    }
}
