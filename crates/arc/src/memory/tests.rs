//! Shares and caches under one cap.

use super::{FLOOR, KEPT, Memory, PARTS};
use crate::{Cache, Class, Key};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const CAP: u64 = 256 * MIB;
const PAGE: u32 = 4096;

fn read(cache: &Cache<u64>, place: u64) -> bool {
    let key = Key { place, written: 7 };
    let found = cache.get(&key).is_some();
    if !found {
        cache.insert(key, place, PAGE, Class::Data);
    }
    found
}

/// Reads a working set once; the part that was held.
fn pass(cache: &Cache<u64>, pages: u64) -> f64 {
    let hits = (0..pages).filter(|place| read(cache, *place)).count();
    hits as f64 / pages as f64
}

fn capacity(cache: &Arc<Cache<u64>>) -> u64 {
    cache.stats().capacity_bytes
}

#[test]
fn an_idle_server_caches_four_fifths_of_its_memory() {
    let memory = Memory::new(CAP);
    let cache = memory.cache::<u64>(16, u64::MAX);
    let pages = CAP / 5 * 4 / u64::from(PAGE);
    assert_eq!(pass(&cache, pages), 0.0);
    assert!(pass(&cache, pages) > 0.999, "all of it, at its second reading");
}

#[test]
fn what_a_share_holds_the_cache_has_given_up() {
    let memory = Memory::new(CAP);
    let cache = memory.cache::<u64>(16, u64::MAX);
    pass(&cache, CAP / u64::from(PAGE));
    let share = memory.share();
    let mut most = 0;
    for held in [1, 3 * MIB, 4 * MIB, 4 * MIB + 1, 60 * MIB, 61 * MIB] {
        share.grow_to(held);
        assert!(share.charged_bytes() >= held);
        assert!(share.charged_bytes() < held + MIB, "no more than a step");
        assert!(cache.resident_bytes() + share.charged_bytes() + CAP / KEPT <= CAP);
        most = most.max(share.charged_bytes());
    }
    share.settle(|| 60 * MIB);
    assert_eq!(share.charged_bytes(), most, "a small move is none");
    share.settle(|| 10 * MIB);
    assert_eq!(share.charged_bytes(), 11 * MIB);
    assert_eq!(memory.caches_bytes(), CAP - CAP / KEPT - 11 * MIB);
    drop(share);
    assert_eq!(memory.caches_bytes(), CAP - CAP / KEPT);
    assert!(capacity(&cache) > CAP - CAP / KEPT - MIB, "all that is left");
}

#[test]
fn what_grows_while_a_charge_falls_is_charged() {
    let memory = Memory::new(CAP);
    let share = memory.share();
    share.grow_to(100 * MIB);
    // Looks: before the lock, under it, and after the charge fell. Meanwhile it has grown.
    let looks = std::cell::Cell::new(0);
    share.settle(|| {
        looks.set(looks.get() + 1);
        if looks.get() < 3 { 10 * MIB } else { 50 * MIB }
    });
    assert!(share.charged_bytes() >= 50 * MIB, "{}", share.charged_bytes());
}

#[test]
fn caches_keep_a_least_part_beside_greedy_shares() {
    let memory = Memory::new(CAP);
    let cache = memory.cache::<u64>(1, u64::MAX);
    let share = memory.share();
    share.grow_to(CAP);
    assert!(capacity(&cache) >= CAP / FLOOR - PARTS);
    share.set(0);
    assert!(capacity(&cache) > CAP / 10 * 9);
}

#[test]
fn a_cache_has_at_most_what_it_asked_for() {
    let memory = Memory::new(CAP);
    let cache = memory.cache::<u64>(1, MIB);
    assert_eq!(capacity(&cache), MIB);
    let share = memory.share();
    share.grow_to(16 * MIB);
    assert_eq!(capacity(&cache), MIB);
}

#[test]
fn the_cache_that_needs_more_gets_it_and_gives_it_back() {
    let memory = Memory::new(CAP);
    let (busy, idle) = (memory.cache::<u64>(4, u64::MAX), memory.cache::<u64>(4, u64::MAX));
    assert_eq!(memory.pools(), 2);
    let half = capacity(&busy);
    assert!(half < CAP / 2);
    let pages = CAP / 10 * 7 / u64::from(PAGE);
    let mut seconds = 0;
    while pass(&busy, pages) < 0.99 {
        memory.balance();
        seconds += 1;
        assert!(seconds < 60, "its working set fits and does not come to stay");
    }
    assert!(capacity(&busy) > half && capacity(&idle) < half);
    assert!(capacity(&busy) + capacity(&idle) <= CAP - CAP / KEPT);
    // Now the other one works.
    seconds = 0;
    while pass(&idle, pages) < 0.99 {
        memory.balance();
        seconds += 1;
        assert!(seconds < 60, "a cache that was squeezed grows again");
    }
    // Both idle: nothing moves.
    let before = capacity(&idle);
    (0..100).for_each(|_| memory.balance());
    assert_eq!(capacity(&idle), before);
}

#[test]
fn a_scan_takes_nothing_from_a_pool_that_is_read() {
    let memory = Memory::new(CAP);
    let (works, scans) = (memory.cache::<u64>(4, u64::MAX), memory.cache::<u64>(4, u64::MAX));
    let pages = CAP / 10 * 4 / u64::from(PAGE);
    pass(&works, pages);
    pass(&works, pages);
    let before = capacity(&works);
    for second in 0..20 {
        assert_eq!(pass(&works, pages), 1.0);
        let scanned = (0..4 * pages).map(|page| (1 << 40) + second * 4 * pages + page);
        scanned.for_each(|place| {
            read(&scans, place);
        });
        memory.balance();
    }
    assert_eq!(capacity(&works), before);
}

#[test]
fn a_pool_that_leaves_gives_its_part_to_the_others() {
    let memory = Memory::new(CAP);
    let stays = memory.cache::<u64>(4, u64::MAX);
    let all = capacity(&stays);
    let leaves = memory.cache::<u64>(4, u64::MAX);
    assert!(capacity(&stays) <= all / 2);
    drop(leaves);
    memory.balance();
    assert_eq!((memory.pools(), capacity(&stays)), (1, all));
    // One that comes at the place of one that left shares with those that are there.
    drop(memory.cache::<u64>(4, u64::MAX));
    let _comes = memory.cache::<u64>(4, u64::MAX);
    assert_eq!(memory.pools(), 2);
}
