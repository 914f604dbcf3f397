//! All datasets of a pool: opening them, and the administrator's acts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::dataset::{DatasetRecord, Item, ItemClass, ItemKey, LineRecord};
use aquifer_ondisk::inode::{FileKind, Inode, Time};
use aquifer_ondisk::keeping::Cadence;
use aquifer_ondisk::pool_root::TreeSlot;
use aquifer_ondisk::types::{FIRST_OBJECT, SEQUENCE_LIMIT};
use aquifer_ondisk::{BlockPointer, DatasetId, Guid, ObjectId, Txg, Writer};
use aquifer_pool::{BoxFuture, Demand, Lane, Pool, PoolError, SpaceClass, TxHold};
use aquifer_sync::atomic::AtomicBool;
use aquifer_sync::{AsyncMutex, Mutex};

use crate::damage::{DamageList, only};
use crate::dataset::{Dataset, ORPHANS, ROOT_DIRECTORY};
use crate::dead::DeadTree;
use crate::error::DatasetError;
use crate::history::History;
use crate::holds::Clock;
use crate::namespace::Found;
use crate::property::{LocalValues, PROPERTIES, Properties, Property, SyncMode};
use crate::quota::Wanted;
use crate::replies::Replies;
use crate::schedule::Told;
use crate::scrub::Scrubbed;
use crate::snapshots::{Act, Views};
use crate::tree::check_component;
use crate::values::bytes_of;

/// What `aquifer list` shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetInfo {
    /// Full name.
    pub name: String,
    /// Bytes that it and its children take, with what only snapshots show.
    pub used_bytes: u64,
    /// Bytes that it refers to itself.
    pub refer_bytes: u64,
    /// Bytes that can be written to it.
    pub available_bytes: u64,
    /// Property, value in force, and where it comes from (`local`, `default`, or a dataset).
    pub properties: Vec<(Property, String, String)>,
    /// When a schedule takes its next snapshot, in seconds since 1970, and of which cadence.
    pub next_snapshot: Option<(u64, Cadence)>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub datasets: BTreeMap<DatasetId, Arc<Dataset>>,
    /// The same by file system guid: every call asks for one.
    pub guids: HashMap<Guid, DatasetId>,
    /// Created but not on disk yet: synced, not shown. Or destroyed, and being emptied.
    pub hidden: BTreeSet<DatasetId>,
    pub next_dataset: u64,
    /// Items to be written with each txg.
    pub items: BTreeMap<Txg, BTreeMap<ItemKey, Option<Item>>>,
    /// Acts on snapshots that the sync of each txg carries out.
    pub snapshot_acts: BTreeMap<Txg, Vec<Act>>,
    /// Datasets of which each txg writes the record since they have another name.
    pub renamed: BTreeMap<Txg, BTreeSet<DatasetId>>,
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
    /// Whether any dataset has a quota or a reservation. Every write looks at it first.
    pub(crate) limited: AtomicBool,
    /// Serialises each look at quotas and reservations with the promise that it makes.
    pub(crate) promises: Mutex<()>,
    pub(crate) views: Mutex<Views>,
    /// One act of an administrator at a time.
    pub(crate) acts: AsyncMutex<()>,
    pub(crate) damages: DamageList,
    pub(crate) scrub: Scrubbed,
    pub(crate) hold_clock: Clock,
    pub(crate) schedules_failed: Told,
    pub(crate) replies: Arc<Replies>,
    pub(crate) history: History,
}

/// Sectors that an act may take: some tree paths.
const ACT_SECTORS: u64 = 64;

impl State {
    fn insert(&mut self, id: DatasetId, dataset: Arc<Dataset>) {
        self.guids.insert(dataset.fs_guid, id);
        self.datasets.insert(id, dataset);
    }

