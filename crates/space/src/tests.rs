//! The allocator, compared with a model that knows the state of every sector.
#![expect(clippy::cast_possible_truncation, reason = "small numbers of a test")]

mod grown;

use std::collections::{BTreeMap, BTreeSet};

use aquifer_ondisk::config::Redundancy;
use aquifer_ondisk::layout::Geometry;
use aquifer_ondisk::txg_record::SlotEntry;
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{Place, Txg};
use proptest::prelude::*;

use crate::{Allocator, Bitmap};

fn sectors(run: Run) -> impl Iterator<Item = u64> {
    (0..run.sectors).map(move |at| run.place.plus(at).0)
}

fn fresh(vdevs: u16, segments: u64) -> Allocator {
    let geometries: Vec<_> =
        (0..vdevs).map(|vdev| Some(Geometry::new(vdev, segments, Redundancy::Single))).collect();
    let mut allocator = Allocator::new(&geometries);
    for id in allocator.wanted_loads(u64::MAX) {
        assert!(allocator.begin_load(id).is_none(), "an empty metaslab needs no read");
    }
    allocator
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bitmap_ranges_match_a_set(
        ops in prop::collection::vec((any::<bool>(), 0usize..300, 0usize..80), 1..60)
    ) {
        let mut bitmap = Bitmap::new(300);
        let mut set = BTreeSet::new();
        for (put, start, count) in ops {
            let count = count.min(300 - start);
            let before = set.len();
            if put {
                set.extend(start..start + count);
                prop_assert_eq!(bitmap.set_range(start, count), set.len() - before);
            } else {
                set.retain(|at| !(start..start + count).contains(at));
                prop_assert_eq!(bitmap.clear_range(start, count), before - set.len());
            }
            prop_assert_eq!(bitmap.count(), set.len());
            let copy = Bitmap::from_bytes(&bitmap.to_bytes(4096), 300);
            prop_assert_eq!(&copy, &bitmap);
            let free = (0..300).find(|at| !set.contains(at));
            prop_assert_eq!(bitmap.find_clear(0, 1, 1).map(|(at, _)| at), free);
        }
    }

    #[test]
    fn never_hands_out_what_is_used_or_held(
        ops in prop::collection::vec((0u8..10, 1u64..40, any::<u64>()), 1..400)
    ) {
        let mut allocator = fresh(2, 64);
        let mut live: Vec<Run> = Vec::new();
        let mut busy: BTreeSet<u64> = BTreeSet::new();
        let mut held: BTreeMap<u64, Vec<Run>> = BTreeMap::new();
        let mut txg = 1;
        for (op, size, pick) in ops {
            match op {
                0..=5 => {
                    let run = allocator.allocate(Txg(txg), 1, size).unwrap();
                    prop_assert!(run.sectors >= 1 && run.sectors <= size);
                    for sector in sectors(run) {
                        prop_assert!(busy.insert(sector), "sector {} handed out twice", sector);
                    }
                    live.push(run);
                }
                6..=8 if !live.is_empty() => {
                    let run = live.swap_remove((pick % live.len() as u64) as usize);
                    allocator.free(Txg(txg), run);
                    held.entry(txg).or_default().push(run);
                }
                _ => {
                    allocator.close_txg(Txg(txg)).unwrap();
                    let released = allocator.release(Txg(txg), 2, |_| true);
                    let due: Vec<u64> = held.keys().copied().filter(|of| of + 2 <= txg).collect();
                    let mut expected = BTreeSet::new();
                    for of in due {
                        for run in held.remove(&of).unwrap() {
                            expected.extend(sectors(run));
                        }
                    }
                    let got: BTreeSet<u64> = released.into_iter().flat_map(sectors).collect();
                    prop_assert_eq!(&got, &expected);
                    busy.retain(|sector| !expected.contains(sector));
                    txg += 1;
                }
            }
            let run = beside(&busy, pick, size);
            let free = |sector| !busy.contains(&sector) && !is_reserved(sector);
            let is_free = sectors(run).all(free) && is_in_one_metaslab(run);
            prop_assert_eq!(allocator.is_free(run), is_free, "{:?}", run);
        }
    }
}

/// A run at or near a busy sector.
fn beside(busy: &BTreeSet<u64>, pick: u64, size: u64) -> Run {
    let at = busy.iter().nth(pick as usize % busy.len().max(1)).copied().unwrap_or(4096);
    let before = (pick >> 32) % 40;
    Run::new(Place(at - before.min(Place(at).sector())), size)
}

