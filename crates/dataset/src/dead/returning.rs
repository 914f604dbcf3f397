//! How much of a dead tree rollbacks brought back: the head counts it.

use aquifer_object::{Returning, btree};
use aquifer_ondisk::BlockPointer;
use aquifer_ondisk::dead::DeadSums;
use aquifer_pool::{PoolError, SyncContext};

use super::sweep::{Job, Lists};
use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::rollback::RollbackKind;
use crate::snapshots::{Act, Snapshots};

/// Lists jobs for the blocks that rollbacks of a dataset, and of its files, brought back and that
/// the dead tree still names.
pub(super) fn returning(snapshots: &Snapshots) -> Vec<Job> {
    let of_files = snapshots.files.returning();
    let of_files = of_files.map(|(id, object, of)| Job::ReturningFile(object, id, of));
    snapshots.returning().map(Job::Returning).into_iter().chain(of_files).collect()
}

impl Datasets {
    /// Sums what rollbacks of this txg will bring back. Called by its sync, when all that dies in
    /// it is filed.
    pub(crate) async fn sum_returning(&self, sync: &SyncContext) -> Result<(), PoolError> {
        let txg = sync.txg();
        let acts = self.state.lock().queue.acts(txg).to_vec();
        for act in acts {
            let Act::Rollback { dataset, to, kind: RollbackKind::InLine } = act else { continue };
            let Some(dataset) = self.by_id(dataset) else { continue };
            if dataset.snapshots.lock().get(to).is_some() {
                sum(sync, &dataset, vec![Job::Returning(Returning { txg, to })]).await?;
            }
        }
        Ok(())
    }

    /// Sums what rollbacks bring back to a dataset and its files, when these rollbacks are known.
    pub(crate) async fn sum_files_returning(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
    ) -> Result<(), PoolError> {
        let jobs = returning(&dataset.snapshots.lock());
        sum(sync, dataset, jobs).await
    }
}

async fn sum(sync: &SyncContext, dataset: &Dataset, jobs: Vec<Job>) -> Result<(), PoolError> {
    let dead = *dataset.dead.lock();
    let jobs = if dead.damaged { Vec::new() } else { jobs };
    let sums = match returning_sums(sync, dead.root, &jobs).await {
        // It is found to be damaged when it is swept.
        Err(error) if error.cannot_be_read() => DeadSums::default(),
        sums => sums?,
    };
    dataset.dead.lock().returning = sums;
    Ok(())
}

/// The sums of what rollbacks brought back.
pub(super) async fn returning_sums<S: btree::NodeStore>(
    store: &S,
    root: Option<BlockPointer>,
    jobs: &[Job],
) -> Result<DeadSums, S::Error> {
    let (mut all, none) = (DeadSums::default(), Lists::default());
    for job in jobs {
        for sums in job.buckets(store, root, &none).await?.into_values() {
            all.plus(&sums);
        }
    }
    Ok(all)
}
