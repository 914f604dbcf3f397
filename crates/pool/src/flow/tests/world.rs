//! A pool in numbers, which obeys the plan: writers, two txgs, disks that become slow or stand
//! still, a log that moves.

mod sync;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use aquifer_sim::Rng;

use super::super::batches::Gathered;
use super::super::limits::{
    EASY_SHARE, LOG_BATCHES_IN_FLIGHT_MAX, LOG_EASY_PERCENT, PRESSED_SHARE,
    SYNC_WINDOW_SECTORS_FIRST, THROTTLE_LOOK_MS,
};
use super::super::{Devices, Entry, Held, LogRoom, Taken, Turn};
use sync::Syncing;

use super::events::{Event, LOG_BYTES, MIB, Plan, Traced};

const STEP: Duration = Duration::from_micros(500);
/// However slow the disks were, all is let in so long after the last came.
const REST: Duration = Duration::from_secs(120);

/// Names of events, each of which must have happened in some world.
pub const SIGHTS: [&str; 13] = [
    "delayed",
    "calm",
    "refused",
    "passed",
    "alone",
    "ahead",
    "awaited",
    "grown",
    "shrunk",
    "log delayed",
    "early",
    "logged",
    "second batch",
];

#[derive(Debug, Clone, Copy)]
struct Change {
    bytes: u64,
    /// Its record: larger, where much is written over in one txg.
    log_bytes: u64,
    sparse: bool,
    /// When it asks again; from then on it is in the queue.
    wakes: Duration,
    turn: Option<Turn>,
}

