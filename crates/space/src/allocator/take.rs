//! Which free sectors are handed out.
//!
//! First places come front to back from one metaslab at a time, the emptiest first, so that data
//! written together lies together. Second copies go elsewhere: to another metaslab with a cursor of
//! its own, or half a metaslab away, but never into the segment of the first copy while any other
//! has room. Then a scratch, a lost track of the flash translation layer or one misdirected write
//! takes only one of the two.

use aquifer_ondisk::txg_record::RUN_SECTORS_MAX;
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::{Place, Txg};

use super::{Allocator, MetaslabId, SpaceError, VdevSpace};
use crate::metaslab::Metaslab;

/// Sectors handed out from the emptiest vdev before the next one has its turn: 1 MiB.
pub(super) const STRIPE_SECTORS: u64 = 256;

impl Allocator {
    /// Takes a run of `min` to `want` sectors for `txg`.
    pub fn allocate(&mut self, txg: Txg, min: u64, want: u64) -> Result<Run, SpaceError> {
        debug_assert!(min >= 1 && min <= want);
        let want = want.min(RUN_SECTORS_MAX);
        for _ in 0..self.vdevs.len() {
            if self.rotor_left == 0 || !self.vdevs.get(self.rotor).is_some_and(|vdev| vdev.usable) {
                self.rotor = (self.rotor + 1) % self.vdevs.len();
                self.rotor_left = self.stripe_of(self.rotor);
            }
            let taken = self.vdevs.get_mut(self.rotor).and_then(|vdev| vdev.take(min, want));
            if let Some(run) = taken {
                self.rotor_left = self.rotor_left.saturating_sub(run.sectors);
                return Ok(self.taken(txg, run));
            }
            self.rotor_left = 0;
        }
        Err(SpaceError::NoSpace(min))
    }

    /// Sectors that a vdev gives in its turn: in eighths of a stripe, by its free space. So a vdev
    /// that was added to a full pool takes most of what is written, and in the end all are equally
    /// full.
    fn stripe_of(&self, vdev: usize) -> u64 {
        let free = |space: &VdevSpace| space.free();
        let most = self.vdevs.iter().map(free).max().unwrap_or(0).max(1);
        let own = self.vdevs.get(vdev).map_or(0, free);
        (own * 8).div_ceil(most).clamp(1, 8) * (STRIPE_SECTORS / 8)
    }

    /// Takes a sector for the second copy of the block at `first`: on another vdev if there is one
    /// with room, else far away on the same, and always in another segment while one has room.
    pub fn allocate_second(&mut self, txg: Txg, first: Place) -> Result<Run, SpaceError> {
        let (count, home) = (self.vdevs.len(), usize::from(first.vdev()));
        for vdev in (1..=count).map(|step| (home + step) % count) {
            let avoid = (vdev == home).then_some(first);
            if let Some(run) = self.vdevs.get_mut(vdev).and_then(|space| space.take_second(avoid)) {
                return Ok(self.taken(txg, run));
            }
        }
        // Only the segment of the first copy has room: a second copy there is better than a stop.
        self.allocate(txg, 1, 1)
    }

    /// Takes a whole aligned segment for `txg`, on vdev `rotor` or the next one with room: the
    /// first free one, or with `from_end` the last. It loads untouched metaslabs only as it reaches
    /// them: their bitmaps need not be read.
    pub fn allocate_segment(
        &mut self,
        txg: Txg,
        rotor: usize,
        from_end: bool,
    ) -> Result<Run, SpaceError> {
        let count = self.vdevs.len();
        for vdev in (0..count).map(|step| (rotor + step) % count) {
            let metaslabs = self.vdevs.get(vdev).map_or(0, |space| space.metaslabs.len());
            for at in 0..metaslabs {
                let at = if from_end { metaslabs - 1 - at } else { at };
                let vdev = u16::try_from(vdev).unwrap_or(u16::MAX);
                let id = MetaslabId { vdev, index: at as u64 };
                if self.begin_load(id).is_some() {
                    continue;
                }
                let taken = self.metaslab_mut(id).and_then(|slab| segment_from(slab, from_end));
                if let Some(run) = taken {
                    return Ok(self.taken(txg, run));
                }
            }
        }
        Err(SpaceError::NoSpace(SEGMENT_SECTORS))
    }

    /// Whether all sectors of a run could be handed out. Never where the bitmap is not loaded.
    pub fn is_free(&self, run: Run) -> bool {
        let Some((id, start)) = self.locate(run) else { return false };
        let views =
            self.metaslab(id).filter(|slab| !slab.closed).and_then(|slab| slab.views.as_ref());
        let count = usize::try_from(run.sectors).unwrap_or(usize::MAX);
        views.is_some_and(|views| views.taken.count_range(start, count) == 0)
    }

    fn taken(&mut self, txg: Txg, run: Run) -> Run {
        self.use_.taken += run.sectors;
        self.open.entry(txg).or_default().allocated.push(run);
        run
    }
}

