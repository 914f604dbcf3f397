//! The mark of a leaf that is being resilvered: an entry of its uberblock ring. One sector, sealed.
//!
//! ```text
//!   0 magic "AQUBMARK"  version u32  label u8  pad [3]
//!  16 pool_guid u64  leaf_guid u64    its own place: a copied sector is refused
//!  32 sequence u64      above that of each uberblock of pool and leaf; slot = sequence mod 64
//!  40 kept u64          of what was written up to this txg the leaf holds all that lives; 0: of
//!                       nothing
//!  ... padding, xxh3-128
//! ```
//! A leaf that is being resilvered holds old and new content beside each other, and its own
//! uberblocks describe neither. While a mark is the newest entry of its ring, they do not count.

use crate::codec::{FormatError, Reader, Writer, seal, unseal};
use crate::types::{Guid, SEQUENCE_LIMIT, Txg};

const WHAT: &str = "resilver mark";
const MAGIC: [u8; 8] = *b"AQUBMARK";
const VERSION: u32 = 1;

/// See the module's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResilverMark {
    /// The pool.
    pub pool_guid: Guid,
    /// The leaf.
    pub leaf_guid: Guid,
    /// The label it lies in, 0 to 3.
    pub label: u8,
    /// Its order among the entries of the ring.
    pub sequence: u64,
    /// Of what was written up to this txg the leaf holds all that lives.
    pub kept: Txg,
}

impl ResilverMark {
    /// The sector's bytes.
    ///
    /// # Errors
    /// Numbers beyond their limits: a mark that could not be read back is refused before it is
    /// written.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        if self.sequence >= SEQUENCE_LIMIT {
            return Err(FormatError::invalid("sequence", self.sequence));
        }
        if self.kept.0 >= Txg::LIMIT {
            return Err(FormatError::invalid("txg", self.kept.0));
        }
        let mut w = Writer::new();
        w.put(&MAGIC);
        w.u32(VERSION);
        w.u8(self.label);
        w.put(&[0; 3]);
        w.u64(self.pool_guid.0);
        w.u64(self.leaf_guid.0);
        w.u64(self.sequence);
        w.u64(self.kept.0);
        seal(w, 1, WHAT)
    }

    /// Reads a sector of a ring.
    ///
    /// # Errors
    /// It is something else, damaged, newer, or says what cannot be.
    pub fn decode(sector: &[u8]) -> Result<Self, FormatError> {
        Reader::new(sector, WHAT).magic(MAGIC)?;
        let body = unseal(sector, WHAT)?;
        let mut r = Reader::new(body, WHAT);
        r.magic(MAGIC)?;
        r.version(VERSION)?;
        let label = r.u8()?;
        r.array::<3>()?;
        let (pool_guid, leaf_guid) = (Guid(r.u64()?), Guid(r.u64()?));
        Ok(ResilverMark { pool_guid, leaf_guid, label, sequence: r.sequence()?, kept: r.txg()? })
    }
}
