//! The intent log: one chain of batches, in group commit.
//!
//! # Order and durability
//! A record gets its place in the order under the hold of its txg, before its object's range is
//! unlocked. Records gather in a batch. A batch is sealed (place, sequence, checksum of the
//! previous batch) and written while the next one gathers. It is *durable* once it is on stable
//! storage on every leaf that no uberblock names outdated, and the early data of its records too.
//! Early data is written and then flushed. The batch needs no flush of its own: its write is
//! durable, or shares that flush. It is *acknowledged* once it and all batches before it are
//! durable: replay ends at the first gap.
//!
//! # Space
//! The log uses its segments in turn. Before it enters a segment again, the head of a root on disk
//! must have left it, and every batch in it must have been written. [`IntentLog::room`] is the
//! space that admission may hand out. It is never more than fits at home, where the log must find
//! room when its vdevs are lost (`moving`).

pub(crate) mod ahead;
mod early;
mod moving;
mod position;
pub(crate) mod read;
mod submit;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::log_batch::LogRecord;
use aquifer_ondisk::pool_root::LogRoot;
use aquifer_ondisk::{Place, Txg};
use aquifer_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use aquifer_sync::{Mutex, Notify, OnceLock};

pub use early::EarlyWrite;
pub(crate) use position::{Position, Ring};

use crate::error::PoolError;
use crate::flow::batches::{self, Batches, Gathered, Size};
use crate::flow::limits::LOG_PAYLOAD_PAGES_MAX;
use crate::flow::{Flow, LogRoom};
use crate::txg::TxHold;

/// Most pages that one record carries: a longer change continues in further records.
pub const RECORD_PAGES_MAX: usize = LOG_PAYLOAD_PAGES_MAX;

/// Completes when its record is durable.
#[derive(Debug, Clone)]
pub struct Ticket(Arc<Outcome>);

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    result: OnceLock<Result<(), PoolError>>,
    /// The disks do not answer: who may give up does so.
    let_go: AtomicBool,
    done: Notify,
}

impl Outcome {
    fn set(&self, result: Result<(), PoolError>) {
        let _ = self.result.set(result);
        self.done.notify_waiters();
    }

    fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
        self.done.notify_waiters();
    }
}

impl Ticket {
    /// Waits until the record is on stable storage.
    pub async fn durable(&self) -> Result<(), PoolError> {
        self.wait(false).await
    }

    /// As [`Ticket::durable`], but gives up while the disks do not answer.
    ///
    /// # Errors
    /// [`PoolError::Silent`]: the record may become durable later.
    pub async fn or_silent(&self) -> Result<(), PoolError> {
        self.wait(true).await
    }

    async fn wait(&self, gives_up: bool) -> Result<(), PoolError> {
        if left_out(Rule::WaitersComeFirst) && self.0.result.get().is_none() {
            self.0.done.notified().await;
        }
        let mut done = std::pin::pin!(self.0.done.notified());
        loop {
            done.as_mut().enable();
            if let Some(result) = self.0.result.get() {
                return result.clone();
            }
            if gives_up && self.0.let_go.load(Ordering::Acquire) {
                return Err(PoolError::Silent);
            }
            done.as_mut().await;
            done.set(self.0.done.notified());
        }
    }
}

/// Records that gather for one batch.
#[derive(Debug, Default)]
struct Gathering {
    records: Vec<LogRecord>,
    pages: Vec<Page>,
    header_bytes: usize,
    early: Vec<EarlyWrite>,
    max_txg: Txg,
    outcome: Arc<Outcome>,
}

impl Gathering {
    fn size(&self) -> Size {
        Size { pages: self.pages.len(), header_bytes: self.header_bytes }
    }
}

/// A sealed batch that the next root may still need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveBatch {
    pub sequence: u64,
    pub position: Position,
    pub previous: u128,
    pub max_txg: Txg,
}

