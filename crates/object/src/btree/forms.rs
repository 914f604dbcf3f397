//! Requirements of the trees on a form, beyond its bytes.

use aquifer_ondisk::dead::DeadEntry;
use aquifer_ondisk::extent::{COMPRESSED_PAGES_MAX, Extent};
use aquifer_ondisk::tree_node::{Dead, Directory, Extents, Form, Namespace, Objects, Replies};
use aquifer_ondisk::{FormatError, Reader};

/// A [`Form`] for the trees: entries can be skipped, and may cover more than one key.
pub trait Packed: Form {
    /// Whether entries can be tied at all.
    const TIES: bool = false;

    /// Skips an entry, and returns the first and last key that it covers. Forms whose entries own
    /// memory skip them without making one.
    fn skip(r: &mut Reader<'_>) -> Result<(Self::Key, Self::Key), FormatError> {
        let key = Self::key(&Self::decode_entry(r)?);
        Ok((key, key))
    }

    /// Whether these two, at most [`TIE_REACH`] entries apart, must stay in one leaf, with all
    /// that lies between them.
    fn tied(left: &Self::Entry, right: &Self::Entry) -> bool {
        Self::inseparable(left, right)
    }
}

/// How many entries apart two tied entries may be: entries of one tenancy lie within 8 pages.
pub const TIE_REACH: usize = 7;
const _: () = assert!(COMPRESSED_PAGES_MAX == 8, "TIE_REACH follows from it");

impl Packed for Extents {
    const TIES: bool = true;

    fn skip(r: &mut Reader<'_>) -> Result<(u64, u64), FormatError> {
        Extent::skip(r)
    }

    fn tied(left: &Self::Entry, right: &Self::Entry) -> bool {
        crate::extent_tree::one_tenancy(left, right)
    }
}

impl Packed for Objects {}

impl Packed for Replies {}

impl Packed for Directory {
    fn skip(r: &mut Reader<'_>) -> Result<(u64, u64), FormatError> {
        let key = r.u64()?;
        r.take(17)?;
        skip_string(r)?;
        Ok((key, key))
    }
}

impl Packed for Namespace {
    fn skip(r: &mut Reader<'_>) -> Result<(Self::Key, Self::Key), FormatError> {
        let key = Self::decode_key(r)?;
        skip_string(r)?;
        Ok((key, key))
    }
}

impl Packed for Dead {
    fn skip(r: &mut Reader<'_>) -> Result<(Self::Key, Self::Key), FormatError> {
        let key = DeadEntry::skip(r)?;
        Ok((key, key))
    }
}

fn skip_string(r: &mut Reader<'_>) -> Result<(), FormatError> {
    let bytes = r.u16()?;
    r.take(bytes.into()).map(drop)
}
