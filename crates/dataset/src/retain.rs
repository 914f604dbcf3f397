//! The property `retain`: each snapshot that a dataset takes or receives is held for a time, by
//! itself.
//!
//! The hold is one with an end ([`crate::holds`]), of the tag [`RETAIN`]: nobody releases it before
//! its time. It does not matter who takes the snapshot: a command, a schedule, a replication, a
//! host over NFS, a stream. Snapshots of files are held too.
//!
//! Invariants:
//! - The hold is on disk with its snapshot, in one txg.
//! - The labels say until when it stands before it is on disk.
//! - A changed value changes no hold that stands.
//! - No value is longer than the pool's `hold_max`, whichever of the two is set last.
//! - A copy has its own value, or inherits it there. None comes with a stream.

use std::collections::BTreeMap;

use aquifer_meter::time::parse_span;
use aquifer_ondisk::DatasetId;
use aquifer_ondisk::config::{FEATURE_FILE_HOLDS, FEATURE_KEEPING};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::{Hold, HoldEnd};
use aquifer_sync::Mutex;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::property::{LocalValues, Property};

/// The tag of the hold that a new snapshot gets.
pub const RETAIN: &str = "retain";
/// A schedule that left nothing for so long tells of what it leaves again.
const TOLD_FOR_S: u64 = 86_400;

impl Datasets {
    /// The hold that a new snapshot of a dataset gets, if it gets one. All that must be on disk
    /// before it is. The caller holds the lock of acts.
    pub(crate) async fn retained(&self, dataset: &Dataset) -> Result<Option<Hold>, DatasetError> {
        let Some(span_s) = parse_span(&self.value(dataset, Property::Retain).0) else {
            return Ok(None);
        };
        let until_s = self.wall_s().saturating_add(span_s);
        self.use_feature(FEATURE_KEEPING).await?;
        self.hold_clock.run();
        self.note_held_until(until_s).await?;
        let placed = Time::from_ns(self.pool.world().wall_ns());
        let end = HoldEnd { until_s, clock_ms: self.clock_at(until_s) };
        Ok(Some(Hold { tag: RETAIN.into(), placed, end: Some(end) }))
    }

    /// Returns the hold that a new snapshot of a file gets, as [`Datasets::retained`] does for one
    /// of a dataset.
    pub(crate) async fn retained_of_file(
        &self,
        dataset: &Dataset,
    ) -> Result<Option<Hold>, DatasetError> {
        let hold = self.retained(dataset).await?;
        if hold.is_some() {
            self.use_feature(FEATURE_FILE_HOLDS).await?;
        }
        Ok(hold)
    }

    /// Fails if a dataset would retain longer than holds of the pool may be: `dataset`, or a new
    /// one, has these values of its own then, and `sets` one of this property. The caller holds the
    /// lock of acts.
    pub(crate) fn check_retain(
        &self,
        dataset: Option<&Dataset>,
        after: &LocalValues,
        sets: bool,
    ) -> Result<(), DatasetError> {
        let is_pools_own = dataset.is_some_and(|of| of.record.lock().parent.0 == 0);
        let own_max = after.get(&Property::HoldMax.into()).filter(|_| is_pools_own);
        let max_s = match is_pools_own {
            true => own_max.and_then(|value| parse_span(value)),
            false => self.hold_max_s(),
        };
        let Some(max_s) = max_s else { return Ok(()) };
        let value = |values: &LocalValues| values.get(&Property::Retain.into()).cloned();
        let is_longer = |value: &String| parse_span(value).is_some_and(|span_s| span_s > max_s);
        if let Some(value) = value(after).filter(|value| sets && is_longer(value)) {
            let max = self.value_of_hold_max(own_max);
            let why = format!("{value} is longer than the pool's hold_max allows, which is {max}");
            return Err(DatasetError::BadProperty { property: RETAIN.into(), why });
        }
        for other in self.living().iter().filter(|_| is_pools_own) {
            let value = match dataset.is_some_and(|own| own.id == other.id) {
                true => value(after),
                false => value(&other.local.lock()),
            };
            if let Some(value) = value.filter(is_longer) {
                let name = self.full_name(other);
                let why = format!("{name} has retain={value}, which is longer: lower that first");
                let property = Property::HoldMax.name().into();
                return Err(DatasetError::BadProperty { property, why });
            }
        }
        Ok(())
    }

    fn value_of_hold_max(&self, own: Option<&String>) -> String {
        let pools = || self.by_name(self.pool.name());
        let now = || pools().map(|pools| self.value(&pools, Property::HoldMax).0);
        own.cloned().or_else(now).unwrap_or_default()
    }

    /// Schedules left these snapshots, which are too many, since they are held.
    pub(crate) fn tell_of_held(&self, told: &LeftHeld, held: &BTreeMap<DatasetId, u64>) {
        let news = told.news(held.keys().copied(), self.wall_s());
        let of_it = |id: &DatasetId| Some((self.full_name(&*self.by_id(*id)?), held.get(id)?));
        let each = news.iter().filter_map(of_it).map(|(name, count)| format!("{name} ({count})"));
        let each: Vec<String> = each.collect();
        if !each.is_empty() {
            tracing::info!(
                class = "snapshot.kept_by_hold",
                pool = self.pool.name(),
                datasets = each.join(" "),
                "schedules leave snapshots that are too many, since holds keep them"
            );
        }
    }
}

/// Of which datasets an event told that holds keep what a schedule would prune, and when that was
/// seen last: it is told once, and again after a day without.
#[derive(Debug, Default)]
pub(crate) struct LeftHeld(Mutex<BTreeMap<DatasetId, u64>>);

impl LeftHeld {
    /// Notes of which it is so now. Returns those that are news.
    fn news(&self, now: impl Iterator<Item = DatasetId>, now_s: u64) -> Vec<DatasetId> {
        let mut seen = self.0.lock();
        seen.retain(|_, last_s| now_s.saturating_sub(*last_s) < TOLD_FOR_S);
        now.filter(|id| seen.insert(*id, now_s).is_none()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hold_keeps_is_told_once() {
        let told = LeftHeld::default();
        let news = |ids: &[u64], now_s| {
            let ids: Vec<u64> = told
                .news(ids.iter().map(|id| DatasetId(*id)), now_s)
                .iter()
                .map(|of| of.0)
                .collect();
            ids
        };
        assert_eq!(news(&[1, 2], 0), [1, 2]);
        for hour in 1..100 {
            // One goes to and fro, one stays.
            let now: &[u64] = if hour % 2 == 0 { &[1, 2] } else { &[1] };
            assert!(news(now, hour * 3600).is_empty(), "{hour}");
        }
        assert_eq!(news(&[1, 3], 100 * 3600), [3]);
        assert_eq!(news(&[1, 2, 3], 125 * 3600), [1, 2, 3]);
    }
}
