//! The comparison of used and allocated sectors.

use aquifer_ondisk::Place;
use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::layout::SLOTS_OFFSET;
use aquifer_ondisk::pool_root::PoolRoot;
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};

use crate::finding::{At, Kind};
use crate::scan::{Scan, Use};
use crate::used::Used;

/// Enters the pool's own sectors: labels, slots, segments of records and log.
pub(crate) fn mark_own(scan: &mut Scan<'_>, root: &PoolRoot) {
    let media = scan.media;
    for (index, vdev) in (0u16..).zip(&media.vdevs) {
        let Some(vdev) = vdev else { continue };
        let geometry = vdev.geometry;
        if vdev.class == VdevClass::Log {
            let labels = SLOTS_OFFSET.min(geometry.sectors());
            scan.mark(Place::new(index, 0), labels, Use::Reserved, || "labels".into());
            continue;
        }
        for metaslab in 0..geometry.metaslabs() {
            for (start, count) in geometry.reserved(metaslab) {
                scan.mark(Place::new(index, start), count, Use::Reserved, || {
                    format!("labels and bitmap slots of metaslab {index}:{metaslab}")
                });
            }
        }
    }
    mark_segments(scan, &root.record_segments, Use::Records);
    mark_segments(scan, &root.log_home, Use::Log);
    // Away from home it lies on log vdevs.
    if root.log.segments != root.log_home {
        mark_segments(scan, &root.log.segments, Use::Log);
    }
}

fn mark_segments(scan: &mut Scan<'_>, runs: &[Run], what: Use) {
    let name = match what {
        Use::Log => "intent log",
        _ => "txg records",
    };
    for run in runs {
        let whole = run.place.sector() % SEGMENT_SECTORS == 0 && run.sectors % SEGMENT_SECTORS == 0;
        if !whole || run.sectors == 0 {
            scan.findings.add(Kind::SegmentsInvalid, At::run(*run), || {
                let (place, sectors) = (run.place, run.sectors);
                format!("{name}: {place:?}+{sectors} are not whole segments")
            });
        }
        scan.mark(run.place, run.sectors, what, || format!("segments of {name}"));
    }
}

/// Compares the sectors that the walk has reached with the bitmaps, and the bitmaps with the root's
/// counts.
pub(crate) fn compare(scan: &mut Scan<'_>, root: &PoolRoot, used: &mut Used) {
    let mut allocated = Vec::new();
    for (index, vdev) in (0u16..).zip(used) {
        let reach = scan.reach.get_mut(usize::from(index)).and_then(Option::take);
        let (Some(vdev), Some(reach)) = (vdev.as_mut(), reach) else {
            // A log vdev has no bitmaps; those of a missing one are unknown.
            let there = scan.media.vdev(Place::new(index, 0)).is_some();
            allocated.push(there.then_some(0));
            continue;
        };
        let known = vdev.unknown().next().is_none();
        let count = vdev.map.count();
        allocated.push(known.then_some(count));
        scan.sectors.allocated += count;
        scan.sectors.total += vdev_sectors(scan, index);
        let unknown: Vec<(u64, u64)> = vdev.unknown().collect();
        for (start, count) in unknown {
            vdev.map.copy_from(&reach, start, count);
        }
        let leaked = if scan.whole { Kind::Leaked } else { Kind::LeakUnknown };
        let report = |scan: &mut Scan<'_>, kind: Kind, start: u64, count: u64| {
            let place = Place::new(index, start);
            scan.findings.add(kind, At::place(place, count), || match kind {
                Kind::NotAllocated => {
                    format!("{place:?}+{count} are in use, and free in the bitmap")
                }
                Kind::Leaked => format!("{place:?}+{count} are allocated, and nothing uses them"),
                _ => format!("{place:?}+{count} are allocated, and no readable tree uses them"),
            });
        };
        let (mut lost, mut missing) = (0, 0);
        vdev.map.runs_without(&reach, |start, count| {
            lost += count;
            report(scan, leaked, start, count);
        });
        reach.runs_without(&vdev.map, |start, count| {
            missing += count;
            report(scan, Kind::NotAllocated, start, count);
        });
        scan.sectors.leaked += lost;
        scan.sectors.not_allocated += missing;
        if let Some(slot) = scan.reach.get_mut(usize::from(index)) {
            *slot = Some(reach);
        }
    }
    check_counts(scan, root, &allocated);
}

fn vdev_sectors(scan: &Scan<'_>, index: u16) -> u64 {
    let vdev = scan.media.vdev(Place::new(index, 0));
    vdev.map_or(0, |vdev| vdev.geometry.sectors())
}

fn check_counts(scan: &mut Scan<'_>, root: &PoolRoot, allocated: &[Option<u64>]) {
    let says = &root.allocated_sectors;
    // One that was added since holds nothing of this root.
    let came_later = allocated.get(says.len()..).unwrap_or_default();
    let is_empty = came_later.iter().flatten().all(|count| *count == 0);
    if says.len() > allocated.len() || !is_empty {
        scan.findings.add(Kind::AllocatedSectors, At::nowhere(), || {
            let (says, has) = (says.len(), allocated.len());
            format!("the root counts the sectors of {says} vdevs, the pool has {has}")
        });
    }
    for ((index, says), count) in says.iter().enumerate().zip(allocated) {
        if let Some(count) = count
            && count != says
        {
            scan.findings.add(Kind::AllocatedSectors, At::nowhere(), || {
                format!("vdev {index}: the root says {says} allocated sectors, its bitmaps {count}")
            });
        }
    }
}
