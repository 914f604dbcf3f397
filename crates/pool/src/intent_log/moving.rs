//! Moving the log: the chain ends in one place and a new one begins elsewhere.
//!
//! The log lies on log vdevs while there are usable ones. Otherwise it lies at home, on segments of
//! the data vdevs that are always kept for it. A move has three steps:
//! 1. From now on no batch is sealed; records gather. Everything in the old chain belongs to txgs
//!    up to the open one.
//! 2. That txg, or a later one, is committed, and its root names the new chain, which is empty. The
//!    old chain is then needless, and changes without an acknowledgement so far are in the root.
//! 3. The gathered records are written to the new chain.
//!
//! So a chain that no root on disk names never has an acknowledged record, and the order of records
//! stays whole. When all sides of a log vdev are lost, the last side alone may hold some batches.
//! These are not acknowledged before step 2.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Txg;
use aquifer_ondisk::pool_root::LogRoot;

use crate::error::PoolError;
use crate::intent_log::{IntentLog, Outcome, Position, Ring, State, submit};
use crate::pool::Pool;
use crate::txg::Txgs;

/// A move in progress.
#[derive(Debug)]
pub(super) struct Move {
    /// The txg that was open when it began: no root before it may name the new chain.
    from: Txg,
    ring: Ring,
    chain: u64,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No root names the new chain.
    Asked,
    /// A root that is being written names it.
    Named,
    /// That root is on disk. Writes to places of the new chain may still be in progress.
    OnDisk,
}

impl State {
    /// The new chain for root `txg`, if this root must name it.
    pub(super) fn name_new_chain(&mut self, txg: Txg) -> Option<LogRoot> {
        // A replay reads the old chain, which has the only copy of the batches not applied yet.
        if self.replaying.is_some() {
            return None;
        }
        let sequence = self.next_sequence;
        let early = left_out(Rule::NewChainWaitsForItsTxg);
        let change = self.change.as_mut().filter(|change| early || txg >= change.from)?;
        change.stage = Stage::Named;
        self.head_next = Some((sequence, Position::START));
        Some(LogRoot {
            chain: change.chain,
            head_sequence: sequence,
            head_place: change.ring.place(Position::START),
            previous_checksum: 0,
            segments: change.ring.runs(),
        })
    }

    /// Switches to the new chain if the root that names it is on disk. Returns the batches that
    /// this acknowledges.
    pub(super) fn take_new_chain(&mut self) -> Option<Vec<Arc<Outcome>>> {
        let change = self.change.as_mut().filter(|change| change.stage == Stage::Named)?;
        change.stage = Stage::OnDisk;
        self.ring = change.ring.clone();
        self.chain = change.chain;
        self.next = Position::START;
        self.previous = 0;
        self.live.clear();
        // All earlier records are in the root.
        self.mark = self.next_sequence - 1;
        self.mark_sealed = self.mark;
        let waiting = std::mem::take(&mut self.waiting);
        Some(waiting.into_values().map(|batch| batch.outcome).collect())
    }

    /// Ends a move once no write to the new chain's places is in progress. Returns whether a sender
    /// should start, for records that gathered during the move, or that found no room before the
    /// last root.
    pub(super) fn go_on(&mut self) -> bool {
        let landing = |place| self.ring.position(place).is_some();
        let done = self.change.as_ref().is_some_and(|change| change.stage == Stage::OnDisk)
            && (left_out(Rule::LogReuseAfterLanding)
                || !self.flying.values().any(|place| landing(*place)));
        if done {
            self.change = None;
        }
        let held = std::mem::take(&mut self.stalled) || done;
        let go = held && self.change.is_none() && self.failure.is_none() && self.has_gathered();
        if go {
            self.batches.held_up_goes();
        }
        go
    }
}

impl IntentLog {
    /// Sectors at home.
    pub(crate) fn home_sectors(&self) -> u64 {
        self.home.sectors()
    }

    /// The segments at home.
    pub(crate) fn home(&self) -> &Ring {
        &self.home
    }

    /// Whether the log of the newest root, or of one that is being written, is on this vdev.
    pub(crate) fn lies_on(&self, vdev: u16) -> bool {
        let state = self.state.lock();
        let named = state.change.as_ref().filter(|change| change.stage == Stage::Named);
        let rings = named.map(|change| &change.ring).into_iter().chain([&state.ring]);
        rings.into_iter().any(|ring| ring.vdevs().contains(&vdev))
    }

    /// Begins a move. If one is in progress and no root names its chain yet, changes its target.
    fn begin_move(&self, ring: Ring, chain: u64, txgs: &Txgs) {
        let mut state = self.state.lock();
        // Read under the log's lock: every record in the old chain was appended earlier, in a txg
        // that was open then.
        let from = txgs.open();
        match &mut state.change {
            Some(change) if change.stage == Stage::Asked => {
                change.ring = ring;
            }
            Some(_) => {}
            None => state.change = Some(Move { from, ring, chain, stage: Stage::Asked }),
        }
    }

    /// Whether a move is in progress.
    pub(crate) fn is_moving(&self) -> bool {
        self.state.lock().change.is_some()
    }
}

impl Pool {
    /// All sides of a log vdev are lost: if the log is there, or is moving there, it moves home.
    pub(crate) fn log_vdev_lost(&self, vdev: u16) {
        let concerned = {
            let state = self.log.state.lock();
            match &state.change {
                Some(change) if change.stage == Stage::Asked => change.ring.vdevs().contains(&vdev),
                Some(_) => false,
                None => state.ring.vdevs().contains(&vdev),
            }
        };
        if concerned {
            tracing::error!(
                class = "log.lost",
                pool = self.name(),
                vdev,
                "a log device is lost: the intent log goes to the data disks"
            );
            let chain = self.world.random().max(1);
            self.log.begin_move(self.log.home().clone(), chain, &self.txgs);
            self.txgs.request_close();
        }
    }

    /// Moves the log to its proper place: the usable log vdevs, or else home.
    pub(crate) fn place_log(&self) {
        let tree = self.tree();
        let mut on = tree.usable_logs();
        if let Some(shunned) = *self.acts.shunned_log.lock() {
            on.remove(&shunned);
        }
        let home = self.log.home();
        {
            let state = self.log.state.lock();
            let wanted = if on.is_empty() { home.vdevs() } else { &on };
            match &state.change {
                Some(change) if change.stage == Stage::Asked => {
                    drop(state);
                    return self.txgs.request_close();
                }
                Some(_) => return,
                None if state.ring.vdevs() == wanted => return,
                None => {}
            }
        }
        let ring = if on.is_empty() { home.clone() } else { tree.log_ring(&on) };
        self.log.begin_move(ring, self.world.random().max(1), &self.txgs);
        self.txgs.request_close();
    }

    /// Moves the log and waits until it is in its proper place.
    pub(crate) async fn move_log(&self) -> Result<(), PoolError> {
        // Present dirty data need not delay those that wait for the move.
        self.sync().await?;
        self.place_log();
        while self.log.is_moving() {
            self.sync().await?;
        }
        Ok(())
    }

    /// After a root is on disk: a move continues, or begins.
    pub(crate) fn move_on(&self) -> Result<(), PoolError> {
        if self.log.state.lock().go_on() {
            submit::spawn(&self.arc()?);
        }
        self.place_log();
        Ok(())
    }
}
