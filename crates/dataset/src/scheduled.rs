//! Snapshots that a pool takes and prunes by itself, by the property `snapshots`
//! ([`crate::schedule`]).
//!
//! A snapshot of a cadence is due if none was taken in the period that it is now. So what was
//! missed is caught up once, and a clock that is set back or forward does no more than that.
//!
//! Invariants:
//! - Only what a schedule took is pruned: its keep record has the mark. A snapshot that somebody
//!   renames loses it, and stays. What a schedule took elsewhere and a copy received has it too: so
//!   the copy prunes by its own property, whatever its source does.
//! - The newest of a cadence stay, as many as the schedule says, by the order in which they were
//!   taken. What is held or has clones stays too, and a cadence that the schedule does not name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
use crate::schedule::{Schedule, name, next_period, seconds};
use crate::snapshots::{New, Snapshot};

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
            let mut wanted = Vec::new();
            for dataset in self.all() {
                // A copy that stands by has the snapshots that it receives.
                let is_due =
                    || due(&dataset, &self.schedule(&dataset), seconds(now)).contains(&cadence);
                if !dataset.is_standby() && is_due() {
                    wanted.extend(self.free_name(&dataset, cadence, seconds(now)).map(|name| {
                        New {
                            dataset,
                            name,
                            guid: self.new_guid(),
                            keep: KeepRecord { schedule: Some(cadence), holds: Vec::new() },
                        }
                    }));
                }
            }
            if wanted.is_empty() {
                continue;
            }
            self.use_feature(FEATURE_SNAPSHOTS).await?;
            self.use_feature(FEATURE_KEEPING).await?;
            // One that has no room keeps no other from its snapshot.
            let (mut taken, mut asked) = (Vec::new(), Vec::new());
            for new in wanted {
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
            let schedule = self.schedule(&dataset);
            let taken = scheduled(&dataset, &schedule).into_iter();
            let taken = taken.map(|(cadence, snapshot, _)| (cadence, snapshot));
            for snapshot in schedule.excess(taken) {
                if self.check_not_held(&dataset, [snapshot]).is_err() {
                    *held.entry(dataset.id).or_default() += 1;
                } else if self.can_be_pruned(&clones, &dataset, snapshot) {
                    names.push(self.listed_name(&dataset, snapshot)?);
                    pruned.insert((dataset.line_of(snapshot), snapshot));
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
        let schedule = self.schedule(dataset);
        let due = due(dataset, &schedule, now_s);
        let next = |(cadence, _)| match due.contains(&cadence) {
            true => (now_s, cadence),
            false => (next_period(cadence, now_s), cadence),
        };
        schedule.counts().map(next).min()
    }

    /// The schedule that took a snapshot, and prunes it.
    pub fn schedule_of(&self, dataset: &Dataset, snapshot: Txg) -> Option<Cadence> {
        dataset.keeping.lock().get(&snapshot)?.schedule
    }

    fn schedule(&self, dataset: &Dataset) -> Schedule {
        let (value, _) = self.value(dataset, Property::Snapshots);
        Schedule::parse(&value).unwrap_or_default()
    }

    /// A name that no snapshot of the dataset has. Somebody may have given it to another one.
    fn free_name(&self, dataset: &Arc<Dataset>, cadence: Cadence, now_s: u64) -> Option<String> {
        let names = [false, true].map(|to_the_second| name(cadence, now_s, to_the_second));
        names.into_iter().find(|name| self.check_new(dataset, name).is_ok())
    }
}

/// The cadences of a schedule of which a snapshot of a dataset is due.
fn due(dataset: &Dataset, schedule: &Schedule, now_s: u64) -> BTreeSet<Cadence> {
    let taken = scheduled(dataset, schedule).into_iter();
    schedule.due(taken.map(|(cadence, _, at_s)| (cadence, at_s)), now_s)
}

/// Lists the snapshots that the cadences of a schedule took, in order, each with its cadence and
/// when. Most datasets have no schedule, and every listing asks: then no snapshot is looked at.
fn scheduled(dataset: &Dataset, schedule: &Schedule) -> Vec<(Cadence, Txg, u64)> {
    if schedule.counts().next().is_none() {
        return Vec::new();
    }
    let snapshots = dataset.snapshots(Txg(u64::MAX));
    let keeping = dataset.keeping.lock();
    let of_it = |snapshot: &Arc<Snapshot>| {
        let cadence = keeping.get(&snapshot.txg)?.schedule?;
        Some((cadence, snapshot.txg, seconds(snapshot.record.created)))
    };
    snapshots.iter().filter_map(of_it).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
