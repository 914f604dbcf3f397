//! The places of batches: segments in turn.

use std::collections::BTreeSet;

use aquifer_ondisk::Place;
use aquifer_ondisk::log_batch::BATCH_SECTORS_MAX;
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};

use crate::record::{runs_of, segments_of};

/// A position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Index of the segment.
    pub segment: usize,
    /// Sector within it.
    pub offset: u64,
}

impl Position {
    /// The start of a log.
    pub const START: Position = Position { segment: 0, offset: 0 };
}

/// The log's segments.
#[derive(Debug, Clone)]
pub(crate) struct Ring {
    segments: Vec<Place>,
    /// The vdevs with these segments.
    vdevs: BTreeSet<u16>,
}

/// Sectors of a segment that batches always fill: the unused rest is shorter than a batch.
const FILLED_SECTORS: u64 = SEGMENT_SECTORS - BATCH_SECTORS_MAX as u64;

impl Ring {
    pub fn new(runs: &[Run]) -> Self {
        Ring::of(segments_of(runs))
    }

    /// Segments of these vdevs (number, segments), taken from each in turn, at most `count_max`.
    /// Omits the first segment of each vdev, which holds labels.
    pub fn over(vdevs: impl Iterator<Item = (u16, u64)> + Clone, count_max: u64) -> Self {
        let longest = vdevs.clone().map(|(_, segments)| segments).max().unwrap_or(0);
        let places = (1..longest).flat_map(|segment| {
            let there = vdevs.clone().filter(move |(_, segments)| segment < *segments);
            there.map(move |(vdev, _)| Place::new(vdev, segment * SEGMENT_SECTORS))
        });
        let count = usize::try_from(count_max).unwrap_or(usize::MAX);
        Ring::of(places.take(count).collect())
    }

    fn of(segments: Vec<Place>) -> Self {
        let vdevs = segments.iter().map(|place| place.vdev()).collect();
        Ring { segments, vdevs }
    }

    /// The vdevs that it is on.
    pub fn vdevs(&self) -> &BTreeSet<u16> {
        &self.vdevs
    }

    pub fn runs(&self) -> Vec<Run> {
        runs_of(&self.segments)
    }

    /// Sectors of all segments.
    pub fn sectors(&self) -> u64 {
        self.segments.len() as u64 * SEGMENT_SECTORS
    }

    /// Bytes that batches always fill.
    pub fn bytes(&self) -> u64 {
        self.segments.len() as u64 * FILLED_SECTORS * 4096
    }

    /// The place of the next batch, from the position after the last one. It is that position if a
    /// batch of any size fits in the segment, otherwise the start of the next segment.
    pub fn place_for_next(&self, after: Position) -> Position {
        if after.offset + BATCH_SECTORS_MAX as u64 <= SEGMENT_SECTORS {
            after
        } else {
            Position { segment: (after.segment + 1) % self.segments.len().max(1), offset: 0 }
        }
    }

    /// The address of a position.
    pub fn place(&self, position: Position) -> Place {
        let start = self.segments.get(position.segment).copied().unwrap_or(Place::NULL);
        start.plus(position.offset)
    }

    /// The position of an address.
    pub fn position(&self, place: Place) -> Option<Position> {
        self.segments.iter().enumerate().find_map(|(segment, start)| {
            let offset = place.sector().checked_sub(start.sector())?;
            let within = start.vdev() == place.vdev() && offset < SEGMENT_SECTORS;
            within.then_some(Position { segment, offset })
        })
    }

    /// Bytes that can be written from `next` on before the segment of `head` is entered. In an
    /// empty log `next` equals `head`; in a full one it never does, since that segment is not
    /// entered.
    pub fn room_bytes(&self, next: Position, head: Position) -> u64 {
        let count = self.segments.len();
        let ahead = (head.segment + count - next.segment) % count.max(1);
        let whole = match ahead {
            0 if next.offset >= head.offset => count - 1,
            0 => return 0,
            ahead => ahead - 1,
        };
        let rest = FILLED_SECTORS.saturating_sub(next.offset);
        (whole as u64 * FILLED_SECTORS + rest) * 4096
    }
}
