//! The receiving side of a connection: large reads, many records in each.
//!
//! All connections of a runtime share one receive buffer, a [`RecordReader`]: each parses what it
//! has read before another one reads. Whole records are copied out of it. The data of a WRITE of
//! whole pages goes into pages, which become the file's as they are. The rest after the last whole
//! record:
//!
//! ```text
//!   less than its mark     up to 3 bytes, kept here and put before the next read
//!   part of a record       taken out of the reader into the record's own memory; the next read
//!                          fills that first; behind a small one it goes on into the shared buffer
//!   part of a large WRITE  the same, with its data received into pages. Where one was, the next
//!   of whole pages         is expected, and no more is read into the buffer than what stands
//!                          before its data
//!   part of a record of    the connection keeps this reader until the record is whole; no client
//!   several fragments      is known to send such, so only a few may at a time
//! ```
//! Invariants:
//! - An idle connection holds no receive buffer, and the shared reader is between two records
//!   whenever no connection is reading.
//! - Bytes are leased before they are read: the room for a read, or a large record as a whole. No
//!   connection waits for the memory of a small one.

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use aquifer_blockio::buf::pages_of;
use aquifer_blockio::{Filling, Page, SECTOR_BYTES};
use aquifer_nfs::traffic::Meter;
use aquifer_rpc::limits::{RECEIVE_BUFFER_BYTES, RECORD_BYTES_MAX};
use aquifer_rpc::record::{RecordError, RecordReader, StreamEnd};
use parking_lot::Mutex;

use crate::crew::Crew;
use crate::limits::{FRAGMENTED_RECORDS_MAX, READ_BYTES_MIN, RECORD_OVERHEAD_BYTES};

use super::requests::Requests;
use super::slow::Progress;
use super::stream::Stream;

/// State that the connections of a runtime share: its receive buffer, its meter, and its helpers.
#[derive(Debug)]
pub(crate) struct Readers {
    shared: Mutex<Option<RecordReader>>,
    fragmented: Arc<AtomicUsize>,
    /// Where its calls are counted.
    pub meter: Arc<Meter>,
    /// The other runtimes.
    pub crew: Crew,
    /// Connections stay here only until an export takes their calls.
    pub is_lobby: bool,
}

impl Readers {
    /// A buffer for one runtime; `fragmented` counts, for all, the connections inside a record of
    /// several fragments.
    pub(crate) fn new(
        fragmented: Arc<AtomicUsize>,
        meter: Arc<Meter>,
        crew: Crew,
        is_lobby: bool,
    ) -> Self {
        Readers { shared: Mutex::new(None), fragmented, meter, crew, is_lobby }
    }

    fn take(&self) -> RecordReader {
        self.shared.lock().take().unwrap_or_else(fresh)
    }

    /// Takes back a reader that is between two records.
    fn put(&self, reader: RecordReader) {
        if reader.held_bytes() <= 2 * RECEIVE_BUFFER_BYTES {
            *self.shared.lock() = Some(reader);
        }
    }
}

fn fresh() -> RecordReader {
    RecordReader::new(RECORD_BYTES_MAX, RECEIVE_BUFFER_BYTES)
}

/// The receiving side of one connection.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    left: Left,
    /// Bytes received since the last update of the counters.
    pub received_bytes: u64,
    /// Only the client delays the next record.
    pub waits_for_client: bool,
    pub progress: Progress,
    /// The last record was a WRITE into pages, with this many bytes before its data; or 0.
    write_head: usize,
}

/// The received part of an incomplete record.
#[derive(Debug, Default)]
enum Left {
    #[default]
    Nothing,
    /// The first bytes of a mark.
    Mark { bytes: [u8; 3], len: usize },
    /// A record in its own memory.
    Record(Partial),
    /// A record of several fragments.
    Fragments(Fragmented),
}

