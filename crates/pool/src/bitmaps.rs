//! Bitmaps between disk and memory, and the time when freed space can be reused.
//!
//! Invariants:
//! - A sync takes space only from bitmaps in memory. So before it takes any, it loads bitmaps that
//!   hold all space promised to its changes.
//! - A slot is never written over the current one, and a bitmap leaves memory only when its slot is
//!   on disk.

use aquifer_blockio::Page;
use aquifer_blockio::buf::{bytes_of, pages_of};
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::layout::REWIND_TXGS;
use aquifer_ondisk::txg_record::SlotEntry;
use aquifer_ondisk::types::{Place, Run};
use aquifer_ondisk::{Corruption, Txg};
use aquifer_space::{MetaslabId, SlotWrite};
use aquifer_vdev::ReadError;

use crate::error::PoolError;
use crate::patience::Patience;
use crate::pool::Pool;

impl Pool {
    /// After a commit: frees that neither an older root on disk nor a reader needs can be reused.
    pub(crate) fn release_frees(&self, txg: Txg) {
        let keep = usize::try_from(REWIND_TXGS).unwrap_or(usize::MAX);
        let keep = if left_out(Rule::HoldBackFrees) { 0 } else { keep };
        let oldest_read = self.readers.oldest_read().filter(|_| !left_out(Rule::ReadersHoldReuse));
        let unread = |txg: Txg| oldest_read.is_none_or(|oldest| txg < oldest);
        let released = self.space.lock().release(txg, keep, unread);
        self.note_released(&released);
    }

    /// Whether some frees are held back.
    pub(crate) fn frees_wait(&self) -> bool {
        self.space.held_sectors() > 0
    }

    /// Keeps the bitmaps within their share of memory, unless the next syncs need more than that.
    pub(crate) fn unload_bitmaps(&self) {
        let mut space = self.space.lock();
        let gone =
            space.unload(self.limits.bitmap_bytes, self.wanted_free_sectors(self.txgs.open()));
        let bytes = space.bitmap_bytes();
        drop(space);
        if gone > 0 {
            tracing::debug!(gone, bytes, "bitmaps unloaded");
        }
        self.shares.set_bitmaps(bytes);
    }

    /// Free sectors of loaded metaslabs that a txg's sync may need: those that its changes reserve,
    /// those for early writes, the part of the reserve that a sync may use, and what may be lent.
    fn wanted_free_sectors(&self, txg: Txg) -> u64 {
        let early = self.limits.dirty_cap_bytes / 4096;
        let reserved = self.txgs.reserved_for(txg);
        self.slop_sectors() / 4 + reserved + early + self.lent_sectors_max()
    }

    /// Loads bitmaps until they hold the sectors reserved for the open txg, and those for early
    /// writes before the next sync.
    pub(crate) async fn load_for_sync(&self) -> Result<(), PoolError> {
        self.load_for(self.txgs.open()).await
    }

    /// Loads bitmaps until they hold the free sectors that the sync of `txg` may need.
    pub(crate) async fn load_for(&self, txg: Txg) -> Result<(), PoolError> {
        let wanted = self.wanted_free_sectors(txg);
        let mut before = Vec::new();
        loop {
            let metaslabs = self.space.lock().wanted_loads(wanted);
            if metaslabs.is_empty() || metaslabs == before {
                return Ok(());
            }
            for id in &metaslabs {
                self.load_metaslab(*id).await?;
            }
            // The free space there was an estimate: frees that are held back are known only from
            // here on.
            before = metaslabs;
        }
    }

    /// Reads a metaslab's bitmap. If no copy verifies, the metaslab is closed to allocation. The
    /// same happens if no copy can be read, even after a long time.
    pub(crate) async fn load_metaslab(&self, id: MetaslabId) -> Result<(), PoolError> {
        let Some((entry, places)) = self.space.lock().begin_load(id) else {
            return Ok(());
        };
        let mut failures = 0;
        let found = loop {
            let error = match self.read_slot(&entry, &places).await {
                Ok(bytes) => break Some(bytes),
                Err(PoolError::Read(error)) => error,
                Err(error) => return Err(error),
            };
            failures += 1;
            let reason = error.to_string();
            if self.wait_to_read_again(error, failures, Patience::Long).await.is_err() {
                tracing::error!(
                    class = "pool.metaslab_closed",
                    pool = self.name(),
                    ?id,
                    reason,
                    "no copy of its bitmap can be used: metaslab closed to allocation"
                );
                break None;
            }
        };
        self.space.lock().finish_load(id, &entry, found.as_deref());
        Ok(())
    }

