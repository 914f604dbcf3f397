//! The intent log's batch: a sealed header of whole sectors, then payload pages.
//!
//! ```text
//!  0 magic "AQLOGBAT"  version u32  header_sectors u16  pad u16
//! 16 pool_guid u64   24 place u64           own place: a batch read from elsewhere is refused
//! 32 chain u64       40 session u64         batches of an earlier session after the fixed end are
//!                                           not of this log
//! 48 sequence u64    56 previous u128       header checksum of the batch before: a stale batch of
//!                                           an earlier life does not follow
//! 72 mark u64        batches up to this sequence were durable when this one was sealed
//! 80 payload_pages u32   84 records u32
//! 88 records, each:
//!    body_bytes u32  kind u16  pages u16  extents u16  pad u16  txg u64  dataset u64  object u64
//!    pages x u64 checksum of each payload page, in payload order
//!    extents: data that went to its final place early, as in an extent tree's leaf
//!    body_bytes bytes: what only the layer that wrote it understands
//! .. padding; xxh3-128 in the header's last 16 bytes
//! ```

use crate::codec::{FormatError, Reader, SECTOR_BYTES, Writer, seal, unseal};
use crate::extent::Extent;
use crate::types::{DatasetId, Guid, ObjectId, Place, Txg};

const WHAT: &str = "log batch";
const MAGIC: [u8; 8] = *b"AQLOGBAT";
const VERSION: u32 = 1;
/// A batch, header and payload, is at most this many sectors (1 MiB).
pub const BATCH_SECTORS_MAX: usize = 256;
/// Bytes of a header before its records.
pub const BATCH_HEADER_BYTES: usize = 88;
/// Bytes of a header after its records.
pub const BATCH_TRAILER_BYTES: usize = 16;

/// One logged change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Meaning of the body, given by the layer above the pool.
    pub kind: u16,
    /// The txg that the change lies in.
    pub txg: Txg,
    /// The dataset it belongs to.
    pub dataset: DatasetId,
    /// The object it changes, or the first of several.
    pub object: ObjectId,
    /// Checksums of its payload pages.
    pub page_sums: Vec<u64>,
    /// Data already at its final place.
    pub extents: Vec<Extent>,
    /// Bytes that only the layer above understands.
    pub body: Vec<u8>,
}

impl LogRecord {
    /// Bytes in a header.
    pub fn encoded_bytes(&self) -> usize {
        let extents: usize = self.extents.iter().map(Extent::encoded_bytes).sum();
        36 + self.page_sums.len() * 8 + extents + self.body.len()
    }

    fn encode(&self, w: &mut Writer) {
        w.count(self.body.len());
        w.u16(self.kind);
        w.u16(u16::try_from(self.page_sums.len()).unwrap_or(u16::MAX));
        w.u16(u16::try_from(self.extents.len()).unwrap_or(u16::MAX));
        w.u16(0);
        w.u64(self.txg.0);
        w.u64(self.dataset.0);
        w.u64(self.object.0);
        self.page_sums.iter().for_each(|sum| w.u64(*sum));
        self.extents.iter().for_each(|extent| extent.encode(w));
        w.put(&self.body);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let body_bytes = r.u32()? as usize;
        let (kind, pages, extents) = (r.u16()?, r.u16()?, r.u16()?);
        r.u16()?;
        let (txg, dataset, object) = (r.txg()?, DatasetId(r.u64()?), ObjectId(r.u64()?));
        let page_sums = (0..pages).map(|_| r.u64()).collect::<Result<_, _>>()?;
        let extents = (0..extents).map(|_| Extent::decode(r)).collect::<Result<_, _>>()?;
        let body = r.take(body_bytes)?.to_vec();
        Ok(LogRecord { kind, txg, dataset, object, page_sums, extents, body })
    }
}

