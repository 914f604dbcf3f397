//! The intent log: its chain, where it ends, and the early data it names.

use aquifer_inspect::{Kind, Options, Report, Severity, inspect};
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::log_batch::{BatchHeader, LogRecord};
use aquifer_ondisk::types::Run;
use aquifer_ondisk::uberblock::LogEnd;
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Place, Txg};

use crate::pool::{CHAIN, HandPool, SESSION, Shape};
use crate::tree::PLAIN;
use crate::{block_on, changed, deep, good, kinds, look, look_deep, only};

fn record(txg: u64, pages: &[u64], extents: Vec<Extent>) -> LogRecord {
    LogRecord {
        kind: 1,
        txg: Txg(txg),
        dataset: DatasetId(1),
        object: ObjectId(PLAIN),
        page_sums: pages.to_vec(),
        extents,
        body: vec![7; 10],
    }
}

/// Data at its place that no root knows of.
fn early(pool: &mut HandPool, contents: &[u8]) -> Extent {
    let place = Place::new(0, pool.cursor[0]);
    pool.cursor[0] += contents.len() as u64;
    pool.data_at(3, contents, place)
}

/// A whole pool with these batches, each of session and mark.
fn with_batches(shape: Shape, batches: &[(u64, u64)]) -> (HandPool, Vec<Run>) {
    let mut pool = good(shape);
    let mut runs = vec![];
    for (session, mark) in batches {
        let records = vec![record(12, &[], vec![]), record(13, &[1, 2], vec![])];
        runs.push(pool.batch(records, *session, *mark));
    }
    (pool, runs)
}

fn log(report: &Report) -> &aquifer_inspect::LogSummary {
    report.summary.log.as_ref().unwrap()
}

#[test]
fn a_chain_is_read_to_its_end() {
    for shape in [Shape::Single, Shape::Mirror, Shape::TwoSingles, Shape::WithLog] {
        let (pool, _) = with_batches(shape, &[(3, 0), (3, 0), (3, 1), (3, 2)]);
        let report = look_deep(pool.arcs());
        assert_eq!(kinds(&report), [], "{report}");
        assert_eq!(report.count(Kind::LogPending), 1);
        let log = log(&report);
        assert_eq!((log.chain, log.head_sequence, log.mark), (CHAIN, 1, 2));
        // Those of txg 12 are in the root.
        assert_eq!((log.batches, log.records, log.pending), (4, 8, 4));
        assert_eq!(log.end, "no batch there");
    }
}

#[test]
fn a_chain_goes_on_in_the_next_segment() {
    let mut pool = good(Shape::Single);
    let second = pool.log.segments[0].place.0 + 1024;
    for at in 1..=40u64 {
        if pool.log_offset < 1024 && pool.log_offset + 256 > 1024 {
            pool.log_offset = 1024;
        }
        pool.batch(vec![record(13, &[at; 29], vec![])], SESSION, at - 1);
    }
    assert!(pool.log_offset > 1024, "into the second segment");
    let report = look(pool.arcs());
    assert_eq!((kinds(&report), log(&report).batches), (vec![], 40), "{report}");
    // The first batch there is gone.
    pool.put(Place(second), &[0; 4096]);
    let report = look(pool.arcs());
    assert_eq!(only(&report, Kind::LogDamaged).at.run.unwrap().place, Place(second));
}

#[test]
fn a_torn_batch_ends_the_chain() {
    let (pool, runs) = with_batches(Shape::Single, &[(3, 0), (3, 0), (3, 1)]);
    pool.disks[0].flip(runs[2].place.sector() + 1, 5, 1);
    let report = look(pool.arcs());
    assert_eq!(kinds(&report), []);
    assert_eq!(report.count(Kind::LogEnds), 1);
    assert_eq!(log(&report).batches, 2);
    assert!(log(&report).end.contains("payload"), "{report}");
}

