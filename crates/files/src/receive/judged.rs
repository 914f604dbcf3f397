//! A stream that went on where another one broke off: nobody saw all of it as it came.
//!
//! So what the dataset has in the end is walked, as far as it differs from the old snapshot, and
//! summed as if it came now. Nothing that stands on disk of the part before is believed.

use std::sync::Arc;

use aquifer_dataset::Dataset;
use aquifer_object::btree::{self, Difference};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_ondisk::{BlockPointer, ObjectId};
use aquifer_pool::Pool;

use super::changed::contradicts;
use super::sums::Sums;
use super::{ReceiveError, Receiver};
use crate::core::Files;
use crate::diff::paths::visible;

/// Objects, or names, that are looked at before space that was freed meanwhile may be used again.
const LOOK_MAX: usize = 256;

/// An object before and after.
type Changed = (Option<Inode>, Option<Inode>);

impl Receiver {
    /// Sums all that the dataset has now, or what differs from an older object table.
    pub(super) async fn judge(
        &mut self,
        (files, dataset): (&Files, &Arc<Dataset>),
        old: Option<BlockPointer>,
    ) -> Result<(), ReceiveError> {
        files.pool.sync().await.map_err(|error| self.pool_error(error))?;
        self.sums = Sums::new(files.pool.world().random());
        if old.is_some() {
            self.sums.of_changes();
        }
        let (mut from, mut is_over) = (0, false);
        while !is_over {
            let looked = objects(&files.pool, (old, dataset), from).await;
            let (changed, next) = looked.map_err(|error| self.pool_error(error))?;
            for (before, after) in changed {
                self.judge_object(&files.pool, before, after).await?;
            }
            (from, is_over) = (next.unwrap_or(0), next.is_none());
        }
        Ok(())
    }

    async fn judge_object(
        &mut self,
        pool: &Pool,
        before: Option<Inode>,
        after: Option<Inode>,
    ) -> Result<(), ReceiveError> {
        let what = |of: &Inode| (of.generation, of.kind, of.name_seed());
        if let (Some(before), Some(after)) = (&before, &after)
            && what(before) != what(after)
        {
            return Err(contradicts(after.object, "is another file here"));
        }
        before.iter().for_each(|before| self.sums.object_goes(before));
        if let Some(after) = &after {
            self.sums.object_comes(after).map_err(ReceiveError::Contradicts)?;
        }
        let of = before.as_ref().or(after.as_ref());
        let Some(directory) = of.filter(|of| of.kind == FileKind::Directory) else { return Ok(()) };
        let roots = [before.as_ref(), after.as_ref()].map(|of| of.and_then(|of| of.root));
        self.judge_names(pool, directory.object, roots).await
    }

    async fn judge_names(
        &mut self,
        pool: &Pool,
        directory: ObjectId,
        [old, new]: [Option<BlockPointer>; 2],
    ) -> Result<(), ReceiveError> {
        let compare = btree::compare::<Directory, Pool>(pool, old, new);
        let mut compare = compare.map_err(|error| self.pool_error(error))?;
        while let Some(Difference { old, new, .. }) =
            compare.next().await.map_err(|error| self.pool_error(error))?
        {
            old.iter().for_each(|old| self.sums.entry_goes(directory, old));
            new.iter().for_each(|new| self.sums.entry_comes(directory, new));
        }
        Ok(())
    }
}

/// Some objects that differ from an older table, from one on, and where the next ones begin.
async fn objects(
    pool: &Pool,
    (old, dataset): (Option<BlockPointer>, &Dataset),
    from: u64,
) -> Result<(Vec<Changed>, Option<u64>), aquifer_pool::PoolError> {
    // Before the root is looked at: from here on nothing below it is reused.
    let _reading = pool.reading();
    let new = dataset.committed_objects();
    let mut compare = btree::compare_from::<Objects, Pool>(pool, old, new, from)?;
    let mut changed = Vec::new();
    while let Some(Difference { key, old, new }) = compare.next().await? {
        if key < from {
            continue;
        }
        if changed.len() >= LOOK_MAX {
            return Ok((changed, Some(key)));
        }
        changed.push((visible(old), visible(new)));
    }
    Ok((changed, None))
}