fn is_in_one_metaslab(run: Run) -> bool {
    let geometry = Geometry::new(run.place.vdev(), 64, Redundancy::Single);
    let of = |sector| sector / geometry.metaslab_sectors();
    of(run.place.sector()) == of(run.end_sector() - 1)
}

/// Whether a sector of [`fresh`] never holds blocks, of vdevs of 64 segments.
fn is_reserved(sector: u64) -> bool {
    let place = Place(sector);
    let geometry = Geometry::new(place.vdev(), 64, Redundancy::Single);
    let of = place.sector() / geometry.metaslab_sectors();
    let mut reserved = geometry.reserved(of).into_iter();
    reserved.any(|(first, count)| (first..first + count).contains(&place.sector()))
}

/// Space that is not known to be free is not: a bitmap that is not loaded, or closed, and a run
/// that leaves its metaslab.
#[test]
fn only_what_is_known_to_be_free_is_free() {
    let geometry = Geometry::new(0, 64, Redundancy::Single);
    let size = geometry.metaslab_sectors();
    let mut allocator = Allocator::new(&[Some(geometry)]);
    let inside = Run::new(Place::new(0, size - 8), 8);
    assert!(!allocator.is_free(inside), "not loaded");
    for id in allocator.wanted_loads(u64::MAX) {
        assert!(allocator.begin_load(id).is_none());
    }
    assert!(allocator.is_free(inside));
    assert!(!allocator.is_free(Run::new(Place::new(0, size - 8), 9)));
    assert!(!allocator.is_free(Run::new(Place::new(1, size - 8), 8)), "no such vdev");
    allocator.reserve(Run::new(Place::new(0, size - 1), 1)).unwrap();
    assert!(!allocator.is_free(inside));
}

#[test]
fn slots_and_deltas_rebuild_the_same_view() {
    let mut allocator = fresh(1, 64);
    let mut entries = Vec::new();
    let mut history = Vec::new();
    let mut live = Vec::new();
    for txg in 1..=20u64 {
        for _ in 0..50 {
            live.push(allocator.allocate(Txg(txg), 1, 7).unwrap());
        }
        for _ in 0..20 {
            let run = live.swap_remove((txg as usize * 7) % live.len());
            allocator.free(Txg(txg), run);
        }
        let (allocated, freed) = allocator.close_txg(Txg(txg)).unwrap();
        allocator.release(Txg(txg), 2, |_| true);
        history.push((txg, allocated, freed));
        if txg == 12 {
            let (_, id) = allocator.stale_metaslabs()[0];
            entries.push(allocator.refresh(id, Txg(txg), true).unwrap());
        }
    }
    // An import: entries, then the runs of all records, oldest first.
    let mut imported = Allocator::new(&[Some(Geometry::new(0, 64, Redundancy::Single))]);
    for (entry, write) in &entries {
        assert!(write.is_some());
        imported.set_entry(*entry).unwrap();
    }
    for (txg, allocated, freed) in &history {
        for run in allocated {
            imported.replay_run(Txg(*txg), *run, true).unwrap();
        }
        for run in freed {
            imported.replay_run(Txg(*txg), *run, false).unwrap();
        }
    }
    // No bitmap is in memory yet, but the taken space is known: each change counted once.
    let lived = allocator.space_use();
    assert_eq!(imported.space_use().taken, lived.taken - lived.held);
    for id in imported.wanted_loads(u64::MAX) {
        if let Some((entry, places)) = imported.begin_load(id) {
            let (_, write) = entries.iter().find(|(of, _)| *of == entry).unwrap();
            let write = write.as_ref().unwrap();
            assert_eq!(places, write.places);
            imported.finish_load(id, &entry, Some(&write.bytes));
        }
    }
    assert_eq!(imported.used_per_vdev(), allocator.used_per_vdev());
    // Everything live is taken: claiming any of it is refused; a claim of free space is not.
    for run in &live {
        assert!(imported.reserve(*run).is_err());
    }
    let free = imported.allocate(Txg(21), 1, 1).unwrap();
    assert!(imported.reserve(free).is_err());
}

