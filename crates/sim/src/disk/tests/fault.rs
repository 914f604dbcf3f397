//! The effects of faults, and that they come when ordered.

use std::collections::BTreeSet;
use std::time::Duration;

use aquifer_blockio::{Disk, DiskError, World};
use futures_util::future::{join, join_all};

use crate::disk::tests::{add, durable, exact, flush, page, pages, read, write};
use crate::{Corruption, CutMode, Fault, FaultRule, Latency, Sim, SimDisk, Vanish, When};

fn is_eio(error: &DiskError, wanted: &str) -> bool {
    matches!(error, DiskError::Io { operation, errno: 5, .. } if *operation == wanted)
}

fn try_read(sim: &mut Sim, disk: &SimDisk, sector: u64, count: usize) -> Result<(), DiskError> {
    sim.run_until(disk.read(sector, count)).unwrap().map(|_| ())
}

fn try_write(sim: &mut Sim, disk: &SimDisk, sector: u64, words: &[u64]) -> Result<(), DiskError> {
    sim.run_until(disk.write(sector, pages(words))).unwrap()
}

#[test]
fn a_one_off_read_error_strikes_once_and_only_reads() {
    let (mut sim, disk) = exact(1, Latency::default());
    disk.inject(FaultRule::once(Fault::ReadError));
    write(&mut sim, &disk, 0, &[1]);
    flush(&mut sim, &disk).unwrap();
    let error = try_read(&mut sim, &disk, 0, 1).unwrap_err();
    assert!(is_eio(&error, "read"), "{error}");
    assert_eq!(read(&mut sim, &disk, 0, 1), [Some(1)]);
    assert_eq!(disk.counters().errors, 1);
}

#[test]
fn a_rule_waits_as_long_as_told_and_strikes_only_its_range() {
    let (mut sim, disk) = exact(1, Latency::default());
    disk.inject(FaultRule::new(Fault::ReadError, When::OnceAfter(2)).within(10..12));
    let outcomes: Vec<bool> = [(0, 10), (12, 5), (9, 2), (11, 1), (10, 1), (10, 1)]
        .into_iter()
        .map(|(sector, count)| try_read(&mut sim, &disk, sector, count).is_ok())
        .collect();
    // Neighbours do not count; the two that touch the range pass, the third fails, once.
    assert_eq!(outcomes, [true, true, true, true, false, true]);
}

#[test]
fn a_rule_by_probability_strikes_as_often_as_told_until_cleared() {
    let (mut sim, disk) = exact(1, Latency::default());
    disk.inject(FaultRule::new(Fault::ReadError, When::Ppm(300_000)));
    let failed = (0..1000).filter(|_| try_read(&mut sim, &disk, 0, 1).is_err()).count();
    assert!((240..360).contains(&failed), "{failed}");
    disk.clear_faults();
    assert!((0..100).all(|_| try_read(&mut sim, &disk, 0, 1).is_ok()));
}

#[test]
fn unreadable_sectors_fail_until_they_are_written() {
    let (mut sim, disk) = exact(1, Latency::default());
    disk.mark_unreadable(5..7);
    assert!(try_read(&mut sim, &disk, 0, 5).is_ok());
    assert!(try_read(&mut sim, &disk, 4, 2).is_err());
    write(&mut sim, &disk, 5, &[1]);
    assert_eq!(read(&mut sim, &disk, 5, 1), [Some(1)]);
    assert!(try_read(&mut sim, &disk, 6, 1).is_err());
    sim.power_cut(CutMode::AllLost);
    assert!(try_read(&mut sim, &disk, 6, 1).is_err(), "a reboot heals nothing");
}

#[test]
fn a_failed_write_stores_all_nothing_or_a_prefix() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (mut sim, disk) = exact(seed, Latency::default());
        disk.inject(FaultRule::once(Fault::WriteError));
        let error = try_write(&mut sim, &disk, 0, &[1, 1]).unwrap_err();
        assert!(is_eio(&error, "write"), "{error}");
        seen.insert(read(&mut sim, &disk, 0, 2));
    }
    let prefix = |words: [u64; 2]| words.map(Some).to_vec();
    assert_eq!(seen, BTreeSet::from([prefix([0, 0]), prefix([1, 0]), prefix([1, 1])]));
}

