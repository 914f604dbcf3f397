//! The state of a pool, for `pool status` and metrics.

use std::time::Duration;

use aquifer_meter::Histogram;
use aquifer_ondisk::config::{LeafConfig, Redundancy, Stands, VdevClass};
use aquifer_ondisk::{Guid, Txg};
use aquifer_space::SpaceUse;
use aquifer_sync::atomic::{AtomicU64, Ordering};
use aquifer_vdev::{Discarded, IoCounts, Leaf, LeafState, LeafTrouble};

use crate::Pool;
use crate::caches::CacheStatus;
use crate::flow::limits::TXG_SLOW_MS;
use crate::resilver::progress::ResilverStatus;
use crate::tree::VdevTree;
use crate::trim::{FreeWork, FreeWorkStatus};

/// One disk.
#[derive(Debug, Clone)]
pub struct LeafStatus {
    /// Identity.
    pub guid: Guid,
    /// Path.
    pub path: String,
    /// State.
    pub state: LeafState,
    /// An administrator took it out of use.
    pub offline: bool,
    /// The disk was to come back, and has changes of its own.
    pub own_past: bool,
    /// Why it is beside another one.
    pub stands: Stands,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes and flushes.
    pub write_errors: u64,
    /// Reads with wrong checksums.
    pub checksum_errors: u64,
    /// Bad copies that were rewritten.
    pub repaired: u64,
    /// The last error.
    pub last_error: Option<String>,
    /// Trouble with it beside its state.
    pub trouble: LeafTrouble,
    /// Its operations since import.
    pub io: IoCounts,
    /// Work on its free space.
    pub free_space: LeafFreeSpace,
}

/// Work that was done on the free space of a disk since import.
#[derive(Debug, Clone, Default)]
pub struct LeafFreeSpace {
    /// Discards that were carried out.
    pub discards: u64,
    /// Their bytes.
    pub discarded_bytes: u64,
    /// Discards that failed.
    pub discard_errors: u64,
    /// The disk has refused a discard as unsupported.
    pub cannot_discard: bool,
    /// The newest trim.
    pub trim: Option<FreeWorkStatus>,
    /// The newest initialization.
    pub initialize: Option<FreeWorkStatus>,
}

/// One top-level vdev.
#[derive(Debug, Clone)]
pub struct VdevStatus {
    /// Its class.
    pub class: VdevClass,
    /// Its redundancy.
    pub redundancy: Redundancy,
    /// Sectors of logical space.
    pub sectors: u64,
    /// Its disks.
    pub leaves: Vec<LeafStatus>,
    /// Its operations since import, each counted once however many copies there are.
    pub io: IoCounts,
}

/// A pool.
#[derive(Debug, Clone)]
pub struct PoolStatus {
    /// Name.
    pub name: String,
    /// Identity.
    pub guid: Guid,
    /// Newest committed txg.
    pub txg: Txg,
    /// The reason for a suspension, if the pool is suspended.
    pub suspended: Option<String>,
    /// It is imported read-only.
    pub read_only: bool,
    /// Its disks do not answer.
    pub silent: bool,
    /// The use of its sectors.
    pub space: SpaceUse,
    /// Metaslabs closed to allocation.
    pub closed_metaslabs: usize,
    /// Its vdevs.
    pub vdevs: Vec<VdevStatus>,
    /// Time since the import.
    pub uptime: Duration,
    /// The time that each txg took to reach the disk.
    pub syncs: Histogram,
    /// Times of stable writes that ended outside of a sync, from their admission until they were
    /// durable.
    pub stable_writes: Histogram,
    /// Times of those that ended during a sync: the sync's cost to others.
    pub stable_writes_in_sync: Histogram,
    /// The newest resilver since the import.
    pub resilver: Option<ResilverStatus>,
    /// Its spares.
    pub spares: Vec<SpareStatus>,
    /// Its cache disks.
    pub caches: Vec<CacheStatus>,
}

/// A spare.
#[derive(Debug, Clone)]
pub struct SpareStatus {
    /// Identity.
    pub guid: Guid,
    /// Path.
    pub path: String,
    /// Whether its disk is there.
    pub present: bool,
    /// The path of the disk for which it stands now.
    pub stands_for: Option<String>,
}

impl PoolStatus {
    /// Its spares that are no leaves of its vdevs now.
    pub fn waiting_spares(&self) -> impl Iterator<Item = &SpareStatus> {
        let stands = |spare: &SpareStatus| {
            let mut leaves = self.vdevs.iter().flat_map(|vdev| &vdev.leaves);
            leaves.any(|leaf| leaf.guid == spare.guid)
        };
        self.spares.iter().filter(move |spare| !stands(spare))
    }

