//! `refreservation`: room for a dataset to write over all that it refers to, whatever snapshots
//! hold.
//!
//! What nobody else shows makes room for what is written over it. For the rest, up to the
//! property's size, the dataset lacks room, and that much is kept free for it. So taking a snapshot
//! asks for room: after it, nothing of the head makes room for anything.
//!
//! Trees do not count in a dataset's sums, but writing over a file makes them: many small extents
//! in the place of few large ones, beside those that a snapshot shows. So a share of the size is
//! kept for trees too, against all writes that no `refreservation` is for.
//!
//! Invariants:
//! - What datasets lack, plus promises to writes, fits into free space when a `refreservation` is
//!   set and when a snapshot is taken. Writes of others keep out of it.
//! - From the question of a snapshot until it is on disk the dataset lacks what it will lack then,
//!   and its own writes keep out of that too.
//! - A snapshot of several datasets asks for all of them at once, and is taken of all or none.
//! - A rollback asks for nothing: as much as the dataset lacks then, the old head gives back.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_meter::size;
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::snapshots::Act;

/// A snapshot is about to be taken of these datasets, each with the bytes that it may show. Until
/// this is dropped, they lack what they will lack then.
#[derive(Debug, Default)]
pub(crate) struct Asked(Vec<(Arc<Dataset>, u64)>);

/// A snapshot of all of a dataset.
const ALL_BYTES: u64 = 1 << 56;

impl Asked {
    fn of(all: Vec<(Arc<Dataset>, u64)>) -> Asked {
        for (dataset, bytes) in &all {
            dataset.asked_bytes.fetch_add(*bytes, Ordering::SeqCst);
        }
        Asked(all)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        for (dataset, bytes) in &self.0 {
            dataset.asked_bytes.fetch_sub(*bytes, Ordering::SeqCst);
        }
    }
}

/// The share of a `refreservation` that is kept for trees: an extent of one page takes 36 bytes in
/// a leaf that may be half full and has two copies, and a list of dead blocks 16 bytes for it.
pub(crate) const TREES_SHARE: u64 = 16;

impl Dataset {
    /// Bytes of its `refreservation`.
    pub(crate) fn refreserved_bytes(&self) -> u64 {
        let kept = self.kept_refreserved_bytes.load(Ordering::SeqCst);
        self.properties().refreservation_bytes.max(kept)
    }

    /// Own bytes of its head that no snapshot shows, at least.
    fn unshown_bytes(&self) -> u64 {
        if self.origin.lock().is_some() && self.inherited.lock().is_none() {
            return 0;
        }
        let covered = self.covered_bytes.load(Ordering::SeqCst);
        let covered = covered.saturating_add(self.asked_bytes.load(Ordering::SeqCst));
        let covered = if left_out(Rule::SnapshotsLeaveNoRoom) { 0 } else { covered };
        self.head_space().bytes.saturating_sub(covered)
    }

    /// Whether a snapshot of it is about to be taken.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked_bytes.load(Ordering::SeqCst) > 0
    }

    /// Bytes that must stay free for a `refreservation` of this size.
    pub(crate) fn lacking_for(&self, reserved_bytes: u64) -> u64 {
        if reserved_bytes == 0 {
            return 0;
        }
        // What is written before a snapshot is shown by it.
        let promised = if self.is_asked() { 0 } else { self.promised_bytes() };
        reserved_bytes.saturating_sub(self.unshown_bytes().saturating_add(promised))
    }

    /// Bytes that are kept free for its `refreservation`.
    pub fn lacking_bytes(&self) -> u64 {
        self.lacking_for(self.refreserved_bytes())
    }

    /// Whether writes are under way.
    pub fn has_promises(&self) -> bool {
        self.promised_bytes() > 0
    }

    /// Whether a write is one that its `refreservation` is for.
    pub(crate) fn is_refreserved(&self, bytes: u64) -> bool {
        self.lacking_bytes() >= bytes && self.refreserved_bytes() > 0
    }

    /// Checks whether a write will be one that its `refreservation` is for, once all writes that
    /// are under way are on disk.
    pub(crate) fn will_be_refreserved(&self, bytes: u64) -> bool {
        let reserved = self.refreserved_bytes();
        reserved > 0 && reserved.saturating_sub(self.unshown_bytes()) >= bytes
    }
}

impl Datasets {
    /// Asks for the room that snapshots of these datasets take of others, after commits that may
    /// make some.
    ///
    /// # Errors
    /// There is too little, or a quota is in the way. Then nothing is asked for.
    pub(crate) async fn ask_for_snapshots(
        &self,
        of: impl IntoIterator<Item = (Arc<Dataset>, u64)>,
    ) -> Result<Asked, DatasetError> {
        let reserves = |(of, _): &(Arc<Dataset>, u64)| of.refreserved_bytes() > 0;
        let of: Vec<_> = of.into_iter().filter(reserves).collect();
        if of.is_empty() || left_out(Rule::SnapshotsAskForRoom) {
            return Ok(Asked::default());
        }
        let is_refused = || {
            let _one = self.promises.lock();
            self.ask_now(&of).is_err()
        };
        self.commit_while(is_refused).await?;
        let _one = self.promises.lock();
        self.ask_now(&of)
    }

    /// Asks for room as [`Datasets::ask_for_snapshots`], for acts: as far as they take snapshots of
    /// datasets.
    pub(crate) async fn ask_for_acts(&self, acts: &[Act]) -> Result<Asked, DatasetError> {
        let taken = acts.iter().filter_map(|act| match act {
            Act::Take { dataset, .. } => self.by_id(*dataset),
            _ => None,
        });
        self.ask_for_snapshots(taken.map(|of| (of, ALL_BYTES)).collect::<Vec<_>>()).await
    }

    /// Asks for room as [`Datasets::ask_for_snapshots`], for a snapshot of one dataset.
    pub(crate) async fn ask_for_one(&self, of: &Arc<Dataset>) -> Result<Asked, DatasetError> {
        self.ask_for_snapshots([(of.clone(), ALL_BYTES)]).await
    }

    /// Under the lock of promises.
    fn ask_now(&self, of: &[(Arc<Dataset>, u64)]) -> Result<Asked, DatasetError> {
        let before = self.room(&BTreeSet::new(), None, None);
        let asked = Asked::of(of.to_vec());
        let after = self.room(&BTreeSet::new(), None, None);
        // What takes no space from others needs none for trees. But the room for its data may be
        // gone: a dataset lacks what is known of it at most, and may have written into that.
        let takes_more = after.spoken_for() > before.spoken_for();
        let needed = if takes_more { after.spoken_for() } else { after.of_data() };
        let mut lacking = needed.saturating_sub(self.pool.writable_bytes());
        let mut within = self.pool.name().to_string();
        for (dataset, _) in of {
            let above = self.line_of(dataset).into_iter().filter_map(|id| self.by_id(id));
            for above in above {
                let quota = above.properties().quota_bytes.unwrap_or(u64::MAX);
                let over = after.claimed(above.id).saturating_sub(quota);
                if over > lacking {
                    (lacking, within) = (over, format!("the quota of {}", self.full_name(&above)));
                }
            }
        }
        let Some((first, _)) = of.first().filter(|_| lacking > 0) else { return Ok(asked) };
        Err(DatasetError::NoRoomForSnapshot {
            name: self.full_name(first),
            reserved: size::human(first.refreserved_bytes()),
            lacking_bytes: lacking,
            within,
        })
    }
}
