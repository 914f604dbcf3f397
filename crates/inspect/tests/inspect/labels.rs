//! Labels and uberblocks: damage, wrong places, votes.

use std::sync::Arc;

use aquifer_blockio::Disk;
use aquifer_inspect::{Kind, LeafRole, Options, Severity, inspect};
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::{Label, VDEV_SEGMENTS_MAX};
use aquifer_ondisk::layout::{CONFIG_OFFSET, label_sector};
use aquifer_ondisk::types::SEGMENT_SECTORS;
use aquifer_ondisk::uberblock::{Outdated, Uberblock};

use crate::memory::MemoryDisk;
use crate::pool::{HandPool, SECTORS, Shape, ring_sector};
use crate::{block_on, good, kinds, look, look_deep, only};

fn config_sector(label: u64) -> u64 {
    label_sector(label, SECTORS) + CONFIG_OFFSET
}

fn put_label(pool: &HandPool, disk: usize, place: u8, change: impl FnOnce(&mut Label)) {
    let mut label =
        Label { leaf_guid: pool.leaves[disk].1, index: place, config: pool.config.clone() };
    change(&mut label);
    pool.disks[disk].put(config_sector(place.into()), &label.encode().unwrap());
}

#[test]
fn a_damaged_config_is_named() {
    let pool = good(Shape::Single);
    pool.disks[0].flip(config_sector(2), 300, 1);
    let report = look(pool.arcs());
    let finding = only(&report, Kind::LabelDamaged);
    assert_eq!(finding.at.run.unwrap().place.sector(), config_sector(2));
    assert_eq!(finding.at.disk.as_deref(), Some("diskd0"));
    assert_eq!(report.summary.leaves[0].labels, 3);
    assert!(report.is_clean());
}

#[test]
fn a_label_without_magic_is_named_too() {
    let pool = good(Shape::Single);
    pool.disks[0].put(config_sector(0), &[0; 4096]);
    only(&look(pool.arcs()), Kind::LabelDamaged);
}

#[test]
fn labels_in_the_wrong_place_are_named() {
    for change in [
        |label: &mut Label| label.index = 3,
        |label: &mut Label| label.leaf_guid = Guid(1),
        |label: &mut Label| label.config.pool_guid = Guid(1),
    ] {
        let pool = good(Shape::Single);
        put_label(&pool, 0, 1, change);
        only(&look(pool.arcs()), Kind::LabelMisplaced);
    }
}

#[test]
fn configs_that_differ_are_named() {
    let pool = good(Shape::Mirror);
    put_label(&pool, 1, 3, |label| label.config.name = "other".into());
    only(&look(pool.arcs()), Kind::ConfigDisagrees);

    let mut pool = good(Shape::Mirror);
    pool.config.config_sequence = 2;
    for label in [0, 2] {
        put_label(&pool, 0, label, |_| {});
    }
    // Two labels of the one disk, and the other disk as a whole.
    let report = look(pool.arcs());
    assert_eq!(kinds(&report), [Kind::ConfigStale]);
    assert_eq!(report.count(Kind::ConfigStale), 3);

    let mut pool = good(Shape::Mirror);
    pool.config.name = "other".into();
    for label in 0..4 {
        put_label(&pool, 0, label, |_| {});
    }
    only(&look(pool.arcs()), Kind::ConfigDisagrees);
}

/// A disk that is offline for a while says so of itself, in its own labels; a cut may leave some.
#[test]
fn a_disk_may_say_that_it_is_offline() {
    let offline =
        |label: &mut Label, leaf: usize| label.config.vdevs[0].leaves[leaf].offline = true;
    for labels in [&[0, 2][..], &[1], &[0, 1, 2, 3]] {
        let pool = good(Shape::Mirror);
        for label in labels {
            put_label(&pool, 1, *label, |label| offline(label, 1));
        }
        assert_eq!(kinds(&look(pool.arcs())), []);
    }
    let pool = good(Shape::Mirror);
    put_label(&pool, 1, 2, |label| offline(label, 0));
    only(&look(pool.arcs()), Kind::ConfigDisagrees);
}

