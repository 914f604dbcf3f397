//! Which pages of a file lie in blocks that a scrub has found to be lost.

use aquifer_blockio::Page;
use aquifer_ondisk::BlockPointer;
use aquifer_pool::{LostBlocks, Pool, PoolError};

use crate::btree::NodeStore;
use crate::extent_tree;
use crate::object::Object;

/// Pages that are looked up at a time; and of a tree with a lost node, the fewest.
const PAGES_AT_ONCE: u64 = 4096;
const PAGES_AT_LEAST: u64 = 16;

/// The pool's nodes, without those that are known to be lost.
struct Known<'a> {
    pool: &'a Pool,
    lost: &'a LostBlocks,
}

impl NodeStore for Known<'_> {
    type Error = PoolError;

    async fn read(&self, pointer: &BlockPointer) -> Result<Page, PoolError> {
        match self.lost.error_of(pointer) {
            Some(error) => Err(error),
            None => NodeStore::read(self.pool, pointer).await,
        }
    }
}

impl Object {
    /// Which of pages `from..to` lie in lost blocks, or below lost nodes. Pages that were written
    /// since are not among them. Reads no content, and no lost node.
    ///
    /// # Errors
    /// The pool answers nothing any more; the dataset was destroyed.
    pub async fn pages_lost(
        &self,
        pool: &Pool,
        (from, to): (u64, u64),
        lost: &LostBlocks,
    ) -> Result<Vec<(u64, u64)>, PoolError> {
        let known = Known { pool, lost };
        // Before the root is looked at: from here on nothing below it is reused.
        let _reading = pool.reading();
        let (mut found, mut next, mut step) = (Vec::new(), from, PAGES_AT_ONCE);
        while next < to {
            let end = to.min(next + step);
            let (below, root) = self.runs_below((next, end))?;
            let mut part = Vec::new();
            let mut unread = Vec::new();
            for (start, end) in below {
                match extent_tree::lookup_range(&known, root, start, end).await {
                    Ok(extents) => part.extend(extents.iter().flat_map(|of| lost.pages_of(of))),
                    Err(error) if error.cannot_be_read() => unread.push((start, end)),
                    Err(error) => return Err(error),
                }
            }
            if !unread.is_empty() && step > PAGES_AT_LEAST {
                step /= 4;
                continue;
            }
            if unread.is_empty() {
                step = PAGES_AT_ONCE.min(step * 4);
            }
            part.append(&mut unread);
            found.append(&mut part);
            next = end;
        }
        found.sort_unstable();
        Ok(found)
    }
}