impl VdevSpace {
    /// Front to back through the current metaslab, then the emptiest one.
    fn take(&mut self, min: u64, want: u64) -> Option<Run> {
        let (min, want) = (usize::try_from(min).ok()?, usize::try_from(want).ok()?);
        if let Some(metaslab) = self.current.and_then(|at| self.metaslabs.get_mut(at))
            && let Some(run) = take_from(metaslab, min, want)
        {
            return Some(run);
        }
        // Emptiest first; the search starts again at its front.
        for at in self.emptiest(min) {
            let Some(metaslab) = self.metaslabs.get_mut(at) else {
                continue;
            };
            metaslab.cursor = 0;
            if let Some(run) = take_from(metaslab, min, want) {
                self.current = Some(at);
                return Some(run);
            }
        }
        None
    }

    /// Loaded metaslabs with at least `min` sectors free, emptiest first.
    fn emptiest(&self, min: usize) -> Vec<usize> {
        let free = |(at, slab): (usize, &Metaslab)| {
            let views = slab.views.as_ref().filter(|_| !slab.closed)?;
            Some((views.taken.len() - views.taken.count(), at))
        };
        let mut order: Vec<(usize, usize)> =
            self.metaslabs.iter().enumerate().filter_map(free).filter(|(n, _)| *n >= min).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        order.into_iter().map(|(_, at)| at).collect()
    }

    /// A sector for a second copy, away from `avoid`.
    fn take_second(&mut self, avoid: Option<Place>) -> Option<Run> {
        let size = self.metaslabs.first()?.geometry.metaslab_sectors();
        let home = avoid.and_then(|place| usize::try_from(place.sector() / size).ok());
        // The metaslab of the last second copy, unless data is written there meanwhile.
        let last = self.second.filter(|at| Some(*at) != home && Some(*at) != self.current);
        if let Some(run) = last.and_then(|at| self.metaslabs.get_mut(at)).and_then(second_from) {
            return Some(run);
        }
        for at in self.emptiest(1) {
            if Some(at) == home || (Some(at) == self.current && self.metaslabs.len() > 1) {
                continue;
            }
            if let Some(run) = self.metaslabs.get_mut(at).and_then(second_from) {
                self.second = Some(at);
                return Some(run);
            }
        }
        let current = self.current.filter(|at| Some(*at) != home);
        if let Some(run) = current.and_then(|at| self.metaslabs.get_mut(at)).and_then(second_from) {
            return Some(run);
        }
        let (home, avoid) = (self.metaslabs.get_mut(home?)?, avoid?);
        take_far(home, avoid)
    }
}

fn take_from(metaslab: &mut Metaslab, min: usize, want: usize) -> Option<Run> {
    if metaslab.closed {
        return None;
    }
    let views = metaslab.views.as_mut()?;
    let (start, count) = views.taken.find_clear(metaslab.cursor, min, want)?;
    metaslab.cursor = start + count;
    mark(metaslab, start, count)
}

fn second_from(metaslab: &mut Metaslab) -> Option<Run> {
    if metaslab.closed {
        return None;
    }
    let taken = &metaslab.views.as_ref()?.taken;
    let found = taken.find_clear(metaslab.second_cursor, 1, 1);
    let (start, count) = found.or_else(|| taken.find_clear(0, 1, 1))?;
    metaslab.second_cursor = start + count;
    mark(metaslab, start, count)
}

/// A sector half a metaslab away from `place`, or the next free one in another segment.
fn take_far(metaslab: &mut Metaslab, place: Place) -> Option<Run> {
    if metaslab.closed {
        return None;
    }
    let taken = &metaslab.views.as_ref()?.taken;
    let segment = usize::try_from(SEGMENT_SECTORS).ok()?;
    let at = usize::try_from(place.sector().checked_sub(metaslab.first_sector)?).ok()?;
    let (start, end) = (at / segment * segment, (at / segment + 1) * segment);
    let elsewhere = |(found, _): &(usize, usize)| !(start..end).contains(found);
    let half = (at + metaslab.sectors / 2) % metaslab.sectors.max(1);
    let from = [half, end, 0];
    let found = from.into_iter().find_map(|from| taken.find_clear(from, 1, 1).filter(elsewhere));
    let (start, count) = found?;
    mark(metaslab, start, count)
}

fn segment_from(metaslab: &mut Metaslab, from_end: bool) -> Option<Run> {
    if metaslab.closed {
        return None;
    }
    let segment = usize::try_from(SEGMENT_SECTORS).ok()?;
    let taken = &metaslab.views.as_ref()?.taken;
    let segments = metaslab.sectors / segment;
    let starts = (0..segments).map(|at| if from_end { segments - 1 - at } else { at } * segment);
    let start = starts.into_iter().find(|start| taken.count_range(*start, segment) == 0)?;
    mark(metaslab, start, segment)
}

fn mark(metaslab: &mut Metaslab, start: usize, count: usize) -> Option<Run> {
    metaslab.views.as_mut()?.taken.set_range(start, count);
    let place = Place::new(metaslab.geometry.vdev, metaslab.first_sector + start as u64);
    Some(Run::new(place, count as u64))
}