#[derive(Debug)]
struct State {
    chain: u64,
    session: u64,
    ring: Ring,
    next: Position,
    next_sequence: u64,
    previous: u128,
    /// Highest sequence that is durable with all before it.
    mark: u64,
    /// Highest mark in a sealed batch or an uberblock.
    mark_sealed: u64,
    live: VecDeque<LiveBatch>,
    /// Head position of the newest root on disk, and of the one being written.
    head_on_disk: Position,
    head_next: Option<(u64, Position)>,
    ready: VecDeque<Gathering>,
    gathering: Gathering,
    batches: Batches,
    /// Sequence of the batch at the head that is on disk.
    head_sequence: u64,
    /// Sealed batches without acknowledgement.
    waiting: BTreeMap<u64, Waiting>,
    failure: Option<PoolError>,
    /// An uberblock began a new chain; the next root will name it.
    restarting: bool,
    /// During an unfinished replay: the floor found at import, and the head to name.
    replaying: Option<(Txg, LiveBatch)>,
    /// Batches whose write is in progress, and their places.
    flying: BTreeMap<u64, Place>,
    /// The log is moving to another place: no batch is sealed.
    change: Option<moving::Move>,
    /// The next batch found no room; it is written after the next root.
    stalled: bool,
}

/// A batch in progress, or behind one that is.
#[derive(Debug)]
struct Waiting {
    /// Durable by itself.
    durable: bool,
    position: Position,
    outcome: Arc<Outcome>,
}

impl State {
    /// The start of the range that must not be overwritten: the head of the newest root on disk, or
    /// an earlier batch whose write is still in progress. A root does not wait for the batches that
    /// it makes needless. If such a place were reused, a late write would destroy the new batch.
    fn tail(&self) -> Position {
        match self.waiting.first_key_value() {
            Some((sequence, batch))
                if *sequence < self.head_sequence && !left_out(Rule::LogReuseAfterLanding) =>
            {
                batch.position
            }
            _ => self.head_on_disk,
        }
    }

    fn room_bytes(&self) -> u64 {
        self.ring.room_bytes(self.next, self.tail())
    }

    /// Removes the batches that are durable together with all before them.
    fn durable_prefix(&mut self) -> Vec<Arc<Outcome>> {
        let mut acknowledged = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            if !first.get().durable {
                break;
            }
            let (sequence, batch) = first.remove_entry();
            self.mark = sequence;
            acknowledged.push(batch.outcome);
        }
        acknowledged
    }

    /// Whether the newest mark is not on disk yet.
    fn mark_waits(&self) -> bool {
        self.failure.is_none() && self.mark_sealed < self.mark
    }

    fn has_gathered(&self) -> bool {
        !self.ready.is_empty() || !self.gathering.records.is_empty()
    }
}

/// The intent log of a pool.
#[derive(Debug)]
pub struct IntentLog {
    state: Mutex<State>,
    early: early::EarlyWrites,
    /// Its segments on the data vdevs.
    home: Ring,
    /// Bytes that it can hold: the smaller of its present place and its home.
    capacity_bytes: AtomicU64,
    /// Bytes of all batches since it came into service.
    sealed_bytes: AtomicU64,
}

/// The start of a log when it comes into service.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub chain: u64,
    pub session: u64,
    pub ring: Ring,
    pub home: Ring,
    pub next: Position,
    pub next_sequence: u64,
    pub previous: u128,
    pub mark: u64,
    pub head: Position,
    pub live: VecDeque<LiveBatch>,
    pub restarting: bool,
}

impl Start {
    /// Whether it lies on the data vdevs.
    pub fn is_at_home(&self) -> bool {
        self.ring.vdevs() == self.home.vdevs()
    }
}