#[test]
fn newer_software_and_unknown_features_are_named() {
    let pool = good(Shape::Single);
    let bytes = pool.disks[0].page(config_sector(1));
    let mut newer = bytes.to_vec();
    newer[8] = 9;
    let mut area = newer;
    for sector in 1..56 {
        area.extend_from_slice(pool.disks[0].page(config_sector(1) + sector).as_slice());
    }
    let end = area.len() - 16;
    let sum = aquifer_ondisk::codec::checksum128(&area[..end]);
    area[end..].copy_from_slice(&sum.to_le_bytes());
    pool.disks[0].put(config_sector(1), &area);
    only(&look(pool.arcs()), Kind::LabelNewer);

    let mut pool = good(Shape::Single);
    pool.config.features_write.push("later".into());
    pool.write_labels();
    only(&look(pool.arcs()), Kind::FeatureUnknown);
}

#[test]
fn unreadable_labels_are_named() {
    let pool = good(Shape::Single);
    pool.disks[0].mark_unreadable(config_sector(3) + 7);
    only(&look(pool.arcs()), Kind::LabelUnreadable);

    let pool = good(Shape::Single);
    (0..4).for_each(|label| pool.disks[0].mark_unreadable(config_sector(label)));
    let report = look(pool.arcs());
    assert_eq!(kinds(&report), [Kind::NoPool, Kind::LabelUnreadable]);
    assert_eq!(report.count(Kind::LabelUnreadable), 4);
}

#[test]
fn disks_that_are_not_of_the_pool_are_named() {
    let pool = good(Shape::Mirror);
    let mut disks = pool.arcs();
    disks.push(MemoryDisk::new("blank", SECTORS));
    assert_eq!(only(&look(disks), Kind::ForeignDisk).at.disk.as_deref(), Some("blank"));

    let mut other = HandPool::new(Shape::Single);
    other.config.pool_guid = Guid(0x99);
    other.write_labels();
    let mut disks = pool.arcs();
    disks.push(other.disks[0].copy("other"));
    assert_eq!(only(&look(disks.clone()), Kind::ForeignDisk).at.disk.as_deref(), Some("other"));
    let options = Options { pool: Some(Guid(0x99)), ..Options::default() };
    let report = block_on(inspect(disks, &options));
    assert_eq!(report.count(Kind::ForeignDisk), 2);
    assert_eq!(report.count(Kind::NoUberblock), 1);

    assert_eq!(only(&look(vec![]), Kind::NoPool).severity(), Severity::Error);
    // A disk of a few sectors has no room for labels.
    assert!(!look(vec![MemoryDisk::new("tiny", 3)]).is_clean());
}

#[test]
fn a_disk_that_was_taken_out_is_named() {
    let mut pool = good(Shape::Mirror);
    let mut disks = pool.arcs();
    // A third side, of the config before.
    let third = MemoryDisk::new("third", SECTORS);
    pool.leaves.push((0, Guid(0xd7)));
    pool.disks.push(third.clone());
    for label in 0..4 {
        put_label(&pool, 2, label, |_| {});
    }
    pool.write_uberblock_to(2, &pool.uberblock);
    disks.push(third);
    let report = look(disks);
    assert_eq!(only(&report, Kind::NotAMember).at.disk.as_deref(), Some("third"));
    assert_eq!(report.summary.leaves.len(), 2);
}

#[test]
fn a_disk_given_twice_is_named() {
    let pool = good(Shape::Single);
    let mut disks = pool.arcs();
    disks.push(pool.disks[0].copy("twin"));
    only(&look(disks), Kind::LeafTwice);
}

#[test]
fn missing_disks_are_named() {
    let pool = good(Shape::Mirror);
    let report = look(vec![pool.arcs()[1].clone()]);
    assert_eq!(only(&report, Kind::LeafMissing).at.disk.as_deref(), Some("diskd0"));
    assert_eq!(report.summary.leaves[0].role, LeafRole::Missing);
    assert!(report.is_clean());

    let pool = good(Shape::TwoSingles);
    let report = look(vec![pool.arcs()[0].clone()]);
    assert_eq!(kinds(&report), [Kind::LeafMissing, Kind::VdevMissing], "{report}");
}

