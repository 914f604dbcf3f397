//! Transaction groups: who may enter, how much, and when one closes.
//!
//! Two txgs are in memory at most: the open one, and the one that quiesces and then syncs. A change
//! is *admitted* first (it may wait there for memory, log and space), then *holds* the open txg: no
//! await until the hold is dropped, so a txg quiesces at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_ondisk::Txg;
use aquifer_ondisk::layout::REWIND_TXGS;
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::error::PoolError;
use crate::limits::TXG_INTERVAL_MS;
use crate::pool::Pool;

/// How far into the pool's reserve a request may go (DESIGN, "Full pool").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceClass {
    /// Writes and creates stop at slop.
    Write,
    /// Removals, and overwrites of what no snapshot covers, at half of it.
    Remove,
    /// Replay and background destruction, at a quarter.
    Replay,
}

/// Who waits for whom when more comes in than the disks take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Slowed with all others.
    Bulk,
    /// A small change of something that has been left alone for a while (a lock that is renewed, a
    /// machine that is idle but for this): never slowed, up to a share of each txg.
    Sparse,
}

/// What a change may take at worst.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// Memory until its txg is on disk.
    pub dirty_bytes: u64,
    /// Sectors its sync may take before it gives any back.
    pub sectors: u64,
    /// Its record's bytes in the log, payload included.
    pub log_bytes: u64,
    /// How far into the reserve it may go.
    pub class: SpaceClass,
    /// Whether it is slowed.
    pub lane: Lane,
}

/// A granted demand. Dropped unused, it is given back.
#[derive(Debug)]
pub struct Admission {
    pool: Arc<Pool>,
    demand: Demand,
    used: bool,
}

/// The open txg, held. Never keep one over an await.
#[derive(Debug)]
pub struct TxHold {
    pool: Arc<Pool>,
    txg: Txg,
}

#[derive(Debug, Default, Clone, Copy)]
struct Load {
    dirty_bytes: u64,
    sectors: u64,
    log_bytes: u64,
    /// Of those dirty bytes, what came by [`Lane::Sparse`].
    sparse_bytes: u64,
    holders: usize,
    changed: bool,
}

#[derive(Debug)]
struct State {
    open: Txg,
    /// Of txgs not on disk yet.
    loads: BTreeMap<Txg, Load>,
    /// Admitted, not yet holding.
    admitted: Load,
    close_requested: bool,
    /// Bytes that the log had taken when the open txg began.
    log_began_bytes: u64,
    running: bool,
}

/// What waiters watch.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    pub committed: Txg,
    pub failure: Option<PoolError>,
}

/// All txgs of a pool.
#[derive(Debug)]
pub(crate) struct Txgs {
    state: Mutex<State>,
    /// A txg should close.
    wanted: Notify,
    /// A txg lost its last holder.
    quiesced: Notify,
    progress: watch::Sender<Progress>,
}

impl Txgs {
    pub fn new(committed: Txg, open: Txg) -> Self {
        Txgs {
            state: Mutex::new(State {
                open,
                loads: BTreeMap::new(),
                admitted: Load::default(),
                close_requested: false,
                log_began_bytes: 0,
                running: false,
            }),
            wanted: Notify::new(),
            quiesced: Notify::new(),
            progress: watch::Sender::new(Progress { committed, failure: None }),
        }
    }

    pub fn failure(&self) -> Option<PoolError> {
        self.progress.borrow().failure.clone()
    }

    pub fn check(&self) -> Result<(), PoolError> {
        self.failure().map_or(Ok(()), Err)
    }

    pub fn fail(&self, error: PoolError) {
        self.progress.send_modify(|progress| {
            progress.failure.get_or_insert(error);
        });
        self.wanted.notify_one();
    }

    pub fn committed(&self) -> Txg {
        self.progress.borrow().committed
    }

    pub fn open(&self) -> Txg {
        self.state.lock().open
    }

    /// Asks for the open txg to be closed.
    pub fn request_close(&self) {
        self.state.lock().close_requested = true;
        self.wanted.notify_one();
    }

    /// Sectors promised to changes that are not on disk yet.
    fn reserved_sectors(state: &State) -> u64 {
        state.admitted.sectors + state.loads.values().map(|load| load.sectors).sum::<u64>()
    }

