//! Record marking on byte streams (RFC 5531 section 11).
//!
//! A record is a sequence of fragments, each behind a word: the top bit says "last", the rest is
//! the fragment's length. [`RecordReader`] owns the receive buffer of one connection:
//!
//! ```text
//!   |  given out  | record in progress |   | unparsed |      free      |
//!                 ^start         joined^   ^cursor    ^end
//! ```
//! Records are found in place: a record in one fragment, as all clients send them, is never moved,
//! and one read brings as many records as fit. Fragments are joined by moving the later ones down
//! over the marks between them.
//!
//! A large record need not pass through the buffer. As soon as its first bytes are here,
//! [`RecordReader::partial`] shows them and how many bytes are missing. The connection can read
//! those straight into pages and call [`RecordReader::detach`].
//!
//! Invariants:
//! - `start <= joined <= cursor <= end <= buf.len()`.
//! - After [`RecordReader::next_record`] returned `None`, fewer than four bytes lie unparsed.
//! - The buffer never holds more than one record of the size limit and one read's worth of bytes.
//! - After an error the stream has no known boundary any more: every later call returns that error.

use std::ops::Range;

use crate::limits::EMPTY_FRAGMENTS_MAX;
use crate::xdr::{EncodeBuf, Hole, Mark};

#[cfg(test)]
mod tests;

/// Why a stream cannot be read further. Close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A record announces more bytes than the limit. A stream of another protocol than RPC looks
    /// the same.
    #[error("record of at least {bytes} bytes, at most {limit} accepted")]
    TooLong {
        /// Bytes announced so far.
        bytes: usize,
        /// Bytes accepted.
        limit: usize,
    },
    /// A record holds too many fragments without a byte.
    #[error("more than {limit} empty fragments in one record")]
    EmptyFragments {
        /// Empty fragments accepted in one record.
        limit: u32,
    },
}

/// A record in progress, all of whose received bytes are in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial<'a> {
    /// The received part of the record, from its first byte.
    pub head: &'a [u8],
    /// Missing bytes of the present fragment, at least one.
    pub missing: usize,
    /// Whether the record ends with the present fragment: then no more than `missing` bytes are
    /// missing.
    pub last: bool,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Between two records.
    Clean,
    /// Inside a record or its mark, as XCP-ng's probe does it: one `\n`, then close.
    Incomplete {
        /// Bytes of the record that had come.
        bytes: usize,
    },
}

/// The receiving side of one connection.
#[derive(Debug)]
pub struct RecordReader {
    buf: Vec<u8>,
    cursor: usize,
    end: usize,
    state: State,
    record_bytes_max: usize,
    buffer_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The next byte is the first of a record's first mark.
    Boundary,
    /// Inside a record.
    Record(InProgress),
    /// The stream broke the rules.
    Failed(RecordError),
}

#[derive(Clone, Copy, Debug)]
struct InProgress {
    start: usize,
    joined: usize,
    empty_fragments: u32,
    /// Bytes of the present fragment that have not been joined; 0: a mark is next.
    missing: usize,
    last: bool,
}

impl RecordReader {
    /// A reader at a record boundary. It refuses records of more than `record_bytes_max` bytes.
    /// `buffer_bytes` is the size of one large read
    /// ([`RECEIVE_BUFFER_BYTES`](crate::limits::RECEIVE_BUFFER_BYTES) is a good one). It allocates
    /// nothing before the first read, so an idle connection costs nothing.
    pub fn new(record_bytes_max: usize, buffer_bytes: usize) -> Self {
        RecordReader {
            buf: Vec::new(),
            cursor: 0,
            end: 0,
            state: State::Boundary,
            record_bytes_max,
            buffer_bytes: buffer_bytes.max(READ_AHEAD_BYTES * 2),
        }
    }