#[test]
fn a_disk_that_became_smaller_takes_no_part() {
    let pool = good(Shape::Mirror);
    // The front labels are still there.
    let small = pool.disks[1].resized(SECTORS - SEGMENT_SECTORS);
    let disks: Vec<Arc<dyn Disk>> = vec![pool.disks[0].clone(), small];
    let report = look(disks);
    assert_eq!(report.count(Kind::LeafTooSmall), 1, "{report}");
    assert!(report.is_clean());
}

#[test]
fn an_absurd_size_in_the_config_costs_nothing() {
    let mut pool = good(Shape::Mirror);
    pool.config.vdevs[0].segments = VDEV_SEGMENTS_MAX;
    pool.write_labels();
    let report = look_deep(pool.arcs());
    assert_eq!(report.count(Kind::LeafTooSmall), 2);
    assert_eq!(report.count(Kind::VdevMissing), 1);
    let mut pool = good(Shape::Mirror);
    pool.config.vdevs[0].segments = 0;
    pool.write_labels();
    assert!(!look_deep(pool.arcs()).is_clean());
    let mut pool = good(Shape::Single);
    let leaf = pool.config.vdevs[0].leaves[0].clone();
    pool.config.vdevs[0].leaves.push(leaf);
    pool.write_labels();
    assert_eq!(look(pool.arcs()).count(Kind::ConfigInvalid), 1);
}

#[test]
fn a_torn_uberblock_is_an_info() {
    let pool = good(Shape::Single);
    let torn = ring_sector(1, pool.uberblock.sequence + 1);
    pool.disks[0].put(torn, b"half of an uberblock");
    let report = look(pool.arcs());
    assert_eq!(kinds(&report), []);
    assert_eq!(report.count(Kind::UberblockTorn), 1);

    // The newest is gone from all labels: the one before takes its place.
    let pool = good(Shape::Single);
    (0..4).for_each(|at| pool.disks[0].flip(ring_sector(at, pool.uberblock.sequence), 77, 4));
    let report = look(pool.arcs());
    assert_eq!(report.summary.txg.0, 11);
    assert_eq!(report.count(Kind::UberblockTorn), 1);

    // One label alone has the newest one.
    let pool = good(Shape::Single);
    (1..4).for_each(|at| pool.disks[0].put(ring_sector(at, pool.uberblock.sequence), &[0; 4096]));
    let report = look(pool.arcs());
    assert_eq!((kinds(&report), report.summary.txg.0), (vec![], 12));
    assert_eq!(report.count(Kind::UberblockTorn), 1);
}

#[test]
fn uberblocks_in_the_wrong_place_have_no_vote() {
    let put = |pool: &HandPool, sector: u64, leaf: u64, label: u8, guid: u64| {
        let mut uberblock = pool.uberblock.clone();
        uberblock.sequence = 120;
        uberblock.pool_guid = Guid(guid);
        pool.disks[0].put(sector, &uberblock.encode_for(Guid(leaf), label).unwrap());
    };
    let pool_guid = crate::pool::POOL.0;
    for (slot, leaf, label, guid) in [
        (121, 0xd0, 0, pool_guid),
        (120, 1, 0, pool_guid),
        (120, 0xd0, 1, pool_guid),
        (120, 0xd0, 0, 5),
    ] {
        let pool = good(Shape::Single);
        put(&pool, ring_sector(0, slot), leaf, label, guid);
        let report = look(pool.arcs());
        only(&report, Kind::UberblockMisplaced);
        assert_eq!(report.summary.sequence, 103);
    }
    let pool = good(Shape::Single);
    put(&pool, ring_sector(0, 120), 0xd0, 0, pool_guid);
    assert_eq!(look(pool.arcs()).summary.sequence, 120);
}

