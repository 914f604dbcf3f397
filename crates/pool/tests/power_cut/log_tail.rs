//! Batches of the intent log that a disk does not return as they were.

use aquifer_blockio::buf::bytes_of;
use aquifer_ondisk::log_batch::BatchHeader;
use aquifer_pool::import::{ImportOptions, import, scan};
use aquifer_sim::{Corruption, Fault, FaultRule, SimDisk, When};

use crate::clients::open;
use crate::faults::{Fixture, version, write};
use crate::shapes::{Shape, named};

const WRITES: u64 = 8;

/// The places of batches with a payload, in order, and the first page of each payload.
fn batches(disk: &SimDisk) -> Vec<(u64, u64)> {
    let image = disk.durable_image();
    let mut found = Vec::new();
    image.for_each(|sector, page| {
        let Ok((header_sectors, 1..)) = BatchHeader::peek_sectors(page.as_slice()) else { return };
        let pages = (sector..).take(header_sectors).filter_map(|at| image.get(at).cloned());
        if BatchHeader::decode(&bytes_of(&pages.collect::<Vec<_>>())).is_ok() {
            found.push((sector, sector + header_sectors as u64));
        }
    });
    found.sort_unstable();
    found
}

fn with_batches(shape: Shape) -> Fixture {
    let mut fixture = Fixture::new(shape);
    fixture.with_pool(async |open| {
        for slot in 0..WRITES {
            write(open, slot, 1).await.unwrap();
        }
    });
    fixture
}

/// The reason why the import is refused.
fn refusal(fixture: &mut Fixture) -> String {
    let (world, disks) = (fixture.world.clone(), named(&fixture.disks));
    let options = ImportOptions::default();
    let opened = open(world, disks, &options);
    fixture.sim.run_until(opened).unwrap().err().expect("the import is refused")
}

/// A batch was durable, as a later one proves, and is missing: that is no end of the log.
#[test]
fn a_batch_that_was_durable_is_missed() {
    for at in 0..WRITES as usize - 1 {
        for is_payload in [false, true] {
            let mut fixture = with_batches(Shape::Single);
            let (head, payload) = batches(&fixture.disks[0])[at];
            let sector = if is_payload { payload } else { head };
            fixture.disks[0].corrupt(sector, Corruption::Garbage);
            let why = refusal(&mut fixture);
            assert!(why.contains("the intent log is damaged"), "batch {at}: {why}");
            fixture.sim.kill();
            let (world, disks) = (fixture.world.clone(), named(&fixture.disks));
            let options = ImportOptions { discard_log: true, ..ImportOptions::default() };
            let there = fixture.sim.run_until(async {
                let open = open(world, disks, &options).await.unwrap();
                let mut there = 0;
                while let Some(read) = open.slots.read(there).await.unwrap() {
                    assert_eq!(crate::slots::version_of(there, &read), 1);
                    there += 1;
                }
                assert!(open.dropped.is_some_and(|dropped| !dropped.rewound), "it is said");
                there
            });
            assert_eq!(there.unwrap(), at as u64, "what came before it is there");
        }
    }
}

/// A batch that cannot be read is no end of the log either: the import is refused until it can be
/// read, and nothing is lost.
#[test]
fn a_batch_that_cannot_be_read_is_missed() {
    for at in 0..WRITES as usize - 1 {
        for is_payload in [false, true] {
            let mut fixture = with_batches(Shape::Single);
            let (head, payload) = batches(&fixture.disks[0])[at];
            let sector = if is_payload { payload } else { head };
            fixture.disks[0]
                .inject(FaultRule::new(Fault::ReadError, When::Always).within(sector..sector + 1));
            let why = refusal(&mut fixture);
            assert!(
                why.contains("cannot be read") && why.contains("Nothing is lost"),
                "{at}: {why}"
            );
            fixture.disks[0].clear_faults();
            fixture.sim.kill();
            fixture.with_pool(async |open| {
                assert_eq!(open.dropped, None);
                for slot in 0..WRITES {
                    assert_eq!(version(open, slot).await, 1, "batch {at}, slot {slot}");
                }
            });
        }
    }
}

/// The end of the log may be on one side only, or good on one side only. After an import it is good
/// on both: the other side may go away.
#[test]
fn a_batch_that_is_good_on_one_side_is_so_on_both_after_an_import() {
    for (bad, is_payload) in [(0, false), (0, true), (1, false), (1, true)] {
        let mut fixture = with_batches(Shape::Mirror);
        let (head, payload) = *batches(&fixture.disks[0]).last().unwrap();
        let sector = if is_payload { payload } else { head };
        fixture.disks[bad].corrupt(sector, Corruption::Garbage);
        let (mut pools, _) = fixture.sim.run_until(scan(named(&fixture.disks))).unwrap();
        let (_, found) = pools.pop_first().unwrap();
        let options = ImportOptions::default();
        fixture.sim.run_until(import(fixture.world.clone(), found, &options)).unwrap().unwrap();
        fixture.sim.kill();
        fixture.disks = vec![fixture.disks[bad].clone()];
        fixture.with_pool(async |open| {
            for slot in 0..WRITES {
                assert_eq!(version(open, slot).await, 1, "side {bad}, slot {slot}");
            }
        });
    }
}