    /// Waits until nobody holds a txg that is open no more.
    async fn quiesced(&self, closing: Txg) {
        loop {
            let quiesced = self.quiesced.notified();
            let holders = self.state.lock().loads.get(&closing).map_or(0, |load| load.holders);
            if holders == 0 {
                return;
            }
            quiesced.await;
        }
    }

    /// Enters the open txg without admission: for replay, which paces itself.
    pub fn force_hold(&self, pool: &Arc<Pool>, demand: Demand) -> TxHold {
        let mut state = self.state.lock();
        let txg = state.open;
        let load = state.loads.entry(txg).or_default();
        load.dirty_bytes += demand.dirty_bytes;
        load.sectors += demand.sectors;
        load.holders += 1;
        load.changed = true;
        TxHold { pool: pool.clone(), txg }
    }

    /// Sectors that were reserved for the changes of a txg.
    pub fn reserved_for(&self, txg: Txg) -> u64 {
        self.state.lock().loads.get(&txg).map_or(0, |load| load.sectors)
    }

    /// The txg is on disk.
    pub fn done(&self, txg: Txg) {
        self.state.lock().loads.remove(&txg);
        self.progress.send_modify(|progress| progress.committed = txg);
    }

    fn has_changes(&self) -> bool {
        let state = self.state.lock();
        state.loads.get(&state.open).is_some_and(|load| load.changed)
    }

    /// Log bytes admitted but not yet in the log's own account, and dirty bytes in all.
    pub fn pressure(&self) -> (u64, u64) {
        let state = self.state.lock();
        let dirty = state.loads.values().map(|load| load.dirty_bytes).sum::<u64>();
        (state.admitted.log_bytes, state.admitted.dirty_bytes + dirty)
    }
}

impl Pool {
    /// The newest txg on disk.
    pub fn committed_txg(&self) -> Txg {
        self.txgs.committed()
    }

    /// The txg that changes enter now.
    pub fn open_txg(&self) -> Txg {
        self.txgs.open()
    }

    /// Waits until `demand` can be met, and reserves it. Fails if the pool is full for its class,
    /// suspended or exported.
    pub async fn admit(&self, demand: Demand) -> Result<Admission, PoolError> {
        let mut progress = self.txgs.progress.subscribe();
        let mut space_commits = 0;
        let fill = loop {
            progress.borrow_and_update();
            match self.try_admit(demand)? {
                Verdict::Granted { pass: true, .. } => break None,
                Verdict::Granted { fill, .. } => break Some(fill),
                Verdict::NoSpace if space_commits >= self.space_commits_max() => {
                    return Err(PoolError::NoSpace);
                }
                // Frees that are held back, and reservations larger than what is then used, come
                // back with the next commits; only then is the pool full.
                Verdict::NoSpace => space_commits += 1,
                Verdict::Wait => {}
            }
            self.txgs.request_close();
            if progress.changed().await.is_err() {
                return Err(PoolError::Exported);
            }
        };
        let admission = Admission { pool: self.arc()?, demand, used: false };
        if let Some(fill) = fill {
            let share = self.share_of_memory(demand.dirty_bytes);
            let delay = self.throttle.delay(self.world.now(), share, fill);
            if let Some(delay) = delay.max(self.log_delay()) {
                self.world.sleep(delay).await;
            }
        }
        Ok(admission)
    }

