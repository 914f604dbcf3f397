//! Disks that are put back from a copy of themselves: none is believed because nobody names it.

use std::time::Duration;

use aquifer_blockio::Disk;
use aquifer_ondisk::layout::LABEL_SECTORS;
use aquifer_pool::import::{FoundLeaf, ImportOptions, ImportReport, import, scan};
use aquifer_pool::{ActError, ImportError};
use aquifer_sim::{Corruption, Fault, FaultRule, Image, SimDisk, When};
use aquifer_vdev::LeafState;
use aquifer_vdev::label_io::read_labels;
use futures_util::future::join;

use crate::faults::{Fixture, states, version, write};
use crate::shapes::{Shape, named};

fn images(fixture: &Fixture) -> Vec<Image> {
    fixture.disks.iter().map(SimDisk::durable_image).collect()
}

/// A clean export, then copies of all disks.
fn exported(shape: Shape) -> (Fixture, Vec<Image>) {
    let mut fixture = Fixture::new(shape);
    fixture.with_pool(async |open| {
        write(open, 0, 1).await.unwrap();
        open.pool.export().await.unwrap();
    });
    let copies = images(&fixture);
    (fixture, copies)
}

/// A life that acknowledges a write of each of these slots, and is killed.
fn killed_after_writes(fixture: &mut Fixture, slots: std::ops::Range<u64>) {
    fixture.with_pool(async |open| {
        for slot in slots {
            write(open, slot, 1).await.unwrap();
        }
    });
}

/// Imports the pool with these options, and returns the states of its leaves and the report, or the
/// refusal.
fn imported(
    fixture: &mut Fixture,
    options: &ImportOptions,
) -> Result<(Vec<LeafState>, ImportReport), ImportError> {
    let (world, disks) = (fixture.world.clone(), named(&fixture.disks));
    let imported = fixture.sim.run_until(async {
        let (mut pools, _) = scan(disks).await;
        let (_, found) = pools.pop_first().unwrap();
        let (pool, report) = import(world, found, options).await?;
        let vdevs = pool.status().vdevs;
        let states = vdevs.iter().flat_map(|vdev| &vdev.leaves).map(|leaf| leaf.state);
        Ok((states.collect(), report))
    });
    fixture.sim.kill();
    imported.unwrap()
}

/// A copy of the log device from before the last import is no log device.
#[test]
pub fn an_older_copy_of_the_log_device_is_refused() {
    for shape in [Shape::SingleLog, Shape::MirrorLog] {
        let (mut fixture, copies) = exported(shape);
        killed_after_writes(&mut fixture, 1..40);
        let log = fixture.disks.len() - 1;
        let newest = fixture.disks[log].durable_image();
        fixture.disks[log].put_copy(copies[log].clone());
        let refused = imported(&mut fixture, &ImportOptions::default()).unwrap_err();
        let why = refused.to_string();
        assert!(matches!(refused, ImportError::LogMissing { .. }), "{why}");
        assert!(why.contains(&format!("d{log} (an older copy: it holds txg")), "{why}");
        assert!(why.contains("--missing-log") && why.contains("s later"), "{why}");
        // Nothing was changed: with the device itself all is there.
        fixture.disks[log].put_copy(newest);
        fixture.with_pool(async |open| {
            for slot in 0..40 {
                assert_eq!(version(open, slot).await, 1, "slot {slot}");
            }
        });
    }
}

/// By order the pool does without it, and says what that costs.
#[test]
fn the_pool_goes_on_without_an_older_log_device_by_order() {
    let (mut fixture, copies) = exported(Shape::MirrorLog);
    killed_after_writes(&mut fixture, 1..40);
    fixture.disks[2].put_copy(copies[2].clone());
    let options = ImportOptions { missing_log: true, ..ImportOptions::default() };
    let (states, report) = imported(&mut fixture, &options).unwrap();
    assert_eq!(states, [LeafState::Online, LeafState::Online, LeafState::Outdated]);
    assert!(report.dropped_log.is_some());
    // It is named from now on.
    let (states, _) = imported(&mut fixture, &ImportOptions::default()).unwrap();
    assert_eq!(states[2], LeafState::Outdated);
}

