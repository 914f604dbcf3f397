//! How far work on the free space of a disk is: its trim and its initialization that are under way
//! or suspended.
//!
//! ```text
//! item of class 19 (crate::disk_work), its trim and its initialization each:
//!     state u8 (0 none, 1 under way, 2 suspended)
//!     begun i64+u32  rate u64 (bytes a second; 0: no limit)
//!     next_sector u64  done_bytes u64  skipped_bytes u64   (all 0 of state 0)
//! ```
//! The next import goes on from there. The place may be too early: then something is discarded or
//! written over once more, which is free then.

use crate::codec::{FormatError, Reader, Writer};
use crate::dataset::ItemClass;
use crate::disk_work::{DiskWork, WorkKind};
use crate::inode::Time;

/// Work on the free space of a disk that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenWork {
    /// It waits to be resumed.
    pub is_suspended: bool,
    /// When it began.
    pub begun: Time,
    /// Bytes a second at most.
    pub rate: Option<u64>,
    /// The next sector of the vdev.
    pub next_sector: u64,
    /// Bytes discarded or written over.
    pub done_bytes: u64,
    /// Bytes left alone.
    pub skipped_bytes: u64,
}

/// Record of the work on the free space of a disk that has not ended.
pub type OpenWorkRecord = DiskWork<OpenWork>;

impl WorkKind for OpenWork {
    const WHAT: &'static str = "open work record";
    const FLAGS: &'static str = "open work record: flags";
    const CLASS: ItemClass = ItemClass::OpenWork;

    fn encode(work: Option<OpenWork>, w: &mut Writer) {
        let none = Time { seconds: 0, nanoseconds: 0 };
        w.u8(work.map_or(0, |work| 1 + u8::from(work.is_suspended)));
        work.map_or(none, |work| work.begun).encode(w);
        let counts = work.map_or([0; 4], |work| {
            [work.rate.unwrap_or(0), work.next_sector, work.done_bytes, work.skipped_bytes]
        });
        counts.into_iter().for_each(|count| w.u64(count));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Option<OpenWork>, FormatError> {
        let state = r.u8()?;
        let begun = Time::decode(r)?;
        let [rate, next_sector, done_bytes, skipped_bytes] =
            [r.u64()?, r.u64()?, r.u64()?, r.u64()?];
        let is_suspended = match state {
            0 => return Ok(None),
            1 => false,
            2 => true,
            other => return Err(FormatError::invalid("open work record: state", other)),
        };
        let rate = Some(rate).filter(|rate| *rate > 0);
        Ok(Some(OpenWork { is_suspended, begun, rate, next_sector, done_bytes, skipped_bytes }))
    }
}
