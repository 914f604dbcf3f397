//! A log in simulated time: a device that takes so long for each batch, and does several at once.

use std::collections::BTreeMap;

use super::super::limits::LOG_IDLE_MS;
use super::*;

const TAKES_US: u64 = 100;
/// The timer of a log that goes idle, in microseconds.
const IDLE_US: u64 = LOG_IDLE_MS * 1000;
const PAGE: Size = Size { pages: 1, header_bytes: 100 };
const ROOMY: u64 = LOG_IDLE_ROOM_BYTES_MIN + 1;

#[derive(Default)]
struct Log {
    batches: Batches,
    now_us: u64,
    full: Vec<Size>,
    gathering: Size,
    /// Batches on their way, by when they come back.
    flying: BTreeMap<(u64, usize), Size>,
    /// When each went out, with how many pages, and how many were on their way with it.
    sent: Vec<(u64, usize, usize)>,
    /// The timer: when it ends, and what it began with.
    timer: Option<(u64, u64)>,
    mark_waits: bool,
    marks: Vec<u64>,
    moving: bool,
}

impl Log {
    /// A record comes.
    fn append(&mut self, size: Size) {
        if splits(self.gathering, size) {
            self.full.push(std::mem::take(&mut self.gathering));
        }
        self.gathering.pages += size.pages;
        self.gathering.header_bytes += size.header_bytes;
        let gathered = Gathered { full: self.full.len(), pages: self.gathering.pages };
        if self.batches.record_gathered(gathered, self.moving) {
            self.send();
        }
    }

    /// A sender takes what is oldest, or ends.
    fn send(&mut self) {
        let batch = match self.full.is_empty() {
            false => self.full.remove(0),
            true => std::mem::take(&mut self.gathering),
        };
        if self.moving || batch == Size::default() {
            self.batches.sender_ends();
            if self.batches.arms_timer(self.mark_waits) {
                self.timer = Some((self.now_us + IDLE_US, self.batches.records()));
            }
            return;
        }
        let payload = batch.pages + batch.header_bytes.div_ceil(4096);
        assert!(payload <= aquifer_ondisk::log_batch::BATCH_SECTORS_MAX, "{batch:?}");
        self.flying.insert((self.now_us + TAKES_US, self.sent.len()), batch);
        self.sent.push((self.now_us, batch.pages, self.flying.len()));
        assert!(self.flying.len() <= LOG_BATCHES_IN_FLIGHT_MAX);
        assert!(self.flying.len() <= self.batches.in_flight);
    }

    /// Time goes on to `end_us`.
    fn run(&mut self, end_us: u64) {
        loop {
            let batch = self.flying.keys().next().map(|(at, _)| *at);
            let timer = self.timer.map(|(at, _)| at);
            let next = batch.into_iter().chain(timer).min().filter(|at| *at <= end_us);
            let Some(next) = next else { break };
            self.now_us = next;
            if batch == Some(next) {
                self.flying.pop_first();
                self.mark_waits = true;
                if self.batches.batch_came_back(self.full.len()) {
                    self.send();
                }
                self.send();
            } else {
                self.timer_ends(ROOMY);
            }
        }
        self.now_us = end_us;
    }

    fn timer_ends(&mut self, room_bytes: u64) {
        let (_, records) = self.timer.take().expect("a timer");
        match self.batches.timer_ends(records, self.mark_waits, room_bytes, self.moving) {
            Idle::Busy => self.timer = Some((self.now_us + IDLE_US, self.batches.records())),
            Idle::Over => {}
            Idle::WritesMark => {
                self.marks.push(self.now_us);
                self.mark_waits = false;
                self.batches.sender_ends();
            }
        }
    }
}

#[test]
fn a_record_alone_goes_at_once_and_those_behind_it_together() {
    let mut log = Log::default();
    log.append(PAGE);
    for _ in 1..LOG_SECOND_BATCH_PAGES_MIN {
        log.append(PAGE);
    }
    assert_eq!(log.sent, [(0, 1, 1)]);
    log.run(TAKES_US);
    assert_eq!(log.sent, [(0, 1, 1), (TAKES_US, LOG_SECOND_BATCH_PAGES_MIN - 1, 1)]);
}

#[test]
fn a_second_batch_and_a_third_go_beside_it_once_they_are_worth_it() {
    let mut log = Log::default();
    for _ in 0..1 + 5 * LOG_SECOND_BATCH_PAGES_MIN {
        log.append(PAGE);
        log.now_us += 1;
    }
    let eight = LOG_SECOND_BATCH_PAGES_MIN;
    assert_eq!(log.sent, [(0, 1, 1), (8, eight, 2), (16, eight, 3)]);
    // What is full does not wait for pages.
    let mut log = Log::default();
    log.append(PAGE);
    let large = Size { pages: 0, header_bytes: LOG_HEADER_BYTES_MAX - 4096 };
    log.append(large);
    assert_eq!(log.sent.len(), 1);
    log.append(large);
    assert_eq!(log.sent.len(), 2);
}

