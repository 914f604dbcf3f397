//! Quotas and reservations: how much a write may still take.
//!
//! Both are hard. A write gets a promise of its bytes before its admission. Promises are made one
//! at a time, and the bytes count until the sync that writes them knows their real number. Promises
//! assume the worst case: nothing compressed and nothing overwritten. Removed or cut-off data
//! counts until a sync has freed it; what a snapshot shows goes on to count. So before a refusal,
//! commits may make room, in a few txgs at most, and the question is asked again. Trees and names
//! do not count.
//!
//! Invariants, except for the space of trees and names:
//! - Promises to writes, plus what reservations still lack, fit into free space. So a reservation
//!   is in force only if that holds with it, and one look both finds and takes room.
//! - Every write counts from its promise to its sync, also while nothing is limited, and also in a
//!   replay: a later limit finds it.
//! - Reserved space becomes available to others only when the disk says that the reservation is
//!   smaller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::head_line::LeftHeadRecord;
use aquifer_ondisk::{DatasetId, Space, Txg};
use aquifer_pool::PoolError;
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;

/// Why a write is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// A quota of the dataset, or of one above it, is used up.
    Quota,
    /// Others have reserved the free space.
    Reserved,
    /// The pool failed.
    Pool(PoolError),
}

/// Bytes promised to a write. Dropping an unused promise gives them back.
#[derive(Debug)]
pub struct Promise {
    dataset: Arc<Dataset>,
    bytes: u64,
    reserved: bool,
}

impl Promise {
    /// Whether a reservation covers all of it, and the room is there.
    pub fn is_reserved(&self) -> bool {
        self.reserved
    }

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
            self.dataset.pending.fetch_sub(self.bytes, Ordering::SeqCst);
        }
    }
}

impl Datasets {
    /// Promises `bytes` to a write to `dataset`. Commits before a refusal if that may make room.
    ///
    /// # Errors
    /// The quota or reservation that prevents it.
    pub async fn promise(&self, dataset: &Arc<Dataset>, bytes: u64) -> Result<Promise, Refused> {
        let mut answer = self.ask(dataset, || self.promise_now(dataset, bytes)).await;
        // Writes that are under way took what is kept for this one, and give it back.
        for _ in 0..COMMITS_FOR_ITS_OWN {
            let is_taken = matches!(answer, Err(Refused::Reserved));
            if !is_taken || !dataset.will_be_refreserved(bytes) {
                break;
            }
            Box::pin(self.pool.sync()).await.map_err(Refused::Pool)?;
            answer = self.promise_now(dataset, bytes);
        }
        answer
    }

    /// As [`Datasets::promise`], without a commit.
    ///
    /// # Errors
    /// As [`Datasets::promise`].
    pub fn promise_now(&self, dataset: &Arc<Dataset>, bytes: u64) -> Result<Promise, Refused> {
        let is_limited = || self.limited.load(Ordering::SeqCst);
        if !is_limited() {
            let promise = take(dataset, bytes, false);
            // A new limit sets the flag first, and then looks at the promises.
            if !is_limited() {
                return Ok(promise);
            }
        }
        self.try_promise(dataset, bytes)
    }

    /// A replay writes that many bytes in `txg`, which were promised before. Under a hold of it.
    pub fn note_replayed(&self, dataset: &Dataset, txg: Txg, bytes: u64) {
        if !left_out(Rule::ReplaysCount) {
            dataset.note_dirty(txg, bytes);
        }
    }

