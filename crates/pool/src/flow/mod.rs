//! Flow: how fast changes come in, and how txgs and log go out. One place decides.
//!
//! ```text
//!            room          throttle                          spread        window
//!            is there any? when?                             is it ahead?  how many?
//! changes -- asks -------> queues ---> open txg -- closes -> sync -------> writes --> data vdevs
//!                                         |                                              ^
//!                                         |              placement: large data, early    |
//!                                      records ------------------------------------------'
//!                                         |              batches: when to split, when to go
//!                                         '------------------------------------------> the log
//! ```
//!
//! Events go in, and each returns its part of the plan:
//!
//! | who | tells | learns |
//! |---|---|---|
//! | admission | a change asks (`entry`), queues (`queue`), waits (`delay`) | room, turn, delay |
//! | txgs | what the open one holds (`fill`) | whether it is full |
//! | sync | a txg closed, it stepped, wrote, landed, is on disk | whether it waits; the window |
//! | log | it moved; what devices took | where large data goes |
//! | background | clients asked, a read took so long | whether it goes alone; its rest |
//! | log | a record gathered, a batch came back, it is idle ([`batches`]) | whether one goes |
//!
//! # What holds
//! - The plan is a function of the events: nothing here reads a clock, does I/O or knows the pool.
//!   `now` and what was measured are arguments. So tests run it in simulated time.
//! - What txgs hold dirty is within two full ones; a single larger change goes alone.
//! - Each change that queues up is let in at last, in turn, however slow the disks are.
//! - While txgs do not close because they are full, nobody waits before the open one is half full.
//!
//! # Threads
//! Rules are plain structs and functions; [`Flow`] alone knows of threads. What each write reads or
//! counts is a relaxed atomic: a number that is late by a moment makes a plan that is late by as
//! much. Locks are held for a little arithmetic.

mod background;
pub(crate) mod batches;
pub(crate) mod limits;
mod placement;
mod room;
mod spread;
mod throttle;
mod window;

use std::sync::Arc;
use std::time::Duration;

use aquifer_arc::Memory;
use aquifer_sync::Mutex;
use aquifer_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use background::Background;
use limits::{SYNC_STEPS_PER_LOOK, SYNC_WINDOW_SECTORS_FIRST};
use placement::Placement;
pub(crate) use placement::{Devices, Times};
use room::Room;
pub(crate) use room::{Bounds, Entry, Held, LogRoom, Taken};
use throttle::Throttle;
pub(crate) use throttle::{Closed, Turn};
pub(crate) use window::Resize;

use crate::limits::Limits;
use crate::txg::Demand;

/// The flow of a pool.
#[derive(Debug)]
pub(crate) struct Flow {
    limits: Limits,
    /// Dirty memory is for all pools that share it.
    memory: Arc<Memory>,
    /// Changes that found no room in memory; one that looks again counts again.
    memory_waits: AtomicU64,
    throttle: Mutex<Throttle>,
    /// Whether a txg is on its way to disk.
    is_syncing: AtomicBool,
    /// Its sectors that are on their way to the devices, and those that have come to disk.
    handed_out_sectors: AtomicU64,
    written_sectors: AtomicU64,
    steps: AtomicU64,
    window_sectors: AtomicUsize,
    /// Batches of the log go to the disks that syncs write to.
    log_at_home: AtomicBool,
    placement: Mutex<Placement>,
    /// Large data goes to its place before its record.
    goes_early: AtomicBool,
    /// Changes that clients asked for, and reads of theirs that went to the disks.
    client_ops: AtomicU64,
    background: Mutex<Background>,
}

impl Flow {
    /// Until devices have shown otherwise a log vdev is the faster way: that is why it is there.
    pub fn new(limits: Limits, memory: Arc<Memory>, log_at_home: bool) -> Flow {
        Flow {
            limits,
            memory,
            memory_waits: AtomicU64::new(0),
            throttle: Mutex::default(),
            is_syncing: AtomicBool::new(false),
            handed_out_sectors: AtomicU64::new(0),
            written_sectors: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            window_sectors: AtomicUsize::new(SYNC_WINDOW_SECTORS_FIRST),
            log_at_home: AtomicBool::new(log_at_home),
            placement: Mutex::default(),
            goes_early: AtomicBool::new(log_at_home),
            client_ops: AtomicU64::new(0),
            background: Mutex::default(),
        }
    }
}

/// A write of a sync that has come back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SyncWrite {
    pub sectors: u64,
    /// Sectors that it had taken of the window.
    pub entered: usize,
    /// From its start on; waiting for the window does not count.
    pub took: Duration,
}

/// Events of the txg on its way to disk.
impl Flow {
    /// It has closed.
    pub fn txg_closed(&self, now: Duration, closed: Closed) {
        self.written_sectors.store(0, Ordering::Relaxed);
        self.handed_out_sectors.store(0, Ordering::Relaxed);
        self.steps.store(0, Ordering::Relaxed);
        self.is_syncing.store(true, Ordering::Relaxed);
        self.throttle.lock().begin(now, closed);
    }

    /// Whether there is one.
    pub fn is_syncing(&self) -> bool {
        self.is_syncing.load(Ordering::Relaxed)
    }

    /// Sectors of it are on their way to the devices.
    pub fn sync_hands_out(&self, sectors: u64) {
        self.handed_out_sectors.fetch_add(sectors, Ordering::Relaxed);
    }

    /// The sectors that a write of `count` takes of the window, and waits for.
    pub fn window_entry(&self, count: usize) -> usize {
        window::entry(count)
    }

