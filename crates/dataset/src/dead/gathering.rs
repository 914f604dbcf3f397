//! Gathering: blocks that a derived snapshot of a file shows move from group 0 of the dead tree to
//! its file's group.
//!
//! The blocks stand in the buckets of group 0 with `hi` at or after the snapshot and `lo` before
//! it, under their file. The dataset's snapshot of that txg is in the list until they are moved:
//! no sweep comes before. In a life that ended there lay no snapshot of the file, so `hi` stays.
//! `lo` is the newest of both kinds before the birth.
//!
//! Nothing else changes the tree in the same sync: what is moved is read from its root.

use aquifer_object::newest_before;
use aquifer_ondisk::dead::{Bucket, DeadKey};
use aquifer_ondisk::{BlockPointer, ObjectId, Txg};
use aquifer_pool::{PoolError, SyncContext};

use super::Changes;
use super::sweep::{Sweep, next_taken};
use crate::file_snapshots::Gathering;

impl Changes {
    /// Moves blocks, at most `budget`. Returns the key from which to go on; `None`: that was all.
    pub async fn gather(
        &mut self,
        of: &Gathering,
        (sync, root): (&SyncContext, Option<BlockPointer>),
        mut budget: usize,
    ) -> Result<Option<DeadKey>, PoolError> {
        let snapshot = of.id.txg();
        let sweep = Sweep { group: 0, snapshot, before: Txg(0), after: None, returns: false };
        let mut key = of.from.unwrap_or(sweep.first_key());
        while let Some((bucket, _)) = next_taken(sync, root, key, |_| sweep).await? {
            if budget == 0 || !self.gather_from(bucket, of, (sync, root), &mut budget).await? {
                return Ok(Some(bucket.sums()));
            }
            key = bucket.end();
            // Looking at it costs, too.
            budget = budget.saturating_sub(1);
            sync.pace().await;
        }
        Ok(None)
    }

    /// Moves what a bucket has of a file. Returns whether that was all.
    async fn gather_from(
        &mut self,
        bucket: Bucket,
        of: &Gathering,
        (sync, root): (&SyncContext, Option<BlockPointer>),
        budget: &mut usize,
    ) -> Result<bool, PoolError> {
        let first = |object| DeadKey::first(bucket, (object, false), Txg(0));
        let range = (first(of.file), first(ObjectId(of.file.0.saturating_add(1))));
        let before = self.sums_now(sync, root, bucket).await?;
        let mut sums = before;
        let took = self.take(range, (sync, root), budget, |changes, key, block| {
            sums.remove(block);
            let lo = newest_before(&of.list, block.birth).max(Some(bucket.lo));
            let bucket = Bucket { group: of.file.0, lo: lo.unwrap_or_default(), ..bucket };
            let first = DeadKey::first(bucket, (of.file, key.is_cut_off()), key.txg);
            changes.moved.entry(first).or_default().push(*block);
        });
        let all = took.await?;
        if sums != before {
            self.put_sums(bucket, sums);
        }
        Ok(all)
    }
}
