//! Leases of a budget.

use std::task::Waker;

use aquifer_pool::Memory;

use super::*;

const G: usize = GRANULE_BYTES;

fn poll(lease: &mut Lease, bytes: usize) -> bool {
    lease.poll_take(&mut Context::from_waker(Waker::noop()), bytes).is_ready()
}

#[test]
fn small_things_need_no_lease() {
    let budget = Budget::new(4 * G, None);
    let mut all = Lease::new(&budget, 0);
    assert!(all.try_take(4 * G));
    let mut small = Lease::new(&budget, 100);
    assert!(small.try_take(60) && small.try_take(40));
    assert!(!small.try_take(1), "the budget is used up by the other");
    assert_eq!((small.used(), small.headroom()), (100, 0));
    small.give(50);
    assert!(small.try_take(50));
    drop(all);
    assert!(small.try_take(1));
    assert_eq!(budget.held_bytes(), G);
}

#[test]
fn what_is_not_needed_goes_back_beyond_a_slack_and_all_of_it_when_nothing_is_used() {
    let budget = Budget::new(100 * G, None);
    let mut lease = Lease::new(&budget, 100);
    assert!(lease.try_take(50 * G));
    lease.give(2 * G);
    assert_eq!(budget.held_bytes(), 50 * G, "within the slack");
    lease.give(40 * G);
    assert_eq!(budget.held_bytes(), 8 * G);
    lease.give(8 * G - 10);
    assert_eq!(budget.held_bytes(), 0, "what is left fits the allowance");
    lease.give(10);
    assert_eq!((lease.used(), budget.held_bytes()), (0, 0));
    assert!(lease.try_take(7 * G));
    drop(lease);
    assert_eq!(budget.held_bytes(), 0);
}

#[test]
fn who_waits_is_served_in_order_and_keeps_the_place() {
    let budget = Budget::new(4 * G, None);
    let mut leases = [(); 4].map(|()| Lease::new(&budget, 0));
    let [holder, large, small, late] = &mut leases;
    assert!(holder.try_take(4 * G));
    assert!(!poll(large, 3 * G) && !poll(small, G));
    assert!(budget.is_short());
    holder.give(2 * G);
    assert!(!poll(small, G), "the one before waits still");
    assert!(!late.try_take(G), "nobody passes by");
    holder.give(G);
    assert!(poll(large, 3 * G) && !poll(small, G));
    large.give(3 * G);
    assert!(poll(small, G));
    assert!(!budget.is_short());
    assert_eq!(budget.waits(), 2);
    assert!(late.try_take(2 * G));
}

#[test]
fn who_gives_up_waiting_holds_up_nobody() {
    let budget = Budget::new(2 * G, None);
    let mut leases = [(); 3].map(|()| Lease::new(&budget, 0));
    let [holder, first, second] = &mut leases;
    assert!(holder.try_take(G));
    assert!(!poll(first, 2 * G) && !poll(second, G));
    first.cancel_wait();
    assert!(poll(second, G));
    assert!(!poll(first, 2 * G));
    holder.give(G);
    second.give(G);
    assert!(poll(first, 2 * G));
    drop(leases);
    assert_eq!(budget.held_bytes(), 0);
    assert!(!budget.is_short());
}

#[test]
fn what_is_forced_is_repaid_before_more_is_taken() {
    let budget = Budget::new(2 * G, None);
    let mut lease = Lease::new(&budget, 0);
    lease.force(3 * G);
    assert_eq!((lease.used(), lease.headroom(), budget.held_bytes()), (3 * G, 0, 0));
    assert!(!lease.try_take(1));
    lease.give(2 * G);
    assert!(lease.try_take(G - 1));
    assert_eq!(budget.held_bytes(), 2 * G);
}

/// A lease returns slack that others wait for with its next return.
#[test]
fn nobody_waits_for_somebody_elses_slack() {
    let budget = Budget::new(4 * G, None);
    let (mut one, mut other) = (Lease::new(&budget, 0), Lease::new(&budget, 0));
    assert!(one.try_take(4 * G));
    one.give(2 * G);
    assert_eq!(budget.held_bytes(), 4 * G);
    assert!(!poll(&mut other, 2 * G));
    one.give(1);
    assert!(poll(&mut other, 2 * G));
}

/// Two connections, each with a record in use and waiting for a second one: the first ends with
/// other amounts than those at the beginning of the wait.
#[test]
fn what_is_granted_is_enough_whatever_happened_meanwhile() {
    let budget = Budget::new(5 * G, None);
    let (mut one, mut other) = (Lease::new(&budget, 0), Lease::new(&budget, 0));
    let record = 2 * G + 1;
    assert!(one.try_take(record), "with slack in its last granule");
    assert!(!poll(&mut other, record) && !poll(&mut one, record));
    one.give(record);
    assert!(poll(&mut other, record));
    assert!(!poll(&mut one, record));
    other.give(record);
    assert!(poll(&mut one, record));
    assert_eq!(budget.held_bytes(), 3 * G);
}

#[test]
fn who_waits_holds_nothing_that_it_does_not_need() {
    let budget = Budget::new(8 * G, None);
    let (mut one, mut other) = (Lease::new(&budget, 0), Lease::new(&budget, 0));
    assert!(one.try_take(4 * G));
    one.give(3 * G);
    assert!(other.try_take(4 * G));
    assert!(!poll(&mut one, 6 * G));
    assert_eq!(budget.held_bytes(), 8 * G, "what it gave up is granted to it, as the first");
    other.give(3 * G);
    assert!(poll(&mut one, 6 * G));
    assert_eq!((one.used(), budget.held_bytes()), (7 * G, 8 * G));
}

#[test]
fn the_read_cache_gives_way_to_leases_and_gets_it_back() {
    const MIB: usize = 1 << 20;
    let memory = Memory::new(256 << 20);
    let all_bytes = memory.caches_bytes();
    let budget = Budget::new(64 * MIB, Some(memory.share()));
    let mut lease = Lease::new(&budget, 100);
    assert!(lease.try_take(100));
    assert_eq!(memory.caches_bytes(), all_bytes, "an allowance is no lease");
    assert!(lease.try_take(20 * MIB));
    assert!(memory.caches_bytes() <= all_bytes - budget.held_bytes() as u64);
    let mut waits = Lease::new(&budget, 0);
    assert!(!poll(&mut waits, 60 * MIB));
    lease.give(20 * MIB);
    assert!(poll(&mut waits, 60 * MIB));
    assert!(memory.caches_bytes() <= all_bytes - 60 * MIB as u64);
    drop((lease, waits));
    assert!(memory.caches_bytes() >= all_bytes - 2 * MIB as u64);
}
