//! Step 5 of an import: replay, batch by batch. Clients come after everything is applied.
//!
//! A replay may take several txgs. Each of their roots names the first batch that is not wholly
//! applied as head, and keeps the floor found at import. A txg never ends inside a batch, because
//! only this loop ends one.
//!
//! The syncs of those txgs free nothing in the background ([`SyncContext::is_replay`]): a later
//! record may name it.
//!
//! [`SyncContext::is_replay`]: crate::SyncContext::is_replay

use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_ondisk::Txg;
use aquifer_ondisk::types::Run;

use aquifer_vdev::ReadError;

use crate::error::{ImportError, PoolError};
use crate::intent_log::LiveBatch;
use crate::intent_log::ahead::Ahead;
use crate::intent_log::read::FoundBatch;
use crate::patience::Patience;
use crate::pool::{Pool, Replay};
use crate::sums::are_pages;
use crate::txg::{Demand, TxHold};

impl Pool {
    /// Replays the batches that an import found. Call it once, after [`Pool::attach`].
    pub async fn replay(&self, replay: &dyn Replay) -> Result<(), ImportError> {
        self.replay_found(replay).await.map_err(|error| match error {
            ImportError::Pool(PoolError::Read(error @ ReadError::Unreadable { .. })) => {
                ImportError::Unreadable(error)
            }
            other => other,
        })
    }

    async fn replay_found(&self, replay: &dyn Replay) -> Result<(), ImportError> {
        let Some(chain) = self.import.found.lock().take() else {
            return Ok(());
        };
        let batches = &chain.batches;
        let live = |batch: &FoundBatch| LiveBatch {
            sequence: batch.header.sequence,
            position: batch.position,
            previous: batch.previous,
            max_txg: Txg(u64::MAX),
        };
        // Nothing writes to the log before this ends, but for good copies over bad ones.
        let ahead = Ahead::default();
        let Some(first) = batches.first() else {
            return Ok(());
        };
        let floor = self.replay_floor().await;
        let records = || batches.iter().flat_map(|batch| &batch.header.records);
        replay.prepare(&mut records().filter(|record| record.txg > floor))?;
        self.log.begin_replay(floor, live(first));
        for (at, batch) in batches.iter().enumerate() {
            self.replay_batch(batch, floor, (replay, &ahead)).await?;
            self.log.replayed_up_to(batches.get(at + 1).map(live), self.open_txg());
            let dirty = self.txgs.dirty_bytes();
            if dirty >= self.flow.txg_dirty_bytes() && at + 1 < batches.len() {
                self.sync_one().await?;
            }
        }
        Ok(())
    }

    async fn replay_batch(
        &self,
        batch: &FoundBatch,
        floor: Txg,
        (replay, ahead): (&dyn Replay, &Ahead),
    ) -> Result<(), ImportError> {
        let read;
        let mut rest = match batch.payload.len() == batch.header.payload_pages() {
            true => batch.payload.as_slice(),
            false => {
                read = self.read_payload(batch, ahead).await?;
                read.as_slice()
            }
        };
        for record in &batch.header.records {
            let (pages, after) = rest.split_at_checked(record.page_sums.len()).unwrap_or_default();
            rest = after;
            if record.txg > floor {
                replay.replay(record, pages).await?;
            }
        }
        Ok(())
    }

    /// The payload of a batch that did not keep it.
    async fn read_payload(
        &self,
        batch: &FoundBatch,
        ahead: &Ahead,
    ) -> Result<Vec<Page>, ImportError> {
        let place = self.log.place(batch.position).plus(batch.header_sectors as u64);
        let sums: Vec<u64> = batch.sums().collect();
        let verify = |pages: &[Page]| are_pages(pages, &sums);
        let vdev = self.vdev(place)?;
        if let Some(leaf) = vdev.online().next()
            && let Ok(pages) = ahead.read(leaf, place.sector(), sums.len()).await
            && verify(&pages)
        {
            return Ok(pages);
        }
        // Repairs are made at once: later the log may have wrapped to this place.
        let mut failures = 0;
        loop {
            match vdev.read(place.sector(), sums.len(), &verify).await {
                Ok(pages) => return Ok(pages),
                Err(error) => {
                    failures += 1;
                    self.wait_to_read_again(error, failures, Patience::Long).await?;
                }
            }
        }
    }

    /// Enters the open txg for a replayed record, without waiting: the loop above sets the pace.
    pub fn hold_for_replay(self: &Arc<Pool>, demand: Demand) -> TxHold {
        self.txgs.force_hold(self, demand)
    }

    /// Claims a place that a replayed record names.
    pub fn adopt(&self, hold: &TxHold, run: Run) {
        self.space.lock().adopt(hold.txg(), run);
    }
}
