//! The cache through its public face.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Cache, SHARD_BYTES_MIN};
use crate::{Class, Key};

const PAGE: u32 = 4096;

fn key(place: u64) -> Key {
    Key { place, written: 7 }
}

/// Gets, and inserts on a miss. Returns whether it hit.
fn read(cache: &Cache<u64>, place: u64) -> bool {
    let found = cache.get(&key(place));
    if found.is_none() {
        cache.insert(key(place), place, PAGE, Class::Data);
    }
    found.is_some()
}

/// Share of `places` that are held.
fn held(cache: &Cache<u64>, places: impl Iterator<Item = u64>) -> f64 {
    let held: Vec<bool> = places.map(|place| cache.contains(&key(place))).collect();
    held.iter().filter(|&&held| held).count() as f64 / held.len() as f64
}

#[test]
fn can_be_shared_between_threads() {
    fn assert_shared<T: Send + Sync>() {}
    assert_shared::<Cache<Arc<[u8]>>>();
}

#[test]
fn shards_follow_the_capacity() {
    let shards = |capacity, shards| Cache::<u64>::new(capacity, shards).shards.len();
    assert_eq!(shards(1 << 40, 64), 64);
    assert_eq!(shards(1 << 40, 1000), 64);
    assert_eq!(shards(1 << 40, 17), 32);
    assert_eq!(shards(1 << 40, 0), 1);
    assert_eq!(shards(SHARD_BYTES_MIN * 11, 64), 8);
    assert_eq!(shards(0, 64), 1);
}

#[test]
fn what_is_inserted_is_found_until_it_is_removed() {
    let cache = Cache::<u64>::new(16 << 20, 4);
    assert_eq!(cache.resident_bytes(), 0);
    assert_eq!(cache.get(&key(5)), None);
    cache.insert(key(5), 55, PAGE, Class::Node);
    cache.insert(key(5), 66, PAGE, Class::Node);
    assert_eq!(cache.get(&key(5)), Some(55), "keys do not repeat: the first value stays");
    assert_eq!(cache.get(&Key { place: 5, written: 8 }), None);
    assert!(cache.contains(&key(5)) && !cache.contains(&key(6)));
    assert!(cache.remove(&key(5)) && !cache.remove(&key(5)));
    assert_eq!(cache.get(&key(5)), None);
    assert_eq!(cache.resident_bytes(), 0);
    let stats = cache.stats();
    assert_eq!((stats.hits(), stats.misses, stats.class.node.hits), (1, 3, 1));
    assert_eq!((stats.class.node.inserts, stats.class.node.removals), (1, 1));
}

#[test]
fn what_would_sweep_a_shard_is_refused() {
    let cache = Cache::<u64>::new(4 << 20, 1);
    cache.insert(key(1), 1, 2 << 20, Class::Data);
    cache.insert(key(2), 2, u32::MAX, Class::Data);
    assert_eq!((cache.stats().refused, cache.resident_bytes()), (2, 0));
    let none = Cache::<u64>::new(0, 1);
    none.insert(key(1), 1, 0, Class::Data);
    assert_eq!((none.get(&key(1)), none.resident_bytes()), (None, 0));
}

#[test]
fn a_hot_set_survives_a_scan_of_ten_capacities() {
    for (shards, ahead) in [(1, 0), (16, 0), (16, 64)] {
        let cache = Cache::<u64>::new(64 << 20, shards);
        let pages = (64 << 20) / u64::from(PAGE);
        let hot = pages / 2;
        for _ in 0..3 {
            for place in 0..hot {
                read(&cache, place);
            }
        }
        for place in 0..10 * pages {
            if ahead > 0 && place % ahead == 0 {
                for next in place..place + ahead {
                    cache.insert(key(1 << 30 | next), next, PAGE, Class::Data);
                }
            }
            read(&cache, 1 << 30 | place);
        }
        let held = held(&cache, 0..hot);
        assert!(held > 0.98, "{shards} shards, read ahead {ahead}: {held} of the hot set is left");
    }
}

