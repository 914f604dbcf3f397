//! All rules together: random loads, disks and logs in simulated time, over many seeds.

mod events;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use events::Traced;
use world::{SIGHTS, World};

/// Simulated seconds of each seed under load; then what is queued is let in.
const SECONDS: u64 = 12;

fn life(seed: u64) -> World {
    let mut world = World::new(seed);
    while world.now < Duration::from_secs(SECONDS) {
        world.step();
    }
    world.come_to_rest();
    world
}

/// What must hold is asserted at each step of [`World`].
#[test]
fn all_rules_together_hold_whatever_comes() {
    let mut seen: BTreeMap<_, u64> = BTreeMap::new();
    for seed in 0..60 {
        for (sight, times) in life(seed).seen {
            *seen.entry(sight).or_default() += times;
        }
    }
    // Worlds in which nothing happens would prove nothing.
    for sight in SIGHTS {
        assert!(seen.get(sight).is_some_and(|times| *times >= 30), "{sight}: {seen:?}");
    }
}

#[test]
fn the_plan_is_a_function_of_the_events() {
    for seed in [1, 2, 3] {
        let (first, second) = (life(seed), life(seed));
        assert!(first.traced.trace == second.traced.trace, "seed {seed}: another story");
        let mut again = Traced::new();
        for (now, event, plan) in &first.traced.trace {
            assert_eq!(again.tell(*now, event), *plan, "{event:?} at {now:?}");
        }
    }
}