#[test]
fn a_missing_batch_that_was_durable() {
    // The mark of a later one proves it.
    let (pool, runs) = with_batches(Shape::Single, &[(3, 0), (3, 1), (3, 1), (3, 2)]);
    pool.disks[0].flip(runs[1].place.sector() + 1, 5, 1);
    let report = look(pool.arcs());
    let finding = only(&report, Kind::LogDamaged);
    assert_eq!(finding.at.run.unwrap().place, runs[1].place);
    assert_eq!(finding.severity(), Severity::Error);

    // That of the uberblock.
    let (mut pool, runs) = with_batches(Shape::Single, &[(3, 0), (3, 0)]);
    pool.uberblock.mark = 2;
    pool.write_uberblock();
    assert_eq!(kinds(&look(pool.arcs())), []);
    pool.put(runs[1].place, &[0; 4096]);
    only(&look(pool.arcs()), Kind::LogDamaged);

    // The end that the last import fixed.
    let (mut pool, runs) = with_batches(Shape::Single, &[(3, 0), (3, 0)]);
    pool.uberblock.log_end = LogEnd { chain: CHAIN, sequence: 2, checksum: pool.log_previous };
    pool.write_uberblock();
    assert_eq!(kinds(&look(pool.arcs())), []);
    pool.put(runs[1].place, &[0; 4096]);
    only(&look(pool.arcs()), Kind::LogDamaged);

    // No finding, as long as nothing proves it durable.
    let (pool, runs) = with_batches(Shape::Single, &[(3, 0), (3, 0), (3, 0)]);
    pool.put(runs[1].place, &[0; 4096]);
    let report = look(pool.arcs());
    assert_eq!((kinds(&report), log(&report).batches), (vec![], 1));
}

#[test]
fn a_batch_that_cannot_be_read() {
    let (pool, runs) = with_batches(Shape::Single, &[(3, 0), (3, 0)]);
    pool.disks[0].mark_unreadable(runs[1].place.sector());
    only(&look(pool.arcs()), Kind::LogDamaged);
    // Another side has it.
    let (pool, runs) = with_batches(Shape::Mirror, &[(3, 0), (3, 0)]);
    pool.disks[0].mark_unreadable(runs[1].place.sector());
    assert_eq!(kinds(&look(pool.arcs())), []);
}

#[test]
fn batches_of_other_lives() {
    type Change = fn(&mut BatchHeader);
    let cases: [(Change, &str); 6] = [
        (|header| header.pool_guid = Guid(1), "another log"),
        (|header| header.chain = 5, "another log"),
        (|header| header.place.0 += 1, "was written for"),
        (|header| header.sequence = 9, "batch 9"),
        (|header| header.previous ^= 1, "does not follow"),
        (|header| header.session = 2, "cut off"),
    ];
    for (change, says) in cases {
        let mut pool = good(Shape::Single);
        pool.batch(vec![], SESSION, 0);
        pool.hooks.batch = Box::new(change);
        pool.batch(vec![], SESSION, 0);
        let report = look(pool.arcs());
        assert_eq!((kinds(&report), log(&report).batches), (vec![], 1), "{says}: {report}");
        assert!(log(&report).end.contains(says), "{says}: {report}");
    }
    // A session before the last import is right up to the end that it fixed.
    let (mut pool, _) = with_batches(Shape::Single, &[(2, 0), (2, 1)]);
    pool.uberblock.log_end = LogEnd { chain: CHAIN, sequence: 2, checksum: pool.log_previous };
    pool.batch(vec![], SESSION, 2);
    pool.write_uberblock();
    let report = look(pool.arcs());
    assert_eq!((kinds(&report), log(&report).batches), (vec![], 3), "{report}");
}

