//! The whole pool on one screen.
//!
//! ```text
//! a leaf disk, in segments of 4 MiB (1024 sectors of 4 KiB)
//! +------------+-----------------------------------------------------+------------+
//! | segment 0  | segments 1 .. n-2                                   | segment n-1|
//! | L0 L1 slots| data, tree nodes, log and record segments, slots    | L2 L3      |
//! +------------+-----------------------------------------------------+------------+
//!   n = whole segments on the disk; the logical space of a vdev is segments 0 .. n-2 of its
//!   smallest leaf (a mirror's logical sector is the same sector on every leaf); L2 and L3 lie in
//!   each leaf's own last whole segment.
//!
//! a label, 128 sectors (512 KiB); L1 follows L0, L3 follows L2
//!   0..8     blank: room for a boot sector or partition table, never written
//!   8..64    config: guid of the pool and this leaf, name, features, the whole vdev tree
//!   64..128  uberblock ring: slot = sequence mod 64
//!
//! segment s, if it is the first (copy 0) or second (copy 1) segment of a metaslab
//!   512..1024  four bitmap slots: slot i at 512 + i * slot_sectors
//!   (copy 1 exists only on vdevs without redundancy; segment 0 holds labels in 0..256)
//!
//! uberblock -> newest txg record -> the record before ... (chain, window of live records)
//!   record: pool root | slots written | runs allocated | runs freed
//!   pool root -> trees: namespace, refcounts, replies, dead trees ...
//!     namespace leaf: dataset -> object table -> inode -> extents | directory entries
//! pool root -> intent log: chain, head, segments -> batches
//! ```

use crate::config::{Redundancy, VdevConfig};
use crate::types::{Place, SEGMENT_SECTORS};

/// Sectors of one label.
pub const LABEL_SECTORS: u64 = 128;
/// Labels on each leaf.
pub const LABELS: u64 = 4;
/// First sector of a label's config.
pub const CONFIG_OFFSET: u64 = 8;
/// Sectors of a label's config.
pub const CONFIG_SECTORS: u64 = 56;
/// First sector of a label's uberblock ring.
pub const RING_OFFSET: u64 = 64;
/// Uberblocks in a ring.
pub const RING_SLOTS: u64 = 64;
/// Bitmap slots of a metaslab: the newest root's, two rewind roots', and the one being written.
pub const BITMAP_SLOTS: u8 = 4;
/// Roots before the newest that stay whole.
pub const REWIND_TXGS: u64 = 2;
/// First sector, within its segment, of a metaslab's slots.
pub const SLOTS_OFFSET: u64 = 512;
/// Smallest leaf, in segments: 256 MiB.
pub const LEAF_SEGMENTS_MIN: u64 = 64;
/// Smallest metaslab, in segments: 64 MiB.
pub const METASLAB_SEGMENTS_MIN: u64 = 16;
/// Largest metaslab, in segments: 16 GiB.
pub const METASLAB_SEGMENTS_MAX: u64 = 4096;
/// Metaslabs a vdev is cut into, as far as their size limits allow.
pub const METASLABS_PER_VDEV: u64 = 256;
/// Leaves of a pool at most: an uberblock has room for their names.
pub const LEAVES_MAX: usize = 128;

/// First sector of label `index` (0..4) on a leaf of `leaf_sectors`.
pub fn label_sector(index: u64, leaf_sectors: u64) -> u64 {
    let within = (index % 2) * LABEL_SECTORS;
    if index < 2 {
        within
    } else {
        (leaf_segments(leaf_sectors).max(1) - 1) * SEGMENT_SECTORS + within
    }
}

/// Whole segments on a leaf.
pub fn leaf_segments(leaf_sectors: u64) -> u64 {
    leaf_sectors / SEGMENT_SECTORS
}

/// Segments of a metaslab in a new vdev of `segments`.
pub fn metaslab_segments(segments: u64) -> u64 {
    let ideal = (segments / METASLABS_PER_VDEV).max(1).next_power_of_two();
    ideal.clamp(METASLAB_SEGMENTS_MIN, METASLAB_SEGMENTS_MAX)
}

/// The division of one top-level vdev's logical space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// The vdev's number in the pool.
    pub vdev: u16,
    /// Segments of logical space.
    pub segments: u64,
    /// Segments per metaslab; the last metaslab may be shorter.
    pub metaslab_segments: u64,
    /// The metaslab that became longer when the vdev last grew.
    pub lengthened: Option<u64>,
    /// Copies of records and bitmap slots: 2 without redundancy, else 1.
    pub copies: u8,
}

impl Geometry {
    /// The geometry of a vdev of `segments` whose metaslabs have the usual size.
    pub fn new(vdev: u16, segments: u64, redundancy: Redundancy) -> Geometry {
        Geometry::with_metaslabs(vdev, segments, metaslab_segments(segments), redundancy)
    }

    /// The geometry of the vdev of a config.
    pub fn of(vdev: u16, config: &VdevConfig) -> Geometry {
        let VdevConfig { segments, metaslab_segments, redundancy, .. } = *config;
        let of = Geometry::with_metaslabs(vdev, segments, metaslab_segments, redundancy);
        let from = config.grown_from_segments;
        let lengthened = (from > 0).then(|| from / metaslab_segments.max(1));
        Geometry { lengthened, ..of }
    }

    fn with_metaslabs(
        vdev: u16,
        segments: u64,
        metaslab_segments: u64,
        redundancy: Redundancy,
    ) -> Geometry {
        // A last metaslab of a single segment would have no room for its second copy: left unused.
        let whole = if segments % metaslab_segments == 1 { segments - 1 } else { segments };
        let copies = redundancy.copies();
        Geometry { vdev, segments: whole, metaslab_segments, lengthened: None, copies }
    }

    /// Sectors of logical space.
    pub fn sectors(&self) -> u64 {
        self.segments * SEGMENT_SECTORS
    }

    /// Number of metaslabs.
    pub fn metaslabs(&self) -> u64 {
        self.segments.div_ceil(self.metaslab_segments)
    }

    /// Sectors of a whole metaslab.
    pub fn metaslab_sectors(&self) -> u64 {
        self.metaslab_segments * SEGMENT_SECTORS
    }

    /// First sector and sector count of metaslab `index`.
    pub fn metaslab_range(&self, index: u64) -> (u64, u64) {
        let start = index * self.metaslab_sectors();
        (start, self.metaslab_sectors().min(self.sectors().saturating_sub(start)))
    }

    /// Sectors of one bitmap slot: a bit per sector, whole sectors.
    pub fn slot_sectors(&self) -> u64 {
        self.metaslab_sectors().div_ceil(8 * 4096)
    }

    /// Where copy `copy` of bitmap slot `slot` of metaslab `index` lies.
    pub fn slot_place(&self, index: u64, slot: u8, copy: u8) -> Place {
        let segment = index * self.metaslab_segments + u64::from(copy);
        let within = SLOTS_OFFSET + u64::from(slot) * self.slot_sectors();
        Place::new(self.vdev, segment * SEGMENT_SECTORS + within)
    }

    /// The runs of metaslab `index` that never hold blocks: (first sector, count).
    pub fn reserved(&self, index: u64) -> Vec<(u64, u64)> {
        let slots = u64::from(BITMAP_SLOTS) * self.slot_sectors();
        let mut runs: Vec<(u64, u64)> = (0..self.copies)
            .map(|copy| (self.slot_place(index, 0, copy).sector(), slots))
            .collect();
        if index == 0 {
            runs.insert(0, (0, SLOTS_OFFSET));
        }
        runs
    }
}
