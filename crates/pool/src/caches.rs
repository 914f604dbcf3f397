//! Disks of the second-level read cache: reads go to them before the pool, and what was read from
//! the pool is offered to them.
//!
//! Invariant: what they return counts only if it verifies, as what any disk returns. Nothing else
//! of the pool asks them, and nothing waits until they have written.

use std::sync::Arc;

use aquifer_arc::Memory;
use aquifer_blockio::{Page, World};
use aquifer_l2arc::{CacheDisk, CacheStats};
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::{LeafConfig, PoolConfig};
use aquifer_ondisk::l2arc::CachedRun;
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_vdev::Leaf;
use futures_util::future::join_all;

use crate::acts::QUIET_WAIT;
use crate::create::{NamedDisk, check_new_disk};
use crate::error::{ActError, PoolError};
use crate::import::FoundLeaf;
use crate::import::leaves::place_of;
use crate::pool::Pool;
use crate::status::LeafStatus;
use crate::tree::VdevTree;

/// The indexes of all cache disks take at most this part of the memory.
const INDEX_PART: u64 = 8;
/// The cache disks of a pool.
pub(crate) type Caches = Arc<[Arc<CacheDisk>]>;

/// A cache disk.
#[derive(Debug, Clone)]
pub struct CacheStatus {
    /// Its state as a disk.
    pub leaf: LeafStatus,
    /// Whether it is read and written: it is there, and answers.
    pub usable: bool,
    /// Counts of what it holds, and of how often it was asked.
    pub stats: CacheStats,
}

/// The cache disks of the config, present or not.
pub(crate) fn assemble_caches(
    world: &Arc<dyn World>,
    config: &PoolConfig,
    found: &[FoundLeaf],
    memory: &Arc<Memory>,
) -> Caches {
    let cache = |of: &LeafConfig| {
        let (path, disk) = place_of(of, found);
        let leaf = Arc::new(Leaf::new(of.guid, path, disk, world.clone()));
        new_cache(world, config.pool_guid, leaf, (memory, config.caches.len()))
    };
    config.caches.iter().map(cache).collect()
}

/// A cache on a leaf, one of so many.
fn new_cache(
    world: &Arc<dyn World>,
    pool: Guid,
    leaf: Arc<Leaf>,
    (memory, count): (&Arc<Memory>, usize),
) -> Arc<CacheDisk> {
    let index_bytes_max = memory.cap_bytes() / INDEX_PART / count.max(1) as u64;
    CacheDisk::new(leaf, pool, world.clone(), (memory, index_bytes_max))
}

impl Pool {
    fn caches(&self) -> Caches {
        self.tree.read().caches.clone()
    }

    /// Sectors of a block, from a cache disk, or else by `read` from the pool.
    pub(crate) async fn read_through_caches(
        &self,
        run: CachedRun,
        verify: &(dyn Fn(&[Page]) -> bool + Sync),
        read: impl Future<Output = Result<Vec<Page>, PoolError>>,
    ) -> Result<Vec<Page>, PoolError> {
        let caches = self.caches();
        if caches.is_empty() {
            return read.await;
        }
        for cache in caches.iter() {
            // Rare, and large: boxed, so that it is not a part of every read's future.
            if let Some(pages) = Box::pin(cache.read(&run, verify)).await {
                return Ok(pages);
            }
        }
        let pages = read.await?;
        let usable = || caches.iter().filter(|cache| cache.is_usable());
        // Neighbours lie together.
        let turn = run.place.sector() / SEGMENT_SECTORS % usable().count().max(1) as u64;
        if let Some(cache) = usize::try_from(turn).ok().and_then(|turn| usable().nth(turn)) {
            cache.offer(run, &pages);
        }
        Ok(pages)
    }

