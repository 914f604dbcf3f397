//! Transaction groups: the open one, its holders, and its closing.
//!
//! At most two txgs are in memory: the open one, and the one that quiesces and is then synced. A
//! change is first *admitted* ([`admission`]: it may wait there, for memory, log, space or the
//! disks). Then it *holds* the open txg. There is no await until the hold is dropped, so a txg
//! quiesces at once. Clippy enforces that (`await-holding-invalid-types`).

mod admission;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Txg;
use aquifer_ondisk::layout::REWIND_TXGS;
use aquifer_sync::atomic::{AtomicUsize, Ordering};
use aquifer_sync::{AsyncMutex, Mutex, Notify};
use futures_util::future::{Either, select};

use crate::error::PoolError;
use crate::flow::limits::{TXG_BACKGROUND_MS, TXG_INTERVAL_MS};
use crate::flow::{Bounds, Closed, Held, Taken};
use crate::pool::{BoxFuture, Pool};

pub use admission::{Admission, Demand, Lane, SpaceClass};

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
    /// The part of these dirty bytes that came by [`Lane::Sparse`].
    sparse_bytes: u64,
    changed: bool,
}

#[derive(Debug)]
struct State {
    open: Txg,
    /// Loads of txgs that are not on disk yet.
    loads: BTreeMap<Txg, Load>,
    /// Admitted, not yet holding.
    admitted: Load,
    close_requested: bool,
    /// A caller waits for the open txg, or for the one being synced.
    awaited: bool,
    sync_awaited: bool,
    /// Background work continues with the next txg, which closes soon.
    background_waits: bool,
    /// Bytes in the log when the open txg began.
    log_began_bytes: u64,
    /// The open txg is full when it has reserved this many sectors.
    full_sectors: u64,
    running: bool,
}

impl State {
    /// The load of the open txg, and of changes about to enter it.
    fn coming(&self) -> Load {
        let mut load = self.loads.get(&self.open).copied().unwrap_or_default();
        load.dirty_bytes += self.admitted.dirty_bytes;
        load.sectors += self.admitted.sectors;
        load
    }

    /// Dirty bytes of all txgs, and of changes about to enter one.
    fn dirty_bytes(&self) -> u64 {
        self.admitted.dirty_bytes + self.loads.values().map(|load| load.dirty_bytes).sum::<u64>()
    }

    /// Memory and log that changes have taken.
    fn taken(&self) -> Taken {
        let open = self.loads.get(&self.open).copied().unwrap_or_default();
        Taken {
            dirty_bytes: self.dirty_bytes(),
            sparse_bytes: open.sparse_bytes,
            log_bytes: self.admitted.log_bytes,
        }
    }

    /// Sectors promised to changes that are not on disk yet.
    fn reserved_sectors(&self) -> u64 {
        self.admitted.sectors + self.loads.values().map(|load| load.sectors).sum::<u64>()
    }

    /// Enters a change with this demand into the open txg, as a holder, and returns that txg.
    fn enter(&mut self, demand: Demand) -> Txg {
        let txg = self.open;
        let load = self.loads.entry(txg).or_default();
        load.dirty_bytes += demand.dirty_bytes;
        load.sectors += demand.sectors;
        load.changed = true;
        txg
    }

    /// Releases the reservation of an admission.
    fn give_back(&mut self, demand: Demand) {
        self.admitted.dirty_bytes -= demand.dirty_bytes;
        self.admitted.sectors -= demand.sectors;
        self.admitted.log_bytes -= demand.log_bytes;
    }
}

/// How many hold the open txg, and the one that quiesces: by the last bit of their numbers, since a
/// txg opens only after all holders of the one before the last are gone.
#[derive(Debug, Default)]
struct Holders([AtomicUsize; 2]);

impl Holders {
    fn of(&self, txg: Txg) -> &AtomicUsize {
        let [even, odd] = &self.0;
        if txg.0.is_multiple_of(2) { even } else { odd }
    }

    /// One more. Under the lock of [`State`], so that a txg that is open no more gets none.
    fn add(&self, txg: Txg) {
        self.of(txg).fetch_add(1, Ordering::Relaxed);
    }

    /// One less, without that lock. Returns whether it was the last. What it did under the hold
    /// comes before what is done once [`Holders::hold`] says no.
    fn remove(&self, txg: Txg) -> bool {
        self.of(txg).fetch_sub(1, Ordering::Release) == 1
    }

    /// Whether anybody holds this txg, which is open no more.
    fn hold(&self, txg: Txg) -> bool {
        self.of(txg).load(Ordering::Acquire) > 0
    }
}

/// Progress that waiters watch.
#[derive(Debug)]
struct Progress {
    committed: Txg,
    failure: Option<PoolError>,
}

