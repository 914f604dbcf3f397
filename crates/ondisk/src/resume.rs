//! How far a stream has come that may go on where it broke off.
//!
//! ```text
//! item of a dataset, class 23, number 0
//!   version u16  flags u16 (1: handles of its own, 2: within the object)
//!   to u64  from u64  begun u64  object u64  within u64  pages u64  heard i64+u32
//!   sent string (u16 length)
//! ```
//! It stands beside the record of a dataset that is received whole (class 4), or beside what is
//! received into a head ([`crate::receiving`]). While it is there, an import keeps what came.

use crate::codec::FormatError;
use crate::dataset::{begin_with, open_with_flags};
use crate::inode::Time;
use crate::types::{Guid, ObjectId, Txg};

/// Longest name of a snapshot in a record, bytes: it is for people.
pub const SENT_BYTES_MAX: usize = 800;

const OWN_HANDLES: u16 = 1;
const WITHIN: u16 = 2;

/// Where a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct StreamPlace {
    /// All objects before this one have come.
    pub object: ObjectId,
    /// It has come itself, with its content up to this page or key; `None`: nothing of it.
    pub within: Option<u64>,
}

/// A stream has come so far. All before that is in txgs up to the one that wrote this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeRecord {
    /// The guid of the snapshot that is sent.
    pub to: Guid,
    /// That of the one since which it has what changed.
    pub from: Option<Guid>,
    /// The dataset gets file handles of its own.
    pub own_handles: bool,
    /// The txg in which it began.
    pub begun: Txg,
    /// How far it has come.
    pub place: StreamPlace,
    /// Pages of content that came.
    pub pages: u64,
    /// When it came so far.
    pub heard: Time,
    /// The full name of the snapshot where it comes from; empty if it is too long.
    pub sent: String,
}

impl ResumeRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let within = if self.place.within.is_some() { WITHIN } else { 0 };
        let mut w = begin_with(if self.own_handles { OWN_HANDLES | within } else { within });
        w.u64(self.to.0);
        w.u64(self.from.map_or(0, |from| from.0));
        w.u64(self.begun.0);
        w.u64(self.place.object.0);
        w.u64(self.place.within.unwrap_or(0));
        w.u64(self.pages);
        self.heard.encode(&mut w);
        w.string(self.sent.as_bytes());
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        const WHAT: &str = "resume record";
        let (mut r, flags) = open_with_flags(value, WHAT)?;
        if flags & !(OWN_HANDLES | WITHIN) != 0 {
            return Err(FormatError::invalid("resume record: flags", flags));
        }
        let (to, from, begun) = (Guid(r.u64()?), Guid(r.u64()?), r.txg()?);
        let (object, within) = (ObjectId(r.sequence()?), r.u64()?);
        let is_within = flags & WITHIN != 0;
        if to.0 == 0 || !is_within && within != 0 {
            return Err(FormatError::invalid("resume record: place", within));
        }
        Ok(ResumeRecord {
            to,
            from: Some(from).filter(|from| from.0 != 0),
            own_handles: flags & OWN_HANDLES != 0,
            begun,
            place: StreamPlace { object, within: is_within.then_some(within) },
            pages: r.u64()?,
            heard: Time::decode(&mut r)?,
            sent: r.text(SENT_BYTES_MAX)?,
        })
    }
}
