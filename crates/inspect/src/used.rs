//! The sectors that a root says are in use: each metaslab's current slot, with the runs of later
//! records on top.
//!
//! A slot entry with `as_of` S holds all changes up to S. A metaslab without an entry is free
//! except for its reserved places. A metaslab whose slot has no copy that verifies is unknown, and
//! is left out of every comparison.

use std::collections::VecDeque;

use aquifer_blockio::Page;
use aquifer_blockio::buf::bytes_of;
use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::layout::{Geometry, REWIND_TXGS};
use aquifer_ondisk::txg_record::SlotEntry;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{Place, Txg};
use futures_util::stream::{self, StreamExt};

use crate::finding::{At, Kind};
use crate::media::{Breadth, Fetched};
use crate::records::{Part, Records};
use crate::scan::Scan;
use crate::sectors::SectorMap;

/// Slots read at a time.
const SLOTS_IN_FLIGHT: usize = 16;

/// One metaslab's part in the rebuilding.
#[derive(Debug, Clone, Copy, Default)]
struct Metaslab {
    entry: Option<SlotEntry>,
    /// No copy of its slot verifies.
    unknown: bool,
}

/// Sectors in use on one data vdev.
#[derive(Debug)]
pub(crate) struct UsedVdev {
    pub map: SectorMap,
    geometry: Geometry,
    metaslabs: Vec<Metaslab>,
}

impl UsedVdev {
    /// First sector and length of unknown metaslabs.
    pub fn unknown(&self) -> impl Iterator<Item = (u64, u64)> {
        let slabs = (0..).zip(&self.metaslabs).filter(|(_, slab)| slab.unknown);
        slabs.map(|(index, _)| self.geometry.metaslab_range(index))
    }

    fn locate(&self, run: Run) -> Option<usize> {
        let index = run.place.sector() / self.geometry.metaslab_sectors();
        let (start, count) = self.geometry.metaslab_range(index);
        let at = usize::try_from(index).ok().filter(|at| *at < self.metaslabs.len())?;
        (run.sectors > 0 && run.end_sector() <= start + count).then_some(at)
    }
}

/// Sectors in use, by vdev; `None` for log vdevs and vdevs that are not there.
pub(crate) type Used = Vec<Option<UsedVdev>>;

/// Rebuilds the bitmaps of a root.
pub(crate) async fn rebuild(scan: &mut Scan<'_>, records: &Records) -> Used {
    let mut used: Used = scan
        .media
        .vdevs
        .iter()
        .map(|vdev| {
            let vdev = vdev.as_ref().filter(|vdev| vdev.class == VdevClass::Data)?;
            let geometry = vdev.geometry;
            let count = usize::try_from(geometry.metaslabs()).unwrap_or(0);
            Some(UsedVdev {
                map: SectorMap::new(geometry.sectors()),
                geometry,
                metaslabs: vec![Metaslab::default(); count],
            })
        })
        .collect();
    take_entries(scan, records, &mut used);
    load_slots(scan, &mut used).await;
    replay(scan, &records.window, &mut used);
    used
}

/// The newest entry of each metaslab names its current slot.
fn take_entries(scan: &mut Scan<'_>, records: &Records, used: &mut Used) {
    let within = records.window.iter().rev().map(|part| (part, true));
    let before = records.before.iter().rev().map(|part| (part, false));
    for (part, within) in within.chain(before) {
        for entry in part.record.slots.iter().rev() {
            let index = usize::try_from(entry.metaslab).unwrap_or(usize::MAX);
            let vdev = used.get_mut(usize::from(entry.vdev));
            if matches!(vdev, Some(None)) {
                continue;
            }
            let slab = vdev.and_then(Option::as_mut).and_then(|vdev| vdev.metaslabs.get_mut(index));
            let (vdev, metaslab) = (entry.vdev, entry.metaslab);
            let at = || At::place(Place::new(vdev, 0), 0);
            let Some(slab) = slab else {
                scan.findings.add(Kind::SlotEntryInvalid, at(), || {
                    let txg = part.record.txg;
                    format!("record of txg {txg} names metaslab {vdev}:{metaslab}, which is not")
                });
                continue;
            };
            if slab.entry.is_some() {
                continue;
            }
            slab.entry = Some(*entry);
            let (as_of, txg) = (entry.as_of, part.record.txg);
            if !within {
                scan.findings.add(Kind::WindowLacksEntry, at(), || {
                    let start = records.window_start;
                    format!(
                        "metaslab {vdev}:{metaslab}: its slot is named by the record of txg {txg} \
                         only, before the window that begins at txg {start}"
                    )
                });
            }
            if as_of > txg || as_of.next() < records.window_start {
                scan.findings.add(Kind::SlotEntryInvalid, at(), || {
                    let start = records.window_start;
                    format!(
                        "metaslab {vdev}:{metaslab}: its entry in the record of txg {txg} is as of \
                         txg {as_of}, the window begins at txg {start}"
                    )
                });
            }
        }
    }
}

