//! The chain of txg records of one root, back through its window.
//!
//! Invariants:
//! - A record is verified before it is decoded, with the checksum in the pointer to it.
//! - The walk leaves the chain at the first record that points forward or at a place seen before.

use std::collections::{BTreeMap, BTreeSet};

use aquifer_blockio::Page;
use aquifer_blockio::buf::bytes_of;
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::pool_root::PoolRoot;
use aquifer_ondisk::txg_record::{RecordPointer, TxgRecord};
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::{Guid, Place, Txg};

use crate::finding::{At, Findings, Kind};
use crate::media::{Breadth, Media};
use crate::scan::judge;

/// One part with the pointer to it.
#[derive(Debug)]
pub(crate) struct Part {
    pub pointer: RecordPointer,
    pub record: TxgRecord,
}

/// The live records of a root.
#[derive(Debug)]
pub(crate) struct Records {
    pub root: PoolRoot,
    pub window_start: Txg,
    /// Oldest first: those within the window.
    pub window: Vec<Part>,
    /// Oldest first: those of the one txg before the window, as far as they can be read.
    pub before: Vec<Part>,
}

/// Reads the records of the root at `pointer`, on all copies, and with `deep` on all sides.
/// `roots` are the older roots that the uberblock names.
pub(crate) async fn read(
    media: &Media,
    pool: Guid,
    pointer: RecordPointer,
    roots: &[RecordPointer],
    deep: bool,
    findings: &mut Findings,
) -> Option<Records> {
    let breadth = if deep { Breadth::All } else { Breadth::Copies };
    let newest = read_part(media, &pointer, breadth, Kind::RootUnreadable, findings).await?;
    let Some(root) = newest.record.root.clone() else {
        findings.add(Kind::RootUnreadable, at(&pointer), || {
            format!("the record of txg {} carries no root", pointer.txg)
        });
        return None;
    };
    if root.txg != pointer.txg {
        findings.add(Kind::RecordInvalid, at(&pointer), || {
            format!("the record of txg {} carries the root of txg {}", pointer.txg, root.txg)
        });
    }
    let window_start = newest.record.window_start;
    let mut chain = vec![newest];
    let mut met = BTreeSet::from([pointer.places[0]]);
    let (mut outside, mut older) = (Vec::new(), roots.iter());
    while let Some(Part { pointer: at, record }) = outside.last().or(chain.last()) {
        let Some(previous) = record.previous else { break };
        let within = previous.txg >= window_start;
        // One txg before the window is read too, in case it names slots that the window does not.
        let first_outside = outside.first().map(|part: &Part| part.pointer.txg);
        if !within && first_outside.is_some_and(|txg| txg != previous.txg) {
            break;
        }
        check_previous(at, record, &previous, &mut older, findings);
        if previous.txg > record.txg || !met.insert(previous.places[0]) {
            findings.add(Kind::RecordInvalid, self::at(&previous), || {
                format!("the record of txg {} leads back to txg {}", record.txg, previous.txg)
            });
            break;
        }
        let part = if within {
            read_part(media, &previous, breadth, Kind::RecordUnreadable, findings).await
        } else {
            // Nothing needs it: if it is gone, this reports nothing.
            let mut unsaid = Findings::new(0);
            read_part(media, &previous, Breadth::Any, Kind::RecordUnreadable, &mut unsaid).await
        };
        let Some(part) = part else { break };
        if within { &mut chain } else { &mut outside }.push(part);
    }
    chain.reverse();
    outside.reverse();
    let records = Records { root, window_start, window: chain, before: outside };
    check_parts(media, pool, &records, findings);
    Some(records)
}

fn at(pointer: &RecordPointer) -> At {
    At::place(pointer.places[0], pointer.sectors.into())
}

async fn read_part(
    media: &Media,
    pointer: &RecordPointer,
    breadth: Breadth,
    lost: Kind,
    findings: &mut Findings,
) -> Option<Part> {
    let verify = |pages: &[Page]| checksum128(&bytes_of(pages)) == pointer.checksum;
    let sectors = u64::from(pointer.sectors);
    let fetched = media.fetch(pointer.copies(), sectors, &verify, breadth).await;
    judge(findings, &fetched, lost, at(pointer), sectors, || {
        format!("record of txg {}", pointer.txg)
    });
    match TxgRecord::decode(&bytes_of(&fetched.good?)) {
        Ok(record) => Some(Part { pointer: *pointer, record }),
        Err(error) => {
            findings.add(lost, at(pointer), || {
                format!("record of txg {} cannot be decoded: {error}", pointer.txg)
            });
            None
        }
    }
}