/// The first vdev alone has the little space that is wanted; but writes go to all in turn.
#[test]
fn every_vdev_has_its_share() {
    let geometries: Vec<_> = (0..3)
        .map(|vdev| Some(Geometry::new(vdev, 64, Redundancy::Single)))
        .chain([None])
        .collect();
    let mut allocator = Allocator::new(&geometries);
    let wanted = allocator.wanted_loads(100);
    assert_eq!(wanted.iter().map(|id| id.vdev).collect::<Vec<_>>(), [0, 1, 2]);
    for id in wanted {
        assert!(allocator.begin_load(id).is_none());
    }
    assert!(allocator.wanted_loads(100).is_empty());
    let taken: BTreeSet<u16> =
        (0..12).map(|_| allocator.allocate(Txg(1), 1, 64).unwrap().place.vdev()).collect();
    assert_eq!(taken, BTreeSet::from([0, 1, 2]));
}

#[test]
fn closed_metaslabs_hand_out_nothing() {
    let mut allocator = fresh(1, 64);
    for _ in 0..10 {
        allocator.allocate(Txg(1), 1, 100).unwrap();
    }
    allocator.close_txg(Txg(1)).unwrap();
    let (_, id) = allocator.stale_metaslabs()[0];
    let (entry, _) = allocator.refresh(id, Txg(1), true).unwrap();
    let mut imported = Allocator::new(&[Some(Geometry::new(0, 64, Redundancy::Single))]);
    imported.set_entry(entry).unwrap();
    assert!(imported.begin_load(id).is_some());
    imported.finish_load(id, &entry, None);
    assert_eq!(imported.closed(), vec![id]);
    for id in imported.wanted_loads(u64::MAX) {
        imported.begin_load(id);
    }
    let (start, count) = Geometry::new(0, 64, Redundancy::Single).metaslab_range(id.index);
    while let Ok(run) = imported.allocate(Txg(2), 1, 4096) {
        let at = run.place.sector();
        assert!(at < start || at >= start + count, "{run:?} lies in the closed metaslab");
    }
}

#[test]
fn what_is_read_is_not_released() {
    let mut allocator = fresh(1, 64);
    let run = allocator.allocate(Txg(1), 4, 4).unwrap();
    allocator.free(Txg(1), run);
    for txg in 1..9 {
        allocator.close_txg(Txg(txg)).unwrap();
        assert!(allocator.release(Txg(txg), 2, |of| of < Txg(1)).is_empty());
    }
    assert_eq!(allocator.release(Txg(8), 2, |_| true), vec![run]);
}

/// While other metaslabs have room, second copies lie neither in the metaslab of the first copy nor
/// in the one that data is being written to: they would cut it into holes.
#[test]
fn second_copies_lie_in_metaslabs_of_their_own() {
    let geometry = Geometry::new(0, 128, Redundancy::Single);
    let metaslab = |run: Run| run.place.sector() / geometry.metaslab_sectors();
    let mut allocator = fresh(1, 128);
    assert!(geometry.metaslab_sectors() * 4 <= geometry.sectors());
    for _ in 0..geometry.metaslab_sectors() {
        let first = allocator.allocate(Txg(1), 1, 1).unwrap();
        // The second copy of an older block, elsewhere.
        let old = Place::new(0, (first.place.sector() + geometry.metaslab_sectors()) % (96 * 1024));
        for of in [first.place, old] {
            let second = allocator.allocate_second(Txg(1), of).unwrap();
            assert_ne!(metaslab(second), metaslab(first), "data are written there");
            assert_ne!(metaslab(second), metaslab(Run::new(of, 1)), "the first copy is there");
        }
    }
}

/// In a single metaslab, a second copy lies half of it away.
#[test]
fn alone_a_second_copy_lies_half_a_metaslab_away() {
    let geometry = Geometry::new(0, 16, Redundancy::Single);
    let mut allocator = fresh(1, 16);
    let first = allocator.allocate(Txg(1), 1, 1).unwrap().place.sector();
    let second = allocator.allocate_second(Txg(1), Place::new(0, first)).unwrap().place.sector();
    let (start, sectors) = geometry.metaslab_range(0);
    let half = (first - start + sectors / 2) % sectors;
    assert_eq!(second - start, half);
}

/// If nothing is free half a metaslab away, a second copy goes to any other segment before its own.
#[test]
fn alone_a_second_copy_lies_in_another_segment() {
    let mut allocator = fresh(1, 16);
    let (start, _) = Geometry::new(0, 16, Redundancy::Single).metaslab_range(0);
    let segment = |at: u64| Place::new(0, start.next_multiple_of(1024) + at * 1024);
    let (first, own, other) = (segment(3), segment(3).plus(7), segment(1).plus(2));
    for sector in start..16 * 1024 {
        let place = Place::new(0, sector);
        if place != own && place != other {
            let _ = allocator.reserve(Run::new(place, 1));
        }
    }
    assert_eq!(allocator.allocate_second(Txg(1), first).unwrap().place, other);
    assert_eq!(allocator.allocate_second(Txg(1), first).unwrap().place, own);
}