async fn load_slots(scan: &mut Scan<'_>, used: &mut Used) {
    let (media, deep) = (scan.media, scan.options.deep);
    let breadth = if deep { Breadth::All } else { Breadth::Copies };
    for vdev in used.iter_mut().flatten() {
        let geometry = vdev.geometry;
        let wanted: Vec<(u64, SlotEntry)> = (0..)
            .zip(&vdev.metaslabs)
            .filter_map(|(index, slab)| Some((index, slab.entry?)))
            .collect();
        let reads = wanted.into_iter().map(|(index, entry)| async move {
            let verify = |pages: &[Page]| checksum128(&bytes_of(pages)) == entry.checksum;
            let places =
                (0..geometry.copies).map(|copy| geometry.slot_place(index, entry.slot, copy));
            let count = geometry.slot_sectors();
            (index, entry, media.fetch(places, count, &verify, breadth).await)
        });
        let mut reads = stream::iter(reads).buffered(SLOTS_IN_FLIGHT);
        while let Some((index, entry, fetched)) = reads.next().await {
            take_slot(scan, vdev, index, &entry, fetched);
        }
        drop(reads);
        for index in 0..geometry.metaslabs() {
            let at = usize::try_from(index).unwrap_or(usize::MAX);
            if vdev.metaslabs.get(at).is_some_and(|slab| slab.entry.is_none()) {
                for (start, count) in geometry.reserved(index) {
                    vdev.map.set(start, count);
                }
            }
        }
    }
}

fn take_slot(
    scan: &mut Scan<'_>,
    vdev: &mut UsedVdev,
    index: u64,
    entry: &SlotEntry,
    fetched: Fetched,
) {
    let geometry = vdev.geometry;
    let sectors = geometry.slot_sectors();
    let place = geometry.slot_place(index, entry.slot, 0);
    let who = || format!("bitmap slot {} of metaslab {}:{index}", entry.slot, entry.vdev);
    scan.judge(&fetched, Kind::SlotUnreadable, At::place(place, sectors), sectors, who);
    let (start, count) = geometry.metaslab_range(index);
    let Some(pages) = fetched.good else {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(slab) = vdev.metaslabs.get_mut(at) {
            slab.unknown = true;
        }
        return;
    };
    vdev.map.load(start, count, &bytes_of(&pages));
    let (free, longest) = vdev.map.free_in(start, count);
    // A vdev that grows makes its last metaslab longer. A cut may come before its slot says so.
    let has_grown = geometry.lengthened == Some(index) && free > entry.free_sectors;
    let counts = (free, longest) == (entry.free_sectors, u64::from(entry.longest_run));
    if !counts && !has_grown {
        scan.findings.add(Kind::SlotCounts, At::place(place, sectors), || {
            let (says_free, says_longest) = (entry.free_sectors, entry.longest_run);
            format!(
                "{}: {free} free sectors, the longest run {longest}; its entry says {says_free} \
                 and {says_longest}",
                who()
            )
        });
    }
}

/// Applies the runs of the window, txg by txg: first those taken, then those freed.
fn replay(scan: &mut Scan<'_>, window: &[Part], used: &mut Used) {
    // The frees of the last txgs, sorted.
    let mut held: VecDeque<(Txg, Vec<Run>)> = VecDeque::new();
    for parts in window.chunk_by(|a, b| a.record.txg == b.record.txg) {
        let Some(txg) = parts.first().map(|part| part.record.txg) else {
            continue;
        };
        let mut freed: Vec<Run> = Vec::new();
        for run in parts.iter().flat_map(|part| &part.record.allocated) {
            apply(scan, used, txg, *run, true);
            reused(scan, &held, txg, *run);
        }
        for run in parts.iter().flat_map(|part| &part.record.freed) {
            apply(scan, used, txg, *run, false);
            freed.push(*run);
        }
        freed.sort_unstable();
        held.push_back((txg, freed));
        if held.len() as u64 > REWIND_TXGS {
            held.pop_front();
        }
    }
}

fn apply(scan: &mut Scan<'_>, used: &mut Used, txg: Txg, run: Run, allocated: bool) {
    let vdev = match used.get_mut(usize::from(run.place.vdev())) {
        Some(Some(vdev)) => vdev,
        // A missing vdev was reported already.
        Some(None) if scan.media.vdev(run.place).is_none() => return,
        _ => return outside(scan, txg, run),
    };
    let Some(at) = vdev.locate(run) else {
        return outside(scan, txg, run);
    };
    let slab = vdev.metaslabs.get(at).copied().unwrap_or_default();
    if slab.unknown || slab.entry.is_some_and(|entry| entry.as_of >= txg) {
        return;
    }
    let (start, sectors) = (run.place.sector(), run.sectors);
    let (kind, wrong) = if allocated {
        (Kind::AllocatedTwice, vdev.map.set(start, sectors))
    } else {
        (Kind::FreedTwice, sectors - vdev.map.clear(start, sectors))
    };
    if wrong > 0 {
        scan.findings.add(kind, At::run(run), || {
            let (does, were) = match allocated {
                true => ("takes", "in use already"),
                false => ("gives back", "not in use"),
            };
            let place = run.place;
            format!("txg {txg} {does} {place:?}+{sectors}, of which {wrong} sectors were {were}")
        });
    }
}

fn outside(scan: &mut Scan<'_>, txg: Txg, run: Run) {
    scan.findings.add(Kind::RunOutside, At::run(run), || {
        let (place, sectors) = (run.place, run.sectors);
        format!("record of txg {txg}: run {place:?}+{sectors} does not lie in one metaslab")
    });
}

/// Frees are held back for two further txgs.
fn reused(scan: &mut Scan<'_>, held: &VecDeque<(Txg, Vec<Run>)>, txg: Txg, run: Run) {
    for (freed_in, runs) in held {
        let end = |run: &Run| run.place.0.saturating_add(run.sectors);
        let after = runs.partition_point(|freed| freed.place.0 < end(&run));
        let last = runs.get(..after).and_then(<[Run]>::last);
        if last.is_some_and(|freed| end(freed) > run.place.0) {
            scan.findings.add(Kind::ReusedTooSoon, At::run(run), || {
                let (place, sectors) = (run.place, run.sectors);
                format!("txg {txg} takes {place:?}+{sectors}, which txg {freed_in} gave back")
            });
        }
    }
}
