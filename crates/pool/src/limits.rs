//! Every limit of a pool, derived from its size and the memory cap.

use aquifer_ondisk::tree_node::NODE_CAPACITY_BYTES;
use aquifer_ondisk::types::SEGMENT_SECTORS;

const MIB: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = SEGMENT_SECTORS * 4096;

/// A txg closes at this age even if little is dirty.
pub const TXG_INTERVAL_MS: u64 = 15_000;
/// The same while something waits to be freed in the background: soon, and not one txg after the
/// other for a few files each.
pub const TXG_BACKGROUND_MS: u64 = 100;
/// An idle pool says so often that a host uses it.
pub const HOST_SAYS_MS: u64 = 10_000;
/// Between two looks whether another host does.
pub const HOST_LOOK_MS: u64 = 5_000;
/// A host that was silent for so long is taken for gone: it missed its turn several times.
pub const HOST_SILENT_MS: u64 = 60_000;
/// A txg that takes longer than this to come to disk is told as slow. The next one is open all that
/// time: its writers are slowed when it is full.
pub const TXG_SLOW_MS: u64 = TXG_INTERVAL_MS;
/// Segments of the intent log at most: four times the most that one txg may hold dirty.
pub const LOG_SEGMENTS_MAX: u64 = 4 * 512 * MIB / SEGMENT_BYTES;
/// Batches of the intent log on their way to the device at most.
pub const LOG_BATCHES_IN_FLIGHT_MAX: usize = 3;
/// A log that is idle this long writes its mark.
pub const LOG_IDLE_MS: u64 = 10;
/// A sync that nobody waits for spreads its work over so long, or until the open txg is half full.
pub const SYNC_SPREAD_MS: u64 = 250;
/// Writes of a sync on their way to the devices, in sectors: at most (32 MiB), and however slow the
/// devices are (2 MiB).
pub const SYNC_WINDOW_SECTORS_MAX: usize = 8192;
/// See [`SYNC_WINDOW_SECTORS_MAX`].
pub const SYNC_WINDOW_SECTORS_MIN: usize = 512;
/// A sync's write that takes longer than this shrinks the window, where batches of the log go to
/// the same disks: each of them waits about as long.
pub const SYNC_WRITE_BESIDE_LOG_MS: u64 = 4;
/// The same where the log has disks of its own: only reads wait.
pub const SYNC_WRITE_ALONE_MS: u64 = 40;
/// When changes are slowed, whoever comes after this long without others need not wait.
pub const THROTTLE_CREDIT_MS: u64 = 5;
/// Those that wait look this often whether their turn comes earlier than it seemed.
pub const THROTTLE_LOOK_MS: u64 = 50;
/// Longest single write of a sync, in sectors (512 KiB): devices gain nothing from longer ones, the
/// kernel cuts them in pieces, and what waits beside one waits for all of it.
pub const SYNC_WRITE_SECTORS_MAX: usize = 128;
/// Memory that a pool is given if nobody says otherwise.
pub const MEMORY_CAP_BYTES_DEFAULT: u64 = 1024 * MIB;
/// Smallest memory cap.
pub const MEMORY_CAP_BYTES_MIN: u64 = 64 * MIB;

/// Sizes at which the engine begins to do things another way. A pool in service has those of
/// [`Scale::REAL`]; a simulator takes smaller ones, and meets in a short life what takes a real
/// pool days. Nothing on disk depends on them: each import may have others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// A txg closes when so much of it is dirty, or earlier.
    pub txg_dirty_bytes_max: u64,
    /// The read cache takes so much, or less.
    pub arc_bytes_max: u64,
    /// More extents than this beyond a cut are cut off whole, and freed in the background.
    pub cut_extents_max: usize,
    /// Entries that the background frees in one txg and dataset.
    pub reap_entries_max: usize,
    /// Bytes of entries in a tree node, as far as entries are not larger themselves.
    pub node_bytes: usize,
    /// Sectors that records take of each of their segments, as far as a record is not larger.
    pub record_segment_sectors: u64,
}

impl Scale {
    /// What pools in service have.
    pub const REAL: Scale = Scale {
        txg_dirty_bytes_max: 512 * MIB,
        arc_bytes_max: u64::MAX,
        cut_extents_max: 512,
        reap_entries_max: 20_000,
        node_bytes: NODE_CAPACITY_BYTES,
        record_segment_sectors: SEGMENT_SECTORS,
    };
}

/// Limits of one imported pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory that the engine may take.
    pub memory_cap_bytes: u64,
    /// A txg closes when this much of it is dirty.
    pub txg_dirty_bytes: u64,
    /// Dirty memory of all txgs at most.
    pub dirty_cap_bytes: u64,
    /// The read cache.
    pub arc_bytes: u64,
    /// Runs that one txg may take and give back: bounds its record.
    pub txg_runs_max: usize,
    /// Bytes of live txg records that the window may hold.
    pub window_bytes: u64,
    /// Bitmaps of metaslabs in memory. Above it the read cache pays.
    pub bitmap_bytes: u64,
    /// Free sectors below which writes and creates stop.
    pub slop_sectors: u64,
    /// Where it changes its ways.
    pub scale: Scale,
}

impl Limits {
    /// Segments of the intent log for a new pool of `total_sectors`.
    pub fn log_segments(total_sectors: u64) -> u64 {
        let sixteenth = total_sectors / 16 / SEGMENT_SECTORS;
        LOG_SEGMENTS_MAX.min(sixteenth).max(3)
    }

    /// Segments for txg records (of one copy) for a new pool with this many metaslabs.
    pub fn record_segments(metaslabs: u64) -> u64 {
        let window = metaslabs * 32 * 1024;
        (4 * window).div_ceil(SEGMENT_BYTES).clamp(2, 32)
    }

    /// The limits of a pool.
    pub fn new(
        memory_cap_bytes: u64,
        total_sectors: u64,
        log_segments: u64,
        record_segments: u64,
        scale: Scale,
    ) -> Limits {
        let cap = memory_cap_bytes.max(MEMORY_CAP_BYTES_MIN);
        let log_bytes = log_segments * SEGMENT_BYTES;
        let txg_dirty_bytes = scale.txg_dirty_bytes_max.min(cap / 8).min(log_bytes / 4);
        let dirty_cap_bytes = 2 * txg_dirty_bytes;
        let record_bytes = record_segments * scale.record_segment_sectors * 4096;
        Limits {
            memory_cap_bytes: cap,
            txg_dirty_bytes,
            dirty_cap_bytes,
            arc_bytes: ((cap - dirty_cap_bytes) / 2).min(scale.arc_bytes_max),
            // A sixteenth of the ring a txg, a quarter for the window: with the windows of three
            // roots and the record being written, half the ring stays free.
            txg_runs_max: usize::try_from(record_bytes / 16 / 8).unwrap_or(usize::MAX),
            window_bytes: (record_bytes / 4).min(cap / 16),
            bitmap_bytes: cap / 16,
            slop_sectors: total_sectors / 32,
            scale,
        }
    }
}
