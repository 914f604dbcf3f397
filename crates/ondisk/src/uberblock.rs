//! The uberblock: the one atomic step that makes a txg real. One sector, sealed.
//!
//! ```text
//!   0 magic "AQUBERBL"  version u32  label u8  flags u8  pad u16
//!  16 pool_guid u64     another pool's uberblock left on the disk is refused
//!  24 leaf_guid u64     own place: a misdirected or copied sector is refused
//!  32 sequence u64      rises with every uberblock; slot = sequence mod 64, so a torn write only
//!                       ever loses the newest one
//!  40 txg u64           the newest committed txg
//!  48 wall_ns u64       when it was written, for people and for a second host
//!  56 session u64       rises with every import; batches of older sessions after the fixed end are
//!                       not of this chain
//!  64 session_first_txg u64   no txg of this session is below: (place, written) never repeats
//!  72 config_sequence u64
//!  80 mark u64          log batches up to this sequence are known durable
//!  88 chain u64  end_sequence u64  end_checksum u128   the end of the log found at import
//! 120 restart_chain u64 not 0: the root's log head is void, the log starts anew with this chain
//! 128 floor u64         records with txg <= floor are skipped by replay
//! 136 roots [3 x record pointer 52 bytes]: newest first
//! 292 outdated u32, each: leaf_guid u64, since u64 (sequence of the last uberblock it was given)
//! ... padding
//! 2344 host_id u64      the machine that wrote it, so that another one takes it for in use; 0: not
//!                       told, as in pools of the first releases
//! 2352 host_name string its name, for people
//! 2424 counted u64      the newest uberblock that counted when this one was written: a leaf that
//!                       this one does not name has that one or a later one. One that has not is an
//!                       older copy of itself. 0: not told
//! ... padding, xxh3-128
//! ```
//! Host and `counted` were added within version 1, in bytes that earlier software writes as zeros
//! and does not read. With a new version, earlier software would have taken an older uberblock of
//! the ring for the newest.

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
/// Where the host begins: behind as many outdated leaves as there can be.
const HOST_OFFSET: usize = FIXED_BYTES + 4 + LEAVES_MAX * 16;
const _: () = assert!(HOST_OFFSET == 2344);
const _: () = assert!(HOST_OFFSET + 8 + 2 + HOST_NAME_BYTES_MAX + 16 <= SECTOR_BYTES);
/// Where the newest uberblock that counted is named.
const COUNTED_OFFSET: usize = 2424;
const _: () = assert!(HOST_OFFSET + 8 + 2 + HOST_NAME_BYTES_MAX <= COUNTED_OFFSET);
/// Longest name of a host, bytes.
pub const HOST_NAME_BYTES_MAX: usize = 64;

/// A machine that uses a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its identity, not 0.
    pub id: u64,
    /// Its name for people.
    pub name: String,
}

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
    /// Sequence of the last uberblock that it was given: the newest that it may hold, unless it was
    /// in use apart from the others.
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
    /// When it was written, ns since 1970, by the clock of the host that wrote it.
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
    /// The machine that wrote it, if it is known.
    pub host: Option<Host>,
    /// Sequence of the newest uberblock that counted when this one was written; 0: not told. Each
    /// leaf that this one does not name has that one or a later one.
    pub counted: u64,
}

impl Uberblock {
    /// Whether it names this leaf outdated.
    pub fn names(&self, leaf: Guid) -> bool {
        self.outdated.iter().any(|outdated| outdated.leaf == leaf)
    }

    /// The sector's bytes for label `label` of `leaf`.
    ///
    /// # Errors
    /// More outdated leaves than a pool has, and numbers beyond their limits. An uberblock that
    /// could not be read back is refused before it is written, so a pool that has used up its
    /// numbers stops.
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
        if let Some(host) = &self.host {
            w.put(&vec![0; HOST_OFFSET.saturating_sub(w.len())]);
            w.u64(host.id);
            w.string(host.name.as_bytes());
        }
        if self.counted != 0 {
            w.put(&vec![0; COUNTED_OFFSET.saturating_sub(w.len())]);
            w.u64(self.counted);
        }
        seal(w, 1, WHAT)
    }

    fn check(&self) -> Result<(), FormatError> {
        if self.outdated.len() > LEAVES_MAX {
            return Err(FormatError::TooLarge { what: WHAT, bytes: self.outdated.len() * 16 });
        }
        if self.host.as_ref().is_some_and(|host| host.id == 0) {
            return Err(FormatError::invalid("uberblock: host", 0u64));
        }
        if let Some(bytes) = self.host.as_ref().map(|host| host.name.len())
            && bytes > HOST_NAME_BYTES_MAX
        {
            return Err(FormatError::TooLarge { what: "uberblock: host", bytes });
        }
        let txgs = [self.txg, self.session_first_txg, self.floor];
        if let Some(txg) = txgs.into_iter().find(|txg| txg.0 >= Txg::LIMIT) {
            return Err(FormatError::invalid("txg", txg.0));
        }
        let of_log = [self.mark, self.log_end.sequence];
        let of_pool = [self.sequence, self.session, self.config_sequence, self.counted];
        let numbers = of_pool.into_iter().chain(of_log);
        match numbers.into_iter().find(|number| *number >= SEQUENCE_LIMIT) {
            Some(number) => Err(FormatError::invalid("sequence", number)),
            None => Ok(()),
        }
    }

    /// Reads a sector of a ring.
    pub fn decode(sector: &[u8]) -> Result<Self, FormatError> {
        Reader::new(sector, WHAT).magic(MAGIC)?;
        let body = unseal(sector, WHAT)?;
        let mut r = Reader::new(body, WHAT);
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
            host: Host::decode(body)?,
            counted: Reader::new(body.get(COUNTED_OFFSET..).unwrap_or_default(), WHAT)
                .sequence()?,
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

impl Host {
    fn decode(body: &[u8]) -> Result<Option<Host>, FormatError> {
        let mut r = Reader::new(body.get(HOST_OFFSET..).unwrap_or_default(), WHAT);
        let id = r.u64()?;
        if id == 0 {
            return Ok(None);
        }
        Ok(Some(Host { id, name: r.text(HOST_NAME_BYTES_MAX)? }))
    }
}
