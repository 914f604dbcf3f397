//! All datasets of a pool: opening them, and the administrator's acts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::dataset::{DatasetRecord, Item, ItemClass, ItemKey};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::keeping::Cadence;
use aquifer_ondisk::pool_root::TreeSlot;
use aquifer_ondisk::resume::ResumeRecord;
use aquifer_ondisk::{BlockPointer, DatasetId, Guid, ObjectId, Space, Txg, Writer};
use aquifer_pool::{
    Admission, BoxFuture, Demand, Lane, Pool, PoolError, Shelf, SpaceClass, TxHold,
};
use aquifer_sync::atomic::{AtomicBool, Ordering};
use aquifer_sync::{AsyncMutex, Mutex, RwLock};

use crate::awake::Awake;
use crate::clones::Origin;
use crate::damage::{DamageList, only};
use crate::dataset::Dataset;
use crate::dead::DeadTree;
use crate::history::History;
use crate::holds::Clock;
use crate::increment::{Coming, Stage};
use crate::lines::OnLine;
use crate::locks::LockCount;
use crate::namespace::Found;
use crate::property::{LocalValues, PROPERTIES, Properties, Property, SyncMode};
use crate::queue::Queue;
use crate::quota::Usage;
use crate::replies::Replies;
use crate::retain::LeftHeld;
use crate::scheduled::Told;
use crate::scrub::Scrubbed;
use crate::snapshots::{Snapshots, Views};

/// Facts about a dataset that `aquifer list` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetInfo {
    /// Full name.
    pub name: String,
    /// Space that it and its children take, with what only snapshots show, and without what is kept
    /// free.
    pub used: Space,
    /// Space that it refers to itself.
    pub refer: Space,
    /// The pool counts what compression saves.
    pub counts_saved: bool,
    /// Bytes that can be written to it.
    pub available_bytes: u64,
    /// Bytes that `refreservation` keeps free for it and its children.
    pub refreserved_bytes: u64,
    /// Bytes that `refreservation` keeps free for it alone.
    pub own_refreserved_bytes: u64,
    /// The snapshot that it is a clone of.
    pub origin: Option<String>,
    /// It is not in service: see [`crate::standby`].
    pub is_standby: bool,
    /// Property, value in force, and where it comes from (`local`, `default`, or a dataset).
    pub properties: Vec<(Property, String, String)>,
    /// Properties that users made up: each with its value in force, and where that comes from.
    pub user_properties: Vec<(String, String, String)>,
    /// When a schedule takes its next snapshot, in seconds since 1970, and of which cadence.
    pub next_snapshot: Option<(u64, Cadence)>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub datasets: BTreeMap<DatasetId, Arc<Dataset>>,
    /// Ids of the datasets by file system guid: every call asks for one. Of several of one guid at
    /// most one is in service ([`crate::standby`]).
    pub guids: HashMap<Guid, Vec<DatasetId>>,
    /// Created but not on disk yet: synced, not shown. Or destroyed, and being emptied.
    pub hidden: BTreeSet<DatasetId>,
    pub next_dataset: u64,
    /// Names below datasets that new ones will have: see [`crate::places`].
    pub reserved_names: BTreeSet<(DatasetId, String)>,
    /// Work that acts ask of the sync of each txg.
    pub queue: Queue,
    pub root: Option<BlockPointer>,
    /// Destroyed datasets of which the running sync frees the last.
    pub emptied: Vec<DatasetId>,
    /// Objects of which the running sync frees the last block.
    pub gone: BTreeMap<DatasetId, Vec<ObjectId>>,
}

