//! Disks that err too often, and disks that are much slower than their kind.

use std::time::Duration;

use aquifer_sim::{Corruption, Fault, FaultRule, Latency, Vanish, When};
use aquifer_vdev::{IoKind, LeafState};

use crate::clients::Open;
use crate::hangs::{Machine, check, load, states, write};
use crate::shapes::{Shape, base};
use crate::slots::SLOTS;

/// A mirror with something in every slot, and nothing of it in memory.
fn filled(seed: u64) -> Machine {
    let mut machine = Machine::new(seed, base(Shape::Mirror));
    machine.live(async |open| {
        for slot in 0..SLOTS {
            write(open, slot, 1).await.unwrap();
        }
        open.pool.export().await.unwrap();
    });
    machine
}

async fn read_all(open: &Open) {
    for slot in 0..SLOTS {
        check(open, slot, 1).await.unwrap();
    }
}

/// The side that serves the reads of these slots.
fn side_that_is_read(machine: &mut Machine) -> usize {
    let reads: Vec<u64> = machine.live(async |open| {
        let count = || {
            let vdevs = open.pool.status().vdevs;
            vdevs[0].leaves.iter().map(|leaf| leaf.io.reads.latency.count()).collect::<Vec<_>>()
        };
        let before = count();
        read_all(open).await;
        count().iter().zip(before).map(|(now, then)| now - then).collect()
    });
    usize::from(reads[1] > reads[0])
}

#[test]
fn a_side_whose_reads_fail_too_often_is_taken_out_and_tried_again_ever_later() {
    let mut machine = filled(60);
    let bad = side_that_is_read(&mut machine);
    let (world, disk) = (machine.world.clone(), machine.disks[bad].clone());
    machine.live(async |open| {
        let leaf = || open.pool.status().vdevs[0].leaves[bad].clone();
        // What was read is in memory: other slots each time.
        let read_some = async |round: u64| {
            for slot in round * SLOTS / 4..(round + 1) * SLOTS / 4 {
                check(open, slot, 1).await.unwrap();
            }
        };
        for (round, rest_s) in [(0, 10), (1, 20), (2, 40)] {
            disk.inject(FaultRule::new(Fault::ReadError, When::Always));
            let failed = world.now();
            read_some(round).await;
            assert!(leaf().trouble.is_faulted, "{rest_s}");
            let why = leaf().last_error.unwrap();
            assert!(why.starts_with("too many errors: 10 reads in 10 minutes; read at"), "{why}");
            // Nobody is answered without an uberblock that names it.
            write(open, 0, 1).await.unwrap();
            assert_eq!(leaf().state, LeafState::Outdated);
            disk.clear_faults();
            while leaf().state != LeafState::Online {
                world.sleep(Duration::from_millis(100)).await;
            }
            let rested = (world.now() - failed).as_secs();
            assert!((rest_s..rest_s + 4).contains(&rested), "{rested} s, not {rest_s}");
            assert!(!leaf().trouble.is_faulted);
        }
        // The administrator has seen to it.
        disk.inject(FaultRule::new(Fault::ReadError, When::Always));
        read_some(3).await;
        write(open, 0, 2).await.unwrap();
        assert_eq!(leaf().state, LeafState::Outdated);
        disk.clear_faults();
        open.pool.clear_errors(Some(leaf().guid));
        world.sleep(Duration::from_secs(2)).await;
        assert_eq!(leaf().state, LeafState::Online);
        assert_eq!((leaf().read_errors, leaf().last_error), (0, None));
    });
    machine.disks[1 - bad].vanish(Vanish::PowerLost);
    machine.live(async |open| {
        check(open, 0, 2).await.unwrap();
        check(open, 1, 1).await.unwrap();
    });
}

#[test]
fn the_last_whole_side_stays_however_often_it_errs() {
    let mut machine = filled(61);
    let (world, disks) = (machine.world.clone(), machine.disks.clone());
    machine.live(async |open| {
        disks[1].inject(FaultRule::once(Fault::FlushError));
        write(open, 0, 2).await.unwrap();
        assert_eq!(states(open), [LeafState::Online, LeafState::Outdated]);
        disks[0].inject(FaultRule::new(Fault::ReadError, When::Always));
        for slot in 1..40 {
            check(open, slot, 1).await.unwrap_err();
        }
        disks[0].clear_faults();
        assert_eq!(states(open)[0], LeafState::Online);
        while states(open)[1] != LeafState::Online {
            world.sleep(Duration::from_millis(100)).await;
        }
        read_all(open).await;
    });
}

/// Each side has what the other lacks: none of it is lost while one is out of use.
#[test]
fn a_side_that_errs_too_often_is_read_where_nothing_else_verifies() {
    let mut machine = filled(62);
    let bad = side_that_is_read(&mut machine);
    let (good, bad) = (machine.disks[1 - bad].clone(), machine.disks[bad].clone());
    machine.live(async |open| {
        let sectors: Vec<u64> =
            (0..SLOTS).map(|slot| open.slots.committed(slot).unwrap().place.sector()).collect();
        let rot = |slot: usize| good.corrupt(sectors[slot], Corruption::Zeros);
        rot(70);
        for sector in &sectors[..12] {
            bad.mark_unreadable(*sector..*sector + 1);
        }
        for slot in 0..12 {
            check(open, slot, 1).await.unwrap();
        }
        write(open, 0, 1).await.unwrap();
        assert!(states(open).contains(&LeafState::Outdated), "{:?}", states(open));
        for slot in 12..SLOTS {
            check(open, slot, 1).await.unwrap();
        }
    });
}

