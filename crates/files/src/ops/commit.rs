//! COMMIT: logs the present content of pages that no record holds, each piece with the txg that it
//! lies in. In a dataset that is not logged it does nothing.

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::overlay::Unlogged;
use aquifer_ondisk::ObjectId;
use aquifer_pool::intent_log::{RECORD_PAGES_MAX, Ticket};
use aquifer_pool::{Demand, Lane, SpaceClass, TxHold};

use crate::change::{self, Change};
use crate::core::{Admitted, Files, RECORD_BYTES, Target, unchanged};
use crate::error::FsError;
use crate::made::{Made, Promised};
use crate::types::{Around, Credentials, FileHandle};

impl Files {
    /// Makes the UNSTABLE writes of a range durable (`count` 0: to the end).
    pub async fn commit(
        &self,
        _cred: &Credentials,
        file: FileHandle,
        offset: u64,
        count: u32,
    ) -> Made<()> {
        let target = match self.target(file).await {
            Ok(target) => target,
            Err(error) => return Made::failed(error, Around::default()),
        };
        let end = match count {
            0 => u64::MAX,
            count => offset.saturating_add(count.into()).div_ceil(4096),
        };
        let logged = self.commit_range(&target, offset / 4096, end).await;
        let around = unchanged(&target);
        Made::new(logged.map(|promised| ((), around, promised)), || around)
    }

    async fn commit_range(&self, target: &Target, from: u64, to: u64) -> Result<Promised, FsError> {
        loop {
            // A sync may have lost some of the UNSTABLE writes.
            target.object.check()?;
            let passage = target.dataset.pass().await;
            if !target.dataset.is_logged(&self.pool) {
                return Ok(Promised::default());
            }
            // Only as much as one admission covers at a time.
            let pages = {
                let state = target.object.state.lock();
                state.overlay.count_unlogged(from, to, RECORD_PAGES_MAX)
            };
            let demand = Demand {
                dirty_bytes: 0,
                sectors: 0,
                log_bytes: pages as u64 * 4096 + 4 * RECORD_BYTES,
                class: SpaceClass::Remove,
                lane: Lane::Bulk,
            };
            let admitted = Admitted { admission: self.pool.admit(demand).await?, passage };
            let (more, ticket) = {
                let _writer = target.object.writer.lock().await;
                // The lock may have come after a removal: the log must not name an object that is
                // gone.
                if target.inode().nlink == 0 && !left_out(Rule::ReplayReapsNothing) {
                    return Err(FsError::Stale);
                }
                let hold = self.hold(&target.dataset, admitted)?;
                if !target.dataset.logs(&hold) {
                    return Ok(Promised::default());
                }
                self.log_unlogged(target, &hold, (from, to), pages)
            };
            if !more {
                // Data that was logged before is durable no later than the object's last record.
                return Ok(Promised::new(ticket));
            }
        }
    }

    /// Logs up to `limit` pages of a range that no record holds, with their txg. Returns whether
    /// more are left, and the ticket to wait for.
    fn log_unlogged(
        &self,
        target: &Target,
        hold: &TxHold,
        (from, to): (u64, u64),
        limit: usize,
    ) -> (bool, Option<Ticket>) {
        let id: ObjectId = target.object.id;
        let taken = target.object.state.lock().overlay.take_unlogged(from, to, limit);
        for (txg, Unlogged { inode, pages, early }) in taken.into_iter().rev() {
            let pages = (!pages.is_empty()).then_some(Change::Pages(id, pages));
            let changes: Vec<Change> = inode.map(Change::Inode).into_iter().chain(pages).collect();
            let (record, payload) = change::record(&target.dataset, txg, txg, &changes, None);
            let ticket = self.pool.log().append(hold, record, payload, early);
            self.remember(&target.dataset, &changes, &ticket);
        }
        let state = target.object.state.lock();
        (state.overlay.count_unlogged(from, to, 1) > 0, state.last_ticket.clone())
    }
}
