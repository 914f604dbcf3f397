//! One operation under way to the kernel, in the form that both engines take.
//!
//! Invariants:
//! - A request owns its pages and holds its [`Backing`] (so the file stays open) until it has
//!   ended. The engines keep it alive even if nobody waits for it any more.
//! - Ranges are checked before a request is made: it lies within the backing, in whole sectors.
//! - Every request passes through [`Request::finish`] or [`Request::settle`] when it ends, so that
//!   a failed flush is noted even if its future is gone.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use crate::backing::Backing;
use crate::{Page, PageMut, SECTOR_BYTES};

/// The operation of a request.
pub(crate) enum Kind {
    /// Fills all these pages.
    Read(Vec<PageMut>),
    /// Writes all these pages, durable on completion if requested.
    Write {
        /// At least one, to consecutive sectors.
        pages: Vec<Page>,
        /// Whether to write through the device's cache.
        durable: bool,
    },
    /// Makes completed writes durable.
    Flush,
    /// Gives up this many bytes.
    Discard {
        /// Whole sectors.
        bytes: u64,
    },
}

/// One operation; see the head of this file.
pub(crate) struct Request {
    pub(crate) backing: Arc<Backing>,
    /// First byte on the disk.
    pub(crate) start: u64,
    pub(crate) kind: Kind,
}

/// How often one operation is started again without any progress (EINTR, EAGAIN, ECANCELED) before
/// the error is final.
pub(crate) const RETRIES_MAX: u32 = 64;

impl Request {
    /// Bytes to transfer: zero for operations that move no pages.
    pub(crate) fn transfer_bytes(&self) -> usize {
        let pages = match &self.kind {
            Kind::Read(pages) => pages.len(),
            Kind::Write { pages, .. } => pages.len(),
            Kind::Flush | Kind::Discard { .. } => 0,
        };
        pages * SECTOR_BYTES
    }

    /// The error of a transfer that moves no further byte.
    pub(crate) fn stuck(&self) -> io::Error {
        match self.kind {
            Kind::Read(_) => io::ErrorKind::UnexpectedEof.into(),
            _ => io::ErrorKind::WriteZero.into(),
        }
    }

    /// Notes on the backing what this result means for all later flushes.
    pub(crate) fn settle(&self, result: &io::Result<()>) {
        let Err(error) = result else { return };
        let spoils = match self.kind {
            Kind::Flush => true,
            // The failed part may be the flush behind the write. Lack of room shows before any
            // write.
            Kind::Write { durable: true, .. } => {
                !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        };
        if spoils {
            self.backing.spoil(error);
        }
    }

    /// Ends the request: returns the pages of a read, nothing for other operations.
    pub(crate) fn finish(self, result: io::Result<()>) -> io::Result<Vec<Page>> {
        self.settle(&result);
        self.into_pages(result)
    }

    /// As [`Request::finish`], for a request that was settled before.
    pub(crate) fn into_pages(self, result: io::Result<()>) -> io::Result<Vec<Page>> {
        result?;
        Ok(match self.kind {
            Kind::Read(pages) => pages.into_iter().map(PageMut::freeze).collect(),
            _ => Vec::new(),
        })
    }
}

/// Whether an error means "try again": interrupted, no resources just now, or cancelled because
/// the thread that had submitted it ended.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::CANCELED))
}