#[test]
fn a_batch_that_is_full_goes_as_soon_as_one_comes_back() {
    let mut log = Log::default();
    for _ in 0..20 {
        log.append(Size { pages: LOG_PAYLOAD_PAGES_MAX, header_bytes: 100 });
    }
    log.run(TAKES_US * 7);
    // Twenty at three a turn; the last has no other beside it.
    let turns: Vec<u64> = log.sent.iter().map(|(at, _, _)| at / TAKES_US).collect();
    let expected: Vec<u64> = (0..20).map(|number| number / 3).collect();
    assert_eq!(turns, expected);
}

#[test]
fn a_record_begins_a_batch_when_pages_or_header_are_full() {
    let of = |pages, header_bytes| Size { pages, header_bytes };
    let own = BATCH_HEADER_BYTES + BATCH_TRAILER_BYTES;
    assert!(!splits(of(LOG_PAYLOAD_PAGES_MAX - 1, 0), PAGE));
    assert!(splits(of(LOG_PAYLOAD_PAGES_MAX, 0), PAGE));
    assert!(!splits(of(0, LOG_HEADER_BYTES_MAX - own - 100), PAGE));
    assert!(splits(of(0, LOG_HEADER_BYTES_MAX - own - 99), PAGE));
    // Any record fits in a batch of its own.
    assert!(!splits(Size::default(), of(LOG_PAYLOAD_PAGES_MAX, LOG_HEADER_BYTES_MAX - own)));
}

#[test]
fn a_log_that_goes_idle_writes_its_mark_once_and_a_busy_one_none() {
    let mut log = Log::default();
    // Busy: a record every millisecond for a second.
    for tick in 0..1000 {
        log.run(tick * 1000);
        log.append(PAGE);
    }
    assert_eq!(log.marks, [0; 0]);
    // Idle: one mark, between one and two turns of the timer after the last record.
    log.run(10_000_000);
    let [mark] = log.marks[..] else { panic!("{:?}", log.marks) };
    assert!((999_000 + IDLE_US..=999_000 + 2 * IDLE_US + TAKES_US).contains(&mark), "{mark}");
    // And again after the next record.
    log.append(PAGE);
    log.run(20_000_000);
    assert_eq!(log.marks.len(), 2);
}

#[test]
fn a_mark_is_never_written_at_the_expense_of_records() {
    for (room, marks) in [(ROOMY, 1), (ROOMY - 1, 0)] {
        let mut log = Log::default();
        log.append(PAGE);
        log.run(TAKES_US);
        log.now_us += IDLE_US;
        log.timer_ends(room);
        assert_eq!((log.marks.len(), log.timer), (marks, None));
        // The next record arms it again.
        log.append(PAGE);
        log.run(log.now_us + TAKES_US);
        assert!(log.timer.is_some());
    }
}

#[test]
fn nothing_goes_while_the_log_moves_and_what_was_held_up_goes_after_it() {
    let mut log = Log { moving: true, ..Log::default() };
    for _ in 0..100 {
        log.append(PAGE);
    }
    assert_eq!((log.sent.len(), log.batches.in_flight), (0, 0));
    log.moving = false;
    log.batches.held_up_goes();
    log.send();
    assert_eq!(log.sent, [(0, 100, 1)]);
    // One that was under way when it began ends.
    log.append(PAGE);
    log.moving = true;
    log.run(TAKES_US);
    assert_eq!(log.batches.in_flight, 0);
    // No mark while it moves: the timer runs on.
    log.run(TAKES_US + 10 * IDLE_US);
    assert!(log.marks.is_empty() && log.timer.is_some());
}

#[test]
fn what_was_held_up_goes_side_by_side_once_the_first_comes_back() {
    let mut log = Log { moving: true, ..Log::default() };
    for _ in 0..2 {
        log.append(Size { pages: LOG_PAYLOAD_PAGES_MAX, header_bytes: 100 });
    }
    log.append(PAGE);
    log.moving = false;
    log.batches.held_up_goes();
    log.send();
    log.run(TAKES_US);
    let when: Vec<u64> = log.sent.iter().map(|(at, _, _)| *at).collect();
    assert_eq!(when, [0, TAKES_US, TAKES_US]);
}

#[test]
fn one_timer_runs_at_a_time_and_ends_when_the_mark_is_written() {
    let mut batches = Batches::default();
    assert!(!batches.arms_timer(false));
    assert!(batches.arms_timer(true) && !batches.arms_timer(true));
    // A batch that is still on its way will carry the mark, or be followed by one that does.
    assert!(batches.record_gathered(Gathered { full: 0, pages: 1 }, false));
    assert_eq!(batches.timer_ends(1, true, ROOMY, false), Idle::Busy);
    batches.sender_ends();
    assert_eq!(batches.timer_ends(0, true, ROOMY, false), Idle::Busy);
    assert_eq!(batches.timer_ends(1, true, ROOMY, true), Idle::Busy);
    // A batch has carried it meanwhile, busy or not.
    assert_eq!(batches.timer_ends(0, false, ROOMY, false), Idle::Over);
    assert!(batches.arms_timer(true));
    assert_eq!(batches.timer_ends(1, false, ROOMY, false), Idle::Over);
    assert!(batches.arms_timer(true));
    assert_eq!(batches.timer_ends(1, true, ROOMY, false), Idle::WritesMark);
    assert_eq!(batches.in_flight, 1);
}
