//! A leaf: one disk, its state, and its counters.

mod drill;
mod held;
mod trouble;
mod unused;
mod work;

use std::sync::{Arc, Weak};

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_blockio::{Disk, DiskError, SECTOR_BYTES, World};
use aquifer_meter::Seldom;
use aquifer_ondisk::Guid;
use aquifer_sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use aquifer_sync::{AsyncMutex, Mutex};

use crate::io::IoCounters;
use crate::pace::Pace;
use crate::ticks::Ticks;

use drill::Drill;
pub use held::Held;
pub use trouble::LeafTrouble;
use trouble::Trouble;
pub use unused::Discarded;
pub(crate) use work::{Act, Io, PATIENCE_MS};

/// The state of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LeafState {
    /// Holds everything committed.
    Online = 0,
    /// A write or flush failed; no uberblock says so yet, so nothing may be acknowledged.
    Failed = 1,
    /// An uberblock names it outdated: it missed writes.
    Outdated = 2,
    /// It was not found at import; an uberblock will name it outdated.
    Missing = 3,
    /// It takes every write and flush, while what it missed is copied to it. An uberblock names it
    /// outdated until it is whole. It is read only where no other copy verifies.
    Resilvering = 4,
}

/// Errors on one leaf since import.
#[derive(Debug, Default)]
pub struct LeafCounters {
    /// Reads that failed.
    pub read_errors: AtomicU64,
    /// Writes and flushes that failed.
    pub write_errors: AtomicU64,
    /// Reads whose content differed from the written one.
    pub checksum_errors: AtomicU64,
    /// Bad copies that were rewritten from a good one.
    pub repaired: AtomicU64,
}

impl LeafCounters {
    fn all(&self) -> [&AtomicU64; 4] {
        let LeafCounters { read_errors, write_errors, checksum_errors, repaired } = self;
        [read_errors, write_errors, checksum_errors, repaired]
    }
}

/// One disk of a pool.
#[derive(Debug)]
pub struct Leaf {
    /// Its identity.
    pub guid: Guid,
    /// Where it is, or was last seen.
    pub path: String,
    /// Counters of its errors.
    pub counters: LeafCounters,
    /// Its operations.
    pub io: IoCounters,
    /// Its discards.
    pub discarded: Discarded,
    pub(crate) pace: Pace,
    trouble: Trouble,
    drill: Drill,
    disk: Option<Arc<dyn Disk>>,
    state: AtomicU8,
    last_error: Mutex<Option<String>>,
    /// Events that the log was told lately, by class.
    told: Mutex<Seldom<&'static str>>,
    /// Sequence of the last uberblock that it was given: the newest that it may hold.
    pub uberblock_sequence: AtomicU64,
    /// I/O that the disk was given and has not answered.
    unanswered: AtomicU64,
    /// I/O that somebody waits for, or a task of its own.
    pub(crate) owed: AtomicU64,
    /// How often such I/O has ended.
    pub(crate) answers: AtomicU64,
    /// Of what it was given and has not answered, what nobody waits for any more.
    late: AtomicU64,
    /// It failed because it did not answer: nobody waits for it.
    hangs: AtomicBool,
    /// Held, on all leaves of the vdev, to fail a leaf unless it is the last.
    turn: Mutex<()>,
    /// The other leaves of its vdev.
    others: Mutex<Vec<Weak<Leaf>>>,
    pub(crate) ticks: Arc<Ticks>,
    /// It does not come back by itself: it was taken offline, or is too small.
    kept_out: AtomicBool,
    /// It was taken offline.
    offline: AtomicBool,
    /// The disk was to come back, and has changes of its own.
    has_own_past: AtomicBool,
    /// The administrator wants it back.
    asked: AtomicBool,
    /// It counts after a resilver, and no uberblock says so yet.
    is_unsettled: AtomicBool,
    holds: held::Holds,
    /// Sequence of the newest config that its labels were given. Held while one is written.
    pub(crate) config_given: AsyncMutex<u64>,
}

impl Leaf {
    /// A leaf on `disk`; without one it is missing. `clock` times its operations.
    pub fn new(
        guid: Guid,
        path: String,
        disk: Option<Arc<dyn Disk>>,
        clock: Arc<dyn World>,
    ) -> Self {
        let state = if disk.is_some() { LeafState::Online } else { LeafState::Missing };
        Leaf {
            guid,
            path,
            counters: LeafCounters::default(),
            io: IoCounters::new(clock.clone()),
            discarded: Discarded::default(),
            pace: Pace::default(),
            trouble: Trouble::default(),
            drill: Drill::default(),
            disk,
            state: AtomicU8::new(state as u8),
            last_error: Mutex::new(None),
            told: Mutex::default(),
            uberblock_sequence: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            answers: AtomicU64::new(0),
            late: AtomicU64::new(0),
            hangs: AtomicBool::new(false),
            turn: Mutex::new(()),
            others: Mutex::new(Vec::new()),
            ticks: Ticks::new(clock),
            kept_out: AtomicBool::new(false),
            offline: AtomicBool::new(false),
            has_own_past: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            is_unsettled: AtomicBool::new(false),
            holds: held::Holds::default(),
            config_given: AsyncMutex::default(),
        }
    }

