//! Schedules as the property `snapshots` says them, and the periods of their cadences.
//!
//! Time is cut into periods, in UTC: quarters of an hour, hours, days, weeks from Monday, months,
//! years.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use aquifer_meter::time::{date_of, first_second, text_s};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::{CADENCES, Cadence};

/// Snapshots of one cadence at most.
const KEPT_MAX: u32 = 9999;
const QUARTER_S: u64 = 900;
const HOUR_S: u64 = 3600;
const DAY_S: u64 = 86_400;
const WEEK_S: u64 = 7 * DAY_S;
/// From a Monday to 1970-01-01.
const THURSDAY_S: u64 = 3 * DAY_S;

/// How many snapshots of each cadence stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule(BTreeMap<Cadence, u32>);

impl Schedule {
    /// Returns how many snapshots of each cadence stay.
    pub fn counts(&self) -> impl Iterator<Item = (Cadence, u32)> {
        self.0.iter().map(|(cadence, count)| (*cadence, *count))
    }

    /// The cadences of which a snapshot is due at `now_s`: of those that it took, each with when,
    /// none is of the period that it is now.
    pub(crate) fn due(
        &self,
        taken: impl Iterator<Item = (Cadence, u64)>,
        now_s: u64,
    ) -> BTreeSet<Cadence> {
        let mut due: BTreeSet<Cadence> = self.0.keys().copied().collect();
        for (cadence, at_s) in taken {
            if period(cadence, at_s) == period(cadence, now_s) {
                due.remove(&cadence);
            }
        }
        due
    }

    /// Those that are too many of what it took, given in the order in which that was taken: the
    /// newest of each cadence stay, and all of a cadence that it does not name.
    pub(crate) fn excess<T>(&self, taken: impl Iterator<Item = (Cadence, T)>) -> Vec<T> {
        let mut of_each: BTreeMap<Cadence, Vec<T>> = BTreeMap::new();
        taken.for_each(|(cadence, of)| of_each.entry(cadence).or_default().push(of));
        let mut excess = Vec::new();
        for (cadence, kept) in self.counts() {
            let taken = of_each.remove(&cadence).unwrap_or_default();
            let gone = taken.len().saturating_sub(usize::try_from(kept).unwrap_or(usize::MAX));
            excess.extend(taken.into_iter().take(gone));
        }
        excess
    }

    /// Reads `off`, or what stays of each cadence: `hourly=24 daily=7`, with blanks or commas.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(value: &str) -> Result<Schedule, String> {
        let mut schedule = Schedule::default();
        if value == "off" {
            return Ok(schedule);
        }
        let usage = "say off, or how many of each stay: hourly=24 daily=7 weekly=4 monthly=12 \
                     (also frequently, every 15 minutes, and yearly)";
        for word in value.split([' ', ',']).filter(|word| !word.is_empty()) {
            let (name, count) = word.split_once('=').ok_or_else(|| usage.to_string())?;
            let cadence = CADENCES.into_iter().find(|cadence| cadence.name() == name);
            let count = count.parse::<u32>().ok().filter(|count| (1..=KEPT_MAX).contains(count));
            let (Some(cadence), Some(count)) = (cadence, count) else {
                return Err(format!("{word:?} is not understood; {usage}, 1 to {KEPT_MAX}"));
            };
            if schedule.0.insert(cadence, count).is_some() {
                return Err(format!("{name:?} is named twice"));
            }
        }
        if schedule.0.is_empty() { Err(usage.into()) } else { Ok(schedule) }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return to.write_str("off");
        }
        let each = self.0.iter().map(|(cadence, count)| format!("{}={count}", cadence.name()));
        to.write_str(&each.collect::<Vec<_>>().join(" "))
    }
}

/// The number of the period that it is.
pub(crate) fn period(cadence: Cadence, at_s: u64) -> u64 {
    let (year, month, _) = date_of(at_s);
    match cadence {
        Cadence::Frequently => at_s / QUARTER_S,
        Cadence::Hourly => at_s / HOUR_S,
        Cadence::Daily => at_s / DAY_S,
        Cadence::Weekly => (at_s + THURSDAY_S) / WEEK_S,
        Cadence::Monthly => year * 12 + month - 1,
        Cadence::Yearly => year,
    }
}

/// When the next period begins.
pub(crate) fn next_period(cadence: Cadence, at_s: u64) -> u64 {
    let next = period(cadence, at_s) + 1;
    let begin = |year, month| first_second((year, month, 1)).unwrap_or(u64::MAX);
    match cadence {
        Cadence::Frequently => next * QUARTER_S,
        Cadence::Hourly => next * HOUR_S,
        Cadence::Daily => next * DAY_S,
        Cadence::Weekly => next * WEEK_S - THURSDAY_S,
        Cadence::Monthly => begin(next / 12, next % 12 + 1),
        Cadence::Yearly => begin(next, 1),
    }
}