/// All txgs of a pool.
#[derive(Debug)]
pub(crate) struct Txgs {
    state: Mutex<State>,
    holders: Holders,
    /// A txg should close.
    wanted: Notify,
    /// A txg lost its last holder.
    quiesced: Notify,
    progress: Mutex<Progress>,
    /// Wakes all waiters for progress, in the order in which they came. (A `watch` channel wakes
    /// them in random order, so no seed of the simulator would repeat its story.)
    progressed: Notify,
    /// See [`admission`], "A full pool".
    row: AsyncMutex<()>,
}

impl Txgs {
    pub fn new(committed: Txg, open: Txg) -> Self {
        Txgs {
            state: Mutex::new(State {
                open,
                loads: BTreeMap::new(),
                admitted: Load::default(),
                close_requested: false,
                awaited: false,
                sync_awaited: false,
                background_waits: false,
                log_began_bytes: 0,
                full_sectors: u64::MAX,
                running: false,
            }),
            holders: Holders::default(),
            wanted: Notify::new(),
            quiesced: Notify::new(),
            progress: Mutex::new(Progress { committed, failure: None }),
            progressed: Notify::new(),
            row: AsyncMutex::default(),
        }
    }

    pub fn failure(&self) -> Option<PoolError> {
        self.progress.lock().failure.clone()
    }

    pub fn check(&self) -> Result<(), PoolError> {
        self.failure().map_or(Ok(()), Err)
    }

    pub fn fail(&self, error: PoolError) {
        self.note_end(|failure| {
            failure.get_or_insert(error);
        });
    }

    /// Notes the error with which a pool goes, as `fail` does, and also if the pool is read-only.
    pub fn end(&self, error: PoolError) {
        self.note_end(|failure| match failure {
            None | Some(PoolError::ReadOnly) => *failure = Some(error),
            Some(_) => {}
        });
    }

    fn note_end(&self, note: impl FnOnce(&mut Option<PoolError>)) {
        note(&mut self.progress.lock().failure);
        self.progressed.notify_waiters();
        self.wanted.notify_one();
    }

    pub fn committed(&self) -> Txg {
        self.progress.lock().committed
    }

    pub fn open(&self) -> Txg {
        self.state.lock().open
    }

    /// Requests to close the open txg: a caller waits for it, or for the one before.
    pub fn request_close(&self) {
        let mut state = self.state.lock();
        state.close_requested = true;
        state.awaited = true;
        drop(state);
        self.wanted.notify_one();
    }

    /// Notes that background work continues with the next txg.
    pub fn background_waits(&self) {
        self.state.lock().background_waits = true;
    }

    /// Waits until a txg that is no longer open has no holders.
    async fn quiesced(&self, closing: Txg) {
        loop {
            let quiesced = self.quiesced.notified();
            if !self.holders.hold(closing) || left_out(Rule::CloseWaitsForHolders) {
                return;
            }
            quiesced.await;
        }
    }

    /// Enters the open txg without admission: for replay, which sets its own pace.
    pub fn force_hold(&self, pool: &Arc<Pool>, demand: Demand) -> TxHold {
        let mut state = self.state.lock();
        let txg = state.enter(demand);
        self.holders.add(txg);
        TxHold { pool: pool.clone(), txg }
    }

    /// Sectors reserved for all changes that are not on disk.
    pub fn reserved_sectors(&self) -> u64 {
        self.state.lock().reserved_sectors()
    }

    /// Sectors reserved for the changes of a txg.
    pub fn reserved_for(&self, txg: Txg) -> u64 {
        self.state.lock().loads.get(&txg).map_or(0, |load| load.sectors)
    }

    /// Notes that the txg is on disk.
    pub fn done(&self, txg: Txg) {
        self.state.lock().loads.remove(&txg);
        self.progress.lock().committed = txg;
        self.progressed.notify_waiters();
    }

    fn has_changes(&self) -> bool {
        let state = self.state.lock();
        state.loads.get(&state.open).is_some_and(|load| load.changed)
    }