    /// The space for the next read's bytes; never empty. While much of a record is missing (64 KiB
    /// or more), the space ends with the record: the next one then starts at the front of the
    /// buffer and is not moved.
    ///
    /// Records returned before are gone after this. Call it when [`RecordReader::next_record`] has
    /// returned `None`.
    pub fn space(&mut self) -> &mut [u8] {
        let missing = match self.state {
            State::Record(record) => record.missing,
            State::Boundary | State::Failed(_) => 0,
        };
        let exact = missing >= EXACT_READ_BYTES;
        let wanted = if exact { missing } else { missing + READ_AHEAD_BYTES };
        self.make_room(wanted);
        let space_end = if exact { self.end + missing } else { self.buf.len() };
        self.buf.get_mut(self.end..space_end).unwrap_or_default()
    }

    /// The first `bytes` of [`RecordReader::space`] now hold received bytes.
    ///
    /// # Panics
    /// If `bytes` is more than that space has.
    pub fn filled(&mut self, bytes: usize) {
        assert!(bytes <= self.buf.len() - self.end, "filled more than the space given");
        self.end += bytes;
    }

    /// The next complete record among the received bytes; `None` if more must be read first.
    ///
    /// # Errors
    /// [`RecordError`]; close the connection.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>, RecordError> {
        let range = self.advance()?;
        Ok(range.and_then(|range| self.buf.get(range)))
    }

    /// The record in progress, if its mark has come and some of it is missing. Call it when
    /// [`RecordReader::next_record`] has returned `None`.
    pub fn partial(&self) -> Option<Partial<'_>> {
        match self.state {
            State::Record(record) if record.missing > 0 && self.cursor == self.end => {
                let head = self.buf.get(record.start..record.joined)?;
                Some(Partial { head, missing: record.missing, last: record.last })
            }
            _ => None,
        }
    }

    /// Drops the record in progress: its head leaves the buffer. Returns the number of its missing
    /// bytes. The caller takes those from the stream, before anything else is read into
    /// [`RecordReader::space`]. `None`, and no change, unless [`RecordReader::partial`] returns a
    /// record that ends with the present fragment.
    pub fn detach(&mut self) -> Option<usize> {
        match self.state {
            State::Record(record) if self.partial()?.last => {
                self.state = State::Boundary;
                Some(record.missing)
            }
            _ => None,
        }
    }

    /// The meaning of a stream that ends here.
    pub fn stream_end(&self) -> StreamEnd {
        let unparsed = self.end - self.cursor;
        match self.state {
            State::Record(record) => {
                StreamEnd::Incomplete { bytes: record.joined - record.start + unparsed }
            }
            State::Boundary if unparsed == 0 => StreamEnd::Clean,
            State::Boundary | State::Failed(_) => StreamEnd::Incomplete { bytes: unparsed },
        }
    }

    /// Memory that the buffer holds, in bytes, for the connection's share.
    pub fn held_bytes(&self) -> usize {
        self.buf.capacity()
    }

    /// Frees the buffer's memory if it is empty: for connections that went idle.
    pub fn release(&mut self) {
        if self.end == self.cursor && matches!(self.state, State::Boundary) {
            self.buf = Vec::new();
            self.cursor = 0;
            self.end = 0;
        }
    }

    /// Parses on, up to the end of a record or of the received bytes.
    fn advance(&mut self) -> Result<Option<Range<usize>>, RecordError> {
        loop {
            let mut record = match self.state {
                State::Failed(error) => return Err(error),
                State::Record(record) if record.missing > 0 || record.last => record,
                State::Record(InProgress { .. }) | State::Boundary => {
                    if !self.take_mark()? {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let come = record.missing.min(self.end - self.cursor);
            if record.joined != self.cursor {
                self.buf.copy_within(self.cursor..self.cursor + come, record.joined);
            }
            self.cursor += come;
            record.joined += come;
            record.missing -= come;
            if record.missing > 0 {
                self.state = State::Record(record);
                return Ok(None);
            }
            if record.last {
                self.state = State::Boundary;
                return Ok(Some(record.start..record.joined));
            }
            self.state = State::Record(record);
        }
    }

    /// Takes the mark of the next fragment off the unparsed bytes; `false` if it is incomplete.
    fn take_mark(&mut self) -> Result<bool, RecordError> {
        let unparsed = self.buf.get(self.cursor..self.end).unwrap_or_default();
        let Some(mark) = unparsed.first_chunk().map(|word| u32::from_be_bytes(*word)) else {
            return Ok(false);
        };
        self.cursor += MARK_BYTES;
        let mut record = match self.state {
            State::Record(record) => record,
            State::Boundary | State::Failed(_) => InProgress {
                start: self.cursor,
                joined: self.cursor,
                empty_fragments: 0,
                missing: 0,
                last: false,
            },
        };
        record.last = mark & LAST_FRAGMENT != 0;
        record.missing = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
        self.state = match self.check(&mut record) {
            Ok(()) => State::Record(record),
            Err(error) => {
                self.state = State::Failed(error);
                return Err(error);
            }
        };
        Ok(true)
    }

    fn check(&self, record: &mut InProgress) -> Result<(), RecordError> {
        let bytes = (record.joined - record.start).saturating_add(record.missing);
        if bytes > self.record_bytes_max {
            return Err(RecordError::TooLong { bytes, limit: self.record_bytes_max });
        }
        if record.missing == 0 && !record.last {
            record.empty_fragments += 1;
            if record.empty_fragments > EMPTY_FRAGMENTS_MAX {
                return Err(RecordError::EmptyFragments { limit: EMPTY_FRAGMENTS_MAX });
            }
        }
        Ok(())
    }

    /// Makes room for `wanted` bytes behind `end`.
    fn make_room(&mut self, wanted: usize) {
        let keep = match &mut self.state {
            State::Record(record) => {
                // Closes the gap that marks between fragments left: gaps must not add up.
                self.buf.copy_within(self.cursor..self.end, record.joined);
                self.end -= self.cursor - record.joined;
                self.cursor = record.joined;
                record.start
            }
            State::Boundary | State::Failed(_) => self.cursor,
        };
        let kept = self.end - keep;
        let moves = kept == 0 || self.buf.len() - self.end < wanted;
        if !moves {
            return;
        }
        if kept + wanted > self.buf.len() {
            // Zeroed memory is mapped as it is touched: bytes that a peer announces and does not
            // send cost address space only. A buffer that grew stays, until it is released.
            let mut grown = vec![0; (kept + wanted).max(self.buffer_bytes)];
            let old = self.buf.get(keep..self.end).unwrap_or_default();
            if let Some(front) = grown.get_mut(..kept) {
                front.copy_from_slice(old);
            }
            self.buf = grown;
        } else {
            self.buf.copy_within(keep..self.end, 0);
        }
        self.cursor -= keep;
        self.end -= keep;
        if let State::Record(record) = &mut self.state {
            record.start -= keep;
            record.joined -= keep;
        }
    }
}

/// Opens a record in one fragment: its mark is left open until [`end_record`].
pub fn begin_record(to: &mut EncodeBuf) -> OpenRecord {
    let hole = to.hole();
    OpenRecord { hole, body: to.mark() }
}

/// Fills the mark of the record that was opened last.
///
/// # Panics
/// If the record is 2 GiB or longer, which no limit of ours allows.
pub fn end_record(to: &mut EncodeBuf, record: OpenRecord) {
    let len = u32::try_from(to.len_since(record.body)).unwrap_or(u32::MAX);
    assert!(len < LAST_FRAGMENT, "a fragment's length has 31 bits");
    to.fill(record.hole, len | LAST_FRAGMENT);
}

/// A record being encoded, see [`begin_record`].
#[derive(Debug)]
#[must_use = "a record's mark is filled in by end_record"]
pub struct OpenRecord {
    hole: Hole,
    body: Mark,
}

impl OpenRecord {
    /// The place of the record's first byte: truncating to it removes the answer and keeps the
    /// record open for another one.
    pub fn body(&self) -> Mark {
        self.body
    }
}

const MARK_BYTES: usize = 4;
const LAST_FRAGMENT: u32 = 1 << 31;

/// If at least this many bytes are missing, a read ends with the record. An additional read costs 3
/// to 5 us, as measured for the choice of the runtime; 64 KiB take 25 us to receive. One read for
/// each record saves moving the next record's head, which may be as long as a whole read.
const EXACT_READ_BYTES: usize = 64 * 1024;

/// Free space for a read beyond the missing bytes of the present record. With less, bytes are first
/// moved to the buffer's front.
const READ_AHEAD_BYTES: usize = 64 * 1024;
