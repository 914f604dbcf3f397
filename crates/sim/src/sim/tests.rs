//! The power switch: when it fires, and what is dead from then on.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use aquifer_blockio::{Disk, World};

use crate::disk::tests::{durable, exact, flush, page, pages, read, write};
use crate::{CutMode, CutPlan, Fault, FaultRule, Latency, Stop};

#[test]
fn a_cut_fires_at_each_event_and_at_what_it_is() {
    // write: events 1 and 2; flush: events 3 and 4; after each a mark is set.
    let expected = [(1, 0, 0), (2, 0, 0), (3, 1, 0), (4, 1, 7)];
    for (event, marks_seen, durable_word) in expected {
        let (mut sim, disk) = exact(1, Latency::fixed(100, 100));
        let marks = AtomicU64::new(0);
        sim.plan_cut(CutPlan::AtEvent(event));
        let stop = sim.run_until(async {
            disk.write(0, pages(&[7])).await.unwrap();
            marks.fetch_add(1, Ordering::Relaxed);
            disk.flush().await.unwrap();
            marks.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(stop, Err(Stop::Halted), "event {event}");
        assert_eq!(sim.io_events(), event);
        assert_eq!(marks.load(Ordering::Relaxed), marks_seen, "nobody sees event {event}");
        sim.power_cut(CutMode::AllLost);
        assert_eq!(durable(&disk, 0), Some(durable_word), "but it had its effect");
    }
}

#[test]
fn a_cut_may_follow_an_error() {
    // The write: events 1 and 2; the flush that fails: 3 and 4; then the same again.
    for (after, planned, expected) in [(0, 100, 4), (1, 100, 5), (3, 100, 7), (3, 6, 6)] {
        let (mut sim, disk) = exact(1, Latency::fixed(100, 100));
        disk.inject(FaultRule::once(Fault::FlushError));
        sim.plan_cut(CutPlan::AtEvent(planned));
        sim.cut_after_error(after);
        let stop = sim.run_until(async {
            loop {
                disk.write(0, pages(&[7])).await.unwrap();
                let _ = disk.flush().await;
            }
        });
        assert_eq!(stop, Err::<(), _>(Stop::Halted));
        assert_eq!(sim.io_events(), expected, "{after} after an error, or at {planned}");
        sim.power_cut(CutMode::AllLost);
        // It was for that incarnation only.
        disk.inject(FaultRule::once(Fault::FlushError));
        write(&mut sim, &disk, 0, &[7]);
        assert!(flush(&mut sim, &disk).is_err());
    }
}

#[test]
fn a_cut_past_the_last_event_never_fires() {
    let (mut sim, disk) = exact(1, Latency::default());
    sim.plan_cut(CutPlan::AtEvent(5));
    write(&mut sim, &disk, 0, &[7]);
    flush(&mut sim, &disk).unwrap();
    assert_eq!(sim.io_events(), 4);
}

#[test]
fn what_the_same_poll_submits_after_the_cut_never_reaches_the_disk() {
    let (mut sim, disk) = exact(1, Latency::default());
    sim.plan_cut(CutPlan::AtEvent(2));
    let mut writes: Vec<_> = (0..5).map(|sector| disk.write(sector, pages(&[1]))).collect();
    let stop = sim.run_until(poll_fn(|context| {
        for write in &mut writes {
            assert!(write.as_mut().poll(context).is_pending());
        }
        Poll::<()>::Pending
    }));
    assert_eq!(stop, Err(Stop::Halted));
    assert_eq!(disk.counters().writes, 2);
    sim.power_cut(CutMode::AllKept);
    let held: Vec<_> = (0..5).map(|sector| durable(&disk, sector)).collect();
    assert_eq!(held, [Some(1), Some(1), Some(0), Some(0), Some(0)]);
}

#[test]
fn a_root_that_ends_in_the_poll_of_the_cut_did_not_get_that_far() {
    let (mut sim, disk) = exact(1, Latency::default());
    sim.plan_cut(CutPlan::AtEvent(1));
    let mut write = disk.write(0, pages(&[1]));
    let stop = sim.run_until(poll_fn(|context| {
        assert!(write.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    assert_eq!(stop, Err(Stop::Halted));
}

#[test]
fn a_cut_by_time_fires_at_its_time() {
    let (mut sim, disk) = exact(1, Latency::fixed(1000, 1000));
    let world = sim.world();
    sim.run_until(world.sleep(Duration::from_secs(1))).unwrap();
    sim.plan_cut(CutPlan::After(Duration::from_nanos(1500)));
    let stop = sim.run_until(async {
        disk.write(0, pages(&[1])).await.unwrap();
        disk.flush().await.unwrap();
    });
    assert_eq!(stop, Err(Stop::Halted));
    assert_eq!(world.now(), Duration::from_secs(1) + Duration::from_nanos(1500));
    sim.power_cut(CutMode::AllLost);
    assert_eq!(durable(&disk, 0), Some(0), "the flush was under way");
}

#[test]
fn a_plan_replaces_the_plan_before_and_ends_with_its_incarnation() {
    let (mut sim, disk) = exact(1, Latency::default());
    sim.plan_cut(CutPlan::AtEvent(1));
    sim.plan_cut(CutPlan::After(Duration::from_secs(1)));
    sim.plan_cut(CutPlan::Never);
    write(&mut sim, &disk, 0, &[1]);
    let world = sim.world();
    sim.run_until(world.sleep(Duration::from_secs(2))).unwrap();
    sim.plan_cut(CutPlan::AtEvent(3));
    sim.power_cut(CutMode::AllLost);
    assert_eq!(sim.io_events(), 0, "counted anew");
    for _ in 0..5 {
        write(&mut sim, &disk, 0, &[1]);
    }
}

#[test]
fn a_future_of_the_last_incarnation_learns_that_its_disk_is_gone() {
    let (mut sim, disk) = exact(1, Latency::default());
    let mut old = disk.write(0, pages(&[1]));
    sim.run_until(poll_fn(|context| Poll::Ready(old.as_mut().poll(context).is_pending()))).unwrap();
    sim.power_cut(CutMode::AllLost);
    // Its place in the table serves another operation by now.
    let new = disk.write(1, pages(&[2]));
    let (first, second) = sim.run_until(futures_util::future::join(new, old)).unwrap();
    assert_eq!((first, second), (Ok(()), Err(aquifer_blockio::DiskError::Gone)));
    assert_eq!(read(&mut sim, &disk, 0, 2), [Some(0), Some(2)]);
}

#[test]
fn a_drop_during_the_halt_reaches_no_disk() {
    struct WritesAtDrop(crate::SimDisk);
    impl Drop for WritesAtDrop {
        fn drop(&mut self) {
            let mut write = self.0.write(3, vec![page(3)]);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(write.as_mut().poll(&mut context).is_pending());
        }
    }
    let (mut sim, disk) = exact(1, Latency::default());
    let (world, guard) = (sim.world(), WritesAtDrop(disk.clone()));
    world.spawn(
        "holder",
        Box::pin(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        }),
    );
    write(&mut sim, &disk, 0, &[1]);
    sim.power_cut(CutMode::AllKept);
    assert_eq!(durable(&disk, 3), Some(0));
}

#[test]
fn streams_for_the_caller_follow_the_seed_and_the_name() {
    let (sim, _) = exact(1, Latency::default());
    let (again, _) = exact(1, Latency::default());
    assert_eq!(sim.stream("workload").next_u64(), again.stream("workload").next_u64());
    assert_ne!(sim.stream("workload").next_u64(), sim.stream("faults").next_u64());
}

#[test]
fn the_tables_stay_as_small_as_what_is_in_flight() {
    let (mut sim, disk) = exact(1, Latency::default());
    let world = sim.world();
    for turn in 0..50 {
        // Half of the futures are dropped in flight, half of the sleeps before their time.
        let mut write = disk.write(0, pages(&[1]));
        let mut sleep = world.sleep(Duration::from_secs(1));
        let own = world.clone();
        sim.run_until(async move {
            poll_fn(|context| {
                assert!(write.as_mut().poll(context).is_pending());
                assert!(sleep.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            if turn % 2 == 0 {
                write.await.unwrap();
                sleep.await;
            }
            drop(own.sleep(Duration::from_secs(2)));
        })
        .unwrap();
        sim.run_until(world.sleep(Duration::from_secs(1))).unwrap();
    }
    let machine = sim.shared.machine.lock();
    assert_eq!(machine.ops.next_slot(), 0);
    assert!(machine.clock.timer_slots() <= 2, "{}", machine.clock.timer_slots());
}
