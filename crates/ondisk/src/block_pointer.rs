//! The block pointer: the place of a tree node or root, and the proof that it is the right one.
//!
//! ```text
//!  0  place[0]       u64   vdev << 48 | sector
//!  8  place[1]       u64   second copy, 0 = none
//! 16  logical_bytes  u32
//! 20  stored_bytes   u32
//! 24  kind           u8    what the block is: a node met in the wrong tree is refused
//! 25  level          u8    0 = leaf
//! 26  checksum_type  u8    1 = xxh3-128
//! 27  compression    u8    0 = none
//! 28  flags          u16   0
//! 30  key_epoch      u16   0 = not encrypted
//! 32  birth          u64   txg in which the pointer entered a tree
//! 40  written        u64   txg in which the bytes went to their place; (place, written) never
//!                          repeats
//! 48  checksum       u128  of the stored bytes: kept apart from them, so that rot, a lost write
//!                          and a misdirected write all show
//! ```

use crate::codec::{FormatError, Reader, Writer, check_run, checksum128};
use crate::types::{Place, Txg};

/// The kind of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum BlockKind {
    /// A node of a file's extent tree.
    Extents = 1,
    /// A node of a dataset's object table.
    Objects = 2,
    /// A node of a directory.
    Directory = 3,
    /// A node of the pool's namespace of datasets.
    Namespace = 4,
    /// A node of a dead tree.
    Dead = 5,
    /// A node of the refcount tree.
    Refcounts = 6,
    /// A node of the reply table.
    Replies = 7,
    /// A node of the segment table.
    Segments = 8,
}

impl BlockKind {
    /// The kind of this number.
    pub fn from_u8(value: u8) -> Result<Self, FormatError> {
        Ok(match value {
            1 => BlockKind::Extents,
            2 => BlockKind::Objects,
            3 => BlockKind::Directory,
            4 => BlockKind::Namespace,
            5 => BlockKind::Dead,
            6 => BlockKind::Refcounts,
            7 => BlockKind::Replies,
            8 => BlockKind::Segments,
            other => return Err(FormatError::invalid("block pointer: kind", other)),
        })
    }
}

/// Encoded size of a pointer.
pub const BLOCK_POINTER_BYTES: usize = 64;
const CHECKSUM_XXH3_128: u8 = 1;
const SECTOR_BYTES: u64 = 4096;

/// A pointer to a block of one sector or more. See the module's head for the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockPointer {
    /// The copies; the second is null if there is none.
    pub places: [Place; 2],
    /// Bytes before compression.
    pub logical_bytes: u32,
    /// Bytes stored, whole sectors.
    pub stored_bytes: u32,
    /// The kind of the block.
    pub kind: BlockKind,
    /// Height above the leaves.
    pub level: u8,
    /// Compression algorithm of the stored bytes, 0 for none.
    pub compression: u8,
    /// When the pointer entered a tree.
    pub birth: Txg,
    /// When the bytes were written.
    pub written: Txg,
    /// Checksum of the stored bytes.
    pub checksum: u128,
}

impl BlockPointer {
    /// Sectors stored at each place.
    pub fn sectors(&self) -> u64 {
        u64::from(self.stored_bytes).div_ceil(SECTOR_BYTES)
    }

    /// The places in use.
    pub fn copies(&self) -> impl Iterator<Item = Place> + use<> {
        self.places.into_iter().filter(|place| !place.is_null())
    }

    /// Whether `stored` are the bytes that this pointer names.
    pub fn verify(&self, stored: &[u8]) -> bool {
        checksum128(stored) == self.checksum
    }

    /// Appends the 64 bytes.
    pub fn encode(&self, writer: &mut Writer) {
        let [first, second] = self.places;
        assert!(self.is_valid(), "a pointer that could not be read back: {self:?}");
        writer.u64(first.0);
        writer.u64(second.0);
        writer.u32(self.logical_bytes);
        writer.u32(self.stored_bytes);
        writer.u8(self.kind as u8);
        writer.u8(self.level);
        writer.u8(CHECKSUM_XXH3_128);
        writer.u8(self.compression);
        writer.u16(0);
        writer.u16(0);
        writer.u64(self.birth.0);
        writer.u64(self.written.0);
        writer.u128(self.checksum);
    }

    /// Reads a pointer that must not be null.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Self::decode_optional(reader)?.ok_or(FormatError::invalid("block pointer: null", 0u64))
    }

    /// Reads a pointer, `None` if it is null (64 zero bytes).
    pub fn decode_optional(reader: &mut Reader<'_>) -> Result<Option<Self>, FormatError> {
        let bytes = reader.array::<BLOCK_POINTER_BYTES>()?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let mut r = Reader::new(&bytes, "block pointer");
        let places = [Place(r.u64()?), Place(r.u64()?)];
        let logical_bytes = r.u32()?;
        let stored_bytes = r.u32()?;
        let kind = BlockKind::from_u8(r.u8()?)?;
        let level = r.u8()?;
        let checksum_type = r.u8()?;
        let compression = r.u8()?;
        let flags = r.u16()?;
        let key_epoch = r.u16()?;
        if checksum_type != CHECKSUM_XXH3_128 {
            return Err(FormatError::invalid("block pointer: checksum type", checksum_type));
        }
        if flags != 0 || key_epoch != 0 || compression != 0 {
            return Err(FormatError::invalid("block pointer: flags", flags));
        }
        let (birth, written, checksum) = (r.txg()?, r.txg()?, r.u128()?);
        let pointer = BlockPointer {
            places,
            logical_bytes,
            stored_bytes,
            kind,
            level,
            compression,
            birth,
            written,
            checksum,
        };
        if !pointer.is_valid() {
            return Err(FormatError::invalid("block pointer: size", stored_bytes));
        }
        for place in pointer.copies() {
            check_run(place, pointer.sectors())?;
        }
        Ok(Some(pointer))
    }

    /// Whether it names a place, and whole sectors there.
    fn is_valid(&self) -> bool {
        let [first, _] = self.places;
        let sectors = u64::from(self.stored_bytes) % SECTOR_BYTES == 0 && self.stored_bytes > 0;
        !first.is_null() && sectors && self.compression == 0
    }

    /// Appends a pointer or 64 zero bytes.
    pub fn encode_optional(pointer: Option<&BlockPointer>, writer: &mut Writer) {
        match pointer {
            Some(pointer) => pointer.encode(writer),
            None => writer.put(&[0; BLOCK_POINTER_BYTES]),
        }
    }
}