#[test]
fn a_failed_flush_proves_nothing_and_neither_does_the_next_good_one() {
    let mut after_failure = BTreeSet::new();
    let mut after_retry = BTreeSet::new();
    for seed in 0..60 {
        let (mut sim, disk) = exact(seed, Latency::default());
        write(&mut sim, &disk, 0, &[1]);
        disk.inject(FaultRule::once(Fault::FlushError));
        let error = flush(&mut sim, &disk).unwrap_err();
        assert!(is_eio(&error, "flush"), "{error}");
        after_failure.insert(durable(&disk, 0));
        assert_eq!(read(&mut sim, &disk, 0, 1), [Some(1)], "still read from the cache");
        flush(&mut sim, &disk).unwrap();
        sim.power_cut(CutMode::AllLost);
        after_retry.insert(durable(&disk, 0));
    }
    assert_eq!(after_failure, BTreeSet::from([Some(0), Some(1)]));
    assert_eq!(after_retry, BTreeSet::from([Some(0), Some(1)]), "the retry is not to be trusted");
}

#[test]
fn what_a_failed_flush_gave_up_no_later_flush_saves_failed_or_good() {
    let mut after = BTreeSet::new();
    for seed in 0..60 {
        let (mut sim, disk) = exact(seed, Latency::default());
        write(&mut sim, &disk, 0, &[1]);
        disk.inject(FaultRule::new(Fault::FlushError, When::Always));
        for _ in 0..20 {
            flush(&mut sim, &disk).unwrap_err();
        }
        disk.clear_faults();
        flush(&mut sim, &disk).unwrap();
        after.insert(durable(&disk, 0));
    }
    assert_eq!(after, BTreeSet::from([Some(0), Some(1)]));
}

#[test]
fn a_durable_write_whose_flush_fails_is_read_but_proves_nothing() {
    let mut after = BTreeSet::new();
    for seed in 0..60 {
        let (mut sim, disk) = exact(seed, Latency::default());
        disk.inject(FaultRule::once(Fault::FlushError));
        let error = sim.run_until(disk.write_durable(0, pages(&[1]))).unwrap().unwrap_err();
        assert!(is_eio(&error, "write"), "{error}");
        assert_eq!(read(&mut sim, &disk, 0, 1), [Some(1)], "still read from the cache");
        flush(&mut sim, &disk).unwrap();
        after.insert(durable(&disk, 0));
    }
    assert_eq!(after, BTreeSet::from([Some(0), Some(1)]), "the retry is not to be trusted");
}

#[test]
fn a_failed_flush_does_nothing_to_a_write_it_did_not_cover() {
    for seed in 0..60 {
        let (mut sim, disk) = exact(seed, Latency::fixed(10, 1000));
        disk.inject(FaultRule::once(Fault::FlushError));
        let both = join(disk.write(0, pages(&[1])), disk.flush());
        sim.run_until(both).unwrap().1.unwrap_err();
        assert_eq!(durable(&disk, 0), Some(0), "{seed}");
        flush(&mut sim, &disk).unwrap();
        assert_eq!(durable(&disk, 0), Some(1), "{seed}");
    }
}

#[test]
fn writing_again_after_a_failed_flush_helps() {
    for seed in 0..60 {
        let (mut sim, disk) = exact(seed, Latency::default());
        write(&mut sim, &disk, 0, &[1]);
        disk.inject(FaultRule::once(Fault::FlushError));
        flush(&mut sim, &disk).unwrap_err();
        write(&mut sim, &disk, 0, &[2]);
        flush(&mut sim, &disk).unwrap();
        sim.power_cut(CutMode::PerSector);
        assert_eq!(durable(&disk, 0), Some(2));
    }
}

