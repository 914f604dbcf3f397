//! Which bitmaps stay in memory.
//!
//! Both views of all of a 10 TiB pool are 640 MiB. A bitmap may leave memory under two conditions.
//! Its current slot on disk says the same as its `used` view. Its `taken` view differs from that
//! only by frees that are held back: the next load applies those again.

use std::collections::HashMap;

use super::{Allocator, MetaslabId};
use crate::metaslab::Metaslab;

impl Allocator {
    /// Memory of the loaded bitmaps.
    pub fn bitmap_bytes(&self) -> u64 {
        let all = self.vdevs.iter().flat_map(|vdev| &vdev.metaslabs);
        all.filter(|slab| slab.views.is_some()).map(bytes_of).sum()
    }

    /// Drops bitmaps, the fullest first. Stops when they take at most `bytes_max`, when none can
    /// go, or when the rest would have fewer than `free_wanted` free sectors. Must not be called
    /// while a slot that [`Allocator::refresh`] returned is not on disk. Returns how many went.
    pub fn unload(&mut self, bytes_max: u64, free_wanted: u64) -> usize {
        let mut bytes = self.bitmap_bytes();
        if bytes <= bytes_max {
            return 0;
        }
        let held = self.held_per_metaslab();
        let mut free_left = 0;
        let mut candidates = Vec::new();
        for id in self.metaslab_ids(|slab| slab.views.is_some()) {
            let Some(slab) = self.metaslab(id) else {
                continue;
            };
            let held = held.get(&id).copied().unwrap_or(0);
            let free = slab.free.saturating_sub(held);
            free_left += free;
            if self.may_go(id, slab, held) {
                candidates.push((free, id));
            }
        }
        candidates.sort_unstable();
        let mut gone = 0;
        for (free, id) in candidates {
            if bytes <= bytes_max || free_left - free < free_wanted {
                break;
            }
            if let Some(slab) = self.metaslab_mut(id) {
                bytes -= bytes_of(slab);
                free_left -= free;
                slab.views = None;
                gone += 1;
            }
        }
        gone
    }

    fn may_go(&self, id: MetaslabId, slab: &Metaslab, held: u64) -> bool {
        let in_turn = self.vdevs.get(usize::from(id.vdev)).is_some_and(|vdev| {
            [vdev.current, vdev.second].iter().flatten().any(|at| *at as u64 == id.index)
        });
        let as_on_disk = slab.views.as_ref().is_some_and(|views| {
            (views.taken.count() - views.used.count()) as u64 == held && !slab.dirty
        });
        as_on_disk && !in_turn
    }

    fn held_per_metaslab(&self) -> HashMap<MetaslabId, u64> {
        let mut held = HashMap::new();
        for run in self.held.values().flatten() {
            if let Some((id, _)) = self.locate(*run) {
                *held.entry(id).or_default() += run.sectors;
            }
        }
        held
    }
}

/// Memory of a metaslab's two views.
fn bytes_of(slab: &Metaslab) -> u64 {
    2 * (slab.sectors as u64).div_ceil(8)
}
