//! The duplicate request cache: which calls are under way, and the answers to the others.
//!
//! # Theory
//! A client without an answer sends its call again: on the same connection, on a new one, or to a
//! server that was killed and restarted. A second CREATE would report that the file exists already,
//! a second REMOVE that there is none. A late SETATTR would cut off data written since. So before
//! such a call is carried out, its caller asks here ([`Replies::begin`]).
//!
//! - While the call is *under way*, a repeated one waits for the end of the first.
//! - A call that *succeeded* is one record in the log. Its entry travels in that record **and**, in
//!   the same txg, in the pool's reply table ([`Replies::record`], under the hold). So the changes
//!   never exist without the entry: before the txg's commit both come back by replay, after it both
//!   are in the trees. The first answer waits for the record, and so does a repeated answer.
//! - A call that asks for an *act* has no record. Its entry is in the txg of the act
//!   ([`crate::snapshots`]), and a repeated answer waits until that is on disk. If the sync cannot
//!   carry the act out, the entry goes before the table is written.
//! - A call that heard *later* changed nothing, and its client sends another one. Copies of it that
//!   are on their way hear the same for a while (`later`); else one of them might run beside the
//!   other call.
//! - A call that *failed* changed nothing. It is kept in memory only: after a crash it runs again,
//!   as if it had come later.
//!
//! # How long
//! [`REPLIES_KEPT`] calls of each sort, and none longer than [`REPLY_AGE_MAX`]. Ages count on the
//! world's clock from the start of the service on. Downtime, in which clients can only wait, does
//! not count, and no wall clock decides. `kept` decides which entry goes first. All of it takes 8
//! MiB at most: twice 4,096 times an entry, its places in five indices, and 256 bytes of answer.
//!
//! # Damage
//! If the table cannot be read or written, this reports it and leaves the table as it is. From then
//! on calls are known in memory only; the pool serves on.

mod kept;
mod later;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::btree;
use aquifer_ondisk::pool_root::TreeSlot;
use aquifer_ondisk::reply::{CallId, REPLIES_MAX, ReplyEntry};
use aquifer_ondisk::tree_node::{NodeOwner, Replies as Table};
use aquifer_ondisk::types::SEQUENCE_LIMIT;
use aquifer_ondisk::{BlockPointer, Corruption, DatasetId, ObjectId, Txg};
use aquifer_pool::intent_log::Ticket;
use aquifer_pool::{Pool, PoolError, SyncContext};
use aquifer_sync::atomic::{AtomicU64, Ordering};
use aquifer_sync::{Mutex, Notify, OwnedNotified};

use kept::{Kept, Known, Waits};
use later::Later;

/// Answers kept: those of 16 clients with 256 calls each, twice what Linux has under way. A txg may
/// leave some more in the table if the next one already makes room, far fewer than up to
/// [`REPLIES_MAX`].
pub const REPLIES_KEPT: usize = 4096;
const _: () = assert!(REPLIES_KEPT <= REPLIES_MAX / 2);

/// After this time a call with the same transaction id is another call. Linux waits 10 minutes at
/// most before it sends a call again (nfs(5), `timeo`); transaction ids repeat after hours.
pub const REPLY_AGE_MAX: Duration = Duration::from_secs(30 * 60);

/// Longest answer that is kept word by word: NFSv3's have up to 240 bytes. A longer one is encoded
/// again.
pub const REPLY_BYTES_MAX: usize = 256;

/// Entries that one call drops at most. Two are more than it adds, so the number never grows; and
/// few, since each may lie in a leaf of its own, for which the call's admission must pay.
const FORGOTTEN_AT_ONCE: usize = 2;

/// Knowledge of a call: whether it was answered before.
#[derive(Debug)]
pub enum Begun {
    /// Nothing: carry it out.
    New(Running),
    /// It was answered before.
    Answered(Answer),
}

/// An answer that was given before.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The call, its status, and the handle that it gave out.
    pub entry: ReplyEntry,
    /// The answer's bytes, if they are still known. A failed call always has them.
    pub body: Option<Arc<[u8]>>,
}

/// A call under way. Until this is dropped, repeated calls wait.
#[derive(Debug)]
pub struct Running {
    replies: Arc<Replies>,
    call: CallId,
    /// The entry that it records has this order or a later one.
    first_order: u64,
}

/// The answered calls of a pool.
#[derive(Debug)]
pub struct Replies {
    pool: Arc<Pool>,
    next_order: AtomicU64,
    state: Mutex<State>,
}

/// A first look at a call that came in.
enum Seen {
    New(Running),
    UnderWay(OwnedNotified),
    Known(Answer, Option<Waits>),
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<CallId, Arc<Notify>>,
    /// In the table, or under way to it.
    logged: Kept,
    /// In memory only.
    unlogged: Kept,
    later: Later,
    /// Changes to the table by each txg that is not on disk yet.
    changes: BTreeMap<Txg, BTreeMap<u64, Option<ReplyEntry>>>,
    root: Option<BlockPointer>,
    damaged: bool,
}