#[derive(Debug)]
struct Partial {
    /// For a small record all its memory; for a large one the received part, with room for the rest
    /// once that is leased.
    bytes: Vec<u8>,
    filled: usize,
    len: usize,
    is_large: bool,
    is_leased: bool,
    /// The offset of a WRITE's data that should be received into pages.
    data_at: Option<usize>,
    /// That data, once it is leased; `bytes` then ends before it.
    data: Option<Filling>,
}

#[derive(Debug)]
struct Fragmented {
    reader: RecordReader,
    counted: Counted,
}

#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why nothing more is received.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiveError {
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("{0}")]
    Record(#[from] RecordError),
    #[error("too many records of several fragments at a time")]
    TooManyFragmented,
}

impl Receiver {
    /// Receives once, and passes every complete record to `requests`. Returns the number of bytes;
    /// 0 at the end of the stream.
    pub(super) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        readers: &Readers,
        requests: &mut Requests,
    ) -> Poll<Result<usize, ReceiveError>> {
        self.waits_for_client = true;
        ready!(stream.poll_read_ready(cx))?;
        self.waits_for_client = false;
        if let Left::Record(partial) = &mut self.left {
            ready!(partial.poll_lease(cx, requests));
        }
        let room = ready!(poll_room(cx, requests, matches!(self.left, Left::Record(_))));
        let mut reading = Reading::open(std::mem::take(&mut self.left), readers);
        let expected = if self.write_head == 0 { room } else { self.write_head };
        let read = reading.poll_read(cx, stream, room.min(expected));
        let parsed = match &read {
            Poll::Ready(Ok(bytes)) => {
                requests.read_at = Instant::now();
                reading.parse(*bytes, requests)
            }
            Poll::Ready(Err(_)) | Poll::Pending => Ok(()),
        };
        let write_head = reading.write_head;
        requests.read_lease.give(room);
        self.left = parsed.and_then(|()| reading.close(readers, requests))?;
        let bytes = ready!(read)?;
        if bytes > 0 {
            self.write_head = write_head;
        }
        self.received_bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        match self.left {
            Left::Nothing => self.progress.finished(),
            _ => self.progress.moved(bytes),
        }
        Poll::Ready(Ok(bytes))
    }

    /// Whether the stream is between two records.
    pub(super) fn is_between_records(&self) -> bool {
        matches!(self.left, Left::Nothing)
    }

    /// Drops the received part of a record.
    pub(super) fn discard(&mut self, requests: &mut Requests) {
        if let Left::Record(partial) = std::mem::take(&mut self.left) {
            partial.give_back(requests);
        }
    }
}

impl Partial {
    /// A record of `len` bytes of which `head` has come, in a read whose room is still leased.
    fn begin(head: &[u8], len: usize, requests: &mut Requests) -> Self {
        let is_large = len > LARGE_RECORD_BYTES;
        let mut bytes = head.to_vec();
        if !is_large {
            bytes.resize(len, 0);
        }
        requests.read_lease.force(bytes.len() + RECORD_OVERHEAD_BYTES);
        let data = if is_large { aquifer_nfs::write_data(head, len) } else { None };
        let data_at = data.map(|range| range.start);
        let is_leased = !is_large;
        Partial { bytes, filled: head.len(), len, is_large, is_leased, data_at, data: None }
    }

    /// Leases the memory of a large record, and returns that of its head.
    fn poll_lease(&mut self, cx: &mut Context<'_>, requests: &mut Requests) -> Poll<()> {
        if !self.is_leased {
            ready!(requests.record_lease.poll_take(cx, self.len + RECORD_OVERHEAD_BYTES));
            requests.read_lease.give(self.bytes.len() + RECORD_OVERHEAD_BYTES);
            match self.data_at {
                Some(at) => {
                    let mut data = Filling::new((self.len - at) / SECTOR_BYTES);
                    data.put(self.bytes.get(at..).unwrap_or_default());
                    self.bytes.truncate(at);
                    self.bytes.shrink_to_fit();
                    self.data = Some(data);
                }
                // Mapped as it is filled: bytes that are announced and do not come cost address
                // space only.
                None => self.bytes.reserve_exact(self.len - self.bytes.len()),
            }
            self.is_leased = true;
        }
        Poll::Ready(())
    }

