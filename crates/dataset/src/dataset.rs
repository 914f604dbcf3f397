//! One dataset: its object table in memory and on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aquifer_blockio::World;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{Object, Shown, TreeRoot, btree};
use aquifer_ondisk::dataset::{DatasetRecord, RollbackRecord};
use aquifer_ondisk::head_line::LeftHeadRecord;
use aquifer_ondisk::inode::{Inode, Time};
use aquifer_ondisk::keeping::KeepRecord;
use aquifer_ondisk::tree_node::{self, NodeOwner};
use aquifer_ondisk::types::SEQUENCE_LIMIT;
use aquifer_ondisk::{BlockPointer, Corruption, DatasetId, Guid, ObjectId, Space, Txg};
use aquifer_pool::{Pool, PoolError, Shelf, TxHold};
use aquifer_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use aquifer_sync::{Mutex, RwLock};

use crate::awake::Awake;
use crate::clones::Origin;
use crate::dead::DeadTree;
use crate::entrance::{Entrance, Passage};
use crate::increment::Slot;
use crate::property::{LocalValues, Properties};
use crate::resume::Resume;
use crate::snapshots::{Listing, Snapshots};
use crate::space::SpaceChange;
use crate::table::{Objects, Table};
use crate::tails::Tails;
use crate::unlogged::Unlogged;

pub use aquifer_ondisk::types::{ORPHANS, ROOT_DIRECTORY};

/// One dataset.
#[derive(Debug)]
pub struct Dataset {
    /// Its id.
    pub id: DatasetId,
    /// Its file system guid.
    pub fs_guid: Guid,
    pub(crate) record: Mutex<DatasetRecord>,
    /// The dataset above it and its name as they are shown, until others are on disk.
    pub(crate) was: Mutex<Option<(DatasetId, String)>>,
    pub(crate) local: Mutex<LocalValues>,
    pub(crate) properties: RwLock<Arc<Properties>>,
    pub(crate) orphans: Mutex<BTreeSet<ObjectId>>,
    /// The orphans of which it is known whether they are tails.
    pub(crate) tails: Mutex<Tails>,
    /// It is a view of this snapshot, read-only; `None`: the head.
    pub(crate) snapshot: Option<Txg>,
    /// The snapshots on its line.
    pub(crate) snapshots: Mutex<Snapshots>,
    /// The snapshots that it lists, on its line or on others.
    pub(crate) listing: Mutex<Listing>,
    /// Why those that it lists stay or go, of those of which that is known.
    pub(crate) keeping: Mutex<BTreeMap<Txg, KeepRecord>>,
    pub(crate) dead: Mutex<DeadTree>,
    /// Origin: the snapshot that it began as, if it is a clone.
    pub(crate) origin: Mutex<Option<Origin>>,
    /// Of an old head: where what it had belongs ([`crate::head_lines`]).
    pub(crate) left: Mutex<Option<LeftHeadRecord>>,
    pub(crate) unlogged: Unlogged,
    pub(crate) entrance: Arc<Entrance>,
    /// Those of the pool that are awake.
    awake: Arc<Awake>,
    /// Increment that is being received into it: see [`crate::increment`].
    pub(crate) increment: Slot,
    /// How far that is, or all of it, if the stream may go on: see [`crate::resume`].
    pub(crate) resume: Mutex<Option<Resume>>,
    /// The txg in which it was destroyed, 0 if it was not.
    destroyed: AtomicU64,
    /// The txg that gives it its name, if it is received: before, it is none yet.
    named: AtomicU64,
    /// It is not in service, whatever its name says: see [`crate::standby`].
    pub(crate) standby: AtomicBool,
    /// It came with its pool while another one with its handles was in service.
    pub(crate) steps_back: AtomicBool,
    /// The txg from which its line is emptied, if it is not kept.
    emptied_since: AtomicU64,
    /// A sync could not read a node of the object table that it had to change: the dataset takes no
    /// change until the next import.
    table_damaged: AtomicBool,
    /// Of a destroyed dataset: the first object that the emptying has not looked at yet.
    pub(crate) emptied_to: AtomicU64,
    /// A reservation that the disk may still know, while a smaller one is being set.
    pub(crate) kept_bytes: AtomicU64,
    /// A `refreservation` that the disk may still know, while a smaller one is being set.
    pub(crate) kept_refreserved_bytes: AtomicU64,
    /// Bytes of its head that snapshots show, at most: see [`crate::covered`].
    pub(crate) covered_bytes: AtomicU64,
    /// Bytes that snapshots which are about to be taken will show.
    pub(crate) asked_bytes: AtomicU64,
    /// Bytes that the syncs of these txgs may add to what it refers to.
    dirty: Mutex<BTreeMap<Txg, u64>>,
    /// Bytes promised to writes that have not entered a txg yet.
    pub(crate) pending: AtomicU64,
    /// Bytes that its objects refer to, as of the last sync.
    pub(crate) refer_bytes: AtomicU64,
    pub(crate) saved_bytes: AtomicU64,
    /// Of them, those that its origin owns, if it is a clone of which that is known.
    pub(crate) inherited: Mutex<Option<Space>>,
    next_object: AtomicU64,
    pub(crate) table: Objects,
}