impl IntentLog {
    pub(crate) fn new(start: Start) -> Self {
        IntentLog {
            early: early::EarlyWrites::default(),
            capacity_bytes: AtomicU64::new(start.ring.bytes().min(start.home.bytes())),
            sealed_bytes: AtomicU64::new(0),
            home: start.home,
            state: Mutex::new(State {
                chain: start.chain,
                session: start.session,
                ring: start.ring,
                next: start.next,
                next_sequence: start.next_sequence,
                previous: start.previous,
                mark: start.mark,
                mark_sealed: start.mark,
                head_on_disk: start.head,
                head_sequence: start.live.front().map_or(start.next_sequence, |b| b.sequence),
                head_next: None,
                ready: VecDeque::new(),
                gathering: Gathering::default(),
                batches: Batches::default(),
                waiting: BTreeMap::new(),
                failure: None,
                live: start.live,
                restarting: start.restarting,
                replaying: None,
                flying: BTreeMap::new(),
                change: None,
                stalled: false,
            }),
        }
    }

    /// Appends a record with its payload pages. Call it under the hold of the open txg, before the
    /// changed range is unlocked: the log then has the order of the changes. `record.txg` may be an
    /// older txg that is not on disk yet (COMMIT of a range that is being synced).
    pub fn append(
        &self,
        hold: &TxHold,
        record: LogRecord,
        pages: Vec<Page>,
        early: Vec<EarlyWrite>,
    ) -> Ticket {
        assert!(record.txg <= hold.txg(), "a record of a txg that is not open yet");
        assert_eq!(record.page_sums.len(), pages.len(), "a checksum a page");
        assert!(pages.len() <= RECORD_PAGES_MAX, "a record of at most {RECORD_PAGES_MAX} pages");
        let mut state = self.state.lock();
        let size = Size { pages: pages.len(), header_bytes: record.encoded_bytes() };
        if batches::splits(state.gathering.size(), size) {
            let sealed = std::mem::take(&mut state.gathering);
            state.ready.push_back(sealed);
        }
        let gathering = &mut state.gathering;
        gathering.header_bytes += size.header_bytes;
        gathering.max_txg = gathering.max_txg.max(record.txg);
        gathering.records.push(record);
        gathering.pages.extend(pages);
        gathering.early.extend(early);
        let ticket = Ticket(gathering.outcome.clone());
        if let Some(error) = &state.failure {
            ticket.0.set(Err(error.clone()));
            return ticket;
        }
        let gathered = Gathered { full: state.ready.len(), pages: state.gathering.pages.len() };
        let moving = state.change.is_some();
        if state.batches.record_gathered(gathered, moving) {
            drop(state);
            submit::spawn(hold.pool());
        }
        ticket
    }

    pub(crate) fn place(&self, position: Position) -> Place {
        self.state.lock().ring.place(position)
    }

    /// Highest sequence known to be durable together with all before it.
    pub fn mark(&self) -> u64 {
        self.state.lock().mark
    }

    /// Its room. The rest is for batches that are not sealed yet, whatever their sizes.
    pub(crate) fn room(&self) -> LogRoom {
        let state = self.state.lock();
        let gathered = state.ready.iter().chain([&state.gathering]);
        let gathered: usize =
            gathered.map(|batch| batch.pages.len() * 4096 + batch.header_bytes + 4096).sum();
        let free_bytes = state.room_bytes();
        let left_bytes = match left_out(Rule::LogReuseBehindRoot) {
            true => u64::MAX / 2,
            false => free_bytes.min(self.home.bytes()).saturating_sub(gathered as u64),
        };
        LogRoom { left_bytes, free_bytes, capacity_bytes: self.capacity_bytes() }
    }

