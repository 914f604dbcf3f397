//! How much of a dead tree a rollback brought back: the head counts it.

use aquifer_object::{Returning, btree};
use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::dead::DeadSums;
use aquifer_pool::{PoolError, SyncContext};

use super::sweep::{Sweep, group_after, next_taken};
use crate::datasets::Datasets;
use crate::snapshots::Act;

impl Datasets {
    /// Sums what rollbacks of this txg will bring back. Called by its sync, when all that dies in
    /// it is filed.
    pub(crate) async fn sum_returning(&self, sync: &SyncContext) -> Result<(), PoolError> {
        let txg = sync.txg();
        let acts = self.state.lock().snapshot_acts.get(&txg).cloned().unwrap_or_default();
        for act in acts {
            let Act::Rollback { dataset, to } = act else { continue };
            let Some(dataset) = self.by_id(dataset) else { continue };
            let dies_here = dataset.snapshots.lock().get(to).is_some();
            let dead = *dataset.dead.lock();
            let returning = Some(Returning { txg, to }).filter(|_| dies_here && !dead.damaged);
            let sums = match returning_sums(sync, dead.root, returning).await {
                // It is found to be damaged when it is swept.
                Err(error) if error.cannot_be_read() => DeadSums::default(),
                sums => sums?,
            };
            dataset.dead.lock().returning = sums;
        }
        Ok(())
    }
}

/// The sums of what a rollback brought back.
pub(super) async fn returning_sums<S: btree::NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    returning: Option<Returning>,
) -> Result<DeadSums, S::Error> {
    let mut all = DeadSums::default();
    let Some(returning) = returning else { return Ok(all) };
    let mut group = Some(0);
    while let Some(of) = group {
        let sweep = Sweep::of_returning(returning, of);
        let mut key = sweep.first_key();
        while let Some((bucket, sums)) = next_taken(store, root, key, |_| sweep).await? {
            all.sectors = all.sectors.saturating_add(sums.sectors);
            all.blocks = all.blocks.saturating_add(sums.blocks);
            key = bucket.end();
        }
        group = group_after(store, root, of).await?;
    }
    Ok(all)
}
