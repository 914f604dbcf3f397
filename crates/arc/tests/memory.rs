//! The cap, compared with the allocator: real allocations never exceed the capacity, not even while
//! a table is rebuilt. (The allocator's own rounding of sizes does not count.)
#![expect(unsafe_code, reason = "a global allocator that counts, for this test only")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use aquifer_arc::{Cache, Class, Key};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The counts beside the slice in an `Arc<[u8]>`.
const ARC_BYTES: usize = 16;

#[test]
fn what_is_allocated_stays_under_the_cap() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut capacity = 48 << 20;
    let cache = Cache::<Arc<[u8]>>::new(capacity as u64, 8);
    let empty = LIVE.load(Relaxed);
    let held = || LIVE.load(Relaxed) - empty;
    // Entries become many, few, very many; then the capacity changes.
    let phases = [(4096, 48), (32 << 10, 48), (64, 48), (8 << 10, 48), (512, 4), (4096, 40)];
    for (phase, (bytes, mib)) in phases.into_iter().enumerate() {
        cache.set_capacity((mib as u64) << 20);
        capacity = mib << 20;
        assert!(held() <= capacity, "phase {phase}: {} after set_capacity", held());
        PEAK.store(0, Relaxed);
        let names = (2 * capacity / (bytes + 100)) as u64;
        for _ in 0..4 * names {
            let random = rng.next_u64();
            let key = Key { place: ((phase as u64) << 40) | (random % names), written: 1 };
            if (random >> 40).is_multiple_of(16) {
                cache.remove(&key);
            } else if cache.get(&key).is_none() {
                let value: Arc<[u8]> = Arc::from(vec![0; bytes]);
                let charge = u32::try_from(bytes + ARC_BYTES).unwrap();
                cache.insert(key, value, charge, Class::Data);
            }
        }
        // The value on its way in, twice: `Arc::from` copies it.
        let peak = PEAK.load(Relaxed) - empty - 2 * (bytes + ARC_BYTES);
        assert!(peak <= capacity, "phase {phase}: {peak} of {capacity} bytes");
        let charged = usize::try_from(cache.resident_bytes()).unwrap();
        assert!(held() <= charged && charged <= capacity, "{} {charged} {capacity}", held());
        // The shard does not meet the cap by holding little. Two thirds of the charge is there,
        // where the values are not smaller than their overhead.
        assert!(bytes < 512 || held() * 3 > charged * 2, "phase {phase}: {} {charged}", held());
    }
    cache.set_capacity(0);
    assert!(held() < 8 * 1024, "{} left by an emptied cache", held());
}