impl Replies {
    /// Reads the table of a pool.
    ///
    /// # Errors
    /// Errors of the pool, except damage: then there is no table.
    pub(crate) async fn open(pool: Arc<Pool>) -> Result<Arc<Replies>, PoolError> {
        let root = pool.roots().get(TreeSlot::Replies as usize).copied().flatten();
        let mut state = State { root, ..State::default() };
        match read_table(&pool, root).await {
            Ok(entries) => {
                let since = pool.world().now();
                for entry in entries {
                    state.logged.insert(Known { entry, since, waits: None, body: None });
                }
            }
            Err(error) if error.is_damage() => state.give_up(&error),
            Err(error) => return Err(error),
        }
        let next_order = AtomicU64::new(state.logged.last_order().map_or(1, |order| order + 1));
        Ok(Arc::new(Replies { pool, next_order, state: Mutex::new(state) }))
    }

    /// Looks up a call that came in. Waits while it is under way, and until its changes are
    /// durable.
    ///
    /// # Errors
    /// Its changes could not be made durable, or are not yet since the disks do not answer.
    pub async fn begin(self: &Arc<Self>, call: CallId) -> Result<Begun, PoolError> {
        loop {
            match self.look(call) {
                Seen::New(running) => return Ok(Begun::New(running)),
                Seen::UnderWay(ended) => ended.await,
                Seen::Known(answer, waits) => {
                    match waits.filter(|_| !left_out(Rule::ReplyAfterDurable)) {
                        Some(Waits::Record(ticket)) => ticket.or_silent().await?,
                        Some(Waits::Txg(txg)) => self.pool.on_disk_or_silent(txg).await?,
                        None => {}
                    }
                    return Ok(Begun::Answered(answer));
                }
            }
        }
    }

    fn look(self: &Arc<Self>, call: CallId) -> Seen {
        let oldest = self.oldest();
        let mut state = self.state.lock();
        if let Some(under_way) = state.running.get(&call) {
            return Seen::UnderWay(under_way.clone().notified_owned());
        }
        if let Some(answer) = state.later.find(&call, self.pool.world().now()) {
            return Seen::Known(answer, None);
        }
        if let Some(known) = state.find(&call, oldest) {
            let answer = Answer { entry: known.entry, body: known.body.clone() };
            return Seen::Known(answer, known.waits.clone());
        }
        if left_out(Rule::CallRunsOnce) {
            drop(state);
            state = self.state.lock();
        }
        state.running.insert(call, Arc::default());
        let first_order = self.next_order.load(Ordering::Relaxed);
        Seen::New(Running { replies: self.clone(), call, first_order })
    }

    /// The entry of a call that succeeds: for its record, and then for [`Replies::record`]. `None`
    /// once all orders are used up, which only a hostile disk can bring about.
    pub fn entry(
        &self,
        call: CallId,
        dataset: DatasetId,
        (object, generation): (ObjectId, u64),
    ) -> Option<ReplyEntry> {
        let below = |order: u64| (order < SEQUENCE_LIMIT - 1).then(|| order + 1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let order = self.next_order.fetch_update(set, get, below).ok()?;
        Some(ReplyEntry { order, call, status: 0, dataset, object, generation })
    }

    /// Puts an entry into the table of `txg`. The caller holds that txg, the same as for the call's
    /// changes and their record. `ticket` is that record's; `None` in a replay.
    pub fn record(&self, txg: Txg, entry: ReplyEntry, ticket: Option<Ticket>) {
        self.put(txg, entry, ticket.map(Waits::Record));
    }

    /// Puts the entry of an act into the table of `txg`, which makes it durable: an act has no
    /// record.
    pub(crate) fn record_act(&self, txg: Txg, entry: ReplyEntry) {
        self.put(txg, entry, Some(Waits::Txg(txg)));
    }

    /// The act of a call was not carried out after all: the call changed nothing. Called by the
    /// sync of its txg.
    pub(crate) fn retract(&self, txg: Txg, order: Option<u64>) {
        let Some(order) = order.filter(|_| !left_out(Rule::UndoneActsAreNotKnown)) else { return };
        let mut state = self.state.lock();
        state.logged.remove(order);
        if let Some(changes) = state.changes.get_mut(&txg) {
            changes.remove(&order);
        }
    }

    fn put(&self, txg: Txg, entry: ReplyEntry, waits: Option<Waits>) {
        // Decoded orders are below 2^63.
        self.next_order.fetch_max(entry.order.saturating_add(1), Ordering::Relaxed);
        let (since, oldest) = (self.pool.world().now(), self.oldest());
        let mut state = self.state.lock();
        state.logged.insert(Known { entry, since, waits, body: None });
        if !left_out(Rule::ReplyInTable) {
            state.changes.entry(txg).or_default().insert(entry.order, Some(entry));
        }
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some(order) = state.logged.surplus(oldest, REPLIES_KEPT) else { break };
            state.forget(txg, order);
        }
    }

