//! The effects of a power cut and a kill.

use std::collections::BTreeSet;

use aquifer_blockio::Disk;
use futures_util::future::{join, join_all};

use crate::disk::tests::{add, durable, exact, flush, page, pages, read, word, words, write};
use crate::{CutMode, CutPlan, Fault, FaultRule, Latency, Sim, SimDisk, Stop};

/// Submits the writes side by side and halts the machine with all of them in flight.
fn leave_in_flight(sim: &mut Sim, disk: &SimDisk, writes: &[(u64, &[u64])]) {
    sim.plan_cut(CutPlan::AtEvent(sim.io_events() + writes.len() as u64));
    let all = join_all(writes.iter().map(|(sector, words)| disk.write(*sector, pages(words))));
    assert_eq!(sim.run_until(all).unwrap_err(), Stop::Halted);
}

fn durable_words(disk: &SimDisk, count: u64) -> Vec<Option<u64>> {
    (0..count).map(|sector| durable(disk, sector)).collect()
}

#[test]
fn all_lost_and_all_kept_hold_for_cached_and_in_flight_writes() {
    for (mode, expected) in [(CutMode::AllLost, [9, 0, 0]), (CutMode::AllKept, [9, 2, 3])] {
        for seed in 0..20 {
            let (mut sim, disk) = exact(seed, Latency::default());
            write(&mut sim, &disk, 0, &[9]);
            flush(&mut sim, &disk).unwrap();
            write(&mut sim, &disk, 1, &[2]);
            leave_in_flight(&mut sim, &disk, &[(2, &[3])]);
            sim.power_cut(mode);
            assert_eq!(durable_words(&disk, 3), expected.map(Some), "{mode:?}");
            assert_eq!(disk.volatile_sectors(), 0);
        }
    }
}

#[test]
fn all_kept_keeps_the_newest_version() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1]);
    write(&mut sim, &disk, 0, &[2]);
    sim.power_cut(CutMode::AllKept);
    assert_eq!(durable(&disk, 0), Some(2));
}

#[test]
fn any_unflushed_version_of_a_sector_may_win() {
    for mode in [CutMode::PerWrite, CutMode::PerSector] {
        let mut seen = BTreeSet::new();
        for seed in 0..100 {
            let (mut sim, disk) = exact(seed, Latency::default());
            write(&mut sim, &disk, 0, &[1]);
            flush(&mut sim, &disk).unwrap();
            write(&mut sim, &disk, 0, &[2]);
            write(&mut sim, &disk, 0, &[3]);
            leave_in_flight(&mut sim, &disk, &[(0, &[4])]);
            sim.power_cut(mode);
            seen.extend(durable(&disk, 0));
        }
        assert_eq!(seen, BTreeSet::from([1, 2, 3, 4]), "{mode:?}");
    }
}

#[test]
fn a_write_survives_is_lost_or_survives_in_any_part() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let (mut sim, disk) = exact(seed, Latency::default());
        write(&mut sim, &disk, 0, &[1, 1, 1]);
        flush(&mut sim, &disk).unwrap();
        write(&mut sim, &disk, 0, &[2, 2, 2]);
        sim.power_cut(CutMode::PerWrite);
        seen.insert(durable_words(&disk, 3));
    }
    for subset in 0..8u32 {
        let wanted: Vec<_> = (0..3).map(|bit| Some(1 + u64::from(subset >> bit & 1))).collect();
        assert!(seen.contains(&wanted), "{wanted:?}");
    }
    assert!(seen.iter().any(|words| words.contains(&None)), "a torn one");
}

#[test]
fn writes_meet_their_fates_independently() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let (mut sim, disk) = exact(seed, Latency::default());
        write(&mut sim, &disk, 0, &[2]);
        write(&mut sim, &disk, 1, &[2]);
        leave_in_flight(&mut sim, &disk, &[(2, &[2])]);
        sim.power_cut(CutMode::PerWrite);
        seen.insert(durable_words(&disk, 3));
    }
    for subset in 0..8u64 {
        let wanted: Vec<_> = (0..3).map(|bit| Some(2 * (subset >> bit & 1))).collect();
        assert!(seen.contains(&wanted), "{wanted:?}");
    }
}

