//! Metaslabs whose current slot has no copy that verifies.
//!
//! Their free space is unknown. So nothing is handed out there until the metaslab is rebuilt, and
//! their free sectors do not count as free: a sync must never get a promise of space that it cannot
//! have.

use aquifer_ondisk::Txg;
use aquifer_ondisk::txg_record::SlotEntry;
use aquifer_ondisk::types::Run;

use super::{Allocator, MetaslabId};

/// The checksum of a lost slot. No slot matches it: a reader that finds no such content closes the
/// metaslab.
const LOST: u128 = 0;

impl Allocator {
    /// Metaslabs that are closed to allocation.
    pub fn closed(&self) -> Vec<MetaslabId> {
        self.metaslab_ids(|metaslab| metaslab.closed)
    }

    /// Whether a metaslab is closed to allocation.
    pub fn is_closed(&self, id: MetaslabId) -> bool {
        self.metaslab(id).is_some_and(|metaslab| metaslab.closed)
    }

    pub(super) fn close(&mut self, id: MetaslabId) {
        let held = self.held.values().flatten().filter(|run| self.lies_in(run, id));
        let held: u64 = held.map(|run| run.sectors).sum();
        if let Some(metaslab) = self.metaslab_mut(id).filter(|metaslab| !metaslab.closed) {
            metaslab.closed = true;
            let lost = metaslab.free.saturating_sub(held);
            self.use_.taken += lost;
            self.use_.held = self.use_.held.saturating_sub(held);
        }
    }

    /// Whether a freed run can be handed out again.
    pub(super) fn is_open(&self, run: &Run) -> bool {
        self.locate(*run).is_some_and(|(id, _)| !self.is_closed(id))
    }

    fn lies_in(&self, run: &Run, id: MetaslabId) -> bool {
        self.locate(*run).is_some_and(|(of, _)| of == id)
    }

    /// Brings the entry of a closed metaslab up to `txg`. So the pool need not keep for ever the
    /// records that name it and that changed it since. The changes since its slot was written are
    /// given up with the slot: if that slot verified one day, it would be wrong without them.
    pub fn give_up(&mut self, id: MetaslabId, txg: Txg) -> Option<SlotEntry> {
        let metaslab = self.metaslab_mut(id).filter(|metaslab| metaslab.closed)?;
        let before = metaslab.entry?;
        let mut entry = SlotEntry { as_of: txg, ..before };
        if metaslab.dirty {
            entry =
                SlotEntry { checksum: LOST, free_sectors: metaslab.free, longest_run: 0, ..entry };
            metaslab.deltas.clear();
            metaslab.dirty = false;
        }
        metaslab.entry = Some(entry);
        Some(entry)
    }
}
