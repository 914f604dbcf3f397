//! Records, their chain, and bitmap slots.

use aquifer_inspect::{Kind, Options, inspect};
use aquifer_ondisk::config::VdevClass;
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::{Guid, Place, Txg};

use crate::pool::{HandPool, Hooks, Shape};
use crate::{block_on, good, kinds, look, look_deep, only};

/// Three txgs without content; the newest is made by `last`.
fn three(shape: Shape, last: impl FnOnce(&mut HandPool)) -> HandPool {
    let mut pool = HandPool::new(shape);
    pool.commit();
    pool.commit();
    last(&mut pool);
    pool.commit();
    pool
}

/// Like that, but metaslabs 1 to 3 keep the slots of the first txg: the window holds all three.
fn windowed(last: impl FnOnce(&mut HandPool)) -> HandPool {
    let mut pool = HandPool::new(Shape::Single);
    pool.commit();
    pool.skip_slots = vec![(0, 0), (0, 1), (0, 2), (0, 3)];
    pool.commit();
    last(&mut pool);
    pool.commit();
    pool
}

#[test]
fn runs_of_later_records_go_on_top_of_a_slot() {
    let mut place = Place::NULL;
    let pool = windowed(|pool| place = pool.take(3));
    // Nothing uses them, but they are allocated.
    let report = look_deep(pool.arcs());
    let finding = only(&report, Kind::Leaked);
    assert_eq!(finding.at.run, Some(Run::new(place, 3)));
    assert_eq!(report.summary.roots[0].record_parts, 3);
    assert_eq!(report.summary.roots[0].window_start, Txg(10));
}

#[test]
fn records_damaged_everywhere() {
    let pool = good(Shape::Single);
    for place in pool.previous.unwrap().copies() {
        pool.disks[0].flip(place.sector(), 99, 1);
    }
    let report = look(pool.arcs());
    let finding = only(&report, Kind::RootUnreadable);
    assert_eq!(finding.root, Some(Txg(12)));
    assert!(report.summary.roots.is_empty());
    // The roots before it are whole.
    let options = Options { rewind: 1, ..Options::default() };
    let report = block_on(inspect(pool.arcs(), &options));
    assert_eq!(report.summary.roots.len(), 1);
    only(&report, Kind::RootUnreadable);
}

#[test]
fn one_bad_copy_of_a_record() {
    for copy in 0..2 {
        let pool = good(Shape::Single);
        let place = pool.previous.unwrap().places[copy];
        pool.disks[0].flip(place.sector(), 99, 1);
        let report = look(pool.arcs());
        assert_eq!(only(&report, Kind::CopyBad).at.run.unwrap().place, place);
        let pool = good(Shape::Single);
        pool.disks[0].mark_unreadable(place.sector());
        only(&look(pool.arcs()), Kind::CopyUnreadable);
    }
    let pool = good(Shape::Mirror);
    let sector = pool.previous.unwrap().places[0].sector();
    pool.disks[1].flip(sector, 99, 1);
    let report = look_deep(pool.arcs());
    assert_eq!(only(&report, Kind::CopyBad).at.disk.as_deref(), Some("diskd1"));
}

#[test]
fn a_hole_in_the_window() {
    let pool = windowed(|pool| {
        let bytes = vec![1; 4096];
        for place in pool.previous.unwrap().copies() {
            pool.put(place, &bytes);
        }
    });
    let report = look(pool.arcs());
    assert_eq!(report.count(Kind::RecordUnreadable), 1, "{report}");
    // The metaslabs' entries are lost with it: the records' runs for them have no base.
    assert!(!report.is_clean());
}