/// Names a snapshot of a schedule: `auto-hourly-2026-11-26T07:00Z`.
pub(crate) fn name(cadence: Cadence, now_s: u64, to_the_second: bool) -> String {
    let text = text_s(now_s);
    let text = text.trim_end_matches('Z');
    let text = if to_the_second { text } else { text.get(..16).unwrap_or(text) };
    format!("auto-{}-{text}Z", cadence.name())
}

/// The cadence of the schedule that took a snapshot of this name, elsewhere perhaps.
pub(crate) fn cadence_of(name: &str) -> Option<Cadence> {
    let fits = |form: &str, text: &str| {
        let is_alike = |(of, c): (char, char)| if of == '0' { c.is_ascii_digit() } else { of == c };
        form.len() == text.len() && form.chars().zip(text.chars()).all(is_alike)
    };
    let (cadence, at) = name.strip_prefix("auto-")?.split_once('-')?;
    let is_time = fits("0000-00-00T00:00Z", at) || fits("0000-00-00T00:00:00Z", at);
    CADENCES.into_iter().find(|of| of.name() == cadence).filter(|_| is_time)
}

pub(crate) fn seconds(time: Time) -> u64 {
    time.since_1970_ns() / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use aquifer_meter::time::parse_date;

    use super::*;

    #[test]
    fn what_a_schedule_took_is_known_by_its_whole_name() {
        for cadence in CADENCES {
            for to_the_second in [false, true] {
                let name = name(cadence, 1_795_726_800, to_the_second);
                assert_eq!(cadence_of(&name), Some(cadence), "{name}");
            }
        }
        let others =
            ["auto-hourly-", "auto-hourly-mine", "auto-hourly-2026-11-26T07:00Zx", "hourly", ""];
        assert_eq!(others.map(cadence_of), [None; 5]);
    }

    #[test]
    fn schedules_are_read_in_any_order_and_shown_in_one() {
        for (text, shown) in [
            ("off", "off"),
            ("hourly=24", "hourly=24"),
            ("daily=7,hourly=24", "hourly=24 daily=7"),
            (
                "yearly=1 monthly=12  weekly=4 daily=7 hourly=24 frequently=9999",
                "frequently=9999 hourly=24 daily=7 weekly=4 monthly=12 yearly=1",
            ),
        ] {
            assert_eq!(Schedule::parse(text).unwrap().to_string(), shown);
        }
        for bad in [
            "",
            " ",
            "on",
            "hourly",
            "hourly=0",
            "hourly=-1",
            "hourly=10000",
            "minutely=5",
            "hourly=1 hourly=2",
            "hourly=1=2",
            "off hourly=2",
        ] {
            assert!(Schedule::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_due_and_what_is_too_many_go_by_cadence() {
        let schedule = Schedule::parse("hourly=2 daily=1").unwrap();
        let now = parse_date("2026-11-26").unwrap() + 7 * HOUR_S;
        let taken = [
            (Cadence::Hourly, now - 2 * HOUR_S),
            (Cadence::Weekly, now - 2 * HOUR_S),
            (Cadence::Daily, now - DAY_S),
            (Cadence::Hourly, now - HOUR_S),
            (Cadence::Hourly, now + 59 * 60),
        ];
        assert_eq!(schedule.due(taken.into_iter(), now), BTreeSet::from([Cadence::Daily]));
        let both = BTreeSet::from([Cadence::Hourly, Cadence::Daily]);
        assert_eq!(schedule.due(taken[..4].iter().copied(), now), both);
        assert_eq!(schedule.excess(taken.into_iter()), [now - 2 * HOUR_S]);
        assert!(Schedule::default().excess(taken.into_iter()).is_empty());
    }

    #[test]
    fn periods_begin_where_people_expect_it() {
        let at = |date: &str, hour: u64, minute: u64| {
            parse_date(date).unwrap() + hour * HOUR_S + minute * 60
        };
        // 2026-11-26 is a Thursday.
        let now = at("2026-11-26", 7, 43);
        for (cadence, next) in [
            (Cadence::Frequently, at("2026-11-26", 7, 45)),
            (Cadence::Hourly, at("2026-11-26", 8, 0)),
            (Cadence::Daily, at("2026-11-27", 0, 0)),
            (Cadence::Weekly, at("2026-11-30", 0, 0)),
            (Cadence::Monthly, at("2026-12-01", 0, 0)),
            (Cadence::Yearly, at("2027-01-01", 0, 0)),
        ] {
            assert_eq!(next_period(cadence, now), next, "{cadence:?}");
            assert_eq!(period(cadence, now), period(cadence, next - 1), "{cadence:?}");
            assert_eq!(period(cadence, now) + 1, period(cadence, next), "{cadence:?}");
        }
        assert_eq!(next_period(Cadence::Monthly, at("2026-12-31", 23, 59)), at("2027-01-01", 0, 0));
        assert_eq!(name(Cadence::Hourly, now, false), "auto-hourly-2026-11-26T07:43Z");
        assert_eq!(name(Cadence::Hourly, now + 5, true), "auto-hourly-2026-11-26T07:43:05Z");
    }
}
