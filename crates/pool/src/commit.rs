//! The uberblock: one writer, one atomic step, and the marking of leaves that missed it.
//!
//! An uberblock goes to every leaf that it does not name outdated, and counts once each of them has
//! flushed it. If a leaf fails on the way, a further uberblock names it before this returns. So no
//! acknowledgement relies on a side that could later come up alone as whole.

use std::collections::BTreeSet;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::layout::LEAVES_MAX;
use aquifer_ondisk::txg_record::RecordPointer;
use aquifer_ondisk::uberblock::{Host, Outdated, ROOTS, Uberblock};
use aquifer_ondisk::{Guid, Txg};
use aquifer_sync::atomic::Ordering;
use aquifer_sync::{AsyncMutex, Mutex};
use aquifer_vdev::{Leaf, LeafState, Vdev, label_io};
use futures_util::future::join_all;

use crate::error::{PoolError, State};
use crate::pool::Pool;

/// The newest uberblock, as last written.
pub type UberblockState = Uberblock;

/// Writes uberblocks, one at a time.
#[derive(Debug)]
pub(crate) struct Committer {
    current: AsyncMutex<Current>,
    /// See [`Known`].
    known: Mutex<Known>,
    /// The machine that writes them.
    pub host: Option<Host>,
}

/// Knowledge of the uberblocks on disk, to be had without waiting for one that is being written.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// The sequence of the last one that counts: each leaf that it does not name has it.
    pub sequence: u64,
    /// The leaves that it names outdated, and those that one after it may name.
    pub named: BTreeSet<Guid>,
}

impl Known {
    fn of(uberblock: &Uberblock) -> Known {
        let mut known = Known { sequence: uberblock.sequence, named: BTreeSet::new() };
        known.may_name(uberblock);
        known
    }

    fn may_name(&mut self, uberblock: &Uberblock) {
        self.named.extend(uberblock.outdated.iter().map(|outdated| outdated.leaf));
    }
}

/// The last uberblock, and the state of watching others'.
#[derive(Debug)]
pub(crate) struct Current {
    pub uberblock: Uberblock,
    /// The newest uberblock that each leaf has which the next one will not name.
    counted: u64,
    /// When this import wrote it.
    written: Option<Duration>,
    /// When the ring was last looked at.
    pub looked: Option<Duration>,
    /// Another host writes uberblocks now.
    pub taken_over: Option<PoolError>,
}

impl Committer {
    /// `counted`: the newest uberblock that each leaf in use has.
    pub fn new(uberblock: Uberblock, counted: u64, host: Option<Host>) -> Self {
        let known = Mutex::new(Known::of(&uberblock));
        let current = Current { uberblock, counted, written: None, looked: None, taken_over: None };
        Committer { current: AsyncMutex::new(current), known, host }
    }

    pub fn known(&self) -> Known {
        self.known.lock().clone()
    }
}

impl Pool {
    /// Writes an uberblock made from the current one by `change`, and returns once it counts.
    pub(crate) async fn write_uberblock(
        &self,
        change: impl FnOnce(&mut Uberblock) + Send,
    ) -> Result<(), PoolError> {
        let mut current = self.committer.current.lock().await;
        self.write_next(&mut current, change).await
    }

    /// Writes the current uberblock again if the last write was `after` ago or earlier.
    pub(crate) async fn repeat_uberblock(&self, after: Duration) -> Result<(), PoolError> {
        let mut current = self.committer.current.lock().await;
        // After an export the disks belong to others.
        self.txgs.check()?;
        let now = self.world.now();
        if current.written.is_some_and(|written| now.saturating_sub(written) < after) {
            return Ok(());
        }
        self.write_next(&mut current, |_| {}).await
    }

    async fn write_next(
        &self,
        current: &mut Current,
        change: impl FnOnce(&mut Uberblock) + Send,
    ) -> Result<(), PoolError> {
        if self.is_read_only() {
            return Err(PoolError::ReadOnly);
        }
        self.look_for_others(current).await?;
        let mut next = current.uberblock.clone();
        change(&mut next);
        next.host.clone_from(&self.committer.host);
        next.counted = current.counted;
        let mut told: HashSet<Guid> = current.uberblock.outdated.iter().map(|of| of.leaf).collect();
        loop {
            next.sequence += 1;
            if left_out(Rule::UberblockSlot) {
                // Slots chosen in another way: this overwrites the newest valid one.
                next.sequence = current.uberblock.sequence + 64;
            }
            next.wall_ns = self.world.wall_ns();
            next.mark = next.mark.max(self.log.mark());
            let named = self.name_failed(&mut next);
            let is_new = |of: &Outdated| !told.contains(&of.leaf);
            if next.outdated.iter().any(is_new) && !left_out(Rule::NamingPassesOver) {
                // If the leaf comes up alone, it takes the number behind its own for an uberblock
                // that never counted. This one counts.
                next.sequence += 1;
            }
            told.extend(next.outdated.iter().map(|of| of.leaf));
            self.forget_oldest_gone(&mut next);
            // A number is used once, also if this write fails, or its caller gives it up halfway.
            current.uberblock.sequence = next.sequence;
            // Also if this write fails: it may be on a disk nevertheless.
            self.committer.known.lock().may_name(&next);
            self.write_to_leaves(&next).await?;
            // A leaf that failed on the way may not have the uberblock: name it too.
            for leaf in named {
                leaf.set_outdated();
                self.acts.tell_change();
            }
            if self.failed_leaves().is_empty() || left_out(Rule::NameOutdated) {
                *self.committer.known.lock() = Known::of(&next);
                if self.is_on_all_unnamed(&next) {
                    current.counted = next.sequence;
                }
                current.uberblock = next;
                current.written = Some(self.world.now());
                return Ok(());
            }
        }
    }