#[test]
fn a_record_that_says_other_things() {
    type Change = fn(&mut aquifer_ondisk::txg_record::TxgRecord);
    let changes: [Change; 6] = [
        |record| record.pool_guid = Guid(1),
        |record| record.txg = Txg(99),
        |record| record.place = Place(7),
        |record| record.window_start = Txg(13),
        |record| record.root.as_mut().unwrap().txg = Txg(11),
        |record| record.previous.as_mut().unwrap().checksum += 1,
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let pool = three(Shape::Single, |pool| pool.hooks.record = Box::new(change));
        let mut pointer = pool.uberblock.clone();
        if at == 1 {
            // The uberblock names it by the txg that it should have.
            pointer.roots[0].as_mut().unwrap().txg = Txg(12);
            pointer.sequence += 1;
            pool.write_uberblock_to(0, &pointer);
        }
        let report = look(pool.arcs());
        assert_eq!(report.count(Kind::RecordInvalid), 1, "{at}: {report}");
    }
}

#[test]
fn a_record_that_cannot_be_decoded() {
    let pool = three(Shape::Single, |pool| {
        pool.hooks.record_bytes = Box::new(|bytes| bytes[8] = 9);
    });
    let report = look(pool.arcs());
    only(&report, Kind::RootUnreadable);
    // Counts beyond the end.
    let pool = three(Shape::Single, |pool| {
        pool.hooks.record_bytes = Box::new(|bytes| bytes[100..104].fill(0xff));
    });
    only(&look(pool.arcs()), Kind::RootUnreadable);
}

#[test]
fn a_record_without_root() {
    let pool = three(Shape::Single, |pool| {
        pool.hooks.record = Box::new(|record| record.root = None);
    });
    only(&look(pool.arcs()), Kind::RootUnreadable);
}

#[test]
fn a_chain_that_comes_back_to_itself() {
    // The record of txg 11 lies where that of 10 says that its predecessor lies.
    let pool = windowed(|pool| {
        let own = pool.previous.unwrap();
        pool.hooks.record = Box::new(move |record| {
            let mut ahead = own;
            ahead.txg = Txg(50);
            record.previous = Some(ahead);
        });
    });
    let report = look(pool.arcs());
    assert!(report.count(Kind::RecordInvalid) >= 1, "{report}");
}

#[test]
fn records_outside_their_segments() {
    let pool = three(Shape::Single, |pool| {
        // Its second copy lies at another offset than the first.
        pool.hooks.pointer = Box::new(|pointer| pointer.places[1].0 += 64);
    });
    let bytes = pool.bytes_at(pool.previous.unwrap().places[0], 1);
    pool.put(pool.previous.unwrap().places[1], &bytes);
    only(&look(pool.arcs()), Kind::RecordInvalid);

    let pool = three(Shape::Single, |pool| {
        pool.hooks.record = Box::new(|record| {
            record.root.as_mut().unwrap().record_next = Place::new(0, 9 * SEGMENT_SECTORS);
        });
    });
    only(&look(pool.arcs()), Kind::SegmentsInvalid);

    let pool = three(Shape::Single, |pool| {
        pool.hooks.record = Box::new(|record| {
            record.root.as_mut().unwrap().log.segments[0].sectors = 60 * SEGMENT_SECTORS + 5;
        });
    });
    let report = look(pool.arcs());
    assert_eq!(report.count(Kind::SegmentsInvalid), 1, "{report}");
    assert_eq!(report.count(Kind::OutsideVdev), 1);
}

#[test]
fn a_record_in_parts() {
    let cut = |second_has_root: bool| {
        let mut pool = HandPool::new(Shape::Single);
        pool.commit();
        pool.commit();
        let first = pool.take(2);
        let record = aquifer_ondisk::txg_record::TxgRecord {
            pool_guid: crate::pool::POOL,
            txg: pool.txg,
            place: Place::NULL,
            window_start: pool.txg,
            previous: pool.previous,
            slots: vec![],
            allocated: std::mem::take(&mut pool.allocated),
            freed: vec![],
            root: second_has_root.then(|| aquifer_ondisk::pool_root::PoolRoot {
                txg: pool.txg,
                wall_ns: 0,
                trees: [None; 8],
                log: pool.log.clone(),
                log_home: pool.log_home(),
                record_segments: vec![],
                record_copies: None,
                record_next: Place::NULL,
                allocated_sectors: vec![],
            }),
        };
        let pointer = pool.part(record);
        pool.previous = Some(pointer);
        pool.free(Run::new(first, 2));
        pool.commit();
        look(pool.arcs())
    };
    let report = cut(false);
    assert_eq!(kinds(&report), [], "{report}");
    assert_eq!(report.summary.roots[0].record_parts, 2);
    only(&cut(true), Kind::RecordInvalid);
}