#[test]
fn what_a_txg_takes_and_gives_back_is_counted_for_its_record() {
    let mut allocator = fresh(1, 64);
    let runs: Vec<Run> = (0..5).map(|_| allocator.allocate(Txg(1), 1, 8).unwrap()).collect();
    assert_eq!(allocator.open_runs(Txg(1)), 5);
    runs.iter().take(2).for_each(|run| allocator.free(Txg(1), *run));
    assert_eq!(allocator.open_runs(Txg(1)), 7);
    assert_eq!(allocator.open_runs(Txg(2)), 0);
}

#[test]
fn second_copies_lie_in_other_segments() {
    let segment = |place: Place| (place.vdev(), place.sector() / 1024);
    // Many metaslabs, a single one, and several vdevs.
    for (vdevs, segments) in [(1, 128), (1, 16), (3, 64)] {
        let mut allocator = fresh(vdevs, segments);
        let mut pairs = 0u64;
        while let Ok(first) = allocator.allocate(Txg(1), 1, 1) {
            let Ok(second) = allocator.allocate_second(Txg(1), first.place) else {
                break;
            };
            assert_eq!(second.sectors, 1);
            let free = allocator.space_use().free();
            // Near the end only the last segments have room.
            if free > 2 * 1024 * u64::from(vdevs) {
                assert_ne!(segment(first.place), segment(second.place), "{free} sectors are free");
            }
            pairs += 1;
        }
        // Distance costs no space: all is handed out.
        assert!(allocator.space_use().free() <= 1);
        assert!(pairs * 2 > u64::from(vdevs) * (segments - 8) * 1000);
    }
}

#[test]
fn unloaded_bitmaps_come_back_the_same() {
    // 17 metaslabs: bitmaps of each are 4 KiB in two views.
    let mut allocator = fresh(1, 272);
    let all = allocator.bitmap_bytes();
    let mut slots = BTreeMap::new();
    let mut live: BTreeSet<u64> = BTreeSet::new();
    let mut runs: Vec<Run> = Vec::new();
    for txg in 1..=60u64 {
        for id in allocator.wanted_loads(4000) {
            if let Some((entry, places)) = allocator.begin_load(id) {
                let (of, bytes): &(_, Vec<u8>) = &slots[&places[0].0];
                assert_eq!(*of, entry);
                allocator.finish_load(id, &entry, Some(bytes));
            }
        }
        for _ in 0..8 {
            let run = allocator.allocate(Txg(txg), 1, 200).unwrap();
            for sector in sectors(run) {
                assert!(live.insert(sector), "sector {sector} handed out twice");
            }
            runs.push(run);
        }
        for _ in 0..5 {
            let run = runs.swap_remove((txg as usize * 31) % runs.len());
            allocator.free(Txg(txg), run);
        }
        allocator.close_txg(Txg(txg)).unwrap();
        for (_, id) in allocator.stale_metaslabs().into_iter().take(6) {
            assert!(!allocator.needs_load_to_refresh(id) || txg > 1);
            if allocator.needs_load_to_refresh(id) {
                let (entry, places) = allocator.begin_load(id).unwrap();
                allocator.finish_load(id, &entry, Some(&slots[&places[0].0].1));
            }
            let (_, write) = allocator.refresh(id, Txg(txg), true).unwrap();
            if let Some(write) = write {
                slots.insert(write.places[0].0, (write.entry, write.bytes));
            }
        }
        // An entry may be repeated for a later txg: the slot is the same.
        for (_, id) in allocator.stale_metaslabs() {
            if let Some(entry) = allocator.entry(id) {
                let place =
                    Geometry::new(0, 272, Redundancy::Single).slot_place(id.index, entry.slot, 0);
                slots.get_mut(&place.0).unwrap().0 = entry;
            }
        }
        for run in allocator.release(Txg(txg), 2, |_| true) {
            live.retain(|sector| !sectors(run).any(|of| of == *sector));
        }
        let before = allocator.used_per_vdev();
        allocator.unload(all / 8, 4000);
        assert!(allocator.bitmap_bytes() <= all / 2, "{} of {all}", allocator.bitmap_bytes());
        assert_eq!(allocator.used_per_vdev(), before);
    }
    assert_eq!(
        allocator.space_use().taken,
        allocator.space_use().total - free_of(&allocator, &live)
    );
}

