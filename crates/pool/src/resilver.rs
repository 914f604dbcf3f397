//! Brings an outdated leaf up to date, while the pool is in service.
//!
//! 1. All I/O that the leaf was given before has ended. A **mark** goes into its uberblock ring:
//!    from now on its own uberblocks do not count.
//! 2. The leaf takes every write and flush. It gets no uberblock, has no vote, and stays named. An
//!    error on it ends the work, and it is outdated again.
//! 3. A txg that opened after that is on disk, and its root is walked, in pieces: each over the
//!    newest root of its time. The leaf **kept** everything up to a txg. What was written after
//!    that txg, and before the leaf came, is copied to it, also where the leaf's own copy verifies:
//!    what a failed flush lost still reads well from a cache.
//! 4. Between txgs: its labels, the live txg records, the slots of space bitmaps.
//! 5. Two txgs more, so that the leaf has the older roots of the uberblock too. And the log's head
//!    has passed every batch that began before the leaf came.
//! 6. The leaf counts: an error on it must be named before anything is acknowledged. A flush covers
//!    what began before. Then an uberblock, on the leaf too, drops its name.
//!
//! An export waits for whatever this writes, as for a repair: each step holds [`Pool::reading`],
//! and looks afterwards whether the pool has ended.
//!
//! Births prune the walk: a leaf that was away briefly gets only what it missed.

mod copier;
pub(crate) mod progress;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::buf::pages_of;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{DiskError, SECTOR_BYTES};
use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::resilver_mark::ResilverMark;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::{Guid, Place, Txg};
use aquifer_sync::atomic::Ordering;
use aquifer_vdev::label_io::{self, DiskLabels, LabelError};
use aquifer_vdev::{Leaf, LeafState, Vdev};
use futures_util::future::select;

use crate::error::PoolError;
use crate::examine::in_place::SLOTS_AT_ONCE;
use crate::pool::{BoxFuture, Pool};
use copier::Copier;
use progress::Progress;