/// All datasets of a pool.
#[derive(Debug)]
pub struct Datasets {
    pub(crate) pool: Arc<Pool>,
    pub(crate) state: Mutex<State>,
    /// Datasets that the next syncs look at.
    pub(crate) awake: Arc<Awake>,
    /// Needs of others ([`crate::across`]) may have changed with a dataset that is gone.
    pub(crate) needs_changed: AtomicBool,
    /// Whether any dataset has a quota or a reservation. Every write looks at it first.
    pub(crate) limited: AtomicBool,
    /// Serialises each look at quotas and reservations with the promise that it makes.
    pub(crate) promises: Mutex<()>,
    pub(crate) views: Mutex<Views>,
    /// Of the newest promotion: its txg, and which dataset listed each snapshot before.
    pub(crate) promoted: Mutex<(Txg, BTreeMap<OnLine, DatasetId>)>,
    /// Counts the locks that clients hold in a file system, or in a file of it.
    pub(crate) lock_count: RwLock<Option<LockCount>>,
    /// One act of an administrator at a time.
    pub(crate) acts: AsyncMutex<()>,
    pub(crate) damages: DamageList,
    pub(crate) scrub: Scrubbed,
    pub(crate) hold_clock: Clock,
    pub(crate) schedules_failed: Told,
    /// Datasets of which an event told that schedules leave snapshots, since these are held.
    pub(crate) left_held: LeftHeld,
    /// Last failure of schedules of files that an event told of.
    pub(crate) file_schedules_failed: Told,
    pub(crate) left_held_of_files: LeftHeld,
    pub(crate) replies: Arc<Replies>,
    pub(crate) history: History,
}

/// Sectors that an act may take: some tree paths.
pub(crate) const ACT_SECTORS: u64 = 64;

impl State {
    /// Of a pool whose namespace has this root, before it is read.
    fn new(root: Option<BlockPointer>) -> State {
        State {
            datasets: BTreeMap::new(),
            guids: HashMap::new(),
            hidden: BTreeSet::new(),
            next_dataset: 1,
            reserved_names: BTreeSet::new(),
            queue: Queue::default(),
            root,
            emptied: Vec::new(),
            gone: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, id: DatasetId, dataset: Arc<Dataset>) {
        // The next sync looks at it at least once.
        self.queue.awake().wake(id, Txg(0));
        self.guids.entry(dataset.fs_guid).or_default().push(id);
        self.datasets.insert(id, dataset);
    }

    /// A destroyed dataset, to be emptied.
    pub(crate) fn enter_destroyed(&mut self, dataset: Arc<Dataset>) {
        self.hidden.insert(dataset.id);
        self.insert(dataset.id, dataset);
    }

    pub(crate) fn remove(&mut self, id: DatasetId) {
        self.queue.awake().forget(id);
        let Some(gone) = self.datasets.remove(&id) else { return };
        if let Some(of_guid) = self.guids.get_mut(&gone.fs_guid) {
            of_guid.retain(|of| *of != id);
        }
        self.guids.retain(|_, of_guid| !of_guid.is_empty());
    }
}

impl Datasets {
    /// Reads the namespace of a pool.
    ///
    /// # Errors
    /// Errors of the pool, and invalid records.
    pub fn open(pool: Arc<Pool>) -> BoxFuture<'static, Result<Arc<Datasets>, PoolError>> {
        Box::pin(async move {
            let root = pool.roots().get(TreeSlot::Namespace as usize).copied().flatten();
            let mut state = State::new(root);
            let found = Found::read(&pool, root).await?;
            let Found { records, destroyed, damages, scrub, next_dataset, .. } = found;
            let (mut values, mut snapshots) = (found.values, found.snapshots);
            let mut keeping = found.keeping;
            state.next_dataset = next_dataset;
            let mut damaged: Vec<(DatasetId, PoolError)> = Vec::new();
            for (id, record) in records {
                let of = (id, record, values.remove(&id).unwrap_or_default());
                let listed = snapshots.remove(&id).unwrap_or_default();
                let rooms = (pool.shelf(), state.queue.awake());
                let inherited = &found.inherited;
                let (dataset, unreadable) = load(&pool, rooms, of, listed, inherited).await?;
                damaged.extend(unreadable.map(|error| (id, error)));
                *dataset.keeping.lock() = keeping.remove(&id).unwrap_or_default();
                *dataset.origin.lock() = found.lines.get(&id).and_then(Origin::of);
                let receive = (found.receiving.get(&id), found.resumes.get(&id));
                *dataset.left.lock() = found.left_heads.get(&id).copied();
                load_receive(&dataset, receive, destroyed.contains(&id));
                if destroyed.contains(&id) {
                    state.hidden.insert(id);
                }
                if found.hidden_lines.contains(&id) {
                    dataset.leave_line(Txg(1));
                    state.hidden.insert(id);
                }
                state.insert(id, Arc::new(dataset));
            }
            let replies = Replies::open(pool.clone()).await?;
            let history = History::open(pool.clone()).await?;
            let hold_clock = Clock::new(found.hold_clock, pool.world().now());
            let datasets = Datasets {
                pool,
                awake: state.queue.awake().clone(),
                needs_changed: AtomicBool::new(true),
                state: Mutex::new(state),
                limited: AtomicBool::new(false),
                promises: Mutex::new(()),
                views: Mutex::default(),
                promoted: Mutex::default(),
                lock_count: RwLock::default(),
                acts: Default::default(),
                damages,
                scrub,
                hold_clock,
                schedules_failed: Told::default(),
                left_held: LeftHeld::default(),
                file_schedules_failed: Told::default(),
                left_held_of_files: LeftHeld::default(),
                replies,
                history,
            };
            datasets.fill_listings(&found.listers);
            datasets.know_needs();
            datasets.refresh_properties();
            datasets.living().iter().for_each(|of| of.sum_covered());
            for (id, error) in damaged {
                if let Some(dataset) = datasets.by_id(id) {
                    datasets.note_damage(&dataset, ObjectId(0), Txg(0), only(error), false);
                }
            }
            datasets.show_all().await?;
            Ok(Arc::new(datasets))
        })
    }