    fn try_admit(&self, demand: Demand) -> Result<Verdict, PoolError> {
        self.txgs.check()?;
        let limits = &self.limits;
        let free = self.space.lock().space_use().free();
        let log_room = self.log.room_bytes();
        let mut state = self.txgs.state.lock();
        let dirty: u64 = state.loads.values().map(|load| load.dirty_bytes).sum();
        let dirty = dirty + state.admitted.dirty_bytes;
        let open = state.loads.get(&state.open).copied().unwrap_or_default();
        // What others can never take is there for those few.
        let lane_bytes = limits.txg_dirty_bytes / SPARSE_SHARE;
        let pass = demand.lane == Lane::Sparse
            && demand.dirty_bytes <= SPARSE_BYTES_MAX
            && open.sparse_bytes + demand.dirty_bytes <= lane_bytes;
        let kept = |bytes: u64| if pass { 0 } else { bytes };
        // A single change may be larger than the cap: it goes alone.
        let memory =
            dirty == 0 || dirty + demand.dirty_bytes + kept(lane_bytes) <= limits.dirty_cap_bytes;
        let log = state.admitted.log_bytes + demand.log_bytes + kept(self.log_kept()) <= log_room;
        if !memory || !log {
            return Ok(Verdict::Wait);
        }
        let reserve = match demand.class {
            SpaceClass::Write => limits.slop_sectors,
            SpaceClass::Remove => limits.slop_sectors / 2,
            SpaceClass::Replay => limits.slop_sectors / 4,
        };
        let reserved = Txgs::reserved_sectors(&state);
        if free < reserved + demand.sectors + reserve {
            return Ok(Verdict::NoSpace);
        }
        state.admitted.dirty_bytes += demand.dirty_bytes;
        state.admitted.sectors += demand.sectors;
        state.admitted.log_bytes += demand.log_bytes;
        if pass {
            let txg = state.open;
            state.loads.entry(txg).or_default().sparse_bytes += demand.dirty_bytes;
        }
        let fill = self.fill(&state, open.dirty_bytes + state.admitted.dirty_bytes);
        Ok(Verdict::Granted { fill, pass })
    }

    /// Commits to wait for before a full pool is believed to be full: more of them while readers
    /// keep frees from being reused, since readers end.
    fn space_commits_max(&self) -> usize {
        let held_by_readers = self.space.lock().held_txgs() as u64 > REWIND_TXGS;
        if held_by_readers { 8 * SPACE_COMMITS_MAX } else { SPACE_COMMITS_MAX }
    }

    /// How full the open txg is, with so many dirty bytes: one is full of dirty memory, or of
    /// records in the log, whichever comes first.
    fn fill(&self, state: &State, dirty_bytes: u64) -> f64 {
        let logged = self.log.sealed_bytes().saturating_sub(state.log_began_bytes);
        self.share_of_memory(dirty_bytes).max(share(logged, self.log.capacity_bytes() / 4))
    }

    /// The share of a full txg that so many dirty bytes are.
    fn share_of_memory(&self, dirty_bytes: u64) -> f64 {
        share(dirty_bytes, self.limits.txg_dirty_bytes)
    }

    /// Ends the open txg and waits until nobody holds it. Returns it, its dirty bytes, and how full
    /// it was.
    pub(crate) async fn close_txg(&self) -> (Txg, u64, f64) {
        let closed = {
            let mut state = self.txgs.state.lock();
            let closing = state.open;
            let dirty_bytes = state.loads.get(&closing).map_or(0, |load| load.dirty_bytes);
            let fill = self.fill(&state, dirty_bytes);
            state.open = closing.next();
            state.close_requested = false;
            state.log_began_bytes = self.log.sealed_bytes();
            (closing, dirty_bytes, fill)
        };
        self.txgs.quiesced(closed.0).await;
        closed
    }

    /// Room of the log that only sparse changes may take.
    fn log_kept(&self) -> u64 {
        self.log.capacity_bytes() / LOG_KEPT_SHARE
    }

    /// A log that fills, whatever the txgs do: nothing below 60 %, then ever longer.
    fn log_delay(&self) -> Option<Duration> {
        let percent = self.log.fullness_percent().min(99);
        let over = percent.checked_sub(60).filter(|over| *over > 0)?;
        Some(Duration::from_micros(25 * over * over / (100 - percent)))
    }

    /// Enters the open txg with what was admitted.
    pub fn hold(&self, mut admission: Admission) -> Result<TxHold, PoolError> {
        self.txgs.check()?;
        let demand = admission.demand;
        let mut state = self.txgs.state.lock();
        admission.used = true;
        state.admitted.dirty_bytes -= demand.dirty_bytes;
        state.admitted.sectors -= demand.sectors;
        state.admitted.log_bytes -= demand.log_bytes;
        let txg = state.open;
        let load = state.loads.entry(txg).or_default();
        load.dirty_bytes += demand.dirty_bytes;
        load.sectors += demand.sectors;
        load.holders += 1;
        load.changed = true;
        let dirty_bytes = load.dirty_bytes;
        if self.fill(&state, dirty_bytes) >= 1.0 && !state.close_requested {
            state.close_requested = true;
            self.txgs.wanted.notify_one();
        }
        drop(state);
        Ok(TxHold { pool: admission.pool.clone(), txg })
    }

