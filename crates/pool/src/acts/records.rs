//! Segments for txg records: more of them as a pool grows, and their mirrors on other vdevs.
//!
//! The loss of a data vdev must not take the pool's root with it. So where there are several, each
//! record lies on two. Pools of earlier releases, and of one vdev when another one is added, get
//! the segments for that when they are imported or grow, if there is room. No segment is given back
//! for it: live records may lie there.

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::layout::Geometry;
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::{Place, Txg};
use aquifer_space::Allocator;
use aquifer_vdev::Vdev;

use crate::limits::Limits;
use crate::pool::Pool;

impl Pool {
    /// Takes more segments for records, as the pool has more metaslabs. A ring of one copy goes on
    /// only where disks mirror each other. If there is no room, the ring stays as it is. No txg may
    /// close meanwhile.
    pub(super) fn grow_records(&self, space: &mut Allocator, vdev: &Vdev, metaslabs: u64) {
        let mut ring = self.records.lock();
        if ring.copies() == 1 && vdev.geometry.copies > 1 {
            return;
        }
        let txg = self.open_txg();
        let more = Limits::record_segments(metaslabs).saturating_sub(ring.segments());
        for _ in 0..more {
            let taken = take_segments(space, txg, vdev, ring.copies());
            let Some((first, second)) = taken else { return };
            ring.grow(first, second);
        }
    }

    /// Sees to it that each record from now on lies on two vdevs, if there are two and there is
    /// room. No txg may close meanwhile.
    pub(crate) fn spread_records(&self, space: &mut Allocator) {
        let txg = self.open_txg();
        if !self.tree().config.is_spread(txg) || left_out(Rule::RootsOnTwoVdevs) {
            return;
        }
        let mut ring = self.records.lock();
        let alone = ring.on_one_vdev();
        // What clients may write into stays theirs.
        let room = space.space_use().free().saturating_sub(self.slop_sectors());
        let (each, needed) = (SEGMENT_SECTORS, alone.len() as u64 * u64::from(ring.copies()));
        if room < 2 * needed * each {
            return;
        }
        if ring.copies() == 1 {
            let mirrors = elsewhere(space, txg, alone.iter().map(|(segment, _)| *segment));
            mirrors.into_iter().for_each(|mirrors| ring.mirror_all(mirrors));
            return;
        }
        for (segment, before) in alone {
            let pair = [Some(segment), before].into_iter().flatten();
            let Some(taken) = elsewhere(space, txg, pair) else { return };
            if let [mirror, of_before] = taken.as_slice() {
                ring.mirror_elsewhere(segment, *mirror, *of_before);
            }
        }
    }

    /// The pool's limits follow from its vdevs, and from its segments for records.
    pub(crate) fn set_capacity(&self) {
        let tree = self.tree();
        let geometries: Vec<Geometry> = tree.data().map(|vdev| vdev.geometry).collect();
        let total_sectors = geometries.iter().map(Geometry::sectors).sum();
        let record_segments = self.records.lock().segments();
        self.capacity.set(&self.limits, total_sectors, record_segments);
    }
}

/// A free segment for each of these, on another vdev than it lies on; or none at all.
fn elsewhere(
    space: &mut Allocator,
    txg: Txg,
    segments: impl Iterator<Item = Place>,
) -> Option<Vec<Place>> {
    let mut taken: Vec<Run> = Vec::new();
    for segment in segments {
        let next = usize::from(segment.vdev()) + 1;
        let run = space.allocate_segment(txg, next, true).ok();
        taken.extend(run);
        if run.is_none_or(|run| run.place.vdev() == segment.vdev()) {
            taken.into_iter().for_each(|run| space.free(txg, run));
            return None;
        }
    }
    Some(taken.into_iter().map(|run| run.place).collect())
}

/// A segment on a vdev, and one for second copies if there are such: on another vdev, else far from
/// it.
fn take_segments(
    space: &mut Allocator,
    txg: Txg,
    vdev: &Vdev,
    copies: u8,
) -> Option<(Place, Option<Place>)> {
    let first = space.allocate_segment(txg, usize::from(vdev.index), false).ok()?;
    let next = usize::from(first.place.vdev()) + 1;
    // Without room on the vdev it is another one's, which may have no redundancy.
    let second = match copies {
        1 => (first.place.vdev() == vdev.index).then_some(None),
        _ => space.allocate_segment(txg, next, true).ok().map(Some),
    };
    if second.is_none() {
        space.free(txg, first);
    }
    Some((first.place, second?.map(|run| run.place)))
}

#[cfg(test)]
mod tests;