    /// Loads the bitmap that tells of a run, while bitmaps are within their share of memory. One
    /// that cannot be read now is left alone.
    pub(crate) async fn load_if_cheap(&self, run: Run) {
        self.load_between_txgs(run, false).await;
    }

    /// Loads the bitmap that tells of a run, for a caller who looks through all runs one after the
    /// other: if bitmaps are over their share of memory, others go first.
    pub(crate) async fn load_to_look(&self, run: Run) {
        self.load_between_txgs(run, true).await;
    }

    /// No slot is rewritten while it is read: a late read would find it bad, and *repair* it.
    async fn load_between_txgs(&self, run: Run, makes_room: bool) {
        if self.space.lock().unloaded_for(run).is_none() {
            return;
        }
        let _turn = self.sync_turn.lock().await;
        let is_full = self.space.lock().bitmap_bytes() >= self.limits.bitmap_bytes;
        match (is_full, makes_room) {
            (true, false) => return,
            (true, true) => self.unload_bitmaps(),
            _ => {}
        }
        let unloaded = {
            let mut space = self.space.lock();
            let id = space.unloaded_for(run);
            id.and_then(|id| Some((id, space.begin_load(id)?)))
        };
        let Some((id, (entry, places))) = unloaded else { return };
        if let Ok(bytes) = self.read_slot(&entry, &places).await {
            self.space.lock().finish_load(id, &entry, Some(&bytes));
        }
    }

    /// Reads the first copy of a slot that verifies. The error is one that may pass, if any is.
    pub(crate) async fn read_slot(
        &self,
        entry: &SlotEntry,
        places: &[Place],
    ) -> Result<Vec<u8>, PoolError> {
        let mut worst = None;
        for place in places {
            let vdev = self.vdev(*place)?;
            let count = usize::try_from(vdev.geometry.slot_sectors()).unwrap_or(0);
            let verify = |pages: &[Page]| checksum128(&bytes_of(pages)) == entry.checksum;
            match vdev.read(place.sector(), count, &verify).await {
                Ok(pages) => return Ok(bytes_of(&pages)),
                Err(error @ ReadError::Unreadable { .. }) => worst = Some(error),
                Err(error) => worst = worst.or(Some(error)),
            }
        }
        Err(worst.map_or_else(|| Corruption::BitmapPlace.into(), PoolError::from))
    }

    pub(crate) async fn write_slot(&self, write: SlotWrite) -> Result<(), PoolError> {
        let pages = pages_of(&write.bytes);
        for place in write.places {
            self.vdev(place)?.write(place.sector(), pages.clone()).await?;
        }
        Ok(())
    }

    /// Refreshes the slots that have gone longest without, so that the window of live records stays
    /// within its bytes. It writes those that were never written, at least one more, and as many as
    /// the window needs.
    pub(crate) async fn refresh_slots(
        &self,
        txg: Txg,
        own_bytes: u64,
    ) -> Result<Vec<(SlotEntry, Option<SlotWrite>)>, PoolError> {
        let stale = self.space.lock().stale_metaslabs();
        let mut refreshed = Vec::new();
        let mut aged = 0;
        for (as_of, id) in stale {
            let never = as_of == Txg(0);
            let since = self.records.lock().bytes_since(as_of);
            let over = since + own_bytes > self.window_bytes();
            if self.space.lock().is_closed(id) {
                // It has no slot to write. While the window has room, its records are kept: its
                // slot may be unreadable only today.
                if over {
                    let given_up = self.space.lock().give_up(id, txg);
                    refreshed.extend(given_up.map(|entry| (entry, None)));
                }
                continue;
            }
            if !never && aged > 0 && !over {
                break;
            }
            if !never {
                aged += 1;
            }
            if self.space.lock().needs_load_to_refresh(id) {
                self.load_metaslab(id).await?;
            }
            let slot = self.space.lock().refresh(id, txg, !left_out(Rule::SlotsInTurn));
            refreshed.extend(slot);
        }
        Ok(refreshed)
    }
}
