//! The allocator: which sectors a txg takes, frees, and may reuse.

mod closed;
mod grown;
mod lent;
mod memory;
mod take;

use std::collections::BTreeMap;

use aquifer_ondisk::layout::Geometry;
use aquifer_ondisk::txg_record::{RUN_SECTORS_MAX, SlotEntry};
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_ondisk::{Place, Txg, types::Run};

use crate::Bitmap;
use crate::metaslab::{Delta, Metaslab};

use take::STRIPE_SECTORS;

/// A metaslab is loaded in place of one in memory if it has at least this part of its sectors more
/// free.
const LOAD_GAIN_SHARE: u64 = 16;

/// Names a metaslab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetaslabId {
    /// The vdev.
    pub vdev: u16,
    /// The metaslab of that vdev.
    pub index: u64,
}

/// Why space was not available or a change was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// No free run of that length in any loaded metaslab.
    #[error("no free run of {0} sectors")]
    NoSpace(u64),
    /// The run does not lie within one metaslab of a data vdev.
    #[error("run {0:?} lies outside the pool's data")]
    Outside(Run),
    /// The run is partly in use already.
    #[error("run {0:?} is partly in use already")]
    InUse(Run),
}

/// A slot to be written.
#[derive(Debug, Clone)]
pub struct SlotWrite {
    /// Its entry for the record.
    pub entry: SlotEntry,
    /// Its bytes, whole sectors.
    pub bytes: Vec<u8>,
    /// Its copies.
    pub places: Vec<Place>,
}

/// Where the pool's sectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpaceUse {
    /// Sectors of all data vdevs.
    pub total: u64,
    /// Sectors in use in the newest root or taken since, held-back frees included.
    pub taken: u64,
    /// Of those: freed and held back, or lent. Without those of closed metaslabs, which do not come
    /// back.
    pub held: u64,
}

impl SpaceUse {
    /// Sectors that can be handed out.
    pub fn free(&self) -> u64 {
        self.total.saturating_sub(self.taken)
    }
}

#[derive(Debug, Default)]
struct TxgChanges {
    allocated: Vec<Run>,
    freed: Vec<Run>,
}

#[derive(Debug)]
struct VdevSpace {
    metaslabs: Vec<Metaslab>,
    /// The metaslab that first places come from.
    current: Option<usize>,
    /// The metaslab that second copies come from.
    second: Option<usize>,
    usable: bool,
}

/// All free space of a pool. See the crate's head for its invariants.
#[derive(Debug)]
pub struct Allocator {
    vdevs: Vec<VdevSpace>,
    open: BTreeMap<Txg, TxgChanges>,
    held: BTreeMap<Txg, Vec<Run>>,
    use_: SpaceUse,
    /// Sectors that are lent.
    lent: u64,
    rotor: usize,
    rotor_left: u64,
}

impl Allocator {
    /// An allocator over vdevs that are empty except for their reserved places. `None` stands for a
    /// vdev that holds no blocks (a log vdev).
    pub fn new(geometries: &[Option<Geometry>]) -> Self {
        let vdevs: Vec<VdevSpace> =
            geometries.iter().map(|geometry| VdevSpace::over(*geometry)).collect();
        let all = || vdevs.iter().flat_map(|vdev| &vdev.metaslabs);
        let total = all().map(|metaslab| metaslab.sectors as u64).sum();
        let free: u64 = all().map(|metaslab| metaslab.free).sum();
        let use_ = SpaceUse { total, taken: total - free, held: 0 };
        Allocator {
            vdevs,
            open: BTreeMap::new(),
            held: BTreeMap::new(),
            use_,
            lent: 0,
            rotor: 0,
            rotor_left: STRIPE_SECTORS,
        }
    }

    /// The use of the pool's sectors.
    pub fn space_use(&self) -> SpaceUse {
        self.use_
    }

    // ---- import -------------------------------------------------------------------------------

