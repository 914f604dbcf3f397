//! What a derived snapshot of a file shows moves from group 0 of the dead tree to its file's group.
//!
//! The blocks stand in the buckets of group 0 with `hi` at or after the snapshot and `lo` before
//! it, under their file. The dataset's snapshot of that txg is in the list until they are moved:
//! no sweep comes before. In a life that ended there lay no snapshot of the file, so `hi` stays.
//! `lo` is the newest of both kinds before the birth.
//!
//! Nothing else changes the tree in the same sync: what is moved is read from its root.

use aquifer_object::{btree, newest_before};
use aquifer_ondisk::dead::{Bucket, DeadKey};
use aquifer_ondisk::tree_node::Dead;
use aquifer_ondisk::{BlockPointer, ObjectId, Txg};
use aquifer_pool::{PoolError, SyncContext};

use super::sweep::{ENTRIES_AT_ONCE, Sweep, next_taken};
use super::{Changes, blocks};
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
        let (mut key, end) = (first(of.file), first(ObjectId(of.file.0.saturating_add(1))));
        let mut sums = self.sums_now(sync, root, bucket).await?;
        let mut moved = 0;
        let all = loop {
            let want = ENTRIES_AT_ONCE;
            let entries = btree::collect_range::<Dead, _>(sync, root, key, Some(end), want).await?;
            let read = entries.len();
            for entry in entries {
                if *budget == 0 {
                    break;
                }
                for block in blocks(&entry) {
                    sums.remove(block);
                    let lo = newest_before(&of.list, block.birth).max(Some(bucket.lo));
                    let lo = lo.unwrap_or_default();
                    let bucket = Bucket { group: of.file.0, lo, ..bucket };
                    let kind = (of.file, entry.key.is_cut_off());
                    let first = DeadKey::first(bucket, kind, entry.key.txg);
                    self.moved.entry(first).or_default().push(*block);
                }
                moved += 1;
                *budget = budget.saturating_sub(blocks(&entry).len());
                self.ops.insert(entry.key, None);
                key = DeadKey { index: entry.key.index.saturating_add(1), ..entry.key };
            }
            match (*budget == 0, read < want) {
                // There may be more.
                (true, _) => break false,
                (false, true) => break true,
                (false, false) => {}
            }
        };
        if moved > 0 {
            self.put_sums(bucket, sums);
        }
        Ok(all)
    }
}
