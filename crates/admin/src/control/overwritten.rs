//! An alarm about VM disks that are written far more than they ever were, as by a program that
//! encrypts them.
//!
//! Compared is what clients wrote to a disk in the present ten minutes with the most of any ten
//! minutes that the pool knows of it ([`aquifer_dataset::load`]). The last day does not count as
//! usual. A disk of which nothing is known from three days ago has no usual: one that is being
//! installed or restored is no alarm.
//!
//! It stands as other alarms do ([`Standing`]).
//!
//! # Invariants
//! - Bounded, whatever clients write.
//! - A pool whose disks do not answer holds up no look at others, and is asked once an hour.

use std::collections::BTreeMap;
use std::time::Duration;

use aquifer_alerts::Settings;
use aquifer_api::Problem;
use aquifer_api::codes::{self, Code};
use aquifer_dataset::load::{LoadAsked, LoadGrain, LoadOf, LoadRecord, LoadSample};
use aquifer_meter::size;
use aquifer_nfs::traffic::DiskKey;
use aquifer_ondisk::{Guid, ObjectId};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::Control;
use super::alarms::Standing;
use super::serving::Serving;

/// Disks whose past is remembered, and those that are told of: each as many.
const DISKS_MAX: usize = 256;
/// Time after which the usual amount of writes is looked up again.
const LOOK_UP_S: u64 = 3600;
const DAY_S: u64 = 24 * 3600;
/// From so long ago something must be known.
const KNOWN_S: u64 = 3 * DAY_S;
/// As long as the pool keeps what was done in ten minutes.
const KEPT_S: u64 = 31 * DAY_S;
const PATIENCE: Duration = Duration::from_secs(2);

/// The disks that were written far more than usual.
#[derive(Debug)]
pub(super) struct Overwritten {
    times: u64,
    bytes_min: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The most bytes that were written to a disk in ten minutes, if enough is known, and when that
    /// was looked up.
    usual: BTreeMap<DiskKey, (Option<u64>, u64)>,
    told: Standing<DiskKey>,
}

impl Overwritten {
    pub fn new(settings: &Settings) -> Overwritten {
        Overwritten {
            times: settings.overwritten_times.into(),
            bytes_min: u64::from(settings.overwritten_gib_min) << 30,
            state: Mutex::default(),
        }
    }

    /// The disks that were written so much in these ten minutes that their past counts.
    pub fn worth_a_look(&self, long: &[(LoadOf, LoadSample)]) -> Vec<(DiskKey, u64)> {
        let of_file = |(of, sample): &(LoadOf, LoadSample)| {
            let LoadOf::File { fs_guid, object } = *of else { return None };
            let bytes = sample.writes.bytes.value();
            let key = DiskKey { fs_guid: fs_guid.0, object: object.0 };
            (self.times > 0 && bytes > self.bytes_min).then_some((key, bytes))
        };
        long.iter().filter_map(of_file).collect()
    }

    /// Returns the usual amount of writes to a disk, if that was looked up lately.
    fn usual(&self, disk: DiskKey, now_s: u64) -> Option<Option<u64>> {
        let state = self.state.lock();
        let (usual, asked_s) = state.usual.get(&disk)?;
        (now_s.saturating_sub(*asked_s) < LOOK_UP_S).then_some(*usual)
    }

    fn note_usual(&self, disk: DiskKey, usual: Option<u64>, now_s: u64) {
        let mut state = self.state.lock();
        state.usual.insert(disk, (usual, now_s));
        if state.usual.len() > DISKS_MAX {
            let asked = state.usual.iter().filter(|(key, _)| **key != disk);
            let oldest = asked.min_by_key(|(_, (_, asked_s))| *asked_s).map(|(key, _)| *key);
            oldest.and_then(|key| state.usual.remove(&key));
        }
    }

    /// The bytes in ten minutes above which a disk is told of.
    fn limit(&self, usual: u64) -> u64 {
        usual.saturating_mul(self.times).max(self.bytes_min)
    }