    /// Import: the current slot of a metaslab, from the newest record that names it.
    pub fn set_entry(&mut self, entry: SlotEntry) -> Result<(), SpaceError> {
        let id = MetaslabId { vdev: entry.vdev, index: entry.metaslab.into() };
        let outside = SpaceError::Outside(Run::new(Place::new(entry.vdev, 0), 0));
        let metaslab = self.metaslab_mut(id).ok_or(outside)?;
        let before = metaslab.free;
        metaslab.free = entry.free_sectors.min(metaslab.sectors as u64);
        let after = metaslab.free;
        metaslab.entry = Some(entry);
        self.use_.taken = self.use_.taken + before - after;
        Ok(())
    }

    /// Import: a change from a record newer than the current slot of its metaslab. Records must
    /// come oldest first. Changes that the slot already holds are skipped.
    pub fn replay_run(&mut self, txg: Txg, run: Run, allocated: bool) -> Result<(), SpaceError> {
        let (id, start) = self.locate(run).ok_or(SpaceError::Outside(run))?;
        let metaslab = self.metaslab_mut(id).ok_or(SpaceError::Outside(run))?;
        if metaslab.entry.is_some_and(|entry| entry.as_of >= txg) {
            return Ok(());
        }
        let count = usize::try_from(run.sectors).map_err(|_| SpaceError::Outside(run))?;
        let before = metaslab.free;
        metaslab.apply(Delta { start, count, allocated });
        let after = metaslab.free;
        self.use_.taken = (self.use_.taken + before).saturating_sub(after);
        Ok(())
    }

    /// Import: frees of a recent txg that may not be handed out yet.
    pub fn hold(&mut self, txg: Txg, runs: &[Run]) {
        for run in runs {
            self.use_.taken += run.sectors;
            self.use_.held += run.sectors;
        }
        self.held.entry(txg).or_default().extend_from_slice(runs);
        for run in runs {
            self.mark_taken(*run);
        }
    }

    /// Metaslabs to load so that `sectors` can be handed out from the emptiest ones. Loaded
    /// metaslabs may have as many free sectors, but in holes; then large writes would stop. Each
    /// vdev has its share of the loads: else one would be written while the others idle.
    pub fn wanted_loads(&self, sectors: u64) -> Vec<MetaslabId> {
        let mut candidates = Vec::new();
        for (vdev, space) in self.vdevs.iter().enumerate() {
            for metaslab in space.metaslabs.iter().filter(|metaslab| !metaslab.closed) {
                let id = MetaslabId {
                    vdev: u16::try_from(vdev).unwrap_or(u16::MAX),
                    index: metaslab.index,
                };
                candidates.push(match &metaslab.views {
                    Some(views) => {
                        let free = (views.taken.len() - views.taken.count()) as u64;
                        // A loaded metaslab does not give way for a small gain.
                        (free + metaslab.sectors as u64 / LOAD_GAIN_SHARE, free, id, true)
                    }
                    None => (metaslab.free, metaslab.free, id, false),
                });
            }
        }
        candidates.sort_by_key(|(rank, ..)| std::cmp::Reverse(*rank));
        let usable = self.vdevs.iter().filter(|vdev| vdev.usable).count() as u64;
        let share = sectors.div_ceil(usable.max(1));
        let mut wanted = Vec::new();
        let (mut found, mut found_on) = (0, vec![0; self.vdevs.len()]);
        for (_, free, id, is_loaded) in candidates {
            let Some(on_vdev) = found_on.get_mut(usize::from(id.vdev)) else { continue };
            if free == 0 || found >= sectors && *on_vdev >= share {
                continue;
            }
            found += free;
            *on_vdev += free;
            wanted.extend((!is_loaded).then_some(id));
        }
        wanted
    }

    /// The newest slot entry of a metaslab.
    pub fn entry(&self, id: MetaslabId) -> Option<SlotEntry> {
        self.metaslab(id)?.entry
    }