#[test]
fn entries_that_the_window_lacks() {
    // The slots are as of txg 11, and the newest record claims to need none before 12.
    let mut pool = HandPool::new(Shape::Single);
    pool.commit();
    pool.commit();
    pool.skip_slots = vec![(0, 2)];
    pool.hooks.record = Box::new(|record| record.window_start = record.txg);
    pool.commit();
    let report = look(pool.arcs());
    let finding = only(&report, Kind::WindowLacksEntry);
    assert!(finding.sentence.contains("metaslab 0:2"), "{finding}");
}

#[test]
fn entries_that_make_no_sense() {
    for change in [
        |entry: &mut aquifer_ondisk::txg_record::SlotEntry| {
            if entry.metaslab == 3 {
                entry.as_of.0 += 1;
            }
        },
        |entry: &mut aquifer_ondisk::txg_record::SlotEntry| {
            if entry.metaslab == 3 {
                entry.as_of.0 -= 5;
            }
        },
    ] {
        let pool = three(Shape::Single, |pool| pool.hooks.entry = Box::new(change));
        only(&look(pool.arcs()), Kind::SlotEntryInvalid);
    }
    let pool = three(Shape::Single, |pool| {
        pool.hooks.record = Box::new(|record| {
            let mut wrong = record.slots[0];
            wrong.metaslab = u32::MAX;
            record.slots.push(wrong);
            wrong.vdev = 9;
            record.slots.push(wrong);
        });
    });
    let report = look(pool.arcs());
    assert_eq!(kinds(&report), [Kind::SlotEntryInvalid], "{report}");
    assert_eq!(report.count(Kind::SlotEntryInvalid), 2);
}

#[test]
fn slots_that_do_not_verify() {
    let pool = good(Shape::Single);
    let geometry = pool.geometries[0];
    let entry = pool.entries[&(0, 1)];
    let places = [0, 1].map(|copy| geometry.slot_place(1, entry.slot, copy));
    pool.disks[0].flip(places[1].sector(), 9, 9);
    let report = look(pool.arcs());
    assert_eq!(only(&report, Kind::CopyBad).at.run.unwrap().place, places[1]);
    pool.disks[0].flip(places[0].sector(), 9, 9);
    // There is no other finding for an unknown metaslab.
    let report = look(pool.arcs());
    assert_eq!(only(&report, Kind::SlotUnreadable).at.run.unwrap().place, places[0]);

    // Other slots of it may hold anything.
    let pool = good(Shape::Single);
    for slot in (0..4).filter(|slot| *slot != pool.entries[&(0, 1)].slot) {
        let place = geometry.slot_place(1, slot, 0);
        pool.disks[0].put(place.sector(), &[0xaa; 4096]);
    }
    assert_eq!(kinds(&look(pool.arcs())), []);
}

#[test]
fn slots_of_one_mirror_side() {
    let pool = good(Shape::Mirror);
    let place = pool.geometries[0].slot_place(2, pool.entries[&(0, 2)].slot, 0);
    pool.disks[1].flip(place.sector(), 0, 1);
    let report = look_deep(pool.arcs());
    assert_eq!(only(&report, Kind::CopyBad).at.disk.as_deref(), Some("diskd1"));
}

#[test]
fn counts_of_slots_and_root() {
    for change in [
        |entry: &mut aquifer_ondisk::txg_record::SlotEntry| {
            entry.free_sectors -= u64::from(entry.metaslab == 2);
        },
        |entry: &mut aquifer_ondisk::txg_record::SlotEntry| {
            entry.longest_run += u32::from(entry.metaslab == 2);
        },
    ] {
        let pool = three(Shape::Single, |pool| pool.hooks.entry = Box::new(change));
        only(&look(pool.arcs()), Kind::SlotCounts);
    }
    for change in [
        |sums: &mut Vec<u64>| sums[0] += 1,
        |sums: &mut Vec<u64>| sums.push(0),
        |sums: &mut Vec<u64>| sums.clear(),
    ] {
        let pool = three(Shape::TwoSingles, |pool| {
            pool.hooks.record = Box::new(move |record| {
                change(&mut record.root.as_mut().unwrap().allocated_sectors);
            });
        });
        only(&look(pool.arcs()), Kind::AllocatedSectors);
    }
}

