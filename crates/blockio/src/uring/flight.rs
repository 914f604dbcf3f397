//! One operation as the ring keeps it: the request, the place of its memory, and its progress.
//!
//! Invariants:
//! - The iovecs point into the request's pages, and stay where they are while the kernel may read
//!   them: they are rebuilt only between two submissions, never during one.
//! - A flight is under way at most once: it is queued, or with the kernel, or has its outcome.

use std::io;
use std::task::Waker;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};

use crate::SECTOR_BYTES;
use crate::backing::BackingKind;
use crate::request::{Kind, RETRIES_MAX, Request, is_transient};

pub(super) struct Flight {
    pub(super) request: Request,
    iovecs: Vec<libc::iovec>,
    /// Bytes transferred so far.
    done: usize,
    retries: u32,
    /// Set when the flight has ended and its outcome waits for `fetch`.
    pub(super) outcome: Option<io::Result<()>>,
    /// The waker of the task that waits for the outcome.
    pub(super) waker: Option<Waker>,
    /// The future was dropped: nobody will fetch the outcome.
    pub(super) abandoned: bool,
    /// The kernel may still use the memory although the flight has its outcome: never freed.
    pub(super) grounded: bool,
}

/// Meaning of a completion for its flight.
pub(super) enum Step {
    /// It has ended; the outcome is set.
    Landed,
    /// Submit it again: a part remains, or the kernel asked to try again.
    Again,
}

impl Flight {
    pub(super) fn new(request: Request) -> Self {
        let mut flight = Flight {
            request,
            iovecs: Vec::new(),
            done: 0,
            retries: 0,
            outcome: None,
            waker: None,
            abandoned: false,
            grounded: false,
        };
        flight.map_memory();
        flight
    }

    /// Builds the iovecs for the rest, neighbours in memory joined.
    fn map_memory(&mut self) {
        let (first, within) = (self.done / SECTOR_BYTES, self.done % SECTOR_BYTES);
        let iovecs = &mut self.iovecs;
        iovecs.clear();
        let mut add = |address: *mut u8| match iovecs.last_mut() {
            Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == address => {
                last.iov_len += SECTOR_BYTES;
            }
            _ => iovecs.push(libc::iovec { iov_base: address.cast(), iov_len: SECTOR_BYTES }),
        };
        match &self.request.kind {
            Kind::Read(pages) => {
                let rest = pages.iter().skip(first);
                rest.for_each(|page| add(page.address().as_ptr()));
            }
            Kind::Write { pages, .. } => {
                let rest = pages.iter().skip(first);
                rest.for_each(|page| add(page.address().as_ptr()));
            }
            Kind::Flush | Kind::Discard { .. } => {}
        }
        if let Some(head) = iovecs.first_mut() {
            head.iov_base = head.iov_base.cast::<u8>().wrapping_add(within).cast();
            head.iov_len -= within;
        }
    }

    /// The submission entry for the rest of this flight. It points into this flight's heap memory
    /// (pages and iovecs), not at the flight itself, which may move.
    pub(super) fn entry(&self, key: u32) -> squeue::Entry {
        let fd = Fd(self.request.backing.raw_fd());
        let start = self.request.start;
        let offset = start + self.done as u64;
        let vectors = self.iovecs.as_ptr();
        // At most PART_PAGES.
        let count = u32::try_from(self.iovecs.len()).unwrap_or(u32::MAX);
        let single = match self.iovecs.as_slice() {
            [only] => {
                u32::try_from(only.iov_len).ok().map(|bytes| (only.iov_base.cast::<u8>(), bytes))
            }
            _ => None,
        };
        let entry = match (&self.request.kind, single) {
            (Kind::Read(_), Some((base, bytes))) => {
                opcode::Read::new(fd, base, bytes).offset(offset).build()
            }
            (Kind::Read(_), None) => opcode::Readv::new(fd, vectors, count).offset(offset).build(),
            (Kind::Write { durable, .. }, Some((base, bytes))) => {
                let write = opcode::Write::new(fd, base, bytes).offset(offset);
                write.rw_flags(rw_flags(*durable)).build()
            }
            (Kind::Write { durable, .. }, None) => {
                let write = opcode::Writev::new(fd, vectors, count).offset(offset);
                write.rw_flags(rw_flags(*durable)).build()
            }
            (Kind::Flush, _) => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
            (Kind::Discard { bytes }, _) => {
                debug_assert_eq!(self.request.backing.kind, BackingKind::Image);
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                opcode::Fallocate::new(fd, *bytes).offset(start).mode(mode).build()
            }
        };
        entry.user_data(u64::from(key))
    }

    /// Takes the kernel's answer: bytes moved, or a negative error number.
    pub(super) fn complete(&mut self, answer: i32) -> Step {
        let total = self.request.transfer_bytes();
        let result = match usize::try_from(answer) {
            Ok(bytes) if total > 0 => {
                self.done += bytes;
                if self.done < total && bytes > 0 {
                    self.retries = 0;
                    self.map_memory();
                    return Step::Again;
                }
                match self.done < total {
                    true => Err(self.request.stuck()),
                    false => Ok(()),
                }
            }
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::from_raw_os_error(answer.saturating_neg())),
        };
        match result {
            Err(error) if is_transient(&error) && self.retries < RETRIES_MAX => {
                self.retries += 1;
                Step::Again
            }
            result => {
                self.land(result);
                Step::Landed
            }
        }
    }

    /// Ends the flight.
    pub(super) fn land(&mut self, result: io::Result<()>) {
        let result = match self.request.kind {
            Kind::Discard { .. } => self.request.backing.discarded(result),
            _ => result,
        };
        self.request.settle(&result);
        self.outcome = Some(result);
    }
}

fn rw_flags(durable: bool) -> i32 {
    match durable {
        true => libc::RWF_DSYNC,
        false => 0,
    }
}
