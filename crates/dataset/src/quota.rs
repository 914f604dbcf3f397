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
use crate::error::DatasetError;
use crate::property::Property;
use crate::tree::children_first;

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
        self.ask(dataset, || self.promise_now(dataset, bytes)).await
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
        let room = self.room(&above, None);
        let mut covered = false;
        for other in self.living().iter().filter(|other| above.contains(&other.id)) {
            let taken = room.taken.get(&other.id).copied().unwrap_or(0).saturating_add(bytes);
            if taken > other.properties().quota_bytes.unwrap_or(u64::MAX) {
                return Err(Refused::Quota);
            }
            covered |= taken <= other.properties().reservation_bytes;
        }
        let fits = room.spoken_for().saturating_add(bytes) <= self.pool.writable_bytes();
        if room.kept > 0 && !fits {
            return Err(Refused::Reserved);
        }
        Ok(take(dataset, bytes, covered && fits))
    }

    /// What datasets take and what their reservations keep, without those in `line`; as if a
    /// reservation already had the `wanted` value.
    pub(crate) fn room(&self, line: &BTreeSet<DatasetId>, wanted: Option<Wanted>) -> Room {
        let mut room = Room::default();
        // Room that a child keeps counts within the room that its parent keeps.
        let mut below: BTreeMap<DatasetId, u64> = BTreeMap::new();
        if let Some(Wanted::Below(parent, bytes)) = wanted {
            below.insert(parent, bytes);
        }
        room.taken.extend(self.hidden_space().into_iter().map(|(id, of)| (id, of.bytes)));
        let mut done = BTreeSet::new();
        for dataset in children_first(self.keeping()) {
            done.insert(dataset.id);
            let promised = dataset.promised_bytes();
            room.promised = room.promised.saturating_add(promised);
            let taken = room.taken.entry(dataset.id).or_default();
            *taken = taken.saturating_add(dataset.own_bytes()).saturating_add(promised);
            let taken = *taken;
            let mut kept = below.remove(&dataset.id).unwrap_or(0);
            if !line.contains(&dataset.id) {
                let reserved = match wanted {
                    Some(Wanted::Of(id, bytes, _)) if id == dataset.id => bytes,
                    _ => dataset.reserved_bytes(),
                };
                kept = kept.max(reserved.saturating_sub(taken));
            }
            let parent = dataset.record.lock().parent;
            // A hostile namespace may have a dataset below itself.
            if done.contains(&parent) || parent.0 == 0 || dataset.is_destroyed() {
                room.kept = room.kept.saturating_add(kept);
                continue;
            }
            let above = room.taken.entry(parent).or_default();
            *above = above.saturating_add(taken);
            let above = below.entry(parent).or_default();
            *above = above.saturating_add(kept);
        }
        let orphaned = below.into_values();
        room.kept = orphaned.fold(room.kept, u64::saturating_add);
        if left_out(Rule::ReservationsAreKept) {
            room.kept = 0;
        }
        room
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

    /// Bytes that a dataset and its children take, with what only snapshots show.
    pub fn used_bytes(&self, dataset: &Dataset) -> u64 {
        let hidden = self.hidden_space();
        let own = |other: &Dataset| {
            let hidden = hidden.get(&other.id).copied().unwrap_or_default();
            other.own().plus(hidden).bytes
        };
        self.living()
            .iter()
            .filter(|other| self.line_of(other).contains(&dataset.id))
            .fold(0, |sum, other| sum.saturating_add(own(other)))
    }

    /// What a listing needs of all datasets: found in one look at each, however many are listed.
    pub(crate) fn usage(&self) -> Usage {
        let hidden = self.hidden_space();
        let mut used: BTreeMap<DatasetId, Space> = BTreeMap::new();
        for of in self.living() {
            let hidden = hidden.get(&of.id).copied().unwrap_or_default();
            let own = of.own().plus(hidden);
            for id in self.line_of(&of) {
                let sum = used.entry(id).or_default();
                *sum = sum.plus(own);
            }
        }
        let reserves = |of: &Arc<Dataset>| (of.reserved_bytes() > 0).then_some(of.id);
        let reserving = self.keeping().iter().filter_map(reserves).collect();
        Usage { used, reserving, kept: BTreeMap::new(), writable: self.pool.writable_bytes() }
    }

    /// As [`Datasets::available_bytes`], by such a look.
    pub(crate) fn available_in(&self, dataset: &Dataset, usage: &mut Usage) -> u64 {
        let line = self.line_of(dataset);
        let Usage { used, reserving, kept, writable } = usage;
        // What others keep depends on reservations of its own line alone.
        let own: BTreeSet<DatasetId> = line.intersection(reserving).copied().collect();
        let kept = kept.entry(own).or_insert_with_key(|own| self.room(own, None).kept);
        let quotas = line.iter().filter_map(|id| Some((id, self.by_id(*id)?)));
        let quotas = quotas.filter(|(_, of)| !of.is_destroyed());
        let left = quotas.filter_map(|(id, of)| {
            let quota = of.properties().quota_bytes?;
            Some(quota.saturating_sub(used.get(id).map_or(0, |used| used.bytes)))
        });
        left.fold(writable.saturating_sub(*kept), u64::min)
    }

    /// Space of hidden lines and old heads, by the dataset that they count to.
    fn hidden_space(&self) -> BTreeMap<DatasetId, Space> {
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

    /// Commits to make room for a reservation that has too little.
    ///
    /// # Errors
    /// Errors of the pool.
    pub(crate) async fn make_room(&self, wanted: Wanted) -> Result<(), PoolError> {
        self.commit_while(|| self.lacking_bytes(wanted) > 0).await
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

    /// Fails if there is too little free space for a reservation. If it succeeds, and the
    /// reservation comes into force before the lock of promises is released, the space stays free.
    pub(crate) fn check_reservation(&self, wanted: Wanted) -> Result<(), DatasetError> {
        // From here on every promise takes reservations into account.
        self.limited.store(true, Ordering::SeqCst);
        let lacking = self.lacking_bytes(wanted);
        if lacking == 0 {
            return Ok(());
        }
        self.refresh_properties();
        Err(DatasetError::BadProperty {
            property: Property::Reservation.name().into(),
            why: format!("{lacking} of {} bytes cannot be kept free", wanted.bytes()),
        })
    }

    /// Bytes that a reservation lacks.
    pub(crate) fn lacking_bytes(&self, wanted: Wanted) -> u64 {
        let (id, held) = match wanted {
            Wanted::Of(id, ..) => (id, self.by_id(id).map_or(0, |of| of.reserved_bytes())),
            Wanted::Below(id, _) => (id, 0),
        };
        // A change that takes no space from others always succeeds.
        if wanted.bytes() <= held {
            return 0;
        }
        let room = self.room(&BTreeSet::new(), Some(wanted));
        let lacking = room.spoken_for().saturating_sub(self.pool.writable_bytes());
        let within = self.by_id(id).map_or(u64::MAX, |of| self.within_quotas(&of, wanted));
        lacking.max(wanted.bytes().saturating_sub(within))
    }

    /// The most that quotas allow a dataset.
    fn within_quotas(&self, dataset: &Dataset, wanted: Wanted) -> u64 {
        let above = self.line_of(dataset);
        let own = match wanted {
            Wanted::Of(..) => self.used_bytes(dataset),
            Wanted::Below(..) => 0,
        };
        let left = self.living().into_iter().filter(|of| above.contains(&of.id)).map(|of| {
            let quota = match wanted {
                Wanted::Of(id, _, quota) if id == of.id => quota?,
                _ => of.properties().quota_bytes?,
            };
            Some(quota.saturating_sub(self.used_bytes(&of).saturating_sub(own)))
        });
        left.flatten().min().unwrap_or(u64::MAX)
    }
}

/// See [`Datasets::usage`].
#[derive(Debug)]
pub(crate) struct Usage {
    /// By each dataset and all below it, with what only snapshots show.
    pub used: BTreeMap<DatasetId, Space>,
    /// Datasets with a reservation.
    reserving: BTreeSet<DatasetId>,
    /// What reservations keep, by those of the line that asks.
    kept: BTreeMap<BTreeSet<DatasetId>, u64>,
    writable: u64,
}

/// A requested reservation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// For this dataset, instead of its present one, with this quota of its own.
    Of(DatasetId, u64, Option<u64>),
    /// For a new one below this.
    Below(DatasetId, u64),
}

impl Wanted {
    fn bytes(self) -> u64 {
        match self {
            Wanted::Of(_, bytes, _) | Wanted::Below(_, bytes) => bytes,
        }
    }
}

/// See [`Datasets::room`].
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// By each dataset and all below it, with what is promised.
    pub taken: BTreeMap<DatasetId, u64>,
    /// Promised to writes that are not on disk.
    promised: u64,
    /// What reservations lack.
    kept: u64,
}

impl Room {
    /// Bytes of free space that are promised or kept.
    pub fn spoken_for(&self) -> u64 {
        self.promised.saturating_add(self.kept)
    }
}

fn take(dataset: &Arc<Dataset>, bytes: u64, reserved: bool) -> Promise {
    dataset.pending.fetch_add(bytes, Ordering::SeqCst);
    Promise { dataset: dataset.clone(), bytes, reserved }
}

/// Commits before a refusal: a free takes effect in its own txg and is held back for two more, and
/// a large file is freed piece by piece.
const COMMITS_MAX: usize = 4;