/// An exported pool needs no log: an older copy of the device costs nothing.
#[test]
fn an_older_copy_of_the_log_device_of_an_exported_pool_is_outdated() {
    let (mut fixture, copies) = exported(Shape::MirrorLog);
    fixture.with_pool(async |open| {
        write(open, 1, 1).await.unwrap();
        open.pool.export().await.unwrap();
    });
    fixture.disks[2].put_copy(copies[2].clone());
    let (states, report) = imported(&mut fixture, &ImportOptions::default()).unwrap();
    assert_eq!(states, [LeafState::Online, LeafState::Online, LeafState::Outdated]);
    assert!(report.notes.iter().any(|note| note.contains("an older copy")), "{:?}", report.notes);
}

/// With a whole side beside it an older copy is outdated: of data and log alike. That side is then
/// the last one with all data.
#[test]
pub fn an_older_copy_of_a_side_is_outdated() {
    for at in 0..4 {
        let (mut fixture, copies) = exported(Shape::MirrorLogMirror);
        killed_after_writes(&mut fixture, 1..40);
        fixture.with_pool(async |open| {
            write(open, 50, 1).await.unwrap();
            open.pool.sync().await.unwrap();
            write(open, 51, 1).await.unwrap();
        });
        fixture.disks[at].put_copy(copies[at].clone());
        let other = at ^ 1;
        let name = fixture.disks[other].name().to_string();
        fixture.with_pool(async |open| {
            let states = states(open);
            assert_ne!(states[at], LeafState::Online, "d{at}");
            for slot in (0..40).chain([50, 51]) {
                assert_eq!(version(open, slot).await, 1, "slot {slot}");
            }
            if at < 2 {
                let refused = open.pool.detach_disk(&name).await.unwrap_err().to_string();
                assert!(refused.contains("last disk that holds all data"), "{refused}");
                let refused = open.pool.take_away(&name).await.unwrap_err().to_string();
                assert!(refused.contains("is not in use"), "{refused}");
            }
        });
    }
}

/// An older copy of a side is resilvered, and does alone then.
#[test]
fn an_older_copy_of_a_side_comes_back_by_a_resilver() {
    let (mut fixture, copies) = exported(Shape::Mirror);
    killed_after_writes(&mut fixture, 1..40);
    fixture.with_pool(async |open| open.pool.sync().await.map(|_| ()).unwrap());
    fixture.disks[1].put_copy(copies[1].clone());
    let world = fixture.world.clone();
    fixture.with_pool(async |open| {
        while states(open) != [LeafState::Online; 2] {
            world.sleep(Duration::from_millis(50)).await;
        }
    });
    fixture.disks.remove(0);
    fixture.with_pool(async |open| {
        for slot in 0..40 {
            assert_eq!(version(open, slot).await, 1, "slot {slot}");
        }
    });
}

/// A copy of a side from before the last import lacks one uberblock, as after a power cut. It gets
/// all of the log before it counts.
#[test]
pub fn a_copy_from_before_the_last_import_gets_the_log() {
    let (mut fixture, copies) = exported(Shape::Mirror);
    killed_after_writes(&mut fixture, 1..20);
    fixture.disks[1].put_copy(copies[1].clone());
    // This import is killed before anything of the log is in a txg.
    let (states, _) = imported(&mut fixture, &ImportOptions::default()).unwrap();
    assert_eq!(states, [LeafState::Online; 2]);
    fixture.disks.remove(0);
    fixture.with_pool(async |open| {
        for slot in 0..20 {
            assert_eq!(version(open, slot).await, 1, "slot {slot}");
        }
    });
}

/// Nothing newer of a vdev is there: the import stops, and says how old the copy is.
#[test]
pub fn an_older_copy_of_the_only_side_stops_the_import() {
    for shape in [Shape::TwoSingles, Shape::SingleLog] {
        let (mut fixture, copies) = exported(shape);
        killed_after_writes(&mut fixture, 1..10);
        fixture.with_pool(async |open| open.pool.sync().await.map(|_| ()).unwrap());
        fixture.disks[0].put_copy(copies[0].clone());
        let refused = imported(&mut fixture, &ImportOptions::default()).unwrap_err();
        let why = refused.to_string();
        assert!(matches!(refused, ImportError::Behind { vdev: 0, .. }), "{why}");
        assert!(why.contains("d0 (an older copy: it holds txg"), "{why}");
        assert!(why.contains("txgs and") && why.contains("the pool's newest is txg"), "{why}");
    }
}