#[test]
fn the_target_follows_the_workload() {
    let cache = Cache::<u64>::new(16 << 20, 1);
    let pages = (16 << 20) / u64::from(PAGE);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    // Frequent keys, so that T2 is not empty.
    for place in (0..pages / 2).cycle().take(2 * usize::try_from(pages).unwrap()) {
        read(&cache, place);
    }
    // Recency: every page is wanted twice, the second time 0.9 capacities after the first.
    let lag = pages * 9 / 10;
    for step in 0..20 * pages {
        read(&cache, 1 << 30 | step);
        if step >= lag {
            read(&cache, 1 << 30 | (step - lag));
        }
    }
    let recency = cache.stats();
    assert!(recency.recent_target_bytes > recency.capacity_bytes / 2, "{recency:?}");
    // Frequency: a hot set of 0.8 capacities among pages that are wanted once.
    for step in 0..40 * pages {
        read(&cache, rng.next_u64() % (pages * 8 / 10));
        read(&cache, 1 << 40 | step);
    }
    let frequency = cache.stats();
    assert!(frequency.recent_target_bytes < frequency.capacity_bytes / 5, "{frequency:?}");
    assert!(held(&cache, 0..pages * 8 / 10) > 0.9);
}

#[test]
fn a_rewritten_block_inherits() {
    let cache = Cache::<u64>::new(16 << 20, 4);
    let pages = (16 << 20) / u64::from(PAGE);
    let rewritten = |place| Key { place, written: 8 };
    for place in (0..pages / 4).cycle().take(usize::try_from(pages).unwrap()) {
        read(&cache, place);
    }
    for place in (0..pages).map(|place| 1 << 30 | place) {
        read(&cache, place);
    }
    for place in 0..pages / 4 {
        let was_held = cache.contains(&key(place));
        let value = |old| {
            assert_eq!(old, was_held.then_some(place));
            place
        };
        cache.replace(&key(place), rewritten(place), value, PAGE, Class::Data);
    }
    for place in (0..3 * pages).map(|place| 1 << 40 | place) {
        read(&cache, place);
    }
    assert_eq!(held(&cache, 0..pages / 4), 0.0);
    let left = (0..pages / 4).filter(|&place| cache.contains(&rewritten(place))).count() as u64;
    assert!(left * 10 > pages / 4 * 9, "{left} of {} are left", pages / 4);
}

#[test]
fn a_smaller_capacity_holds_at_once() {
    let cache = Cache::<u64>::new(64 << 20, 8);
    for place in 0..40_000 {
        read(&cache, place);
    }
    assert!(cache.resident_bytes() > 60 << 20);
    for capacity in [40 << 20, 1 << 20, 0] {
        cache.set_capacity(capacity);
        assert!(cache.resident_bytes() <= capacity);
        assert_eq!(cache.stats().capacity_bytes, capacity);
    }
    assert_eq!(cache.resident_bytes(), 0);
    cache.set_capacity(64 << 20);
    for place in 0..40_000 {
        read(&cache, place);
    }
    assert!(cache.resident_bytes() > 60 << 20);
}

#[test]
fn neighbours_spread_over_shards_and_hashes() {
    let mut hashes = HashSet::new();
    let mut shards = [0_u32; 64];
    let mut low = [0_u32; 64];
    let mut top = [0_u32; 64];
    for place in 0..64_000_u64 {
        let vdev = place % 3;
        for written in [1, 2] {
            let hash = Key { place: (vdev << 48) | (place * 16), written }.mixed();
            assert!(hashes.insert(hash));
            shards[(hash >> 40 & 63) as usize] += 1;
            low[(hash & 63) as usize] += 1;
            top[(hash >> 58) as usize] += 1;
        }
    }
    for counts in [shards, low, top] {
        // 2000 each, of which chance takes or gives 45.
        assert!(counts.iter().all(|count| (1750..2250).contains(count)), "{counts:?}");
    }
}