    /// Bytes of all batches since it came into service.
    pub(crate) fn sealed_bytes(&self) -> u64 {
        self.sealed_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that it can hold.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Relaxed)
    }

    /// Fails the log: it acknowledges nothing any more.
    pub(crate) fn fail(&self, error: PoolError) {
        let mut state = self.state.lock();
        let error = state.failure.get_or_insert(error).clone();
        let waiting = std::mem::take(&mut state.waiting);
        waiting.into_values().for_each(|batch| batch.outcome.set(Err(error.clone())));
        let ready = std::mem::take(&mut state.ready);
        ready.into_iter().for_each(|batch| batch.outcome.set(Err(error.clone())));
        state.gathering.outcome.set(Err(error));
        self.early.fail();
    }

    /// The oldest batch that is on its way to disk.
    pub(crate) fn owes(&self) -> Option<u64> {
        self.state.lock().waiting.first_key_value().map(|(sequence, _)| *sequence)
    }

    /// The disks do not answer: those who wait for a record, and may give up, do so.
    pub(crate) fn let_go(&self) {
        let state = self.state.lock();
        state.waiting.values().for_each(|batch| batch.outcome.let_go());
        let gathered = state.ready.iter().chain([&state.gathering]);
        // One without records is the next change's, after the disks have answered.
        let gathered = gathered.filter(|batch| !batch.records.is_empty());
        gathered.for_each(|batch| batch.outcome.let_go());
    }

    /// Begins a replay: until everything is applied, roots keep this floor.
    pub(crate) fn begin_replay(&self, floor: Txg, first: LiveBatch) {
        self.state.lock().replaying = Some((floor, first));
    }

    /// Notes that everything before `next` is applied, in txgs up to `applied_in`.
    pub(crate) fn replayed_up_to(&self, next: Option<LiveBatch>, applied_in: Txg) {
        let mut state = self.state.lock();
        let limit = next.map_or(u64::MAX, |batch| batch.sequence);
        for batch in &mut state.live {
            if batch.sequence < limit && batch.max_txg == Txg(u64::MAX) {
                batch.max_txg = applied_in;
            }
        }
        state.replaying = match (state.replaying, next) {
            (Some((floor, _)), Some(next)) => Some((floor, next)),
            _ => None,
        };
    }

    /// The log as root `txg` describes it: its head is the first batch with a record of a later
    /// txg.
    pub(crate) fn root_for(&self, txg: Txg) -> LogRoot {
        let mut state = self.state.lock();
        if let Some(new) = state.name_new_chain(txg) {
            return new;
        }
        let head = state.live.iter().find(|batch| batch.max_txg > txg).copied();
        let (sequence, position, previous) = match head {
            Some(batch) => (batch.sequence, batch.position, batch.previous),
            None => {
                // An empty log has its next position as head.
                state.next = state.ring.place_for_next(state.next);
                (state.next_sequence, state.next, state.previous)
            }
        };
        state.head_next = Some((sequence, position));
        LogRoot {
            chain: state.chain,
            head_sequence: sequence,
            head_place: state.ring.place(position),
            previous_checksum: previous,
            segments: state.ring.runs(),
        }
    }

    /// The sequence that the next batch will have.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.state.lock().next_sequence
    }

    /// The sequence of the first batch that the newest root still needs.
    pub(crate) fn head_sequence(&self) -> u64 {
        self.state.lock().head_sequence
    }

    /// Whether batches that an import found are still to be replayed.
    pub(crate) fn is_replaying(&self) -> bool {
        self.state.lock().replaying.is_some()
    }

    /// Records up to this txg are skipped by a replay from root `txg`.
    pub(crate) fn floor_for(&self, txg: Txg) -> Txg {
        match self.state.lock().replaying {
            Some((floor, _)) if !left_out(Rule::ReplayFloor) => floor,
            _ => txg,
        }
    }

    /// Returns whether the root about to be named has the chain that an uberblock began, and clears
    /// that state.
    pub(crate) fn restart_done(&self) -> bool {
        std::mem::take(&mut self.state.lock().restarting)
    }

    /// The root of the last [`IntentLog::root_for`] is on disk: everything before its head is free.
    pub(crate) fn root_on_disk(&self, flow: &Flow) {
        let mut state = self.state.lock();
        if let Some((sequence, head)) = state.head_next.take() {
            (state.head_sequence, state.head_on_disk) = (sequence, head);
            while state.live.front().is_some_and(|batch| batch.position != head) {
                state.live.pop_front();
            }
        }
        let Some(committed) = state.take_new_chain() else { return };
        let capacity = state.ring.bytes().min(self.home.bytes());
        self.capacity_bytes.store(capacity, Ordering::Relaxed);
        flow.log_moved(state.ring.vdevs() == self.home.vdevs());
        drop(state);
        committed.into_iter().for_each(|outcome| outcome.set(Ok(())));
    }
}
