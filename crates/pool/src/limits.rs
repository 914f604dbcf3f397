//! Every limit of a pool, derived from its size and the memory cap.

use std::time::Duration;

use aquifer_ondisk::tree_node::NODE_CAPACITY_BYTES;
use aquifer_ondisk::types::SEGMENT_SECTORS;

use crate::flow::limits::TXG_LOG_SHARE;

const MIB: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = SEGMENT_SECTORS * 4096;

/// Interval in which an idle pool writes that a host uses it.
pub const HOST_SAYS_MS: u64 = 10_000;
/// Interval in which it checks whether another host does.
pub const HOST_LOOK_MS: u64 = 5_000;
/// A host that was silent for this long counts as gone: it missed several writes.
pub const HOST_SILENT_MS: u64 = 60_000;
/// Most segments of the intent log: as many as the largest txg needs ([`TXG_LOG_SHARE`]).
pub const LOG_SEGMENTS_MAX: u64 = TXG_LOG_SHARE * 512 * MIB / SEGMENT_BYTES;
/// Memory of a pool by default.
pub const MEMORY_CAP_BYTES_DEFAULT: u64 = 1024 * MIB;
/// Smallest memory cap.
pub const MEMORY_CAP_BYTES_MIN: u64 = 64 * MIB;

/// Sizes at which the engine changes its behaviour. A pool in service has those of [`Scale::REAL`].
/// A simulator uses smaller ones, and so meets in a short life what takes a real pool days. Nothing
/// on disk depends on them: each import may have others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// A txg closes when this much of it is dirty, or earlier.
    pub txg_dirty_bytes_max: u64,
    /// Most memory of the read cache.
    pub arc_bytes_max: u64,
    /// If a truncation removes more extents than this, the tail is cut off whole, and freed in the
    /// background.
    pub cut_extents_max: usize,
    /// Entries that the background frees in one txg and dataset.
    pub reap_entries_max: usize,
    /// Bytes of entries in a tree node, unless a single entry is larger.
    pub node_bytes: usize,
    /// Sectors that records use in each of their segments, unless a single record is larger.
    pub record_segment_sectors: u64,
    /// Most blocks of a piece of a walk over everything.
    pub piece_blocks_max: usize,
    /// How long a disk is away, or fails again and again, before a spare takes its place.
    pub spare_after: Duration,
    /// A resilver copies so long over one root, in milliseconds. What is freed meanwhile is held
    /// back.
    pub piece_copy_ms_max: u64,
    /// A leaf that kept something gets blocks, and with them at most this part of their size in
    /// zeros between them: on flash, what is written counts. A divisor; 0 is no limit.
    pub zeros_share: usize,
    /// Time that released space waits for its discard: more may be released beside it.
    pub autotrim_after: Duration,
}

impl Scale {
    /// The sizes of pools in service.
    pub const REAL: Scale = Scale {
        txg_dirty_bytes_max: 512 * MIB,
        arc_bytes_max: u64::MAX,
        cut_extents_max: 512,
        reap_entries_max: 20_000,
        node_bytes: NODE_CAPACITY_BYTES,
        record_segment_sectors: SEGMENT_SECTORS,
        spare_after: Duration::from_secs(60),
        piece_blocks_max: usize::MAX,
        piece_copy_ms_max: 20_000,
        zeros_share: 5,
        autotrim_after: Duration::from_secs(10),
    };
}

/// Limits of one imported pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory that all pools of the process may take.
    pub memory_cap_bytes: u64,
    /// A txg closes when this much of it is dirty, or earlier beside other pools
    /// ([`Limits::txg_dirty_bytes_beside`]).
    pub txg_dirty_bytes: u64,
    /// As much, if memory were no concern.
    pub txg_dirty_bytes_most: u64,
    /// Most dirty memory of all txgs.
    pub dirty_cap_bytes: u64,
    /// Memory of bitmaps of metaslabs, unless the next syncs need more.
    pub bitmap_bytes: u64,
    /// Blocks of a piece of a walk over everything.
    pub piece_blocks_max: usize,
    /// The sizes at which it changes its behaviour.
    pub scale: Scale,
}

/// Memory of a block in a piece of a walk.
const PIECE_BLOCK_BYTES: u64 = 200;

impl Limits {
    /// Segments of the intent log for a new pool of `total_sectors`.
    pub fn log_segments(total_sectors: u64) -> u64 {
        let sixteenth = total_sectors / 16 / SEGMENT_SECTORS;
        LOG_SEGMENTS_MAX.min(sixteenth).max(3)
    }

    /// Segments for txg records (of one copy) for a pool with this many metaslabs.
    pub fn record_segments(metaslabs: u64) -> u64 {
        let window = metaslabs * 32 * 1024;
        (4 * window).div_ceil(SEGMENT_BYTES).clamp(2, 32)
    }

    /// A txg of one of so many pools closes when this much of it is dirty. Each may have two: all
    /// of all pools take less than half of the memory, one pool alone a quarter.
    pub fn txg_dirty_bytes_beside(&self, pools: usize) -> u64 {
        self.txg_dirty_bytes.min(self.memory_cap_bytes / 4 / (pools.max(1) as u64 + 1))
    }

    /// The limits of a pool. [`Capacity`](crate::capacity::Capacity) has those that change.
    pub fn new(memory_cap_bytes: u64, log_segments: u64, scale: Scale) -> Limits {
        let cap = memory_cap_bytes.max(MEMORY_CAP_BYTES_MIN);
        let log_bytes = log_segments * SEGMENT_BYTES;
        let txg_dirty_bytes_most = scale.txg_dirty_bytes_max.min(log_bytes / TXG_LOG_SHARE);
        let txg_dirty_bytes = txg_dirty_bytes_most.min(cap / 8);
        let dirty_cap_bytes = 2 * txg_dirty_bytes;
        Limits {
            memory_cap_bytes: cap,
            txg_dirty_bytes,
            txg_dirty_bytes_most,
            dirty_cap_bytes,
            bitmap_bytes: cap / 16,
            piece_blocks_max: usize::try_from(cap / 16 / PIECE_BLOCK_BYTES)
                .unwrap_or(usize::MAX)
                .min(scale.piece_blocks_max),
            scale,
        }
    }
}