#[test]
fn runs_that_contradict_the_bitmaps() {
    let twice = windowed(|pool| {
        let run = Run::new(pool.records[0], 1);
        pool.allocated.push(run);
    });
    assert_eq!(only(&look(twice.arcs()), Kind::AllocatedTwice).at.run.unwrap().sectors, 1);

    let freed = windowed(|pool| {
        let free = Run::new(Place::new(0, 40 * SEGMENT_SECTORS), 5);
        pool.freed.push(free);
    });
    assert_eq!(only(&look(freed.arcs()), Kind::FreedTwice).at.run.unwrap().sectors, 5);

    let mut outside = windowed(|pool| {
        let end = pool.geometries[0].sectors();
        for run in [
            Run::new(Place::new(0, end - 1), 2),
            Run::new(Place::new(0, 16 * SEGMENT_SECTORS - 1), 2),
            Run::new(Place::new(3, 9), 2),
            Run::new(Place::new(u16::MAX, Place::SECTOR_LIMIT - 3), 2),
        ] {
            pool.allocated.push(run);
        }
    });
    outside.allocated.clear();
    let report = look(outside.arcs());
    assert_eq!(kinds(&report), [Kind::RunOutside]);
    assert_eq!(report.count(Kind::RunOutside), 4);
}

#[test]
fn frees_are_held_back_for_two_txgs() {
    let reused_after = |between: usize| {
        let mut pool = HandPool::new(Shape::Single);
        let place = pool.take(4);
        pool.commit();
        pool.skip_slots = vec![(0, 0), (0, 1), (0, 2), (0, 3)];
        pool.free(Run::new(place, 4));
        pool.commit();
        (0..between).for_each(|_| pool.commit());
        pool.cursor[0] = place.sector() + 1;
        pool.take(2);
        pool.commit();
        look(pool.arcs())
    };
    for between in 0..2 {
        let report = reused_after(between);
        assert_eq!(kinds(&report), [Kind::ReusedTooSoon, Kind::Leaked], "{report}");
    }
    only(&reused_after(2), Kind::Leaked);
}

#[test]
fn a_log_vdev_has_no_bitmaps() {
    let pool = good(Shape::WithLog);
    assert_eq!(pool.config.vdevs[1].class, VdevClass::Log);
    let report = look(pool.arcs());
    assert_eq!(report.summary.roots[0].sectors.total, pool.geometries[0].sectors());

    let pool = three(Shape::WithLog, |pool| {
        pool.hooks.record = Box::new(|record| {
            record.allocated.push(Run::new(Place::new(1, 9 * SEGMENT_SECTORS), 1));
        });
    });
    only(&look(pool.arcs()), Kind::RunOutside);
}

#[test]
fn older_roots_are_looked_at_when_asked_for() {
    // The root of txg 11 has a wrong count; that of 12 has not.
    let mut pool = HandPool::new(Shape::Single);
    pool.commit();
    pool.hooks.record = Box::new(|record| {
        record.root.as_mut().unwrap().allocated_sectors[0] += 1;
    });
    pool.commit();
    pool.hooks = Hooks::default();
    pool.commit();
    for (rewind, found) in [(0, false), (1, true), (2, true), (200, true)] {
        let options = Options { rewind, ..Options::default() };
        let report = block_on(inspect(pool.arcs(), &options));
        if found {
            assert_eq!(only(&report, Kind::AllocatedSectors).root, Some(Txg(11)));
        } else {
            assert_eq!(kinds(&report), []);
        }
        assert_eq!(report.summary.roots.len(), usize::from(rewind.min(2)) + 1);
    }
}
