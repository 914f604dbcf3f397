//! The history of acts on a pool: kept in the pool itself, bounded, over restarts and on other
//! machines.
//!
//! An act is noted when it begins ([`History::begin`]), and again with its result
//! ([`History::finish`]). The next sync writes both, whatever its txg. So the sync that makes an
//! act durable also writes its first record, and the history costs no extra sync. An act without a
//! noted end is shown as such: the daemon ended first.
//!
//! Completed and refused acts are kept apart: refused attempts of a user push out no completed act.
//! So are events: what happened, with nobody asking for it ([`History::happened`]). And so are acts
//! of hosts, completed or refused: a host asks as often as it likes.
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
    of_hosts: u64,
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
            of_hosts: (records / 4).min(HistoryClass::OfHost.kept()),
        }
    }

    fn class(self, class: HistoryClass) -> u64 {
        match class {
            HistoryClass::Act => self.acts,
            HistoryClass::Attempt => self.attempts,
            HistoryClass::Begun => class.kept(),
            HistoryClass::Event => self.events,
            HistoryClass::OfHost => self.of_hosts,
        }
    }
}

/// The history of a pool.
#[derive(Debug)]
pub struct History {
    pool: Arc<Pool>,
    /// Orders from here on belong to this life, and numbers of acts of hosts.
    first: u64,
    first_of_hosts: u64,
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
    /// The number of the next act of a host.
    next_of_hosts: u64,
    /// Records that differ from `committed`.
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
    /// Its number among those of hosts, if it is one of a host.
    of_host: Option<u64>,
}