/// The free sectors if all but `live` and the reserved places are free.
fn free_of(allocator: &Allocator, live: &BTreeSet<u64>) -> u64 {
    let empty = Allocator::new(&[Some(Geometry::new(0, 272, Redundancy::Single))]);
    assert_eq!(empty.space_use().total, allocator.space_use().total);
    empty.space_use().free() - live.len() as u64
}

#[test]
fn a_double_free_is_refused() {
    let mut allocator = fresh(1, 64);
    let run = allocator.allocate(Txg(1), 4, 4).unwrap();
    allocator.free(Txg(1), run);
    allocator.free(Txg(1), Run::new(Place(run.place.0 + 1), 1));
    assert!(allocator.close_txg(Txg(1)).is_err());
}

/// While there is an untouched metaslab, holes are not refilled. Large writes should find large
/// runs, whichever bitmaps are in memory.
#[test]
fn an_emptier_metaslab_is_loaded_before_holes_are_refilled() {
    let mut allocator = Allocator::new(&[Some(Geometry::new(0, 64, Redundancy::Single))]);
    let load = |allocator: &mut Allocator, sectors| {
        let wanted = allocator.wanted_loads(sectors);
        wanted.iter().for_each(|id| assert!(allocator.begin_load(*id).is_none()));
        wanted
    };
    let first = load(&mut allocator, 1000);
    assert_eq!(first.len(), 1);
    let mut runs = Vec::new();
    while let Ok(run) = allocator.allocate(Txg(1), 1, 4) {
        runs.push(run);
    }
    for run in runs.iter().step_by(2) {
        allocator.free(Txg(2), *run);
    }
    for txg in 1..=4 {
        allocator.close_txg(Txg(txg)).unwrap();
        allocator.release(Txg(txg), 2, |_| true);
    }
    // Half of it is free, much more than is wanted, but in holes.
    let second = load(&mut allocator, 1000);
    assert_eq!(second.len(), 1);
    assert_ne!(first, second);
    assert_eq!(allocator.allocate(Txg(5), 1, 200).unwrap().sectors, 200);
    assert!(load(&mut allocator, 1000).is_empty());
}

/// Held-back frees in a closed metaslab do not come back, and are not counted so.
#[test]
fn what_is_held_back_in_a_closed_metaslab_is_not_on_its_way() {
    let geometry = Geometry::new(0, 64, Redundancy::Mirror);
    let mut allocator = Allocator::new(&[Some(geometry)]);
    let entry = aquifer_ondisk::txg_record::SlotEntry {
        vdev: 0,
        metaslab: 1,
        slot: 0,
        as_of: Txg(1),
        checksum: 7,
        free_sectors: 9000,
        longest_run: 9000,
    };
    allocator.set_entry(entry).unwrap();
    let run = |at: u64| Run::new(Place::new(0, geometry.metaslab_sectors() + at), 10);
    allocator.hold(Txg(2), &[run(5000)]);
    assert_eq!(allocator.space_use().held, 10);
    let id = crate::MetaslabId { vdev: 0, index: 1 };
    let (found, _) = allocator.begin_load(id).unwrap();
    allocator.finish_load(id, &found, None);
    let closed = allocator.space_use();
    assert_eq!(closed.held, 0);
    allocator.free(Txg(3), run(6000));
    allocator.close_txg(Txg(3)).unwrap();
    assert_eq!(allocator.space_use(), closed);
    assert_eq!(allocator.release(Txg(3), 0, |_| true).len(), 2);
    assert_eq!(allocator.space_use(), closed);
}

/// A record may be wrong although its checksum is right: it says that a metaslab is empty, and then
/// that something there was freed.
#[test]
fn no_more_is_free_than_there_is_whatever_records_say() {
    let mut imported = Allocator::new(&[Some(Geometry::new(0, 64, Redundancy::Single))]);
    let entry = SlotEntry {
        vdev: 0,
        metaslab: 0,
        slot: 0,
        as_of: Txg(1),
        checksum: 0,
        free_sectors: u64::MAX,
        longest_run: 0,
    };
    imported.set_entry(entry).unwrap();
    imported.replay_run(Txg(2), Run::new(Place::new(0, 12_000), 8), false).unwrap();
    let used = imported.used_per_vdev();
    assert!(used[0] <= imported.space_use().total, "{used:?}");
}
