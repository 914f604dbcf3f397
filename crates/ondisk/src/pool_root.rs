//! The pool root: the last part of a txg record carries it.
//!
//! ```text
//! version u32  record_copies u32 (version 3, else 0)  txg u64  wall_ns u64
//! trees u32 (8), each a block pointer or 64 zero bytes: see `TreeSlot`
//! log: chain u64  head_sequence u64  head_place u64  previous_checksum u128  segments
//! log home: segments
//! records: segments  next_place u64
//! vdevs u32, each: allocated_sectors u64
//!
//! segments: runs u32, each: place u64  sectors u64
//! ```
//! Segment lists are ordered: the log and the records go through them in this order. A run consists
//! of whole segments. Where records have two copies, the first half of their segments holds the
//! first ones. A record's second copy is at the same offset of the matching segment in the other
//! half. The log's home is its segments on data vdevs, which stay reserved for it while it lies on
//! log vdevs. Version 1 had no separate home: the log's segments were always at home. Up to version
//! 2, records have two copies if a data vdev has no redundancy, else one. A root of version 3 says
//! how many; one is written where the vdevs say something else, as after a single disk was added to
//! mirrors.

use crate::block_pointer::BlockPointer;
use crate::codec::{FormatError, Reader, Writer, check_run};
use crate::types::{Place, Run, SEGMENT_SECTORS, Txg};

const WHAT: &str = "pool root";
const VERSION: u32 = 3;
/// Pool-wide trees a root has room for.
pub const TREES: usize = 8;
/// Segments that a list names at most (256 GiB): a list is held in memory.
pub const SEGMENTS_MAX: u64 = 1 << 16;

/// Which pool-wide tree is where in the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum TreeSlot {
    /// Datasets, their properties, snapshots and lines.
    Namespace = 0,
    /// Extents with several tenancies (reserved: range clone, dedup).
    Refcounts = 1,
    /// Replies to non-idempotent calls.
    Replies = 2,
    /// Segments that moved (empty until there is a cleaner).
    Segments = 3,
    /// The history of acts: see [`crate::history`]. Earlier releases keep it as it is.
    History = 4,
}

/// The position of the intent log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogRoot {
    /// The chain; 0 if there is none yet.
    pub chain: u64,
    /// Sequence of the first batch that is not applied whole. The first of a chain is 1 if an
    /// uberblock began it. A chain that a root begins continues the numbers of the chain before.
    pub head_sequence: u64,
    /// Where that batch lies or will lie.
    pub head_place: Place,
    /// Header checksum of the batch before it, 0 for the first of a chain.
    pub previous_checksum: u128,
    /// The log's segments in their order.
    pub segments: Vec<Run>,
}

/// The root of everything in one txg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolRoot {
    /// The txg.
    pub txg: Txg,
    /// When, ns since 1970.
    pub wall_ns: u64,
    /// Pool-wide trees, opaque to the pool.
    pub trees: [Option<BlockPointer>; TREES],
    /// The intent log.
    pub log: LogRoot,
    /// Segments on data vdevs that stay reserved for the log wherever it lies, in their order.
    pub log_home: Vec<Run>,
    /// Segments for txg records, in their order.
    pub record_segments: Vec<Run>,
    /// Copies of a record, 1 or 2; `None`: as the vdevs say.
    pub record_copies: Option<u8>,
    /// Where the next record goes if it fits there.
    pub record_next: Place,
    /// Allocated sectors of each vdev, reserved places included.
    pub allocated_sectors: Vec<u64>,
}

impl PoolRoot {
    /// Appends the root.
    pub fn encode(&self, w: &mut Writer) {
        w.u32(if self.record_copies.is_some() { VERSION } else { 2 });
        w.u32(self.record_copies.unwrap_or(0).into());
        w.u64(self.txg.0);
        w.u64(self.wall_ns);
        w.count(self.trees.len());
        for tree in &self.trees {
            BlockPointer::encode_optional(tree.as_ref(), w);
        }
        w.u64(self.log.chain);
        w.u64(self.log.head_sequence);
        w.u64(self.log.head_place.0);
        w.u128(self.log.previous_checksum);
        encode_segments(&self.log.segments, w);
        encode_segments(&self.log_home, w);
        encode_segments(&self.record_segments, w);
        w.u64(self.record_next.0);
        w.count(self.allocated_sectors.len());
        for sectors in &self.allocated_sectors {
            w.u64(*sectors);
        }
    }

    /// Reads a root.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let version = r.u32()?;
        if version > VERSION {
            return Err(FormatError::NewerVersion { what: WHAT, version });
        }
        if version == 0 {
            return Err(FormatError::invalid("pool root: version", version));
        }
        let record_copies = match (version, r.u32()?) {
            (1 | 2, _) => None,
            (_, copies @ 1..=2) => Some(if copies == 1 { 1 } else { 2 }),
            (_, copies) => return Err(FormatError::invalid("pool root: record copies", copies)),
        };
        let (txg, wall_ns) = (r.txg()?, r.u64()?);
        let trees_count = r.u32()?;
        if trees_count as usize != TREES {
            return Err(FormatError::invalid("pool root: trees", trees_count));
        }
        let mut trees = [None; TREES];
        for tree in &mut trees {
            *tree = BlockPointer::decode_optional(r)?;
        }
        let log = LogRoot {
            chain: r.u64()?,
            head_sequence: r.sequence()?,
            head_place: Place(r.u64()?),
            previous_checksum: r.u128()?,
            segments: decode_segments(r)?,
        };
        if log.head_sequence == 0 && !log.segments.is_empty() {
            return Err(FormatError::invalid("pool root: head of the log", 0u64));
        }
        let log_home = if version == 1 { log.segments.clone() } else { decode_segments(r)? };
        let record_segments = decode_segments(r)?;
        let record_next = Place(r.u64()?);
        let allocated_sectors = (0..r.u32()?).map(|_| r.u64()).collect::<Result<_, _>>()?;
        Ok(PoolRoot {
            txg,
            wall_ns,
            trees,
            log,
            log_home,
            record_segments,
            record_copies,
            record_next,
            allocated_sectors,
        })
    }
}

fn encode_segments(runs: &[Run], w: &mut Writer) {
    w.count(runs.len());
    for run in runs {
        w.u64(run.place.0);
        w.u64(run.sectors);
    }
}

fn decode_segments(r: &mut Reader<'_>) -> Result<Vec<Run>, FormatError> {
    let mut runs = Vec::new();
    let mut segments: u64 = 0;
    for _ in 0..r.u32()? {
        let run = Run::new(Place(r.u64()?), r.u64()?);
        check_run(run.place, run.sectors)?;
        segments = segments.saturating_add(run.sectors / SEGMENT_SECTORS);
        if segments > SEGMENTS_MAX {
            return Err(FormatError::invalid("pool root: segments", segments));
        }
        runs.push(run);
    }
    Ok(runs)
}
