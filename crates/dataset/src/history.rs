//! The history of acts on a pool: kept in the pool itself, bounded, over restarts and on other
//! machines.
//!
//! An act is noted when it begins ([`History::begin`]), and again with its result
//! ([`History::finish`]). The next sync writes both, whatever its txg. So the sync that makes an
//! act durable also writes its first record, and the history costs no extra sync. An act without a
//! noted end is shown as such: the daemon ended first.
//!
//! Completed and refused acts are kept apart: refused attempts of a user push out no completed act.
//! So are events: what happened, with nobody asking for it ([`History::happened`]).
//!
//! # Room
//! The records count against no dataset, and every pool must afford them, full or not. So a small
//! pool keeps fewer of them than the format has room for ([`Kept`]).
//!
//! # Damage
//! If the tree cannot be read or written, this reports it, leaves the tree as it is, and notes
//! nothing more. The pool serves on.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_object::btree;
use aquifer_ondisk::dataset::{Item, ItemKey};
use aquifer_ondisk::history::{HistoryClass, HistoryCounters, history_key, history_place};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::load::LOAD_FIRST;
use aquifer_ondisk::pool_root::TreeSlot;
use aquifer_ondisk::tree_node::{Namespace, NodeOwner};
use aquifer_ondisk::{BlockPointer, Corruption};
use aquifer_pool::{Pool, PoolError, SyncContext};
use aquifer_sync::Mutex;

use crate::load::{Load, LoadAsked, LoadRecord};

pub use aquifer_ondisk::history::{HistoryChange, HistoryRecord, Outcome};

/// Items that a sync writes at most, beside those of the load: it reserves no space for them.
const WRITTEN_MAX: usize = 16;

/// Records that wait for a sync, beyond which no event is noted: of a pool without its disks.
const WAITING_MAX: usize = 256;

/// Records that a pool keeps of each class.
#[derive(Debug, Clone, Copy)]
struct Kept {
    acts: u64,
    attempts: u64,
    events: u64,
}

impl Kept {
    /// Of the longest records a leaf has three, and each leaf has two copies. With those, the
    /// records take less than a fourth of the space that is kept back, and as much again while a
    /// sync rewrites them.
    fn of(slop_sectors: u64) -> Kept {
        let records = slop_sectors / 4;
        Kept {
            acts: (records * 3 / 4).min(HistoryClass::Act.kept()),
            attempts: (records / 4).min(HistoryClass::Attempt.kept()),
            events: (records / 4).min(HistoryClass::Event.kept()),
        }
    }

    fn class(self, class: HistoryClass) -> u64 {
        match class {
            HistoryClass::Act => self.acts,
            HistoryClass::Attempt => self.attempts,
            HistoryClass::Begun => class.kept(),
            HistoryClass::Event => self.events,
        }
    }
}

/// The history of a pool.
#[derive(Debug)]
pub struct History {
    pool: Arc<Pool>,
    /// Orders from here on belong to this life.
    first: u64,
    state: Mutex<State>,
    load: Load,
}

#[derive(Debug)]
struct State {
    kept: Kept,
    /// Of the last sync.
    root: Option<BlockPointer>,
    /// Of the last txg on disk: what can be read.
    committed: Option<BlockPointer>,
    next: HistoryCounters,
    /// What differs from `committed`.
    pending: BTreeMap<ItemKey, Pending>,
    /// The keys that the last sync wrote, each with the change that it wrote.
    written: Vec<(ItemKey, u64)>,
    /// Counts changes of `pending`.
    changes: u64,
    damaged: bool,
}

#[derive(Debug, Clone)]
struct Pending {
    change: u64,
    record: Option<HistoryRecord>,
}

/// The request for an act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The user.
    pub who: String,
    /// The machine that carries it out.
    pub host: String,
    /// The act, as the command line would have it.
    pub act: String,
}

/// An act under way.
#[derive(Debug)]
#[must_use = "what came of it is to be noted"]
pub struct Act {
    record: HistoryRecord,
}

/// An act of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// Its record.
    pub record: HistoryRecord,
    /// It is under way.
    pub running: bool,
}