#[test]
fn batches_that_contradict_the_rules() {
    let cases: [&[(u64, u64)]; 2] = [
        // A mark that covers the batch itself; one that goes back.
        &[(3, 1)],
        &[(3, 0), (3, 1), (3, 0)],
    ];
    for batches in cases {
        let (pool, _) = with_batches(Shape::Single, batches);
        let report = look(pool.arcs());
        assert!(report.count(Kind::LogInvalid) >= 1, "{batches:?}: {report}");
    }
    let (mut pool, _) = with_batches(Shape::Single, &[(3, 0), (3, 1)]);
    pool.uberblock.log_end = LogEnd { chain: CHAIN, sequence: 2, checksum: 1 };
    pool.write_uberblock();
    only(&look(pool.arcs()), Kind::LogInvalid);
}

/// Of a session that no import of these disks began: the log ends before them.
#[test]
fn batches_of_another_past() {
    for (batches, left) in [(&[(4, 0)][..], 0), (&[(5, 0), (4, 0)], 0), (&[(3, 0), (4, 0)], 1)] {
        let (pool, _) = with_batches(Shape::Single, batches);
        let report = look(pool.arcs());
        assert_eq!((kinds(&report), log(&report).batches), (vec![], left), "{report}");
        assert_eq!(report.count(Kind::LogEnds), 1, "{batches:?}: {report}");
    }
}

#[test]
fn a_chain_that_begins_anew() {
    let (mut pool, _) = with_batches(Shape::Single, &[(3, 0), (3, 1)]);
    pool.uberblock.restart_chain = 500;
    pool.uberblock.log_end = LogEnd::default();
    pool.write_uberblock();
    let report = look(pool.arcs());
    assert_eq!((kinds(&report), log(&report).batches), (vec![], 0), "{report}");
    assert_eq!(log(&report).chain, 500);
}

#[test]
fn a_head_outside_the_log() {
    let pool = changed(Shape::Single, |pool, _, _| pool.log.head_place.0 += 5000);
    let report = look(pool.arcs());
    only(&report, Kind::SegmentsInvalid);
    assert!(report.summary.log.is_none());
}

#[test]
fn sides_that_do_not_hold_a_batch() {
    let (pool, runs) = with_batches(Shape::Mirror, &[(3, 0), (3, 0), (3, 1)]);
    let sides = deep();
    // Proven: an error. Not proven: an import levels it.
    for (at, kind) in [(0, Kind::CopyBad), (1, Kind::LogUneven), (2, Kind::LogUneven)] {
        pool.disks[1].flip(runs[at].place.sector() + 1, 5, 1);
        let report = block_on(inspect(pool.arcs(), &sides));
        assert_eq!(report.count(kind), 1, "{at}: {report}");
        assert_eq!(report.is_clean(), kind == Kind::LogUneven);
        assert_eq!(log(&report).batches, 3);
        pool.disks[1].flip(runs[at].place.sector() + 1, 5, 1);
    }
    pool.disks[1].mark_unreadable(runs[0].place.sector());
    only(&look_deep(pool.arcs()), Kind::CopyUnreadable);
}

#[test]
fn early_data_is_no_leak_and_no_error() {
    let mut pool = good(Shape::Single);
    let one = early(&mut pool, &[1, 2, 3]);
    let other = early(&mut pool, &[4]);
    let places = [Run::new(one.place, 3), Run::new(other.place, 1)];
    pool.batch(vec![record(13, &[], vec![one.clone(), other])], SESSION, 0);
    // Named again: the same run.
    pool.batch(vec![record(13, &[], vec![one])], SESSION, 1);
    for report in [look(pool.arcs()), look_deep(pool.arcs())] {
        assert_eq!(kinds(&report), [], "{report}");
        assert_eq!(log(&report).early, places);
    }
}

#[test]
fn records_up_to_the_floor_claim_nothing() {
    let mut in_root = None;
    let mut pool = changed(Shape::Single, |_, sample, _| {
        in_root = Some(sample.files[&PLAIN][0].clone());
    });
    pool.batch(vec![record(12, &[], vec![in_root.unwrap()])], SESSION, 0);
    let report = look_deep(pool.arcs());
    assert_eq!((kinds(&report), log(&report).early.len()), (vec![], 0), "{report}");
}

