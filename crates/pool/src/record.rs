//! The ring of txg records: the place of the next part, and the places that must not be
//! overwritten.

use std::collections::VecDeque;

use aquifer_ondisk::layout::REWIND_TXGS;
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::{Place, Txg};

use crate::error::{Contradiction, PoolError};

/// Reserved segments, used in turn. Invariant: no segment is entered while it holds a record that
/// the newest root, or one of the two before it, needs.
#[derive(Debug)]
pub(crate) struct RecordRing {
    /// First copies.
    segments: Vec<Place>,
    /// Second copies, segment by segment; empty if records have one.
    mirrors: Vec<Place>,
    /// The place of the next part, if it fits.
    segment: usize,
    offset: u64,
    /// Sectors that records use in each segment.
    taken_of_each: u64,
    /// Newest record in each segment.
    newest: Vec<Txg>,
    /// Records of recent txgs: (txg, bytes).
    sizes: VecDeque<(Txg, u64)>,
    /// Window starts of the newest roots, newest last.
    windows: VecDeque<Txg>,
}

/// Only a record that fills a whole segment uses its last sector: as the place of the next part it
/// says that the segment is full, see [`RecordRing::next`].
const LAST_SECTOR: u64 = SEGMENT_SECTORS - 1;

/// Cuts runs into whole segments.
pub(crate) fn segments_of(runs: &[Run]) -> Vec<Place> {
    let split = |run: &Run| {
        let place = run.place;
        (0..run.sectors / SEGMENT_SECTORS).map(move |at| place.plus(at * SEGMENT_SECTORS))
    };
    runs.iter().flat_map(split).collect()
}

/// Joins neighbouring segments into runs, keeping their order.
pub(crate) fn runs_of(segments: &[Place]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for place in segments {
        match runs.last_mut() {
            Some(last) if last.place.plus(last.sectors) == *place => {
                last.sectors += SEGMENT_SECTORS;
            }
            _ => runs.push(Run::new(*place, SEGMENT_SECTORS)),
        }
    }
    runs
}

impl RecordRing {
    /// A ring over `runs`; with `copies` 2 the second half holds the second copies.
    pub fn new(runs: &[Run], copies: u8, next: Place) -> Result<Self, PoolError> {
        let mut segments = segments_of(runs);
        let mirrors = if copies == 2 { segments.split_off(segments.len() / 2) } else { Vec::new() };
        let holds = |place: &Place| {
            place.vdev() == next.vdev()
                && (place.sector()..place.sector() + SEGMENT_SECTORS).contains(&next.sector())
        };
        let segment = segments.iter().position(holds).ok_or(Contradiction::RecordPlace(next))?;
        let offset = next.sector() % SEGMENT_SECTORS;
        let newest = vec![Txg(0); segments.len()];
        let (sizes, windows) = (VecDeque::new(), VecDeque::new());
        Ok(RecordRing {
            segments,
            mirrors,
            segment,
            offset,
            taken_of_each: SEGMENT_SECTORS,
            newest,
            sizes,
            windows,
        })
    }

    /// The segments whose records lie on one vdev only, and their mirrors, if they have some.
    pub fn on_one_vdev(&self) -> Vec<(Place, Option<Place>)> {
        let mirrors = self.mirrors.iter().copied().map(Some).chain(std::iter::repeat(None));
        let pairs = self.segments.iter().copied().zip(mirrors);
        pairs.filter(|(at, mirror)| mirror.is_none_or(|of| of.vdev() == at.vdev())).collect()
    }

    /// Gives a segment another mirror, which no record lies in. The one before becomes a segment of
    /// its own, with a mirror as new as that: some records have their second copies there.
    pub fn mirror_elsewhere(&mut self, segment: Place, mirror: Place, of_before: Place) {
        let Some(at) = self.segments.iter().position(|own| *own == segment) else { return };
        let (Some(slot), Some(newest)) = (self.mirrors.get_mut(at), self.newest.get(at)) else {
            return;
        };
        let (before, newest) = (std::mem::replace(slot, mirror), *newest);
        self.segments.push(before);
        self.mirrors.push(of_before);
        self.newest.push(newest);
    }

    /// From now on all records have two copies: the second ones in these segments, one for each.
    pub fn mirror_all(&mut self, mirrors: Vec<Place>) {
        assert!(self.mirrors.is_empty() && mirrors.len() == self.segments.len());
        self.mirrors = mirrors;
    }