    pub(crate) fn remove(&mut self, id: DatasetId) {
        if let Some(gone) = self.datasets.remove(&id) {
            self.guids.remove(&gone.fs_guid);
        }
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
            let mut state = State {
                datasets: BTreeMap::new(),
                guids: HashMap::new(),
                hidden: BTreeSet::new(),
                next_dataset: 1,
                items: BTreeMap::new(),
                snapshot_acts: BTreeMap::new(),
                renamed: BTreeMap::new(),
                root,
                emptied: Vec::new(),
                gone: BTreeMap::new(),
            };
            let found = Found::read(&pool, root).await?;
            let Found { records, destroyed, damages, scrub, next_dataset, .. } = found;
            let (mut values, mut snapshots) = (found.values, found.snapshots);
            let mut keeping = found.keeping;
            state.next_dataset = next_dataset;
            let mut damaged: Vec<(DatasetId, PoolError)> = Vec::new();
            for (id, record) in records {
                let local = values.remove(&id).unwrap_or_default();
                let properties =
                    Properties::from_values(|property| property.default_value().into());
                let (dead, unreadable) = DeadTree::open(&pool, record.dead).await?;
                damaged.extend(unreadable.map(|error| (id, error)));
                let dataset = Dataset::new(id, record, local, properties);
                *dataset.dead.lock() = dead;
                *dataset.snapshots.lock() = snapshots.remove(&id).unwrap_or_default();
                *dataset.keeping.lock() = keeping.remove(&id).unwrap_or_default();
                if destroyed.contains(&id) {
                    dataset.set_destroyed(Txg(1));
                    state.hidden.insert(id);
                }
                state.insert(id, Arc::new(dataset));
            }
            let replies = Replies::open(pool.clone()).await?;
            let history = History::open(pool.clone()).await?;
            let hold_clock = Clock::new(found.hold_clock, pool.world().now());
            let datasets = Datasets {
                pool,
                state: Mutex::new(state),
                limited: AtomicBool::new(false),
                promises: Mutex::new(()),
                views: Mutex::default(),
                acts: Default::default(),
                damages,
                scrub,
                hold_clock,
                schedules_failed: Told::default(),
                replies,
                history,
            };
            datasets.refresh_properties();
            for (id, error) in damaged {
                if let Some(dataset) = datasets.by_id(id) {
                    datasets.note_damage(&dataset, ObjectId(0), Txg(0), only(error), false);
                }
            }
            for dataset in datasets.all() {
                datasets.enter_views(&dataset);
                if dataset.properties().sync == SyncMode::Disabled {
                    dataset.unlogged.is_from_the_start();
                }
                datasets.find_orphans(&dataset).await?;
            }
            Ok(Arc::new(datasets))
        })
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

    /// A dataset, or a snapshot, by its file system guid.
    pub fn by_guid(&self, guid: Guid) -> Option<Arc<Dataset>> {
        let found = {
            let state = self.state.lock();
            let found = state.guids.get(&guid).and_then(|id| state.datasets.get(id));
            found.filter(|dataset| !state.hidden.contains(&dataset.id)).cloned()
        };
        found.or_else(|| self.view_of(guid))
    }

    /// A dataset by its full name.
    pub fn by_name(&self, name: &str) -> Option<Arc<Dataset>> {
        self.all().into_iter().find(|dataset| self.full_name(dataset) == name)
    }

    /// Makes the pool's own dataset if this is the first import.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn ensure_root(&self) -> Result<(), DatasetError> {
        if self.state.lock().datasets.is_empty() {
            let name = self.pool.name().to_string();
            self.make(DatasetId(0), name, LocalValues::new()).await?;
        }
        Ok(())
    }

    /// Makes a dataset; it is on disk when this returns.
    ///
    /// # Errors
    /// Bad names and values, a parent that does not exist, a name that already does.
    pub fn create<'a>(
        &'a self,
        name: &'a str,
        properties: &'a [(String, String)],
    ) -> BoxFuture<'a, Result<(), DatasetError>> {
        Box::pin(async move {
            let bad = |why: &str| DatasetError::BadName { name: name.into(), why: why.into() };
            let (parent, last) = name
                .rsplit_once('/')
                .ok_or_else(|| bad("is a pool's name: a dataset lies below one, as in tank/vms"))?;
            check_component(last).map_err(bad)?;
            let mut local = LocalValues::new();
            for (property, value) in properties {
                let property = Property::from_name(property)?;
                if property.is_of_pool() {
                    return Err(self.belongs_to_pool(property));
                }
                local.insert(property, property.parse(value)?);
            }
            let parent =
                self.by_name(parent).ok_or_else(|| DatasetError::NotFound(parent.into()))?;
            if self.by_name(name).is_some() {
                return Err(DatasetError::Exists(name.into()));
            }
            self.make(parent.id, last.to_string(), local).await
        })
    }

    async fn make(
        &self,
        parent: DatasetId,
        name: String,
        local: LocalValues,
    ) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        let world = self.pool.world().clone();
        let now = Time::from_ns(world.wall_ns());
        let record = DatasetRecord {
            fs_guid: Guid(world.random().max(1)),
            parent,
            created: now,
            next_object: FIRST_OBJECT.0,
            next_generation: 1,
            next_snapshot: 1,
            refer_bytes: 0,
            line: 1,
            floor: Txg(0),
            origin: 0,
            objects: None,
            dead: None,
            name,
        };
        let hash_seed = world.random();
        let reserves = local.get(&Property::Reservation);
        let reserves = reserves.map(|value| Wanted::Below(parent, bytes_of(Some(value))));
        if let Some(wanted) = reserves {
            self.make_room(wanted).await?;
        }
        let id = {
            let hold = self.hold_act().await?;
            let _one = self.promises.lock();
            if let Some(wanted) = reserves {
                self.check_reservation(wanted)?;
            }
            let id = self.enter(hold.txg(), record, local, hash_seed)?;
            self.refresh_properties();
            id
        };
        if let Some(made) = self.by_id(id)
            && made.properties().sync == SyncMode::Disabled
        {
            made.unlogged.is_from_the_start();
        }
        self.act_on_disk().await?;
        self.state.lock().hidden.remove(&id);
        Ok(())
    }

    /// Enters a new dataset into `txg`, hidden.
    fn enter(
        &self,
        txg: Txg,
        record: DatasetRecord,
        local: LocalValues,
        hash_seed: u64,
    ) -> Result<DatasetId, DatasetError> {
        let mut state = self.state.lock();
        let id = DatasetId(state.next_dataset);
        if state.datasets.values().filter(|other| !other.is_destroyed()).any(|other| {
            let other = other.record.lock();
            other.parent == record.parent && other.name == record.name
        }) {
            return Err(DatasetError::Exists(record.name));
        }
        let above = state.datasets.get(&record.parent);
        if record.parent.0 != 0 && above.is_none_or(|above| above.is_destroyed()) {
            return Err(DatasetError::NotFound("the dataset above".into()));
        }
        if id.0 >= SEQUENCE_LIMIT - 1 {
            return Err(PoolError::NoSpace.into());
        }
        state.next_dataset += 1;
        let line = LineRecord {
            fork: txg,
            origin_dataset: DatasetId(0),
            origin_snapshot: 0,
            floor: Txg(0),
        };
        let items = state.items.entry(txg).or_default();
        put(items, ItemKey::new(id, ItemClass::Line, record.line), line.encode());
        for (property, value) in &local {
            let key = ItemKey::new(id, ItemClass::Property, *property as u64);
            put(items, key, value.clone().into_bytes());
        }
        let defaults = Properties::from_values(|property| property.default_value().into());
        let created = record.created;
        let dataset = Arc::new(Dataset::new(id, record, local, defaults));
        for object in [ROOT_DIRECTORY, ORPHANS] {
            let inode = directory_inode(object, created, hash_seed);
            let made = dataset.object_or_new(&inode);
            made.state.lock().overlay.version(txg, &inode);
            dataset.mark_dirty(txg, object);
        }
        state.insert(id, dataset);
        state.hidden.insert(id);
        Ok(id)
    }

    /// Waits until an act is on disk. The log does not have it, so only its txg makes it durable.
    pub(crate) async fn act_on_disk(&self) -> Result<(), PoolError> {
        if left_out(Rule::ActsOnDiskFirst) {
            return Ok(());
        }
        self.pool.sync().await.map(drop)
    }

    pub(crate) async fn hold_act(&self) -> Result<TxHold, PoolError> {
        let demand = Demand {
            dirty_bytes: 4096,
            sectors: ACT_SECTORS,
            log_bytes: 0,
            class: SpaceClass::Remove,
            lane: Lane::Sparse,
        };
        let admission = self.pool.admit(demand).await?;
        self.pool.hold(admission)
    }

    /// All datasets for a listing, by name.
    pub fn list(&self) -> Vec<DatasetInfo> {
        let mut list: Vec<DatasetInfo> = self.all().iter().map(|of| self.info(of)).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// One dataset for a listing.
    pub fn info(&self, dataset: &Dataset) -> DatasetInfo {
        let is_pools_own = dataset.record.lock().parent.0 == 0;
        let now = Time::from_ns(self.pool.world().wall_ns());
        DatasetInfo {
            name: self.full_name(dataset),
            used_bytes: self.used_bytes(dataset),
            refer_bytes: dataset.refer_bytes(),
            available_bytes: self.available_bytes(dataset),
            next_snapshot: self.next_snapshot(dataset, now),
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

    pub(crate) fn counters_item(&self) -> Item {
        let mut w = Writer::new();
        w.u64(self.state.lock().next_dataset);
        let key = ItemKey::new(DatasetId(0), ItemClass::Record, 0);
        Item { key, value: w.into_bytes() }
    }
}

fn put(items: &mut BTreeMap<ItemKey, Option<Item>>, key: ItemKey, value: Vec<u8>) {
    items.insert(key, Some(Item { key, value }));
}

/// An empty directory that is its own parent.
pub fn directory_inode(object: ObjectId, now: Time, hash_seed: u64) -> Inode {
    Inode {
        object,
        generation: 0,
        kind: FileKind::Directory,
        damaged: false,
        mode: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        refer_bytes: 0,
        entries: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        change: 1,
        parent: object,
        line: 1,
        origin: ObjectId(0),
        verifier: 0,
        hash_seed,
        root: None,
    }
}
