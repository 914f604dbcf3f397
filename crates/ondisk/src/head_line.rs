//! Lines of datasets: heads that were rolled back past later snapshots.
//!
//! ```text
//! item of a dataset, class 28, number = began: its head began again as one of its snapshots
//!   version u16  flags u16 (0)  to u64  left u64
//! item of a destroyed dataset, class 29, number 0: it is the old head of such a rollback
//!   version u16  flags u16  dataset u64  txg u64
//!   and with flag 1: bytes u64  saved_bytes u64
//! ```
//! On a line the head owns only what was born after `to`, the txg of a snapshot of the dataset, or
//! of that with which the dataset itself began. The record keeps that snapshot as long as the head
//! is on the line (`left` is 0), or a snapshot that was taken between `began` and `left` stays.
//!
//! What an old head no longer refers to died in `txg` in `dataset`: the snapshots before that may
//! show it, and then it goes to the dead tree there. Until it has gone there, or is free, its data
//! counts in `dataset`: so much of it is left. (Earlier releases write no flag, and such heads
//! count for nobody. They pass over what the flag brings.)

use crate::codec::{FormatError, Reader, Writer};
use crate::dataset::{begin, begin_with, open, open_with_flags};
use crate::space::Space;
use crate::types::{DatasetId, Txg};

/// Snapshot as which a head began again, and the time in which the head was on that line. The txg
/// in which it began is the item's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLineRecord {
    /// The txg of the snapshot.
    pub to: Txg,
    /// The txg in which the head left the line; `None`: it is on it.
    pub left: Option<Txg>,
}

impl HeadLineRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.to.0);
        w.u64(self.left.unwrap_or_default().0);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r: Reader<'_> = open(value, "head line record")?;
        let (to, left) = (r.txg()?, r.txg()?);
        let record = HeadLineRecord { to, left: Some(left).filter(|of| of.0 > 0) };
        if to == Txg(0) {
            return Err(FormatError::invalid("head line record: to", to.0));
        }
        if record.left.is_some_and(|left| left <= to) {
            return Err(FormatError::invalid("head line record: left", left.0));
        }
        Ok(record)
    }
}

/// Where what an old head had belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftHeadRecord {
    /// The dataset whose head it was.
    pub dataset: DatasetId,
    /// The txg in which it was that no more.
    pub txg: Txg,
    /// Space of its own data, as far as it still takes any, if that is known.
    pub counts: Option<Space>,
}

/// Flag of a left head: it says what it counts.
const FLAG_COUNTS: u16 = 1;

impl LeftHeadRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w: Writer = begin_with(self.counts.map_or(0, |_| FLAG_COUNTS));
        w.u64(self.dataset.0);
        w.u64(self.txg.0);
        if let Some(Space { bytes, saved_bytes }) = self.counts {
            w.u64(bytes);
            w.u64(saved_bytes);
        }
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let (mut r, flags): (Reader<'_>, u16) = open_with_flags(value, "left head record")?;
        let (dataset, txg) = (DatasetId(r.sequence()?), r.txg()?);
        let counts = match flags & FLAG_COUNTS {
            0 => None,
            _ => Some(Space { bytes: r.u64()?, saved_bytes: r.u64()? }),
        };
        if dataset == DatasetId(0) || txg == Txg(0) {
            return Err(FormatError::invalid("left head record: dataset", dataset.0));
        }
        Ok(LeftHeadRecord { dataset, txg, counts })
    }
}
