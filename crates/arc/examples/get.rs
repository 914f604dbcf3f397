//! Cost of the cache's operations in ns.
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use aquifer_arc::{Cache, Class, Key};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const ENTRIES: u64 = 1_000_000;
const GETS: u64 = 10_000_000;
type Value = Arc<Box<[u8; 4096]>>;

fn key(n: u64) -> Key {
    Key { place: n * 8 + 12345, written: 1000 + n % 97 }
}
fn pick(rng: &mut Xoshiro256PlusPlus, n: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(n)) >> 64) as u64
}
fn per<T>(what: &str, n: u64, f: impl FnOnce() -> T) -> T {
    let t = Instant::now();
    let r = f();
    println!("{what}: {:.1} ns", t.elapsed().as_secs_f64() * 1e9 / n as f64);
    r
}

fn main() {
    let mut order: Vec<u64> = (0..ENTRIES).collect();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    for i in (1..order.len()).rev() {
        order.swap(i, pick(&mut rng, i as u64 + 1) as usize);
    }
    let cache = Cache::<Value>::new(6 << 30, 64);
    per("fill (with page)", ENTRIES, || {
        for &n in &order {
            cache.insert(key(n), Arc::new(Box::new([n as u8; 4096])), 4096 + 16, Class::Data);
        }
    });
    for round in 0..3 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2 + round);
        per("get random", GETS, || {
            for _ in 0..GETS {
                black_box(cache.get(&key(pick(&mut rng, ENTRIES))));
            }
        });
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    per("get hot 10k", GETS, || {
        for _ in 0..GETS {
            black_box(cache.get(&key(pick(&mut rng, 10_000))));
        }
    });
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    per("miss", GETS, || {
        for _ in 0..GETS {
            black_box(cache.get(&key(ENTRIES + pick(&mut rng, ENTRIES))));
        }
    });
    let t = Instant::now();
    std::thread::scope(|s| {
        for i in 0..2 {
            let cache = &cache;
            s.spawn(move || {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(20 + i);
                for _ in 0..GETS {
                    black_box(cache.get(&key(pick(&mut rng, ENTRIES))));
                }
            });
        }
    });
    println!("get random, 2 threads: {:.1} ns each", t.elapsed().as_secs_f64() * 1e9 / GETS as f64);
    println!("{:?}", cache.stats());
    cache.set_capacity(2 << 30);
    let page: Value = Arc::new(Box::new([0; 4096]));
    per("insert steady (evicts)", 2_000_000, || {
        for n in 0..2_000_000 {
            cache.insert(key(5_000_000 + n), page.clone(), 4096 + 16, Class::Data);
        }
    });
    println!("{:?}", cache.stats());
    drop(cache);
    let shards: Vec<Mutex<HashMap<Key, Value>>> = (0..64).map(|_| Mutex::default()).collect();
    for &n in &order {
        let k = key(n);
        shards[(k.place / 8 % 64) as usize].lock().unwrap().insert(k, Arc::new(Box::new([n as u8; 4096])));
    }
    for _ in 0..2 {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        per("std sharded map", GETS, || {
            for _ in 0..GETS {
                let k = key(pick(&mut rng, ENTRIES));
                black_box(shards[(k.place / 8 % 64) as usize].lock().unwrap().get(&k).cloned());
            }
        });
    }
}