    /// Dirty bytes of all txgs, and of changes about to enter one.
    pub fn dirty_bytes(&self) -> u64 {
        self.state.lock().dirty_bytes()
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

    /// How full the open txg is with this load.
    fn fill(&self, state: &State, load: Load) -> f64 {
        let logged_bytes = self.log.sealed_bytes().saturating_sub(state.log_began_bytes);
        let Load { dirty_bytes, sectors, .. } = load;
        self.flow.fill(Held { dirty_bytes, logged_bytes, sectors }, self.bounds(state))
    }

    fn bounds(&self, state: &State) -> Bounds {
        Bounds { log_bytes: self.log.capacity_bytes(), sectors: state.full_sectors }
    }

    /// How full the open txg is with all changes about to enter it. Also whether a caller waits for
    /// it, or for the one being synced.
    pub(crate) fn open_look(&self) -> (f64, bool) {
        let state = self.txgs.state.lock();
        (self.fill(&state, state.coming()), state.awaited || state.sync_awaited)
    }

    /// Closes the open txg and waits until it has no holders.
    pub(crate) async fn close_txg(&self) -> (Txg, Closed) {
        let closed = {
            let mut state = self.txgs.state.lock();
            let closing = state.open;
            let load = state.loads.get(&closing).copied().unwrap_or_default();
            let sectors = load.dirty_bytes / 4096;
            let closed = Closed { share: self.fill(&state, load), sectors };
            state.open = closing.next();
            state.close_requested = false;
            state.sync_awaited = std::mem::take(&mut state.awaited);
            state.log_began_bytes = self.log.sealed_bytes();
            (closing, closed)
        };
        self.txgs.quiesced(closed.0).await;
        closed
    }

    /// Commits every change that entered before this call.
    pub async fn sync(&self) -> Result<Txg, PoolError> {
        let txg = {
            let mut state = self.txgs.state.lock();
            let txg = state.open;
            // An administrative act may have no load of its own, but needs its txg.
            state.loads.entry(txg).or_default().changed = true;
            txg
        };
        self.txgs.request_close();
        self.wait_committed(txg).await?;
        Ok(txg)
    }

    /// Commits everything, marks the pool cleanly exported, and ends its service. It must not be in
    /// use.
    pub async fn export(&self) -> Result<(), PoolError> {
        let is_written = !self.is_read_only();
        if is_written {
            self.sync().await?;
        }
        self.txgs.end(PoolError::Exported);
        self.acts.tell_change();
        self.stop_caches();
        self.quiet_caches().await;
        // No write of a repair and no discard may be in progress when another host takes the disks.
        while self.readers.is_busy() || self.lends() {
            self.world.sleep(Duration::from_millis(EXPORT_POLL_MS)).await;
        }
        // Nor a sync: a txg may have begun after the one that was waited for.
        let _turn = self.sync_turn.lock().await;
        if is_written {
            self.write_uberblock(|uberblock| uberblock.clean = true).await?;
        }
        self.log.fail(PoolError::Exported);
        Ok(())
    }

    /// Waits until `txg`, whose close was requested, is on disk.
    async fn wait_committed(&self, txg: Txg) -> Result<(), PoolError> {
        loop {
            let progressed = self.txgs.progressed.notified();
            if self.txgs.committed() >= txg {
                return Ok(());
            }
            self.txgs.check()?;
            progressed.await;
        }
    }

    /// Waits until `txg`, whose close was requested, is on disk, but gives up while the disks do
    /// not answer.
    ///
    /// # Errors
    /// [`PoolError::Silent`]: it may be on disk later; or the pool failed.
    pub async fn on_disk_or_silent(&self, txg: Txg) -> Result<(), PoolError> {
        let (done, silence) = (pin!(self.wait_committed(txg)), pin!(self.silence()));
        match select(done, silence).await {
            Either::Left((committed, _)) => committed,
            Either::Right(_) => Err(PoolError::Silent),
        }
    }

    /// Closes and syncs txgs until the pool is exported or suspended. The caller spawns it once.
    pub fn run(self: Arc<Pool>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let already = std::mem::replace(&mut self.txgs.state.lock().running, true);
            assert!(!already, "one task syncs a pool");
            self.place_log();
            self.begin_saying_in_use();
            self.world.spawn("resilver", Box::pin(self.clone().resilver_outdated()));
            self.resume_free_work();
            self.world.spawn("autotrim", Box::pin(self.clone().trim_released()));
            self.run_caches();
            self.world.spawn("spares", Box::pin(self.clone().let_spares_stand_in()));
            // What the last txgs freed comes back with as many more, changes or not.
            let mut follow = REWIND_TXGS;
            loop {
                let background = std::mem::take(&mut self.txgs.state.lock().background_waits);
                let longest = if background { TXG_BACKGROUND_MS } else { TXG_INTERVAL_MS };
                let asleep = self.world.sleep(Duration::from_millis(longest));
                let wanted = pin!(self.txgs.wanted.notified());
                let asked = matches!(select(wanted, asleep).await, Either::Left(_));
                if self.txgs.failure().is_some() {
                    return;
                }
                let asked = asked && self.txgs.state.lock().close_requested;
                if asked || background || self.txgs.has_changes() {
                    follow = REWIND_TXGS;
                } else if follow > 0 && self.frees_wait() {
                    // Limited, so that an idle pool comes to rest even if its empty txgs free
                    // something.
                    follow -= 1;
                } else {
                    // Readers that held back frees of older txgs may be gone.
                    self.release_frees(self.committed_txg());
                    continue;
                }
                if let Err(error) = self.sync_one().await {
                    self.suspend(error);
                    return;
                }
            }
        })
    }
}

/// Interval in which an export checks whether the last reader has gone.
const EXPORT_POLL_MS: u64 = 1;

impl TxHold {
    /// The held txg.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Drop for TxHold {
    fn drop(&mut self) {
        if self.pool.txgs.holders.remove(self.txg) {
            self.pool.txgs.quiesced.notify_one();
        }
    }
}
