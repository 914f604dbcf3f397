//! The daemon's memory and its read caches.

use aquifer_api::{CacheClass, MemoryStat, PoolMemory};

use super::{Family, Page};

pub(super) fn of_memory(page: &mut Page, memory: &MemoryStat) {
    let sizes: [Family<MemoryStat>; 3] = [
        ("aquifer_memory_limit_bytes", "What pools and NFS may take together.", |one| {
            one.cap_bytes
        }),
        ("aquifer_memory_nfs_bytes", "Set aside for requests and replies.", |one| one.nfs_bytes),
        ("aquifer_memory_object_bytes", "Memory of files and directories that are known.", |one| {
            one.object_bytes
        }),
    ];
    for (name, help, value) in sizes {
        page.family(name, "gauge", help);
        page.sample(name, &[], value(memory));
    }
    let sizes: [Family<PoolMemory>; 4] = [
        ("aquifer_pool_dirty_bytes", "Memory of changes that are not on disk yet.", |one| {
            one.dirty_bytes
        }),
        ("aquifer_pool_bitmap_bytes", "Memory of bitmaps of free space.", |one| one.bitmap_bytes),
        ("aquifer_cache_size_bytes", "Memory of the read cache.", |one| one.cache.size_bytes),
        ("aquifer_cache_target_bytes", "What the read cache may take now.", |one| {
            one.cache.target_bytes
        }),
    ];
    for (name, help, value) in sizes {
        page.family(name, "gauge", help);
        for pool in &memory.pools {
            page.sample(name, &[("pool", &pool.name)], value(pool));
        }
    }
    let name = "aquifer_pool_memory_waits_total";
    page.family(name, "counter", "Times that a change found no room in memory.");
    for pool in &memory.pools {
        page.sample(name, &[("pool", &pool.name)], pool.waits);
    }
    let name = "aquifer_cache_misses_total";
    page.family(name, "counter", "Looks into the read cache that found nothing.");
    for pool in &memory.pools {
        page.sample(name, &[("pool", &pool.name)], pool.cache.misses);
    }
    let counts: [Family<CacheClass>; 3] = [
        ("aquifer_cache_hits_total", "Looks that found a block.", |class| class.hits),
        ("aquifer_cache_evictions_total", "Blocks evicted for others.", |class| class.evictions),
        (
            "aquifer_cache_ghost_hits_total",
            "Blocks read again soon after their eviction: a larger cache would have kept them.",
            |class| class.ghost_hits,
        ),
    ];
    for (name, help, value) in counts {
        page.family(name, "counter", help);
        for pool in &memory.pools {
            for (class, of) in [("nodes", &pool.cache.nodes), ("data", &pool.cache.data)] {
                page.sample(name, &[("pool", &pool.name), ("class", class)], value(of));
            }
        }
    }
}
