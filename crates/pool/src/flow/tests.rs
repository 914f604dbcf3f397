//! All rules together: random loads, disks and logs in simulated time, over many seeds.

mod events;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Closed, Entry, Flow, LogRoom, Resize, SyncWrite, Taken};
use crate::limits::{Limits, Scale};
use crate::txg::{Demand, Lane, SpaceClass};
use aquifer_arc::Memory;
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

/// Each step of [`World`] asserts the rules that must hold.
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

const MS: Duration = Duration::from_millis(1);
const FULL: Closed = Closed { share: 1.0, sectors: 1_000_000 };

fn flow() -> Flow {
    Flow::new(Limits::new(1 << 30, 32, Scale::REAL), Memory::new(1 << 30), true)
}

/// Changes that only the disks hold up are not counted: more memory would change nothing for them.
#[test]
fn changes_that_find_no_room_in_memory_are_counted() {
    let flow = flow();
    let (sectors, log_bytes, class, lane) = (1, 0, SpaceClass::Write, Lane::Bulk);
    let demand = |dirty_bytes| Demand { dirty_bytes, sectors, log_bytes, class, lane };
    let taken = |dirty_bytes, log_bytes| Taken { dirty_bytes, log_bytes, ..Taken::default() };
    let log = LogRoom { left_bytes: 1 << 30, free_bytes: 1 << 30, capacity_bytes: 1 << 30 };
    let full = 2 * flow.txg_dirty_bytes();
    assert_eq!(flow.entry(&demand(4096), taken(0, 0), log), Entry::Queues);
    assert_eq!(flow.entry(&demand(4096), taken(4096, 1 << 30), log), Entry::Full);
    assert_eq!(flow.memory_waits(), 0);
    assert_eq!(flow.entry(&demand(4096), taken(full, 0), log), Entry::Full);
    assert_eq!(flow.memory_waits(), 1);
    // Its txgs are as large as its log lets them be.
    assert!(!flow.is_bound_by_memory());
    let small = Flow::new(Limits::new(64 << 20, 32, Scale::REAL), Memory::new(64 << 20), true);
    assert!(small.is_bound_by_memory());
}

fn wrote(flow: &Flow, sectors: u64, took: Duration) -> Resize {
    flow.sync_wrote(SyncWrite { sectors, entered: 512, took })
}

/// A flow that has seen one full txg: a second for its writes, half of one for what follows.
fn knowing() -> (Flow, Duration) {
    let (flow, now) = (flow(), Duration::from_secs(10));
    flow.txg_closed(now, FULL);
    wrote(&flow, 1_000_000, MS);
    flow.sync_landed(now + 1000 * MS);
    flow.txg_synced(now + 1500 * MS);
    let now = now + 1500 * MS;
    assert_eq!(flow.queue(now, 1e-9, 0.0), None);
    (flow, now)
}

/// The wait of a change of a hundredth of a txg, with the open one nearly full.
fn wait(flow: &Flow, now: Duration) -> Option<Duration> {
    let turn = flow.queue(now, 0.01, 0.9)?;
    flow.delay(now, turn, 0.9)
}

#[test]
fn what_is_on_disk_shortens_the_wait_and_counts_for_its_own_txg() {
    let waits = |written: u64, landed: bool| {
        let (flow, now) = knowing();
        flow.txg_closed(now, FULL);
        wrote(&flow, written, MS);
        if landed {
            flow.sync_landed(now);
        }
        // A tenth of the wait, so that no look at the queue cuts it short.
        let turn = flow.queue(now, 1e-3, 0.9).unwrap();
        flow.delay(now, turn, 0.9).unwrap()
    };
    // 0.05 of a txg are free, for a second and a half; for a second; for half of one.
    let near = |wait: Duration, us: u64| {
        assert!(wait.abs_diff(Duration::from_micros(us)) < Duration::from_micros(20), "{wait:?}");
    };
    near(waits(0, false), 30_000);
    near(waits(500_000, false), 20_000);
    near(waits(500_000, true), 10_000);
    let (flow, now) = knowing();
    assert_eq!(wait(&flow, now), None);
    flow.txg_closed(now, FULL);
    assert_eq!(wait(&flow, now), Some(50 * MS));
}

#[test]
fn a_sync_looks_at_its_plan_at_its_first_step_and_at_each_sixteenth() {
    let (flow, now) = (flow(), Duration::from_secs(10));
    for _ in 0..2 {
        flow.txg_closed(now, FULL);
        let looks: Vec<u32> = (0..40).filter(|_| flow.sync_stepped()).collect();
        assert_eq!(looks, [0, 16, 32]);
        // All is handed out at once: it waits, until it has had its time or somebody waits for it.
        flow.sync_hands_out(1_000_000);
        assert!(flow.sync_is_ahead(now + 249 * MS, 0.4, false));
        assert!(!flow.sync_is_ahead(now + 249 * MS, 0.4, true));
        assert!(!flow.sync_is_ahead(now + 250 * MS, 0.4, false));
        assert!(!flow.sync_is_ahead(now, 0.5, false));
        flow.txg_synced(now);
        assert!(!flow.sync_is_ahead(now, 0.0, false), "there is none");
    }
    // What the first handed out is not the second's.
    flow.txg_closed(now, FULL);
    assert!(!flow.sync_is_ahead(now, 0.0, false));
}

#[test]
fn a_write_is_long_by_where_the_log_lies() {
    let flow = flow();
    assert!(flow.goes_early() && flow.log_is_at_home());
    assert!(matches!(wrote(&flow, 1, 10 * MS), Resize::Shrink(256)));
    flow.log_moved(false);
    assert!(!flow.goes_early() && !flow.log_is_at_home());
    assert!(matches!(wrote(&flow, 1, 10 * MS), Resize::Grow(128)));
    flow.log_moved(true);
    assert!(matches!(wrote(&flow, 1, 10 * MS), Resize::Shrink(256)));
}
