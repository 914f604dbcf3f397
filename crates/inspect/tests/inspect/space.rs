//! The comparison of used and allocated sectors.

use aquifer_inspect::Kind;
use aquifer_ondisk::Place;
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};

use crate::pool::Shape;
use crate::tree::{PLAIN, SYMLINK};
use crate::{changed, kinds, look, only};

#[test]
fn what_nothing_uses_is_leaked() {
    for shape in [Shape::Single, Shape::Mirror, Shape::TwoSingles] {
        let mut place = Place::NULL;
        let pool = changed(shape, |pool, _, _| {
            pool.vdev = pool.data_geometries().len() as u16 - 1;
            place = pool.take(7);
            pool.vdev = 0;
        });
        let report = look(pool.arcs());
        assert_eq!(only(&report, Kind::Leaked).at.run, Some(Run::new(place, 7)));
        assert_eq!(report.summary.roots[0].sectors.leaked, 7);
    }
}

#[test]
fn what_is_used_must_be_allocated() {
    let mut run = Run::new(Place::NULL, 0);
    let pool = changed(Shape::Single, |pool, sample, _| {
        let extent = &sample.files[&PLAIN][5];
        run = Run::new(extent.place, 2);
        pool.free(run);
    });
    let report = look(pool.arcs());
    assert_eq!(only(&report, Kind::NotAllocated).at.run, Some(run));
    assert_eq!(report.summary.roots[0].sectors.not_allocated, 2);
}

#[test]
fn slots_and_labels_must_be_allocated() {
    let pool = changed(Shape::Single, |pool, _, _| {
        let slots = pool.geometries[0].slot_place(3, 0, 1);
        pool.used[0][slots.sector() as usize] = false;
        pool.used[0][5] = false;
    });
    let report = look(pool.arcs());
    assert_eq!(kinds(&report), [Kind::NotAllocated]);
    assert_eq!(report.count(Kind::NotAllocated), 2);
}

#[test]
fn two_owners() {
    let mut place = Place::NULL;
    let pool = changed(Shape::Single, |pool, sample, _| {
        let shared = sample.files[&SYMLINK][0].place;
        let extents = &mut sample.files.get_mut(&PLAIN).unwrap();
        let old = extents[7].place;
        // The last page of four is another file's.
        place = Place(shared.0 - 3);
        extents[7].place = place;
        pool.free(Run::new(old, 4));
    });
    let report = look(pool.arcs());
    // The second owner is named; three of the four belong to a third file.
    assert!(report.count(Kind::UsedTwice) >= 1, "{report}");
    assert_eq!(kinds(&report), [Kind::UsedTwice], "{report}");
    assert_eq!(report.summary.roots[0].sectors.twice, 4);
}

#[test]
fn a_block_in_the_reserved_places() {
    for sector in [0, 200, 2 * SEGMENT_SECTORS, 6 * SEGMENT_SECTORS + 9] {
        let pool = changed(Shape::Single, |pool, sample, _| {
            let extent = &mut sample.files.get_mut(&SYMLINK).unwrap()[0];
            pool.free(Run::new(extent.place, 1));
            extent.place = Place::new(0, sector.max(1));
        });
        only(&look(pool.arcs()), Kind::UsedTwice);
    }
}

#[test]
fn places_outside_the_pool() {
    for place in [
        Place::new(0, 64 * SEGMENT_SECTORS),
        Place::new(0, Place::SECTOR_LIMIT / 2),
        Place::new(1, 9 * SEGMENT_SECTORS),
        Place::new(2, 9 * SEGMENT_SECTORS),
    ] {
        let pool = changed(Shape::WithLog, |pool, sample, _| {
            let extent = &mut sample.files.get_mut(&SYMLINK).unwrap()[0];
            pool.free(Run::new(extent.place, 1));
            extent.place = place;
        });
        assert_eq!(only(&look(pool.arcs()), Kind::OutsideVdev).at.run.unwrap().place, place);
    }
}

#[test]
fn overlapping_segments() {
    let pool = changed(Shape::Single, |pool, _, _| {
        pool.log.segments.push(Run::new(pool.records[1], SEGMENT_SECTORS));
    });
    only(&look(pool.arcs()), Kind::UsedTwice);
    let pool = changed(Shape::Single, |pool, _, _| {
        pool.log.segments[0].sectors -= 1;
    });
    let report = look(pool.arcs());
    assert_eq!(kinds(&report), [Kind::SegmentsInvalid, Kind::Leaked], "{report}");
}