    /// A disk was written more than `limit`, and `usual` is the most until now.
    fn tell(&self, disk: DiskKey, (name, limit, usual): (&str, u64, u64), now_s: u64) {
        let [limit, usual] = [limit, usual].map(size::human);
        let text = format!(
            "{name} is written far more than usual: over {limit} within ten minutes; {usual} was \
             the most before today"
        );
        let mut state = self.state.lock();
        state.told.forget(now_s);
        if state.told.len() < DISKS_MAX || state.told.contains(&disk) {
            state.told.put(disk, text, now_s);
        }
    }

    /// Those that stand at `now_s`, of a clock that nobody sets.
    pub fn problems(&self, now_s: u64) -> Vec<Problem> {
        self.state.lock().told.problems(now_s, OVERWRITTEN)
    }
}

impl Control {
    /// Looks whether disks of a pool were written far more than usual; `at_s` is the time of day.
    pub(super) async fn look_at_overwritten(
        &self,
        serving: &Serving,
        disks: Vec<(DiskKey, u64)>,
        at_s: u64,
    ) {
        let now_s = self.began.elapsed().as_secs();
        for (disk, bytes) in disks {
            let usual = match self.overwritten.usual(disk, now_s) {
                Some(usual) => usual,
                None => {
                    let usual = match serving.silent() {
                        Some(_) => None,
                        None => timeout(PATIENCE, usual_of(serving, disk, at_s)).await.ok(),
                    };
                    self.overwritten.note_usual(disk, usual.flatten(), now_s);
                    usual.flatten()
                }
            };
            let Some(usual) = usual else { continue };
            let limit = self.overwritten.limit(usual);
            if bytes <= limit {
                continue;
            }
            let unnamed = vec![(String::new(), format!("#{}", disk.object))];
            let names = timeout(PATIENCE, self.names_of(&[disk])).await.unwrap_or(unnamed);
            let names = names.into_iter().map(|(dataset, file)| format!("{dataset}:{file}"));
            let name: String = names.collect();
            self.overwritten.tell(disk, (&name, limit, usual), now_s);
        }
    }
}

/// The most bytes that were written to a disk in ten minutes, if enough is known.
async fn usual_of(serving: &Serving, disk: DiskKey, at_s: u64) -> Option<u64> {
    let datasets = serving.service().datasets.clone();
    let of = LoadOf::File { fs_guid: Guid(disk.fs_guid), object: ObjectId(disk.object) };
    let (from_s, to_s) = (at_s.saturating_sub(KEPT_S), at_s.saturating_sub(DAY_S));
    let asked = LoadAsked { grain: LoadGrain::TenMinutes, from_s, to_s, of: Some(of) };
    let read = async move { datasets.history().read_load(&asked).await };
    let records = serving.run(read).await.ok()?.ok()?;
    most_written(&records, &asked, at_s.saturating_sub(KNOWN_S))
}

/// The most bytes in a sample of a time, if one of them begins at `known_s` or before.
fn most_written(records: &[LoadRecord], asked: &LoadAsked, known_s: u64) -> Option<u64> {
    let samples = records.iter().flat_map(LoadRecord::times);
    let samples: Vec<_> = samples.filter(|(at_s, _)| asked.has(*at_s)).collect();
    samples.iter().find(|(at_s, _)| *at_s <= known_s)?;
    samples.iter().map(|(_, sample)| sample.writes.bytes.value()).max()
}

const OVERWRITTEN: (Code, &str) = (
    codes::DISK_OVERWRITTEN,
    "If nobody knows why (a restore, an update), a program in the guest may be encrypting it: stop \
     the guest, and hold the newest snapshot from before with `aquifer hold`. `aquifer iostat \
     --history` shows since when.",
);

#[cfg(test)]
mod tests {
    use aquifer_dataset::load::{LoadPart, Rough};

    use super::*;

    const GIB: u64 = 1 << 30;

    fn disk(object: u64) -> DiskKey {
        DiskKey { fs_guid: 7, object }
    }

    fn written(bytes: u64) -> LoadSample {
        let writes = LoadPart { bytes: Rough::of(bytes), ..LoadPart::default() };
        LoadSample { writes, ..LoadSample::default() }
    }

