//! The pool: state shared by all its modules, and its interface to the layers above.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use aquifer_arc::{Cache, Memory};
use aquifer_blockio::{Page, World};
use aquifer_meter::SharedHistogram;
use aquifer_ondisk::log_batch::LogRecord;
use aquifer_ondisk::pool_root::TREES;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::uberblock::{Host, Uberblock};
use aquifer_ondisk::{BlockPointer, Guid, Place, Txg};
use aquifer_space::Allocator;
use aquifer_sync::atomic::{AtomicBool, Ordering};
use aquifer_sync::{AsyncMutex, Mutex, Notify, OnceLock, RwLock};
use aquifer_vdev::Vdev;
use futures_util::future::join_all;

use crate::block::Cached;
use crate::capacity::Capacity;
use crate::commit::Committer;
use crate::error::PoolError;
use crate::flow::Flow;
use crate::intent_log::read::Chain;
use crate::intent_log::{IntentLog, Start};
use crate::limits::Limits;
use crate::memory::Shares;
use crate::readers::Readers;
use crate::record::RecordRing;
use crate::resilver::progress::Progress;
use crate::silence::Silence;
use crate::space::Space;
use crate::sync::SyncContext;
use crate::sync::pace::Window;
use crate::tree::VdevTree;
use crate::trim::Trims;
use crate::txg::Txgs;
use crate::walk::Visitor;

/// Large and rare functions return this instead of being an `async fn`, whose body would be
/// compiled again in each crate that awaits it.
pub use futures_util::future::BoxFuture;

/// Roots of the pool-wide trees, opaque to the pool.
pub type Roots = [Option<BlockPointer>; TREES];

/// The layer above, as the pool needs it: its changes of a txg.
pub trait Trees: Send + Sync {
    /// Writes every change of `sync.txg()` and returns the new roots. No more changes enter that
    /// txg.
    fn sync<'a>(&'a self, sync: &'a SyncContext) -> BoxFuture<'a, Result<Roots, PoolError>>;

    /// The txg is on disk: memory kept for it can be freed.
    fn committed(&self, txg: Txg);

    /// Shows `to` the blocks below these roots, from `start` on, that were born after `since`,
    /// until it wants no more. What lies below a node that cannot be read is passed over. The roots
    /// are held ([`Pool::reading`]) until it returns. Some blocks before `start` may be shown once
    /// more. Returns where the next piece begins: after `start`; `None` if nothing is left.
    ///
    /// # Errors
    /// The pool answers nothing any more.
    fn walk<'a>(
        &'a self,
        roots: Roots,
        since: Txg,
        start: WalkPosition,
        to: &'a mut dyn Visitor,
    ) -> BoxFuture<'a, Result<Option<WalkPosition>, PoolError>>;
}

/// Applies changes that were logged but not committed.
pub trait Replay: Send + Sync {
    /// Shows all records to replay, before the first one is applied: nothing else may use what the
    /// log names, however many txgs the replay takes.
    fn prepare(&self, records: &mut dyn Iterator<Item = &LogRecord>) -> Result<(), PoolError>;

    /// Applies one record, with its payload pages, to the open txg. Records come in the order of
    /// the log.
    fn replay<'a>(
        &'a self,
        record: &'a LogRecord,
        pages: &'a [Page],
    ) -> BoxFuture<'a, Result<(), PoolError>>;
}

