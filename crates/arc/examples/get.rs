//! The cost of the cache's operations, in ns: the smallest and the median of 40 rounds, because
//! other work always runs on these machines.
//!
//! `cargo run --release -p aquifer-arc --example get`: 1 M pages of 4 KiB, 4.5 GiB of memory. A map
//! of shards with std's mutex and hash map is measured beside it. It is a lower bound for any
//! policy, since most of its cost is the cache misses on entry and on the value's reference count.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a benchmark")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use aquifer_arc::{Cache, Class, Key};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const ENTRIES: u64 = 1_000_000;
const ROUND: u64 = 250_000;
const CHARGE: u32 = 4096 + 64;

/// As `blockio`'s page: a shared handle on memory of its own.
type Page = Arc<Box<[u8; 4096]>>;

fn main() {
    let mut names: Vec<u64> = (0..ENTRIES).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    names.sort_by_cached_key(|_| rng.next_u64());
    let page = |name: u64| Arc::new(Box::new([name.to_le_bytes()[0]; 4096]));

    let cache = Cache::<Page>::new(6 << 30, 64);
    for &name in &names {
        cache.insert(key(name), page(name), CHARGE, Class::Data);
    }
    assert_eq!(cache.stats().class.data.entries, ENTRIES, "nothing was evicted yet");
    measure("get, any of 1 M", |rng| {
        black_box(cache.get(&key(pick(rng, ENTRIES))));
    });
    measure("get, any of 10,000", |rng| {
        black_box(cache.get(&key(pick(rng, 10_000))));
    });
    measure("get, absent", |rng| {
        black_box(cache.get(&key(ENTRIES + pick(rng, ENTRIES))));
    });
    std::thread::scope(|scope| {
        for thread in ["get, any of 1 M, thread 1 of 2", "get, any of 1 M, thread 2 of 2"] {
            let cache = &cache;
            scope.spawn(move || {
                measure(thread, |rng| {
                    black_box(cache.get(&key(pick(rng, ENTRIES))));
                });
            });
        }
    });
    cache.set_capacity(1 << 30);
    let (mut next, one) = (ENTRIES, page(0));
    measure("insert, evicting one", |_| {
        next += 1;
        cache.insert(key(next), one.clone(), CHARGE, Class::Data);
    });
    drop(cache);

    let bare = Cache::<u64>::new(6 << 30, 64);
    for &name in &names {
        bare.insert(key(name), name, CHARGE, Class::Data);
    }
    measure("get, any of 1 M, no reference count", |rng| {
        black_box(bare.get(&key(pick(rng, ENTRIES))));
    });
    drop(bare);

    let shards: Vec<Mutex<HashMap<Key, Page>>> = (0..64).map(|_| Mutex::default()).collect();
    let shard = |name: u64| &shards[usize::from(name.to_le_bytes()[0] % 64)];
    for &name in &names {
        shard(name).lock().unwrap().insert(key(name), page(name));
    }
    measure("std's map of shards, any of 1 M", |rng| {
        let name = pick(rng, ENTRIES);
        black_box(shard(name).lock().unwrap().get(&key(name)).cloned());
    });
}

fn measure(what: &str, mut operation: impl FnMut(&mut Xoshiro256PlusPlus)) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    let mut rounds: Vec<f64> = (0..40)
        .map(|_| {
            let start = Instant::now();
            (0..ROUND).for_each(|_| operation(&mut rng));
            start.elapsed().as_secs_f64() * 1e9 / ROUND as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{what:38}{:6.0}{:6.0}", rounds[0], rounds[20]);
}

fn key(name: u64) -> Key {
    Key { place: name * 8 + 12_345, written: 1000 + name % 97 }
}

fn pick(rng: &mut Xoshiro256PlusPlus, count: u64) -> u64 {
    rng.next_u64() % count
}
