//! Extents and data.

use aquifer_inspect::{Kind, Options, inspect};
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::types::Run;
use aquifer_ondisk::{ObjectId, Place, Txg};

use crate::pool::Shape;
use crate::tree::{Content, PACKED, PLAIN, SYMLINK, TAIL, compressed, write_all};
use crate::{block_on, changed, content, kinds, look, look_deep, only};

#[test]
fn extents_that_overlap() {
    let report = content(|_, sample, _| {
        let extents = sample.files.get_mut(&PLAIN).unwrap();
        extents[4].page = extents[3].page + 3;
    });
    only(&report, Kind::ExtentOverlap);
    // Across a leaf's end: the next leaf's first extent begins before the end of this one's last.
    let report = content(|_, sample, _| {
        let extents = sample.files.get_mut(&PLAIN).unwrap();
        extents[2].page = extents[3].page - 2;
    });
    assert_eq!(kinds(&report), [Kind::ExtentOverlap]);
    assert_eq!(report.count(Kind::ExtentOverlap), 2);
}

#[test]
fn extents_that_contradict_themselves() {
    type Change = fn(&mut Extent);
    let cases: [(Kind, Change); 4] = [
        (Kind::BirthOrder, |extent| extent.birth = Txg(13)),
        (Kind::BirthOrder, |extent| extent.written = Txg(13)),
        (Kind::BirthOrder, |extent| (extent.birth, extent.written) = (Txg(0), Txg(0))),
        (Kind::Unsupported, |extent| extent.counted = true),
    ];
    for (kind, change) in cases {
        let report = content(|_, sample, _| {
            change(sample.files.get_mut(&PLAIN).unwrap().last_mut().unwrap());
        });
        only(&report, kind);
    }
    // Early data: written before it entered the tree.
    let report = content(|_, sample, _| {
        sample.files.get_mut(&PLAIN).unwrap()[3].written = Txg(11);
    });
    assert_eq!(kinds(&report), []);
}

#[test]
fn extents_beyond_the_end() {
    let report = content(|_, sample, _| sample.inodes.get_mut(&PLAIN).unwrap().size -= 4096);
    only(&report, Kind::ExtentBeyondSize);
    assert!(report.is_clean());
}

#[test]
fn extents_across_segments() {
    let report = content(|pool, sample, _| {
        let extent = &mut sample.files.get_mut(&PLAIN).unwrap()[0];
        pool.free(Run::new(extent.place, 4));
        pool.cursor[0] = pool.cursor[0].next_multiple_of(1024) + 1022;
        extent.place = Place::new(0, pool.cursor[0]);
        let run = Run::new(extent.place, 4);
        pool.allocated.push(run);
        pool.used[0][run.place.sector() as usize..][..4].fill(true);
        pool.cursor[0] += 4;
    });
    only(&report, Kind::ExtentAcrossSegments);
}

#[test]
fn tenancies_split_or_crossed() {
    let split = content(|_, sample, _| {
        // In a file with three entries a leaf instead of seven.
        let extents = sample.files.remove(&PACKED).unwrap();
        sample.inodes.get_mut(&SYMLINK).unwrap().size = 1 << 20;
        sample.inodes.get_mut(&SYMLINK).unwrap().refer_bytes += 25 * 4096;
        let packed = sample.inodes.get_mut(&PACKED).unwrap();
        (packed.size, packed.refer_bytes) = (0, 0);
        let link = sample.files.get_mut(&SYMLINK).unwrap();
        link.extend(extents.into_iter().map(|mut extent| {
            extent.page += 16;
            extent
        }));
    });
    assert_eq!(kinds(&split), [Kind::TenancySplit], "{split}");

    let crossed = content(|pool, sample, _| {
        let one = compressed(pool, 40, 70, &[(0, 1), (2, 1)]);
        let mut other = compressed(pool, 41, 71, &[(0, 1), (2, 1)]);
        let extents = sample.files.get_mut(&PACKED).unwrap();
        extents.truncate(6);
        extents.push(one[0].clone());
        extents.push(other.remove(0));
        extents.push(one[1].clone());
        extents.push(other.remove(0));
        let mut left = sample.files.remove(&PACKED).unwrap();
        let left = left.split_off(6);
        sample.file(PACKED, left);
        sample.settle();
    });
    assert!(crossed.count(Kind::ExtentInvalid) >= 1, "{crossed}");

    let contradicting = content(|_, sample, _| {
        let part = &mut sample.files.get_mut(&PACKED).unwrap()[2];
        let Stored::Compressed { checksum, .. } = &mut part.stored else { panic!() };
        *checksum += 1;
    });
    only(&contradicting, Kind::ExtentInvalid);

    let before_the_file = content(|pool, sample, _| {
        let mut extents = compressed(pool, 0, 70, &[(4, 1)]);
        extents[0].page = 1;
        sample.file(SYMLINK, extents);
        sample.settle();
    });
    assert_eq!(before_the_file.count(Kind::ExtentInvalid), 1, "{before_the_file}");
}