    /// Paths of its disks: the leaves of its vdevs, then its spares and cache disks. One that
    /// stands in is twice there.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let leaves = self.vdevs.iter().flat_map(|vdev| &vdev.leaves).map(|leaf| &leaf.path);
        let caches = self.caches.iter().map(|cache| &cache.leaf.path);
        let spares = self.spares.iter().map(|spare| &spare.path);
        leaves.chain(spares).chain(caches).map(String::as_str)
    }
}

impl Pool {
    /// The pool's state.
    pub fn status(&self) -> PoolStatus {
        let tree = self.tree();
        let space = self.space.lock();
        let [apart, in_sync] = &self.meters.stable_writes;
        PoolStatus {
            name: self.name().to_string(),
            guid: self.guid(),
            txg: self.committed_txg(),
            suspended: self.suspended(),
            read_only: self.is_read_only(),
            silent: self.is_silent(),
            space: space.space_use(),
            closed_metaslabs: space.closed().len(),
            vdevs: tree
                .config
                .vdevs
                .iter()
                .zip(&tree.vdevs)
                .map(|(config, vdev)| VdevStatus {
                    class: config.class,
                    redundancy: config.redundancy,
                    sectors: vdev.geometry.sectors(),
                    leaves: config
                        .leaves
                        .iter()
                        .zip(&vdev.leaves)
                        .map(|(config, leaf)| self.leaf_status(config, leaf))
                        .collect(),
                    io: vdev.io.look(),
                })
                .collect(),
            uptime: self.world.now().saturating_sub(self.meters.imported),
            syncs: self.meters.syncs.look(),
            stable_writes: apart.look(),
            stable_writes_in_sync: in_sync.look(),
            resilver: self.resilver_status(),
            spares: spares(&tree),
            caches: self.cache_status(&tree),
        }
    }
}

impl Pool {
    /// Counts this many durable stable writes, which began at this time of the world.
    pub fn note_stable_writes(&self, begun: Duration, writes: usize) {
        let took = self.world.now().saturating_sub(begun);
        let [apart, in_sync] = &self.meters.stable_writes;
        let of = if self.flow.is_syncing() { in_sync } else { apart };
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        (0..writes).for_each(|_| of.record(ns));
    }

    /// Notes that `txg`, closed at `closed`, is on disk.
    pub(crate) fn note_sync(&self, txg: Txg, closed: Duration) {
        let took = self.world.now().saturating_sub(closed);
        self.meters.syncs.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.compare_paces();
        if took >= Duration::from_millis(TXG_SLOW_MS) {
            let seconds = took.as_secs();
            tracing::warn!(
                class = "txg.slow", pool = self.name(), %txg, seconds,
                "a txg took long to come to disk"
            );
        }
    }
}

fn spares(tree: &VdevTree) -> Vec<SpareStatus> {
    let path_of = |guid| tree.leaf(guid).map(|leaf| leaf.path.clone());
    let status = |spare: &LeafConfig| {
        let stands = tree.config.leaves().find(|(_, leaf)| leaf.guid == spare.guid);
        let stands_for = stands.and_then(|(_, leaf)| match leaf.stands {
            Stands::SpareFor(whom) => path_of(whom),
            _ => None,
        });
        let free = tree.spares.iter().find(|leaf| leaf.guid == spare.guid);
        let leaf = free.or_else(|| tree.leaf(spare.guid));
        SpareStatus {
            guid: spare.guid,
            path: leaf.map_or_else(|| spare.path.clone(), |leaf| leaf.path.clone()),
            present: leaf.is_some_and(|leaf| leaf.disk().is_some()),
            stands_for,
        }
    };
    tree.config.spares.iter().map(status).collect()
}

impl Pool {
    pub(crate) fn leaf_status(&self, config: &LeafConfig, leaf: &Leaf) -> LeafStatus {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LeafStatus {
            guid: leaf.guid,
            path: leaf.path.clone(),
            state: leaf.shown_state(),
            offline: leaf.was_taken_offline() && !leaf.takes_writes(),
            own_past: leaf.has_own_past() && !leaf.takes_writes(),
            stands: config.stands,
            read_errors: count(&leaf.counters.read_errors),
            write_errors: count(&leaf.counters.write_errors),
            checksum_errors: count(&leaf.counters.checksum_errors),
            repaired: count(&leaf.counters.repaired),
            last_error: leaf.last_error(),
            trouble: leaf.trouble(),
            io: leaf.io.look(),
            free_space: self.free_space_of(leaf),
        }
    }

    fn free_space_of(&self, leaf: &Leaf) -> LeafFreeSpace {
        let Discarded { count, bytes, errors } = &leaf.discarded;
        LeafFreeSpace {
            discards: count.load(Ordering::Relaxed),
            discarded_bytes: bytes.load(Ordering::Relaxed),
            discard_errors: errors.load(Ordering::Relaxed),
            cannot_discard: leaf.disk().is_some() && !leaf.can_discard(),
            trim: self.free_work(leaf.guid, FreeWork::Trim),
            initialize: self.free_work(leaf.guid, FreeWork::Initialize),
        }
    }
}