    /// Commits everything that entered before this call.
    pub async fn sync(&self) -> Result<Txg, PoolError> {
        let txg = {
            let mut state = self.txgs.state.lock();
            let txg = state.open;
            // An administrative act may have no load of its own, and still wants its txg.
            state.loads.entry(txg).or_default().changed = true;
            txg
        };
        self.txgs.request_close();
        self.wait_committed(txg).await?;
        Ok(txg)
    }

    /// Commits all, marks the pool cleanly exported, and ends its service. Nothing may be using it.
    pub async fn export(&self) -> Result<(), PoolError> {
        self.sync().await?;
        self.txgs.fail(PoolError::Exported);
        // No write of a repair may be under way when somebody else takes the disks over.
        while self.readers.is_busy() {
            self.world.sleep(Duration::from_millis(EXPORT_POLL_MS)).await;
        }
        self.write_uberblock(|uberblock| uberblock.clean = true).await?;
        self.log.fail(PoolError::Exported);
        Ok(())
    }

    /// Waits until `txg` is on disk.
    pub async fn wait_committed(&self, txg: Txg) -> Result<(), PoolError> {
        let mut progress = self.txgs.progress.subscribe();
        let reached = |progress: &Progress| progress.committed >= txg || progress.failure.is_some();
        let seen = progress.wait_for(reached).await.map_err(|_| PoolError::Exported)?;
        if seen.committed >= txg { Ok(()) } else { seen.failure.clone().map_or(Ok(()), Err) }
    }

    /// Closes and syncs txgs until the pool is exported or suspended. The caller spawns it once.
    pub async fn run(self: Arc<Pool>) {
        let already = std::mem::replace(&mut self.txgs.state.lock().running, true);
        assert!(!already, "one task syncs a pool");
        self.place_log();
        loop {
            let asleep = self.world.sleep(Duration::from_millis(TXG_INTERVAL_MS));
            let wanted = std::pin::pin!(self.txgs.wanted.notified());
            let asked = matches!(select(wanted, asleep).await, Either::Left(_));
            if self.txgs.failure().is_some() {
                return;
            }
            let asked = asked && self.txgs.state.lock().close_requested;
            if !(asked || self.txgs.has_changes()) {
                continue;
            }
            if let Err(error) = self.sync_one().await {
                self.suspend(error);
                return;
            }
        }
    }
}

/// How often an export looks whether the last reader has gone.
const EXPORT_POLL_MS: u64 = 1;

/// Commits after which a full pool is believed to be full: a free takes effect in its own, and is
/// held back for two more.
const SPACE_COMMITS_MAX: usize = 4;

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than 52 bits")]
fn share(bytes: u64, of_bytes: u64) -> f64 {
    bytes as f64 / of_bytes.max(1) as f64
}

/// Sparse changes may take one part in so many of a txg's dirty memory,
const SPARSE_SHARE: u64 = 16;
/// each of them this much at most,
const SPARSE_BYTES_MAX: u64 = 64 * 1024;
/// and one part in so many of the log is kept for them.
const LOG_KEPT_SHARE: u64 = 64;

enum Verdict {
    Granted {
        /// How full the open txg is, with all that is on its way into it.
        fill: f64,
        /// It goes by [`Lane::Sparse`].
        pass: bool,
    },
    Wait,
    NoSpace,
}

impl Drop for Admission {
    fn drop(&mut self) {
        if !self.used {
            let mut state = self.pool.txgs.state.lock();
            state.admitted.dirty_bytes -= self.demand.dirty_bytes;
            state.admitted.sectors -= self.demand.sectors;
            state.admitted.log_bytes -= self.demand.log_bytes;
        }
    }
}

impl TxHold {
    /// The txg that is held.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for TxHold {
    fn drop(&mut self) {
        let mut state = self.pool.txgs.state.lock();
        if let Some(load) = state.loads.get_mut(&self.txg) {
            load.holders -= 1;
            if load.holders == 0 {
                self.pool.txgs.quiesced.notify_one();
            }
        }
    }
}