    /// The metaslab of a run, if it is not loaded.
    pub fn unloaded_for(&self, run: Run) -> Option<MetaslabId> {
        let (id, _) = self.locate(run)?;
        let metaslab = self.metaslab(id)?;
        (metaslab.views.is_none() && !metaslab.closed).then_some(id)
    }

    /// The current slot of a metaslab that is not loaded, with its copies. `None`: there is nothing
    /// to read, because it is loaded or was just set up empty.
    pub fn begin_load(&mut self, id: MetaslabId) -> Option<(SlotEntry, Vec<Place>)> {
        let metaslab = self.metaslab_mut(id)?;
        if metaslab.views.is_some() || metaslab.closed {
            return None;
        }
        if metaslab.entry.is_none() {
            let empty = metaslab.empty_bitmap();
            metaslab.load(empty);
            self.reapply(id);
            return None;
        }
        self.slot(id)
    }

    /// The current slot of a metaslab, with its copies. `None` if it has none yet.
    pub fn slot(&self, id: MetaslabId) -> Option<(SlotEntry, Vec<Place>)> {
        let metaslab = self.metaslab(id)?;
        let (entry, geometry) = (metaslab.entry?, metaslab.geometry);
        let place = |copy| geometry.slot_place(id.index, entry.slot, copy);
        Some((entry, (0..geometry.copies).map(place).collect()))
    }

    /// Loads a slot's bytes, which match its entry; `None` closes the metaslab to allocation.
    pub fn finish_load(&mut self, id: MetaslabId, entry: &SlotEntry, bytes: Option<&[u8]>) {
        let Some(metaslab) = self.metaslab_mut(id) else {
            return;
        };
        if metaslab.views.is_some() || metaslab.entry.as_ref() != Some(entry) {
            return;
        }
        match bytes {
            Some(bytes) => {
                // The entry of a metaslab that has grown since does not count what was added.
                let before = metaslab.free;
                metaslab.load(Bitmap::from_bytes(bytes, metaslab.sectors));
                let after = metaslab.free;
                self.use_.taken = (self.use_.taken + before).saturating_sub(after);
                self.reapply(id);
            }
            None => self.close(id),
        }
    }

    // ---- giving back --------------------------------------------------------------------------

    /// Import: reserves a run that a log record names. It must be free.
    pub fn reserve(&mut self, run: Run) -> Result<(), SpaceError> {
        let (id, start) = self.locate(run).ok_or(SpaceError::Outside(run))?;
        let count = usize::try_from(run.sectors).map_err(|_| SpaceError::Outside(run))?;
        if self.is_closed(id) {
            // Nothing is handed out there, and all that is free there counts as taken.
            return Ok(());
        }
        let views = self.metaslab_mut(id).and_then(|metaslab| metaslab.views.as_mut());
        let views = views.ok_or(SpaceError::Outside(run))?;
        if views.taken.count_range(start, count) != 0 {
            return Err(SpaceError::InUse(run));
        }
        views.taken.set_range(start, count);
        self.use_.taken += run.sectors;
        Ok(())
    }

    /// Makes a reserved run an allocation of `txg`, in which its log record is replayed.
    pub fn adopt(&mut self, txg: Txg, run: Run) {
        self.open.entry(txg).or_default().allocated.push(run);
    }

    /// Frees a run with `txg`: that txg's root no longer uses it, and it is held back for a while
    /// after.
    pub fn free(&mut self, txg: Txg, run: Run) {
        self.open.entry(txg).or_default().freed.push(run);
    }

    /// Runs that an open txg has taken and freed so far: the size of its record.
    pub fn open_runs(&self, txg: Txg) -> usize {
        self.open.get(&txg).map_or(0, |changes| changes.allocated.len() + changes.freed.len())
    }

    // ---- sync ---------------------------------------------------------------------------------

