//! The reply table: the calls that must not run twice and were carried out, in order of execution,
//! and their answers.
//!
//! ```text
//! key u64 = order of execution
//! entry: key u64  client u128  xid u32  procedure u32  arguments u64 (checksum)
//!        status u32  pad u32  dataset u64  object u64  generation u64
//! ```
//! The same entry travels in the call's log record. A reply is rebuilt from status and handle.

use crate::codec::{FormatError, Reader, Writer, checksum64, checksum128};
use crate::types::{DatasetId, ObjectId};

/// Entries that the table has at most: it is held in memory.
pub const REPLIES_MAX: usize = 8192;

/// The identity of a call, by which a repeated one is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallId {
    /// Hash of the client's identity.
    pub client: u128,
    /// The call's transaction id.
    pub xid: u32,
    /// Program and procedure.
    pub procedure: u32,
    /// Checksum of the caller and the arguments, so that a different call with the same transaction
    /// id is not taken for this one.
    pub arguments: u64,
}

/// One answered call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyEntry {
    /// Order of execution.
    pub order: u64,
    /// The call.
    pub call: CallId,
    /// The protocol's status.
    pub status: u32,
    /// Dataset that the call changed.
    pub dataset: DatasetId,
    /// Object of the handle given out, 0 for none.
    pub object: ObjectId,
    /// Generation of the handle given out.
    pub generation: u64,
}

impl CallId {
    /// The call with transaction id `xid` of a procedure `(program, procedure)`, from a client at
    /// `address` (IPv4 as `::ffff:a.b.c.d`). `said` is the caller and the arguments.
    pub fn new(
        address: [u8; 16],
        xid: u32,
        (program, procedure): (u32, u32),
        said: &[u8],
    ) -> CallId {
        let procedure = program.wrapping_mul(256).wrapping_add(procedure);
        CallId { client: checksum128(&address), xid, procedure, arguments: checksum64(said) }
    }
}

impl ReplyEntry {
    /// Encoded bytes.
    pub const BYTES: usize = 72;

    /// Appends the entry.
    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.order);
        w.u128(self.call.client);
        w.u32(self.call.xid);
        w.u32(self.call.procedure);
        w.u64(self.call.arguments);
        w.u32(self.status);
        w.u32(0);
        w.u64(self.dataset.0);
        w.u64(self.object.0);
        w.u64(self.generation);
    }

    /// Reads an entry.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        // The engine counts on from it.
        let order = r.sequence()?;
        let (client, xid, procedure, arguments) = (r.u128()?, r.u32()?, r.u32()?, r.u64()?);
        let call = CallId { client, xid, procedure, arguments };
        let status = r.u32()?;
        r.u32()?;
        let (dataset, object) = (DatasetId(r.u64()?), ObjectId(r.u64()?));
        let generation = r.u64()?;
        Ok(ReplyEntry { order, call, status, dataset, object, generation })
    }
}
