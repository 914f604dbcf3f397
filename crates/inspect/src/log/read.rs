//! Reading batches: which may follow in a chain, and what proves that one is missing.

use aquifer_blockio::Page;
use aquifer_blockio::buf::bytes_of;
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::log_batch::{BATCH_SECTORS_MAX, BatchHeader};
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::uberblock::LogEnd;
use aquifer_ondisk::{Guid, Place};

use crate::log::room_in_segment;
use crate::media::{Media, Side};
use crate::records::{offset_in, segments_of};

/// A position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Which of the log's segments.
    pub segment: usize,
    /// Sector within it.
    pub offset: u64,
}

/// The log's segments in their order.
#[derive(Debug)]
pub(crate) struct Ring {
    segments: Vec<Place>,
}

impl Ring {
    pub fn new(runs: &[Run]) -> Self {
        Ring { segments: segments_of(runs) }
    }

    /// The address of a position.
    pub fn place(&self, position: Position) -> Place {
        let start = self.segments.get(position.segment);
        start.map_or(Place::NULL, |start| {
            Place::new(start.vdev(), start.sector() + position.offset.min(SEGMENT_SECTORS - 1))
        })
    }

    /// The position of an address.
    pub fn position(&self, place: Place) -> Option<Position> {
        let mut found = self.segments.iter().enumerate();
        found.find_map(|(segment, start)| {
            let offset = offset_in(*start, place, 1)?;
            Some(Position { segment, offset })
        })
    }

    /// The place of the next batch, from the position after the last one: there if a batch of any
    /// size fits in the segment, else at the start of the next segment.
    pub fn place_for_next(&self, after: Position) -> Position {
        if room_in_segment(after) >= BATCH_SECTORS_MAX as u64 {
            after
        } else {
            self.next_segment(after)
        }
    }

    fn next_segment(&self, after: Position) -> Position {
        Position { segment: (after.segment + 1) % self.segments.len().max(1), offset: 0 }
    }
}

/// A side that does not hold a batch.
#[derive(Debug)]
pub(crate) struct BadSide {
    pub side: String,
    pub why: String,
    pub unreadable: bool,
}

/// A batch of the chain.
#[derive(Debug)]
pub(crate) struct Batch {
    pub position: Position,
    pub header: BatchHeader,
    /// Checksum of its header.
    pub sum: u128,
    sectors: u64,
    pub bad: Vec<BadSide>,
}

impl Batch {
    /// Sectors of header and payload.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }
}

/// Why the chain ends.
#[derive(Debug)]
pub(crate) enum Miss {
    /// There is no batch.
    Nothing,
    /// Something other than the next batch lies there.
    Refused(String),
    /// A side cannot be read, and no other holds it.
    Unreadable(String),
}

/// The content of one side at a position.
struct Held {
    header: BatchHeader,
    sum: u128,
    sectors: u64,
}

/// Reads batches of one chain.
pub(crate) struct Reader<'a> {
    pub media: &'a Media,
    pub ring: &'a Ring,
    pub pool: Guid,
    pub chain: u64,
    /// The end that the last import fixed, and its session.
    pub fixed: LogEnd,
    pub session: u64,
    /// Look at every side, even if the first holds the batch.
    pub all_sides: bool,
}