impl History {
    /// Reads where the history of a pool ends.
    ///
    /// # Errors
    /// Errors of the pool, except damage: then there is no history.
    pub(crate) async fn open(pool: Arc<Pool>) -> Result<History, PoolError> {
        let root = pool.roots().get(TreeSlot::History as usize).copied().flatten();
        let mut state = State {
            kept: Kept::of(pool.slop_sectors()),
            root,
            committed: root,
            next: HistoryCounters::default(),
            pending: BTreeMap::new(),
            written: Vec::new(),
            changes: 0,
            damaged: false,
        };
        let found = btree::lookup::<Namespace, Pool>(&pool, root, HistoryCounters::KEY).await;
        let found = found.and_then(|item| {
            item.map(|item| HistoryCounters::decode(&item.value)).transpose().map_err(Into::into)
        });
        match found {
            Ok(Some(next)) => state.next = next,
            Ok(None) if root.is_none() => {}
            Ok(None) => state.give_up(&Corruption::HistoryCounters.into()),
            Err(error) if error.is_damage() => state.give_up(&error),
            Err(error) => return Err(error),
        }
        let load = Load::default();
        if state.damaged {
            load.give_up();
        }
        Ok(History { pool, first: state.next.order, state: Mutex::new(state), load })
    }

    /// Notes that an act begins. On disk with the next sync.
    pub fn begin(&self, asked: Asked) -> Act {
        let Asked { who, host, act } = asked;
        let began = Time::from_ns(self.pool.world().wall_ns());
        let mut state = self.state.lock();
        let mut record = HistoryRecord {
            outcome: Outcome::Begun,
            cut: false,
            more: false,
            order: state.next.order,
            began,
            who,
            host,
            act,
            result: String::new(),
            changes: Vec::new(),
        };
        record.shorten();
        state.next_order();
        state.put(HistoryClass::Begun, record.order, record.clone());
        Act { record }
    }

    /// Notes the result of an act: its changes, or why it was not carried out. On disk with the
    /// next sync.
    pub fn finish(&self, act: Act, outcome: Outcome, result: String, changes: Vec<HistoryChange>) {
        let mut record = HistoryRecord { outcome, result, changes, ..act.record };
        record.shorten();
        let mut state = self.state.lock();
        state.change(history_key(HistoryClass::Begun, record.order), None);
        let (class, counter) = match outcome {
            Outcome::Done => (HistoryClass::Act, &mut state.next.act),
            _ => (HistoryClass::Attempt, &mut state.next.attempt),
        };
        let number = *counter;
        *counter = next(number);
        state.put(class, number, record);
    }

    /// Notes that something has happened: an event of this class and level, with its text and its
    /// named fields. On disk with a later sync. If too much waits for the disk already, it is not
    /// noted.
    pub fn happened(&self, class: &str, level: &str, text: &str, fields: Vec<(String, String)>) {
        let began = Time::from_ns(self.pool.world().wall_ns());
        let mut state = self.state.lock();
        if state.pending.len() >= WAITING_MAX {
            return;
        }
        let change = |(what, after)| HistoryChange { what, before: String::new(), after };
        let mut record = HistoryRecord {
            outcome: Outcome::Done,
            cut: false,
            more: false,
            order: state.next.order,
            began,
            who: class.into(),
            host: String::new(),
            act: text.into(),
            result: level.into(),
            changes: fields.into_iter().map(change).collect(),
        };
        record.shorten();
        state.next_order();
        state.change(history_key(HistoryClass::Event, record.order), Some(record));
    }

    /// All known acts, in order.
    ///
    /// # Errors
    /// Errors of the pool. Invalid records are skipped.
    pub async fn list(&self) -> Result<Vec<Noted>, PoolError> {
        let records = self.records(|class| class != HistoryClass::Event).await?;
        let noted = records.into_iter().map(|record| Noted {
            running: record.outcome == Outcome::Begun && record.order >= self.first,
            record,
        });
        Ok(noted.collect())
    }

    /// All known events, in order.
    ///
    /// # Errors
    /// Errors of the pool. Invalid records are skipped.
    pub async fn events(&self) -> Result<Vec<HistoryRecord>, PoolError> {
        self.records(|class| class == HistoryClass::Event).await
    }

    /// The load that waits to be written.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// The load of a time, by spans, the oldest first.
    ///
    /// # Errors
    /// Errors of the pool. Invalid records are skipped.
    pub async fn read_load(&self, asked: &LoadAsked) -> Result<Vec<LoadRecord>, PoolError> {
        // Before the root is taken.
        let _reading = self.pool.reading();
        let root = self.state.lock().committed;
        self.load.read(&self.pool, root, asked).await
    }

