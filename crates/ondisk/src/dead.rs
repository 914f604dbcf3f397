//! Dead entries: blocks that no head refers to but a snapshot still covers.
//!
//! ```text
//! key: group u64  hi u64  birth u64  address u64
//! entry: key 32 bytes  kind u8 (1 extent, 2 node, 3 line, 4 subtree: reserved)  flags u8
//!        sectors u16  written u64
//! ```
//! `hi` is the newest covering snapshot. `group` is the object if a file snapshot lies in the
//! block's life, else 0. Inner nodes will carry the sum of bytes below each child beside its
//! pointer, in an entry form of their own: no tree of these is written yet.

use crate::codec::{FormatError, Reader, Writer, check_run};
use crate::types::{Place, Txg};

/// The kind of a dead entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DeadKind {
    /// An extent's sectors.
    Extent = 1,
    /// A tree node.
    Node = 2,
    /// A line record.
    Line = 3,
    /// A whole subtree.
    Subtree = 4,
}

/// One dead block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadEntry {
    /// Object, or 0.
    pub group: u64,
    /// Newest covering snapshot's txg.
    pub hi: Txg,
    /// Birth of the block.
    pub birth: Txg,
    /// Where it lies.
    pub address: Place,
    /// Its kind.
    pub kind: DeadKind,
    /// Its sectors.
    pub sectors: u16,
    /// When it was written.
    pub written: Txg,
}

impl DeadEntry {
    /// Encoded bytes.
    pub const BYTES: usize = 44;

    /// Appends the entry.
    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.group);
        w.u64(self.hi.0);
        w.u64(self.birth.0);
        w.u64(self.address.0);
        w.u8(self.kind as u8);
        w.u8(0);
        w.u16(self.sectors);
        w.u64(self.written.0);
    }

    /// Reads an entry.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let (group, hi, birth, address) = (r.u64()?, r.txg()?, r.txg()?, Place(r.u64()?));
        let kind = match r.u8()? {
            1 => DeadKind::Extent,
            2 => DeadKind::Node,
            3 => DeadKind::Line,
            4 => DeadKind::Subtree,
            other => return Err(FormatError::invalid("dead entry: kind", other)),
        };
        r.u8()?;
        let (sectors, written) = (r.u16()?, r.txg()?);
        check_run(address, sectors.into())?;
        Ok(DeadEntry { group, hi, birth, address, kind, sectors, written })
    }
}
