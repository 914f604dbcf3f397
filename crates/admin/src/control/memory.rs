//! Shares of the daemon's memory, and who has them.

use aquifer_api::{CacheClass, CacheStat, MemoryStat, PoolMemory};
use aquifer_pool::{CacheClassStats, CacheStats};

use super::Control;
use super::serving::Serving;

impl Control {
    /// The daemon's memory, and its read caches.
    pub fn memory(&self) -> MemoryStat {
        let memory = &self.config.memory;
        let pools: Vec<PoolMemory> =
            self.all_serving().iter().map(|serving| of_pool(serving)).collect();
        // What is left when pools are taken out. Numbers move meanwhile.
        let of_pools: u64 = pools.iter().map(|pool| pool.dirty_bytes + pool.bitmap_bytes).sum();
        let object_bytes = memory.shelf().charged_bytes();
        MemoryStat {
            cap_bytes: memory.cap_bytes(),
            nfs_bytes: memory.charged_bytes().saturating_sub(of_pools + object_bytes),
            object_bytes,
            caches_bytes: memory.caches_bytes(),
            pools,
        }
    }
}

fn of_pool(serving: &Serving) -> PoolMemory {
    let pool = &serving.service().pool;
    let held = pool.memory();
    PoolMemory {
        name: serving.name().to_string(),
        uptime_ns: u64::try_from(pool.status().uptime.as_nanos()).unwrap_or(u64::MAX),
        dirty_bytes: held.dirty,
        bitmap_bytes: held.bitmaps,
        waits: held.waits,
        bound: held.is_bound,
        cache: of_cache(&pool.cache_stats()),
    }
}

fn of_cache(stats: &CacheStats) -> CacheStat {
    CacheStat {
        size_bytes: stats.resident_bytes,
        target_bytes: stats.capacity_bytes,
        recent_bytes: stats.recent_bytes,
        frequent_bytes: stats.frequent_bytes,
        recent_target_bytes: stats.recent_target_bytes,
        ghosts: stats.ghosts,
        misses: stats.misses,
        nodes: of_class(&stats.class.node),
        data: of_class(&stats.class.data),
    }
}

fn of_class(stats: &CacheClassStats) -> CacheClass {
    CacheClass {
        hits: stats.hits,
        inserts: stats.inserts,
        ghost_hits: stats.ghost_hits,
        evictions: stats.evictions,
        blocks: stats.entries,
        bytes: stats.bytes,
    }
}