/// `emptied_to` of a dataset whose rest is damaged, so that no more can be freed.
pub(crate) const STUCK: u64 = u64::MAX;

/// Stage of a dataset's life: how much of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// All of it.
    Dataset,
    /// It is being received: after a crash, it is a destroyed one.
    Received,
    /// It was destroyed; its line stays, since others list or need snapshots on it.
    Line { first: bool },
    /// Space that it took is being freed.
    Emptied { first: bool },
}

impl Dataset {
    /// One that keeps clean objects on this shelf, and wakes among these.
    pub(crate) fn new(
        (shelf, awake): (&Arc<Shelf>, &Arc<Awake>),
        id: DatasetId,
        record: DatasetRecord,
        local: LocalValues,
        properties: Properties,
    ) -> Self {
        let table = Table { committed: record.objects, synced: record.objects, ..Table::default() };
        Dataset {
            id,
            fs_guid: record.fs_guid,
            next_object: AtomicU64::new(record.next_object),
            refer_bytes: AtomicU64::new(record.refer_bytes),
            saved_bytes: AtomicU64::new(record.saved_bytes),
            inherited: Mutex::default(),
            record: Mutex::new(record),
            was: Mutex::default(),
            local: Mutex::new(local),
            properties: RwLock::new(Arc::new(properties)),
            orphans: Mutex::new(BTreeSet::new()),
            tails: Mutex::default(),
            snapshot: None,
            snapshots: Mutex::default(),
            listing: Mutex::default(),
            keeping: Mutex::default(),
            dead: Mutex::default(),
            origin: Mutex::default(),
            left: Mutex::default(),
            unlogged: Unlogged::no(),
            entrance: Entrance::new(),
            awake: awake.clone(),
            increment: Slot::default(),
            resume: Mutex::default(),
            destroyed: AtomicU64::new(0),
            named: AtomicU64::new(0),
            standby: AtomicBool::new(false),
            steps_back: AtomicBool::new(false),
            emptied_since: AtomicU64::new(u64::MAX),
            table_damaged: AtomicBool::new(false),
            emptied_to: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            kept_refreserved_bytes: AtomicU64::new(0),
            covered_bytes: AtomicU64::new(0),
            asked_bytes: AtomicU64::new(0),
            dirty: Mutex::new(BTreeMap::new()),
            pending: AtomicU64::new(0),
            table: Objects::new(shelf, table),
        }
    }

    /// Its last name component.
    pub fn name(&self) -> String {
        self.shown_place().1
    }

    /// The dataset above it, and its last name component, as they are on disk.
    pub(crate) fn shown_place(&self) -> (DatasetId, String) {
        self.look_at_place(|above, name| (above, name.to_string()))
    }

    /// A look at the same, without a copy: many are asked for one name.
    pub(crate) fn look_at_place<T>(&self, look: impl Fn(DatasetId, &str) -> T) -> T {
        if let Some((above, name)) = &*self.was.lock() {
            return look(*above, name);
        }
        let record = self.record.lock();
        look(record.parent, &record.name)
    }

    /// The first object id that is free.
    pub fn free_id(&self) -> u64 {
        self.next_object()
    }