    #[test]
    fn only_disks_that_are_written_much_are_looked_at() {
        let overwritten = Overwritten::new(&Settings::default());
        let of = |object| LoadOf::File { fs_guid: Guid(7), object: ObjectId(object) };
        let samples = [
            (of(1), written(4 * GIB)),
            (of(2), written(5 * GIB)),
            (LoadOf::Clients, written(9 * GIB)),
        ];
        assert_eq!(overwritten.worth_a_look(&samples), [(disk(2), 5 * GIB)]);
        let off = Settings { overwritten_times: 0, ..Settings::default() };
        assert!(Overwritten::new(&off).worth_a_look(&samples).is_empty());
    }

    #[test]
    fn the_limit_is_a_multiple_of_the_most_and_not_below_the_least() {
        let overwritten = Overwritten::new(&Settings::default());
        assert_eq!(overwritten.limit(0), 4 * GIB);
        assert_eq!(overwritten.limit(GIB), 5 * GIB);
        assert_eq!(overwritten.limit(u64::MAX), u64::MAX);
    }

    #[test]
    fn usual_is_the_most_of_before_today_if_enough_is_known() {
        let grain = LoadGrain::TenMinutes;
        let (begin_s, step_s) = (grain.span_s() * 1000, grain.seconds());
        let now_s = begin_s + 20 * DAY_S;
        let of = LoadOf::File { fs_guid: Guid(7), object: ObjectId(1) };
        let record = |begin_s, bytes| {
            let mut record = LoadRecord::new(grain, of, begin_s);
            record.samples[1] = Some(written(bytes));
            record
        };
        let asked = LoadAsked { grain, from_s: now_s - KEPT_S, to_s: now_s - DAY_S, of: Some(of) };
        let most = |records: &[LoadRecord]| most_written(records, &asked, now_s - KNOWN_S);
        assert_eq!(most(&[]), None);
        let [old, young] = [begin_s, grain.begin_of(now_s - 2 * DAY_S)];
        assert_eq!(most(&[record(young, GIB)]), None, "nothing is known from three days ago");
        assert_eq!(most(&[record(old, GIB)]), Some(GIB));
        assert_eq!(most(&[record(old, GIB), record(young, 2 * GIB)]), Some(2 * GIB));
        let today = grain.begin_of(now_s - step_s);
        assert_eq!(most(&[record(old, GIB), record(today, 9 * GIB)]), Some(GIB));
    }

    #[test]
    fn the_past_is_looked_up_once_an_hour_and_tables_are_bounded() {
        let overwritten = Overwritten::new(&Settings::default());
        assert_eq!(overwritten.usual(disk(1), 10), None);
        overwritten.note_usual(disk(1), None, 10);
        assert_eq!(overwritten.usual(disk(1), 11), Some(None));
        overwritten.note_usual(disk(1), Some(5), 12);
        assert_eq!(overwritten.usual(disk(1), 12 + LOOK_UP_S - 1), Some(Some(5)));
        assert_eq!(overwritten.usual(disk(1), 12 + LOOK_UP_S), None);
        for object in 0..10_000 {
            overwritten.note_usual(disk(object), Some(1), 100 + object);
            overwritten.tell(disk(object), ("tank/vms:a", 5 * GIB, GIB), 100);
        }
        let state = overwritten.state.lock();
        assert_eq!((state.usual.len(), state.told.len()), (DISKS_MAX, DISKS_MAX));
        assert!(state.usual.contains_key(&disk(9999)), "the oldest ones go");
    }

    #[test]
    fn an_alarm_stands_for_a_day_from_when_it_was_seen_last() {
        let overwritten = Overwritten::new(&Settings::default());
        overwritten.tell(disk(1), ("tank/vms:/db.raw", 5 * GIB, GIB), 100);
        overwritten.tell(disk(1), ("tank/vms:/db.raw", 5 * GIB, GIB), 200);
        let told = |now_s| {
            let problems = overwritten.problems(now_s).into_iter();
            problems.map(|of| of.status).collect::<Vec<_>>()
        };
        let text = "tank/vms:/db.raw is written far more than usual: over 5G within ten minutes; \
                    1G was the most before today.";
        assert_eq!(told(200 + DAY_S - 1), [text]);
        assert!(told(200 + DAY_S).is_empty());
    }
}
