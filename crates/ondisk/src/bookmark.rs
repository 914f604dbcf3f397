//! Bookmarks: what a snapshot was, without its content.
//!
//! ```text
//! item of a dataset, class 24, number: the txg of the snapshot
//!   version u16  flags u16 (1: destroyed)
//!   flags 0: what follows in the record of a snapshot (class 2)
//!   flags 1: left u64, the txg in which it was destroyed
//! ```
//! A bookmark keeps the nodes of the snapshot's trees, and none of its data. So what changed since
//! can be found, by comparison of pointers. Nodes that bookmarks alone need stand in the dead tree,
//! in a group of their own ([`crate::dead::Bucket::OF_BOOKMARKS`]). That of a destroyed one is
//! searched in the background; then the item goes.

use crate::codec::FormatError;
use crate::dataset::{SnapshotRecord, begin_with, open_with_flags};
use crate::types::Txg;

const DESTROYED: u16 = 1;

/// A bookmark, or what is left of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BookmarkRecord {
    /// It stands. The record is that of the snapshot, but for the name.
    Stands(SnapshotRecord),
    /// It was destroyed in this txg, and some of its nodes may not be freed yet.
    Destroyed {
        /// See above.
        left: Txg,
    },
}

impl BookmarkRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin_with(match self {
            BookmarkRecord::Stands(_) => 0,
            BookmarkRecord::Destroyed { .. } => DESTROYED,
        });
        match self {
            BookmarkRecord::Stands(record) => record.encode_fields(&mut w),
            BookmarkRecord::Destroyed { left } => w.u64(left.0),
        }
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let (mut r, flags) = open_with_flags(value, "bookmark record")?;
        match flags {
            0 => Ok(BookmarkRecord::Stands(SnapshotRecord::decode_fields(&mut r)?)),
            DESTROYED => Ok(BookmarkRecord::Destroyed { left: r.txg()? }),
            _ => Err(FormatError::invalid("bookmark record: flags", flags)),
        }
    }
}