#[test]
fn early_data_where_the_root_has_something() {
    let mut in_root = None;
    let mut pool = changed(Shape::Single, |_, sample, _| {
        in_root = Some(sample.files[&PLAIN][0].clone());
    });
    pool.batch(vec![record(13, &[], vec![in_root.unwrap()])], SESSION, 0);
    only(&look(pool.arcs()), Kind::LogPlaceInUse);

    // The frees of the last txgs are not available.
    for after in 0..3 {
        let mut pool = HandPool::new(Shape::Single);
        let place = pool.take(1);
        pool.commit();
        // The window holds all records.
        pool.skip_slots = vec![(0, 0), (0, 1), (0, 2), (0, 3)];
        pool.free(Run::new(place, 1));
        (0..=after).for_each(|_| pool.commit());
        let extent = pool.data_at(0, &[1], place);
        let txg = pool.txg.0;
        pool.batch(vec![record(txg, &[], vec![extent])], SESSION, 0);
        let report = look(pool.arcs());
        assert_eq!(report.count(Kind::LogPlaceInUse), u64::from(after < 2), "{after}: {report}");
    }
}

#[test]
fn early_data_that_overlaps() {
    let mut pool = good(Shape::Single);
    let one = early(&mut pool, &[1, 2, 3]);
    let part = pool.data_at(9, &[3, 4], Place(one.place.0 + 2));
    pool.batch(vec![record(13, &[], vec![one, part])], SESSION, 0);
    only(&look(pool.arcs()), Kind::LogPlaceInUse);
    let mut pool = good(Shape::Single);
    let mut far = early(&mut pool, &[1]);
    far.place = Place::new(0, Place::SECTOR_LIMIT / 2);
    pool.batch(vec![record(13, &[], vec![far])], SESSION, 0);
    pool.uberblock.mark = 1;
    pool.write_uberblock();
    only(&look(pool.arcs()), Kind::OutsideVdev);
}

#[test]
fn early_data_that_did_not_arrive() {
    let make = |mark: u64| {
        let mut pool = good(Shape::Mirror);
        let extent = early(&mut pool, &[1, 2]);
        let place = extent.place;
        pool.batch(vec![], SESSION, 0);
        pool.batch(vec![record(13, &[], vec![extent])], SESSION, 1);
        pool.batch(vec![], SESSION, mark);
        (pool, place)
    };
    // Not proven: the chain ends before it.
    let (pool, place) = make(1);
    pool.put(place, &[0; 4096]);
    let report = look(pool.arcs());
    assert_eq!((kinds(&report), log(&report).batches), (vec![], 1), "{report}");
    assert_eq!(report.count(Kind::LogEnds), 1);
    assert_eq!(log(&report).early, []);
    // Proven: lost. It is read only on demand.
    let (pool, place) = make(2);
    pool.put(place, &[0; 4096]);
    assert_eq!(kinds(&look(pool.arcs())), []);
    only(&look_deep(pool.arcs()), Kind::LogDataLost);
    // One side has it.
    let (pool, place) = make(2);
    pool.disks[0].put(place.sector(), &[0; 4096]);
    only(&look_deep(pool.arcs()), Kind::CopyBad);
    // Unreadable: so nobody can tell whether the chain ends.
    let (pool, place) = make(1);
    pool.disks.iter().for_each(|disk| disk.mark_unreadable(place.sector()));
    only(&look(pool.arcs()), Kind::LogDamaged);
}

#[test]
fn a_clean_export_leaves_nothing_to_replay() {
    let (mut pool, _) = with_batches(Shape::Single, &[(3, 0)]);
    pool.uberblock.clean = true;
    pool.write_uberblock();
    only(&look(pool.arcs()), Kind::LogNotEmpty);
    let mut pool = good(Shape::Single);
    pool.uberblock.clean = true;
    pool.write_uberblock();
    let options = Options::default();
    let report = block_on(inspect(pool.arcs(), &options));
    assert!(report.is_clean() && report.summary.clean);
}
