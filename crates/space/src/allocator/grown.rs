//! Vdevs that come to a pool in service, or grow.

use aquifer_ondisk::layout::Geometry;

use super::{Allocator, VdevSpace};
use crate::metaslab::Metaslab;

impl Allocator {
    /// A data vdev that is new and empty, or that has grown: its metaslabs have the same size as
    /// before. What is used already stays so.
    pub fn extend(&mut self, geometry: Geometry) {
        let at = usize::from(geometry.vdev);
        // Log vdevs that were added meanwhile have no space here.
        while self.vdevs.len() <= at {
            self.vdevs.push(VdevSpace::over(None));
        }
        let Some(vdev) = self.vdevs.get_mut(at) else { return };
        vdev.usable = true;
        if let Some(last) = vdev.metaslabs.last_mut() {
            let more = last.grow(geometry);
            self.use_.total += more;
            if last.closed {
                self.use_.taken += more;
            }
        }
        for index in vdev.metaslabs.len() as u64..geometry.metaslabs() {
            let metaslab = Metaslab::new(geometry, index);
            self.use_.total += metaslab.sectors as u64;
            self.use_.taken += metaslab.sectors as u64 - metaslab.free;
            vdev.metaslabs.push(metaslab);
        }
        // What comes next may lie there.
        self.rotor_left = 0;
        for metaslab in &mut vdev.metaslabs {
            assert_eq!(metaslab.geometry.metaslab_segments, geometry.metaslab_segments);
            metaslab.geometry = geometry;
        }
    }

    /// Import: as many sectors of each vdev were in use as the root says. If its slots say more,
    /// the vdev has grown since: a metaslab has become longer than its own slot tells, and those
    /// behind it are new.
    pub fn was_used(&mut self, per_vdev: &[u64]) {
        let slots_say = self.used_per_vdev();
        for (vdev, (says, was)) in self.vdevs.iter_mut().zip(slots_say.iter().zip(per_vdev)) {
            let more = says.saturating_sub(*was);
            let lengthened = vdev.metaslabs.first().and_then(|slab| slab.geometry.lengthened);
            let at = lengthened.and_then(|index| usize::try_from(index).ok());
            // The root counts nothing of the new ones, not even the places of their slots.
            let behind = vdev.metaslabs.iter().skip(at.map_or(usize::MAX, |at| at + 1));
            let new: u64 = behind.map(|slab| slab.sectors as u64 - slab.free).sum();
            let slab = at.and_then(|at| vdev.metaslabs.get_mut(at));
            let Some(slab) = slab.filter(|slab| slab.entry.is_some() && more > 0) else { continue };
            let more = more.saturating_sub(new);
            let most = slab.sectors as u64 - slab.free;
            slab.free += more.min(most);
            slab.must_tell();
            self.use_.taken = self.use_.taken.saturating_sub(more.min(most));
        }
    }
}

impl VdevSpace {
    /// Of an empty vdev; `None`: of one that holds no blocks.
    pub(super) fn over(geometry: Option<Geometry>) -> VdevSpace {
        let of = |geometry: Geometry| {
            (0..geometry.metaslabs()).map(move |index| Metaslab::new(geometry, index))
        };
        VdevSpace {
            metaslabs: geometry.into_iter().flat_map(of).collect(),
            current: None,
            second: None,
            usable: geometry.is_some(),
        }
    }

    /// Sectors that are free in the `used` view.
    pub(super) fn free(&self) -> u64 {
        self.metaslabs.iter().filter(|slab| !slab.closed).map(|slab| slab.free).sum()
    }
}