#[test]
fn a_gone_disk_fails_everything_and_comes_back_with_its_content() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1]);
    flush(&mut sim, &disk).unwrap();
    write(&mut sim, &disk, 1, &[2]);
    disk.vanish(Vanish::LinkLost);
    assert_eq!(try_read(&mut sim, &disk, 0, 1), Err(DiskError::Gone));
    assert_eq!(try_write(&mut sim, &disk, 0, &[9]), Err(DiskError::Gone));
    assert_eq!(flush(&mut sim, &disk), Err(DiskError::Gone));
    sim.kill();
    assert_eq!(try_read(&mut sim, &disk, 0, 1), Err(DiskError::Gone), "a kill brings none back");
    disk.come_back();
    assert_eq!(read(&mut sim, &disk, 0, 2), [Some(1), Some(2)]);
    assert_eq!(durable(&disk, 1), Some(0), "the cache outlived the link, not durable");
}

#[test]
fn a_disk_that_loses_its_power_settles_its_own_cache_alone() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let (mut sim, disk) = exact(seed, Latency::default());
        let other = add(&mut sim, "other", Latency::default());
        write(&mut sim, &disk, 0, &[1]);
        write(&mut sim, &other, 0, &[1]);
        disk.vanish(Vanish::PowerLost);
        assert_eq!(disk.volatile_sectors(), 0);
        assert_eq!(other.volatile_sectors(), 1);
        disk.come_back();
        seen.extend(read(&mut sim, &disk, 0, 1));
    }
    assert!(seen.contains(&Some(0)) && seen.contains(&Some(1)), "{seen:?}");
}

#[test]
fn operations_in_flight_when_the_disk_vanishes_fail_within_the_bound() {
    let (mut longest, mut carried_out) = (Duration::ZERO, BTreeSet::new());
    for seed in 0..60 {
        let (mut sim, disk) = exact(seed, Latency::fixed(1000, 1000));
        let world = sim.world();
        let gone = async {
            world.sleep(Duration::from_nanos(500)).await;
            disk.vanish(Vanish::LinkLost);
        };
        let io = join(disk.write(0, pages(&[1])), disk.read(0, 1));
        let ((written, got), ()) = sim.run_until(join(io, gone)).unwrap();
        assert_eq!(written, Err(DiskError::Gone));
        assert_eq!(got.unwrap_err(), DiskError::Gone);
        assert!(world.now() <= Duration::from_millis(5) + Duration::from_nanos(500));
        longest = longest.max(world.now());
        // All stored writes were stored before the disk could come back.
        disk.come_back();
        carried_out.extend(read(&mut sim, &disk, 0, 1));
    }
    assert!(longest > Duration::from_millis(2), "some hang: {longest:?}");
    assert_eq!(carried_out, BTreeSet::from([Some(0), Some(1)]));
}

#[test]
fn operations_of_before_stay_failed_when_the_disk_returns_at_once() {
    let (mut sim, disk) = exact(1, Latency::fixed(1000, 1000));
    let world = sim.world();
    let blink = async {
        world.sleep(Duration::from_nanos(500)).await;
        disk.vanish(Vanish::LinkLost);
        disk.come_back();
        disk.write(1, pages(&[3])).await
    };
    let (before, after) = sim.run_until(join(disk.write(0, pages(&[1])), blink)).unwrap();
    assert_eq!((before, after), (Err(DiskError::Gone), Ok(())));
}

#[test]
fn a_rule_makes_the_disk_vanish_at_an_operation() {
    let (mut sim, disk) = exact(1, Latency::default());
    disk.inject(FaultRule::new(Fault::Vanish(Vanish::LinkLost), When::OnceAfter(1)));
    assert!(try_read(&mut sim, &disk, 0, 1).is_ok());
    assert_eq!(try_write(&mut sim, &disk, 0, &[9]), Err(DiskError::Gone));
    assert_eq!(flush(&mut sim, &disk), Err(DiskError::Gone));
    disk.come_back();
    assert_eq!(read(&mut sim, &disk, 0, 1), [Some(0)], "the write that struck stored nothing");
}