/// A batch's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchHeader {
    /// The pool.
    pub pool_guid: Guid,
    /// Where the batch lies.
    pub place: Place,
    /// The chain it belongs to.
    pub chain: u64,
    /// The session that wrote it.
    pub session: u64,
    /// Its number in the chain.
    pub sequence: u64,
    /// Header checksum of the batch before it.
    pub previous: u128,
    /// Highest sequence known durable as it was sealed.
    pub mark: u64,
    /// The logged changes.
    pub records: Vec<LogRecord>,
}

impl BatchHeader {
    /// Payload pages that follow the header.
    pub fn payload_pages(&self) -> usize {
        self.records.iter().map(|record| record.page_sums.len()).sum()
    }

    /// Sectors of the header.
    pub fn header_sectors(&self) -> usize {
        let records: usize = self.records.iter().map(LogRecord::encoded_bytes).sum();
        (BATCH_HEADER_BYTES + records + BATCH_TRAILER_BYTES).div_ceil(SECTOR_BYTES)
    }

    /// The header's sectors and its checksum, which the next batch carries.
    pub fn encode(&self) -> Result<(Vec<u8>, u128), FormatError> {
        let sectors = self.header_sectors();
        let mut w = Writer::with_capacity(sectors * SECTOR_BYTES);
        w.put(&MAGIC);
        w.u32(VERSION);
        w.u16(u16::try_from(sectors).unwrap_or(u16::MAX));
        w.u16(0);
        w.u64(self.pool_guid.0);
        w.u64(self.place.0);
        w.u64(self.chain);
        w.u64(self.session);
        w.u64(self.sequence);
        w.u128(self.previous);
        w.u64(self.mark);
        w.count(self.payload_pages());
        w.count(self.records.len());
        self.records.iter().for_each(|record| record.encode(&mut w));
        if sectors + self.payload_pages() > BATCH_SECTORS_MAX {
            return Err(FormatError::TooLarge { what: WHAT, bytes: w.len() });
        }
        let bytes = seal(w, sectors, WHAT)?;
        let sum = bytes.last_chunk::<16>().map_or(0, |sum| u128::from_le_bytes(*sum));
        Ok((bytes, sum))
    }

    /// Sectors of header and payload, from a header's first sector, which is not verified yet.
    pub fn peek_sectors(first: &[u8]) -> Result<(usize, usize), FormatError> {
        let mut r = Reader::new(first, WHAT);
        r.magic(MAGIC)?;
        r.version(VERSION)?;
        let header = usize::from(r.u16()?);
        let mut r = Reader::new(first.get(80..).unwrap_or_default(), WHAT);
        let payload = r.u32()? as usize;
        if header == 0 || header.saturating_add(payload) > BATCH_SECTORS_MAX {
            return Err(FormatError::invalid("log batch: sectors", header as u64));
        }
        Ok((header, payload))
    }

    /// Reads all sectors of a header; also returns its checksum.
    pub fn decode(bytes: &[u8]) -> Result<(Self, u128), FormatError> {
        Reader::new(bytes, WHAT).magic(MAGIC)?;
        let body = unseal(bytes, WHAT)?;
        let sum = bytes.last_chunk::<16>().map_or(0, |sum| u128::from_le_bytes(*sum));
        let mut r = Reader::new(body, WHAT);
        r.magic(MAGIC)?;
        r.version(VERSION)?;
        let sectors = usize::from(r.u16()?);
        r.u16()?;
        let mut header = BatchHeader {
            pool_guid: Guid(r.u64()?),
            place: Place(r.u64()?),
            chain: r.u64()?,
            session: r.sequence()?,
            sequence: r.sequence()?,
            previous: r.u128()?,
            mark: r.sequence()?,
            records: Vec::new(),
        };
        let payload = r.u32()? as usize;
        if sectors * SECTOR_BYTES != bytes.len()
            || sectors.saturating_add(payload) > BATCH_SECTORS_MAX
        {
            return Err(FormatError::invalid("log batch: sectors", sectors as u64));
        }
        let records = r.u32()?;
        for _ in 0..records {
            header.records.push(LogRecord::decode(&mut r)?);
        }
        if header.payload_pages() != payload {
            return Err(FormatError::invalid("log batch: payload pages", payload as u64));
        }
        Ok((header, sum))
    }
}
