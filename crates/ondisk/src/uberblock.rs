//! The uberblock: the one atomic step that makes a txg real. One sector, sealed.
//!
//! ```text
//!   0 magic "AQUBERBL"  version u32  label u8  flags u8  pad u16
//!  16 pool_guid u64     another pool's uberblock left on the disk is refused
//!  24 leaf_guid u64     own place: a misdirected or copied sector is refused
//!  32 sequence u64      rises with every uberblock; slot = sequence mod 64, so a torn write only
//!                       ever loses the newest one
//!  40 txg u64           the newest committed txg
//!  48 wall_ns u64       for people
//!  56 session u64       rises with every import; batches of older sessions after the fixed end are
//!                       not of this chain
//!  64 session_first_txg u64   no txg of this session is below: (place, written) never repeats
//!  72 config_sequence u64
//!  80 mark u64          log batches up to this sequence are known durable
//!  88 chain u64  end_sequence u64  end_checksum u128   the end of the log found at import
//! 120 restart_chain u64 not 0: the root's log head is void, the log starts anew with this chain
//! 128 floor u64         records with txg <= floor are skipped by replay
//! 136 roots [3 x record pointer 52 bytes]: newest first
//! 292 outdated u32, each: leaf_guid u64, since u64 (sequence of its last good uberblock)
//! ... padding, xxh3-128
//! ```

use crate::codec::{FormatError, Reader, SECTOR_BYTES, Writer, seal, unseal};
use crate::layout::{LEAVES_MAX, REWIND_TXGS};
use crate::txg_record::RecordPointer;
use crate::types::{Guid, SEQUENCE_LIMIT, Txg};

const WHAT: &str = "uberblock";
const MAGIC: [u8; 8] = *b"AQUBERBL";
const VERSION: u32 = 1;
const FLAG_CLEAN: u8 = 1;

/// Roots that an uberblock names: the newest and `REWIND_TXGS` before it.
pub const ROOTS: usize = 3;
const _: () = assert!(ROOTS as u64 == REWIND_TXGS + 1);
/// Bytes before the outdated leaves' count.
const FIXED_BYTES: usize = 136 + ROOTS * RecordPointer::BYTES;
const _: () = assert!(FIXED_BYTES == 292);
const _: () = assert!(FIXED_BYTES + 4 + LEAVES_MAX * 16 + 16 <= SECTOR_BYTES);

/// The end of the intent log as an import fixed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogEnd {
    /// The chain.
    pub chain: u64,
    /// Sequence of the last batch; batches after it carry this session or a later one.
    pub sequence: u64,
    /// Header checksum of that batch.
    pub checksum: u128,
}

/// A leaf that missed writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outdated {
    /// The leaf.
    pub leaf: Guid,
    /// Sequence of the last uberblock that it took part in.
    pub since: u64,
}

/// One uberblock. See the module's head for the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uberblock {
    /// The pool.
    pub pool_guid: Guid,
    /// The leaf it lies on (set as it is written).
    pub leaf_guid: Guid,
    /// The label it lies in (set as it is written).
    pub label: u8,
    /// The pool was exported: nothing in the log waits for replay.
    pub clean: bool,
    /// Order among uberblocks.
    pub sequence: u64,
    /// Newest committed txg.
    pub txg: Txg,
    /// When, ns since 1970.
    pub wall_ns: u64,
    /// Number of the import.
    pub session: u64,
    /// First txg of this session.
    pub session_first_txg: Txg,
    /// The config that goes with it.
    pub config_sequence: u64,
    /// Log batches up to this one are known durable.
    pub mark: u64,
    /// The log's end as fixed at import.
    pub log_end: LogEnd,
    /// Not 0: the log starts anew with this chain.
    pub restart_chain: u64,
    /// Records with txg at or below are skipped by replay.
    pub floor: Txg,
    /// Newest root first.
    pub roots: [Option<RecordPointer>; ROOTS],
    /// Leaves that missed writes.
    pub outdated: Vec<Outdated>,
}

