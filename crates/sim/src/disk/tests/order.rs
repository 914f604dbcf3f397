//! Promises of completion, flush and durable writes, and what they do not promise.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use aquifer_blockio::{Disk, DiskError, World};
use futures_util::future::{join, join_all, join3};
use parking_lot::Mutex;

use crate::disk::tests::{add, durable, exact, flush, page, pages, read, words, write};
use crate::{Counters, CutMode, Latency};

const FLUSH_FASTER: Latency = Latency::fixed(1000, 10);
const FLUSH_SLOWER: Latency = Latency::fixed(10, 1000);

#[test]
fn a_completed_write_is_read_and_not_durable() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 3, &[7, 8]);
    assert_eq!(read(&mut sim, &disk, 2, 4), [Some(0), Some(7), Some(8), Some(0)]);
    assert_eq!(durable(&disk, 3), Some(0));
    assert_eq!(disk.volatile_sectors(), 2);
    sim.power_cut(CutMode::AllLost);
    assert_eq!(read(&mut sim, &disk, 3, 2), [Some(0), Some(0)]);
}

#[test]
fn a_flush_makes_completed_writes_durable() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 3, &[7, 8]);
    flush(&mut sim, &disk).unwrap();
    assert_eq!(disk.volatile_sectors(), 0);
    sim.power_cut(CutMode::AllLost);
    assert_eq!(read(&mut sim, &disk, 3, 2), [Some(7), Some(8)]);
}

#[test]
fn a_flush_does_not_cover_a_write_in_flight_at_its_submission() {
    // The write completes long before the flush does, but after the flush was submitted.
    let (mut sim, disk) = exact(1, FLUSH_SLOWER);
    write(&mut sim, &disk, 1, &[1]);
    let both = join(disk.write(2, pages(&[2])), disk.flush());
    let (written, flushed) = sim.run_until(both).unwrap();
    assert_eq!((written, flushed), (Ok(()), Ok(())));
    assert_eq!(durable(&disk, 1), Some(1), "had completed before");
    sim.power_cut(CutMode::AllLost);
    assert_eq!(durable(&disk, 2), Some(0), "had not");
}

#[test]
fn a_flush_makes_nothing_durable_before_it_completes() {
    let (mut sim, disk) = exact(1, FLUSH_SLOWER);
    write(&mut sim, &disk, 1, &[1]);
    let world = sim.world();
    sim.run_until(async {
        let mut flush = disk.flush();
        let first = poll_fn(|context| Poll::Ready(flush.as_mut().poll(context))).await;
        assert!(first.is_pending());
        world.sleep(Duration::from_nanos(999)).await;
        assert_eq!(durable(&disk, 1), Some(0));
        assert_eq!(flush.await, Ok(()));
        assert_eq!(durable(&disk, 1), Some(1));
    })
    .unwrap();
}

#[test]
fn of_two_versions_a_flush_between_them_makes_the_first_durable() {
    let (mut sim, disk) = exact(1, FLUSH_FASTER);
    write(&mut sim, &disk, 1, &[1]);
    // The flush is submitted while the second version is in flight.
    sim.run_until(join(disk.write(1, pages(&[2])), disk.flush())).unwrap().1.unwrap();
    assert_eq!(read(&mut sim, &disk, 1, 1), [Some(2)]);
    sim.power_cut(CutMode::AllLost);
    assert_eq!(durable(&disk, 1), Some(1));
}

#[test]
fn a_durable_write_is_durable_at_completion_and_says_nothing_of_others() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 1, &[1]);
    sim.run_until(disk.write_durable(2, pages(&[2]))).unwrap().unwrap();
    sim.power_cut(CutMode::AllLost);
    assert_eq!((durable(&disk, 1), durable(&disk, 2)), (Some(0), Some(2)));
}

#[test]
fn what_is_durable_never_yields_to_an_older_version() {
    for seed in 0..50 {
        for mode in CutMode::ALL {
            let (mut sim, disk) = exact(seed, Latency::default());
            write(&mut sim, &disk, 1, &[1, 1]);
            sim.run_until(disk.write_durable(1, pages(&[2]))).unwrap().unwrap();
            write(&mut sim, &disk, 2, &[2]);
            flush(&mut sim, &disk).unwrap();
            sim.power_cut(mode);
            assert_eq!((durable(&disk, 1), durable(&disk, 2)), (Some(2), Some(2)), "{seed}");
        }
    }
}