    /// A write of its sync has come back. Returns what becomes of the window.
    pub fn sync_wrote(&self, write: SyncWrite) -> Resize {
        let SyncWrite { sectors, entered, took } = write;
        self.written_sectors.fetch_add(sectors, Ordering::Relaxed);
        let log_beside = self.log_at_home.load(Ordering::Relaxed);
        let resize = |window| window::resize(window, entered, took, log_beside);
        let order = Ordering::Relaxed;
        // Counted at once: two that come back together must not shrink it below its least.
        let before =
            self.window_sectors.fetch_update(order, order, |now| Some(resize(now).of(now)));
        resize(before.unwrap_or_else(|now| now))
    }

    /// A step of its sync is done. Returns whether it is time to look whether it is ahead.
    pub fn sync_stepped(&self) -> bool {
        self.steps.fetch_add(1, Ordering::Relaxed).is_multiple_of(SYNC_STEPS_PER_LOOK)
    }

    /// Whether its sync waits, with the open txg full to `fill`. Nothing waits that is `awaited`.
    pub fn sync_is_ahead(&self, now: Duration, fill: f64, awaited: bool) -> bool {
        let Some((begun, sectors)) = self.throttle.lock().draining() else { return false };
        let handed_out = self.handed_out_sectors.load(Ordering::Relaxed);
        !awaited && spread::is_ahead(handed_out, sectors, now.saturating_sub(begun), fill)
    }

    /// All its writes have come back.
    pub fn sync_landed(&self, now: Duration) {
        self.throttle.lock().landed(now);
    }

    /// It is on disk.
    pub fn txg_synced(&self, now: Duration) {
        self.is_syncing.store(false, Ordering::Relaxed);
        self.throttle.lock().end(now, self.written_sectors.load(Ordering::Relaxed));
    }
}

/// Conditions that changes wait for.
impl Flow {
    /// A txg is full of so much dirty memory, beside the pools that are there now.
    pub fn txg_dirty_bytes(&self) -> u64 {
        self.limits.txg_dirty_bytes_beside(self.memory.pools())
    }

    fn room(&self) -> Room {
        Room::new(self.txg_dirty_bytes())
    }

    /// Whether memory and log have room for a change.
    pub fn entry(&self, demand: &Demand, taken: Taken, log: LogRoom) -> Entry {
        let room = self.room();
        let entry = room.entry(demand, taken, log);
        if entry == Entry::Full && !room.fits_memory(demand, taken) {
            self.memory_waits.fetch_add(1, Ordering::Relaxed);
        }
        entry
    }

    /// How often a change found no room in memory.
    pub fn memory_waits(&self) -> u64 {
        self.memory_waits.load(Ordering::Relaxed)
    }

    /// Whether a txg would hold more if the process might take more memory.
    pub fn is_bound_by_memory(&self) -> bool {
        self.txg_dirty_bytes() < self.limits.txg_dirty_bytes_most
    }

    /// Sectors of which the open txg may have reserved as many before it is full, with so much room
    /// on the disks for it and the one on its way.
    pub fn full_sectors(&self, room_sectors: u64) -> u64 {
        room::full_sectors(room_sectors)
    }

    /// How full the open txg is; from 1 on it closes.
    pub fn fill(&self, held: Held, bounds: Bounds) -> f64 {
        self.room().fill(held, bounds)
    }

    /// The share of a full txg that a change takes.
    pub fn share_of(&self, demand: &Demand, bounds: Bounds) -> f64 {
        self.room().share_of(demand, bounds)
    }

    /// How long a change waits for a log that fills, before it queues up.
    pub fn log_delay(&self, log: LogRoom) -> Option<Duration> {
        room::log_delay(log)
    }

    /// Queues up a change that takes such a share, with the open txg full to `fill`. `None`: it may
    /// enter.
    pub fn queue(&self, now: Duration, share: f64, fill: f64) -> Option<Turn> {
        let written = self.written_sectors.load(Ordering::Relaxed);
        self.throttle.lock().queue(now, share, fill, written)
    }

    /// How long a change waits before it asks again; `None`: its turn has come.
    pub fn delay(&self, now: Duration, turn: Turn, fill: f64) -> Option<Duration> {
        let written = self.written_sectors.load(Ordering::Relaxed);
        self.throttle.lock().wait(now, turn, fill, written)
    }
}

/// Where the log lies, and what goes into it.
impl Flow {
    /// The log lies on the data vdevs now, or on vdevs of its own. The next judgement of large data
    /// comes from the times of the devices there.
    pub fn log_moved(&self, at_home: bool) {
        self.log_at_home.store(at_home, Ordering::Relaxed);
        self.goes_early.store(at_home, Ordering::Relaxed);
    }

    /// Whether the log lies on the data vdevs.
    pub fn log_is_at_home(&self) -> bool {
        self.log_at_home.load(Ordering::Relaxed)
    }

    /// The operations of devices since import. An event once a txg, where the log has vdevs of its
    /// own.
    pub fn devices_took(&self, devices: Devices) {
        if let Some(early) = self.placement.lock().judge(devices) {
            self.goes_early.store(early, Ordering::Relaxed);
        }
    }

    /// Whether large data goes to its place at once instead of into the log.
    pub fn goes_early(&self) -> bool {
        self.goes_early.load(Ordering::Relaxed)
    }
}

/// The share that clients leave to background work.
impl Flow {
    /// A client asks for a change, or for something that is not in memory.
    pub fn client_asks(&self) {
        self.client_ops.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether clients are at work.
    pub fn clients_are_busy(&self, now: Duration) -> bool {
        self.background.lock().is_busy(now, self.client_ops.load(Ordering::Relaxed))
    }

    /// How long background work rests beside them after something that took so long.
    pub fn background_rest(&self, took: Duration) -> Duration {
        background::rest(took)
    }
}

/// So much of so much.
fn share(part: u64, whole: u64) -> f64 {
    as_f64(part) / as_f64(whole.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "a share or a pace needs no more than 52 bits")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