    fn complete(mut self, requests: &mut Requests) {
        if self.is_large {
            requests.receive_large(self.bytes, self.data.and_then(Filling::finish), self.len);
        } else {
            requests.read_lease.give(self.len + RECORD_OVERHEAD_BYTES);
            let paged = data_in_pages(&self.bytes);
            let pages = paged.map(|(at, pages)| {
                self.bytes.truncate(at);
                self.bytes.shrink_to_fit();
                pages
            });
            requests.receive(self.bytes, pages, self.len);
        }
    }

    fn give_back(self, requests: &mut Requests) {
        match self.is_large && self.is_leased {
            true => requests.record_lease.give(self.len + RECORD_OVERHEAD_BYTES),
            false => requests.read_lease.give(self.bytes.len() + RECORD_OVERHEAD_BYTES),
        }
    }
}

/// Leases room for a read. Inside a record less than a good read is enough: that record has its
/// own.
fn poll_room(cx: &mut Context<'_>, requests: &mut Requests, in_record: bool) -> Poll<usize> {
    let lease = &mut requests.read_lease;
    if lease.try_take(RECEIVE_BUFFER_BYTES) {
        return Poll::Ready(RECEIVE_BUFFER_BYTES);
    }
    let room = lease.headroom();
    if in_record || room >= READ_BYTES_MIN {
        let taken = if lease.try_take(room) { room } else { 0 };
        return Poll::Ready(taken);
    }
    ready!(lease.poll_take(cx, READ_BYTES_MIN));
    Poll::Ready(READ_BYTES_MIN)
}

/// One read, from its buffer to the rest after its last record.
struct Reading {
    reader: RecordReader,
    /// The reader is this connection's own.
    counted: Option<Counted>,
    partial: Option<Partial>,
    /// Bytes in the reader that no record has taken, if every record came in one fragment.
    unparsed: usize,
    /// The last bytes that went into the reader.
    tail: Tail,
    /// The [`Receiver`]'s `write_head` after the last record.
    write_head: usize,
}

impl Reading {
    fn open(left: Left, readers: &Readers) -> Self {
        let (mark, mark_len) = match left {
            Left::Mark { bytes, len } => (bytes, len),
            _ => ([0; 3], 0),
        };
        let (reader, counted, partial) = match left {
            Left::Nothing | Left::Mark { .. } => (readers.take(), None, None),
            Left::Record(partial) => (readers.take(), None, Some(partial)),
            Left::Fragments(Fragmented { reader, counted }) => (reader, Some(counted), None),
        };
        let tail = Tail::default();
        let mut reading = Reading { reader, counted, partial, unparsed: 0, tail, write_head: 0 };
        for byte in mark.iter().take(mark_len) {
            reading.feed(*byte);
        }
        reading
    }

    fn feed(&mut self, byte: u8) {
        if let Some(first) = self.reader.space().first_mut() {
            *first = byte;
            self.tail.push(&[byte]);
            self.reader.filled(1);
            self.unparsed += 1;
        }
    }

