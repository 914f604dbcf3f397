use std::collections::BTreeSet;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use aquifer_blockio::World;
use parking_lot::Mutex;

use crate::{CutMode, CutPlan, Image, Sim, SimConfig, SimDisk, SimWorld, Stop};

/// Counts how many of its kind were dropped.
struct Token(Arc<AtomicU64>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The order in which five tasks of three steps each ran.
fn interleaving(seed: u64) -> Vec<u64> {
    let mut sim = Sim::new(seed);
    let world = sim.world();
    let order = Arc::new(Mutex::new(Vec::new()));
    for task in 0..5u64 {
        let (order, own) = (Arc::clone(&order), world.clone());
        world.spawn(
            "stepper",
            Box::pin(async move {
                for _ in 0..3 {
                    order.lock().push(task);
                    own.yield_now().await;
                }
            }),
        );
    }
    let seen = Arc::clone(&order);
    let all = poll_fn(move |context| {
        context.waker().wake_by_ref();
        if seen.lock().len() == 15 { Poll::Ready(()) } else { Poll::Pending }
    });
    sim.run_until(all).unwrap();
    order.lock().clone()
}

#[test]
fn one_seed_gives_one_interleaving_and_many_seeds_give_many() {
    let distinct: BTreeSet<Vec<u64>> = (0..50).map(interleaving).collect();
    assert!(distinct.len() >= 49, "{}", distinct.len());
    assert!((0..50).all(|seed| interleaving(seed) == interleaving(seed)));
}

#[test]
fn every_order_of_three_ready_tasks_is_found() {
    let mut orders = BTreeSet::new();
    for seed in 0..100 {
        let first: Vec<u64> = interleaving(seed).into_iter().filter(|task| *task < 3).collect();
        let mut order = first.clone();
        order.dedup();
        let mut firsts = Vec::new();
        for task in first {
            if !firsts.contains(&task) {
                firsts.push(task);
            }
        }
        orders.insert(firsts);
    }
    assert_eq!(orders.len(), 6);
}

#[test]
fn a_deadlock_names_who_waits() {
    let mut sim = Sim::new(1);
    let world = sim.world();
    world.spawn("waits for ever", Box::pin(pending()));
    world.spawn("ends", Box::pin(async {}));
    let stop = sim.run_until(pending::<()>()).unwrap_err();
    let Stop::Deadlock(mut names) = stop else { panic!("{stop}") };
    names.sort_unstable();
    assert_eq!(names, ["root", "waits for ever"]);
}

#[test]
fn a_cancelled_timer_neither_hides_a_deadlock_nor_moves_time() {
    let mut sim = Sim::with_config(1, SimConfig { step_ns_max: 0, ..SimConfig::default() });
    let world = sim.world();
    let own = world.clone();
    let stop = sim.run_until(async move {
        let mut sleep = own.sleep(Duration::from_secs(3600));
        poll_fn(|context| {
            assert!(sleep.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(sleep);
        pending::<()>().await;
    });
    assert_eq!(stop, Err(Stop::Deadlock(vec!["root"])));
    assert_eq!(world.now(), Duration::ZERO);
}

#[test]
fn a_spinning_task_meets_the_step_limit_and_loses_nothing() {
    let config = SimConfig { steps_max: 1000, ..SimConfig::default() };
    let mut sim = Sim::with_config(1, config);
    let world = sim.world();
    let (own, turns) = (world.clone(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&turns);
    world.spawn(
        "spinner",
        Box::pin(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                own.yield_now().await;
            }
        }),
    );
    let stop = sim.run_until(pending::<()>()).unwrap_err();
    assert!(matches!(&stop, Stop::StepLimit(names) if names.contains(&"spinner")), "{stop}");
    let before = turns.load(Ordering::Relaxed);
    sim.run_until(pending::<()>()).unwrap_err();
    assert!(turns.load(Ordering::Relaxed) >= before + 900, "the task goes on in the next run");
}

#[test]
fn a_root_that_waits_behind_a_ticking_timer_meets_the_time_limit() {
    let config = SimConfig { time_max: Duration::from_secs(60), ..SimConfig::default() };
    let mut sim = Sim::with_config(1, config);
    let world = sim.world();
    let own = world.clone();
    world.spawn(
        "ticker",
        Box::pin(async move {
            loop {
                own.sleep(Duration::from_secs(15)).await;
            }
        }),
    );
    let stop = sim.run_until(pending::<()>()).unwrap_err();
    assert!(matches!(&stop, Stop::TimeLimit(names) if names.contains(&"root")), "{stop}");
    assert!(world.now() < Duration::from_secs(61), "timers past the limit do not fire");
}

#[test]
fn tasks_go_on_in_the_next_run_of_the_same_incarnation() {
    let mut sim = Sim::new(7);
    let world = sim.world();
    let done = Arc::new(AtomicU64::new(0));
    let (own, flag) = (world.clone(), Arc::clone(&done));
    world.spawn(
        "late",
        Box::pin(async move {
            own.sleep(Duration::from_millis(10)).await;
            flag.store(1, Ordering::Relaxed);
        }),
    );
    sim.run_until(async {}).unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 0);
    sim.run_until(world.sleep(Duration::from_millis(20))).unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 1);
}

#[test]
fn a_halt_drops_all_tasks_and_lets_none_start() {
    let mut sim = Sim::new(3);
    let world = sim.world();
    let dropped = Arc::new(AtomicU64::new(0));
    let ran_after = Arc::new(AtomicU64::new(0));
    for _ in 0..10 {
        let token = Token(Arc::clone(&dropped));
        world.spawn(
            "holder",
            Box::pin(async move {
                let _token = token;
                pending::<()>().await;
            }),
        );
    }
    let (own, flag) = (world.clone(), Arc::clone(&ran_after));
    let token = Token(Arc::clone(&dropped));
    sim.plan_cut(CutPlan::After(Duration::from_secs(1)));
    let stop = sim.run_until(async move {
        let _token = token;
        own.sleep(Duration::from_secs(2)).await;
        flag.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(stop, Err(Stop::Halted));
    assert_eq!(dropped.load(Ordering::Relaxed), 11);
    let token = Token(Arc::clone(&dropped));
    world.spawn("too late", Box::pin(async move { drop(token) }));
    assert_eq!(dropped.load(Ordering::Relaxed), 12, "a machine without power takes no task");
    assert_eq!(sim.run_until(async {}), Err(Stop::Halted));
    sim.power_cut(CutMode::AllLost);
    assert_eq!(sim.run_until(async { 5 }), Ok(5));
    assert_eq!(ran_after.load(Ordering::Relaxed), 0);
}

#[test]
fn dropping_the_simulation_drops_its_tasks() {
    let dropped = Arc::new(AtomicU64::new(0));
    let sim = Sim::new(3);
    let (world, token) = (sim.world(), Token(Arc::clone(&dropped)));
    let own = world.clone();
    world.spawn(
        "holder",
        Box::pin(async move {
            own.sleep(Duration::from_secs(1)).await;
            drop(token);
        }),
    );
    drop(sim);
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[test]
fn a_stale_waker_wakes_nobody() {
    let mut sim = Sim::new(9);
    let world = sim.world();
    let held: Arc<Mutex<Option<Waker>>> = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&held);
    world.spawn(
        "first",
        Box::pin(poll_fn(move |context| {
            *keep.lock() = Some(context.waker().clone());
            Poll::Ready(())
        })),
    );
    sim.run_until(world.sleep(Duration::from_millis(1))).unwrap();
    let polls = Arc::new(AtomicU64::new(0));
    // The first one's slot is free again, and so is the root's: both are taken.
    for _ in 0..2 {
        let count = Arc::clone(&polls);
        world.spawn(
            "second",
            Box::pin(poll_fn(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Poll::Pending
            })),
        );
    }
    let stale = held.lock().take().unwrap();
    sim.run_until(world.sleep(Duration::from_millis(1))).unwrap();
    stale.wake();
    sim.run_until(world.sleep(Duration::from_millis(1))).unwrap();
    assert_eq!(polls.load(Ordering::Relaxed), 2, "once each");
}

#[test]
fn a_task_woken_often_before_its_poll_is_polled_once() {
    let mut sim = Sim::new(2);
    let mut polls = 0;
    let root = poll_fn(|context| {
        polls += 1;
        for _ in 0..3 * u32::from(polls == 1) {
            context.waker().wake_by_ref();
        }
        Poll::<()>::Pending
    });
    assert_eq!(sim.run_until(root), Err(Stop::Deadlock(vec!["root"])));
    assert_eq!(polls, 2, "the first poll, and one for three wakes");
}

#[test]
fn handles_and_wakers_can_be_sent() {
    fn sendable<T: Send + Sync>() {}
    sendable::<Waker>();
    sendable::<SimWorld>();
    sendable::<SimDisk>();
    sendable::<Image>();
    sendable::<Sim>();
}