/// The last part of an older txg is that txg's root: the uberblock must name the same.
fn check_previous(
    pointer: &RecordPointer,
    record: &TxgRecord,
    previous: &RecordPointer,
    older: &mut std::slice::Iter<'_, RecordPointer>,
    findings: &mut Findings,
) {
    if previous.txg == record.txg {
        return;
    }
    if let Some(named) = older.next()
        && named != previous
    {
        findings.add(Kind::RecordInvalid, at(pointer), || {
            format!(
                "the record of txg {} follows that of txg {} at {:?}, the uberblock names txg {} \
                 at {:?}",
                record.txg, previous.txg, previous.places, named.txg, named.places
            )
        });
    }
}

/// Checks each part's content and place.
fn check_parts(media: &Media, pool: Guid, records: &Records, findings: &mut Findings) {
    let ring = RecordSegments::new(media, &records.root, findings);
    let mut next_txg = None;
    for Part { pointer, record } in records.window.iter().rev() {
        let mut invalid = |why: String| {
            findings.add(Kind::RecordInvalid, at(pointer), || {
                format!("record of txg {}: {why}", pointer.txg)
            });
        };
        if record.pool_guid != pool {
            invalid(format!("is of pool {:016x}", record.pool_guid.0));
        }
        if record.txg != pointer.txg {
            invalid(format!("says that it is of txg {}", record.txg));
        }
        if record.place != pointer.places[0] {
            invalid(format!("was written for place {:?}", record.place));
        }
        if record.window_start > record.txg {
            invalid(format!("its window begins at txg {}", record.window_start));
        }
        if !ring.holds(pointer) {
            invalid(format!("its places {:?} are not of the root's segments", pointer.places));
        }
        // Only the last part of a txg carries a root.
        let last = next_txg != Some(record.txg);
        if last != record.root.is_some() {
            invalid(format!(
                "its root is {}",
                if last { "missing" } else { "not in the last part" }
            ));
        }
        next_txg = Some(record.txg);
    }
}

/// The segments for records that a root lists.
struct RecordSegments {
    /// First copies, each with its number.
    first: BTreeMap<Place, usize>,
    second: Vec<Place>,
}

impl RecordSegments {
    fn new(media: &Media, root: &PoolRoot, findings: &mut Findings) -> Self {
        let mut first = segments_of(&root.record_segments);
        let copies = root.record_copies.unwrap_or_else(|| media.copies(root.txg));
        let second = if copies == 2 { first.split_off(first.len() / 2) } else { Vec::new() };
        let next = root.record_next;
        let held = first.iter().any(|start| offset_in(*start, next, 1).is_some());
        let uneven = copies == 2 && first.len() != second.len();
        if uneven || !held {
            findings.add(Kind::SegmentsInvalid, At::place(next, 1), || {
                let count = first.len() + second.len();
                format!("{count} segments for records; the next record goes to {next:?}")
            });
        }
        let first = first.into_iter().enumerate().map(|(at, start)| (start, at)).collect();
        RecordSegments { first, second }
    }

    /// Whether a record lies in one segment, and its second copy at the same place of another: of
    /// that segment's mirror, or of the one that it had before, which is a segment now. Records of
    /// before the pool had several vdevs may have no second copy.
    fn holds(&self, pointer: &RecordPointer) -> bool {
        let [first, second] = pointer.places;
        let sectors = u64::from(pointer.sectors);
        let Some((start, at)) = self.first.range(..=first).next_back() else {
            return false;
        };
        let Some(offset) = offset_in(*start, first, sectors) else {
            return false;
        };
        let before = self.first.range(..=second).next_back().map(|(start, _)| *start);
        let mut mirrors = self.second.get(*at).copied().into_iter().chain(before);
        let is_mirror = |start: Place| offset_in(start, second, sectors) == Some(offset);
        second.is_null() || first != second && mirrors.any(is_mirror)
    }
}

/// The offset of a run in the segment that begins at `start`, if it lies in it.
pub(crate) fn offset_in(start: Place, place: Place, sectors: u64) -> Option<u64> {
    let offset = place.sector().checked_sub(start.sector())?;
    let within = start.vdev() == place.vdev() && offset.saturating_add(sectors) <= SEGMENT_SECTORS;
    within.then_some(offset)
}

/// Cuts runs into whole segments. Leaves out those outside any vdev: they are reported where they
/// are marked.
pub(crate) fn segments_of(runs: &[Run]) -> Vec<Place> {
    let split = |run: &Run| {
        let (vdev, start) = (run.place.vdev(), run.place.sector());
        let room = Place::SECTOR_LIMIT.saturating_sub(start) / SEGMENT_SECTORS;
        // A list of absurd length ends after 2^20 segments (4 TiB).
        let count = (run.sectors / SEGMENT_SECTORS).min(room).min(1 << 20);
        (0..count).map(move |at| Place::new(vdev, start + at * SEGMENT_SECTORS))
    };
    runs.iter().flat_map(split).take(1 << 20).collect()
}
