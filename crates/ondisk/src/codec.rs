//! Little-endian reading and writing, checksums, and the errors of decoding.

use twox_hash::{XxHash3_64, XxHash3_128};

use crate::types::{Place, SEQUENCE_LIMIT, Txg};

/// Bytes of a sector, the unit of every structure that is read whole.
pub const SECTOR_BYTES: usize = 4096;

/// Why bytes from a disk could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The structure ends before its last field.
    #[error("{0}: cut short")]
    Truncated(&'static str),
    /// These bytes are something else.
    #[error("{0}: not recognised")]
    BadMagic(&'static str),
    /// The bytes are not those that were written.
    #[error("{0}: checksum mismatch")]
    BadChecksum(&'static str),
    /// Written by a newer version.
    #[error("{what}: version {version} is newer than this software understands")]
    NewerVersion {
        /// The structure.
        what: &'static str,
        /// Its version.
        version: u32,
    },
    /// A field has a value that this format does not allow.
    #[error("{what}: invalid value {value}")]
    Invalid {
        /// The structure and field.
        what: &'static str,
        /// The value found.
        value: u64,
    },
    /// The value does not fit its place.
    #[error("{what}: {bytes} bytes do not fit")]
    TooLarge {
        /// The structure.
        what: &'static str,
        /// The bytes needed.
        bytes: usize,
    },
}

impl FormatError {
    /// An [`FormatError::Invalid`].
    pub fn invalid(what: &'static str, value: impl Into<u64>) -> Self {
        FormatError::Invalid { what, value: value.into() }
    }
}

/// The 64-bit checksum of a page.
pub fn checksum64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The 128-bit checksum of a block, header or label.
pub fn checksum128(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}

/// Reads fields off the front of a byte slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `bytes` as a `what` (the name that errors carry).
    pub fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Reader { bytes, what }
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let (head, tail) =
            self.bytes.split_at_checked(count).ok_or(FormatError::Truncated(self.what))?;
        self.bytes = tail;
        Ok(head)
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (head, tail) =
            self.bytes.split_first_chunk::<N>().ok_or(FormatError::Truncated(self.what))?;
        self.bytes = tail;
        Ok(*head)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Five bytes.
    pub fn u40(&mut self) -> Result<u64, FormatError> {
        let [a, b, c, d, e] = self.array()?;
        Ok(u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]))
    }
    /// Six bytes.
    pub fn u48(&mut self) -> Result<u64, FormatError> {
        let [a, b, c, d, e, f] = self.array()?;
        Ok(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// Eight bytes, signed.
    pub fn i64(&mut self) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.array()?))
    }
    /// Sixteen bytes.
    pub fn u128(&mut self) -> Result<u128, FormatError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// A byte string: u16 length, then the bytes.
    pub fn string(&mut self, max_bytes: usize) -> Result<Vec<u8>, FormatError> {
        let count = usize::from(self.u16()?);
        if count > max_bytes {
            return Err(FormatError::TooLarge { what: self.what, bytes: count });
        }
        Ok(self.take(count)?.to_vec())
    }

    /// A UTF-8 string as [`Reader::string`].
    pub fn text(&mut self, max_bytes: usize) -> Result<String, FormatError> {
        String::from_utf8(self.string(max_bytes)?)
            .map_err(|_| FormatError::invalid(self.what, 0u64))
    }

    /// Fails unless the next bytes are `magic`.
    pub fn magic(&mut self, magic: [u8; 8]) -> Result<(), FormatError> {
        if self.array::<8>()? == magic { Ok(()) } else { Err(FormatError::BadMagic(self.what)) }
    }

    /// Reads a u32 version, the first of which is 1, and refuses a newer one.
    pub fn version(&mut self, newest: u32) -> Result<u32, FormatError> {
        let version = self.u32()?;
        if version > newest {
            return Err(FormatError::NewerVersion { what: self.what, version });
        }
        if version == 0 {
            return Err(FormatError::invalid(self.what, version));
        }
        Ok(version)
    }

    /// Reads a txg and refuses one that no pool reaches, because the engine counts on from it.
    pub fn txg(&mut self) -> Result<Txg, FormatError> {
        let txg = self.u64()?;
        if txg < Txg::LIMIT { Ok(Txg(txg)) } else { Err(FormatError::invalid("txg", txg)) }
    }

    /// Reads a sequence and refuses one that no pool reaches, because the engine counts on from it.
    pub fn sequence(&mut self) -> Result<u64, FormatError> {
        let sequence = self.u64()?;
        if sequence < SEQUENCE_LIMIT {
            Ok(sequence)
        } else {
            Err(FormatError::invalid("sequence", sequence))
        }
    }
}

/// Fails unless a run of `sectors` from `place` on lies within a vdev, so that every sector of it,
/// and the one after it, has a place.
pub(crate) fn check_run(place: Place, sectors: u64) -> Result<(), FormatError> {
    if place.fits(sectors) { Ok(()) } else { Err(FormatError::invalid("place", place.0)) }
}

/// Appends fields to a byte vector.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Writer::default()
    }

    /// An empty writer with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Writer { bytes: Vec::with_capacity(bytes) }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Raw bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.put(&value.to_le_bytes());
    }
    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    /// Five bytes; higher ones must be zero.
    pub fn u40(&mut self, value: u64) {
        assert!(value < 1 << 40, "a 40-bit field holds {value}");
        let [a, b, c, d, e, ..] = value.to_le_bytes();
        self.put(&[a, b, c, d, e]);
    }
    /// Six bytes; higher ones must be zero.
    pub fn u48(&mut self, value: u64) {
        assert!(value < 1 << 48, "a 48-bit field holds {value}");
        let [a, b, c, d, e, f, ..] = value.to_le_bytes();
        self.put(&[a, b, c, d, e, f]);
    }
    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    /// Eight bytes, signed.
    pub fn i64(&mut self, value: i64) {
        self.put(&value.to_le_bytes());
    }
    /// Sixteen bytes.
    pub fn u128(&mut self, value: u128) {
        self.put(&value.to_le_bytes());
    }
    /// A byte string of at most 65,535 bytes: u16 length, then the bytes.
    pub fn string(&mut self, bytes: &[u8]) {
        let count = u16::try_from(bytes.len());
        assert!(count.is_ok(), "a string of the format is at most 65,535 bytes");
        self.u16(count.unwrap_or(u16::MAX));
        self.put(bytes);
    }
    /// A list's length.
    pub fn count(&mut self, count: usize) {
        let count = u32::try_from(count);
        assert!(count.is_ok(), "a list of the format is at most 2^32 entries");
        self.u32(count.unwrap_or(u32::MAX));
    }
}

/// Pads to `sectors` whole sectors and puts a 128-bit checksum of all before it into the last 16
/// bytes: for structures without a pointer that carries their checksum.
pub fn seal(writer: Writer, sectors: usize, what: &'static str) -> Result<Vec<u8>, FormatError> {
    let mut bytes = writer.into_bytes();
    let room = sectors * SECTOR_BYTES - 16;
    if bytes.len() > room {
        return Err(FormatError::TooLarge { what, bytes: bytes.len() });
    }
    bytes.resize(room, 0);
    let sum = checksum128(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

/// Checks what [`seal`] wrote and returns the bytes before the checksum.
pub fn unseal<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a [u8], FormatError> {
    let (body, sum) = bytes.split_last_chunk::<16>().ok_or(FormatError::Truncated(what))?;
    if checksum128(body) == u128::from_le_bytes(*sum) {
        Ok(body)
    } else {
        Err(FormatError::BadChecksum(what))
    }
}
