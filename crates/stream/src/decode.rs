//! Decoding, in pieces of any size.

use aquifer_ondisk::{FormatError, Reader};
use bytes::BytesMut;

use crate::encode::{HEADER_BYTES, SUM_BYTES, sum};
use crate::error::StreamError;
use crate::order::Order;
use crate::pieces::Pieces;
use crate::record::{MAGIC, RECORD_BYTES_MAX, Record, STREAM_VERSION};

/// Bytes that [`check_begin`] looks at: a header, the magic number and the version.
const BEGIN_CHECKED_BYTES: usize = HEADER_BYTES + MAGIC.len() + 4;

/// Takes bytes as they come, and gives records. Only one that came in several pieces is copied.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Pieces,
    /// For records that came in several pieces: one after the other, in the same memory.
    room: BytesMut,
    /// The checksum of the last record.
    sum: u128,
    records: u64,
    order: Order,
}

impl Decoder {
    /// Takes more bytes. The caller takes all records out before it gives the next ones.
    pub fn push(&mut self, bytes: impl Into<Pieces>) {
        self.bytes.append(bytes.into());
    }

    /// The next record; `None` if it is not there as a whole.
    ///
    /// # Errors
    /// The stream is not one, or is damaged. Nothing comes from it after that.
    pub fn next_record(&mut self) -> Result<Option<Record>, StreamError> {
        let number = self.records;
        if self.order.has_ended() {
            return if self.bytes.is_empty() { Ok(None) } else { Err(StreamError::Trailing) };
        }
        if number == 0 {
            check_begin(&self.bytes.front(BEGIN_CHECKED_BYTES))?;
        }
        let header = self.bytes.front(HEADER_BYTES);
        let Some(header) = header.first_chunk() else { return Ok(None) };
        let (kind, payload_bytes) =
            read_header(header, number).map_err(|error| StreamError::format(number, &error))?;
        let record_bytes = HEADER_BYTES + payload_bytes + SUM_BYTES;
        if self.bytes.len() < record_bytes {
            return Ok(None);
        }
        let bytes = self.bytes.split_to(record_bytes);
        let mut payload = bytes.joined(&mut self.room).split_off(HEADER_BYTES);
        let stored = payload.split_off(payload_bytes);
        let right = sum(self.sum, header, &payload);
        if right.to_le_bytes() != *stored {
            return Err(StreamError::Checksum { number });
        }
        let record = Record::decode(kind, &payload);
        let record = record.map_err(|error| StreamError::format(number, &error))?;
        let taken = self.order.take(&record, self.sum);
        taken.map_err(|why| StreamError::Invalid { number, why })?;
        (self.sum, self.records) = (right, number + 1);
        Ok(Some(record))
    }

    /// Of a stream that has ended: what came behind it, for the decoder of another one.
    pub fn take_rest(&mut self) -> Pieces {
        std::mem::take(&mut self.bytes)
    }

    /// Whether all of the stream came.
    pub fn has_ended(&self) -> bool {
        self.order.has_ended()
    }

    /// No more bytes come.
    ///
    /// # Errors
    /// The stream has not ended.
    pub fn finish(&self) -> Result<(), StreamError> {
        match (self.has_ended(), self.records, self.bytes.is_empty()) {
            (true, ..) => Ok(()),
            (false, 0, true) => Err(StreamError::NotAStream),
            (false, records, _) => Err(StreamError::Truncated { records }),
        }
    }
}

/// Fails as soon as it is known that this is no stream, or that of a newer release, whose records
/// may have another form.
fn check_begin(bytes: &[u8]) -> Result<(), StreamError> {
    let payload = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let (magic, behind) = payload.split_at(payload.len().min(MAGIC.len()));
    let kind = bytes.get(..bytes.len().min(4)).unwrap_or_default();
    if !MAGIC.starts_with(magic) || !1u32.to_le_bytes().starts_with(kind) {
        return Err(StreamError::NotAStream);
    }
    match behind.first_chunk::<4>().map(|version| u32::from_le_bytes(*version)) {
        Some(version) if version > STREAM_VERSION => Err(StreamError::Newer(version)),
        _ => Ok(()),
    }
}

fn read_header(header: &[u8; HEADER_BYTES], number: u64) -> Result<(u8, usize), FormatError> {
    let mut r = Reader::new(header, "record");
    let (kind, payload_bytes, says) = (r.u32()?, r.u32()?, r.u64()?);
    if says != number {
        return Err(FormatError::invalid("number of a record", says));
    }
    let kind = u8::try_from(kind).map_err(|_| FormatError::invalid("kind of record", kind))?;
    match usize::try_from(payload_bytes) {
        Ok(bytes) if bytes <= RECORD_BYTES_MAX => Ok((kind, bytes)),
        _ => Err(FormatError::invalid("length of a record", payload_bytes)),
    }
}