    /// Ends a txg's changes: they become the `used` view. Returns (allocated, freed), merged and
    /// cut to the size of a record's entries. A contradiction (double free, double allocation) is
    /// our bug.
    pub fn close_txg(&mut self, txg: Txg) -> Result<(Vec<Run>, Vec<Run>), SpaceError> {
        let changes = self.open.remove(&txg).unwrap_or_default();
        let allocated = merge_runs(changes.allocated);
        let freed = merge_runs(changes.freed);
        for run in &allocated {
            self.apply(*run, true)?;
        }
        for run in &freed {
            self.apply(*run, false)?;
        }
        let open = freed.iter().filter(|run| self.is_open(run));
        let held: u64 = open.map(|run| run.sectors).sum();
        self.use_.held += held;
        self.held.entry(txg).or_default().extend_from_slice(&freed);
        Ok((allocated, freed))
    }

    /// After `synced` is on disk: releases the frees of all but the last `keep` (`REWIND_TXGS`)
    /// committed txgs, and returns them, for discard. Stops at the first txg for which `unread` is
    /// false, because a reader may still reach its frees.
    pub fn release(&mut self, synced: Txg, keep: usize, unread: impl Fn(Txg) -> bool) -> Vec<Run> {
        debug_assert!(self.held.keys().all(|txg| *txg <= synced));
        let mut released = Vec::new();
        // Counts commits, not txg numbers: every import skips some numbers.
        while self.held.len() > keep {
            let Some(oldest) = self.held.first_entry().filter(|oldest| unread(*oldest.key()))
            else {
                break;
            };
            released.extend(oldest.remove());
        }
        for run in &released {
            if !self.is_open(run) {
                continue;
            }
            self.use_.held = self.use_.held.saturating_sub(run.sectors);
            self.use_.taken = self.use_.taken.saturating_sub(run.sectors);
            let Some((id, start)) = self.locate(*run) else {
                continue;
            };
            let count = usize::try_from(run.sectors).unwrap_or(0);
            if let Some(views) = self.metaslab_mut(id).and_then(|slab| slab.views.as_mut()) {
                debug_assert_eq!(views.used.count_range(start, count), 0);
                views.taken.clear_range(start, count);
            }
        }
        released
    }

    /// Committed txgs whose frees are held back.
    pub fn held_txgs(&self) -> usize {
        self.held.len()
    }

    /// Metaslabs that are dirty or have a slot, those with the oldest slot first. A slot that was
    /// written before its metaslab grew counts as never written.
    pub fn stale_metaslabs(&self) -> Vec<(Txg, MetaslabId)> {
        let mut stale: Vec<(Txg, MetaslabId)> = Vec::new();
        for id in self.metaslab_ids(|slab| slab.dirty || slab.entry.is_some()) {
            if let Some(metaslab) = self.metaslab(id) {
                let written = metaslab.entry.filter(|_| !metaslab.grown);
                stale.push((written.map_or(Txg(0), |entry| entry.as_of), id));
            }
        }
        stale.sort_unstable();
        stale
    }

    /// Whether a metaslab changed since its slot was written, and is not loaded. Then it must be
    /// loaded before [`Allocator::refresh`].
    pub fn needs_load_to_refresh(&self, id: MetaslabId) -> bool {
        self.metaslab(id).is_some_and(|slab| slab.dirty && slab.views.is_none() && !slab.closed)
    }

    /// Brings a metaslab's slot up to `txg`. Repeats the entry if nothing changed, else writes the
    /// next slot. (`in_turn` is true, unless the simulator leaves that rule out.)
    pub fn refresh(
        &mut self,
        id: MetaslabId,
        txg: Txg,
        in_turn: bool,
    ) -> Option<(SlotEntry, Option<SlotWrite>)> {
        let metaslab = self.metaslab_mut(id)?;
        if !metaslab.dirty {
            let entry = SlotEntry { as_of: txg, ..metaslab.entry? };
            metaslab.entry = Some(entry);
            return Some((entry, None));
        }
        let (entry, bytes) = metaslab.next_slot(txg, in_turn)?;
        let geometry = metaslab.geometry;
        let places = (0..geometry.copies)
            .map(|copy| geometry.slot_place(id.index, entry.slot, copy))
            .collect();
        Some((entry, Some(SlotWrite { entry, bytes, places })))
    }