    /// One more segment, and one for second copies if there are such: the ring goes there after
    /// its present last one. The next root on disk must list them as allocated by its txg.
    pub fn grow(&mut self, segment: Place, mirror: Option<Place>) {
        assert_eq!(mirror.is_some(), !self.mirrors.is_empty());
        self.segments.push(segment);
        self.mirrors.extend(mirror);
        self.newest.push(Txg(0));
    }

    /// Copies of a record.
    pub fn copies(&self) -> u8 {
        if self.mirrors.is_empty() { 1 } else { 2 }
    }

    /// Segments of each copy.
    pub fn segments(&self) -> u64 {
        self.segments.len() as u64
    }

    /// At import: the ring goes to the next segment after this many sectors, unless a single record
    /// is larger.
    pub fn take_sectors_of_each(&mut self, sectors: u64) {
        self.taken_of_each = sectors.min(SEGMENT_SECTORS);
    }

    /// At import: notes a record at these places, oldest first. The segment of one may have had
    /// another mirror when the record was written.
    pub fn note(&mut self, txg: Txg, places: impl Iterator<Item = Place>, sectors: u64) {
        for place in places {
            let first = place.sector() / SEGMENT_SECTORS * SEGMENT_SECTORS;
            let start = Place::new(place.vdev(), first);
            let holds = |segments: &[Place]| segments.iter().position(|segment| *segment == start);
            if let Some(at) = holds(&self.segments).or_else(|| holds(&self.mirrors))
                && let Some(newest) = self.newest.get_mut(at)
            {
                *newest = (*newest).max(txg);
            }
        }
        self.add_size(txg, sectors * 4096);
    }

    /// At import, and after a commit: notes the window of a root that is on disk.
    pub fn note_root(&mut self, window_start: Txg) {
        self.windows.push_back(window_start);
        while self.windows.len() as u64 > REWIND_TXGS + 1 {
            self.windows.pop_front();
        }
        let oldest = self.keep_from();
        while self.sizes.front().is_some_and(|(txg, _)| *txg < oldest) {
            self.sizes.pop_front();
        }
    }

    /// Some root on disk needs the records from this txg on.
    fn keep_from(&self) -> Txg {
        self.windows.iter().min().copied().unwrap_or(Txg(0))
    }

    /// Bytes of the records from `start` on.
    pub fn bytes_since(&self, start: Txg) -> u64 {
        let since = self.sizes.iter().filter(|(txg, _)| *txg >= start);
        since.map(|(_, bytes)| bytes).sum()
    }

    /// Sectors of all its segments.
    pub fn segment_sectors(&self) -> u64 {
        (self.segments.len() + self.mirrors.len()) as u64 * SEGMENT_SECTORS
    }

    /// A place (and that of its second copy) for a part of `sectors`, for `txg`.
    pub fn take(&mut self, txg: Txg, sectors: u64) -> Result<[Place; 2], PoolError> {
        if self.offset > 0 && self.offset + sectors > self.taken_of_each.min(LAST_SECTOR) {
            let next = (self.segment + 1) % self.segments.len();
            let newest = self.newest.get(next).copied().unwrap_or(Txg(0));
            if newest >= self.keep_from() && newest > Txg(0) {
                return Err(Contradiction::RecordsFull(newest).into());
            }
            (self.segment, self.offset) = (next, 0);
        }
        let place = |segments: &[Place]| {
            segments.get(self.segment).map_or(Place::NULL, |start| start.plus(self.offset))
        };
        let places = [place(&self.segments), place(&self.mirrors)];
        self.offset += sectors;
        if let Some(newest) = self.newest.get_mut(self.segment) {
            *newest = txg;
        }
        self.add_size(txg, sectors * 4096);
        Ok(places)
    }

    fn add_size(&mut self, txg: Txg, bytes: u64) {
        match self.sizes.back_mut() {
            Some((last, sum)) if *last == txg => *sum += bytes,
            _ => self.sizes.push_back((txg, bytes)),
        }
    }

    /// The segments, for the root.
    pub fn runs(&self) -> Vec<Run> {
        let all: Vec<Place> = self.segments.iter().chain(&self.mirrors).copied().collect();
        runs_of(&all)
    }

    /// The place of the next part, if it fits, for the root. For a full segment this is its last
    /// sector, where nothing more fits.
    pub fn next(&self) -> Place {
        let start = self.segments.get(self.segment).copied().unwrap_or(Place::NULL);
        start.plus(self.offset.min(LAST_SECTOR))
    }
}

#[cfg(test)]
mod tests;