#[test]
fn corruption_at_rest_is_what_it_says() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1, 1, 1, 1]);
    flush(&mut sim, &disk).unwrap();
    disk.corrupt(0, Corruption::FlipBits(3));
    disk.corrupt(1, Corruption::Garbage);
    disk.corrupt(2, Corruption::Zeros);
    let got = sim.run_until(disk.read(0, 4)).unwrap().unwrap();
    let flipped: u32 =
        got[0].iter().zip(page(1).iter()).map(|(left, right)| (left ^ right).count_ones()).sum();
    assert_eq!(flipped, 3);
    assert!(got[1].iter().collect::<BTreeSet<_>>().len() > 200);
    assert!(got[2].is_zero());
    assert_eq!(got[3].as_slice(), page(1).as_slice());
}

#[test]
fn corruption_strikes_the_durable_copy_and_hides_behind_the_cache() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1]);
    disk.corrupt(0, Corruption::Garbage);
    assert_eq!(read(&mut sim, &disk, 0, 1), [Some(1)]);
    sim.power_cut(CutMode::AllLost);
    assert_eq!(read(&mut sim, &disk, 0, 1), [None]);
}

#[test]
fn a_rule_damages_one_sector_of_its_range_before_a_read() {
    let mut struck = BTreeSet::new();
    for seed in 0..40 {
        let (mut sim, disk) = exact(seed, Latency::default());
        write(&mut sim, &disk, 0, &[1; 8]);
        flush(&mut sim, &disk).unwrap();
        disk.inject(FaultRule::once(Fault::Corrupt(Corruption::FlipBits(1))).within(2..4));
        let got = read(&mut sim, &disk, 0, 8);
        let damaged: Vec<usize> = (0..8).filter(|index| got[*index] != Some(1)).collect();
        assert_eq!(damaged.len(), 1, "{got:?}");
        assert_eq!(read(&mut sim, &disk, 0, 8), got, "at rest: it stays");
        struck.insert(damaged[0]);
    }
    assert_eq!(struck, BTreeSet::from([2, 3]));
}

#[test]
fn a_misdirected_write_lands_elsewhere_and_is_acknowledged() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1, 1]);
    disk.inject(FaultRule::once(Fault::MisdirectedWrite { to: Some(20) }));
    write(&mut sim, &disk, 0, &[2, 3]);
    assert_eq!(read(&mut sim, &disk, 0, 2), [Some(1), Some(1)]);
    assert_eq!(read(&mut sim, &disk, 20, 2), [Some(2), Some(3)]);
    flush(&mut sim, &disk).unwrap();
    assert_eq!(durable(&disk, 20), Some(2));
    for seed in 0..1000 {
        let (mut sim, disk) = exact(seed, Latency::default());
        disk.inject(FaultRule::once(Fault::MisdirectedWrite { to: None }));
        write(&mut sim, &disk, 62, &[5, 6]);
        let held = read(&mut sim, &disk, 0, 64);
        let at = held.iter().position(|word| *word == Some(5)).unwrap();
        assert!(at < 62 && held[at + 1] == Some(6), "whole, within the disk, elsewhere: {at}");
    }
}

#[test]
fn a_misdirected_durable_write_is_durable_at_the_wrong_place() {
    let (mut sim, disk) = exact(1, Latency::default());
    disk.inject(FaultRule::once(Fault::MisdirectedWrite { to: Some(20) }));
    sim.run_until(disk.write_durable(0, pages(&[2]))).unwrap().unwrap();
    assert_eq!((durable(&disk, 0), durable(&disk, 20)), (Some(0), Some(2)));
}

#[test]
fn a_misdirected_read_returns_what_lies_elsewhere() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1]);
    write(&mut sim, &disk, 30, &[2]);
    disk.inject(FaultRule::once(Fault::MisdirectedRead { from: Some(30) }));
    assert_eq!(read(&mut sim, &disk, 0, 1), [Some(2)]);
    assert_eq!(read(&mut sim, &disk, 0, 1), [Some(1)]);
}

