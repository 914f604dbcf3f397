//! The load of a pool, kept in the pool itself: ten seconds by ten seconds for a day, ten minutes
//! by ten minutes for a month ([`aquifer_ondisk::load`]). It lies in the tree of the history.
//!
//! # Invariants
//! - Bounded: a span of time has the records of the disks, of the clients, and of the VM disks
//!   that were busiest in it, and a later span takes its place ([`disks_kept`]).
//! - Whatever the clock does, a sample goes where the span of its time lies. What lies there of
//!   another span goes.
//! - It waits for a txg that comes anyhow, and goes out once a minute ([`WRITE_GAP`]). Only what
//!   waited long asks for one ([`Load::is_due`]). A crash loses what waits.
//! - Nothing else depends on it: if the tree is damaged, the pool serves on without.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aquifer_object::btree;
use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::dataset::{Item, ItemKey};
use aquifer_ondisk::tree_node::Namespace;
use aquifer_pool::{Pool, PoolError, SyncContext};
use aquifer_sync::Mutex;

pub use aquifer_ondisk::load::{
    LOAD_SAMPLES, LoadGrain, LoadOf, LoadPart, LoadRecord, LoadSample, Rough,
};

/// Time between two writes, unless the pool leaves.
pub const WRITE_GAP: Duration = Duration::from_secs(60);
/// An idle pool writes what it has after so long.
pub const IDLE_GAP: Duration = Duration::from_secs(600);
/// VM disks of a span at most.
const DISKS_MAX: u64 = 32;
/// Spans that wait for a write: more come together only while the disks do not answer.
const WAITING_MAX: usize = 3;

/// VM disks whose load a pool keeps in each span. Of the records a leaf has four or five, and each
/// leaf has two copies at most: all of them take a fourth of the space that is kept back at most,
/// as much as the acts. A pool of 8 GiB has 32, the smallest none: only its disks and clients.
pub fn disks_kept(slop_sectors: u64) -> usize {
    let spans = LoadGrain::TenSeconds.slots() + LoadGrain::TenMinutes.slots();
    let sectors_of_one = spans * 3 / 4;
    let kept = (slop_sectors / 4 / sectors_of_one).saturating_sub(2).min(DISKS_MAX);
    usize::try_from(kept).unwrap_or(0)
}

/// The load of a pool: what is to be written.
#[derive(Debug, Default)]
pub struct Load(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By grain and begin; the one that was noted last is the open one of its grain.
    spans: BTreeMap<(LoadGrain, u64), Span>,
    open: BTreeMap<LoadGrain, u64>,
    /// When something was written, or first waited, by the world's clock.
    since: Option<Duration>,
    /// Clients did something that is not written.
    busy: bool,
    /// The pool leaves: the next sync writes all.
    leaves: bool,
    is_given_up: bool,
}

/// The samples of a span that is not over, or not on disk.
#[derive(Debug, Default)]
struct Span {
    records: BTreeMap<LoadOf, LoadRecord>,
    /// Keys of the slot that the tree has, as far as is known: then those of its own span were
    /// read.
    on_disk: Option<BTreeSet<ItemKey>>,
    /// Counts changes, and those that are on disk.
    noted: u64,
    written: u64,
    committed: u64,
}

/// Items that a sync writes of the load.
pub(crate) type LoadOps = BTreeMap<ItemKey, Option<Item>>;

impl Load {
    /// Notes samples of the time that begins at `at_s`, seconds since 1970.
    pub fn note(
        &self,
        now: Duration,
        (grain, at_s): (LoadGrain, u64),
        samples: impl IntoIterator<Item = (LoadOf, LoadSample)>,
    ) {
        let mut state = self.0.lock();
        if state.is_given_up {
            return;
        }
        let begin_s = grain.begin_of(at_s);
        state.open.insert(grain, begin_s);
        state.since.get_or_insert(now);
        let index = usize::try_from((at_s - begin_s) / grain.seconds()).unwrap_or(0);
        let mut busy = false;
        let span = state.spans.entry((grain, begin_s)).or_default();
        for (of, sample) in samples {
            // Not the disks: what is written of the load is load as well.
            busy |= of != LoadOf::Disks && sample.is_busy();
            let record = span.records.entry(of);
            let record = record.or_insert_with(|| LoadRecord::new(grain, of, begin_s));
            if let Some(place) = record.samples.get_mut(index) {
                *place = Some(sample);
            }
        }
        span.noted += 1;
        state.busy |= busy;
        state.drop_some(grain);
    }

    /// Whether so much time has passed that a pool without changes should write what waits.
    pub fn is_due(&self, now: Duration) -> bool {
        let state = self.0.lock();
        let gap = if state.busy { WRITE_GAP } else { IDLE_GAP };
        state.waits() && state.since.is_some_and(|since| now.saturating_sub(since) >= gap)
    }

