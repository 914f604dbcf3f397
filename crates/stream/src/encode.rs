//! Encoding.

use std::fmt;
use std::str::FromStr;

use aquifer_ondisk::codec::checksum128;
use aquifer_ondisk::{ObjectId, Writer};

use crate::order::count;
use crate::record::{Counts, DATA_HEAD_BYTES, DATA_KIND, End, PAGE_BYTES, Record};

/// Bytes of a record before its payload.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of a record behind its payload.
pub(crate) const SUM_BYTES: usize = 16;

/// Where an encoder is, so that another one can go on: nothing of what was encoded is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain {
    /// The checksum of the last record.
    sum: u128,
    /// Records so far.
    records: u64,
    counts: Counts,
}

/// Appends records to bytes.
#[derive(Debug, Default)]
pub struct Encoder {
    chain: Chain,
    bytes: Vec<u8>,
}

impl Encoder {
    /// Goes on where another one ended.
    pub fn after(chain: Chain) -> Encoder {
        Encoder { chain, bytes: Vec::new() }
    }

    /// Makes room for so many bytes at once.
    pub fn with_room(mut self, bytes: usize) -> Encoder {
        self.bytes.reserve(bytes);
        self
    }

    /// Appends a record. The caller keeps the order of the format, and its limits.
    pub fn put(&mut self, record: &Record) {
        count(&mut self.chain.counts, record);
        let mut payload = Writer::new();
        record.encode(&mut payload);
        self.put_payload(record.kind(), payload.as_bytes());
    }

    /// Appends a [`Record::Data`] of these pages, each of which is copied once.
    pub fn put_data<'a>(
        &mut self,
        (object, page): (ObjectId, u64),
        pages: impl ExactSizeIterator<Item = &'a [u8; PAGE_BYTES]>,
    ) {
        let counts = &mut self.chain.counts;
        counts.pages = counts.pages.saturating_add(pages.len() as u64);
        let payload_bytes = DATA_HEAD_BYTES + pages.len() * PAGE_BYTES;
        self.put_written(DATA_KIND, payload_bytes, |bytes| {
            bytes.extend_from_slice(&object.0.to_le_bytes());
            bytes.extend_from_slice(&page.to_le_bytes());
            pages.for_each(|page| bytes.extend_from_slice(page));
        });
    }

    /// Appends a record of any kind and payload, with its checksum: what a hostile sender can do.
    pub fn put_payload(&mut self, kind: u8, payload: &[u8]) {
        self.put_written(kind, payload.len(), |bytes| bytes.extend_from_slice(payload));
    }

    /// Appends a record with its checksum; `write` appends the payload, which has so many bytes.
    fn put_written(&mut self, kind: u8, payload_bytes: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let header = header(kind, payload_bytes, self.chain.records);
        self.bytes.reserve(HEADER_BYTES + payload_bytes + SUM_BYTES);
        self.bytes.extend_from_slice(&header);
        let start = self.bytes.len();
        write(&mut self.bytes);
        let sum = sum(self.chain.sum, &header, self.bytes.get(start..).unwrap_or_default());
        self.bytes.extend_from_slice(&sum.to_le_bytes());
        self.chain = Chain { sum, records: self.chain.records + 1, ..self.chain };
    }

    /// Appends the last record.
    pub fn end(&mut self) {
        let Chain { sum, counts, .. } = self.chain;
        self.put(&Record::End(End { counts, digest: sum }));
    }

    /// Bytes of a [`Record::Data`] of so many pages.
    pub fn data_bytes(pages: u64) -> u64 {
        let around = HEADER_BYTES + DATA_HEAD_BYTES + SUM_BYTES;
        pages.saturating_mul(PAGE_BYTES as u64).saturating_add(around as u64)
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, and where another encoder goes on.
    pub fn into_parts(self) -> (Vec<u8>, Chain) {
        (self.bytes, self.chain)
    }
}

pub(crate) fn header(kind: u8, payload_bytes: usize, number: u64) -> [u8; HEADER_BYTES] {
    let mut w = Writer::with_capacity(HEADER_BYTES);
    w.u32(u32::from(kind));
    w.count(payload_bytes);
    w.u64(number);
    let mut header = [0; HEADER_BYTES];
    header.copy_from_slice(w.as_bytes());
    header
}

/// The checksum of a record, over that of the record before it, its header and its payload.
pub(crate) fn sum(before: u128, header: &[u8], payload: &[u8]) -> u128 {
    // Of the payload first: it is not copied for that.
    let mut all = before.to_le_bytes().to_vec();
    all.extend_from_slice(header);
    all.extend_from_slice(&checksum128(payload).to_le_bytes());
    checksum128(&all)
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { objects, removed, pages, hole_pages, entries, drops } = self.counts;
        write!(f, "{:x}.{:x}", self.sum, self.records)?;
        [objects, removed, pages, hole_pages, entries, drops]
            .into_iter()
            .try_for_each(|count| write!(f, ".{count:x}"))
    }
}

impl FromStr for Chain {
    type Err = ();

    fn from_str(text: &str) -> Result<Chain, ()> {
        let (sum, rest) = text.split_once('.').ok_or(())?;
        let sum = u128::from_str_radix(sum, 16).map_err(drop)?;
        let numbers: Result<Vec<u64>, _> =
            rest.split('.').map(|part| u64::from_str_radix(part, 16)).collect();
        let numbers: [u64; 7] = numbers.map_err(drop)?.try_into().map_err(drop)?;
        let [records, objects, removed, pages, hole_pages, entries, drops] = numbers;
        let counts = Counts { objects, removed, pages, hole_pages, entries, drops };
        Ok(Chain { sum, records, counts })
    }
}