#[test]
fn a_lost_write_is_acknowledged_and_stored_nowhere() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1]);
    disk.inject(FaultRule::new(Fault::LostWrite, When::OnceAfter(0)));
    write(&mut sim, &disk, 0, &[2]);
    assert_eq!(read(&mut sim, &disk, 0, 64)[..2], [Some(1), Some(0)]);
    disk.inject(FaultRule::once(Fault::LostWrite));
    sim.run_until(disk.write_durable(0, pages(&[3]))).unwrap().unwrap();
    sim.power_cut(CutMode::AllKept);
    assert_eq!(durable(&disk, 0), Some(1));
}

#[test]
fn during_a_stall_nothing_completes_here_and_all_goes_on_elsewhere() {
    let (mut sim, disk) = exact(1, Latency::fixed(1000, 1000));
    let other = add(&mut sim, "other", Latency::fixed(1000, 1000));
    let world = sim.world();
    let second = Duration::from_secs(1);
    let before = async {
        disk.write(0, pages(&[1])).await.unwrap();
        world.now()
    };
    let during = async {
        world.sleep(Duration::from_nanos(500)).await;
        disk.stall(second);
        world.sleep(Duration::from_millis(1)).await;
        other.write(0, pages(&[1])).await.unwrap();
        assert!(world.now() < Duration::from_millis(2));
        join_all([disk.flush(), disk.write(1, pages(&[1]))]).await;
        world.now()
    };
    let (first, last) = sim.run_until(join(before, during)).unwrap();
    assert!(first >= second && last >= second, "{first:?} {last:?}");
    assert!(last < second + Duration::from_millis(1), "and it ends");
}

#[test]
fn a_stall_outlives_a_kill_and_ends_with_the_power() {
    let (mut sim, disk) = exact(1, Latency::fixed(1000, 1000));
    let world = sim.world();
    disk.stall(Duration::from_secs(1));
    sim.kill();
    write(&mut sim, &disk, 0, &[1]);
    assert!(world.now() >= Duration::from_secs(1));
    disk.stall(Duration::from_secs(1));
    sim.power_cut(CutMode::AllLost);
    write(&mut sim, &disk, 0, &[1]);
    assert!(world.now() < Duration::from_secs(1));
}

#[test]
fn a_rule_stalls_the_disk_with_the_operation_it_strikes() {
    let (mut sim, disk) = exact(1, Latency::fixed(1000, 1000));
    let world = sim.world();
    disk.inject(FaultRule::once(Fault::Stall(Duration::from_secs(2))).within(7..8));
    write(&mut sim, &disk, 0, &[1]);
    assert!(world.now() < Duration::from_secs(1));
    write(&mut sim, &disk, 7, &[1]);
    assert!(world.now() >= Duration::from_secs(2));
    assert_eq!(read(&mut sim, &disk, 7, 1), [Some(1)], "the operation itself is done");
}

#[test]
fn a_disk_that_lies_about_flushes_makes_nothing_durable() {
    let (mut sim, disk) = exact(1, Latency::default());
    disk.lie_about_flushes(true);
    write(&mut sim, &disk, 0, &[1]);
    flush(&mut sim, &disk).unwrap();
    sim.run_until(disk.write_durable(1, pages(&[1]))).unwrap().unwrap();
    assert_eq!(read(&mut sim, &disk, 0, 2), [Some(1), Some(1)]);
    disk.lie_about_flushes(false);
    sim.power_cut(CutMode::AllLost);
    assert_eq!(read(&mut sim, &disk, 0, 2), [Some(0), Some(0)]);
}

#[test]
fn the_cache_of_a_liar_stays_bounded() {
    let (mut sim, disk) = exact(1, Latency::default());
    disk.lie_about_flushes(true);
    let mut survivors = BTreeSet::new();
    for turn in 1..200 {
        write(&mut sim, &disk, 0, &[turn]);
    }
    assert_eq!(disk.volatile_sectors(), 1);
    sim.power_cut(CutMode::PerSector);
    survivors.extend(durable(&disk, 0));
    assert!(survivors.iter().all(|word| *word == 0 || *word > 180), "{survivors:?}");
}
