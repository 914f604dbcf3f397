//! Quotas and reservations: what a write may still take.
//!
//! Both are hard: a write is promised its bytes before it is admitted, promises are made one at a
//! time, and bytes count until the sync that writes them knows what they came to. Promises are for
//! the worst case, nothing compressed and nothing overwritten; and what was removed or cut off
//! counts until a sync has freed it. So before anything is refused, what may make room is
//! committed, in a few txgs at most, and the question is asked again. Trees and names do not count.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::{DatasetId, Txg};
use aquifer_pool::PoolError;
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::property::Property;

/// Why a write is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// A quota of the dataset, or of one above it, is used up.
    Quota,
    /// What is free is reserved for others.
    Reserved,
    /// The pool failed.
    Pool(PoolError),
}

/// Bytes promised to a write. Dropped unused, they are given back.
#[derive(Debug)]
pub struct Promise {
    dataset: Arc<Dataset>,
    bytes: u64,
}

impl Promise {
    /// The write enters `txg`. Under a hold of it.
    pub fn spend(self, txg: Txg) {
        if self.bytes > 0 {
            self.dataset.note_dirty(txg, self.bytes);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.dataset.pending.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Datasets {
    /// Promises `bytes` to a write to `dataset`; commits before it refuses, if that may make room.
    ///
    /// # Errors
    /// The quota or reservation that stands against it.
    pub async fn promise(&self, dataset: &Arc<Dataset>, bytes: u64) -> Result<Promise, Refused> {
        self.ask(dataset, || self.promise_now(dataset, bytes)).await
    }

    /// As [`Datasets::promise`], from what there is now.
    ///
    /// # Errors
    /// As [`Datasets::promise`].
    pub fn promise_now(&self, dataset: &Arc<Dataset>, bytes: u64) -> Result<Promise, Refused> {
        if !self.limited.load(Ordering::Relaxed) {
            return Ok(Promise { dataset: dataset.clone(), bytes: 0 });
        }
        self.try_promise(dataset, bytes)
    }

    /// Fails if a quota on the dataset or above it is used up: nothing new may be made. Commits
    /// before that, if it may make room.
    ///
    /// # Errors
    /// The quota.
    pub async fn check_quota(&self, dataset: &Arc<Dataset>) -> Result<(), Refused> {
        let look = || if self.over_quota(dataset) { Err(Refused::Quota) } else { Ok(()) };
        self.ask(dataset, look).await
    }

    /// Asks for room in a dataset, and again after each commit that may have made some.
    async fn ask<T>(
        &self,
        dataset: &Dataset,
        question: impl Fn() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        for commits in 0..COMMITS_MAX {
            let helps = match question() {
                Err(Refused::Quota) => {
                    let counted = self.counted_with(dataset);
                    // What is only uncommitted is told by one commit.
                    counted.iter().any(|of| of.is_being_freed())
                        || commits == 0 && counted.iter().any(|of| of.is_uncommitted())
                }
                // Frees are held back for some txgs.
                Err(Refused::Reserved) => true,
                answer => return answer,
            };
            if !helps {
                break;
            }
            // Rare, and large: not a part of every future that asks.
            Box::pin(self.pool.sync()).await.map_err(Refused::Pool)?;
        }
        question()
    }

    /// The datasets that share a quota with this one.
    fn counted_with(&self, dataset: &Dataset) -> Vec<Arc<Dataset>> {
        let (all, above) = (self.living(), self.line_of(dataset));
        let limits =
            |of: &&Arc<Dataset>| above.contains(&of.id) && of.properties().quota_bytes.is_some();
        let limits: BTreeSet<DatasetId> = all.iter().filter(limits).map(|of| of.id).collect();
        all.into_iter().filter(|of| !self.line_of(of).is_disjoint(&limits)).collect()
    }

    fn try_promise(&self, dataset: &Arc<Dataset>, bytes: u64) -> Result<Promise, Refused> {
        let _one = (!left_out(Rule::PromisesInTurn)).then(|| self.promises.lock());
        let all = self.living();
        let above = self.line_of(dataset);
        let taken =
            |of: &Dataset| self.used_bytes(of).saturating_add(sum_below(self, of, Kind::Promised));
        for other in all.iter().filter(|other| above.contains(&other.id)) {
            let quota = other.properties().quota_bytes.unwrap_or(u64::MAX);
            if taken(other).saturating_add(bytes) > quota {
                return Err(Refused::Quota);
            }
        }
        let mut wanted = bytes;
        let mut reserved = false;
        for other in &all {
            wanted = wanted.saturating_add(other.promised_bytes());
            let reservation = other.properties().reservation_bytes;
            if reservation > 0 && !above.contains(&other.id) {
                reserved = true;
                wanted = wanted.saturating_add(reservation.saturating_sub(taken(other)));
            }
        }
        if reserved && wanted > self.pool.writable_bytes() {
            return Err(Refused::Reserved);
        }
        dataset.pending.fetch_add(bytes, Ordering::Relaxed);
        Ok(Promise { dataset: dataset.clone(), bytes })
    }

    /// Bytes that a dataset and its children refer to.
    pub fn used_bytes(&self, dataset: &Dataset) -> u64 {
        sum_below(self, dataset, Kind::Refer)
    }

    /// Bytes that destroyed datasets still take: they become free in the background.
    pub fn freeing_bytes(&self) -> u64 {
        let state = self.state.lock();
        let destroyed = state.datasets.values().filter(|dataset| dataset.is_destroyed());
        destroyed.fold(0, |sum, dataset| sum.saturating_add(dataset.refer_bytes()))
    }

    /// Bytes that can be written to a dataset: the pool's free space less what others have
    /// reserved, within its own quota and those above it.
    pub fn available_bytes(&self, dataset: &Dataset) -> u64 {
        let mut available = self.pool.writable_bytes();
        let all = self.living();
        let above = self.line_of(dataset);
        for other in &all {
            let reserved = other.properties().reservation_bytes;
            if reserved > 0 && !above.contains(&other.id) {
                let missing = reserved.saturating_sub(self.used_bytes(other));
                available = available.saturating_sub(missing);
            }
        }
        for other in all.iter().filter(|other| above.contains(&other.id)) {
            if let Some(quota) = other.properties().quota_bytes {
                available = available.min(quota.saturating_sub(self.used_bytes(other)));
            }
        }
        available
    }

    fn over_quota(&self, dataset: &Dataset) -> bool {
        if !self.limited.load(Ordering::Relaxed) {
            return false;
        }
        let above = self.line_of(dataset);
        self.living().iter().filter(|other| above.contains(&other.id)).any(|other| {
            other.properties().quota_bytes.is_some_and(|quota| self.used_bytes(other) >= quota)
        })
    }

    /// Fails if a reservation is more than can be kept free. `held` is kept free already.
    pub(crate) fn check_reservation(
        &self,
        dataset: &Dataset,
        held: u64,
        value: Option<&String>,
    ) -> Result<(), DatasetError> {
        let wanted = value.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        let free = self.available_bytes(dataset).max(held);
        if wanted <= held || wanted - held <= free {
            return Ok(());
        }
        Err(DatasetError::BadProperty {
            property: Property::Reservation.name().into(),
            why: format!("{wanted} bytes are more than the {free} that are free"),
        })
    }
}

/// Commits before something is refused: a free takes effect in its own and is held back for two
/// more, and a large file is freed piece by piece.
const COMMITS_MAX: usize = 4;

#[derive(Clone, Copy)]
enum Kind {
    Refer,
    Promised,
}

/// A sum over a dataset and all below it.
fn sum_below(datasets: &Datasets, dataset: &Dataset, kind: Kind) -> u64 {
    let own = match kind {
        Kind::Refer => dataset.refer_bytes(),
        Kind::Promised => dataset.promised_bytes(),
    };
    let children: Vec<Arc<Dataset>> = {
        let state = datasets.state.lock();
        let alive = state.datasets.values().filter(|other| !other.is_destroyed());
        // A hostile namespace may have a dataset below itself.
        let below = |other: &&Arc<Dataset>| {
            other.record.lock().parent == dataset.id && other.id > dataset.id
        };
        alive.filter(below).cloned().collect()
    };
    let below = children.iter().map(|child| sum_below(datasets, child, kind));
    below.fold(own, u64::saturating_add)
}