#[test]
fn a_torn_sector_is_made_of_pieces_of_512_bytes() {
    for mode in [CutMode::PerWrite, CutMode::PerSector] {
        let mut masks = BTreeSet::new();
        for seed in 0..400 {
            let (mut sim, disk) = exact(seed, Latency::default());
            write(&mut sim, &disk, 0, &[1]);
            flush(&mut sim, &disk).unwrap();
            write(&mut sim, &disk, 0, &[2]);
            sim.power_cut(mode);
            let held = disk.durable_page(0);
            if word(&held).is_some() {
                continue;
            }
            let mut mask = 0;
            for (index, piece) in held.chunks(512).enumerate() {
                let first = u64::from_le_bytes(piece[..8].try_into().unwrap());
                assert!([1, 2].contains(&first));
                assert!(piece.chunks(8).all(|word| word == first.to_le_bytes()), "torn within 512");
                mask |= (first - 1) << index;
            }
            assert!(mask != 0 && mask != 255);
            masks.insert(mask);
        }
        assert!(masks.len() >= 10, "{mode:?}: {masks:?}");
        let prefix = |mask: &u64| (mask + 1).is_power_of_two();
        assert!(masks.iter().any(|mask| !prefix(mask)), "not prefixes only");
    }
}

#[test]
fn a_durable_write_in_flight_promises_nothing() {
    let mut seen = BTreeSet::new();
    for seed in 0..50 {
        let (mut sim, disk) = exact(seed, Latency::default());
        sim.plan_cut(CutPlan::AtEvent(1));
        sim.run_until(disk.write_durable(0, pages(&[1]))).unwrap_err();
        sim.power_cut(CutMode::PerWrite);
        seen.extend(durable(&disk, 0));
    }
    assert_eq!(seen, BTreeSet::from([0, 1]));
}

#[test]
fn a_fault_of_a_write_in_flight_holds_at_the_cut() {
    let faults = [Fault::LostWrite, Fault::MisdirectedWrite { to: Some(1) }];
    for (fault, expected) in faults.into_iter().zip([[0, 0], [0, 7]]) {
        let (mut sim, disk) = exact(1, Latency::default());
        disk.inject(FaultRule::once(fault));
        leave_in_flight(&mut sim, &disk, &[(0, &[7])]);
        sim.power_cut(CutMode::AllKept);
        assert_eq!(durable_words(&disk, 2), expected.map(Some), "{fault:?}");
    }
}

#[test]
fn one_disk_loses_and_each_does_in_its_turn() {
    let mut losers = BTreeSet::new();
    for seed in 0..40 {
        let (mut sim, first) = exact(seed, Latency::default());
        let disks =
            [first, add(&mut sim, "b", Latency::default()), add(&mut sim, "c", Latency::default())];
        for disk in &disks {
            write(&mut sim, disk, 0, &[1]);
        }
        sim.power_cut(CutMode::OneDiskLoses);
        let held: Vec<_> = disks.iter().map(|disk| durable(disk, 0).unwrap()).collect();
        assert_eq!(held.iter().sum::<u64>(), 2, "{held:?}");
        losers.insert(held);
    }
    assert_eq!(losers.len(), 3);
}

#[test]
fn every_mode_is_drawn() {
    let mut seen = Vec::new();
    for seed in 0..60 {
        let mode = exact(seed, Latency::default()).0.power_cut_any();
        if !seen.contains(&mode) {
            seen.push(mode);
        }
    }
    assert_eq!(seen.len(), CutMode::ALL.len());
}

#[test]
fn a_kill_keeps_what_completed_and_a_later_power_cut_may_still_lose_it() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1]);
    sim.kill();
    assert_eq!(read(&mut sim, &disk, 0, 1), [Some(1)], "the next process reads the cache");
    assert_eq!(durable(&disk, 0), Some(0), "but it is not durable");
    sim.kill();
    sim.power_cut(CutMode::AllLost);
    assert_eq!(read(&mut sim, &disk, 0, 1), [Some(0)]);
}