impl Act {
    /// Where it stands until it has ended.
    fn key(&self) -> ItemKey {
        match self.of_host {
            Some(number) => history_key(HistoryClass::OfHost, number),
            None => history_key(HistoryClass::Begun, self.record.order),
        }
    }
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
            next_of_hosts: 0,
            pending: BTreeMap::new(),
            written: Vec::new(),
            changes: 0,
            damaged: false,
        };
        let found = btree::lookup::<Namespace, Pool>(&pool, root, HistoryCounters::KEY).await;
        let found = found.and_then(|item| {
            item.map(|item| HistoryCounters::decode(&item.value)).transpose().map_err(Into::into)
        });
        let next_of_hosts = next_of_hosts(&pool, root).await;
        match found.and_then(|found| Ok(found.zip(Some(next_of_hosts?)))) {
            Ok(Some(next)) => (state.next, state.next_of_hosts) = next,
            Ok(None) if root.is_none() => {}
            Ok(None) => state.give_up(&Corruption::HistoryCounters.into()),
            Err(error) if error.is_damage() => state.give_up(&error),
            Err(error) => return Err(error),
        }
        let load = Load::default();
        if state.damaged {
            load.give_up();
        }
        let (first, first_of_hosts) = (state.next.order, state.next_of_hosts);
        Ok(History { pool, first, first_of_hosts, state: Mutex::new(state), load })
    }

    /// Notes that an act begins. On disk with the next sync.
    pub fn begin(&self, asked: Asked) -> Act {
        let mut record = self.begun(asked);
        let mut state = self.state.lock();
        record.order = state.next.order;
        state.next_order();
        state.put(HistoryClass::Begun, record.order, record.clone());
        Act { record, of_host: None }
    }

    /// Notes the beginning of an act that a host asks for by NFS.
    pub fn begin_of_host(&self, asked: Asked) -> Act {
        let mut record = self.begun(asked);
        let mut state = self.state.lock();
        // No order of its own: others are kept by their orders.
        record.order = state.next.order.saturating_sub(1);
        let number = state.next_of_hosts;
        state.next_of_hosts = next(number);
        state.put(HistoryClass::OfHost, number, record.clone());
        Act { record, of_host: Some(number) }
    }

    fn begun(&self, Asked { who, host, act }: Asked) -> HistoryRecord {
        let mut record = HistoryRecord {
            outcome: Outcome::Begun,
            cut: false,
            more: false,
            order: 0,
            began: Time::from_ns(self.pool.world().wall_ns()),
            who,
            host,
            act,
            result: String::new(),
            changes: Vec::new(),
        };
        record.shorten();
        record
    }

    /// Notes the result of an act: its changes, or why it was not carried out. On disk with the
    /// next sync.
    pub fn finish(&self, act: Act, outcome: Outcome, result: String, changes: Vec<HistoryChange>) {
        let key = act.key();
        let mut record = HistoryRecord { outcome, result, changes, ..act.record };
        record.shorten();
        let mut state = self.state.lock();
        if let Some(number) = act.of_host {
            // Unless so many came meanwhile that it is forgotten.
            if state.next_of_hosts - number <= state.kept.of_hosts {
                state.change(key, Some(record));
            }
            return;
        }
        state.change(key, None);
        let (class, counter) = match outcome {
            Outcome::Done => (HistoryClass::Act, &mut state.next.act),
            _ => (HistoryClass::Attempt, &mut state.next.attempt),
        };
        let number = *counter;
        *counter = next(number);
        state.put(class, number, record);
    }

    /// Notes nothing more of an act, which changed nothing.
    pub fn forget(&self, act: Act) {
        self.state.lock().change(act.key(), None);
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
        let noted = records.into_iter().map(|((order, of_host), record)| {
            let is_of_now = match of_host {
                Some(number) => number >= self.first_of_hosts,
                None => order >= self.first,
            };
            Noted { running: record.outcome == Outcome::Begun && is_of_now, record }
        });
        Ok(noted.collect())
    }

    /// All known events, in order.
    ///
    /// # Errors
    /// Errors of the pool. Invalid records are skipped.
    pub async fn events(&self) -> Result<Vec<HistoryRecord>, PoolError> {
        let records = self.records(|class| class == HistoryClass::Event).await?;
        Ok(records.into_values().collect())
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

    /// The records of some classes, in order, by their orders and their numbers among those of
    /// hosts.
    async fn records(
        &self,
        is_wanted: impl Fn(HistoryClass) -> bool,
    ) -> Result<BTreeMap<(u64, Option<u64>), HistoryRecord>, PoolError> {
        // Before the root is taken.
        let reading = self.pool.reading();
        let (root, pending) = {
            let state = self.state.lock();
            (state.committed, state.pending.clone())
        };
        let is_wanted = |key| history_place(key).is_some_and(|(class, _)| is_wanted(class));
        let place = |key, record: &HistoryRecord| {
            let of_host = history_place(key).filter(|(class, _)| *class == HistoryClass::OfHost);
            (record.order, of_host.map(|(_, number)| number))
        };
        let mut records = BTreeMap::new();
        let first = ItemKey { item: 1, ..HistoryCounters::KEY };
        for (from, to) in [(first, LOAD_FIRST), of_hosts()] {
            let mut scan = btree::Scan::<Namespace, Pool>::new(&self.pool, root, from, Some(to))?;
            while let Some(item) = scan.next().await? {
                if is_wanted(item.key)
                    && !pending.contains_key(&item.key)
                    && let Ok(record) = HistoryRecord::decode(&item.value)
                {
                    // Records of class `Begun` come last, and give way to their result.
                    records.entry(place(item.key, &record)).or_insert(record);
                }
            }
        }
        drop(reading);
        let newer = pending.into_iter().filter(|(key, _)| is_wanted(*key));
        let newer = newer.filter_map(|(key, pending)| Some((key, pending.record?)));
        records.extend(newer.map(|(key, record)| (place(key, &record), record)));
        Ok(records)
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
            let mut ops: Vec<_> = items.chain(load).collect();
            // The keys of the load lie between those of others.
            ops.sort_by_key(|(key, _)| *key);
            (ops, written)
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

/// The keys of acts of hosts.
fn of_hosts() -> (ItemKey, ItemKey) {
    let from = history_key(HistoryClass::OfHost, 0);
    (from, ItemKey { item: from.item + HistoryCounters::LIMIT, ..from })
}

/// The number of the next act of a host: there is none on disk from there on.
async fn next_of_hosts(pool: &Pool, root: Option<BlockPointer>) -> Result<u64, PoolError> {
    let (first, to) = of_hosts();
    let find = async |item: u64| {
        let from = ItemKey { item, ..first };
        let found = btree::collect_range::<Namespace, Pool>(pool, root, from, Some(to), 1).await?;
        Ok::<_, PoolError>(found.first().map(|item| item.key.item))
    };
    let Some(oldest) = find(first.item).await? else { return Ok(0) };
    // One is before the lower; none is from the higher on, since only so many are kept.
    let (mut low, mut high) = (oldest + 1, (oldest + HistoryClass::OfHost.kept()).min(to.item));
    while low < high {
        let middle = low + (high - low) / 2;
        match find(middle).await? {
            Some(found) => low = found + 1,
            None => high = middle,
        }
    }
    Ok((low - first.item).min(HistoryCounters::LIMIT - 1))
}

/// The number after this one. The largest number repeats, which only a hostile disk can bring
/// about.
fn next(number: u64) -> u64 {
    (number + 1).min(HistoryCounters::LIMIT - 1)
}