    /// The records of some classes, in order.
    async fn records(
        &self,
        is_wanted: impl Fn(HistoryClass) -> bool,
    ) -> Result<Vec<HistoryRecord>, PoolError> {
        // Before the root is taken.
        let reading = self.pool.reading();
        let (root, pending) = {
            let state = self.state.lock();
            (state.committed, state.pending.clone())
        };
        let is_wanted = |key| history_place(key).is_some_and(|(class, _)| is_wanted(class));
        let mut records = BTreeMap::new();
        let first = ItemKey { item: 1, ..HistoryCounters::KEY };
        let mut scan =
            btree::Scan::<Namespace, Pool>::new(&self.pool, root, first, Some(LOAD_FIRST))?;
        while let Some(item) = scan.next().await? {
            if is_wanted(item.key)
                && !pending.contains_key(&item.key)
                && let Ok(record) = HistoryRecord::decode(&item.value)
            {
                // Records of class `Begun` come last, and give way to their result.
                records.entry(record.order).or_insert(record);
            }
        }
        drop((scan, reading));
        let newer = pending.into_iter().filter(|(key, _)| is_wanted(*key));
        let newer = newer.filter_map(|(_, pending)| pending.record);
        records.extend(newer.map(|record| (record.order, record)));
        Ok(records.into_values().collect())
    }

    /// Whether a sync still has something to write.
    pub(crate) fn waits(&self) -> bool {
        let state = self.state.lock();
        !(state.pending.is_empty() || state.damaged)
    }

    /// Writes new records, and returns the tree's root.
    pub(crate) async fn sync(&self, sync: &SyncContext) -> Result<Option<BlockPointer>, PoolError> {
        let root = self.state.lock().root;
        match self.merge(sync, root).await {
            Err(error) if error.is_damage() => {
                self.state.lock().give_up(&error);
                self.load.give_up();
                Ok(root)
            }
            merged => merged,
        }
    }

    async fn merge(
        &self,
        sync: &SyncContext,
        root: Option<BlockPointer>,
    ) -> Result<Option<BlockPointer>, PoolError> {
        let load = self.load.take(sync, root, self.pool.world().now()).await?;
        let (ops, written) = {
            let state = self.state.lock();
            if state.damaged || state.pending.is_empty() && load.is_empty() {
                return Ok(root);
            }
            let counters = (HistoryCounters::KEY, Some(state.next.encode()));
            // Records of class `Begun` come last: an act is rather in one class too many than in
            // none.
            let now = state.pending.iter().take(WRITTEN_MAX);
            let written: Vec<(ItemKey, u64)> =
                now.clone().map(|(key, pending)| (*key, pending.change)).collect();
            let records = now
                .map(|(key, pending)| (*key, pending.record.as_ref().map(HistoryRecord::encode)));
            let items = std::iter::once(counters).chain(records);
            let items = items.map(|(key, value)| (key, value.map(|value| Item { key, value })));
            // The keys of the load lie behind all others.
            (items.chain(load).collect::<Vec<_>>(), written)
        };
        let owner = NodeOwner::default();
        let merged = btree::merge::<Namespace, SyncContext>(sync, root, owner, ops).await?;
        let mut state = self.state.lock();
        (state.root, state.written) = (merged, written);
        Ok(merged)
    }

    /// The last sync's records are on disk.
    pub(crate) fn committed(&self) {
        let mut state = self.state.lock();
        state.committed = state.root;
        for (key, change) in std::mem::take(&mut state.written) {
            if state.pending.get(&key).is_some_and(|pending| pending.change == change) {
                state.pending.remove(&key);
            }
        }
        drop(state);
        self.load.committed();
    }
}

impl State {
    /// An order is given out: an event leaves, if one has so old an order.
    fn next_order(&mut self) {
        let order = self.next.order;
        self.next.order = next(order);
        if let Some(oldest) = order.checked_sub(self.kept.events) {
            self.change(history_key(HistoryClass::Event, oldest), None);
        }
    }

    fn change(&mut self, key: ItemKey, record: Option<HistoryRecord>) {
        if !self.damaged {
            self.changes += 1;
            self.pending.insert(key, Pending { change: self.changes, record });
        }
    }

    /// Adds a record to its class, and drops the oldest one beyond the limit.
    fn put(&mut self, class: HistoryClass, number: u64, record: HistoryRecord) {
        self.change(history_key(class, number), Some(record));
        if let Some(oldest) = number.checked_sub(self.kept.class(class)) {
            self.change(history_key(class, oldest), None);
        }
    }

    fn give_up(&mut self, error: &PoolError) {
        self.damaged = true;
        self.pending.clear();
        tracing::error!(
            class = "pool.history_damaged",
            %error,
            "the history of the pool is damaged: nothing more is noted in it"
        );
    }
}

/// The number after this one. The largest number repeats, which only a hostile disk can bring
/// about.
fn next(number: u64) -> u64 {
    (number + 1).min(HistoryCounters::LIMIT - 1)
}