    /// A leaf that is not in use: nothing counts on it.
    pub fn out_of_use(
        guid: Guid,
        path: String,
        disk: Option<Arc<dyn Disk>>,
        clock: Arc<dyn World>,
    ) -> Arc<Self> {
        let leaf = Leaf::new(guid, path, disk, clock);
        leaf.set_outdated();
        Arc::new(leaf)
    }

    /// Its state.
    pub fn state(&self) -> LeafState {
        match self.state.load(Ordering::Acquire) {
            0 => LeafState::Online,
            1 => LeafState::Failed,
            2 => LeafState::Outdated,
            4 => LeafState::Resilvering,
            _ => LeafState::Missing,
        }
    }

    /// Whether it holds everything committed: it is read, counts, and has a vote.
    pub fn is_online(&self) -> bool {
        self.state() == LeafState::Online
    }

    /// Whether it takes part in writes and flushes.
    pub fn takes_writes(&self) -> bool {
        matches!(self.state(), LeafState::Online | LeafState::Resilvering)
    }

    /// Whether all I/O that the disk was given has been answered. A write or flush that was dropped
    /// halfway never is.
    pub fn is_quiet(&self) -> bool {
        self.unanswered.load(Ordering::Acquire) == 0
    }

    /// Whether it is out of use and does not answer. Then a task that waits for it gives up.
    pub fn hangs(&self) -> bool {
        !self.takes_writes() && self.hangs.load(Ordering::Acquire)
    }

    /// It has answered everything: it is waited for again.
    pub fn answers_again(&self) {
        self.hangs.store(false, Ordering::Release);
    }

