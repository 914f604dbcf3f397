use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::World;
use parking_lot::Mutex;

use crate::{CutMode, Sim, SimConfig, Stop};

fn exact(seed: u64) -> Sim {
    Sim::with_config(seed, SimConfig { step_ns_max: 0, ..SimConfig::default() })
}

#[test]
fn sleepers_wake_at_their_time_in_its_order() {
    let mut sim = exact(1);
    let world = sim.world();
    let woken = Arc::new(Mutex::new(Vec::new()));
    for millis in [30, 10, 20] {
        let (own, woken) = (world.clone(), Arc::clone(&woken));
        world.spawn(
            "sleeper",
            Box::pin(async move {
                own.sleep(Duration::from_millis(millis)).await;
                woken.lock().push((own.now(), millis));
            }),
        );
    }
    sim.run_until(world.sleep(Duration::from_secs(1))).unwrap();
    let expected = [10, 20, 30].map(|millis| (Duration::from_millis(millis), millis));
    assert_eq!(*woken.lock(), expected);
    assert_eq!(world.now(), Duration::from_secs(1));
}

#[test]
fn a_sleep_counts_from_its_creation() {
    let mut sim = exact(1);
    let world = sim.world();
    let own = world.clone();
    sim.run_until(async move {
        let early = own.sleep(Duration::from_millis(5));
        own.sleep(Duration::from_millis(3)).await;
        early.await;
        assert_eq!(own.now(), Duration::from_millis(5));
    })
    .unwrap();
}

#[test]
fn wall_time_follows_and_may_be_set() {
    let mut sim = exact(1);
    let world = sim.world();
    let start = world.wall_ns();
    sim.run_until(world.sleep(Duration::from_secs(2))).unwrap();
    assert_eq!(world.wall_ns() - start, 2_000_000_000);
    sim.set_wall_ns(77);
    assert_eq!(world.wall_ns(), 77);
    assert_eq!(world.now(), Duration::from_secs(2), "the monotonic clock did not jump");
}

#[test]
fn monotonic_time_restarts_at_a_reboot_and_goes_on_over_a_kill() {
    let mut sim = exact(1);
    let world = sim.world();
    let start = world.wall_ns();
    sim.run_until(world.sleep(Duration::from_secs(1))).unwrap();
    sim.kill();
    assert_eq!(world.now(), Duration::from_secs(1));
    sim.power_cut(CutMode::AllLost);
    assert_eq!(world.now(), Duration::ZERO);
    sim.run_until(world.sleep(Duration::from_secs(1))).unwrap();
    assert_eq!(world.wall_ns() - start, 2_000_000_000);
}

#[test]
fn random_numbers_do_not_depend_on_the_schedule() {
    let draw = |tasks: usize| -> Vec<u64> {
        let mut sim = Sim::new(5);
        let world = sim.world();
        for _ in 0..tasks {
            let own = world.clone();
            world.spawn("noise", Box::pin(async move { own.yield_now().await }));
        }
        sim.run_until(world.sleep(Duration::from_millis(1))).unwrap();
        (0..4).map(|_| world.random()).collect()
    };
    assert_eq!(draw(0), draw(9));
    assert_ne!(Sim::new(1).world().random(), Sim::new(2).world().random());
}

#[test]
fn time_passes_between_steps_so_that_deadlines_fall_among_them() {
    // One task never lets the machine idle; the sleeper must have its turn nevertheless.
    let mut sim = Sim::new(4);
    let world = sim.world();
    let own = world.clone();
    world.spawn(
        "busy",
        Box::pin(async move {
            loop {
                own.yield_now().await;
            }
        }),
    );
    assert_eq!(sim.run_until(world.sleep(Duration::from_millis(1))), Ok(()));
    let mut still = exact(4);
    let world = still.world();
    let times: BTreeSet<Duration> = (0..3)
        .map(|_| {
            still.run_until(world.yield_now()).unwrap();
            world.now()
        })
        .collect();
    assert_eq!(times.len(), 1, "without a cost of steps time stands still");
    assert!(matches!(still.run_until(pending::<()>()), Err(Stop::Deadlock(_))));
}
