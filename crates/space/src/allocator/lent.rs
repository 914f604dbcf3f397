//! Free sectors that are lent to work which changes them on the disks: a trim, an initialization.
//!
//! Nobody waits for that work, however long a disk takes for it: lent sectors count as taken, so
//! that the allocator hands out others. They count as held back, too: they come back by themselves.

use aquifer_ondisk::types::Run;

use super::Allocator;

impl Allocator {
    /// Lends the free runs of at least `min` sectors that lie in `within`, which crosses no
    /// metaslab. `None` where the bitmap is not loaded, or the metaslab closed.
    pub fn lend(&mut self, within: Run, min: u64) -> Option<Vec<Run>> {
        let (id, first) = self.locate(within)?;
        let views = self.metaslab_mut(id).filter(|slab| !slab.closed)?.views.as_mut()?;
        let (mut at, end) = (first, first + usize::try_from(within.sectors).ok()?);
        let mut lent = Vec::new();
        while let Some(start) = views.taken.next_bit(at, false).filter(|start| *start < end) {
            at = views.taken.next_bit(start, true).map_or(end, |next| next.min(end));
            if (at - start) as u64 >= min {
                views.taken.set_range(start, at - start);
                let place = within.place.plus((start - first) as u64);
                lent.push(Run::new(place, (at - start) as u64));
            }
        }
        self.count_lent(lent.iter().map(|run| run.sectors).sum());
        Some(lent)
    }

    /// Takes lent runs back: they are free.
    pub fn give_back(&mut self, lent: &[Run]) {
        for run in lent {
            let Some((id, start)) = self.locate(*run) else { continue };
            let views = self.metaslab_mut(id).and_then(|slab| slab.views.as_mut());
            // A bitmap stays in memory while something of it is lent.
            let Some(views) = views else { continue };
            let count = usize::try_from(run.sectors).unwrap_or(0);
            let taken = views.taken.clear_range(start, count);
            debug_assert_eq!((taken, views.used.count_range(start, count)), (count, 0));
            self.lent -= run.sectors;
            self.use_.taken -= run.sectors;
            self.use_.held -= run.sectors;
        }
    }

    /// Frees that are held back in `within`: what the simulator discards too early.
    pub fn held_in(&self, within: Run) -> Vec<Run> {
        let vdev = within.place.vdev();
        let is_in = |run: &&Run| {
            run.place.vdev() == vdev
                && run.place.sector() >= within.place.sector()
                && run.end_sector() <= within.end_sector()
        };
        self.held.values().flatten().filter(is_in).copied().collect()
    }

    /// Sectors that are lent now.
    pub fn lent_sectors(&self) -> u64 {
        self.lent
    }

    fn count_lent(&mut self, sectors: u64) {
        self.lent += sectors;
        self.use_.taken += sectors;
        self.use_.held += sectors;
    }
}