/// Why a leaf is not brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum ResilverError {
    /// Its labels cannot be used.
    #[error("{0}")]
    Label(#[from] LabelError),
    /// Its disk gave an error.
    #[error("{0}")]
    Disk(#[from] DiskError),
    /// The disk is another leaf's, or another pool's.
    #[error("it is another disk")]
    Foreign,
    /// It has not answered I/O that it was given before.
    #[error("it has not answered all that it was given before")]
    Unanswered,
    /// It failed on the way, or was taken out of use.
    #[error("it failed while it was resilvered")]
    Failed,
    /// The pool cannot go on.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

/// When a leaf is tried again.
struct Tries {
    next: Duration,
    rest: Duration,
    /// It came back after too many errors. If it fails again before this, its rest goes on to grow.
    back_until: Option<Duration>,
}

/// How long a leaf that had too many errors must do without, to count as any other.
const PROBATION: Duration = Duration::from_secs(3600);

/// The first and the longest rest between two tries.
const REST_MIN: Duration = Duration::from_secs(10);
const REST_MAX: Duration = Duration::from_secs(3600);

/// How often it is looked whether a leaf's earlier I/O has ended.
const QUIET_POLL_MS: u64 = 10;
/// How long that is waited for; then it is another leaf's turn.
const QUIET_WAIT: Duration = Duration::from_secs(1);

impl Pool {
    /// Brings outdated leaves up to date, one after the other, as long as the pool is in service:
    /// those that the import found at once, those that failed later after a rest. A leaf that fails
    /// again is tried at growing intervals. A leaf that was taken offline is left alone.
    pub(crate) async fn resilver_outdated(self: Arc<Pool>) {
        let mut tries: HashMap<Guid, Tries> = HashMap::new();
        let mut rest = Duration::ZERO;
        loop {
            let changed = self.acts.disks_changed.notified();
            for (vdev, leaf) in self.outdated() {
                let now = self.world.now();
                let first = Tries { next: now + rest, rest, back_until: None };
                let own = tries.entry(leaf.guid).or_insert(first);
                if own.back_until.take().is_some() {
                    own.next = now + own.rest;
                }
                if own.next > now && !leaf.was_asked_back() {
                    continue;
                }
                let had_too_many_errors = leaf.is_faulted();
                let done = self.resilver_and_tell(&vdev, &leaf).await;
                if done {
                    self.acts.stands_changed.notify_one();
                }
                let grows = !done || had_too_many_errors;
                own.rest = if grows { (own.rest * 2).clamp(REST_MIN, REST_MAX) } else { REST_MIN };
                let now = self.world.now();
                own.next = now + own.rest;
                own.back_until = (done && had_too_many_errors).then_some(now + PROBATION);
                // If it fails while others are resilvered, its rest begins then.
                if !grows {
                    tries.remove(&leaf.guid);
                }
            }
            rest = REST_MIN;
            let waiting = self.outdated();
            let now = self.world.now();
            let waits = |guid| waiting.iter().any(|(_, leaf)| leaf.guid == guid);
            tries.retain(|guid, tries| match tries.back_until {
                Some(until) => until > now,
                None => waits(*guid),
            });
            if self.txgs.failure().is_some() {
                return;
            }
            // One that became outdated meanwhile has no time yet: it is looked at once more.
            let of_waiting = |guid| tries.get(guid).filter(|tries| tries.back_until.is_none());
            let times = waiting.iter().map(|(_, leaf)| of_waiting(&leaf.guid));
            let times: Vec<Option<&Tries>> = times.collect();
            let is_new = times.iter().any(Option::is_none);
            let next = times.iter().flatten().map(|tries| tries.next).min();
            match next {
                _ if is_new => {}
                None => changed.await,
                Some(next) => {
                    let until = next.saturating_sub(self.world.now());
                    let _ = select(pin!(changed), self.world.sleep(until)).await;
                }
            }
        }
    }

    /// Outdated leaves that could be resilvered.
    fn outdated(&self) -> Vec<(Arc<Vdev>, Arc<Leaf>)> {
        let tree = self.tree();
        let leaves = tree.data().flat_map(|vdev| vdev.leaves.iter().map(move |leaf| (vdev, leaf)));
        let waits = |leaf: &Leaf| leaf.state() == LeafState::Outdated && leaf.may_come_back();
        leaves.filter(|(_, leaf)| waits(leaf)).map(|(v, l)| (v.clone(), l.clone())).collect()
    }

    /// Whether it is up to date now.
    async fn resilver_and_tell(&self, vdev: &Arc<Vdev>, leaf: &Arc<Leaf>) -> bool {
        let _turn = self.acts.background.lock().await;
        let (pool, path) = (self.name(), &leaf.path);
        let progress = Progress::new(leaf.guid, path.clone(), self.world.now());
        *self.meters.resilver.lock() = Some(progress.clone());
        tracing::info!(class = "disk.resilver_begun", pool, leaf = %path, "disk is resilvered");
        let resilvered = self.resilver(vdev, leaf, &progress).await;
        progress.end(self.world.now(), resilvered.is_ok());
        let copied_bytes = progress.copied_bytes.load(Ordering::Relaxed);
        let unread_blocks = progress.unread_blocks.load(Ordering::Relaxed);
        if resilvered.is_err() && self.ended_by_order(leaf) {
            // Nothing went wrong, and nothing is tried again.
            *self.meters.resilver.lock() = None;
            tracing::info!(
                class = "disk.resilver_stopped", pool, leaf = %path, copied_bytes,
                "the resilver was ended by order: what the disk misses is copied another time"
            );
            return false;
        }
        match &resilvered {
            Ok(()) => tracing::info!(
                class = "disk.resilvered", pool, leaf = %path, copied_bytes, unread_blocks,
                "disk is up to date again"
            ),
            Err(error) => tracing::error!(
                class = "disk.resilver_failed", pool, leaf = %path, %error, copied_bytes,
                "disk is not brought up to date: it stays outdated"
            ),
        }
        resilvered.is_ok()
    }

    /// Whether a leaf was taken out of use, or the pool out of service, by an act.
    fn ended_by_order(&self, leaf: &Arc<Leaf>) -> bool {
        let has_left = self.tree().leaf(leaf.guid).is_none_or(|own| !Arc::ptr_eq(own, leaf));
        let is_exported = matches!(self.txgs.failure(), Some(PoolError::Exported));
        has_left || is_exported || !leaf.may_come_back()
    }

    /// Brings an outdated leaf up to date.
    fn resilver<'a>(
        &'a self,
        vdev: &'a Arc<Vdev>,
        leaf: &'a Arc<Leaf>,
        progress: &'a Arc<Progress>,
    ) -> BoxFuture<'a, Result<(), ResilverError>> {
        Box::pin(async move {
            assert_eq!(vdev.class, VdevClass::Data, "the log leaves a vdev instead");
            // What is dirty would go to the leaf twice. And what was freed is free at the walk, and
            // may be written over. (They take time, in which late writes land.)
            if !left_out(Rule::QuietBeforeResilver) {
                for _ in 0..aquifer_ondisk::layout::REWIND_TXGS {
                    self.sync().await?;
                }
            }
            // An act may take it out of use meanwhile, or out of the pool: then its disk is another
            // leaf's, or another pool's, and nothing more is written to it.
            let act = self.acts.turn.lock().await;
            let has_left = self.tree().leaf(leaf.guid).is_none_or(|own| !Arc::ptr_eq(own, leaf));
            if (has_left || !leaf.may_come_back()) && !left_out(Rule::LeftLeavesAreLeft) {
                return Err(ResilverError::Failed);
            }
            let act = Some(act).filter(|_| !left_out(Rule::LeftLeavesAreLeft));
            let mark = self.mark(leaf).await?;
            if !leaf.begin_resilver() {
                return Err(ResilverError::Failed);
            }
            drop(act);
            let resilvered = self.resilver_marked(vdev, leaf, &mark, progress).await;
            leaf.give_up_resilver();
            resilvered
        })
    }

    async fn resilver_marked(
        &self,
        vdev: &Arc<Vdev>,
        leaf: &Arc<Leaf>,
        mark: &ResilverMark,
        progress: &Arc<Progress>,
    ) -> Result<(), ResilverError> {
        // What enters later txgs and batches reaches the leaf when it is written.
        let (came, batches) = (self.open_txg(), self.log.next_sequence());
        let kept = if left_out(Rule::MissedFromItsOwn) { self.committed_txg() } else { mark.kept };
        while self.committed_txg() <= came && !left_out(Rule::WalkAfterItCame) {
            self.sync().await?;
        }
        self.copy_missed(vdev, leaf, (kept, came), progress).await?;
        let _act = self.acts.turn.lock().await;
        if copier::is_over(self, leaf) {
            return Err(ResilverError::Failed);
        }
        self.copy_in_place(vdev, leaf).await?;
        self.let_roots_pass(leaf, batches).await?;
        self.take_into_use(vdev, leaf, mark).await
    }

    /// Waits until a leaf has answered all I/O that it was given, at most so long. Whether it has.
    pub(crate) async fn is_quiet_within(&self, leaf: &Leaf, longest: Duration) -> bool {
        let begun = self.world.now();
        while !leaf.is_quiet() {
            if self.world.now().saturating_sub(begun) > longest {
                return false;
            }
            self.world.sleep(Duration::from_millis(QUIET_POLL_MS)).await;
        }
        true
    }

    /// Step 1.
    async fn mark(&self, leaf: &Arc<Leaf>) -> Result<ResilverMark, ResilverError> {
        let quiet = self.is_quiet_within(leaf, QUIET_WAIT).await;
        if !quiet && !left_out(Rule::QuietBeforeResilver) {
            return Err(ResilverError::Unanswered);
        }
        leaf.answers_again();
        let labels = label_io::read_labels_of(leaf).await?;
        if !labels.are_of(self.guid(), leaf.guid) {
            return Err(ResilverError::Foreign);
        }
        let _writing = self.reading();
        self.txgs.check()?;
        let own = labels.uberblocks.first().map_or(0, |uberblock| uberblock.sequence);
        let own = own.max(labels.mark.map_or(0, |mark| mark.sequence));
        let mark = ResilverMark {
            pool_guid: self.guid(),
            leaf_guid: leaf.guid,
            label: 0,
            sequence: own.max(self.uberblock_sequence().await) + 1,
            kept: self.kept_by(&labels, self.outdated_since(leaf.guid).await),
        };
        if !left_out(Rule::MarkFirst) {
            label_io::write_mark(leaf, &mark).await?;
        }
        Ok(mark)
    }

    /// The txg up to which a leaf holds everything that lives. None, if it was in use apart from
    /// this pool: its own uberblock is newer than the last one that it was given here (`since`), or
    /// says that a leaf is outdated which is whole here.
    fn kept_by(&self, labels: &DiskLabels, since: Option<u64>) -> Txg {
        let tree = self.tree();
        let whole = |guid| tree.data().flat_map(|vdev| vdev.online()).any(|leaf| leaf.guid == guid);
        match (labels.mark, labels.uberblocks.first()) {
            (Some(mark), _) => mark.kept,
            (None, Some(newest)) => {
                let went_on = since.is_some_and(|since| newest.sequence > since)
                    && !left_out(Rule::SplitIsRefused);
                let apart = went_on || newest.outdated.iter().any(|outdated| whole(outdated.leaf));
                if apart { Txg(0) } else { newest.txg }
            }
            (None, None) => Txg(0),
        }
    }

    /// Step 3. `kept` and `came`: what was written after the one and up to the other is missing.
    async fn copy_missed(
        &self,
        vdev: &Arc<Vdev>,
        leaf: &Arc<Leaf>,
        (kept, came): (Txg, Txg),
        progress: &Arc<Progress>,
    ) -> Result<(), ResilverError> {
        if kept == Txg(0) {
            let used = self.space.lock().used_per_vdev();
            let sectors = used.get(usize::from(vdev.index)).copied().unwrap_or(0);
            progress.total_bytes.store(sectors * SECTOR_BYTES as u64, Ordering::Relaxed);
        }
        let copier = Copier { pool: self, vdev, leaf, kept, came, progress };
        let whole = (WalkPosition::END, Place::NULL);
        let (mut start, (mut to, mut first)) = (WalkPosition::default(), whole);
        while start < WalkPosition::END {
            let mut piece = copier.piece(to, first);
            // No place is reused before the last copy is on the leaf.
            let reading = self.reading();
            let next = self.trees()?.walk(self.roots(), kept, start, &mut piece).await?;
            let next = next.map_or(to, |next| next.min(to));
            let _reading = (!left_out(Rule::PieceHoldsItsRoot)).then_some(reading);
            match copier.copy(&piece.into_blocks()).await {
                // The same once more, over a newer root: what lies behind that place.
                Some(rest) if !left_out(Rule::PieceGoesOnByPlace) => (to, first) = (next, rest),
                _ => (start, (to, first)) = (next, whole),
            }
            if copier::is_over(self, leaf) {
                return Err(ResilverError::Failed);
            }
        }
        Ok(())
    }

    /// Step 4.
    async fn copy_in_place(&self, vdev: &Arc<Vdev>, leaf: &Arc<Leaf>) -> Result<(), ResilverError> {
        {
            let _turn = self.sync_turn.lock().await;
            let _writing = self.reading();
            self.txgs.check()?;
            if !left_out(Rule::ResilveredHasLabels) {
                label_io::write_config(leaf, &self.tree().config).await?;
            }
            if !left_out(Rule::ResilveredHasRecords) {
                self.copy_records(vdev, leaf).await?;
            }
        }
        if !left_out(Rule::ResilveredHasSlots) {
            self.copy_slots(vdev, leaf).await?;
        }
        Ok(leaf.flush().await?)
    }

    async fn copy_records(&self, vdev: &Arc<Vdev>, leaf: &Arc<Leaf>) -> Result<(), ResilverError> {
        for pointer in self.live_records().await? {
            let Some(pages) = self.read_live(&pointer).await? else { continue };
            for place in pointer.copies().filter(|place| place.vdev() == vdev.index) {
                leaf.write(place.sector(), pages.clone()).await?;
            }
        }
        Ok(())
    }

    /// A few at a time: what a txg rewrites in between reaches the leaf by itself.
    async fn copy_slots(&self, vdev: &Arc<Vdev>, leaf: &Arc<Leaf>) -> Result<(), ResilverError> {
        let mut ids = self.metaslabs();
        ids.retain(|id| id.vdev == vdev.index);
        for ids in ids.chunks(SLOTS_AT_ONCE) {
            let _turn = self.sync_turn.lock().await;
            let _writing = self.reading();
            self.txgs.check()?;
            for id in ids {
                let Some((entry, places)) = self.space.lock().slot(*id) else { continue };
                // One that cannot be read is closed to allocation already.
                let Ok(bytes) = self.read_slot(&entry, &places).await else { continue };
                for place in places {
                    leaf.write(place.sector(), pages_of(&bytes)).await?;
                }
            }
        }
        Ok(())
    }

    /// Step 5.
    async fn let_roots_pass(&self, leaf: &Arc<Leaf>, batches: u64) -> Result<(), ResilverError> {
        if !left_out(Rule::ResilveredHasOlderRoots) {
            for _ in 0..aquifer_ondisk::layout::REWIND_TXGS {
                self.sync().await?;
            }
        }
        while self.log.head_sequence() < batches {
            if leaf.state() != LeafState::Resilvering {
                return Err(ResilverError::Failed);
            }
            self.sync().await?;
        }
        Ok(())
    }

    /// Step 6.
    async fn take_into_use(
        &self,
        vdev: &Vdev,
        leaf: &Arc<Leaf>,
        mark: &ResilverMark,
    ) -> Result<(), ResilverError> {
        let _writing = self.reading();
        self.txgs.check()?;
        if !leaf.end_resilver() {
            return Err(ResilverError::Failed);
        }
        // An error fails the leaf, and the uberblock below names it once more. So it does if the
        // other sides are flushed meanwhile, and this one is not.
        let _ = vdev.flush().await;
        self.write_uberblock(|uberblock| {
            // It may have failed at another uberblock since it counts, and was named by that one.
            let whole = leaf.is_online();
            uberblock.outdated.retain(|outdated| outdated.leaf != leaf.guid || !whole);
            uberblock.sequence = uberblock.sequence.max(mark.sequence);
        })
        .await?;
        leaf.settle();
        if leaf.is_online() { Ok(()) } else { Err(ResilverError::Failed) }
    }
}