    /// Reads into the record in progress, if there is one, and behind it.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut Stream,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let space = self.reader.space();
        let room = room.min(space.len());
        let space = space.get_mut(..room).unwrap_or_default();
        let Some(partial) = &mut self.partial else {
            return stream.poll_read(cx, space);
        };
        if let Some(data) = &mut partial.data {
            let mut spaces = Vec::with_capacity(SPACES);
            data.spaces(&mut spaces);
            return stream.poll_read_vectored(cx, &mut spaces);
        }
        if partial.is_large {
            // Into uninitialised memory: zeroing it first costs as much as a copy.
            let missing = partial.len - partial.filled;
            return stream.poll_read_buf(cx, &mut partial.bytes, missing);
        }
        let rest = partial.bytes.get_mut(partial.filled..).unwrap_or_default();
        stream.poll_read_vectored(cx, &mut [IoSliceMut::new(rest), IoSliceMut::new(space)])
    }

    /// Passes on the records that `bytes` more have completed.
    fn parse(&mut self, bytes: usize, requests: &mut Requests) -> Result<(), ReceiveError> {
        let mut rest = bytes;
        if let Some(mut partial) = self.partial.take() {
            let taken = rest.min(partial.len - partial.filled);
            partial.filled += taken;
            rest -= taken;
            if let Some(data) = &mut partial.data {
                data.advance(taken);
                self.write_head = MARK_BYTES + partial.bytes.len();
            }
            if partial.filled < partial.len {
                self.partial = Some(partial);
            } else {
                partial.complete(requests);
            }
        }
        let space = self.reader.space();
        self.tail.push(space.get(..rest).unwrap_or_default());
        self.reader.filled(rest);
        self.unparsed += rest;
        while let Some(record) = self.reader.next_record()? {
            self.unparsed = self.unparsed.saturating_sub(MARK_BYTES + record.len());
            let (head, pages) = match data_in_pages(record) {
                Some((at, pages)) => (record.get(..at).unwrap_or(record), Some(pages)),
                None => (record, None),
            };
            requests.receive(head.to_vec(), pages, record.len());
        }
        Ok(())
    }

    /// The rest after the last complete record; the shared reader goes back.
    fn close(self, readers: &Readers, requests: &mut Requests) -> Result<Left, ReceiveError> {
        let Reading { mut reader, counted, partial, unparsed, tail, .. } = self;
        let StreamEnd::Incomplete { bytes } = reader.stream_end() else {
            readers.put(reader);
            return Ok(partial.map_or(Left::Nothing, Left::Record));
        };
        if let Some(partial) = reader.partial().filter(|partial| partial.last) {
            let len = partial.head.len() + partial.missing;
            let record = Partial::begin(partial.head, len, requests);
            reader.detach();
            readers.put(reader);
            return Ok(Left::Record(record));
        }
        // In a record of several fragments the marks count too, so these are more.
        if counted.is_none() && bytes == unparsed && unparsed < MARK_BYTES {
            let (bytes, len) = tail.last(unparsed);
            return Ok(Left::Mark { bytes, len });
        }
        let counted = match counted {
            Some(counted) => counted,
            None => count(&readers.fragmented)?,
        };
        Ok(Left::Fragments(Fragmented { reader, counted }))
    }
}

/// For a complete record of a WRITE of whole pages: the offset of its data, and the data in pages.
fn data_in_pages(record: &[u8]) -> Option<(usize, Vec<Page>)> {
    let data = aquifer_nfs::write_data(record, record.len())?;
    Some((data.start, pages_of(record.get(data)?)))
}

fn count(fragmented: &Arc<AtomicUsize>) -> Result<Counted, ReceiveError> {
    let before = fragmented.fetch_add(1, Ordering::Relaxed);
    let counted = Counted(Arc::clone(fragmented));
    if before >= FRAGMENTED_RECORDS_MAX {
        return Err(ReceiveError::TooManyFragmented);
    }
    Ok(counted)
}

/// The last three bytes of a stream.
#[derive(Debug, Default)]
struct Tail {
    bytes: [u8; 3],
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().skip(bytes.len().saturating_sub(3)) {
            let [_, second, third] = self.bytes;
            self.bytes = [second, third, *byte];
        }
    }

    /// The last `len` bytes, at the front of an array.
    fn last(&self, len: usize) -> ([u8; 3], usize) {
        let [first, second, third] = self.bytes;
        let bytes = match len {
            3 => [first, second, third],
            2 => [second, third, 0],
            _ => [third, 0, 0],
        };
        (bytes, len.min(3))
    }
}

const MARK_BYTES: usize = 4;

/// Pieces of memory that usually hold the data of a 1 MiB WRITE: blocks of 64 KiB.
const SPACES: usize = 16;

/// A record longer than this is leased whole before more of it is received.
const LARGE_RECORD_BYTES: usize = 64 * 1024;