    /// Whether an uberblock says that it holds everything.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_online() && !self.is_unsettled.load(Ordering::Acquire)
    }

    /// Begins to resilver it: from here on it takes writes. Whether it was outdated.
    pub fn begin_resilver(&self) -> bool {
        self.exchange(LeafState::Outdated, LeafState::Resilvering)
    }

    /// It is whole: from here on it counts. Returns whether it was being resilvered without error.
    pub fn end_resilver(&self) -> bool {
        self.is_unsettled.store(true, Ordering::Release);
        self.trouble.comes_back();
        self.exchange(LeafState::Resilvering, LeafState::Online)
    }

    /// An uberblock on it says that it is whole.
    pub fn settle(&self) {
        self.is_unsettled.store(false, Ordering::Release);
        // If its errors were cleared while it was away, the reason was kept until now.
        if self.counters.all().iter().all(|counter| counter.load(Ordering::Relaxed) == 0) {
            *self.last_error.lock() = None;
        }
    }

    /// The state for people: a leaf is being resilvered until an uberblock says that it is whole.
    pub fn shown_state(&self) -> LeafState {
        match self.state() {
            LeafState::Online if self.is_unsettled.load(Ordering::Acquire) => {
                LeafState::Resilvering
            }
            state => state,
        }
    }

    /// Its resilver has ended without success, if it is not over: it is outdated.
    pub fn give_up_resilver(&self) {
        self.exchange(LeafState::Resilvering, LeafState::Outdated);
    }

    /// Takes it out of use, as if it had failed, at the administrator's request. It does not come
    /// back by itself.
    pub fn take_offline(&self) {
        self.keep_out();
        self.offline.store(true, Ordering::Release);
        if self.fail() {
            *self.last_error.lock() = Some("taken offline by the administrator".into());
        }
    }

    /// The administrator wants it back: it does not wait its turn.
    pub fn ask_back(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Whether it was asked back since this was last called.
    pub fn was_asked_back(&self) -> bool {
        self.asked.swap(false, Ordering::AcqRel)
    }

    /// It does not come back by itself.
    pub fn keep_out(&self) {
        self.kept_out.store(true, Ordering::Release);
    }

    /// Whether an administrator took it out of use.
    pub fn was_taken_offline(&self) -> bool {
        self.offline.load(Ordering::Acquire)
    }

    /// Its disk was in use apart from the pool. Known until it is taken into use again.
    pub fn note_own_past(&self, why: String) {
        self.has_own_past.store(true, Ordering::Release);
        *self.last_error.lock() = Some(why);
    }

    /// Whether its disk was found to have been in use apart from the pool.
    pub fn has_own_past(&self) -> bool {
        self.has_own_past.load(Ordering::Acquire)
    }

    /// Whether it may come back by itself.
    pub fn may_come_back(&self) -> bool {
        let is_kept_out = self.kept_out.load(Ordering::Acquire) || self.is_in_drill();
        self.disk.is_some() && !is_kept_out
    }

    /// Ends its use: what is written from here on it misses. A leaf that counted is to be named by
    /// an uberblock; one that was being resilvered is named already. Whether it was in use.
    fn fail(&self) -> bool {
        self.exchange(LeafState::Online, LeafState::Failed)
            || self.exchange(LeafState::Resilvering, LeafState::Outdated)
    }

    fn exchange(&self, from: LeafState, to: LeafState) -> bool {
        let (from, to) = (from as u8, to as u8);
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks it outdated: at import, or once an uberblock says so.
    pub fn set_outdated(&self) {
        if self.state() != LeafState::Missing {
            self.state.store(LeafState::Outdated as u8, Ordering::Release);
        }
    }

    /// The last error, for people.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().clone()
    }

    /// Counts errors from 0 again. A leaf that is not in use keeps the reason.
    pub fn clear_errors(&self) {
        self.counters.all().iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        self.trouble.clear();
        if self.is_online() {
            *self.last_error.lock() = None;
        }
    }

    /// The disk, if it is there.
    pub fn disk(&self) -> Option<&Arc<dyn Disk>> {
        self.disk.as_ref()
    }

    /// These are the leaves of its vdev.
    pub(crate) fn belongs_to(&self, leaves: &[Arc<Leaf>]) {
        let others = leaves.iter().filter(|leaf| leaf.guid != self.guid);
        *self.others.lock() = others.map(Arc::downgrade).collect();
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.others.lock().is_empty()
    }

    pub(crate) fn others(&self) -> Vec<Arc<Leaf>> {
        self.others.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// It does not answer, and others do. It fails, unless it is the last that holds everything:
    /// then all wait. Whether it has failed. Who waits for it gives up then; its I/O goes on, see
    /// [`Leaf::leave`].
    pub(crate) fn fail_by_hang(&self, waited_ms: u64) -> bool {
        self.fail_unless_last(|| {
            self.hangs.store(true, Ordering::Release);
            if self.fail() {
                self.say_failed(&DiskError::Late { waited_ms });
            }
        })
    }

    /// Carries out `fail`, unless this is the last leaf that holds everything. Whether it did.
    fn fail_unless_last(&self, fail: impl FnOnce()) -> bool {
        // Two leaves that each rely on the other must not both fail.
        let others = self.others();
        let mut all: Vec<&Leaf> = others.iter().map(|leaf| &**leaf).chain([self]).collect();
        all.sort_by_key(|leaf| leaf.guid.0);
        let _turns: Vec<_> = all.iter().map(|leaf| leaf.turn.lock()).collect();
        let is_last = !others.iter().any(|other| other.is_settled());
        if is_last && !left_out(Rule::LastSideWaits) {
            return false;
        }
        fail();
        true
    }

    /// Fails a leaf that does not count and does not answer, whatever others do. Returns whether it
    /// is out of use.
    pub(crate) fn hangs_alone(&self, waited_ms: u64) -> bool {
        self.hangs.store(true, Ordering::Release);
        if self.exchange(LeafState::Resilvering, LeafState::Outdated) {
            self.say_failed(&DiskError::Late { waited_ms });
        }
        !self.takes_writes()
    }

    /// A write or flush of it failed.
    pub(crate) fn fail_with(&self, error: &DiskError) {
        if self.fail() {
            self.say_failed(error);
        } else {
            self.note(&self.counters.write_errors, error);
        }
    }

    fn say_failed(&self, error: &DiskError) {
        self.counters.write_errors.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock() = Some(error.to_string());
        tracing::error!(
            class = "disk.failed", leaf = %self.path, %error,
            "disk failed: it is taken out of use"
        );
    }

    /// Whether the log is to be told of something of this class that many sectors may have: once a
    /// minute. If so, returns how often it was left out since.
    pub(crate) fn tells(&self, class: &'static str) -> Option<u64> {
        self.told.lock().tells(class, self.ticks.world.now())
    }

    /// Tells the log that a read failed.
    pub(crate) fn tell_failed_read(&self, sector: u64, count: usize, error: &DiskError) {
        if let Some(left_out) = self.tells("disk.read") {
            tracing::warn!(
                class = "disk.read", leaf = %self.path, sector, count, %error, left_out,
                "read failed"
            );
        }
    }

    /// Notes an error. Why a leaf is out of use stays its last error, whatever fails after that.
    fn note(&self, counter: &AtomicU64, error: &DiskError) {
        counter.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last_error.lock();
        if last.is_none() || self.takes_writes() {
            *last = Some(error.to_string());
        }
    }
}

/// Bytes of so many sectors.
pub(crate) fn bytes_of(sectors: usize) -> u64 {
    (sectors * SECTOR_BYTES) as u64
}