#[test]
fn bad_copies_degrade_a_side_and_all_are_mended() {
    let mut machine = filled(63);
    let bad = side_that_is_read(&mut machine);
    let (world, disk) = (machine.world.clone(), machine.disks[bad].clone());
    machine.live(async |open| {
        let leaf = || open.pool.status().vdevs[0].leaves[bad].clone();
        for slot in 0..40 {
            let sector = open.slots.committed(slot).unwrap().place.sector();
            disk.corrupt(sector, Corruption::Zeros);
            check(open, slot, 1).await.unwrap();
            assert_eq!(leaf().trouble.is_degraded, slot >= 9, "{slot}");
        }
        // Repairs go on behind a read.
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!((leaf().state, leaf().repaired), (LeafState::Online, 40));
        open.pool.clear_errors(Some(leaf().guid));
        assert!(!leaf().trouble.is_degraded);
    });
}

/// One side takes 60 ms for everything, the other a moment: it is named, and stays in use.
#[test]
fn a_side_much_slower_than_the_other_is_named_until_it_keeps_up() {
    let mut machine = filled(64);
    let (world, disks) = (machine.world.clone(), machine.disks.clone());
    machine.live(async |open| {
        let slow = || open.pool.status().vdevs[0].leaves.iter().map(|l| l.trouble.slow).collect();
        disks[1].set_latency(Latency::fixed(60_000_000, 60_000_000));
        load(&*world, open, 90).await.unwrap();
        assert_eq!(slow(), vec![None, None]);
        load(&*world, open, 120).await.unwrap();
        let told: Vec<Option<aquifer_vdev::Slow>> = slow();
        let [None, Some(found)] = told[..] else { panic!("{told:?}") };
        assert!(found.own_ns >= 60_000_000 && found.others_ns < 6_000_000, "{found:?}");
        assert_ne!(found.kind, IoKind::Read);
        disks[1].set_latency(Latency::default());
        load(&*world, open, 200).await.unwrap();
        assert_eq!(slow(), vec![None, None]);
        assert_eq!(states(open), [LeafState::Online; 2]);
    });
}

/// A machine that is slow as a whole blames no disk.
#[test]
fn disks_that_are_slow_together_are_not_named() {
    let mut machine = filled(65);
    let (world, disks) = (machine.world.clone(), machine.disks.clone());
    machine.live(async |open| {
        for base_ns in [200_000, 300_000_000, 1_000_000] {
            disks.iter().for_each(|disk| disk.set_latency(Latency::fixed(base_ns, base_ns)));
            load(&*world, open, 180).await.unwrap();
            let leaves = open.pool.status().vdevs[0].leaves.clone();
            assert!(leaves.iter().all(|leaf| leaf.trouble.slow.is_none()), "{base_ns}");
        }
    });
}

/// A side comes back. While another one is resilvered, the first is taken out for its errors: its
/// rest begins then, not when it came back.
#[test]
fn a_side_taken_out_while_another_is_resilvered_rests_from_its_failure() {
    let images = crate::sides::mirrors().pop().unwrap().images;
    let mut machine = Machine::new(66, images);
    machine.live(async |open| {
        for slot in 0..SLOTS {
            write(open, slot, 1).await.unwrap();
        }
        open.pool.export().await.unwrap();
    });
    let (world, disks) = (machine.world.clone(), machine.disks.clone());
    machine.live(async |open| {
        let wait = |ms| world.sleep(Duration::from_millis(ms));
        // Two sides miss something. One is soon back, then it is the turn of the other, which is
        // slow.
        for disk in &disks[..2] {
            disk.inject(FaultRule::once(Fault::FlushError));
        }
        disks[1].set_latency(Latency::fixed(400_000_000, 400_000_000));
        write(open, 0, 2).await.unwrap();
        while states(open)[0] != LeafState::Online {
            wait(10).await;
        }
        let came_back = world.now();
        wait(8000).await;
        disks[0].inject(FaultRule::new(Fault::ReadError, When::Always));
        for slot in 0..SLOTS {
            check(open, slot, 1).await.unwrap();
        }
        let failed = world.now();
        assert!(open.pool.status().vdevs[0].leaves[0].trouble.is_faulted);
        disks[0].clear_faults();
        // A rest from its return is over before the turn of the other is.
        while world.now() < came_back + Duration::from_secs(11) {
            wait(10).await;
        }
        assert_eq!(states(open)[1..], [LeafState::Resilvering, LeafState::Online]);
        disks[1].set_latency(Latency::default());
        while states(open)[1] != LeafState::Online {
            wait(10).await;
        }
        let turn_ended = world.now() - failed;
        assert!(turn_ended < Duration::from_secs(8), "{turn_ended:?}");
        while states(open)[0] != LeafState::Online {
            wait(10).await;
        }
        let rested = world.now() - failed;
        assert!(rested >= Duration::from_secs(10), "{rested:?}");
    });
}
