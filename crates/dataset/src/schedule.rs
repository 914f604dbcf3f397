//! Schedules: snapshots that a pool takes and prunes by itself, by the property `snapshots`.
//!
//! Time is cut into periods, in UTC: quarters of an hour, hours, days, weeks from Monday, months,
//! years. A snapshot of a cadence is due if none was taken in the period that it is now. So what
//! was missed is caught up once, and a clock that is set back or forward does no more than that.
//!
//! Invariants:
//! - Only what a schedule took is pruned: its keep record has the mark. A snapshot that somebody
//!   renames loses it, and stays. What a schedule took elsewhere and a copy received has it too: so
//!   the copy prunes by its own property, whatever its source does.
//! - The newest of a cadence stay, as many as the schedule says, by the order in which they were
//!   taken. What is held or has clones stays too, and a cadence that the schedule does not name.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use aquifer_meter::time::{date_of, first_second, text_s};
use aquifer_ondisk::config::{FEATURE_KEEPING, FEATURE_SNAPSHOTS};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::{CADENCES, Cadence, KeepRecord};
use aquifer_ondisk::{DatasetId, Txg};
use aquifer_sync::Mutex;

use crate::clones::Clones;
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::property::Property;
use crate::snapshots::New;

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

/// The last failure of schedules that an event told of.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<Option<String>>);

impl Told {
    /// Notes how it went now. Returns whether somebody should hear of it.
    pub(crate) fn is_news(&self, failed: Option<String>) -> bool {
        let mut last = self.0.lock();
        let is_news = failed.is_some() && *last != failed;
        *last = failed;
        is_news
    }