#[test]
fn one_sequence_says_one_thing() {
    let change = |pool: &HandPool| Uberblock { wall_ns: 9, ..pool.uberblock.clone() };
    let pool = good(Shape::Single);
    let bytes = change(&pool).encode_for(Guid(0xd0), 2).unwrap();
    pool.disks[0].put(ring_sector(2, pool.uberblock.sequence), &bytes);
    only(&look(pool.arcs()), Kind::UberblocksDiffer);

    let pool = good(Shape::Mirror);
    pool.write_uberblock_to(1, &change(&pool));
    only(&look(pool.arcs()), Kind::UberblocksDiffer);
}

#[test]
fn a_pool_without_uberblocks() {
    let pool = HandPool::new(Shape::Single);
    only(&look(pool.arcs()), Kind::NoUberblock);

    let pool = good(Shape::Mirror);
    for sequence in 101..=103 {
        (0..4).for_each(|at| pool.disks[1].put(ring_sector(at, sequence), &[0; 4096]));
    }
    let report = look(pool.arcs());
    only(&report, Kind::UberblockMissing);
    assert!(report.is_clean());

    // The labels of an act that was cut off are no contradiction, newer or not.
    let sequence = pool.config.config_sequence;
    for sequence in [sequence, sequence + 1] {
        for label in 0..4 {
            put_label(&pool, 1, label, |label| {
                label.config.config_sequence = sequence;
                label.config.name = "never".into();
            });
        }
        only(&look(pool.arcs()), Kind::UberblockMissing);
    }
}

#[test]
fn an_uberblock_that_contradicts_itself() {
    for change in [
        |uberblock: &mut Uberblock| uberblock.txg.0 += 1,
        |uberblock: &mut Uberblock| uberblock.roots[1] = uberblock.roots[0],
        |uberblock: &mut Uberblock| uberblock.config_sequence = 2,
    ] {
        let mut pool = good(Shape::Single);
        pool.hooks.uberblock = Box::new(change);
        pool.write_uberblock();
        let report = look(pool.arcs());
        assert_eq!(report.count(Kind::UberblockInvalid), 1, "{report}");
    }
}

#[test]
fn outdated_leaves_have_no_vote_and_no_part() {
    let mut pool = good(Shape::Mirror);
    let named = Outdated { leaf: Guid(0xd1), since: 103 };
    pool.uberblock.outdated = vec![named];
    pool.uberblock.sequence += 10;
    pool.write_uberblock();
    // The other one has other uberblocks that are older than the one that names it.
    for at in 1..5 {
        let mut stale = pool.uberblock.clone();
        stale.outdated.clear();
        stale.sequence -= at;
        stale.mark = 1000;
        pool.write_uberblock_to(1, &stale);
    }
    // Its content does not matter.
    pool.disks[1].flip(pool.trees[0].unwrap().places[0].sector(), 5, 5);
    let report = look_deep(pool.arcs());
    assert_eq!(only(&report, Kind::LeafOutdated).at.disk.as_deref(), Some("diskd1"));
    assert_eq!(report.summary.sequence, 114);
    assert_eq!(report.summary.leaves[1].role, LeafRole::Outdated);
    assert!(report.is_clean());

    // One with a newer uberblock came back since.
    let mut back = pool.uberblock.clone();
    back.outdated.clear();
    back.sequence += 1;
    pool.write_uberblock_to(1, &back);
    assert_eq!(look(pool.arcs()).summary.sequence, 115);

    let mut other = pool.uberblock.clone();
    other.outdated[0].leaf = Guid(0xd0);
    other.sequence += 20;
    pool.write_uberblock_to(1, &other);
    let report = look(pool.arcs());
    assert_eq!(report.count(Kind::SplitBrain), 1, "{report}");
}

#[test]
fn a_leaf_may_be_one_root_behind_and_no_more() {
    let behind = |missed: u64| {
        let pool = good(Shape::Mirror);
        for sequence in (103 - missed + 1)..=103 {
            (0..4).for_each(|at| pool.disks[1].put(ring_sector(at, sequence), &[0; 4096]));
        }
        look(pool.arcs())
    };
    let report = behind(1);
    assert_eq!(kinds(&report), [], "{report}");
    assert_eq!(report.count(Kind::LeafBehind), 1);
    assert_eq!(only(&behind(2), Kind::LeafLeftBehind).at.disk.as_deref(), Some("diskd1"));
}
