//! Limits that are about to be set: whether what is there fits them.
//!
//! Invariants:
//! - A quota comes into force only with room for all that is used and reserved within it. Writes
//!   that have a promise count as used.
//! - Quota and reservation of one change are judged together, as they will be.
//! - Both are looked at under the lock of promises, and come into force before it is released.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_meter::size;
use aquifer_ondisk::DatasetId;
use aquifer_pool::PoolError;
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::property::Property;
use crate::room::{Sizes, Wanted};
use crate::tree::children_first;
use crate::values::{Changes, bytes_of};

/// The limits of a dataset, as a change leaves them.
#[derive(Debug)]
pub(crate) struct NewLimits {
    dataset: Arc<Dataset>,
    quota: Option<u64>,
    sets_quota: bool,
    /// The reservations that the change has.
    sizes: Sizes,
}

impl NewLimits {
    /// Of a change; `None` if it has none.
    pub fn of(dataset: &Arc<Dataset>, changes: &Changes) -> Option<NewLimits> {
        let [quota, reservation, refreservation] =
            [Property::Quota, Property::Reservation, Property::Refreservation]
                .map(|property| changes.get(&property.into()));
        let bytes = |value: Option<&Option<String>>| value.map(|value| bytes_of(value.as_ref()));
        let (reservation, refreservation) = (bytes(reservation), bytes(refreservation));
        let sizes = Sizes { reservation, refreservation };
        if quota.is_none() && !sizes.are_any() {
            return None;
        }
        let properties = dataset.properties();
        Some(NewLimits {
            dataset: dataset.clone(),
            quota: match quota {
                Some(value) => Some(bytes_of(value.as_ref())).filter(|bytes| *bytes > 0),
                None => properties.quota_bytes,
            },
            sets_quota: quota.is_some(),
            sizes,
        })
    }

    /// Whether the change has a reservation.
    pub fn reserves(&self) -> bool {
        self.sizes.are_any()
    }

    /// The wanted reservations, if the change has any.
    fn wanted(&self) -> Option<Wanted> {
        self.reserves().then_some(Wanted::Of(self.dataset.id, self.sizes, self.quota))
    }

    /// The disk may still know the present reservations, until the change is on disk.
    pub fn keep_present(&self) {
        let of = &self.dataset;
        of.kept_bytes.store(of.reserved_bytes(), Ordering::SeqCst);
        of.kept_refreserved_bytes.store(of.refreserved_bytes(), Ordering::SeqCst);
    }

    /// It is on disk.
    pub fn keep_new(&self) {
        self.dataset.kept_bytes.store(0, Ordering::SeqCst);
        self.dataset.kept_refreserved_bytes.store(0, Ordering::SeqCst);
    }
}

impl Datasets {
    /// Commits to make room for limits that have too little.
    ///
    /// # Errors
    /// Errors of the pool.
    pub(crate) async fn make_room_for(&self, limits: &NewLimits) -> Result<(), PoolError> {
        let lacks = || {
            let lacks_room = limits.wanted().is_some_and(|wanted| self.lacking_bytes(wanted) > 0);
            lacks_room || self.check_new_quota(limits).is_err()
        };
        self.commit_while(lacks).await
    }

    /// Fails if limits have too little room. If it succeeds, and the limits come into force before
    /// the lock of promises is released, the room stays. Under that lock.
    pub(crate) fn check_limits(&self, limits: &NewLimits) -> Result<(), DatasetError> {
        // From here on every promise takes limits into account.
        self.limited.store(true, Ordering::SeqCst);
        limits.dataset.sum_covered();
        let checked = self.check_new_quota(limits);
        let checked = checked.inspect_err(|_| self.refresh_properties());
        checked?;
        limits.wanted().map_or(Ok(()), |wanted| self.check_reservation(wanted))
    }

    /// Fails if a quota is below what is used or reserved within it.
    fn check_new_quota(&self, limits: &NewLimits) -> Result<(), DatasetError> {
        let Some(quota) = limits.quota.filter(|_| limits.sets_quota) else { return Ok(()) };
        let (used, claimed) = self.claimed_bytes(limits);
        if claimed <= quota {
            return Ok(());
        }
        let name = self.full_name(&limits.dataset);
        let bytes = |bytes| format!("{} ({bytes} bytes)", size::human(bytes));
        let why = match used > quota {
            true => format!(
                "{} is less than the {} that {name:?} uses, with its snapshots and all below it; \
                 set more, or free space first: `aquifer list -r -t all {name}` shows what uses it",
                bytes(quota),
                bytes(used)
            ),
            false => format!(
                "{} is less than the {} that are used or reserved in {name:?} and below it; set \
                 more, or a smaller reservation first: `aquifer get -r \
                 reservation,refreservation {name}` shows them",
                bytes(quota),
                bytes(claimed)
            ),
        };
        Err(DatasetError::BadProperty { property: Property::Quota.name().into(), why })
    }

    /// Bytes that a dataset and those below it take; the same with what their reservations lack.
    fn claimed_bytes(&self, limits: &NewLimits) -> (u64, u64) {
        let sizes = limits.sizes;
        let room = self.room(&BTreeSet::new(), limits.wanted(), None);
        let mut lacking: BTreeMap<DatasetId, u64> = BTreeMap::new();
        for dataset in children_first(self.living()) {
            let taken = room.taken.get(&dataset.id).copied().unwrap_or(0);
            let is_it = dataset.id == limits.dataset.id;
            let sizes = if is_it { sizes } else { Sizes::default() };
            let reserved = sizes.reservation.unwrap_or_else(|| dataset.reserved_bytes());
            let refreserved = sizes.refreservation.unwrap_or_else(|| dataset.refreserved_bytes());
            let below = lacking.remove(&dataset.id).unwrap_or(0);
            let lacks = below.saturating_add(dataset.lacking_for(refreserved));
            let lacks = lacks.max(reserved.saturating_sub(taken));
            if is_it {
                return (taken, taken.saturating_add(lacks));
            }
            let above = lacking.entry(dataset.record.lock().parent).or_default();
            *above = above.saturating_add(lacks);
        }
        (0, 0)
    }
}