    /// The pool is about to leave: its next sync writes all.
    pub fn leaves(&self) {
        self.0.lock().leaves = true;
    }

    /// Collects the items that a sync at `now` writes below `root`: none if the last write was a
    /// moment ago.
    pub(crate) async fn take(
        &self,
        sync: &SyncContext,
        root: Option<BlockPointer>,
        now: Duration,
    ) -> Result<LoadOps, PoolError> {
        let wanted = {
            let state = self.0.lock();
            let is_time = state.since.is_none_or(|since| now.saturating_sub(since) >= WRITE_GAP);
            if !state.waits() || !(is_time || state.leaves) {
                return Ok(LoadOps::new());
            }
            state
                .spans
                .iter()
                .filter(|(_, span)| span.waits())
                .map(|(key, span)| (*key, span.on_disk.is_none()))
                .collect::<Vec<_>>()
        };
        for ((grain, begin_s), _) in wanted.iter().filter(|(_, is_unread)| *is_unread) {
            let found = records(sync, root, *grain, *begin_s).await?;
            if let Some(span) = self.0.lock().spans.get_mut(&(*grain, *begin_s)) {
                span.found(*begin_s, found);
            }
        }
        let kept = disks_kept(sync.pool().slop_sectors());
        let mut state = self.0.lock();
        state.since = Some(now);
        (state.busy, state.leaves) = (false, false);
        let mut ops = LoadOps::new();
        for (key, _) in wanted {
            if let Some(span) = state.spans.get_mut(&key) {
                ops.extend(span.ops(kept));
            }
        }
        Ok(ops)
    }

    /// Notes that what the last sync wrote is on disk.
    pub(crate) fn committed(&self) {
        let mut state = self.0.lock();
        let State { spans, open, .. } = &mut *state;
        for span in spans.values_mut() {
            span.committed = span.written;
        }
        spans.retain(|(grain, begin_s), span| {
            span.waits() || span.written != span.committed || open.get(grain) == Some(begin_s)
        });
    }

    /// The tree is damaged: nothing more is noted.
    pub(crate) fn give_up(&self) {
        *self.0.lock() = State { is_given_up: true, ..State::default() };
    }

    /// Returns the records of a span that are known beside the tree: of one, or of all.
    fn waiting(&self, grain: LoadGrain, begin_s: u64, of: Option<LoadOf>) -> Vec<LoadRecord> {
        let state = self.0.lock();
        let span = state.spans.get(&(grain, begin_s));
        let records = span.into_iter().flat_map(|span| span.records.values());
        records.filter(|record| of.is_none_or(|of| record.of == of)).cloned().collect()
    }

    /// The records of the spans of a time, oldest first: of one, or of all of the pool.
    ///
    /// # Errors
    /// Errors of the pool. Invalid records are skipped.
    pub(crate) async fn read(
        &self,
        pool: &Pool,
        root: Option<BlockPointer>,
        asked: &LoadAsked,
    ) -> Result<Vec<LoadRecord>, PoolError> {
        let mut all = Vec::new();
        for begin_s in asked.spans() {
            let found = match asked.of {
                None => records(pool, root, asked.grain, begin_s).await?,
                Some(of) => {
                    let key = of.key(asked.grain, begin_s);
                    btree::lookup::<Namespace, Pool>(pool, root, key).await?.into_iter().collect()
                }
            };
            let found = found.into_iter().filter_map(|item| decode(asked.grain, begin_s, &item));
            let mut span: BTreeMap<LoadOf, LoadRecord> =
                found.map(|record| (record.of, record)).collect();
            if let Some(of) = asked.of {
                span.retain(|found, _| *found == of);
            }
            for newer in self.waiting(asked.grain, begin_s, asked.of) {
                let older = span.remove(&newer.of);
                span.insert(newer.of, merged(newer, older));
            }
            all.extend(span.into_values());
        }
        Ok(all)
    }
}

/// Which load is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadAsked {
    /// How fine.
    pub grain: LoadGrain,
    /// From then on, seconds since 1970.
    pub from_s: u64,
    /// Until before then.
    pub to_s: u64,
    /// Source of the load: disks, clients or a file; `None`: all that there are.
    pub of: Option<LoadOf>,
}

impl LoadAsked {
    /// Whether a sample that begins then is of that time, and whole.
    pub fn has(&self, at_s: u64) -> bool {
        self.from_s <= at_s && at_s.saturating_add(self.grain.seconds()) <= self.to_s
    }

    /// The spans of that time, as many as are kept at most: the newest.
    fn spans(&self) -> impl Iterator<Item = u64> + use<> {
        let (span_s, slots) = (self.grain.span_s(), self.grain.slots());
        let last = self.grain.begin_of(self.to_s.saturating_sub(1));
        let first = self.grain.begin_of(self.from_s).max(last.saturating_sub(slots * span_s));
        (0..=slots).map(move |at| first + at * span_s).take_while(move |begin| *begin <= last)
    }
}