#[test]
fn operations_complete_out_of_order_and_each_seed_in_its_own() {
    let completions = |seed: u64| -> Vec<u64> {
        let (mut sim, disk) = exact(seed, Latency::default());
        let order = Mutex::new(Vec::new());
        let writes = (0..6).map(|sector| {
            let (disk, order) = (&disk, &order);
            async move {
                disk.write(sector, pages(&[1])).await.unwrap();
                order.lock().push(sector);
            }
        });
        sim.run_until(join_all(writes)).unwrap();
        order.into_inner()
    };
    let distinct: BTreeSet<Vec<u64>> = (0..50).map(completions).collect();
    assert!(distinct.len() >= 45, "{}", distinct.len());
    assert!((0..50).all(|seed| completions(seed) == completions(seed)));
}

#[test]
fn a_read_beside_a_write_sees_old_or_new_sector_by_sector() {
    // Both ways: the write completes under the read, and the read under the write.
    for (read_first, latency) in [(true, 1), (false, 0)] {
        let mut seen = BTreeSet::new();
        for seed in 0..40 {
            let (mut sim, disk) = exact(seed, Latency::fixed(100, 100));
            write(&mut sim, &disk, 0, &[1, 1, 1, 1]);
            let world = sim.world();
            let pause = Duration::from_nanos(latency);
            let reader = async {
                world.sleep(Duration::from_nanos(1 - latency)).await;
                disk.read(1, 2).await
            };
            let writer = async {
                world.sleep(pause).await;
                disk.write(0, pages(&[2, 2, 2, 2])).await
            };
            let (pages_read, _) = sim.run_until(join(reader, writer)).unwrap();
            let got = words(&pages_read.unwrap());
            assert!(got.iter().all(|word| [Some(1), Some(2)].contains(word)), "{got:?}");
            seen.insert(got);
            assert_eq!(read(&mut sim, &disk, 1, 2), [Some(2), Some(2)], "completed is seen");
        }
        assert_eq!(seen.len(), 4, "read first: {read_first}; {seen:?}");
    }
}

#[test]
fn a_read_sees_the_right_part_of_an_overlapping_write() {
    // Offsets both ways: the write begins before the read, and the read before the write.
    for (write_at, read_at) in [(10, 12), (12, 10)] {
        let mut seen = BTreeSet::new();
        for seed in 0..60 {
            let (mut sim, disk) = exact(seed, Latency::fixed(100, 100));
            let world = sim.world();
            let writer = async {
                world.sleep(Duration::from_nanos(50)).await;
                disk.write(write_at, pages(&[write_at, write_at + 1, write_at + 2])).await
            };
            let (got, _) = sim.run_until(join(disk.read(read_at, 3), writer)).unwrap();
            for (sector, got) in (read_at..).zip(words(&got.unwrap())) {
                let new = (write_at..write_at + 3).contains(&sector).then_some(sector);
                assert!(got == Some(0) || got == new, "{got:?} at {sector}");
                seen.insert(got);
            }
        }
        assert!(seen.contains(&Some(12)), "{seen:?}");
    }
}

