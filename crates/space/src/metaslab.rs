//! One metaslab: its two views, its current slot, and the changes since that slot was written.

use aquifer_ondisk::layout::{BITMAP_SLOTS, Geometry};
use aquifer_ondisk::txg_record::SlotEntry;
use aquifer_ondisk::{Txg, codec::checksum128};

use crate::Bitmap;

/// The two views of a loaded metaslab. See the crate's head.
#[derive(Debug, Clone)]
pub(crate) struct Views {
    pub used: Bitmap,
    pub taken: Bitmap,
}

/// A change of `used` that a bitmap not yet loaded must catch up with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delta {
    pub start: usize,
    pub count: usize,
    pub allocated: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Metaslab {
    pub geometry: Geometry,
    pub index: u64,
    pub first_sector: u64,
    pub sectors: usize,
    /// Current slot; `None`: free except for the reserved places.
    pub entry: Option<SlotEntry>,
    pub views: Option<Views>,
    /// In order; only while not loaded.
    pub deltas: Vec<Delta>,
    /// Free sectors: clear in `used`.
    pub free: u64,
    /// `used` changed since the entry's `as_of`.
    pub dirty: bool,
    /// It has become longer since its slot was written, which therefore tells too few free sectors:
    /// it is written next.
    pub grown: bool,
    /// No copy of the slot verified: nothing is allocated here until the metaslab is rebuilt.
    pub closed: bool,
    /// Where the search for free runs continues.
    pub cursor: usize,
    /// Position where the search for free runs for second copies continues.
    pub second_cursor: usize,
}

impl Metaslab {
    pub fn new(geometry: Geometry, index: u64) -> Self {
        let (first_sector, sectors) = geometry.metaslab_range(index);
        let reserved: u64 = geometry.reserved(index).iter().map(|(_, count)| count).sum();
        Metaslab {
            geometry,
            index,
            first_sector,
            sectors: usize::try_from(sectors).unwrap_or(0),
            entry: None,
            views: None,
            deltas: Vec::new(),
            free: sectors - reserved,
            dirty: false,
            grown: false,
            closed: false,
            cursor: 0,
            second_cursor: 0,
        }
    }

    /// The views of a metaslab without an entry: only the reserved places are taken.
    pub fn empty_bitmap(&self) -> Bitmap {
        let mut bitmap = Bitmap::new(self.sectors);
        for (start, count) in self.geometry.reserved(self.index) {
            let start = usize::try_from(start - self.first_sector).unwrap_or(usize::MAX);
            bitmap.set_range(start, usize::try_from(count).unwrap_or(usize::MAX));
        }
        bitmap
    }

    /// Becomes as long as `geometry` has it. Returns how many sectors were added, all free.
    pub fn grow(&mut self, geometry: Geometry) -> u64 {
        let (_, sectors) = geometry.metaslab_range(self.index);
        let more = sectors.saturating_sub(self.sectors as u64);
        if more == 0 {
            return 0;
        }
        self.sectors = usize::try_from(sectors).unwrap_or(self.sectors);
        self.free += more;
        self.must_tell();
        if let Some(views) = &mut self.views {
            views.used.grow(self.sectors);
            views.taken.grow(self.sectors);
        }
        more
    }

    /// Its slot, if it has one, tells too few free sectors.
    pub fn must_tell(&mut self) {
        self.grown = self.entry.is_some() && !self.closed;
        self.dirty |= self.grown;
    }

    /// Applies the changes since the current slot to its bitmap, and keeps it.
    pub fn load(&mut self, mut used: Bitmap) {
        assert_eq!(used.len(), self.sectors);
        for delta in self.deltas.drain(..) {
            if delta.allocated {
                used.set_range(delta.start, delta.count);
            } else {
                used.clear_range(delta.start, delta.count);
            }
        }
        self.free = (used.len() - used.count()) as u64;
        self.views = Some(Views { taken: used.clone(), used });
    }

    /// Applies a committed change to `used`. Returns false if it contradicts the view: a sector
    /// allocated twice or freed twice.
    pub fn apply(&mut self, delta: Delta) -> bool {
        self.dirty = true;
        let Some(views) = &mut self.views else {
            self.deltas.push(delta);
            // The changes of an import may contradict each other: loading the bitmap shows what is
            // free.
            let count = delta.count as u64;
            self.free = match delta.allocated {
                true => self.free.saturating_sub(count),
                false => self.free.saturating_add(count).min(self.sectors as u64),
            };
            return true;
        };
        let changed = if delta.allocated {
            views.used.set_range(delta.start, delta.count)
        } else {
            views.used.clear_range(delta.start, delta.count)
        };
        if delta.allocated {
            self.free = self.free.saturating_sub(changed as u64);
        } else {
            self.free += changed as u64;
        }
        changed == delta.count
    }

    /// The next slot's bytes and entry as of `txg`. The metaslab must be loaded. `in_turn` is false
    /// only where the simulator leaves out the rule that the current slot is never overwritten.
    pub fn next_slot(&mut self, txg: Txg, in_turn: bool) -> Option<(SlotEntry, Vec<u8>)> {
        let views = self.views.as_ref()?;
        let bytes_wanted = usize::try_from(self.geometry.slot_sectors() * 4096).ok()?;
        let bytes = views.used.to_bytes(bytes_wanted);
        let step = u8::from(in_turn);
        let slot = self.entry.map_or(0, |entry| (entry.slot + step) % BITMAP_SLOTS);
        let entry = SlotEntry {
            vdev: self.geometry.vdev,
            metaslab: u32::try_from(self.index).ok()?,
            slot,
            as_of: txg,
            checksum: checksum128(&bytes),
            free_sectors: self.free,
            longest_run: u32::try_from(views.used.longest_clear()).unwrap_or(u32::MAX),
        };
        self.entry = Some(entry);
        (self.dirty, self.grown) = (false, false);
        Some((entry, bytes))
    }
}
