//! Admission: which changes may enter the open txg, with how much, and which ones wait.
//!
//! A change reserves its worst case before it enters: memory until its txg is on disk, and room in
//! the log and on the disks. When more comes in than the disks take, changes are slowed evenly
//! ([`crate::flow`]), except for small ones of idle objects ([`Lane::Sparse`]).
//!
//! # A full pool
//! Changes that need no more room than before ([`SpaceClass::Remove`]) always work, in any number.
//! Such a change takes space from a reserve, and returns it when its frees are not held back any
//! more, some commits later. When the reserve is used up, these changes queue in the order in which
//! they came. No other change takes space before the first in the queue. So after that number of
//! commits all held-back space is there for the first one. It is refused only if even that is too
//! little.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::layout::REWIND_TXGS;

use super::{State, TxHold};
use crate::error::PoolError;
use crate::flow::Entry;
use crate::pool::Pool;

/// How far into the pool's reserve a request may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceClass {
    /// Writes and creates: stop at slop.
    Write,
    /// Removals, attributes, and overwrites of data that no snapshot covers: stop at half of it.
    Remove,
    /// Replay and background destruction: stop at a quarter.
    Replay,
}

/// The class in which a change is slowed when more comes in than the disks take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Slowed together with all others.
    Bulk,
    /// Slowed together with all others, but of work that no client waits for: it makes nobody think
    /// that clients are at work.
    Behind,
    /// A small change of something that was idle for a while, such as the renewal of a lock, or the
    /// only write of an idle machine. It is never slowed, up to a share of each txg.
    Sparse,
}

/// The worst case of a change.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// Memory until its txg is on disk.
    pub dirty_bytes: u64,
    /// Sectors that its sync may take before it frees any.
    pub sectors: u64,
    /// Its record's bytes in the log, payload included.
    pub log_bytes: u64,
    /// How far into the reserve it may go.
    pub class: SpaceClass,
    /// The lane that decides whether it is slowed.
    pub lane: Lane,
}

/// A granted demand. If dropped unused, its reservation is released.
#[derive(Debug)]
pub struct Admission {
    pool: Arc<Pool>,
    demand: Demand,
    used: bool,
}

impl Pool {
    /// Waits until `demand` can be met, and reserves it. Fails if the pool is full for its class,
    /// suspended or exported.
    pub async fn admit(&self, demand: Demand) -> Result<Admission, PoolError> {
        self.admit_with(demand, true).await
    }

    /// As [`Pool::admit`], but refuses for want of space at once, without a commit that might make
    /// room.
    pub async fn admit_if_room(&self, demand: Demand) -> Result<Admission, PoolError> {
        self.admit_with(demand, false).await
    }

    async fn admit_with(&self, demand: Demand, makes_room: bool) -> Result<Admission, PoolError> {
        if demand.lane != Lane::Behind {
            self.flow.client_asks();
        }
        let mut space_commits = 0;
        let mut first_in_row = None;
        let slowed = loop {
            let progressed = self.txgs.progressed.notified();
            let lines_up = demand.class == SpaceClass::Remove
                && first_in_row.is_none()
                && !left_out(Rule::ReserveInTurn);
            let waits_behind = lines_up && demand.sectors > 0 && self.txgs.row.try_lock().is_err();
            let verdict = if waits_behind { Verdict::NoSpace } else { self.try_admit(demand)? };
            match verdict {
                Verdict::Granted(slowed) => break slowed,
                Verdict::NoSpace if !makes_room => return Err(PoolError::NoSpace),
                Verdict::NoSpace if lines_up => {
                    // Rare, and large: boxed, so that it is not a part of every caller's future.
                    first_in_row = Some(Box::pin(self.txgs.row.lock()).await);
                    continue;
                }
                Verdict::NoSpace if space_commits >= self.space_commits_max() => {
                    return Err(PoolError::NoSpace);
                }
                // Held-back frees, and reservations larger than the space that is then used, are
                // released by the next commits; only after these is the pool full.
                Verdict::NoSpace => space_commits += 1,
                Verdict::Wait => {}
            }
            self.txgs.request_close();
            progressed.await;
        };
        drop(first_in_row);
        let admission = Admission { pool: self.arc()?, demand, used: false };
        if let Some(slowed) = slowed {
            self.take_turn(slowed).await?;
        }
        Ok(admission)
    }

    fn fits(&self, state: &State, demand: &Demand, free: u64) -> bool {
        let needed = state.reserved_sectors() + demand.sectors + self.reserve(demand.class);
        demand.sectors == 0 || free >= needed
    }

