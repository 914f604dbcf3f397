//! The sending side of a connection: replies gathered, and sent in one vectored write.
//!
//! ```text
//!   next      replies of this turn, appended as they come
//!   sending   replies of an earlier turn; `sent` bytes of it are with the kernel
//! ```
//! Invariants:
//! - Two buffers take turns, so that sent bytes are freed even if more replies come all the time:
//!   memory stays below the connection's limit.
//! - The lease covers the bytes of both buffers until the buffer they lie in is sent as a whole.

use std::io;
use std::io::IoSlice;
use std::task::{Context, Poll, ready};

use aquifer_blockio::SECTOR_BYTES;
use aquifer_rpc::xdr::EncodeBuf;

use crate::budget::Lease;
use crate::limits::{IDLE_BUFFER_BYTES_MAX, WRITE_BYTES_MAX, WRITE_SLICES_MAX};

use super::slow::Progress;
use super::stream::Stream;

/// Replies under way.
#[derive(Debug, Default)]
pub(super) struct Sender {
    next: EncodeBuf,
    sending: EncodeBuf,
    sent: usize,
    /// Bytes of `sending` that were read into the CPU's cache ahead of the kernel.
    warmed: usize,
    /// Leased bytes of buffers that are TLS records now, some of which wait for the socket.
    unsent: usize,
    /// Bytes that the kernel has taken since the last update of the counters.
    pub sent_bytes: u64,
    pub progress: Progress,
}

impl Sender {
    /// Appends a reply, whose bytes are leased.
    pub(super) fn push(&mut self, reply: EncodeBuf) {
        self.next.append(reply);
    }

    /// Whether there is nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty() && self.sending.is_empty() && self.unsent == 0
    }

    /// Bytes of replies that do not yet go to the kernel.
    pub(super) fn next_bytes(&self) -> usize {
        self.next.len()
    }

    /// Sends until everything is sent, or the socket takes no more (pending).
    pub(super) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        lease: &mut Lease,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.sending.is_empty() {
                if self.next.is_empty() {
                    ready!(stream.poll_flush(cx))?;
                    lease.give(std::mem::take(&mut self.unsent));
                    self.finished();
                    return Poll::Ready(Ok(()));
                }
                std::mem::swap(&mut self.sending, &mut self.next);
            }
            let taken = ready!(self.poll_write(cx, stream))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += taken;
            self.sent_bytes += u64::try_from(taken).unwrap_or(u64::MAX);
            self.progress.moved(taken);
            if self.sent == self.sending.len() {
                match stream.has_unsent() {
                    true => self.unsent += self.sent,
                    false => lease.give(std::mem::take(&mut self.unsent) + self.sent),
                }
                self.sending.clear();
                (self.sent, self.warmed) = (0, 0);
            }
        }
    }

    /// Drops all unsent bytes.
    pub(super) fn discard(&mut self, lease: &mut Lease) {
        lease.give(self.next.len() + self.sending.len() + std::mem::take(&mut self.unsent));
        (self.next, self.sending) = (EncodeBuf::new(), EncodeBuf::new());
        (self.sent, self.warmed) = (0, 0);
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, stream: &mut Stream) -> Poll<io::Result<usize>> {
        if let Some(bytes) = self.sending.contiguous() {
            let rest = IoSlice::new(bytes.get(self.sent..).unwrap_or_default());
            return stream.poll_write_vectored(cx, &[rest]);
        }
        let mut slices = [IoSlice::new(&[]); WRITE_SLICES_MAX];
        let filled = self.sending.io_slices(self.sent, WRITE_BYTES_MAX, &mut slices);
        let slices = slices.get(..filled).unwrap_or_default();
        // Once only: a socket that takes little at a time is slow in any case.
        if self.warmed <= self.sent {
            self.warmed = self.sent + slices.iter().map(|slice| slice.len()).sum::<usize>();
            slices.iter().filter(|slice| slice.len() > SECTOR_BYTES).for_each(|slice| warm(slice));
        }
        stream.poll_write_vectored(cx, slices)
    }

    fn finished(&mut self) {
        self.progress.finished();
        for buffer in [&mut self.next, &mut self.sending] {
            if buffer.held_bytes() > IDLE_BUFFER_BYTES_MAX {
                *buffer = EncodeBuf::new();
            }
        }
    }
}

/// Brings memory into the CPU's cache. Sending 1 MiB that is in no cache takes an eighth less time,
/// including this read. The kernel copies with one instruction that waits for each cache line in
/// turn; here several are under way at a time. For single pages of random reads it gains nothing.
fn warm(bytes: &[u8]) {
    let (blocks, _) = bytes.as_chunks::<{ 4 * LINE_BYTES }>();
    let mut read = [0; 4];
    for block in blocks {
        let lines = [block[0], block[LINE_BYTES], block[2 * LINE_BYTES], block[3 * LINE_BYTES]];
        read.iter_mut().zip(lines).for_each(|(read, line)| *read ^= line);
    }
    std::hint::black_box(read);
}

/// The length of one cache line, or of two.
const LINE_BYTES: usize = 64;
