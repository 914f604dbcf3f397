//! `Disk`: the one seam between the pool and its storage.
//!
//! Invariants that every implementation keeps:
//! - Addresses and lengths are whole sectors of [`SECTOR_BYTES`](crate::SECTOR_BYTES).
//! - An operation starts at the first poll of its future and owns its memory until it ends.
//!   Dropping the future does not cancel it, and must not free memory that a device still uses.
//! - A write is *durable* when it had completed before a `flush` was submitted and that flush
//!   succeeded. A `write_durable` is durable when it completes. There is no other promise: before
//!   that, writes may be lost, reordered or torn.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use crate::Page;

/// The future of one disk operation.
pub type IoFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, DiskError>> + Send + 'a>>;

/// A device or image addressed in sectors of 4 KiB.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Capacity in whole sectors, as found when the disk was opened or [last grown](Disk::grow).
    fn sectors(&self) -> u64;

    /// Looks whether the disk has become larger, and uses all of it from now on. Returns its
    /// capacity in whole sectors, which never falls.
    fn grow(&self) -> IoFuture<'_, u64> {
        Box::pin(std::future::ready(Ok(self.sectors())))
    }

    /// Its name for people: a path, or the simulator's name.
    fn name(&self) -> &str;

    /// Reads `count` sectors from `sector` on, one page each.
    fn read(&self, sector: u64, count: usize) -> IoFuture<'_, Vec<Page>>;

    /// Writes the pages to consecutive sectors from `sector` on. Completed is not durable.
    fn write(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()>;

    /// Writes the pages, durable on completion (FUA or an equivalent). Says nothing about other
    /// writes.
    fn write_durable(&self, sector: u64, pages: Vec<Page>) -> IoFuture<'_, ()>;

    /// Makes durable every write that had completed when this was first polled.
    fn flush(&self) -> IoFuture<'_, ()>;

    /// Tells the device that the content of these sectors is no longer needed. Later reads return
    /// anything. A device that cannot discard succeeds without doing anything.
    fn discard(&self, sector: u64, count: u64) -> IoFuture<'_, ()>;

    /// Whether discards have an effect, as far as is known: one that was refused as unsupported
    /// tells.
    fn can_discard(&self) -> bool {
        true
    }
}

/// Why a disk operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// The range does not lie within the disk.
    #[error("sectors {sector}+{count} lie outside the disk of {sectors} sectors")]
    OutOfRange {
        /// First sector asked for.
        sector: u64,
        /// Number of sectors asked for.
        count: u64,
        /// The disk's capacity.
        sectors: u64,
    },
    /// The device reported an error.
    #[error("{operation} at 4 KiB sector {sector}: {}", said(*kind, *errno))]
    Io {
        /// `read`, `write`, `flush` or `discard`.
        operation: &'static str,
        /// First sector of the operation.
        sector: u64,
        /// The kind of the system's error.
        kind: io::ErrorKind,
        /// The system's error number, 0 if it has none.
        errno: i32,
    },
    /// The device is gone: nothing on it can be reached until it returns.
    #[error("the device is gone")]
    Gone,
    /// It does not answer. What it was given goes on.
    #[error("did not answer for {waited_ms} ms")]
    Late {
        /// How long it was waited for.
        waited_ms: u64,
    },
}

/// The system's own words for an error.
fn said(kind: io::ErrorKind, errno: i32) -> String {
    match errno {
        0 => kind.to_string(),
        errno => io::Error::from_raw_os_error(errno).to_string(),
    }
}

impl DiskError {
    /// Wraps a system error with the operation.
    pub fn io(operation: &'static str, sector: u64, error: &io::Error) -> Self {
        DiskError::Io {
            operation,
            sector,
            kind: error.kind(),
            errno: error.raw_os_error().unwrap_or(0),
        }
    }
}