/// Two disks of one identity: the newer one is the leaf, in whatever order they are found.
#[test]
pub fn an_older_copy_beside_the_disk_is_passed_over() {
    for copy_first in [false, true] {
        let (mut fixture, copies) = exported(Shape::MirrorLog);
        killed_after_writes(&mut fixture, 1..40);
        let log = fixture.disks.pop().unwrap();
        let config = aquifer_sim::DiskConfig::default();
        let copy = fixture.sim.add_disk("copy", copies[2].clone(), config);
        let both = if copy_first { [copy, log] } else { [log, copy] };
        fixture.disks.extend(both);
        fixture.with_pool(async |open| {
            assert_eq!(states(open), [LeafState::Online; 3]);
            for slot in 0..40 {
                assert_eq!(version(open, slot).await, 1, "slot {slot}");
            }
        });
    }
}

/// Two that are equally new cannot be told apart.
#[test]
fn an_exact_copy_beside_the_disk_is_refused() {
    let (mut fixture, copies) = exported(Shape::Mirror);
    let config = aquifer_sim::DiskConfig::default();
    let copy = fixture.sim.add_disk("copy", copies[0].clone(), config);
    fixture.disks.push(copy);
    let refused = imported(&mut fixture, &ImportOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("d0 and copy are copies of each other"), "{refused}");
}

/// The label of a disk that was taken offline says so itself: alone it is not taken for the pool.
#[test]
fn a_disk_that_was_taken_offline_does_not_come_up_alone_unasked() {
    for temporary in [false, true] {
        let mut fixture = Fixture::new(Shape::Mirror);
        fixture.with_pool(async |open| {
            write(open, 0, 1).await.unwrap();
            open.pool.offline_disk("d0", temporary).await.unwrap();
            write(open, 1, 1).await.unwrap();
            open.pool.export().await.unwrap();
        });
        let other = fixture.disks.pop().unwrap();
        let refused = imported(&mut fixture, &ImportOptions::default()).unwrap_err();
        let why = refused.to_string();
        assert!(matches!(refused, ImportError::TakenOffline { vdev: 0, .. }), "{why}");
        assert!(why.contains("d0 (txg") && why.contains("--use-offline"), "{why}");
        let options = ImportOptions { use_offline: true, ..ImportOptions::default() };
        let (states, report) = imported(&mut fixture, &options).unwrap();
        assert_eq!(states, [LeafState::Online, LeafState::Missing]);
        assert!(report.notes.iter().any(|note| note.contains("by order")), "{:?}", report.notes);
        // It was an order: nobody asks again. But the two have two pasts now.
        imported(&mut fixture, &ImportOptions::default()).unwrap();
        fixture.disks.push(other);
        let refused = imported(&mut fixture, &ImportOptions::default()).unwrap_err().to_string();
        assert!(refused.contains("d0 (txg") && refused.contains("d1 (txg"), "{refused}");
        assert!(refused.contains("were in use apart from each other"), "{refused}");
    }
}

