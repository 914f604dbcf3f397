//! When the free space of a disk was last worked on: its newest trim and its newest initialization
//! that have ended.
//!
//! ```text
//! item of class 15 (crate::disk_work), its trim and its initialization each:
//!     state u8 (0 none, 1 finished, 2 canceled, 3 failed)
//!     begun i64+u32  ended i64+u32
//!     total_bytes u64  passed_bytes u64  done_bytes u64  skipped_bytes u64   (all 0 of state 0)
//! ```
//! It is only told: nothing is decided by it.

use crate::codec::{FormatError, Reader, Writer};
use crate::dataset::ItemClass;
use crate::disk_work::{DiskWork, WorkKind};
use crate::inode::Time;

/// How work on free space ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum WorkEnd {
    /// All that was free was worked on.
    Finished = 1,
    /// It was canceled.
    Canceled = 2,
    /// The disk gave too many errors.
    Failed = 3,
}

/// Work on the free space of a disk that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedWork {
    /// How it ended.
    pub end: WorkEnd,
    /// When it began.
    pub begun: Time,
    /// When it ended.
    pub ended: Time,
    /// Bytes of the disk.
    pub total_bytes: u64,
    /// Bytes of the disk that it has passed, in use or free.
    pub passed_bytes: u64,
    /// Bytes discarded or written over.
    pub done_bytes: u64,
    /// Bytes left alone.
    pub skipped_bytes: u64,
}

/// Record of the work on the free space of a disk that has ended: the newest of each.
pub type FreeWorkRecord = DiskWork<EndedWork>;

impl WorkKind for EndedWork {
    const WHAT: &'static str = "free work record";
    const FLAGS: &'static str = "free work record: flags";
    const CLASS: ItemClass = ItemClass::FreeWork;

    fn encode(work: Option<EndedWork>, w: &mut Writer) {
        let none = Time { seconds: 0, nanoseconds: 0 };
        w.u8(work.map_or(0, |work| work.end as u8));
        work.map_or(none, |work| work.begun).encode(w);
        work.map_or(none, |work| work.ended).encode(w);
        let counts = work.map_or([0; 4], |work| {
            [work.total_bytes, work.passed_bytes, work.done_bytes, work.skipped_bytes]
        });
        counts.into_iter().for_each(|count| w.u64(count));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Option<EndedWork>, FormatError> {
        let state = r.u8()?;
        let (begun, ended) = (Time::decode(r)?, Time::decode(r)?);
        let [total_bytes, passed_bytes, done_bytes, skipped_bytes] =
            [r.u64()?, r.u64()?, r.u64()?, r.u64()?];
        let end = match state {
            0 => return Ok(None),
            1 => WorkEnd::Finished,
            2 => WorkEnd::Canceled,
            3 => WorkEnd::Failed,
            other => return Err(FormatError::invalid("free work record: state", other)),
        };
        Ok(Some(EndedWork {
            end,
            begun,
            ended,
            total_bytes,
            passed_bytes,
            done_bytes,
            skipped_bytes,
        }))
    }
}