    /// The values that are set on it, by their names.
    pub fn local_values(&self) -> Vec<(String, String)> {
        let local = self.local.lock();
        local.iter().map(|(name, value)| (name.name().into(), value.clone())).collect()
    }

    /// The values in force.
    pub fn properties(&self) -> Arc<Properties> {
        self.properties.read().clone()
    }

    /// Bytes that are kept free for it and its children.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.properties().reservation_bytes.max(self.kept_bytes.load(Ordering::SeqCst))
    }

    /// When it was made.
    pub fn created(&self) -> Time {
        self.record.lock().created
    }

    /// Bytes that its objects refer to on disk.
    pub fn refer_bytes(&self) -> u64 {
        self.refer_bytes.load(Ordering::Relaxed)
    }

    /// Returns the space that its objects refer to on disk, with what compression saves.
    pub fn refer(&self) -> Space {
        let saved_bytes = self.saved_bytes.load(Ordering::Relaxed);
        Space { bytes: self.refer_bytes(), saved_bytes }
    }

    /// A fresh id, and a generation that no client can guess. No two files ever share both, in any
    /// life of the pool: an id is not given out again once a root or the log names it. If a cut or
    /// a rewind took both, the next generation is another one of 2^63.
    ///
    /// # Errors
    /// No space if ids are used up, which only a hostile disk can bring about.
    pub fn new_object_id(&self, world: &dyn World) -> Result<(ObjectId, u64), PoolError> {
        let below = |value: u64| (value < SEQUENCE_LIMIT - 1).then(|| value + 1);
        let taken = self.next_object.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below);
        let id = ObjectId(taken.map_err(|_| PoolError::NoSpace)?);
        if left_out(Rule::FreshGenerations) {
            return Ok((id, 1));
        }
        Ok((id, (world.random() % SEQUENCE_LIMIT).max(1)))
    }

    /// Before a replay: reserves an id that the log names.
    pub fn keep_id(&self, named: ObjectId) {
        // Decoded ids are below 2^63.
        self.next_object.fetch_max(named.0.saturating_add(1), Ordering::Relaxed);
    }

    /// Whether changes go to the intent log at the moment: `false` with `sync=disabled`, where they
    /// are durable with their txg. Only for admission; [`Dataset::logs`] decides.
    pub fn is_logged(&self, pool: &Pool) -> bool {
        self.unlogged.is_logged(pool)
    }

    /// Whether a change under this hold is logged. The caller has the writer locks of all objects
    /// that it changes, and asks once for each hold.
    pub fn logs(&self, hold: &TxHold) -> bool {
        self.unlogged.logs(hold)
    }

    /// Waits while no change may begin: while the dataset leaves `sync=disabled` or is rolled back.
    /// Called before admission, with no lock held. The change keeps the passage until it has joined
    /// its txg.
    pub async fn pass(&self) -> Passage {
        self.entrance.pass().await
    }

    /// Whether it was destroyed. Called under a hold of the open txg. If it was not, a change may
    /// join the txg: a replay of its record finds the dataset or what is left of it.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed_in().is_some()
    }

    /// The txg in which it was destroyed.
    pub(crate) fn destroyed_in(&self) -> Option<Txg> {
        Some(Txg(self.destroyed.load(Ordering::SeqCst))).filter(|txg| txg.0 > 0)
    }

    /// Destroys it in this txg. From here on nothing reads its objects: a later txg frees what
    /// their roots reach, without notice to readers.
    pub(crate) fn set_destroyed(&self, txg: Txg) {
        self.let_go(txg);
        self.leave_line(txg);
    }

    /// Destroys it in this txg, and keeps its line.
    pub(crate) fn leave_line(&self, txg: Txg) {
        self.awake.wake(self.id, txg);
        self.destroyed.store(txg.0.max(1), Ordering::SeqCst);
        for object in self.table.lock().objects.values() {
            object.state.lock().destroyed = true;
        }
    }

    /// Empties its line from this txg on.
    pub(crate) fn let_go(&self, txg: Txg) {
        self.awake.wake(self.id, txg);
        self.emptied_since.store(txg.0.max(1), Ordering::SeqCst);
    }

    /// Returns what is left of it in a txg.
    pub(crate) fn phase(&self, txg: Txg) -> Phase {
        let emptied_since = Txg(self.emptied_since.load(Ordering::SeqCst));
        match self.destroyed_in() {
            Some(destroyed) if destroyed <= txg && emptied_since <= txg => {
                Phase::Emptied { first: emptied_since == txg }
            }
            Some(destroyed) if destroyed <= txg => Phase::Line { first: destroyed == txg },
            _ if txg.0 < self.named.load(Ordering::SeqCst) => Phase::Received,
            _ => Phase::Dataset,
        }
    }

    /// It is being received.
    pub(crate) fn set_received(&self) {
        self.named.store(u64::MAX, Ordering::SeqCst);
    }

    /// This txg gives it its name.
    pub(crate) fn set_named(&self, txg: Txg) {
        self.awake.wake(self.id, txg);
        self.named.store(txg.0, Ordering::SeqCst);
    }

    /// Whether it is being received, as far as is known.
    pub(crate) fn is_received(&self) -> bool {
        self.named.load(Ordering::SeqCst) == u64::MAX
    }

    /// Whether it is destroyed and its line is kept.
    pub(crate) fn is_hidden_line(&self) -> bool {
        matches!(self.phase(Txg(u64::MAX - 1)), Phase::Line { .. })
    }

    /// Fails if the dataset takes no change, because a node of its object table is damaged.
    pub fn check_table(&self) -> Result<(), PoolError> {
        if !self.table_damaged.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(Corruption::ObjectTable(self.id).into())
    }

    pub(crate) fn set_table_damaged(&self) {
        self.table_damaged.store(true, Ordering::Relaxed);
    }

    /// Notes bytes that the sync of `txg` may add to what the dataset refers to. Under a hold.
    pub(crate) fn note_dirty(&self, txg: Txg, bytes: u64) {
        let mut dirty = self.dirty.lock();
        let sum = dirty.entry(txg).or_insert_with(|| {
            self.awake.wake(self.id, txg);
            0
        });
        *sum = sum.saturating_add(bytes);
    }

    /// Bytes that changes not on disk yet may add to what it refers to.
    pub(crate) fn promised_bytes(&self) -> u64 {
        let dirty = self.dirty.lock();
        let sum = dirty.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        sum.saturating_add(self.pending.load(Ordering::SeqCst))
    }

    /// Whether changes wait for a sync. The sync may find that they take less than was promised, or
    /// free what they cut off.
    pub(crate) fn is_uncommitted(&self) -> bool {
        self.promised_bytes() > 0 || !self.table.lock().dirty.is_empty()
    }

    /// Whether objects without a name, or what destroyed snapshots showed, wait to be freed.
    pub(crate) fn is_being_freed(&self) -> bool {
        !self.orphans.lock().is_empty() || self.is_being_swept()
    }

    pub(crate) fn is_being_swept(&self) -> bool {
        self.snapshots.lock().are_swept() && !self.dead.lock().damaged
    }

    /// Whether no sync after that of a txg has anything to free or to forget of it, as it is now.
    pub(crate) fn waits_for_nothing(&self, txg: Txg) -> bool {
        let is_dropped = self.destroyed_in().is_none_or(|destroyed| destroyed.next() < txg);
        // A walk may need them, and no commit tells of its end.
        let rollbacks = self.snapshots.lock().files.has_rollbacks();
        is_dropped && !rollbacks && !self.is_worked_on()
    }

    /// Whether syncs free something of it, txg by txg.
    pub(crate) fn is_worked_on(&self) -> bool {
        match self.phase(Txg(u64::MAX - 1)) {
            Phase::Emptied { .. } => self.emptied_to.load(Ordering::Relaxed) != STUCK,
            Phase::Line { .. } => self.is_being_swept(),
            Phase::Dataset | Phase::Received => self.is_being_freed(),
        }
    }

    /// Whether a txg changed it.
    pub(crate) fn is_dirty_in(&self, txg: Txg) -> bool {
        self.dirty.lock().contains_key(&txg) || self.table.lock().dirty.contains_key(&txg)
    }

    pub(crate) fn next_object(&self) -> u64 {
        self.next_object.load(Ordering::Relaxed)
    }

    pub(crate) fn owner(&self) -> NodeOwner {
        NodeOwner { dataset: self.id, object: ObjectId(0) }
    }

    /// An object by id, from memory or from the committed table.
    pub async fn object(
        &self,
        pool: &Pool,
        id: ObjectId,
    ) -> Result<Option<Arc<Object>>, PoolError> {
        match self.cached(id) {
            Some(object) => Ok(Some(object)),
            // Rare, and large: kept out of every request's future.
            None => Box::pin(self.look_up(pool, id, false)).await,
        }
    }

    /// Finds an object for a sync of the dataset, which goes on up to the txg of its end: until
    /// then the objects of a destroyed dataset are there, and change.
    pub(crate) async fn object_in_sync(
        &self,
        pool: &Pool,
        id: ObjectId,
    ) -> Result<Option<Arc<Object>>, PoolError> {
        match self.cached(id) {
            Some(object) => Ok(Some(object)),
            None => self.look_up(pool, id, true).await,
        }
    }

    /// The attributes of an object as they are now, without bringing it into memory: for those who
    /// look at many once, as a listing does.
    pub async fn inode(&self, pool: &Pool, id: ObjectId) -> Result<Option<Inode>, PoolError> {
        // Before the root is looked at: from here on nothing below it is reused.
        let _reading = pool.reading();
        let (root, (change, ctime)) = {
            let table = self.table.lock();
            if let Some(object) = table.objects.get(&id) {
                return Ok(Some(object.inode()));
            }
            if self.is_destroyed() {
                return Ok(None);
            }
            // An object that is not in memory has no change that this table lacks.
            (table.committed, table.least)
        };
        let found = btree::lookup::<tree_node::Objects, Pool>(pool, root, id.0).await?;
        Ok(found.map(|inode| inode.at_least(change, ctime)))
    }

    /// `to_the_end`: also if it is destroyed.
    async fn look_up(
        &self,
        pool: &Pool,
        id: ObjectId,
        to_the_end: bool,
    ) -> Result<Option<Arc<Object>>, PoolError> {
        loop {
            // Before the root is looked at: from here on nothing below it is reused.
            let _reading = pool.reading();
            let root = self.table.lock().committed;
            let found = btree::lookup::<tree_node::Objects, Pool>(pool, root, id.0).await;
            let unknown = self.table.lock().not_looked_back_at(id);
            if let Some(root) = unknown {
                self.look_back(pool, id, root).await?;
                continue;
            }
            // Before the table is locked.
            let room = self.table.room();
            let mut table = self.table.lock();
            if let Some(object) = table.objects.get(&id) {
                return Ok(Some(object.clone()));
            }
            if table.not_looked_back_at(id).is_some() {
                continue;
            }
            // The result may be out of date by now: look again.
            if table.committed != root {
                continue;
            }
            // Under the table's lock: an object inserted later would not be marked destroyed.
            let is_destroyed = self.is_destroyed();
            if is_destroyed && !to_the_end {
                return Ok(None);
            }
            let Some(inode) = found? else { return Ok(None) };
            let (change, ctime) = table.least;
            let object = Object::new(self.id, inode.at_least(change, ctime)).in_room(room);
            let object = Arc::new(object);
            object.state.lock().destroyed = is_destroyed;
            self.table.insert(&mut table, &object);
            drop(table);
            self.table.tidy();
            return Ok(Some(object));
        }
    }

    /// The object of `inode.object` if it is in memory, else a new one of these attributes.
    pub fn object_or_new(&self, inode: &Inode) -> Arc<Object> {
        let room = self.table.room();
        let mut table = self.table.lock();
        if let Some(object) = table.objects.get(&inode.object) {
            return object.clone();
        }
        let object = Object::new(self.id, Inode { root: None, ..inode.clone() }).in_room(room);
        let object = Arc::new(object);
        self.table.insert(&mut table, &object);
        drop(table);
        self.table.tidy();
        object
    }

    /// An object that is in memory.
    pub fn cached(&self, id: ObjectId) -> Option<Arc<Object>> {
        let found = self.table.lock().objects.get(&id).cloned();
        if let Some(room) = found.as_ref().and_then(|object| object.room.as_ref()) {
            room.is_used();
        }
        found
    }

    /// Notes that an object has a version of `txg`. Under a hold of that txg.
    pub fn mark_dirty(&self, txg: Txg, id: ObjectId) {
        let mut table = self.table.lock();
        let dirty = table.dirty.entry(txg).or_insert_with(|| {
            self.awake.wake(self.id, txg);
            BTreeSet::new()
        });
        dirty.insert(id);
    }

    /// An object lost its last name.
    pub fn mark_orphan(&self, id: ObjectId) {
        let mut orphans = self.orphans.lock();
        orphans.insert(id);
        // Behind that: a commit that did not see it does not put the dataset to rest. A destroyed
        // one is awake to its end, and may be gone.
        if !self.is_destroyed() {
            self.awake.wake(self.id, Txg(0));
        }
    }

    /// An object without a name got one.
    pub fn unmark_orphan(&self, id: ObjectId) {
        self.orphans.lock().remove(&id);
    }

    /// The object table as of the last commit.
    pub fn committed_objects(&self) -> Option<BlockPointer> {
        self.table.lock().committed
    }

    pub(crate) fn dirty_objects(&self, txg: Txg) -> Vec<Arc<Object>> {
        let table = self.table.lock();
        let ids = table.dirty.get(&txg).into_iter().flatten();
        ids.filter_map(|id| table.objects.get(id).cloned()).collect()
    }

    pub(crate) fn synced_root(&self) -> Option<BlockPointer> {
        self.table.lock().synced
    }

    /// Returns the state that decides on its blocks that die.
    pub(crate) fn shown(&self) -> Shown {
        let floor = self.record.lock().floor;
        let snapshots = self.snapshots.lock();
        Shown {
            floor: floor.max(snapshots.head_lines.floor()),
            listed: snapshots.listed(),
            bookmarks: snapshots.bookmarks.listed(),
            files: snapshots.files.lists(),
            returning: snapshots.returning(),
            files_returning: snapshots.files.returning().map(|(_, id, of)| (id, of)).collect(),
        }
    }

    pub(crate) fn set_refer(&self, refer: Space) {
        self.refer_bytes.store(refer.bytes, Ordering::Relaxed);
        self.saved_bytes.store(refer.saved_bytes, Ordering::Relaxed);
    }

    pub(crate) fn change_refer(&self, change: SpaceChange) {
        self.set_refer(change.of(self.refer()));
    }

    pub(crate) fn set_synced_root(&self, root: Option<BlockPointer>) {
        self.table.lock().synced = root;
    }

    /// `txg` is on disk: drops its versions. The caller trims the shelf.
    pub(crate) fn committed(&self, txg: Txg, gone: &[ObjectId]) {
        let rollback = self.snapshots.lock().rollback;
        let mut table = self.table.lock();
        let dirty = table.dirty.remove(&txg).unwrap_or_default();
        for id in dirty {
            if let Some(object) = table.objects.get(&id) {
                object.committed(txg);
            }
        }
        for id in gone {
            table.objects.remove(id);
            self.tails.lock().forget(*id);
        }
        table.committed = table.synced;
        if let Some(RollbackRecord { change, ctime, .. }) = rollback.filter(|of| of.txg == txg)
            && let Some(back) = table.back.take()
        {
            table.least = (change, ctime);
            *self.orphans.lock() = table.roll_back(back);
            self.tails.lock().begin_again();
            self.increment.set(None);
            *self.resume.lock() = None;
            self.entrance.open();
        }
        {
            let mut dead = self.dead.lock();
            dead.committed = dead.root;
        }
        self.dirty.lock().retain(|of, _| *of > txg);
    }

    /// Of a destroyed dataset: drops all objects and the changes that no txg will make.
    pub(crate) fn drop_objects(&self) {
        let mut table = self.table.lock();
        table.objects.clear();
        table.dirty.clear();
    }

    /// The tree of an object as of the last sync, for the reaper.
    pub(crate) fn tree_of(object: &Object) -> TreeRoot {
        object.state.lock().synced
    }
}