impl State {
    fn waits(&self) -> bool {
        self.spans.values().any(Span::waits)
    }

    /// Disks that do not answer must not fill the memory: the oldest goes.
    fn drop_some(&mut self, grain: LoadGrain) {
        let open = self.open.get(&grain).copied();
        let of_grain = |(of, _): &&(LoadGrain, u64)| *of == grain;
        while self.spans.keys().filter(of_grain).count() > WAITING_MAX {
            let mut keys = self.spans.keys().filter(of_grain);
            let Some(oldest) = keys.find(|(_, begin)| Some(*begin) != open).copied() else {
                return;
            };
            self.spans.remove(&oldest);
        }
    }
}

impl Span {
    fn waits(&self) -> bool {
        self.noted > self.written
    }

    /// Takes in what the tree has in the span's slot: samples from before a restart are taken over,
    /// other spans go.
    fn found(&mut self, begin_s: u64, found: Vec<Item>) {
        let Some(grain) = self.records.values().map(|record| record.grain).next() else { return };
        self.on_disk = Some(found.iter().map(|item| item.key).collect());
        for older in found.into_iter().filter_map(|item| decode(grain, begin_s, &item)) {
            let newer = self.records.remove(&older.of);
            let newer = newer.unwrap_or_else(|| LoadRecord::new(grain, older.of, begin_s));
            self.records.insert(newer.of, merged(newer, Some(older)));
        }
    }

    /// Its records, and the keys that go.
    fn ops(&mut self, disks_kept: usize) -> LoadOps {
        self.written = self.noted;
        let mut disks: Vec<&LoadRecord> = Vec::new();
        let mut ops = LoadOps::new();
        let mut put = |record: &LoadRecord| {
            let key = record.key();
            ops.entry(key).or_insert_with(|| Some(Item { key, value: record.encode() }));
        };
        for record in self.records.values() {
            match record.of {
                LoadOf::File { .. } => disks.push(record),
                LoadOf::Disks | LoadOf::Clients => put(record),
            }
        }
        disks.sort_by_key(|record| std::cmp::Reverse(busy_ns(record)));
        disks.truncate(disks_kept);
        disks.into_iter().for_each(&mut put);
        let there = self.on_disk.get_or_insert_default();
        let gone: Vec<ItemKey> =
            there.iter().filter(|key| !ops.contains_key(key)).copied().collect();
        there.extend(ops.keys());
        ops.extend(gone.into_iter().map(|key| (key, None)));
        ops
    }
}

/// The items of a slot.
async fn records<S: btree::NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    grain: LoadGrain,
    begin_s: u64,
) -> Result<Vec<Item>, S::Error> {
    let (from, to) = grain.keys(begin_s);
    let mut scan = btree::Scan::<Namespace, S>::new(store, root, from, Some(to))?;
    let mut found = Vec::new();
    while let Some(item) = scan.next().await? {
        found.push(item);
    }
    Ok(found)
}

/// An item as a record of this span, if it is one.
fn decode(grain: LoadGrain, begin_s: u64, item: &Item) -> Option<LoadRecord> {
    let record = LoadRecord::decode(grain, &item.value).ok()?;
    (record.begin_s == begin_s && record.key() == item.key).then_some(record)
}

/// All samples that either has.
fn merged(mut newer: LoadRecord, older: Option<LoadRecord>) -> LoadRecord {
    for (new, old) in newer.samples.iter_mut().zip(older.into_iter().flat_map(|old| old.samples)) {
        *new = new.or(old);
    }
    newer
}

/// How busy a VM disk kept the server: the sum of the times that its calls were under way.
fn busy_ns(record: &LoadRecord) -> u128 {
    record.samples.iter().flatten().map(LoadSample::busy_ns).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_the_spans_of_its_time_and_no_more_than_are_kept() {
        let grain = LoadGrain::TenSeconds;
        let asked = |from_s, to_s| LoadAsked { grain, from_s, to_s, of: None };
        let spans = |from_s, to_s| asked(from_s, to_s).spans().collect::<Vec<u64>>();
        assert_eq!(spans(480, 481), [480]);
        assert_eq!(spans(479, 960), [0, 480]);
        assert_eq!(spans(479, 961), [0, 480, 960]);
        assert_eq!(spans(5, 3), [0]);
        assert_eq!(spans(960, 3), []);
        assert_eq!(spans(0, u64::MAX).len() as u64, grain.slots() + 1);
    }

    #[test]
    fn small_pools_keep_few_disks() {
        assert_eq!(disks_kept(65536 / 32), 0);
        assert_eq!(disks_kept((1 << 18) / 32), 8);
        assert_eq!(disks_kept((1 << 21) / 32), 32);
    }
}
