//! Data that pending log records name: it is at its place already, but in no root yet.

use std::collections::BTreeMap;

use aquifer_blockio::Page;
use aquifer_ondisk::Txg;
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::layout::REWIND_TXGS;
use aquifer_ondisk::types::{Place, Run};

use crate::extents::matches;
use crate::finding::{At, Kind};
use crate::log::read::Batch;
use crate::media::{Breadth, Fetched};
use crate::records::Records;
use crate::scan::Scan;
use crate::used::Used;

/// The early data of a batch that a replay uses.
pub(crate) fn extents(batch: &Batch, floor: Txg) -> impl Iterator<Item = &Extent> {
    let records = batch.header.records.iter().filter(move |record| record.txg > floor);
    records.flat_map(|record| &record.extents)
}

/// Reads early data.
pub(crate) async fn fetch(scan: &Scan<'_>, extent: &Extent, breadth: Breadth) -> Fetched {
    let verify = |pages: &[Page]| matches(extent, pages);
    let places = std::iter::once(extent.place);
    scan.media.fetch(places, extent.stored_sectors(), &verify, breadth).await
}

/// The runs that pending records name, each once. None of them may be in use in the root, held back
/// by it, or overlap another one.
pub(crate) fn check(
    scan: &mut Scan<'_>,
    batches: &[Batch],
    floor: Txg,
    records: &Records,
    used: &Used,
) -> Vec<Run> {
    let held = held_back(records);
    let mut claimed: BTreeMap<Place, u64> = BTreeMap::new();
    for batch in batches {
        let sequence = batch.header.sequence;
        for extent in extents(batch, floor) {
            let run = Run::new(extent.place, extent.stored_sectors());
            if claimed.get(&run.place) == Some(&run.sectors) {
                continue;
            }
            if !scan.media.holds(run.place, run.sectors) {
                if scan.media.vdev(run.place).is_some() {
                    scan.findings.add(Kind::OutsideVdev, At::run(run), || {
                        format!("early data of log batch {sequence} at {run:?}: outside its vdev")
                    });
                }
                continue;
            }
            let why = if in_use(scan, used, run) {
                "the root uses"
            } else if meets_any(&held, run) {
                "the root or the one before it has just given back"
            } else if overlaps(&claimed, run) {
                "another record has data at"
            } else {
                claimed.insert(run.place, run.sectors);
                continue;
            };
            scan.findings.add(Kind::LogPlaceInUse, At::run(run), || {
                let (place, sectors) = (run.place, run.sectors);
                format!("log batch {sequence} has early data at {place:?}+{sectors}, which {why}")
            });
        }
    }
    claimed.into_iter().map(|(place, sectors)| Run::new(place, sectors)).collect()
}

fn in_use(scan: &Scan<'_>, used: &Used, run: Run) -> bool {
    let vdev = usize::from(run.place.vdev());
    let (start, count) = (run.place.sector(), run.sectors);
    let reach = scan.reach.get(vdev).and_then(Option::as_ref);
    let used = used.get(vdev).and_then(Option::as_ref);
    reach.is_some_and(|map| map.count_in(start, count) > 0)
        || used.is_some_and(|used| used.map.count_in(start, count) > 0)
}

/// The frees of the last two txgs, sorted and joined: those sectors are not available yet.
fn held_back(records: &Records) -> Vec<Run> {
    let txgs = records.window.chunk_by(|a, b| a.record.txg == b.record.txg);
    let keep = usize::try_from(REWIND_TXGS).unwrap_or(usize::MAX);
    let freed = txgs.rev().take(keep).flatten().flat_map(|part| &part.record.freed);
    let mut freed: Vec<Run> = freed.copied().collect();
    freed.sort_unstable();
    freed.dedup_by(|next, run| {
        let joins = next.place.0 <= end(*run);
        if joins {
            run.sectors = run.sectors.max(end(*next) - run.place.0);
        }
        joins
    });
    freed
}

/// Whether `run` meets one of `runs`, which are sorted and do not overlap.
fn meets_any(runs: &[Run], run: Run) -> bool {
    let before = runs.partition_point(|other| other.place.0 < end(run));
    runs.get(..before).and_then(<[Run]>::last).is_some_and(|last| meet(*last, run))
}

fn overlaps(claimed: &BTreeMap<Place, u64>, run: Run) -> bool {
    let end = Place(run.place.0.saturating_add(run.sectors));
    let before = claimed.range(..end).next_back();
    before.is_some_and(|(place, sectors)| meet(Run::new(*place, *sectors), run))
}

fn meet(one: Run, other: Run) -> bool {
    one.place.0 < end(other) && other.place.0 < end(one)
}

fn end(run: Run) -> u64 {
    run.place.0.saturating_add(run.sectors)
}