pub struct World {
    pub now: Duration,
    pub traced: Traced,
    pub seen: BTreeMap<&'static str, u64>,
    rng: Rng,
    /// Bytes that writers bring in a step, at most; sectors that the disk takes in one.
    load: u64,
    disk: u64,
    /// Bytes of the log for each that becomes dirty.
    record_times: u64,
    log_at_home: bool,
    devices: Devices,
    asking: VecDeque<Change>,
    waiting: Vec<Change>,
    open: Held,
    sparse_bytes: u64,
    /// Dirty bytes and bytes of the log that are set aside.
    admitted: (u64, u64),
    close_requested: bool,
    awaited: bool,
    sync: Option<Syncing>,
    window_free: usize,
    /// Pages that gather in the log, and when batches on their way come back.
    gathering: usize,
    batches: VecDeque<Duration>,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            now: Duration::from_secs(1),
            traced: Traced::new(),
            seen: BTreeMap::new(),
            rng: Rng::stream(seed, "flow"),
            load: 0,
            disk: 100,
            log_at_home: true,
            devices: Devices::default(),
            asking: VecDeque::new(),
            waiting: Vec::new(),
            open: Held::default(),
            sparse_bytes: 0,
            admitted: (0, 0),
            record_times: 1,
            close_requested: false,
            awaited: false,
            sync: None,
            window_free: SYNC_WINDOW_SECTORS_FIRST,
            gathering: 0,
            batches: VecDeque::new(),
        }
    }

    fn happens(&mut self, event: Event) -> Plan {
        self.traced.happens(self.now, event)
    }

    fn saw(&mut self, sight: &'static str) {
        *self.seen.entry(sight).or_default() += 1;
    }

    /// Half a millisecond passes.
    pub fn step(&mut self) {
        self.now += STEP;
        self.change_weather();
        self.arrive();
        self.settle();
    }

    fn settle(&mut self) {
        self.ask();
        self.wake();
        self.close();
        self.hand_out();
        self.write();
        self.end_sync();
        self.end_batches();
    }

    /// Nobody comes any more: all are let in, in the end.
    pub fn come_to_rest(&mut self) {
        let end = self.now + REST;
        self.disk = self.disk.max(20);
        while !self.asking.is_empty() || !self.waiting.is_empty() || self.sync.is_some() {
            self.now += STEP;
            self.settle();
            assert!(self.now < end, "{} ask, {} wait", self.asking.len(), self.waiting.len());
        }
    }

    /// Now and then load, disks and the log's place change.
    fn change_weather(&mut self) {
        if self.rng.below(1000) == 0 {
            self.load = [0, MIB / 100, MIB / 20, MIB / 4, 2 * MIB][self.rng.index(5)];
            self.record_times = 1 + 3 * self.rng.below(2);
        }
        if self.rng.below(1500) == 0 {
            // From 8 MiB a second to 800; or it stands still.
            self.disk = [0, 1, 4, 20, 100, 100][self.rng.index(6)];
        }
        if self.rng.below(4000) == 0 {
            self.log_at_home = !self.log_at_home;
            let plan = self.happens(Event::LogMoved { home: self.log_at_home });
            assert_eq!(plan, Plan::Yes(self.log_at_home), "a log vdev counts as fast at first");
        }
        if self.rng.below(2000) == 0 {
            (self.close_requested, self.awaited) = (true, self.rng.coin());
        }
    }

    fn arrive(&mut self) {
        let mut bytes = self.rng.below(self.load + 1);
        while bytes >= 4096 {
            let size = match self.rng.below(3000) {
                // Larger than all txgs together.
                0 => 40 * MIB,
                _ => 4096 << self.rng.below(9),
            };
            let sparse = size <= 4 * 4096 && self.rng.below(10) == 0;
            let log_bytes = size.min(10 * MIB) * self.record_times;
            let change = Change { bytes: size, log_bytes, sparse, wakes: self.now, turn: None };
            self.asking.push_back(change);
            bytes = bytes.saturating_sub(size);
        }
        // Writers are not without number.
        self.asking.truncate(64);
    }

    fn dirty(&self) -> u64 {
        self.admitted.0 + self.open.dirty_bytes + self.sync.as_ref().map_or(0, |sync| sync.bytes)
    }

    fn log_room(&self) -> LogRoom {
        let syncing = self.sync.as_ref().map_or(0, |sync| sync.logged_bytes);
        let left = LOG_BYTES.saturating_sub(self.open.logged_bytes + syncing);
        LogRoom { left_bytes: left, free_bytes: left, capacity_bytes: LOG_BYTES }
    }

    /// How full the open txg is, with all that is on its way into it.
    fn coming(&mut self) -> f64 {
        let held = Held { dirty_bytes: self.open.dirty_bytes + self.admitted.0, ..self.open };
        self.fill(held)
    }

    fn fill(&mut self, held: Held) -> f64 {
        let Plan::Fill(fill) = self.happens(Event::Fills(held)) else { panic!("a fill") };
        fill
    }

    /// Those without room ask for it, in turn.
    fn ask(&mut self) {
        while let Some(change) = self.asking.front().copied() {
            let Change { bytes, log_bytes, sparse, .. } = change;
            let log = self.log_room();
            let dirty = self.dirty();
            let taken = Taken {
                dirty_bytes: dirty,
                sparse_bytes: self.sparse_bytes,
                log_bytes: self.admitted.1,
            };
            let plan = self.happens(Event::Asks { sparse, bytes, log_bytes, taken, log });
            let Plan::Entry(entry) = plan else { panic!("an entry") };
            if entry == Entry::Full {
                self.saw("refused");
                self.close_requested = true;
                // Alone in the pool, anything finds room.
                assert!(dirty > 0, "{change:?} finds no room in an empty pool");
                return;
            }
            self.asking.pop_front();
            let cap = self.traced.limits.dirty_cap_bytes;
            assert!(dirty + bytes <= cap || dirty == 0, "{dirty} bytes dirty, and {bytes}");
            assert!(self.admitted.1 + log_bytes <= log.left_bytes, "the log is promised twice");
            if dirty + bytes > cap {
                self.saw("alone");
            }
            self.admitted.0 += bytes;
            self.admitted.1 += log_bytes;
            if entry == Entry::Passes {
                self.saw("passed");
                self.sparse_bytes += bytes;
                assert!(sparse && self.sparse_bytes <= cap / 2 / 16, "a lane for few");
                self.enter(change);
            } else {
                self.delay_for_log(log, change);
            }
        }
    }

    fn delay_for_log(&mut self, log: LogRoom, change: Change) {
        let Plan::Delay(delay) = self.happens(Event::LogDelays(log)) else { panic!("a delay") };
        let used = 100 - log.free_bytes * 100 / log.capacity_bytes;
        assert!(delay.is_none() || used > LOG_EASY_PERCENT, "delayed at {used} %");
        if delay.is_some() {
            self.saw("log delayed");
        }
        let wakes = self.now + delay.unwrap_or_default();
        self.waiting.push(Change { wakes, ..change });
    }

    /// Whether nobody may be delayed by the disks.
    fn is_calm(&self, fill: f64) -> bool {
        match &self.sync {
            None => fill < 1.0,
            Some(sync) => sync.share < PRESSED_SHARE && fill < EASY_SHARE,
        }
    }

    /// Those whose time has come queue up, or look whether it is their turn.
    fn wake(&mut self) {
        let due: Vec<Change> = self.waiting.extract_if(.., |c| c.wakes <= self.now).collect();
        for mut change in due {
            let fill = self.coming();
            let calm = self.is_calm(fill);
            if change.turn.is_none() {
                let share = bytes_share(change.bytes, self.traced.limits.txg_dirty_bytes);
                let plan = self.happens(Event::Queues { share, fill });
                let Plan::Turn(turn) = plan else { panic!("a turn") };
                change.turn = turn;
            }
            let delay = change.turn.and_then(|turn| self.delay(turn, fill));
            assert!(!(calm && delay.is_some()), "delayed at {fill}");
            match delay {
                Some(delay) => {
                    let longest = Duration::from_millis(THROTTLE_LOOK_MS);
                    assert!(delay > Duration::ZERO && delay <= longest, "{delay:?}");
                    self.saw("delayed");
                    change.wakes = self.now + delay;
                    self.waiting.push(change);
                }
                None => {
                    if calm {
                        self.saw("calm");
                    }
                    self.check_order(change, fill);
                    self.enter(change);
                }
            }
        }
    }

    fn delay(&mut self, turn: Turn, fill: f64) -> Option<Duration> {
        let Plan::Delay(delay) = self.happens(Event::Waits { turn, fill }) else { panic!() };
        delay
    }

    /// A change that queued up before one that is let in may enter, too.
    fn check_order(&mut self, change: Change, fill: f64) {
        let turns: Vec<Turn> = self.waiting.iter().filter_map(|other| other.turn).collect();
        for turn in turns {
            if change.turn.is_none_or(|own| turn < own) {
                assert_eq!(self.delay(turn, fill), None, "out of turn");
            }
        }
    }

    /// A change enters the open txg, and its record gathers.
    fn enter(&mut self, Change { bytes, log_bytes, .. }: Change) {
        self.admitted.0 -= bytes;
        self.admitted.1 -= log_bytes;
        self.open.dirty_bytes += bytes;
        self.open.logged_bytes += log_bytes;
        if self.fill(self.open) >= 1.0 {
            self.close_requested = true;
        }
        self.gathering += 1;
        let gathered = Gathered { full: 0, pages: self.gathering };
        if self.happens(Event::RecordGathered { gathered, moving: false }) == Plan::Yes(true) {
            self.send();
        }
    }

    fn send(&mut self) {
        if self.gathering == 0 {
            self.happens(Event::SenderEnds);
            return;
        }
        self.gathering = 0;
        let takes = Duration::from_micros(500 + self.rng.below(2000));
        self.batches.push_back(self.now + takes);
        assert!(self.batches.len() <= LOG_BATCHES_IN_FLIGHT_MAX, "too many batches");
        if self.batches.len() > 1 {
            self.saw("second batch");
        }
    }

    fn end_batches(&mut self) {
        while self.batches.front().is_some_and(|at| *at <= self.now) {
            self.batches.pop_front();
            assert_eq!(self.happens(Event::BatchCameBack { full: 0 }), Plan::Yes(false));
            self.send();
        }
        assert!(self.gathering == 0 || !self.batches.is_empty(), "a record is left behind");
    }
}

#[expect(clippy::cast_precision_loss, reason = "small")]
fn bytes_share(bytes: u64, of_bytes: u64) -> f64 {
    bytes as f64 / of_bytes as f64
}
