//! The txg record: the changes of one txg, written to reserved segments.
//!
//! A record is one or more parts of at most 1 MiB, each pointing at the one before. The last part
//! of a txg carries the pool root, and the uberblock points at it.
//!
//! ```text
//! magic "AQTXGREC"  version u32  last u8  pad [3]
//! pool_guid u64  txg u64  place u64  window_start u64
//! previous: record pointer (52 bytes)
//! slots u32, each: vdev u16  metaslab u32  slot u8  pad u8  as_of u64  checksum u128
//!                  free_sectors u64  longest_run u32
//! allocated: groups u32, each: vdev u16, runs u32, each u64 = sector << 16 | sectors
//! freed: the same
//! root (only if last): see pool_root
//!
//! record pointer: txg u64  place[0] u64  place[1] u64 (0 = none)  sectors u32  pad u64
//!                 checksum u128; 52 zero bytes for none
//! ```
//! The pointer to a part holds its checksum. `place` shows a misdirected write to inspectors. A
//! slot's entry holds for the bitmap as of txg `as_of`; the runs of later records go on top.
//! `window_start`: no record before that txg is needed to know the space of the pool.

use crate::codec::{FormatError, Reader, Writer, check_run};
use crate::pool_root::PoolRoot;
use crate::types::{Guid, Place, Run, Txg};

const WHAT: &str = "txg record";
const MAGIC: [u8; 8] = *b"AQTXGREC";
const VERSION: u32 = 1;
/// A part is at most this many sectors.
pub const RECORD_SECTORS_MAX: usize = 256;
/// Longest run one entry describes, in sectors.
pub const RUN_SECTORS_MAX: u64 = 0xffff;
/// Encoded bytes of a run.
pub const RUN_BYTES: usize = 8;
/// Encoded bytes of a slot entry.
pub const SLOT_ENTRY_BYTES: usize = 44;
/// Bytes of a part's fixed fields, with room for a large root.
pub const RECORD_HEADER_BYTES: usize = 128;

/// Points at a part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordPointer {
    /// Its txg.
    pub txg: Txg,
    /// The copies; the second is null on redundant vdevs.
    pub places: [Place; 2],
    /// Whole sectors.
    pub sectors: u32,
    /// Checksum of those sectors.
    pub checksum: u128,
}

impl RecordPointer {
    /// Encoded size.
    pub const BYTES: usize = 52;

    /// Appends the pointer or zeros.
    pub fn encode_optional(pointer: Option<&RecordPointer>, w: &mut Writer) {
        let Some(pointer) = pointer else {
            w.put(&[0; Self::BYTES]);
            return;
        };
        w.u64(pointer.txg.0);
        let [first, second] = pointer.places;
        w.u64(first.0);
        w.u64(second.0);
        w.u32(pointer.sectors);
        w.u64(0);
        w.u128(pointer.checksum);
    }

    /// Reads a pointer, `None` if it is all zeros.
    pub fn decode_optional(r: &mut Reader<'_>) -> Result<Option<Self>, FormatError> {
        let bytes = r.array::<{ Self::BYTES }>()?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut r = Reader::new(&bytes, "record pointer");
        let txg = r.txg()?;
        let places = [Place(r.u64()?), Place(r.u64()?)];
        let sectors = r.u32()?;
        r.u64()?;
        let checksum = r.u128()?;
        places.iter().try_for_each(|place| check_run(*place, sectors.into()))?;
        let valid = 1..=RECORD_SECTORS_MAX;
        if places[0].is_null() || !valid.contains(&(sectors as usize)) {
            return Err(FormatError::invalid("record pointer: sectors", sectors));
        }
        Ok(Some(RecordPointer { txg, places, sectors, checksum }))
    }

    /// The places in use.
    pub fn copies(&self) -> impl Iterator<Item = Place> + use<> {
        self.places.into_iter().filter(|place| !place.is_null())
    }
}

/// The current bitmap slot of a metaslab, and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotEntry {
    /// The top-level vdev.
    pub vdev: u16,
    /// The metaslab of that vdev.
    pub metaslab: u32,
    /// The slot.
    pub slot: u8,
    /// The bitmap together with this entry holds all changes up to this txg.
    pub as_of: Txg,
    /// Checksum of the slot's bytes.
    pub checksum: u128,
    /// Free sectors as of then.
    pub free_sectors: u64,
    /// Longest free run as of then, in sectors.
    pub longest_run: u32,
}