#[test]
fn a_flush_of_the_next_process_covers_what_the_killed_one_wrote() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1]);
    sim.kill();
    flush(&mut sim, &disk).unwrap();
    sim.power_cut(CutMode::AllLost);
    assert_eq!(durable(&disk, 0), Some(1));
}

#[test]
fn a_kill_carries_out_a_prefix_of_what_was_in_flight() {
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let (mut sim, disk) = exact(seed, Latency::default());
        leave_in_flight(&mut sim, &disk, &[(0, &[1, 1, 1])]);
        sim.kill();
        let held = read(&mut sim, &disk, 0, 3);
        assert!(held.is_sorted_by(|left, right| left >= right), "a prefix: {held:?}");
        seen.insert(held);
        sim.power_cut(CutMode::AllLost);
        assert_eq!(durable_words(&disk, 3), [Some(0); 3], "and nothing of it durable");
    }
    assert_eq!(seen.len(), 4);
}

#[test]
fn a_kill_carries_out_overlapping_writes_in_any_order() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (mut sim, disk) = exact(seed, Latency::default());
        leave_in_flight(&mut sim, &disk, &[(0, &[1, 1]), (1, &[2, 2])]);
        sim.kill();
        seen.insert(read(&mut sim, &disk, 0, 3));
    }
    for order in [[1, 1, 2], [1, 2, 2]] {
        assert!(seen.contains(order.map(Some).as_slice()), "both whole: {order:?}");
    }
}

#[test]
fn a_flush_in_flight_at_a_kill_may_or_may_not_be_carried_out() {
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let (mut sim, disk) = exact(seed, Latency::default());
        write(&mut sim, &disk, 0, &[1]);
        sim.plan_cut(CutPlan::AtEvent(sim.io_events() + 1));
        sim.run_until(disk.flush()).unwrap_err();
        sim.kill();
        seen.insert(durable(&disk, 0));
    }
    assert_eq!(seen, BTreeSet::from([Some(0), Some(1)]));
}

#[test]
fn nothing_completes_into_the_next_incarnation() {
    for reboot in [true, false] {
        let (mut sim, disk) = exact(1, Latency::fixed(1000, 1000));
        leave_in_flight(&mut sim, &disk, &[(0, &[1])]);
        if reboot {
            sim.power_cut(CutMode::AllLost)
        } else {
            sim.kill()
        }
        let after = disk.newest_page(0);
        let (first, second) =
            sim.run_until(join(disk.read(0, 1), disk.write(1, pages(&[5])))).unwrap();
        assert_eq!((words(&first.unwrap()), second), (words(&[after]), Ok(())));
        assert_eq!(sim.io_events(), 4, "two submissions, two completions");
    }
}

#[test]
fn durable_content_outlives_any_number_of_cuts() {
    let (mut sim, disk) = exact(4, Latency::default());
    for turn in 1..40u64 {
        write(&mut sim, &disk, turn, &[turn]);
        flush(&mut sim, &disk).unwrap();
        write(&mut sim, &disk, 50, &[turn]);
        if turn % 3 == 0 {
            sim.kill();
        } else {
            sim.power_cut_any();
        }
        for sector in 1..=turn {
            assert_eq!(durable(&disk, sector), Some(sector));
        }
    }
}

#[test]
fn an_image_taken_from_a_disk_starts_another_machine() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 5, &[5]);
    flush(&mut sim, &disk).unwrap();
    let base = disk.durable_image();
    write(&mut sim, &disk, 5, &[6]);
    flush(&mut sim, &disk).unwrap();
    let mut other = Sim::new(2);
    let copy = other.add_disk("copy", base.clone(), crate::DiskConfig::default());
    assert_eq!(read(&mut other, &copy, 5, 1), [Some(5)]);
    other.run_until(copy.write_durable(5, vec![page(7)])).unwrap().unwrap();
    assert_eq!(word(base.get(5).unwrap()), Some(5), "the base image never changes");
}