    async fn write_to_leaves(&self, uberblock: &Uberblock) -> Result<(), PoolError> {
        let tree = self.tree();
        let write = async |leaf: &Arc<Leaf>| {
            // Noted before: it may hold the uberblock also if it gives an error.
            leaf.uberblock_sequence.store(uberblock.sequence, Ordering::Relaxed);
            label_io::write_uberblock(leaf, uberblock).await
        };
        join_all(tree.vdevs.iter().map(|vdev| vdev.on_each_online(&write))).await;
        self.check_vdevs()
    }

    /// Whether each leaf has an uberblock that was just written, or is named by it. The last side
    /// of a lost log vdev may be neither.
    fn is_on_all_unnamed(&self, uberblock: &Uberblock) -> bool {
        let tree = self.tree();
        let mut leaves = tree.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        leaves.all(|leaf| leaf.is_online() || uberblock.names(leaf.guid))
    }

    /// Leaves that failed and that an uberblock may name outdated. The last side of a log vdev is
    /// excluded while the newest root's log lies there. If the disk comes back after a power cut,
    /// it is the one with the acknowledged changes. Until the next root nothing more is
    /// acknowledged.
    fn failed_leaves(&self) -> Vec<Arc<Leaf>> {
        let tree = self.tree();
        let nameable = |vdev: &&Arc<Vdev>| {
            vdev.class != VdevClass::Log
                || vdev.check().is_ok()
                || !self.log.lies_on(vdev.index)
                || left_out(Rule::LastLogSideKeepsItsVote)
        };
        let leaves = tree.vdevs.iter().filter(nameable).flat_map(|vdev| &vdev.leaves);
        leaves.filter(|leaf| leaf.state() == LeafState::Failed).cloned().collect()
    }

    /// Puts failed leaves into an uberblock's list; returns them.
    fn name_failed(&self, uberblock: &mut Uberblock) -> Vec<Arc<Leaf>> {
        if left_out(Rule::NameOutdated) {
            return Vec::new();
        }
        let failed = self.failed_leaves();
        for leaf in &failed {
            let since = leaf.uberblock_sequence.load(Ordering::Relaxed);
            match uberblock.outdated.iter_mut().find(|named| named.leaf == leaf.guid) {
                // It counted again, and failed before its name was dropped.
                Some(named) => named.since = named.since.max(since),
                None => uberblock.outdated.push(Outdated { leaf: leaf.guid, since }),
            }
        }
        failed
    }

    /// Disks that left the pool, and could not be wiped, stay named for as long as there is room.
    fn forget_oldest_gone(&self, uberblock: &mut Uberblock) {
        let tree = self.tree();
        while uberblock.outdated.len() > LEAVES_MAX {
            let is_gone = |named: &Outdated| tree.leaf(named.leaf).is_none();
            let Some(at) = uberblock.outdated.iter().position(is_gone) else { return };
            uberblock.outdated.remove(at);
        }
    }

    /// The last uberblock that a leaf was given which the newest one names outdated.
    pub(crate) async fn outdated_since(&self, leaf: Guid) -> Option<u64> {
        let current = self.committer.current.lock().await;
        let mut named = current.uberblock.outdated.iter();
        named.find(|outdated| outdated.leaf == leaf).map(|outdated| outdated.since)
    }

    /// The state that the newest uberblock makes real.
    pub(crate) async fn newest_state(&self) -> State {
        State::of(&self.committer.current.lock().await.uberblock)
    }

    /// The sequence of the newest uberblock.
    pub(crate) async fn uberblock_sequence(&self) -> u64 {
        self.committer.current.lock().await.uberblock.sequence
    }

    /// The records of the roots that the uberblock names, newest first.
    pub(crate) async fn uberblock_roots(&self) -> [Option<RecordPointer>; ROOTS] {
        self.committer.current.lock().await.uberblock.roots
    }

    /// The newest root's record.
    pub(crate) async fn newest_record(&self) -> Option<RecordPointer> {
        let [newest, ..] = self.committer.current.lock().await.uberblock.roots;
        newest
    }

    /// Records up to this txg are in the root that was imported.
    pub(crate) async fn replay_floor(&self) -> Txg {
        self.committer.current.lock().await.uberblock.floor
    }

    /// Makes sure that every leaf that missed a write is named on disk. Called before any
    /// acknowledgement.
    pub(crate) async fn name_outdated(&self) -> Result<(), PoolError> {
        self.check_vdevs()?;
        if self.failed_leaves().is_empty() || left_out(Rule::NameOutdated) {
            return Ok(());
        }
        self.write_uberblock(|_| {}).await
    }
}