/// An imported pool.
pub struct Pool {
    pub(crate) this: Weak<Pool>,
    pub(crate) world: Arc<dyn World>,
    name: String,
    guid: Guid,
    pub(crate) tree: RwLock<Arc<VdevTree>>,
    pub(crate) acts: Acts,
    /// Held while a txg goes to disk: nothing that is written in place changes for who has it.
    pub(crate) sync_turn: AsyncMutex<()>,
    pub(crate) limits: Limits,
    pub(crate) capacity: Capacity,
    pub(crate) cache: Arc<Cache<Cached>>,
    /// Nodes written by the running sync whose writes have not completed: read from here.
    pub(crate) pending: Mutex<HashMap<Place, Page>>,
    pub(crate) space: Space,
    pub(crate) readers: Readers,
    pub(crate) shares: Shares,
    pub(crate) txgs: Txgs,
    pub(crate) meters: Meters,
    pub(crate) log: IntentLog,
    pub(crate) committer: Committer,
    pub(crate) flow: Flow,
    pub(crate) sync_window: Window,
    pub(crate) records: Mutex<RecordRing>,
    pub(crate) roots: Mutex<Roots>,
    pub(crate) trees: OnceLock<Weak<dyn Trees>>,
    pub(crate) import: Import,
    pub(crate) silence: Silence,
}

/// Acts of the administrator on vdevs.
#[derive(Debug, Default)]
pub(crate) struct Acts {
    /// Held by an act: one at a time.
    pub turn: AsyncMutex<()>,
    /// Held by a resilver, and by a scrub for each of its pieces.
    pub background: AsyncMutex<()>,
    /// Held by background work that clients are beside.
    pub alone: AsyncMutex<()>,
    /// A log vdev that is being removed or mended: the log does not go there.
    pub shunned_log: Mutex<Option<u16>>,
    /// A disk became outdated or was asked back, or the pool ends.
    pub disks_changed: Notify,
    /// A disk became outdated or was asked back, or the pool ends: for the task that looks after
    /// spares and disks that are replaced.
    pub stands_changed: Notify,
    /// Work on free space.
    pub trims: Trims,
}

impl Acts {
    /// Disks have changed, or the pool ends.
    pub fn tell_change(&self) {
        self.disks_changed.notify_one();
        self.stands_changed.notify_one();
        self.trims.wanted.notify_one();
    }
}

/// Counts and times for the status and the metrics.
#[derive(Debug)]
pub(crate) struct Meters {
    /// When the pool was imported, by the world's clock.
    pub imported: Duration,
    /// How long each sync took, from the closing of its txg on.
    pub syncs: SharedHistogram,
    /// Stable writes, and those that ended while a txg was on its way to disk.
    pub stable_writes: [SharedHistogram; 2],
    /// The newest resilver.
    pub resilver: Mutex<Option<Arc<Progress>>>,
    /// When the disks' pace was last compared.
    pub paces_compared: Mutex<Duration>,
}

/// State that an import leaves to its replay.
#[derive(Debug)]
pub(crate) struct Import {
    /// The log, which waits for its replay.
    pub found: Mutex<Option<Chain>>,
    /// Whether content that cannot be read counts as damaged, until the log is replayed and on
    /// disk.
    pub discards_unreadable: AtomicBool,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The parts of a new pool.
pub(crate) struct Parts {
    pub world: Arc<dyn World>,
    pub tree: VdevTree,
    pub memory: Arc<Memory>,
    pub limits: Limits,
    pub capacity: Capacity,
    pub space: Allocator,
    pub log: Start,
    pub uberblock: Uberblock,
    /// The newest uberblock that each leaf in use has.
    pub counted: u64,
    pub host: Option<Host>,
    pub records: RecordRing,
    pub roots: Roots,
    pub committed: Txg,
    pub open: Txg,
    pub discards_unreadable: bool,
}

/// Shards of the read cache.
const CACHE_SHARDS: u32 = 16;

impl Pool {
    pub(crate) fn assemble(parts: Parts) -> Arc<Pool> {
        let (name, guid) = (parts.tree.config.name.clone(), parts.tree.config.pool_guid);
        Arc::new_cyclic(|this| Pool {
            this: this.clone(),
            meters: Meters {
                imported: parts.world.now(),
                syncs: SharedHistogram::default(),
                stable_writes: Default::default(),
                resilver: Mutex::new(None),
                paces_compared: Mutex::new(parts.world.now()),
            },
            world: parts.world,
            name,
            guid,
            tree: RwLock::new(Arc::new(parts.tree)),
            acts: Acts::default(),
            sync_turn: AsyncMutex::default(),
            shares: Shares::new(&parts.memory),
            cache: parts.memory.cache(CACHE_SHARDS, parts.limits.scale.arc_bytes_max),
            pending: Mutex::new(HashMap::new()),
            space: Space::new(parts.space),
            readers: Readers::new(),
            txgs: Txgs::new(parts.committed, parts.open),
            limits: parts.limits,
            capacity: parts.capacity,
            flow: Flow::new(parts.limits, parts.memory, parts.log.is_at_home()),
            log: IntentLog::new(parts.log),
            committer: Committer::new(parts.uberblock, parts.counted, parts.host),
            sync_window: Window::new(),
            records: Mutex::new(parts.records),
            roots: Mutex::new(parts.roots),
            trees: OnceLock::new(),
            import: Import {
                found: Mutex::default(),
                discards_unreadable: AtomicBool::new(parts.discards_unreadable),
            },
            silence: Silence::default(),
        })
    }