impl Reader<'_> {
    /// Sequence of the last batch that the last import found; 0 if that was in another chain.
    pub fn fixed_end(&self) -> u64 {
        if self.fixed.chain == self.chain { self.fixed.sequence } else { 0 }
    }

    /// The batch at `position`, if it continues the chain.
    pub async fn read_batch(
        &self,
        position: Position,
        sequence: u64,
        previous: u128,
    ) -> Result<Batch, Miss> {
        let place = self.ring.place(position);
        let Some(vdev) = self.media.vdev(place).filter(|_| self.media.holds(place, 1)) else {
            return Err(Miss::Unreadable("its place cannot be read".into()));
        };
        let mut found: Option<Held> = None;
        let mut bad = Vec::new();
        let mut worst = Miss::Nothing;
        for side in vdev.in_turn(place) {
            match self.read_side(side, position, sequence, previous).await {
                Ok(held) => {
                    found = Some(held);
                    if !self.all_sides {
                        break;
                    }
                }
                Err(miss) => {
                    let (why, unreadable) = match &miss {
                        Miss::Nothing => ("there is none".to_string(), false),
                        Miss::Refused(why) => (why.clone(), false),
                        Miss::Unreadable(why) => (why.clone(), true),
                    };
                    bad.push(BadSide { side: side.disk.name().to_string(), why, unreadable });
                    worst = match (worst, miss) {
                        (Miss::Unreadable(why), _) | (_, Miss::Unreadable(why)) => {
                            Miss::Unreadable(why)
                        }
                        (Miss::Refused(why), _) => Miss::Refused(why),
                        (Miss::Nothing, miss) => miss,
                    };
                }
            }
        }
        let held = found.ok_or(worst)?;
        Ok(Batch { position, header: held.header, sum: held.sum, sectors: held.sectors, bad })
    }

    async fn read_side(
        &self,
        side: &Side,
        position: Position,
        sequence: u64,
        previous: u128,
    ) -> Result<Held, Miss> {
        let sector = self.ring.place(position).sector();
        let unreadable = |error: aquifer_blockio::DiskError| Miss::Unreadable(error.to_string());
        let first = side.disk.read(sector, 1).await.map_err(unreadable)?;
        let first = first.first().ok_or(Miss::Nothing)?;
        let Ok((head, payload)) = BatchHeader::peek_sectors(first.as_slice()) else {
            return Err(Miss::Nothing);
        };
        let count = head.saturating_add(payload);
        if count as u64 > room_in_segment(position) {
            return Err(Miss::Refused("a batch that leaves its segment".into()));
        }
        let pages = side.disk.read(sector, count).await.map_err(unreadable)?;
        let (header, sum) =
            self.judge(&pages, head, position, sequence, previous).map_err(Miss::Refused)?;
        Ok(Held { header, sum, sectors: count as u64 })
    }

    /// Whether these sectors are the batch that continues the chain.
    fn judge(
        &self,
        pages: &[Page],
        head: usize,
        position: Position,
        sequence: u64,
        previous: u128,
    ) -> Result<(BatchHeader, u128), String> {
        let (head, payload) = pages.split_at_checked(head).ok_or("cut short")?;
        let (header, sum) = BatchHeader::decode(&bytes_of(head)).map_err(|e| e.to_string())?;
        if (header.pool_guid, header.chain) != (self.pool, self.chain) {
            return Err("a batch of another log".into());
        }
        if header.place != self.ring.place(position) {
            return Err(format!("a batch that was written for {:?}", header.place));
        }
        if header.sequence != sequence {
            return Err(format!("batch {}", header.sequence));
        }
        if header.previous != previous {
            return Err("a batch that does not follow the one before it".into());
        }
        if sequence > self.fixed_end() && header.session != self.session {
            return Err("a batch that an earlier import cut off, or of another past".into());
        }
        let sums = header.records.iter().flat_map(|record| &record.page_sums);
        let whole = payload.len() == header.payload_pages()
            && payload.iter().zip(sums).all(|(page, sum)| checksum64(page.as_slice()) == *sum);
        if !whole {
            return Err("its payload does not match its checksums".into());
        }
        Ok((header, sum))
    }

    /// The mark of a batch within `sectors` past a gap, if it proves batch `sequence` durable.
    pub async fn proof_after(&self, gap: Position, sequence: u64, sectors: u64) -> Option<u64> {
        let (mut at, mut left) = (gap, sectors);
        while left > 0 {
            let place = self.ring.place(at);
            let count = left.min(room_in_segment(at)).max(1);
            if self.media.holds(place, count)
                && let Some(vdev) = self.media.vdev(place)
            {
                for side in &vdev.sides {
                    let want = usize::try_from(count).unwrap_or(0);
                    let Ok(pages) = side.disk.read(place.sector(), want).await else {
                        continue;
                    };
                    if let Some(mark) = self.proof_in(&pages, place, sequence) {
                        return Some(mark);
                    }
                }
            }
            left -= count;
            at = self.ring.next_segment(at);
        }
        None
    }

    fn proof_in(&self, pages: &[Page], start: Place, sequence: u64) -> Option<u64> {
        (0..).zip(pages).find_map(|(at, first): (usize, &Page)| {
            let (head, _) = BatchHeader::peek_sectors(first.as_slice()).ok()?;
            let head = pages.get(at..at.saturating_add(head))?;
            let (header, _) = BatchHeader::decode(&bytes_of(head)).ok()?;
            let own = header.pool_guid == self.pool
                && header.chain == self.chain
                && header.session == self.session
                && header.place.0 == start.0 + at as u64;
            (own && header.sequence > sequence && header.mark >= sequence).then_some(header.mark)
        })
    }
}