    /// Fails if a quota on the dataset or above it is used up, so that nothing new may be made.
    /// Commits before a refusal if that may make room.
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
                    // One commit settles everything that is merely uncommitted.
                    let left = self.left_space();
                    counted.iter().any(|of| of.is_being_freed() || left.contains_key(&of.id))
                        || counted.iter().any(|of| of.is_asked())
                        || commits == 0 && counted.iter().any(|of| of.is_uncommitted())
                }
                // Frees are held back for some txgs.
                Err(Refused::Reserved) => true,
                answer => return answer,
            };
            if !helps {
                break;
            }
            // Rare, and large: kept out of every caller's future.
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
        let above = self.line_of(dataset);
        let room = self.room(&above, None, Some(dataset));
        let is_refreserved = dataset.is_refreserved(bytes);
        let mut covered = is_refreserved;
        for other in self.living().iter().filter(|other| above.contains(&other.id)) {
            let claimed = room.claimed(other.id).saturating_add(bytes);
            if claimed > other.properties().quota_bytes.unwrap_or(u64::MAX) {
                return Err(Refused::Quota);
            }
            let taken = room.taken.get(&other.id).copied().unwrap_or(0).saturating_add(bytes);
            covered |= taken <= other.properties().reservation_bytes;
        }
        // What is kept for trees is for those of such writes too.
        let spoken_for = if is_refreserved { room.of_data() } else { room.spoken_for() };
        let fits = spoken_for.saturating_add(bytes) <= self.pool.writable_bytes();
        if room.keeps_any() && !fits {
            return Err(Refused::Reserved);
        }
        Ok(take(dataset, bytes, covered && fits))
    }

    /// Datasets whose bytes and reservations count, including a destroyed one until that is on
    /// disk.
    pub(crate) fn keeping(&self) -> Vec<Arc<Dataset>> {
        let committed = self.pool.committed_txg();
        let keeps = |of: &&Arc<Dataset>| {
            of.destroyed_in().is_none_or(|destroyed| {
                destroyed > committed && !left_out(Rule::ReleasedOnDiskFirst)
            })
        };
        self.state.lock().datasets.values().filter(keeps).cloned().collect()
    }

    /// Bytes that a dataset and its children take, with what only snapshots show, and what
    /// `refreservation` keeps free for them.
    pub fn used_bytes(&self, dataset: &Dataset) -> u64 {
        let hidden = self.hidden_space();
        let own = |other: &Dataset| {
            let hidden = hidden.get(&other.id).copied().unwrap_or_default();
            other.own().plus(hidden).bytes.saturating_add(other.lacking_bytes())
        };
        self.living()
            .iter()
            .filter(|other| self.line_of(other).contains(&dataset.id))
            .fold(0, |sum, other| sum.saturating_add(own(other)))
    }

    /// Gathers the figures that a listing needs of all datasets: found in one look at each, however
    /// many are listed.
    pub(crate) fn usage(&self) -> Usage {
        let hidden = self.hidden_space();
        let mut used: BTreeMap<DatasetId, Space> = BTreeMap::new();
        let mut lacking: BTreeMap<DatasetId, u64> = BTreeMap::new();
        for of in self.living() {
            let hidden = hidden.get(&of.id).copied().unwrap_or_default();
            let (own, lacks) = (of.own().plus(hidden), of.lacking_bytes());
            for id in self.line_of(&of) {
                let sum = used.entry(id).or_default();
                *sum = sum.plus(own);
                let sum = lacking.entry(id).or_default();
                *sum = sum.saturating_add(lacks);
            }
        }
        let reserves = |of: &Arc<Dataset>| (of.reserved_bytes() > 0).then_some(of.id);
        let reserving = self.keeping().iter().filter_map(reserves).collect();
        let writable = self.pool.writable_bytes();
        Usage { used, lacking, reserving, kept: BTreeMap::new(), writable }
    }

    /// As [`Datasets::available_bytes`], by such a look.
    pub(crate) fn available_in(&self, dataset: &Dataset, usage: &mut Usage) -> u64 {
        let line = self.line_of(dataset);
        let Usage { used, lacking, reserving, kept, writable } = usage;
        // What others keep depends on reservations of its own line alone, and on its own.
        let own: BTreeSet<DatasetId> = line.intersection(reserving).copied().collect();
        let of_it = Some(dataset).filter(|of| of.refreserved_bytes() > 0);
        let kept = kept.entry((own, of_it.map(|of| of.id)));
        let kept = kept.or_insert_with_key(|(own, _)| {
            let room = self.room(own, None, of_it);
            // Within its own it may write into what is kept for trees, and no further.
            let beyond = (*writable).saturating_sub(room.spoken_for());
            let within = of_it.map_or(0, Dataset::lacking_bytes);
            let within = within.min((*writable).saturating_sub(room.of_data()));
            (*writable).saturating_sub(beyond.max(within))
        });
        let quotas = line.iter().filter_map(|id| Some((id, self.by_id(*id)?)));
        let quotas = quotas.filter(|(_, of)| !of.is_destroyed());
        // What is kept for it is its own to write.
        let own_lack = dataset.lacking_bytes();
        let left = quotas.filter_map(|(id, of)| {
            let quota = of.properties().quota_bytes?;
            let lacks = lacking.get(id).copied().unwrap_or(0).saturating_sub(own_lack);
            let used = used.get(id).map_or(0, |used| used.bytes).saturating_add(lacks);
            Some(quota.saturating_sub(used))
        });
        left.fold(writable.saturating_sub(*kept), u64::min)
    }

    /// Space of hidden lines and old heads, by the dataset that they count to.
    pub(crate) fn hidden_space(&self) -> BTreeMap<DatasetId, Space> {
        let mut space = self.left_space();
        for (line, counts_to) in self.hidden_lines() {
            if let Some(counts_to) = counts_to {
                let sum = space.entry(counts_to).or_default();
                *sum = sum.plus(line.own());
            }
        }
        space
    }

    /// Space of old heads that later snapshots may still show, by the dataset whose head each was.
    fn left_space(&self) -> BTreeMap<DatasetId, Space> {
        let mut space: BTreeMap<DatasetId, Space> = BTreeMap::new();
        if left_out(Rule::LeftHeadsCount) {
            return space;
        }
        for of in self.state.lock().datasets.values() {
            let Some(LeftHeadRecord { dataset, counts, .. }) = *of.left.lock() else { continue };
            let sum = space.entry(dataset).or_default();
            *sum = sum.plus(counts.unwrap_or_default());
        }
        space
    }

    /// Bytes that destroyed datasets still take, and that count nowhere else: they become free in
    /// the background.
    pub fn freeing_bytes(&self) -> u64 {
        let state = self.state.lock();
        let counts_elsewhere = |of: &Dataset| {
            let left = *of.left.lock();
            let of = left.and_then(|of| state.datasets.get(&of.dataset));
            of.is_some_and(|of| !of.is_destroyed())
        };
        let is_freed =
            |of: &&Arc<Dataset>| of.is_destroyed() && !of.is_hidden_line() && !counts_elsewhere(of);
        let destroyed = state.datasets.values().filter(is_freed);
        destroyed.fold(0, |sum, dataset| sum.saturating_add(dataset.own_bytes()))
    }

    /// Bytes that can be written to a dataset: the pool's free space less what others have
    /// reserved, within its own quota and those above it.
    pub fn available_bytes(&self, dataset: &Dataset) -> u64 {
        self.available_in(dataset, &mut self.usage())
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

    /// Commits while something lacks room and commits may make some.
    pub(crate) async fn commit_while(&self, lacks: impl Fn() -> bool) -> Result<(), PoolError> {
        for _ in 0..COMMITS_MAX {
            let waits = |of: &Arc<Dataset>| of.is_uncommitted() || of.is_being_freed();
            if !lacks() || !self.living().iter().any(waits) {
                break;
            }
            self.pool.sync().await?;
        }
        Ok(())
    }
}

/// See [`Datasets::usage`].
#[derive(Debug)]
pub(crate) struct Usage {
    /// By each dataset and all below it, with what only snapshots show.
    pub used: BTreeMap<DatasetId, Space>,
    /// Bytes that `refreservation` keeps free for each dataset and all below it.
    pub lacking: BTreeMap<DatasetId, u64>,
    /// Datasets with a reservation.
    reserving: BTreeSet<DatasetId>,
    /// Bytes that are kept from a dataset, by reservations of its line, and by itself if it has a
    /// `refreservation`.
    kept: BTreeMap<(BTreeSet<DatasetId>, Option<DatasetId>), u64>,
    writable: u64,
}

fn take(dataset: &Arc<Dataset>, bytes: u64, reserved: bool) -> Promise {
    dataset.pending.fetch_add(bytes, Ordering::SeqCst);
    Promise { dataset: dataset.clone(), bytes, reserved }
}

/// Commits before a refusal: a free takes effect in its own txg and is held back for two more, and
/// a large file is freed piece by piece.
const COMMITS_MAX: usize = 4;
/// Commits before a refusal of a write within a `refreservation`: others of its dataset may come
/// first, a few times.
const COMMITS_FOR_ITS_OWN: usize = 32;
