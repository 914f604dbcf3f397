//! Chunks of a cache disk: copies of blocks that were read from the pool.
//!
//! ```text
//! a cache disk: labels as on any leaf; segments 1 .. n-2 are chunks of 256 sectors (1 MiB)
//!
//! a chunk: 2 sectors of header, then the sectors of its runs, one behind the other
//! header
//!   magic "AQL2CHNK"  version u32  pool u64  leaf u64  chunk u64  sequence u64
//!   runs u32, each:
//!     place u64  written u64  sectors u8  form u8 (1 pages, 2 a block)
//!   padding; the last 16 bytes of the 2 sectors are the xxh3-128 of all before them
//! ```
//! `pool`, `leaf` and `chunk` are the own place. `sequence` rises with every chunk that is written:
//! the one with the highest is the newest, and the next one goes behind it.
//!
//! The sectors are those of the pool, as they are stored there. Nothing here says whether they are
//! right: who reads them checks them as it would a copy on any disk, by what names the block. So a
//! chunk that was torn, that is older than its header or from another past costs a read, and no
//! more.

use crate::codec::{FormatError, Reader, Writer, seal, unseal};
use crate::layout::leaf_segments;
use crate::types::{Guid, Place, SEGMENT_SECTORS, Txg};

const WHAT: &str = "cache chunk";
const MAGIC: [u8; 8] = *b"AQL2CHNK";
const VERSION: u32 = 1;
/// Sectors of a chunk.
pub const CHUNK_SECTORS: u64 = 256;
/// Of them, the header.
pub const CHUNK_HEADER_SECTORS: u64 = 2;
/// Sectors of blocks that a chunk holds.
pub const CHUNK_PAYLOAD_SECTORS: u64 = CHUNK_SECTORS - CHUNK_HEADER_SECTORS;

/// Chunks on a leaf of so many sectors.
pub fn chunks(leaf_sectors: u64) -> u64 {
    leaf_segments(leaf_sectors).saturating_sub(2) * (SEGMENT_SECTORS / CHUNK_SECTORS)
}

/// The first sector of a chunk.
pub fn chunk_sector(chunk: u64) -> u64 {
    SEGMENT_SECTORS + chunk * CHUNK_SECTORS
}

/// Form of the sectors of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RunForm {
    /// Plain pages: each may be wanted by itself.
    Pages = 1,
    /// A node, or a compressed extent: wanted as a whole.
    Block = 2,
}

/// Sectors that lie together, in the pool and in the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedRun {
    /// Where they lie in the pool.
    pub place: Place,
    /// The txg in which they were written there.
    pub written: Txg,
    /// How many they are.
    pub sectors: u8,
    /// Form of the sectors.
    pub form: RunForm,
}

impl CachedRun {
    /// The places by which it is looked for, each with its sector from the run's first on.
    pub fn keys(&self) -> impl Iterator<Item = (Place, u64)> + use<> {
        let (place, keys) = match self.form {
            RunForm::Pages => (self.place, u64::from(self.sectors)),
            RunForm::Block => (self.place, 1),
        };
        (0..keys).map(move |at| (place.plus(at), at))
    }
}

/// The header of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkHeader {
    /// The pool.
    pub pool: Guid,
    /// The disk.
    pub leaf: Guid,
    /// Which chunk of the disk it is.
    pub chunk: u64,
    /// Its number among all that were written there.
    pub sequence: u64,
    /// Runs in the chunk, in the order in which they lie there.
    pub runs: Vec<CachedRun>,
}

impl ChunkHeader {
    /// Its runs, each with its first sector from the chunk's on.
    pub fn placed(&self) -> impl Iterator<Item = (u64, &CachedRun)> {
        self.runs.iter().scan(CHUNK_HEADER_SECTORS, |next, run| {
            let at = *next;
            *next += u64::from(run.sectors);
            Some((at, run))
        })
    }

    /// Its bytes, sealed.
    ///
    /// # Errors
    /// More than a chunk can hold.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        self.check()?;
        let mut w = Writer::new();
        w.put(&MAGIC);
        w.u32(VERSION);
        w.u64(self.pool.0);
        w.u64(self.leaf.0);
        w.u64(self.chunk);
        w.u64(self.sequence);
        w.count(self.runs.len());
        for run in &self.runs {
            w.u64(run.place.0);
            w.u64(run.written.0);
            w.u8(run.sectors);
            w.u8(run.form as u8);
        }
        seal(w, usize::try_from(CHUNK_HEADER_SECTORS).unwrap_or(usize::MAX), WHAT)
    }

    /// Reads a header.
    ///
    /// # Errors
    /// It is none, is damaged, or of newer software.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(unseal(bytes, WHAT)?, WHAT);
        r.magic(MAGIC)?;
        r.version(VERSION)?;
        let (pool, leaf, chunk, sequence) =
            (Guid(r.u64()?), Guid(r.u64()?), r.u64()?, r.sequence()?);
        let runs = (0..r.u32()?).map(|_| decode_run(&mut r)).collect::<Result<_, _>>()?;
        let header = ChunkHeader { pool, leaf, chunk, sequence, runs };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FormatError> {
        let sectors = self.runs.iter().map(|run| u64::from(run.sectors)).sum::<u64>();
        let is_empty = self.runs.iter().any(|run| run.sectors == 0);
        match sectors <= CHUNK_PAYLOAD_SECTORS && !is_empty {
            true => Ok(()),
            false => Err(FormatError::invalid("cache chunk: sectors", sectors)),
        }
    }
}

fn decode_run(r: &mut Reader<'_>) -> Result<CachedRun, FormatError> {
    let (place, written, sectors) = (Place(r.u64()?), r.txg()?, r.u8()?);
    let form = match r.u8()? {
        1 => RunForm::Pages,
        2 => RunForm::Block,
        other => return Err(FormatError::invalid("cache chunk: form", other)),
    };
    Ok(CachedRun { place, written, sectors, form })
}