#[test]
fn threads_keep_the_cap_and_the_counts() {
    let cache = Cache::<Arc<u64>>::new(32 << 20, 8);
    let done = AtomicBool::new(false);
    let (gets, threads) = (100_000_u64, 4);
    let counts = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_u64.. {
                let capacity = (8 + round % 25) << 20;
                cache.set_capacity(capacity);
                if done.load(Ordering::Relaxed) {
                    break;
                }
                assert!(cache.resident_bytes() <= 32 << 20);
                std::thread::yield_now();
            }
        });
        let readers: Vec<_> = (0..threads)
            .map(|seed| {
                let cache = &cache;
                scope.spawn(move || {
                    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
                    let (mut hits, mut removed) = (0, 0);
                    for _ in 0..gets {
                        let random = rng.next_u64();
                        let place = random % 20_000 * (random >> 32) % 20_000;
                        let class = if place.is_multiple_of(9) { Class::Node } else { Class::Data };
                        match cache.get(&key(place)) {
                            Some(value) => {
                                assert_eq!(*value, place);
                                hits += 1;
                            }
                            None if random.is_multiple_of(31) => {
                                cache.replace(
                                    &key(place + 1),
                                    key(place),
                                    |old| {
                                        assert!(old.is_none_or(|old| *old == place + 1));
                                        Arc::new(place)
                                    },
                                    PAGE,
                                    class,
                                );
                            }
                            None => cache.insert(key(place), Arc::new(place), PAGE * 2, class),
                        }
                        removed +=
                            u64::from(random.is_multiple_of(17) && cache.remove(&key(place)));
                    }
                    (hits, removed)
                })
            })
            .collect();
        let counts: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        counts
    });
    let stats = cache.stats();
    assert_eq!(stats.hits(), counts.iter().map(|(hits, _)| hits).sum::<u64>());
    assert_eq!(stats.hits() + stats.misses, gets * threads);
    let (node, data) = (stats.class.node, stats.class.data);
    assert!(node.removals + data.removals >= counts.iter().map(|(_, removed)| removed).sum());
    for class in [node, data] {
        assert_eq!(class.inserts - class.evictions - class.removals, class.entries);
    }
    assert!(stats.resident_bytes <= stats.capacity_bytes && stats.hits() > gets / 10);
    cache.set_capacity(0);
    assert_eq!(cache.resident_bytes(), 0);
}

/// After any mix of arrivals, evictions and moves: looking up a run, and other keys together, finds
/// the same as looking up each key. The policy learns the same from it.
#[test]
fn a_run_is_as_so_many_gets() {
    let (alone, together) = (Cache::<u64>::new(8 << 20, 2), Cache::<u64>::new(8 << 20, 2));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut pick = |below: u64| rng.next_u64() % below;
    let (mut hits, mut misses) = (0, 0);
    for _ in 0..5000 {
        let (first, count) = (pick(4000), 1 + pick(40));
        match pick(8) {
            0 => {
                for cache in [&alone, &together] {
                    cache.remove(&key(first));
                }
            }
            1 | 2 => {
                for place in first..first + count {
                    alone.insert(key(place), place, PAGE, Class::Data);
                    together.insert(key(place), place, PAGE, Class::Data);
                }
            }
            3 | 4 => {
                // In the order of their shards, in which they count as uses.
                let mut keys: Vec<Key> = (0..count).map(|_| key(pick(4000))).collect();
                keys.sort_by_key(|key| together.shard_number(key));
                let single: Vec<_> = keys.iter().map(|key| alone.get(key)).collect();
                let mut each = vec![None; keys.len()];
                together.get_each(&keys, |at, value| {
                    assert!(each[at].replace(*value).is_none(), "given twice");
                });
                assert_eq!(each, single);
            }
            _ => {
                let single: Vec<_> =
                    (first..first + count).map(|place| alone.get(&key(place))).collect();
                let mut run = vec![None; single.len()];
                together.get_run(&key(first), count, |at, value| {
                    let slot = &mut run[usize::try_from(at).unwrap()];
                    assert!(slot.replace(*value).is_none(), "given twice");
                });
                assert_eq!(run, single);
                hits += single.iter().flatten().count();
                misses += single.iter().filter(|found| found.is_none()).count();
            }
        }
        assert_eq!(alone.stats(), together.stats());
    }
    assert!(hits > 10_000 && misses > 10_000, "{hits} hits, {misses} misses");
}