    /// Returns the last failure, if nothing went well since.
    fn last(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

impl Schedule {
    /// Returns how many snapshots of each cadence stay.
    pub fn counts(&self) -> impl Iterator<Item = (Cadence, u32)> {
        self.0.iter().map(|(cadence, count)| (*cadence, *count))
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
fn next_period(cadence: Cadence, at_s: u64) -> u64 {
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

impl Dataset {
    /// Takes the mark of a schedule from a snapshot. Returns the new record, if it had one.
    pub(crate) fn without_schedule(&self, snapshot: Txg) -> Option<KeepRecord> {
        let mut keeping = self.keeping.lock();
        let record = keeping.get_mut(&snapshot).filter(|record| record.schedule.is_some())?;
        record.schedule = None;
        let record = record.clone();
        if record.is_empty() {
            keeping.remove(&snapshot);
        }
        Some(record)
    }
}

impl Datasets {
    /// Takes the snapshots that are due at `now`, and prunes those that schedules took and that are
    /// too many. On disk when this returns.
    ///
    /// # Errors
    /// Errors of the pool. What can be pruned was, nevertheless.
    pub async fn snapshots_if_due(&self, now: Time) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        let taken = self.take_due(now).await;
        let failed = taken.as_ref().err().map(DatasetError::lasting);
        if self.schedules_failed.is_news(failed.clone()) {
            tracing::error!(
                class = "snapshot.schedule_failed",
                pool = self.pool.name(),
                error = failed,
                "snapshots that are due cannot be taken"
            );
        }
        self.prune().await?;
        taken
    }

    async fn take_due(&self, now: Time) -> Result<(), DatasetError> {
        let mut refused = None;
        for cadence in CADENCES {
            let mut due = Vec::new();
            for dataset in self.all() {
                // A copy that stands by has the snapshots that it receives.
                if !dataset.is_standby() && self.is_due(&dataset, cadence, seconds(now)) {
                    due.extend(self.free_name(&dataset, cadence, seconds(now)).map(|name| New {
                        dataset,
                        name,
                        guid: self.new_guid(),
                        keep: KeepRecord { schedule: Some(cadence), holds: Vec::new() },
                    }));
                }
            }
            if due.is_empty() {
                continue;
            }
            self.use_feature(FEATURE_SNAPSHOTS).await?;
            self.use_feature(FEATURE_KEEPING).await?;
            // One that has no room keeps no other from its snapshot.
            let (mut taken, mut asked) = (Vec::new(), Vec::new());
            for new in due {
                match self.ask_for_one(&new.dataset).await {
                    Ok(of_it) => {
                        asked.push(of_it);
                        taken.push(new);
                    }
                    Err(error @ DatasetError::NoRoomForSnapshot { .. }) => refused = Some(error),
                    Err(error) => return Err(error),
                }
            }
            if taken.is_empty() {
                continue;
            }
            // A dataset has one snapshot in a txg: each cadence has its own.
            let names = self.take(taken, now, None).await?;
            tracing::info!(
                class = "snapshot.scheduled",
                pool = self.pool.name(),
                snapshots = names.join(" "),
                "snapshots taken by schedule"
            );
        }
        refused.map_or(Ok(()), Err)
    }

    /// Why schedules, of datasets and of files, could not take what was due last, if so.
    pub fn schedule_failures(&self) -> Vec<String> {
        let both = [&self.schedules_failed, &self.file_schedules_failed];
        both.into_iter().filter_map(Told::last).collect()
    }

    /// Destroys what schedules took and that is too many. The caller holds the lock of acts.
    async fn prune(&self) -> Result<(), DatasetError> {
        let (mut pruned, mut names) = (BTreeSet::new(), Vec::new());
        let mut held: BTreeMap<DatasetId, u64> = BTreeMap::new();
        let clones = self.all_clones();
        for dataset in self.all() {
            for (cadence, kept) in self.schedule(&dataset).0 {
                let taken = self.scheduled(&dataset, cadence);
                let excess = taken.len().saturating_sub(usize::try_from(kept).unwrap_or(0));
                for (snapshot, _) in taken.into_iter().take(excess) {
                    if self.check_not_held(&dataset, [snapshot]).is_err() {
                        *held.entry(dataset.id).or_default() += 1;
                    } else if self.can_be_pruned(&clones, &dataset, snapshot) {
                        names.push(self.listed_name(&dataset, snapshot)?);
                        pruned.insert((dataset.line_of(snapshot), snapshot));
                    }
                }
            }
        }
        self.tell_of_held(&self.left_held, &held);
        if pruned.is_empty() {
            return Ok(());
        }
        let lines = self.check_end(&[], &pruned)?;
        if lines.iter().any(|line| self.is_returning(line)) {
            // They go a minute later: nobody waits for that.
            return Ok(());
        }
        self.end(&[], pruned, None).await?;
        tracing::info!(
            class = "snapshot.pruned",
            pool = self.pool.name(),
            snapshots = names.join(" "),
            "snapshots pruned by schedule"
        );
        Ok(())
    }

    /// Neither a clone nor a receive needs it.
    fn can_be_pruned(&self, clones: &Clones, dataset: &Dataset, snapshot: Txg) -> bool {
        clones.of(dataset.id, snapshot).is_empty() && !dataset.goes_back_to(snapshot)
    }

    /// When a schedule takes the next snapshot of a dataset, in seconds since 1970, and of which
    /// cadence. What is due is taken `now`.
    pub fn next_snapshot(&self, dataset: &Dataset, now: Time) -> Option<(u64, Cadence)> {
        let now_s = seconds(now);
        let next = |cadence: Cadence| match self.is_due(dataset, cadence, now_s) {
            true => (now_s, cadence),
            false => (next_period(cadence, now_s), cadence),
        };
        self.schedule(dataset).0.into_keys().map(next).min()
    }

    /// The schedule that took a snapshot, and prunes it.
    pub fn schedule_of(&self, dataset: &Dataset, snapshot: Txg) -> Option<Cadence> {
        dataset.keeping.lock().get(&snapshot)?.schedule
    }

    fn schedule(&self, dataset: &Dataset) -> Schedule {
        let (value, _) = self.value(dataset, Property::Snapshots);
        Schedule::parse(&value).unwrap_or_default()
    }

    fn is_due(&self, dataset: &Dataset, cadence: Cadence, now_s: u64) -> bool {
        let now = period(cadence, now_s);
        self.schedule(dataset).0.contains_key(&cadence)
            && !self.scheduled(dataset, cadence).iter().any(|(_, at)| period(cadence, *at) == now)
    }

    /// Lists the snapshots that the schedule of a cadence took, in order, and when.
    fn scheduled(&self, dataset: &Dataset, cadence: Cadence) -> Vec<(Txg, u64)> {
        let snapshots = dataset.snapshots(Txg(u64::MAX));
        let keeping = dataset.keeping.lock();
        let of_it = |txg: &Txg| keeping.get(txg).is_some_and(|of| of.schedule == Some(cadence));
        let each = snapshots.iter().filter(|snapshot| of_it(&snapshot.txg));
        each.map(|snapshot| (snapshot.txg, seconds(snapshot.record.created))).collect()
    }

    /// A name that no snapshot of the dataset has. Somebody may have given it to another one.
    fn free_name(&self, dataset: &Arc<Dataset>, cadence: Cadence, now_s: u64) -> Option<String> {
        let names = [false, true].map(|to_the_second| name(cadence, now_s, to_the_second));
        names.into_iter().find(|name| self.check_new(dataset, name).is_ok())
    }
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
    fn somebody_hears_once_of_each_failure() {
        let told = Told::default();
        for (failed, is_news) in [
            (None, false),
            (Some("full"), true),
            (Some("full"), false),
            (Some("name"), true),
            (None, false),
            (Some("name"), true),
        ] {
            assert_eq!(told.is_news(failed.map(String::from)), is_news, "{failed:?}");
        }
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
