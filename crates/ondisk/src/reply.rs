//! The reply table: what non-idempotent calls were answered, in order of execution.
//!
//! ```text
//! key u64 = order of execution
//! entry: key u64  client u128  xid u32  procedure u32  arguments u64 (checksum)
//!        status u32  pad u32  dataset u64  object u64  generation u64
//! ```
//! The identity also travels in the call's log record; a reply is rebuilt from status and handle.

use crate::codec::{FormatError, Reader, Writer};
use crate::types::{DatasetId, ObjectId};

/// One answered call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyEntry {
    /// Order of execution.
    pub order: u64,
    /// Hash of what identifies the client.
    pub client: u128,
    /// The call's transaction id.
    pub xid: u32,
    /// Program and procedure.
    pub procedure: u32,
    /// Checksum of the arguments.
    pub arguments: u64,
    /// The protocol's status.
    pub status: u32,
    /// Dataset of the handle given out.
    pub dataset: DatasetId,
    /// Object of the handle given out, 0 for none.
    pub object: ObjectId,
    /// Generation of the handle given out.
    pub generation: u64,
}

impl ReplyEntry {
    /// Encoded bytes.
    pub const BYTES: usize = 72;

    /// Appends the entry.
    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.order);
        w.u128(self.client);
        w.u32(self.xid);
        w.u32(self.procedure);
        w.u64(self.arguments);
        w.u32(self.status);
        w.u32(0);
        w.u64(self.dataset.0);
        w.u64(self.object.0);
        w.u64(self.generation);
    }

    /// Reads an entry.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let (order, client) = (r.u64()?, r.u128()?);
        let (xid, procedure, arguments, status) = (r.u32()?, r.u32()?, r.u64()?, r.u32()?);
        r.u32()?;
        let (dataset, object) = (DatasetId(r.u64()?), ObjectId(r.u64()?));
        let generation = r.u64()?;
        Ok(ReplyEntry {
            order,
            client,
            xid,
            procedure,
            arguments,
            status,
            dataset,
            object,
            generation,
        })
    }
}