/// One part of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxgRecord {
    /// The pool.
    pub pool_guid: Guid,
    /// The txg.
    pub txg: Txg,
    /// Where the first copy lies.
    pub place: Place,
    /// Records before this txg are not needed.
    pub window_start: Txg,
    /// The part before, of this or an earlier txg.
    pub previous: Option<RecordPointer>,
    /// Current slots named by this txg.
    pub slots: Vec<SlotEntry>,
    /// Runs taken.
    pub allocated: Vec<Run>,
    /// Runs freed.
    pub freed: Vec<Run>,
    /// In the last part: the pool's root.
    pub root: Option<PoolRoot>,
}

impl TxgRecord {
    /// The bytes, whole sectors.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut w = Writer::new();
        w.put(&MAGIC);
        w.u32(VERSION);
        w.u8(u8::from(self.root.is_some()));
        w.put(&[0; 3]);
        w.u64(self.pool_guid.0);
        w.u64(self.txg.0);
        w.u64(self.place.0);
        w.u64(self.window_start.0);
        RecordPointer::encode_optional(self.previous.as_ref(), &mut w);
        w.count(self.slots.len());
        for slot in &self.slots {
            w.u16(slot.vdev);
            w.u32(slot.metaslab);
            w.u8(slot.slot);
            w.u8(0);
            w.u64(slot.as_of.0);
            w.u128(slot.checksum);
            w.u64(slot.free_sectors);
            w.u32(slot.longest_run);
        }
        encode_runs(&self.allocated, &mut w);
        encode_runs(&self.freed, &mut w);
        if let Some(root) = &self.root {
            root.encode(&mut w);
        }
        let mut bytes = w.into_bytes();
        let sectors = bytes.len().div_ceil(4096);
        if sectors > RECORD_SECTORS_MAX {
            return Err(FormatError::TooLarge { what: WHAT, bytes: bytes.len() });
        }
        bytes.resize(sectors * 4096, 0);
        Ok(bytes)
    }

    /// Reads a part whose checksum was verified.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(bytes, WHAT);
        r.magic(MAGIC)?;
        r.version(VERSION)?;
        let last = r.u8()? != 0;
        r.array::<3>()?;
        let pool_guid = Guid(r.u64()?);
        let txg = r.txg()?;
        let place = Place(r.u64()?);
        let window_start = r.txg()?;
        let previous = RecordPointer::decode_optional(&mut r)?;
        let slots = (0..r.u32()?).map(|_| decode_slot(&mut r)).collect::<Result<_, _>>()?;
        let allocated = decode_runs(&mut r)?;
        let freed = decode_runs(&mut r)?;
        let root = if last { Some(PoolRoot::decode(&mut r)?) } else { None };
        Ok(TxgRecord {
            pool_guid,
            txg,
            place,
            window_start,
            previous,
            slots,
            allocated,
            freed,
            root,
        })
    }
}

fn decode_slot(r: &mut Reader<'_>) -> Result<SlotEntry, FormatError> {
    let (vdev, metaslab, slot) = (r.u16()?, r.u32()?, r.u8()?);
    r.u8()?;
    if slot >= crate::layout::BITMAP_SLOTS {
        return Err(FormatError::invalid("txg record: slot", slot));
    }
    Ok(SlotEntry {
        vdev,
        metaslab,
        slot,
        as_of: r.txg()?,
        checksum: r.u128()?,
        free_sectors: r.u64()?,
        longest_run: r.u32()?,
    })
}

/// Runs are grouped by vdev so that each takes 8 bytes; longer ones must have been cut.
fn encode_runs(runs: &[Run], w: &mut Writer) {
    let groups: Vec<&[Run]> = runs.chunk_by(|a, b| a.place.vdev() == b.place.vdev()).collect();
    w.count(groups.len());
    for group in groups {
        w.u16(group.first().map_or(0, |run| run.place.vdev()));
        w.count(group.len());
        for run in group {
            assert!((1..=RUN_SECTORS_MAX).contains(&run.sectors), "a run of 1 to 65,535 sectors");
            w.u64(run.place.sector() << 16 | run.sectors);
        }
    }
}

fn decode_runs(r: &mut Reader<'_>) -> Result<Vec<Run>, FormatError> {
    let mut runs = Vec::new();
    for _ in 0..r.u32()? {
        let vdev = r.u16()?;
        for _ in 0..r.u32()? {
            let packed = r.u64()?;
            let run = Run::new(Place::new(vdev, packed >> 16), packed & RUN_SECTORS_MAX);
            if run.sectors == 0 {
                return Err(FormatError::invalid("txg record: run", packed));
            }
            check_run(run.place, run.sectors)?;
            runs.push(run);
        }
    }
    Ok(runs)
}
