//! How much of a dataset's head snapshots show: what is written over there frees nothing.
//!
//! ```text
//! item of a dataset, class 31
//!   number 0: what the dataset's own snapshots show
//!   number = object id, below 2^56: what snapshots of that file show of it
//!   version u16  flags u16 (0)  bytes u64
//! ```
//! The bytes are sectors of extents, times 4096, as in `refer_bytes`, without what is inherited. It
//! may be too much, and never too little. A dataset without `refreservation` has no such items. If
//! it has the property, and not an item, the newest snapshot of the kind counts in full.

use crate::codec::FormatError;
use crate::dataset::{begin, open};

/// Bytes of a head that snapshots show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoveredRecord(pub u64);

impl CoveredRecord {
    /// The item's value.
    pub fn encode(self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.0);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        Ok(CoveredRecord(open(value, "covered record")?.u64()?))
    }
}
