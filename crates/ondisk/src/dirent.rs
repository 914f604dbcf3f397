//! A directory entry.
//!
//! ```text
//! key u64  object u64  generation u64  kind u8
//! name string (1 to 255 bytes, neither `/` nor NUL among them)
//! ```
//! The key is stored, and is the READDIR cookie: 55 bits of the name's seeded hash, then 8 bits
//! that number names of equal hash. It stays for the entry's life, and is never 0, 1 or 2, which
//! clients reserve, nor above 2^63, which some read as negative.

use crate::codec::{FormatError, Reader, Writer, checksum64};
use crate::inode::FileKind;
use crate::types::ObjectId;

/// Longest name, bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Encoded bytes of an entry at most.
pub const DIRENT_BYTES_MAX: usize = 27 + NAME_BYTES_MAX;
/// Shortest encoded entry.
pub const DIRENT_BYTES_MIN: usize = 27 + 1;
/// Names of one hash at most.
pub const COLLISIONS_MAX: u64 = 256;

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirent {
    /// Stored key and cookie.
    pub key: u64,
    /// The object that it names.
    pub object: ObjectId,
    /// That object's generation.
    pub generation: u64,
    /// That object's kind.
    pub kind: FileKind,
    /// The name: any bytes except `/` and NUL.
    pub name: Vec<u8>,
}

/// The first of the 256 keys that `name` may take in a directory of this seed.
pub fn hash_key(seed: u64, name: &[u8]) -> u64 {
    let mut bytes = seed.to_le_bytes().to_vec();
    bytes.extend_from_slice(name);
    // Never the lowest range of keys: 0, 1 and 2 are not cookies of entries.
    ((checksum64(&bytes) >> 9).max(1)) << 8
}

impl Dirent {
    /// Encoded bytes.
    pub fn encoded_bytes(&self) -> usize {
        27 + self.name.len()
    }

    /// Appends the entry.
    pub fn encode(&self, w: &mut Writer) {
        assert!(is_name(&self.name), "a name that could not be read back: {:?}", self.name);
        w.u64(self.key);
        w.u64(self.object.0);
        w.u64(self.generation);
        w.u8(self.kind as u8);
        w.string(&self.name);
    }

    /// Reads an entry.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let entry = Dirent {
            key: r.u64()?,
            object: ObjectId(r.u64()?),
            generation: r.u64()?,
            kind: FileKind::from_u8(r.u8()?)?,
            name: r.string(NAME_BYTES_MAX)?,
        };
        if is_name(&entry.name) {
            Ok(entry)
        } else {
            Err(FormatError::invalid("directory entry: name", entry.name.len() as u64))
        }
    }
}

/// Whether these bytes can be a name. Names go to clients and must not lead them elsewhere.
fn is_name(name: &[u8]) -> bool {
    let whole = !name.contains(&b'/') && !name.contains(&0);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && whole
}
