//! An opened file or block device, on which the engines work.
//!
//! Invariants:
//! - Kind and access are those found when it was opened. The size only grows, on request.
//! - Once a flush has failed, every later flush fails too, until the disk is reopened. The kernel
//!   reports a failed write-back once per open file and marks the pages clean. A second flush that
//!   "succeeds" proves nothing about the data that the first one lost.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::{SECTOR_BYTES, block};

/// Kind of storage behind a [`FileDisk`](crate::FileDisk).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackingKind {
    /// A regular file on some file system.
    Image,
    /// A block device.
    Block,
}

#[derive(Debug)]
pub(crate) struct Backing {
    fd: OwnedFd,
    pub(crate) name: String,
    pub(crate) kind: BackingKind,
    sectors: AtomicU64,
    /// The exact size when it was opened, which need not be whole sectors.
    pub(crate) size_bytes: u64,
    /// Opened with O_DIRECT: writes bypass the page cache.
    pub(crate) direct: bool,
    pub(crate) writable: bool,
    /// The earlier handle whose claim keeps this one exclusive, if it has no claim of its own.
    claim: Option<Arc<Backing>>,
    /// Error number of the first failed flush, 0 while there was none.
    spoiled: AtomicI32,
    /// The device refused a discard as unsupported: not asked again.
    undiscardable: AtomicBool,
}

impl Backing {
    pub(crate) fn new(
        fd: OwnedFd,
        name: String,
        kind: BackingKind,
        size_bytes: u64,
        direct: bool,
        writable: bool,
    ) -> Self {
        Backing {
            fd,
            name,
            kind,
            sectors: AtomicU64::new(whole_sectors(size_bytes)),
            size_bytes,
            direct,
            writable,
            claim: None,
            spoiled: AtomicI32::new(0),
            undiscardable: AtomicBool::new(false),
        }
    }

    /// Returns the backing, exclusive by the claim of `held`, or by the claim that `held` itself
    /// uses.
    pub(crate) fn claimed_by(self, held: &Arc<Backing>) -> Self {
        let claim = held.claim.as_ref().unwrap_or(held);
        Backing { claim: Some(Arc::clone(claim)), ..self }
    }

    /// Whole sectors that are used.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors.load(Ordering::Acquire)
    }

    /// Uses all sectors that there are by now.
    pub(crate) fn grow(&self) -> io::Result<u64> {
        let bytes = size_bytes(&self.fd, self.kind)?;
        let before = self.sectors.fetch_max(whole_sectors(bytes), Ordering::AcqRel);
        Ok(before.max(whole_sectors(bytes)))
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Notes a failed flush.
    pub(crate) fn spoil(&self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        // Later flushes report the first error. A lost race for it does no harm.
        let _ = self.spoiled.compare_exchange(0, errno, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Err once a flush has failed.
    pub(crate) fn trusted(&self) -> io::Result<()> {
        match self.spoiled.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Whether discards are worth a system call.
    pub(crate) fn discards(&self) -> bool {
        !self.undiscardable.load(Ordering::Relaxed)
    }

    /// The result of a discard for the caller: "unsupported" counts as success.
    pub(crate) fn discarded(&self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.undiscardable.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    }

    /// Discards whole sectors, blocking the thread.
    pub(crate) fn discard_blocking(&self, start: u64, bytes: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        match self.kind {
            BackingKind::Block => block::discard(self.fd.as_fd(), start, bytes),
            BackingKind::Image => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(rustix::fs::fallocate(&self.fd, mode, start, bytes)?)
            }
        }
    }
}

impl AsFd for Backing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The size of an opened file or device.
pub(crate) fn size_bytes(fd: &OwnedFd, kind: BackingKind) -> io::Result<u64> {
    match kind {
        BackingKind::Image => Ok(u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0)),
        BackingKind::Block => block::size_bytes(fd.as_fd()),
    }
}

/// Whole sectors in so many bytes.
pub(crate) fn whole_sectors(bytes: u64) -> u64 {
    bytes / bytes_of_sector()
}

/// The first byte of a sector that lies within an opened backing.
pub(crate) fn byte_of(sector: u64) -> u64 {
    sector * bytes_of_sector()
}

const fn bytes_of_sector() -> u64 {
    // A widening cast on every platform that has io_uring.
    SECTOR_BYTES as u64
}