impl Uberblock {
    /// Whether it says that this leaf missed writes.
    pub fn names(&self, leaf: Guid) -> bool {
        self.outdated.iter().any(|outdated| outdated.leaf == leaf)
    }

    /// The sector's bytes for label `label` of `leaf`.
    ///
    /// # Errors
    /// More outdated leaves than a pool has, and numbers beyond their limits: what could not be
    /// read back is refused before it is written, so a pool that has used them up stops.
    pub fn encode_for(&self, leaf: Guid, label: u8) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut w = Writer::new();
        w.put(&MAGIC);
        w.u32(VERSION);
        w.u8(label);
        w.u8(if self.clean { FLAG_CLEAN } else { 0 });
        w.u16(0);
        w.u64(self.pool_guid.0);
        w.u64(leaf.0);
        w.u64(self.sequence);
        w.u64(self.txg.0);
        w.u64(self.wall_ns);
        w.u64(self.session);
        w.u64(self.session_first_txg.0);
        w.u64(self.config_sequence);
        w.u64(self.mark);
        w.u64(self.log_end.chain);
        w.u64(self.log_end.sequence);
        w.u128(self.log_end.checksum);
        w.u64(self.restart_chain);
        w.u64(self.floor.0);
        for root in &self.roots {
            RecordPointer::encode_optional(root.as_ref(), &mut w);
        }
        w.count(self.outdated.len());
        for outdated in &self.outdated {
            w.u64(outdated.leaf.0);
            w.u64(outdated.since);
        }
        seal(w, 1, WHAT)
    }

    fn check(&self) -> Result<(), FormatError> {
        if self.outdated.len() > LEAVES_MAX {
            return Err(FormatError::TooLarge { what: WHAT, bytes: self.outdated.len() * 16 });
        }
        let txgs = [self.txg, self.session_first_txg, self.floor];
        if let Some(txg) = txgs.into_iter().find(|txg| txg.0 >= Txg::LIMIT) {
            return Err(FormatError::invalid("txg", txg.0));
        }
        let numbers =
            [self.sequence, self.session, self.config_sequence, self.mark, self.log_end.sequence];
        match numbers.into_iter().find(|number| *number >= SEQUENCE_LIMIT) {
            Some(number) => Err(FormatError::invalid("sequence", number)),
            None => Ok(()),
        }
    }

    /// Reads a sector of a ring.
    pub fn decode(sector: &[u8]) -> Result<Self, FormatError> {
        Reader::new(sector, WHAT).magic(MAGIC)?;
        let mut r = Reader::new(unseal(sector, WHAT)?, WHAT);
        r.magic(MAGIC)?;
        r.version(VERSION)?;
        let label = r.u8()?;
        let flags = r.u8()?;
        r.u16()?;
        let mut uberblock = Uberblock {
            pool_guid: Guid(r.u64()?),
            leaf_guid: Guid(r.u64()?),
            label,
            clean: flags & FLAG_CLEAN != 0,
            sequence: r.sequence()?,
            txg: r.txg()?,
            wall_ns: r.u64()?,
            session: r.sequence()?,
            session_first_txg: r.txg()?,
            config_sequence: r.sequence()?,
            mark: r.sequence()?,
            log_end: LogEnd { chain: r.u64()?, sequence: r.sequence()?, checksum: r.u128()? },
            restart_chain: r.u64()?,
            floor: r.txg()?,
            roots: [None; ROOTS],
            outdated: Vec::new(),
        };
        for root in &mut uberblock.roots {
            *root = RecordPointer::decode_optional(&mut r)?;
        }
        let outdated = r.u32()?;
        if outdated as usize > LEAVES_MAX {
            return Err(FormatError::invalid("uberblock: outdated leaves", outdated));
        }
        for _ in 0..outdated {
            uberblock.outdated.push(Outdated { leaf: Guid(r.u64()?), since: r.sequence()? });
        }
        Ok(uberblock)
    }
}