    /// Allocated sectors of each vdev in the `used` view.
    pub fn used_per_vdev(&self) -> Vec<u64> {
        let used = |slab: &Metaslab| slab.sectors as u64 - slab.free;
        self.vdevs.iter().map(|vdev| vdev.metaslabs.iter().map(used).sum()).collect()
    }

    // ---- inside -------------------------------------------------------------------------------

    fn metaslab(&self, id: MetaslabId) -> Option<&Metaslab> {
        self.vdevs.get(usize::from(id.vdev))?.metaslabs.get(usize::try_from(id.index).ok()?)
    }

    fn metaslab_mut(&mut self, id: MetaslabId) -> Option<&mut Metaslab> {
        self.vdevs.get_mut(usize::from(id.vdev))?.metaslabs.get_mut(usize::try_from(id.index).ok()?)
    }

    fn metaslab_ids(&self, wanted: impl Fn(&Metaslab) -> bool) -> Vec<MetaslabId> {
        let all = self.vdevs.iter().flat_map(|vdev| &vdev.metaslabs);
        all.filter(|slab| wanted(slab))
            .map(|slab| MetaslabId { vdev: slab.geometry.vdev, index: slab.index })
            .collect()
    }

    /// The metaslab of a run and the run's first bit in it. Runs never cross metaslabs.
    fn locate(&self, run: Run) -> Option<(MetaslabId, usize)> {
        let first = self.vdevs.get(usize::from(run.place.vdev()))?.metaslabs.first()?;
        let index = run.place.sector() / first.geometry.metaslab_sectors();
        let id = MetaslabId { vdev: run.place.vdev(), index };
        let metaslab = self.metaslab(id)?;
        let start = usize::try_from(run.place.sector() - metaslab.first_sector).ok()?;
        let fits = start as u64 + run.sectors <= metaslab.sectors as u64;
        (fits && run.sectors > 0).then_some((id, start))
    }

    fn apply(&mut self, run: Run, allocated: bool) -> Result<(), SpaceError> {
        let (id, start) = self.locate(run).ok_or(SpaceError::Outside(run))?;
        let count = usize::try_from(run.sectors).map_err(|_| SpaceError::Outside(run))?;
        let metaslab = self.metaslab_mut(id).ok_or(SpaceError::Outside(run))?;
        if metaslab.apply(Delta { start, count, allocated }) {
            Ok(())
        } else {
            Err(SpaceError::InUse(run))
        }
    }

    /// For a metaslab that was just loaded: held-back frees there must stay taken.
    fn reapply(&mut self, id: MetaslabId) {
        let held: Vec<Run> = self.held.values().flatten().copied().collect();
        for run in held {
            if self.locate(run).is_some_and(|(of, _)| of == id) {
                self.mark_taken(run);
            }
        }
        // The frees of open txgs are still in `used`. Open txgs took sectors only in loaded
        // metaslabs.
    }

    fn mark_taken(&mut self, run: Run) {
        let Some((id, start)) = self.locate(run) else {
            return;
        };
        let count = usize::try_from(run.sectors).unwrap_or(0);
        if let Some(views) = self.metaslab_mut(id).and_then(|slab| slab.views.as_mut()) {
            views.taken.set_range(start, count);
        }
    }
}

/// Sorts, joins neighbours, and cuts to the size of a record's entry. Log segments do not join with
/// data across a metaslab's end: runs never cross it, so their union may not either.
fn merge_runs(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable();
    let mut merged: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        if let Some(last) = merged.last_mut()
            && last.place.vdev() == run.place.vdev()
            && last.end_sector() == run.place.sector()
            && last.sectors + run.sectors <= RUN_SECTORS_MAX
            && run.place.sector() % SEGMENT_SECTORS != 0
        {
            last.sectors += run.sectors;
        } else {
            merged.push(run);
        }
    }
    merged
}