    /// Sectors that changes of this class must leave free.
    fn reserve(&self, class: SpaceClass) -> u64 {
        match class {
            SpaceClass::Write => self.slop_sectors(),
            SpaceClass::Remove => self.slop_sectors() / 2,
            SpaceClass::Replay => self.slop_sectors() / 4,
        }
    }

    /// Waits in turn with all changes until the disks can be expected to take this one.
    async fn take_turn(&self, slowed: Slowed) -> Result<(), PoolError> {
        let Slowed { log_delay, share, mut fill } = slowed;
        if let Some(delay) = log_delay {
            self.world.sleep(delay).await;
        }
        let Some(turn) = self.flow.queue(self.world.now(), share, fill) else {
            return Ok(());
        };
        while let Some(delay) = self.flow.delay(self.world.now(), turn, fill) {
            self.world.sleep(delay).await;
            self.txgs.check()?;
            (fill, _) = self.open_look();
        }
        Ok(())
    }

    fn try_admit(&self, demand: Demand) -> Result<Verdict, PoolError> {
        let (verdict, dirty_bytes) = self.admitted(demand)?;
        if let Some(bytes) = dirty_bytes {
            self.shares.dirty_grows_to(bytes);
        }
        Ok(verdict)
    }

    /// Reserves `demand` if there is room. Also the dirty memory of all, if that has grown.
    fn admitted(&self, demand: Demand) -> Result<(Verdict, Option<u64>), PoolError> {
        self.txgs.check()?;
        let log = self.log.room();
        let mut state = self.txgs.state.lock();
        // Read after taking the lock: a sync publishes the space that it took before it releases
        // the reservation.
        let free = self.space.free_sectors();
        let entry = self.flow.entry(&demand, state.taken(), log);
        if entry == Entry::Full {
            return Ok((Verdict::Wait, None));
        }
        if !self.fits(&state, &demand, free) {
            return Ok((Verdict::NoSpace, None));
        }
        if left_out(Rule::AdmitInOneLook) {
            drop(state);
            state = self.txgs.state.lock();
        }
        state.admitted.dirty_bytes += demand.dirty_bytes;
        let cap = self.limits.dirty_cap_bytes.max(demand.dirty_bytes);
        let dirty_bytes = state.dirty_bytes();
        debug_assert!(dirty_bytes <= cap, "within the cap");
        state.admitted.sectors += demand.sectors;
        state.admitted.log_bytes += demand.log_bytes;
        let room = free.saturating_sub(self.reserve(demand.class));
        state.full_sectors = self.flow.full_sectors(room);
        if entry == Entry::Passes {
            let txg = state.open;
            state.loads.entry(txg).or_default().sparse_bytes += demand.dirty_bytes;
            return Ok((Verdict::Granted(None), Some(dirty_bytes)));
        }
        let fill = self.fill(&state, state.coming());
        let share = self.flow.share_of(&demand, self.bounds(&state));
        let log_delay = self.flow.log_delay(log);
        Ok((Verdict::Granted(Some(Slowed { log_delay, share, fill })), Some(dirty_bytes)))
    }

    /// Commits to wait for before a pool counts as full. There are more while readers keep frees
    /// from being reused, since readers end.
    fn space_commits_max(&self) -> usize {
        let held_by_readers = self.space.lock().held_txgs() as u64 > REWIND_TXGS;
        if held_by_readers { 8 * SPACE_COMMITS_MAX } else { SPACE_COMMITS_MAX }
    }

    /// Enters the open txg with an admission.
    pub fn hold(&self, mut admission: Admission) -> Result<TxHold, PoolError> {
        self.txgs.check()?;
        let demand = admission.demand;
        let mut state = self.txgs.state.lock();
        admission.used = true;
        state.give_back(demand);
        let txg = state.enter(demand);
        self.txgs.holders.add(txg);
        let load = state.loads.get(&txg).copied().unwrap_or_default();
        if self.fill(&state, load) >= 1.0 && !state.close_requested {
            state.close_requested = true;
            self.txgs.wanted.notify_one();
        }
        drop(state);
        Ok(TxHold { pool: admission.pool.clone(), txg })
    }
}

/// Commits after which a pool counts as full: a free takes effect in its own one, and is held back
/// for two more.
const SPACE_COMMITS_MAX: usize = 4;

/// A change that is slowed together with all others.
struct Slowed {
    /// The delay for a log that fills up.
    log_delay: Option<Duration>,
    /// The share of a full txg that it takes.
    share: f64,
    /// How full the open txg is, with all changes about to enter it.
    fill: f64,
}

enum Verdict {
    /// `None` if it goes by [`Lane::Sparse`].
    Granted(Option<Slowed>),
    Wait,
    NoSpace,
}

impl Drop for Admission {
    fn drop(&mut self) {
        if !self.used {
            self.pool.txgs.state.lock().give_back(self.demand);
        }
    }
}
