//! Nodes that bookmarks alone need: a group of their own in the dead tree.
//!
//! A node comes there when it dies and no snapshot shows it, or when the last snapshot goes that
//! did, if a bookmark lies in its life. Its entry keeps the txg of its death. So a node's entry
//! says which bookmarks need it, whatever bookmark comes to the list later.
//!
//! # What a destroyed bookmark lets go
//! Of B, with N the next one in the list, from which B is gone: a node that B alone needed died
//! before N, so its newest bookmark, `hi`, is in [B, N). Of the nodes there, those go in whose life
//! no bookmark of the list lies. Those that stay keep their place: an older bookmark needs them,
//! and `hi` may be one that is gone.

use std::collections::BTreeMap;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{bookmark_needing, btree};
use aquifer_ondisk::dead::{Bucket, DeadBlock, DeadBody, DeadEntry, DeadKey, DeadSums};
use aquifer_ondisk::tree_node::Dead;
use aquifer_ondisk::{BlockPointer, Txg};
use aquifer_pool::{PoolError, SyncContext};

use super::sweep::ENTRIES_AT_ONCE;
use super::{Changes, sums};

/// Blocks that move to other buckets: by the first key of lists of their kind.
pub(super) type Moved = BTreeMap<DeadKey, Vec<DeadBlock>>;

impl Changes {
    /// No snapshot shows a block any more, which died in `key.txg`: it goes, unless a bookmark
    /// needs it.
    pub fn let_go(&mut self, key: &DeadKey, block: DeadBlock) {
        let needed = bookmark_needing(&self.bookmarks, key.txg, &block);
        match needed.filter(|_| !left_out(Rule::BookmarksOutliveSnapshots)) {
            Some(newest) => {
                let (bucket, of) = (Bucket::of_bookmark(newest), (key.object, key.is_cut_off()));
                let first = DeadKey::first(bucket, of, key.txg);
                self.moved.entry(first).or_default().push(block);
            }
            None => {
                self.all.remove(&block);
                self.freed.push(block);
            }
        }
    }

    /// Gives the blocks that moved entries of their own, behind those that are there.
    pub async fn place_moved(
        &mut self,
        sync: &SyncContext,
        root: Option<BlockPointer>,
    ) -> Result<(), PoolError> {
        for (first, blocks) in std::mem::take(&mut self.moved) {
            let free = index_behind(sync, root, first).await?;
            let mut sums = self.sums_now(sync, root, first.bucket).await?;
            blocks.iter().for_each(|block| sums.add(block));
            self.put_sums(first.bucket, sums);
            self.put_blocks(DeadKey { index: free, ..first }, &blocks);
            sync.pace().await;
        }
        Ok(())
    }

    /// The sums of a bucket with these changes.
    pub async fn sums_now(
        &self,
        sync: &SyncContext,
        root: Option<BlockPointer>,
        bucket: Bucket,
    ) -> Result<DeadSums, PoolError> {
        match self.ops.get(&bucket.sums()) {
            Some(Some(DeadEntry { body: DeadBody::Sums(sums), .. })) => Ok(*sums),
            Some(_) => Ok(DeadSums::default()),
            None => sums(sync, root, bucket).await,
        }
    }

    /// Lets nodes go that only a destroyed bookmark needed, from a key on; looks at about `budget`.
    /// Returns where to go on; `None`: that was all.
    pub async fn release(
        &mut self,
        (bookmark, from): (Txg, Option<DeadKey>),
        (sync, root): (&SyncContext, Option<BlockPointer>),
        budget: &mut usize,
    ) -> Result<Option<DeadKey>, PoolError> {
        let after = self.bookmarks.partition_point(|of| *of <= bookmark);
        let end = match self.bookmarks.get(after) {
            Some(next) => Bucket::of_bookmark(*next).sums(),
            None => Bucket { group: Bucket::OF_BOOKMARKS + 1, ..Bucket::ALL }.sums(),
        };
        let mut key = from.unwrap_or(Bucket::of_bookmark(bookmark).sums());
        loop {
            let want = ENTRIES_AT_ONCE;
            let entries = btree::collect_range::<Dead, _>(sync, root, key, Some(end), want).await?;
            let read = entries.len();
            for entry in entries {
                if *budget == 0 {
                    return Ok(Some(entry.key));
                }
                key = DeadKey { index: entry.key.index.saturating_add(1), ..entry.key };
                // The release of another bookmark may have judged it in this sync.
                if let DeadBody::Blocks(blocks) = entry.body
                    && !self.ops.contains_key(&entry.key)
                {
                    *budget = budget.saturating_sub(blocks.len());
                    self.release_some(entry.key, blocks, (sync, root)).await?;
                }
            }
            if read < want {
                return Ok(None);
            }
            sync.pace().await;
        }
    }

    async fn release_some(
        &mut self,
        key: DeadKey,
        blocks: Vec<DeadBlock>,
        (sync, root): (&SyncContext, Option<BlockPointer>),
    ) -> Result<(), PoolError> {
        let needed =
            |block: &DeadBlock| bookmark_needing(&self.bookmarks, key.txg, block).is_some();
        let (stay, go): (Vec<_>, Vec<_>) = blocks.into_iter().partition(needed);
        if go.is_empty() {
            return Ok(());
        }
        let mut sums = self.sums_now(sync, root, key.bucket).await?;
        for block in go {
            sums.remove(&block);
            self.all.remove(&block);
            self.freed.push(block);
        }
        self.put_sums(key.bucket, sums);
        match stay.is_empty() {
            true => drop(self.ops.insert(key, None)),
            false => self.put(key, DeadBody::Blocks(stay)),
        }
        Ok(())
    }
}

/// The index behind all lists of a kind. It is found in some looks, however many lists there are.
async fn index_behind<S: btree::NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    first: DeadKey,
) -> Result<u32, S::Error> {
    let end = first.end_of_kind();
    let mut free = first.index;
    // Steps that double while there is something, then halve.
    let (mut step, mut grows) = (1u32, true);
    loop {
        let from = DeadKey { index: free.saturating_add(step - 1), ..first };
        let next = btree::first_from::<Dead, S>(store, root, from).await?;
        match next.filter(|next| next.key < end) {
            Some(next) => {
                free = next.key.index.saturating_add(1);
                step = if grows { step.saturating_mul(2) } else { step };
            }
            None if step == 1 => return Ok(free),
            None => (step, grows) = (step / 2, false),
        }
    }
}