    /// Adds a cache disk. `force` also accepts a disk with labels of another pool.
    ///
    /// # Errors
    /// The disk cannot be used, or there are too many. Nothing was written then.
    pub async fn add_cache(&self, disk: NamedDisk, force: bool) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        check_new_disk(&disk, force).await?;
        self.check_count(1)?;
        let (config, clock) = (self.new_leaf(&disk), self.world.clone());
        let leaf = Arc::new(Leaf::new(config.guid, disk.path, Some(disk.disk), clock));
        let mut tree = VdevTree::clone(&self.tree());
        tree.config.caches.push(config);
        let sharing = (self.shares.memory(), tree.config.caches.len());
        let cache = new_cache(&self.world, self.guid(), leaf.clone(), sharing);
        tree.caches = tree.caches.iter().cloned().chain([cache.clone()]).collect();
        self.change_tree(tree, &[leaf]).await?;
        self.world.spawn("cache", Box::pin(cache.run()));
        Ok(())
    }

    /// Removes a cache disk (a path or guid), and wipes its labels. `None`: there is none of this
    /// name.
    ///
    /// # Errors
    /// It does not answer, or the change cannot be written.
    pub async fn remove_cache(&self, disk: &str) -> Result<Option<()>, ActError> {
        let _act = self.acts.turn.lock().await;
        let mut tree = VdevTree::clone(&self.tree());
        let is_it = |leaf: &Leaf| leaf.path == disk || leaf.guid.to_string() == disk;
        let Some(gone) = tree.caches.iter().find(|cache| is_it(cache.leaf())).cloned() else {
            return Ok(None);
        };
        let guid = gone.leaf().guid;
        tree.config.caches.retain(|cache| cache.guid != guid);
        tree.caches = tree.caches.iter().filter(|of| of.leaf().guid != guid).cloned().collect();
        self.change_tree(tree, &[]).await?;
        gone.stop();
        // A late write would land on what the disk holds next.
        if !self.is_quiet_within(gone.leaf(), QUIET_WAIT).await {
            let reason = "has left the pool, but still has a write to answer: do not use it for \
                          anything else before this host was restarted or the disk was pulled";
            return Err(ActError::BadDisk {
                path: gone.leaf().path.clone(),
                reason: reason.into(),
            });
        }
        self.wipe(gone.leaf()).await;
        Ok(Some(()))
    }

    /// The pool is in service: cache disks are, too.
    pub(crate) fn run_caches(&self) {
        for cache in self.caches().iter() {
            self.world.spawn("cache", Box::pin(cache.clone().run()));
        }
    }

    /// The pool's service ends.
    pub(crate) fn stop_caches(&self) {
        self.caches().iter().for_each(|cache| cache.stop());
    }

    /// Waits for what cache disks are still writing, but not for ever: what comes late is no harm.
    pub(crate) async fn quiet_caches(&self) {
        let caches = self.caches();
        join_all(caches.iter().map(|cache| self.is_quiet_within(cache.leaf(), QUIET_WAIT))).await;
    }

    /// Cache disks that failed or were left alone are tried again: one, or all. What one that
    /// failed holds is read again from the disk.
    pub(crate) async fn try_caches_again(&self, disk: Option<Guid>) {
        if self.caches().is_empty() {
            return;
        }
        let _act = self.acts.turn.lock().await;
        let mut tree = VdevTree::clone(&self.tree());
        let again = |cache: &Arc<CacheDisk>| {
            let leaf = cache.leaf();
            if disk.is_some_and(|guid| leaf.guid != guid) {
                return cache.clone();
            }
            leaf.clear_errors();
            cache.try_again();
            let Some(disk) = leaf.disk().filter(|_| !leaf.is_online() && leaf.is_quiet()) else {
                return cache.clone();
            };
            let (path, clock) = (leaf.path.clone(), self.world.clone());
            let fresh = Arc::new(Leaf::new(leaf.guid, path, Some(disk.clone()), clock));
            let sharing = (self.shares.memory(), tree.config.caches.len());
            let cache = new_cache(&self.world, self.guid(), fresh, sharing);
            self.world.spawn("cache", Box::pin(cache.clone().run()));
            cache
        };
        tree.caches = tree.caches.iter().map(again).collect();
        *self.tree.write() = Arc::new(tree);
    }

    /// Its cache disks.
    pub(crate) fn cache_status(&self, tree: &VdevTree) -> Vec<CacheStatus> {
        let status = |(config, cache): (&LeafConfig, &Arc<CacheDisk>)| CacheStatus {
            leaf: self.leaf_status(config, cache.leaf()),
            usable: cache.is_usable(),
            stats: cache.stats(),
        };
        tree.config.caches.iter().zip(tree.caches.iter()).map(status).collect()
    }
}
