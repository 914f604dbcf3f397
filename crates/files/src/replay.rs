//! Replay: the changes of a record, applied again to the open txg.

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_dataset::damage::only;
use aquifer_object::DirtyPage;
use aquifer_ondisk::log_batch::LogRecord;
use aquifer_ondisk::log_change::{self, LogChange};
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{Corruption, Txg};
use aquifer_pool::{BoxFuture, Demand, Lane, PoolError, Replay, SpaceClass};

use crate::change::{self, Change, RECORD_KIND};
use crate::core::{CHANGE_BYTES, Files, TREE_SECTORS};

impl Replay for Files {
    fn prepare(&self, records: &mut dyn Iterator<Item = &LogRecord>) -> Result<(), PoolError> {
        // An unknown dataset is reported when the record's turn comes.
        for record in records {
            let Some(dataset) = self.datasets.by_id(record.dataset) else { continue };
            for change in log_change::decode(&record.body)? {
                if let LogChange::Inode(inode) = change
                    && !left_out(Rule::ReplayRaisesIds)
                {
                    dataset.keep_id(inode.object);
                }
            }
        }
        Ok(())
    }

    fn replay<'a>(
        &'a self,
        record: &'a LogRecord,
        pages: &'a [Page],
    ) -> BoxFuture<'a, Result<(), PoolError>> {
        Box::pin(self.replay_record(record, pages))
    }
}

impl Files {
    async fn replay_record(&self, record: &LogRecord, pages: &[Page]) -> Result<(), PoolError> {
        if record.kind != RECORD_KIND {
            return Err(Corruption::RecordKind(record.kind).into());
        }
        let dataset = self.datasets.by_id(record.dataset);
        let dataset = dataset.ok_or(Corruption::RecordDataset(record.dataset))?;
        // A destroyed dataset takes no changes.
        if dataset.is_destroyed() {
            self.drop_record(record);
            return Ok(());
        }
        let (mut changes, reply) = change::decode(record, pages)?;
        // Every changed object must be in memory; objects that the record itself makes come first.
        for change in &mut changes {
            let id = change.object();
            let known = match dataset.object(&self.pool, id).await {
                // One damaged leaf of the object table must not keep the pool out of service. Half
                // a record would leave names without objects: skip all of it, and report that.
                Err(error) if error.is_damage() => {
                    self.datasets.note_table_damage(&dataset, id, Txg(0), only(error));
                    self.drop_record(record);
                    return Ok(());
                }
                found => found?.is_some(),
            };
            match change {
                Change::Inode(inode) if !known => {
                    dataset.object_or_new(inode);
                }
                _ if !known => return Err(Corruption::RecordObject(id).into()),
                Change::Pages(_, pages) => self.read_early(record, pages).await?,
                _ => {}
            }
        }
        let demand = Demand {
            dirty_bytes: pages.len() as u64 * 4096 + CHANGE_BYTES,
            sectors: pages.len() as u64 + 4 * TREE_SECTORS,
            log_bytes: 0,
            class: SpaceClass::Replay,
            lane: Lane::Bulk,
        };
        let hold = self.pool.hold_for_replay(demand);
        for extent in &record.extents {
            self.pool.adopt(&hold, Run::new(extent.place, extent.stored_sectors()));
        }
        self.apply(&dataset, &hold, &changes, None);
        self.datasets.note_replayed(&dataset, hold.txg(), pages_of(&changes) * 4096);
        if let Some(entry) = reply {
            self.datasets.replies().record(hold.txg(), entry, None);
        }
        Ok(())
    }

    /// Reads the content of pages that were written early.
    async fn read_early(
        &self,
        record: &LogRecord,
        pages: &mut [(u64, DirtyPage)],
    ) -> Result<(), PoolError> {
        for (page, dirty) in pages.iter_mut().filter(|(_, dirty)| dirty.place.is_some()) {
            let extent = record.extents.iter().find(|extent| extent.page == *page);
            let Some(extent) = extent else { continue };
            dirty.page = match self.pool.read_extent(extent).await {
                // The page was durable and is damaged now. Only this page is lost, and its reads
                // fail.
                Err(error) if error.is_damage() => None,
                read => read?.pop(),
            };
        }
        Ok(())
    }

    /// Frees the early data that only a skipped record refers to.
    fn drop_record(&self, record: &LogRecord) {
        let demand = Demand {
            dirty_bytes: 0,
            sectors: 0,
            log_bytes: 0,
            class: SpaceClass::Replay,
            lane: Lane::Bulk,
        };
        let hold = self.pool.hold_for_replay(demand);
        for extent in &record.extents {
            let run = Run::new(extent.place, extent.stored_sectors());
            self.pool.adopt(&hold, run);
            self.pool.free_unsynced(hold.txg(), run);
        }
    }
}

/// The number of pages that changes write.
fn pages_of(changes: &[Change]) -> u64 {
    let pages = |change: &Change| match change {
        Change::Pages(_, pages) => pages.len() as u64,
        _ => 0,
    };
    changes.iter().map(pages).sum()
}
