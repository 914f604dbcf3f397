//! Decoding, in pieces of any size.

use aquifer_ondisk::{FormatError, Reader};

use crate::encode::{HEADER_BYTES, SUM_BYTES, sum};
use crate::error::StreamError;
use crate::order::Order;
use crate::record::{MAGIC, RECORD_BYTES_MAX, Record, STREAM_VERSION};

/// Takes bytes as they come, and gives records.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Bytes that were taken off the front.
    taken: usize,
    /// The checksum of the last record.
    sum: u128,
    records: u64,
    order: Order,
}

impl Decoder {
    /// Takes more bytes. The caller takes all records out before it gives the next ones.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next record; `None` if it is not there as a whole.
    ///
    /// # Errors
    /// The stream is not one, or is damaged. Nothing comes from it after that.
    pub fn next_record(&mut self) -> Result<Option<Record>, StreamError> {
        let number = self.records;
        let rest = self.bytes.get(self.taken..).unwrap_or_default();
        if self.order.has_ended() {
            return if rest.is_empty() { Ok(None) } else { Err(StreamError::Trailing) };
        }
        if number == 0 {
            check_begin(rest)?;
        }
        let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let (kind, payload_bytes) =
            read_header(header, number).map_err(|error| StreamError::format(number, &error))?;
        let Some((payload, behind)) = behind.split_at_checked(payload_bytes) else {
            return Ok(None);
        };
        let Some((stored, _)) = behind.split_first_chunk::<SUM_BYTES>() else {
            return Ok(None);
        };
        let right = sum(self.sum, header, payload);
        if right != u128::from_le_bytes(*stored) {
            return Err(StreamError::Checksum { number });
        }
        let record = Record::decode(kind, payload);
        let record = record.map_err(|error| StreamError::format(number, &error))?;
        let taken = self.order.take(&record, self.sum);
        taken.map_err(|why| StreamError::Invalid { number, why })?;
        self.taken += HEADER_BYTES + payload_bytes + SUM_BYTES;
        (self.sum, self.records) = (right, number + 1);
        Ok(Some(record))
    }

    /// Of a stream that has ended: what came behind it, for the decoder of another one.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.bytes.split_off(self.taken.min(self.bytes.len()));
        self.bytes.clear();
        self.taken = 0;
        rest
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