    /// Import: enters what clients see, and finds what waits to be freed.
    async fn show_all(&self) -> Result<(), PoolError> {
        for dataset in self.all() {
            self.enter_views(&dataset);
            if dataset.properties().sync == SyncMode::Disabled {
                dataset.unlogged.is_from_the_start();
            }
            self.find_orphans(&dataset).await?;
        }
        Ok(())
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The duplicate request cache.
    pub fn replies(&self) -> &Arc<Replies> {
        &self.replies
    }

    /// The history of acts on the pool.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Every dataset.
    pub fn all(&self) -> Vec<Arc<Dataset>> {
        let state = self.state.lock();
        let shown = state.datasets.values().filter(|dataset| !state.hidden.contains(&dataset.id));
        shown.cloned().collect()
    }

    /// Every dataset that is not destroyed, including those not on disk yet.
    pub(crate) fn living(&self) -> Vec<Arc<Dataset>> {
        let state = self.state.lock();
        state.datasets.values().filter(|dataset| !dataset.is_destroyed()).cloned().collect()
    }

    /// A dataset by id, including a destroyed one that is still being emptied: see
    /// [`Dataset::is_destroyed`].
    pub fn by_id(&self, id: DatasetId) -> Option<Arc<Dataset>> {
        self.state.lock().datasets.get(&id).cloned()
    }

    /// A dataset, or a snapshot, by its file system guid, if it is in service.
    pub fn by_guid(&self, guid: Guid) -> Option<Arc<Dataset>> {
        let found = {
            let state = self.state.lock();
            let ids = state.guids.get(&guid).map_or(&[][..], Vec::as_slice);
            let mut found = ids.iter().filter_map(|id| state.datasets.get(id));
            let serves = |of: &&Arc<Dataset>| {
                !state.hidden.contains(&of.id) && !of.standby.load(Ordering::Relaxed)
            };
            found.find(serves).cloned()
        };
        found.or_else(|| self.view_of(guid))
    }

    /// A dataset by its full name.
    pub fn by_name(&self, name: &str) -> Option<Arc<Dataset>> {
        let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
        // A full name is made of all above: only of those that may be it.
        let may_be = |dataset: &Arc<Dataset>| dataset.look_at_place(|_, name| name == last);
        let is_it = |dataset: &Arc<Dataset>| may_be(dataset) && self.full_name(dataset) == name;
        self.all().into_iter().find(is_it)
    }

    /// Waits until an act is on disk. The log does not have it, so only its txg makes it durable.
    pub(crate) async fn act_on_disk(&self) -> Result<(), PoolError> {
        if left_out(Rule::ActsOnDiskFirst) {
            return Ok(());
        }
        self.pool.sync().await.map(drop)
    }

    pub(crate) async fn hold_act(&self) -> Result<TxHold, PoolError> {
        self.hold_act_with(1).await
    }

    /// For an act that writes so many items. Each takes less than a sector, in two places.
    pub(crate) async fn hold_act_with(&self, items: u64) -> Result<TxHold, PoolError> {
        let admission = self.admit_act(items).await?;
        self.pool.hold(admission)
    }

    /// Admits an act that writes so many items.
    pub(crate) async fn admit_act(&self, items: u64) -> Result<Admission, PoolError> {
        let demand = Demand {
            dirty_bytes: items.saturating_mul(4096),
            sectors: ACT_SECTORS.saturating_add(items.saturating_mul(2)),
            log_bytes: 0,
            class: SpaceClass::Remove,
            lane: Lane::Sparse,
        };
        self.pool.admit(demand).await
    }

    /// All datasets for a listing, by name.
    pub fn list(&self) -> Vec<DatasetInfo> {
        let mut usage = self.usage();
        let info = |of: &Arc<Dataset>| self.info_in(of, &mut usage);
        let mut list: Vec<DatasetInfo> = self.all().iter().map(info).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// One dataset for a listing.
    pub fn info(&self, dataset: &Dataset) -> DatasetInfo {
        self.info_in(dataset, &mut self.usage())
    }

    fn info_in(&self, dataset: &Dataset, usage: &mut Usage) -> DatasetInfo {
        let is_pools_own = dataset.record.lock().parent.0 == 0;
        let now = Time::from_ns(self.pool.world().wall_ns());
        DatasetInfo {
            name: self.full_name(dataset),
            used: usage.used.get(&dataset.id).copied().unwrap_or_default(),
            refer: dataset.refer(),
            refreserved_bytes: usage.lacking.get(&dataset.id).copied().unwrap_or_default(),
            own_refreserved_bytes: dataset.lacking_bytes(),
            counts_saved: self.pool.counts_saved(),
            available_bytes: self.available_in(dataset, usage),
            next_snapshot: self.next_snapshot(dataset, now),
            origin: self.origin_of(dataset),
            is_standby: dataset.is_standby(),
            user_properties: self.user_values(dataset),
            properties: PROPERTIES
                .into_iter()
                .filter(|property| is_pools_own || !property.is_of_pool())
                .map(|property| {
                    let (value, source) = self.value(dataset, property);
                    (property, value, source)
                })
                .collect(),
        }
    }

    /// Whether the pool counts what compression saves.
    pub fn counts_saved(&self) -> bool {
        self.pool.counts_saved()
    }

    pub(crate) fn counters_item(&self) -> Item {
        let mut w = Writer::new();
        w.u64(self.state.lock().next_dataset);
        let key = ItemKey::new(DatasetId(0), ItemClass::Record, 0);
        Item { key, value: w.into_bytes() }
    }
}

/// Import: what waits for the rest of its stream stays; else what is half goes back, and what is
/// destroyed is.
fn load_receive(
    dataset: &Dataset,
    (from, resume): (Option<&Txg>, Option<&ResumeRecord>),
    is_destroyed: bool,
) {
    // A new one has a record of a destroyed dataset, and no snapshot to go back to.
    let is_new = is_destroyed && from.is_none();
    let resume = resume.filter(|of| of.from.is_none() == is_new && (is_new || from.is_some()));
    let stage = if resume.is_some() { Stage::Comes } else { Stage::Left };
    dataset.increment.set(from.map(|from| Coming { from: *from, stage }));
    match resume {
        Some(record) => {
            dataset.load_resume(record.clone());
            if is_new {
                dataset.set_received();
            }
        }
        None if is_destroyed => dataset.set_destroyed(Txg(1)),
        None => {}
    }
}

/// Import: a dataset, and why its dead tree cannot be read, if it cannot.
async fn load(
    pool: &Pool,
    rooms: (&Arc<Shelf>, &Arc<Awake>),
    (id, record, local): (DatasetId, DatasetRecord, LocalValues),
    mut snapshots: Snapshots,
    inherited: &BTreeMap<OnLine, Space>,
) -> Result<(Dataset, Option<PoolError>), PoolError> {
    let properties = Properties::from_values(|property| property.default_value().into());
    snapshots.load_inherited(id, inherited);
    let (dead, unreadable) = DeadTree::open(pool, record.dead, &snapshots).await?;
    let dataset = Dataset::new(rooms, id, record, local, properties);
    *dataset.dead.lock() = dead;
    *dataset.snapshots.lock() = snapshots;
    *dataset.inherited.lock() = inherited.get(&(id, Txg(0))).copied();
    dataset.load_rollback();
    Ok((dataset, unreadable))
}
