//! Space that the background still frees in datasets that stay: files without a name, and what
//! destroyed snapshots alone showed. (A destroyed dataset counts as a whole:
//! [`Datasets::freeing_bytes`].)
//!
//! It is counted when somebody asks, from the newest root: the frees of a txg on its way still
//! count. Snapshots may go on to show a part of what a file without a name takes. What was cut off
//! a file that stays counts in the sum of that file until it is free.

use std::collections::BTreeMap;
use std::sync::Arc;

use aquifer_object::{TreeRoot, btree};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::dead::{Bucket, DeadSums};
use aquifer_ondisk::tree_node::Objects;
use aquifer_pool::{Pool, PoolError};

use super::returning::returning;
use super::sweep::{Job, Lists};
use crate::dataset::Dataset;
use crate::datasets::Datasets;

/// Files without a name that are looked up at most, of one dataset.
const ORPHANS_MAX: usize = 20_000;
/// As many at a time.
const AT_ONCE: usize = 500;

impl Datasets {
    /// Whether anything waits to be freed in datasets that stay.
    pub fn are_any_freed(&self) -> bool {
        self.keep_and_free().next().is_some()
    }

    /// Bytes that wait to be freed in datasets that stay.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn waiting_bytes(&self) -> Result<u64, PoolError> {
        let mut bytes = 0u64;
        for dataset in self.keep_and_free() {
            let of_files = dataset.orphan_bytes(&self.pool).await?;
            let of_snapshots = dataset.swept_bytes(&self.pool).await?;
            let sum = of_files.saturating_add(of_snapshots).min(dataset.own_bytes());
            bytes = bytes.saturating_add(sum);
        }
        Ok(bytes)
    }

    fn keep_and_free(&self) -> impl Iterator<Item = Arc<Dataset>> + use<> {
        let all: Vec<Arc<Dataset>> = self.state.lock().datasets.values().cloned().collect();
        all.into_iter().filter(|of| match of.is_destroyed() {
            true => of.is_hidden_line() && of.is_being_swept(),
            false => of.is_being_freed(),
        })
    }
}

impl Dataset {
    /// Bytes of files without a name.
    async fn orphan_bytes(&self, pool: &Pool) -> Result<u64, PoolError> {
        let orphans: Vec<ObjectId> =
            self.orphans.lock().iter().rev().copied().take(ORPHANS_MAX).collect();
        let mut bytes = 0u64;
        for some in orphans.chunks(AT_ONCE) {
            // Before the root is looked at.
            let _reading = pool.reading();
            let table = self.committed_objects();
            for id in some {
                let tree = match self.cached(*id) {
                    Some(object) => Some(Dataset::tree_of(&object)),
                    None => {
                        let inode = btree::lookup::<Objects, Pool>(pool, table, id.0).await?;
                        inode.as_ref().map(TreeRoot::of)
                    }
                };
                let owned = tree.map_or(0, |of| of.refer.minus(of.inherited).bytes);
                bytes = bytes.saturating_add(owned);
            }
            pool.turn_of_others().await;
        }
        Ok(bytes)
    }

    /// Bytes that sweeps will free.
    async fn swept_bytes(&self, pool: &Pool) -> Result<u64, PoolError> {
        let (sweeps, back, lists) = {
            let snapshots = self.snapshots.lock();
            let sweeps = snapshots.sweeps().into_iter().map(Job::Snapshot);
            let of_files = snapshots.files.sweeps().map(|(id, of)| Job::File(of, id));
            let sweeps: Vec<Job> = sweeps.chain(of_files).collect();
            let lists = Lists::new(snapshots.listed(), snapshots.files.lists());
            (sweeps, returning(&snapshots), lists)
        };
        // Two sweeps may look at one bucket.
        let mut freed = BTreeMap::new();
        for job in sweeps {
            freed.extend(self.buckets_of(pool, job, &lists).await?);
            pool.turn_of_others().await;
        }
        for job in back {
            for bucket in self.buckets_of(pool, job, &lists).await?.into_keys() {
                freed.remove(&bucket);
            }
        }
        let sectors = freed.into_values().map(|sums| sums.sectors).fold(0, u64::saturating_add);
        Ok(sectors.saturating_mul(4096))
    }

    async fn buckets_of(
        &self,
        pool: &Pool,
        job: Job,
        lists: &Lists,
    ) -> Result<BTreeMap<Bucket, DeadSums>, PoolError> {
        // Before the root is looked at.
        let _reading = pool.reading();
        let root = self.dead.lock().committed;
        job.buckets(pool, root, lists).await
    }
}