    /// Writes the table's changes of `sync.txg()`, and returns its root.
    pub(crate) async fn sync(&self, sync: &SyncContext) -> Result<Option<BlockPointer>, PoolError> {
        let (root, changes) = {
            let state = self.state.lock();
            let changes = state.changes.get(&sync.txg()).filter(|_| !state.damaged);
            (state.root, changes.cloned().unwrap_or_default())
        };
        if changes.is_empty() {
            return Ok(root);
        }
        let ops = changes.into_iter().collect();
        let merged = btree::merge::<Table, SyncContext>(sync, root, NodeOwner::default(), ops);
        let merged = match merged.await {
            Err(error) if error.is_damage() => {
                self.state.lock().give_up(&error);
                root
            }
            merged => merged?,
        };
        self.state.lock().root = merged;
        Ok(merged)
    }

    /// `txg` is on disk.
    pub(crate) fn committed(&self, txg: Txg) {
        self.state.lock().changes.remove(&txg);
    }

    /// Answers from before this are forgotten.
    fn oldest(&self) -> Duration {
        self.pool.world().now().saturating_sub(REPLY_AGE_MAX)
    }
}

impl Running {
    /// The call hears "later", with this status and answer, if it may: not if its changes were
    /// made. These are durable, or become so, or are lost with the pool's other changes in memory;
    /// only the same call can learn which. Whether it may.
    pub fn hears_later(self, status: u32, body: &[u8]) -> bool {
        let now = self.replies.pool.world().now();
        let mut state = self.replies.state.lock();
        if self.is_recorded(&mut state).is_some() {
            return false;
        }
        let entry = unlogged_entry(self.call, 0, status);
        state.later.insert(self.call, Answer { entry, body: Some(Arc::from(body)) }, now);
        true
    }

    /// Its entry, if its changes were made.
    fn is_recorded<'s>(&self, state: &'s mut State) -> Option<&'s mut Known> {
        let recorded = state.logged.find(&self.call, Duration::ZERO);
        recorded.filter(|known| known.entry.order >= self.first_order)
    }

    /// The call has this answer: a success, which its record made durable, or a failure, which
    /// changed nothing.
    pub fn answered(self, status: u32, body: &[u8]) {
        let (since, oldest) = (self.replies.pool.world().now(), self.replies.oldest());
        let kept = (body.len() <= REPLY_BYTES_MAX).then(|| Arc::from(body));
        let mut state = self.replies.state.lock();
        if let Some(known) = self.is_recorded(&mut state) {
            // If it failed after it was recorded, its fate is unknown yet: a repeated call waits
            // for the record too.
            if status == 0 {
                (known.waits, known.body) = (None, kept);
            }
            return;
        }
        let Some(body) = kept else { return };
        let order = self.replies.next_order.load(Ordering::Relaxed);
        let order = state.unlogged.last_order().map_or(order, |last| order.max(last + 1));
        let entry = unlogged_entry(self.call, order, status);
        state.unlogged.insert(Known { entry, since, waits: None, body: Some(body) });
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some(order) = state.unlogged.surplus(oldest, REPLIES_KEPT) else { break };
            state.unlogged.remove(order);
        }
    }
}

/// The entry of a call that changed nothing.
fn unlogged_entry(call: CallId, order: u64, status: u32) -> ReplyEntry {
    let (dataset, object, generation) = (DatasetId(0), ObjectId(0), 0);
    ReplyEntry { order, call, status, dataset, object, generation }
}

impl Drop for Running {
    fn drop(&mut self) {
        let under_way = self.replies.state.lock().running.remove(&self.call);
        if let Some(under_way) = under_way {
            under_way.notify_waiters();
        }
    }
}

impl State {
    /// The answer, if it is known. There is at most one: the call does not run again before its
    /// answer is forgotten.
    fn find(&mut self, call: &CallId, oldest: Duration) -> Option<&mut Known> {
        self.logged.find(call, oldest).or_else(|| self.unlogged.find(call, oldest))
    }

    /// Removes an entry from the table, by way of `txg`, which the caller holds.
    fn forget(&mut self, txg: Txg, order: u64) {
        self.logged.remove(order);
        // An entry that this txg or a later one adds never gets into the table.
        for changes in self.changes.range_mut(txg..).map(|(_, changes)| changes) {
            if changes.get(&order).is_some_and(Option::is_some) {
                changes.remove(&order);
                return;
            }
        }
        self.changes.entry(txg).or_default().insert(order, None);
    }

    fn give_up(&mut self, error: &PoolError) {
        self.damaged = true;
        tracing::error!(
            %error,
            "the reply table is damaged: after the next restart, calls that are sent again may be \
             carried out twice"
        );
    }
}

async fn read_table(pool: &Pool, root: Option<BlockPointer>) -> Result<Vec<ReplyEntry>, PoolError> {
    let mut entries = Vec::new();
    let mut scan = btree::Scan::<Table, Pool>::new(pool, root, 0, None)?;
    while let Some(entry) = scan.next().await? {
        if entries.len() >= REPLIES_MAX {
            return Err(Corruption::RepliesTooMany.into());
        }
        entries.push(entry);
    }
    Ok(entries)
}
