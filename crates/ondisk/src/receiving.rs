//! Record of a receive into the head of a dataset that is under way.
//!
//! ```text
//! item of a dataset, class 22, number 0
//!   version u16  flags u16 (0)  from u64
//! ```
//! While it is there, the head is neither what it was nor what was sent. An import rolls the
//! dataset back to `from`, its newest snapshot.

use crate::codec::FormatError;
use crate::dataset::{begin, open};
use crate::types::Txg;

/// The head of a dataset is half of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivingRecord {
    /// The txg of the snapshot that the dataset goes back to.
    pub from: Txg,
}

impl ReceivingRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.from.0);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = open(value, "receiving record")?;
        Ok(ReceivingRecord { from: r.txg()? })
    }
}