/// A disk that was in use apart comes back only if somebody gives up what only it has.
#[test]
pub fn a_disk_with_a_past_of_its_own_comes_online_by_force_only() {
    let mut fixture = Fixture::new(Shape::Mirror);
    fixture.with_pool(async |open| {
        write(open, 0, 1).await.unwrap();
        open.pool.offline_disk("d0", false).await.unwrap();
        write(open, 1, 1).await.unwrap();
        open.pool.sync().await.unwrap();
        open.pool.export().await.unwrap();
    });
    let other = fixture.disks.pop().unwrap();
    let options = ImportOptions { use_offline: true, ..ImportOptions::default() };
    imported(&mut fixture, &options).unwrap();
    let world = fixture.world.clone();
    fixture.with_pool(async |open| {
        write(open, 1, 2).await.unwrap();
        let again = || named(std::slice::from_ref(&other)).remove(0);
        let refused = open.pool.online_disk("d1", again(), false).await.unwrap_err();
        let why = refused.to_string();
        assert!(matches!(refused, ActError::OwnPast { .. }), "{why}");
        assert!(why.contains("online -f") && why.contains("they parted at txg"), "{why}");
        assert_ne!(states(open)[1], LeafState::Online);
        open.pool.online_disk("d1", again(), true).await.unwrap();
        while states(open) != [LeafState::Online; 2] {
            world.sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(version(open, 1).await, 2);
        open.pool.export().await.unwrap();
    });
    fixture.disks = vec![other];
    fixture.with_pool(async |open| assert_eq!(version(open, 1).await, 2));
}

/// A disk that was away for a while has no past of its own, whatever its uberblock names.
#[test]
fn a_disk_that_was_only_away_comes_online_without_force() {
    let mut fixture = Fixture::new(Shape::Mirror);
    let disk = fixture.disks[1].clone();
    let world = fixture.world.clone();
    fixture.with_pool(async |open| {
        for round in 1..4 {
            open.pool.offline_disk("d1", round % 2 == 0).await.unwrap();
            write(open, 0, round).await.unwrap();
            open.pool.sync().await.unwrap();
            let again = named(std::slice::from_ref(&disk)).remove(0);
            open.pool.online_disk("d1", again, false).await.unwrap();
            while states(open) != [LeafState::Online; 2] {
                world.sleep(Duration::from_millis(50)).await;
            }
        }
    });
}

async fn labels(disk: &SimDisk) -> FoundLeaf {
    let disk = named(std::slice::from_ref(disk)).remove(0);
    let labels = read_labels(&disk.disk).await.unwrap();
    FoundLeaf { disk, labels }
}

/// A scrub that found a damaged label, and an act that changes all labels meanwhile.
#[test]
pub fn a_scrub_writes_no_older_config_over_a_newer_one() {
    let mut fixture = Fixture::new(Shape::Mirror);
    let disk = fixture.disks[0].clone();
    let world = fixture.world.clone();
    fixture.with_pool(async |open| {
        // The scrub waits for one label, when it has seen that another one is damaged.
        disk.corrupt(8, Corruption::Garbage);
        let late = FaultRule::new(Fault::Late(Duration::from_millis(200)), When::OnceAfter(0));
        disk.inject(late.within(LABEL_SECTORS..2 * LABEL_SECTORS));
        let act = async {
            world.sleep(Duration::from_millis(20)).await;
            open.pool.offline_disk("d1", false).await.unwrap();
        };
        let (scrubbed, ()) = join(open.pool.examine_in_place(), act).await;
        scrubbed.unwrap();
        let found = labels(&disk).await.labels;
        assert_eq!(found.damaged, 0);
        let (_, other) = found.label.config.leaves().nth(1).unwrap();
        assert!(other.offline, "an answered act is in the labels");
    });
    let (states, _) = imported(&mut fixture, &ImportOptions::default()).unwrap();
    assert_eq!(states, [LeafState::Online, LeafState::Outdated]);
}

/// Labels with an older config than the uberblock names: the import is refused, and goes on by
/// order.
#[test]
pub fn an_older_config_than_the_uberblock_names_is_refused() {
    let mut fixture = Fixture::new(Shape::Single);
    let before = fixture.disks[0].durable_image();
    fixture.with_pool(async |open| {
        write(open, 0, 1).await.unwrap();
        open.pool.use_feature(aquifer_ondisk::config::FEATURE_SNAPSHOTS).await.unwrap();
        write(open, 1, 1).await.unwrap();
    });
    let mut image = fixture.disks[0].durable_image();
    // As a scrub of earlier releases left them.
    let at_end = image.sectors() - 1024;
    for first in [0, LABEL_SECTORS, at_end, at_end + LABEL_SECTORS].map(|label| label + 8) {
        for sector in first..first + 56 {
            match before.get(sector) {
                Some(page) => image.set(sector, page.clone()),
                None => image.set(sector, aquifer_blockio::Page::zeroed()),
            };
        }
    }
    fixture.disks[0].put_copy(image);
    let refused = imported(&mut fixture, &ImportOptions::default()).unwrap_err();
    assert_eq!(refused, ImportError::OldConfig { config: 1, named: 2 });
    let options = ImportOptions { old_config: true, ..ImportOptions::default() };
    imported(&mut fixture, &options).unwrap();
    fixture.with_pool(async |open| {
        assert_eq!((version(open, 0).await, version(open, 1).await), (1, 1));
    });
}