#[test]
fn sums_of_referred_bytes() {
    let report = content(|_, sample, _| {
        sample.inodes.get_mut(&PLAIN).unwrap().refer_bytes += 4096;
        sample.settle();
    });
    assert_eq!(only(&report, Kind::ReferBytes).at.object, Some(ObjectId(PLAIN)));
    let report = content(|_, sample, _| sample.record.refer_bytes -= 1);
    assert_eq!(only(&report, Kind::ReferBytes).at.object, None);
}

/// A tail that was cut off a file and is not freed yet counts in the file's sum, as long as the
/// file exists.
#[test]
fn sums_of_cut_off_tails() {
    let report = content(|_, sample, _| {
        sample.inodes.get_mut(&PLAIN).unwrap().refer_bytes -= 4096;
        sample.settle();
    });
    let finding = only(&report, Kind::ReferBytes);
    assert_eq!(finding.at.object, Some(ObjectId(PLAIN)));
    assert!(finding.sentence.contains("cut off"), "{finding}");
    let report = content(|_, sample, _| {
        sample.inodes.get_mut(&TAIL).unwrap().refer_bytes = 4096;
        sample.settle();
    });
    assert_eq!(only(&report, Kind::ReferBytes).at.object, Some(ObjectId(TAIL)));
    let report = content(|_, sample, _| {
        sample.inodes.get_mut(&PLAIN).unwrap().refer_bytes -= 4096;
        sample.inodes.get_mut(&TAIL).unwrap().origin = ObjectId(9_999);
        sample.owners.remove(&TAIL);
        sample.owners.insert(TAIL, 9_999);
        sample.settle();
    });
    assert_eq!(crate::kinds(&report), [], "the file is gone: {report}");
}

#[test]
fn bad_data() {
    for page in [0, 3] {
        let mut place = Place::NULL;
        let pool = changed(Shape::Single, |_, sample, _| {
            place = Place(sample.files[&PLAIN][4].place.0 + page);
        });
        pool.disks[0].flip(place.sector(), 17, 1);
        assert_eq!(kinds(&look(pool.arcs())), []);
        let report = look_deep(pool.arcs());
        assert_eq!(only(&report, Kind::DataBad).at.run, Some(Run::new(place, 1)));
        pool.disks[0].flip(place.sector(), 17, 1);
        pool.disks[0].mark_unreadable(place.sector());
        only(&look_deep(pool.arcs()), Kind::DataBad);
    }
    let mut place = Place::NULL;
    let pool = changed(Shape::Single, |_, sample, _| place = sample.files[&PACKED][0].place);
    pool.disks[0].flip(place.sector() + 2, 17, 1);
    assert_eq!(only(&look_deep(pool.arcs()), Kind::DataBad).at.run, Some(Run::new(place, 3)));
}

#[test]
fn bad_data_is_one_finding_in_all_roots() {
    let mut place = Place::NULL;
    let mut pool = changed(Shape::Single, |_, sample, _| place = sample.files[&PLAIN][4].place);
    pool.commit();
    pool.commit();
    pool.disks[0].flip(place.sector(), 17, 1);
    let report = look_deep(pool.arcs());
    assert_eq!(report.summary.roots.len(), 3);
    assert!(report.summary.roots.iter().all(|root| root.sectors.data > 0));
    only(&report, Kind::DataBad);
    // The same sectors with other checksums are checked separately: an older root claims another
    // content of a page than the newest.
    let mut link = None;
    let mut pool = changed(Shape::Single, |_, sample, _| {
        let extent = &mut sample.files.get_mut(&SYMLINK).unwrap()[0];
        link = Some(extent.clone());
        let Stored::Plain(sums) = &mut extent.stored else { panic!() };
        sums[0] ^= 1;
    });
    let mut sample = Content::sample(&mut pool);
    let mut below = Content::empty(1, "vms");
    sample.files.insert(SYMLINK, vec![link.unwrap()]);
    write_all(&mut pool, &mut sample, &mut below);
    pool.commit();
    let report = look_deep(pool.arcs());
    assert_eq!(report.count(Kind::DataBad), 1, "{report}");
    let bad = report.findings.iter().find(|finding| finding.kind == Kind::DataBad);
    assert_eq!(bad.unwrap().root, Some(Txg(12)));
}

#[test]
fn bad_data_on_one_side() {
    let mut place = Place::NULL;
    let pool = changed(Shape::Mirror, |_, sample, _| place = sample.files[&PLAIN][4].place);
    pool.disks[1].flip(place.sector() + 1, 17, 1);
    let sides = Options { deep: true, ..Options::default() };
    let report = block_on(inspect(pool.arcs(), &sides));
    assert_eq!(only(&report, Kind::CopyBad).at.disk.as_deref(), Some("diskd1"));
    // Another page is bad on the other side: each page is good somewhere.
    pool.disks[0].flip(place.sector() + 2, 17, 1);
    let report = look_deep(pool.arcs());
    assert_eq!(kinds(&report), [Kind::CopyBad], "{report}");
    assert_eq!(report.count(Kind::CopyBad), 2);
    pool.disks[0].flip(place.sector() + 1, 17, 1);
    assert_eq!(look_deep(pool.arcs()).count(Kind::DataBad), 1);
}
