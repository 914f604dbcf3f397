//! The daemon's memory, and what its read caches do with theirs.
//!
//! Invariant: as with all counts ([`crate::counts`]), clients take differences; if `uptime_ns` is
//! lower than in an earlier answer, the counts have started again.

use serde::{Deserialize, Serialize};

use crate::request::request;

/// `GET /memory`: memory, and the read caches.
#[derive(Debug, Clone, Copy)]
pub struct MemoryQuery;

request!(Get "/memory", Read, MemoryQuery, () -> MemoryStat);

/// `GET /memory`: who has how much of the daemon's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemoryStat {
    /// Memory that all pools and NFS may take together.
    pub cap_bytes: u64,
    /// Set aside for requests and replies of clients.
    pub nfs_bytes: u64,
    /// Files and directories of all pools, and of snapshots into which clients look.
    #[serde(default)]
    pub object_bytes: u64,
    /// Memory that the read caches may take together now: as much as others leave them.
    pub caches_bytes: u64,
    /// Of each pool in service.
    pub pools: Vec<PoolMemory>,
}

/// The memory of a pool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PoolMemory {
    /// Its name.
    pub name: String,
    /// Time since its import.
    pub uptime_ns: u64,
    /// Set aside for changes that are not on disk yet.
    pub dirty_bytes: u64,
    /// Bitmaps of its free space.
    pub bitmap_bytes: u64,
    /// Times that a change found no room in memory since the import; one that looks again counts
    /// again.
    #[serde(default)]
    pub waits: u64,
    /// Whether changes would have more with a larger setting `memory`.
    #[serde(default)]
    pub bound: bool,
    /// Its read cache.
    pub cache: CacheStat,
}

/// A read cache (ARC): sizes now, and counts since the pool's import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheStat {
    /// Bytes that the cache holds, with its own tables.
    pub size_bytes: u64,
    /// Bytes that the cache may hold.
    pub target_bytes: u64,
    /// Of its content, what was used once lately.
    pub recent_bytes: u64,
    /// Bytes of its content that were used again.
    pub frequent_bytes: u64,
    /// The size to which `recent_bytes` is steered.
    pub recent_target_bytes: u64,
    /// Blocks remembered that are not held any more.
    pub ghosts: u64,
    /// Looks that found nothing.
    pub misses: u64,
    /// Nodes of trees: they say where data lies.
    pub nodes: CacheClass,
    /// Data of files.
    pub data: CacheClass,
}

/// One class of blocks in a cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheClass {
    /// Looks that found a block.
    pub hits: u64,
    /// Blocks taken in.
    pub inserts: u64,
    /// Of these, blocks that had been evicted not long before: a larger cache would have kept them.
    pub ghost_hits: u64,
    /// Blocks evicted to make room.
    pub evictions: u64,
    /// Blocks held.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl CacheStat {
    /// Looks that found a block, of both classes.
    pub fn hits(&self) -> u64 {
        self.nodes.hits + self.data.hits
    }

    /// Blocks evicted, of both classes.
    pub fn evictions(&self) -> u64 {
        self.nodes.evictions + self.data.evictions
    }

    /// Blocks that came back too late, of both classes.
    pub fn ghost_hits(&self) -> u64 {
        self.nodes.ghost_hits + self.data.ghost_hits
    }
}