#[test]
fn an_operation_starts_at_its_first_poll_and_outlives_its_future() {
    let (mut sim, disk) = exact(1, Latency::default());
    let world = sim.world();
    drop(disk.write(1, pages(&[1])));
    sim.run_until(async {
        let mut write: Pin<Box<dyn Future<Output = _> + Send>> = disk.write(2, pages(&[2]));
        poll_fn(|context| {
            assert!(write.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(write);
        world.sleep(Duration::from_secs(1)).await;
    })
    .unwrap();
    assert_eq!(read(&mut sim, &disk, 1, 2), [Some(0), Some(2)]);
    assert_eq!(disk.counters().writes, 1);
}

#[test]
fn a_discarded_sector_reads_as_anything_and_later_writes_are_safe() {
    let mut seen = BTreeSet::new();
    for seed in 0..30 {
        let (mut sim, disk) = exact(seed, Latency::default());
        write(&mut sim, &disk, 1, &[1, 1]);
        flush(&mut sim, &disk).unwrap();
        sim.run_until(disk.discard(1, 2)).unwrap().unwrap();
        let got = read(&mut sim, &disk, 1, 1)[0];
        seen.insert(match got {
            Some(0) => "zeros",
            Some(1) => "old",
            _ => "garbage",
        });
        write(&mut sim, &disk, 1, &[2]);
        flush(&mut sim, &disk).unwrap();
        sim.power_cut(CutMode::PerSector);
        assert_eq!(durable(&disk, 1), Some(2));
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn a_discard_in_flight_may_destroy_a_write_beside_it() {
    let destroyed = (0..40).filter(|seed| {
        let (mut sim, disk) = exact(*seed, Latency::default());
        sim.run_until(join(disk.discard(1, 1), disk.write(1, pages(&[2])))).unwrap().1.unwrap();
        read(&mut sim, &disk, 1, 1) != [Some(2)]
    });
    let count = destroyed.count();
    assert!((1..40).contains(&count), "{count}");
}

#[test]
fn what_lies_outside_the_disk_is_refused_at_once() {
    let (mut sim, disk) = exact(1, Latency::default());
    let outside = |sector, count| DiskError::OutOfRange { sector, count, sectors: 64 };
    assert_eq!(sim.run_until(disk.read(63, 2)).unwrap().unwrap_err(), outside(63, 2));
    let wide = sim.run_until(disk.read(u64::MAX, 2)).unwrap();
    assert_eq!(wide.unwrap_err(), outside(u64::MAX, 2));
    let far = sim.run_until(disk.write(64, pages(&[1]))).unwrap();
    assert_eq!(far, Err(outside(64, 1)));
    assert_eq!(sim.run_until(disk.discard(0, 65)).unwrap(), Err(outside(0, 65)));
    assert_eq!(disk.counters(), Counters::default());
    assert_eq!(sim.io_events(), 0);
    assert_eq!(sim.run_until(disk.read(62, 2)).unwrap().unwrap().len(), 2);
}

#[test]
fn counters_count() {
    let (mut sim, disk) = exact(1, Latency::default());
    write(&mut sim, &disk, 0, &[1, 2, 3]);
    sim.run_until(disk.write_durable(0, pages(&[1]))).unwrap().unwrap();
    read(&mut sim, &disk, 0, 5);
    flush(&mut sim, &disk).unwrap();
    sim.run_until(disk.discard(9, 1)).unwrap().unwrap();
    let expected = Counters {
        reads: 1,
        writes: 2,
        flushes: 1,
        discards: 1,
        read_sectors: 5,
        written_sectors: 4,
        errors: 0,
    };
    assert_eq!(disk.counters(), expected);
}

#[test]
fn latency_has_a_serial_part_and_a_ripening_part() {
    let latency = Latency { service_ns: 10, sector_ns: 3, ..Latency::fixed(100, 7) };
    let (mut sim, disk) = exact(1, latency);
    let world = sim.world();
    let ends = Mutex::new(Vec::new());
    let timed = |sectors: u64| {
        let (disk, world, ends) = (&disk, &world, &ends);
        async move {
            disk.write(0, vec![page(1); usize::try_from(sectors).unwrap()]).await.unwrap();
            ends.lock().push(world.now().as_nanos());
        }
    };
    sim.run_until(join3(timed(1), timed(4), timed(1))).unwrap();
    // 10+3, then 10+12, then 10+3 in a row; 100 side by side.
    assert_eq!(*ends.lock(), [113, 135, 148]);
    sim.run_until(disk.flush()).unwrap().unwrap();
    assert_eq!(world.now().as_nanos(), 148 + 10 + 7);
}

#[test]
fn outliers_come_as_often_as_told() {
    let latency =
        Latency { outlier_ppm: 100_000, outlier_ns_max: 1_000_000, ..Latency::fixed(10, 10) };
    let (mut sim, disk) = exact(1, latency);
    let world = sim.world();
    let mut slow = 0;
    for _ in 0..1000 {
        let before = world.now();
        write(&mut sim, &disk, 0, &[1]);
        slow += u32::from(world.now() - before > Duration::from_nanos(10));
    }
    assert!((60..140).contains(&slow), "{slow}");
}

#[test]
fn streams_do_not_shift_each_other() {
    // Neither a rule that draws, nor another disk, nor draws of the world change the times at which
    // this disk completes.
    let times = |noise: bool| -> Vec<u128> {
        let (mut sim, disk) = exact(8, Latency::default());
        let world = sim.world();
        if noise {
            let rule = crate::FaultRule::new(crate::Fault::WriteError, crate::When::Ppm(1));
            disk.inject(rule);
            add(&mut sim, "other", Latency::default());
            world.random();
        }
        let own = Arc::new(world);
        (0..20)
            .map(|_| {
                write(&mut sim, &disk, 0, &[1]);
                own.now().as_nanos()
            })
            .collect()
    };
    assert_eq!(times(false), times(true));
}

#[test]
fn the_story_tells_time_disk_operation_and_outcome() {
    let (mut sim, disk) = exact(1, Latency::fixed(1500, 10));
    write(&mut sim, &disk, 3, &[7, 8]);
    sim.power_cut(CutMode::AllLost);
    let expected = "     0.000000000 disk Write 3 2 Submitted\n     \
                    0.000001500 disk Write 3 2 Done\n     \
                    0.000001500 disk Cut 3 1 Lost\n     \
                    0.000001500 disk Cut 4 1 Lost\n";
    assert_eq!(sim.story(), expected);
    for _ in 0..100 {
        write(&mut sim, &disk, 1, &[1]);
    }
    assert_eq!(sim.story().lines().count(), 64, "bounded");
}