    pub(crate) fn discards_unreadable(&self) -> bool {
        self.import.discards_unreadable.load(Ordering::Relaxed)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its identity.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Its limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Clock, randomness and executor.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// The intent log.
    pub fn log(&self) -> &IntentLog {
        &self.log
    }

    /// Roots of the newest committed txg.
    pub fn roots(&self) -> Roots {
        *self.roots.lock()
    }

    /// Sets the layer above; call it once, before the first txg is held.
    pub fn attach(&self, trees: Weak<dyn Trees>) {
        let first = self.trees.set(trees).is_ok();
        assert!(first, "a pool has one layer above it");
    }

    /// The layer above.
    pub(crate) fn trees(&self) -> Result<Arc<dyn Trees>, PoolError> {
        self.trees.get().and_then(Weak::upgrade).ok_or(PoolError::Exported)
    }

    /// Requests that the open txg close soon, and does not wait for it.
    pub fn request_txg(&self) {
        self.txgs.request_close();
    }

    /// Lets the next txg close soon, whether there are changes or not. It does not close at once,
    /// as it would for a waiting caller.
    pub fn background_waits(&self) {
        self.txgs.background_waits();
    }

    /// Frees early space of a txg that is not synced yet, and does not need it any more.
    pub fn free_unsynced(&self, txg: Txg, run: Run) {
        self.space.lock().free(txg, run);
    }

    /// Bytes that clients can still write: free space above the reserve, and held-back frees. A
    /// client that needs the latter waits for the commits that release them ([`Pool::admit`]), and
    /// gets them.
    pub fn writable_bytes(&self) -> u64 {
        self.space.coming_sectors().saturating_sub(self.slop_sectors()) * 4096
    }

    /// Sectors in use in the newest root.
    pub fn used_sectors(&self) -> u64 {
        self.space.lock().used_per_vdev().iter().sum()
    }

    /// Sectors that the pool itself uses: labels, bitmap slots, records, intent log.
    pub fn own_sectors(&self) -> u64 {
        let reserved = |vdev: &Arc<Vdev>| {
            let geometry = vdev.geometry;
            let runs = (0..geometry.metaslabs()).flat_map(move |index| geometry.reserved(index));
            runs.map(|(_, count)| count).sum::<u64>()
        };
        let segments = self.log.home_sectors() + self.records.lock().segment_sectors();
        self.tree().data().map(reserved).sum::<u64>() + segments
    }

    /// Flushes every vdev that holds blocks. Batches on log vdevs are durable by themselves.
    pub(crate) async fn flush_all(&self) -> Result<(), PoolError> {
        let tree = self.tree();
        for result in join_all(tree.data().map(|vdev| vdev.flush())).await {
            result?;
        }
        Ok(())
    }

    /// A strong handle to itself, for tasks that outlive a borrow.
    pub(crate) fn arc(&self) -> Result<Arc<Pool>, PoolError> {
        self.this.upgrade().ok_or(PoolError::Exported)
    }
}
