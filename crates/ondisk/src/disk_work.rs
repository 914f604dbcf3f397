//! A record of the work on the free space of a disk: a trim and an initialization, ended
//! ([`crate::free_work`]) or not ([`crate::open_work`]).
//!
//! ```text
//! item of dataset 0, class of the kind, number = the low 56 bits of the disk's guid
//!   version u16  flags u16 (0)  leaf_guid u64
//!   trim  initialize, each as its kind says
//! ```

use crate::codec::{FormatError, Reader, Writer};
use crate::dataset::{Item, ItemClass, ItemKey};
use crate::types::{DatasetId, Guid};

const VERSION: u16 = 1;

/// A kind of record: how it writes one work of a disk, or that there is none.
pub trait WorkKind: Copy {
    /// Name of its records in errors.
    const WHAT: &'static str;
    /// Name of a record's flags in errors.
    const FLAGS: &'static str;
    /// The class of its items.
    const CLASS: ItemClass;

    /// Writes one.
    fn encode(work: Option<Self>, w: &mut Writer);

    /// Reads one.
    ///
    /// # Errors
    /// No bytes, or a state that is none.
    fn decode(r: &mut Reader<'_>) -> Result<Option<Self>, FormatError>;
}

/// Record of the work on the free space of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskWork<W> {
    /// The disk.
    pub leaf: Guid,
    /// Its trim.
    pub trim: Option<W>,
    /// Its initialization.
    pub initialize: Option<W>,
}

impl<W: WorkKind> DiskWork<W> {
    /// The key of a disk's item.
    pub fn key(leaf: Guid) -> ItemKey {
        ItemKey::new(DatasetId(0), W::CLASS, leaf.0 & ((1 << 56) - 1))
    }

    /// The item of a disk, or that it has none any more.
    pub fn item((leaf, record): (Guid, Option<Self>)) -> (ItemKey, Option<Item>) {
        let key = Self::key(leaf);
        (key, record.map(|record| Item { key, value: record.encode() }))
    }

    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.u16(VERSION);
        w.u16(0);
        w.u64(self.leaf.0);
        for work in [self.trim, self.initialize] {
            W::encode(work, &mut w);
        }
        w.into_bytes()
    }

    /// Reads an item's value.
    ///
    /// # Errors
    /// A newer version, and bytes that are none.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = Reader::new(value, W::WHAT);
        let version = r.u16()?;
        if version != VERSION {
            return Err(FormatError::NewerVersion { what: W::WHAT, version: version.into() });
        }
        let flags = r.u16()?;
        if flags != 0 {
            return Err(FormatError::invalid(W::FLAGS, flags));
        }
        let leaf = Guid(r.u64()?);
        let (trim, initialize) = (W::decode(&mut r)?, W::decode(&mut r)?);
        Ok(DiskWork { leaf, trim, initialize })
    }
}
