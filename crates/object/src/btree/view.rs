//! A node read in place: a lookup decodes one entry, not the node.
//!
//! The bytes are those drawn at the head of `ondisk::tree_node`; the tests hold this reading
//! against `Node::decode`. What a view returns was bounds-checked on the way, never trusted: a
//! count or length that lies gives an `Err`.

use std::marker::PhantomData;

use aquifer_ondisk::block_pointer::BLOCK_POINTER_BYTES;
use aquifer_ondisk::tree_node::{
    Directory, Extents, Form, LEVELS_MAX, NODE_HEADER_BYTES, Namespace, Objects,
};
use aquifer_ondisk::{BlockPointer, FormatError, Reader};

use super::store::TreeError;

const WHAT: &str = "tree node";
const MAGIC: [u8; 4] = *b"AQTN";
const ENTRY_FORM: u16 = 1;

/// A [`Form`] as the trees need it: entries can be passed over, and may cover more than one key.
pub trait Packed: Form {
    /// Passes over an entry, and says the first and last key it covers. Forms whose entries own
    /// memory pass over them without making one.
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

impl Packed for Extents {
    fn skip(r: &mut Reader<'_>) -> Result<(u64, u64), FormatError> {
        aquifer_ondisk::extent::Extent::skip(r)
    }

    fn tied(left: &Self::Entry, right: &Self::Entry) -> bool {
        crate::extent_tree::one_tenancy(left, right)
    }
}

impl Packed for Objects {}

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

fn skip_string(r: &mut Reader<'_>) -> Result<(), FormatError> {
    let bytes = r.u16()?;
    r.take(bytes.into()).map(drop)
}

/// Fails unless `root` can be the root of a tree.
pub(crate) fn check_root(root: &BlockPointer) -> Result<(), TreeError> {
    if root.level < LEVELS_MAX { Ok(()) } else { Err(TreeError::TooDeep { level: root.level }) }
}

/// Fails unless `child` is one level below `parent`: so every descent ends.
pub(crate) fn check_child(parent: u8, child: &BlockPointer) -> Result<(), TreeError> {
    if child.level.checked_add(1) == Some(parent) {
        Ok(())
    } else {
        Err(TreeError::ChildLevel { parent, child: child.level })
    }
}

/// A node's bytes.
#[derive(Debug, Clone)]
pub(crate) struct View<'a, F: Form> {
    level: u8,
    count: usize,
    body: &'a [u8],
    form: PhantomData<F>,
}

impl<'a, F: Packed> View<'a, F> {
    const SLOT_BYTES: usize = F::KEY_BYTES + BLOCK_POINTER_BYTES;

    /// Reads the header of a node that `pointer` verified.
    pub(crate) fn open(sector: &'a [u8], pointer: &BlockPointer) -> Result<Self, FormatError> {
        let mut r = Reader::new(sector, WHAT);
        if r.array::<4>()? != MAGIC {
            return Err(FormatError::BadMagic(WHAT));
        }
        let form = r.u16()?;
        if form != ENTRY_FORM {
            return Err(FormatError::NewerVersion { what: WHAT, version: form.into() });
        }
        let (kind, level) = (r.u8()?, r.u8()?);
        if kind != F::KIND as u8 || pointer.kind != F::KIND || level != pointer.level {
            return Err(FormatError::invalid("tree node: kind or level", kind));
        }
        let (count, used) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let mut r = Reader::new(sector, WHAT);
        r.take(NODE_HEADER_BYTES)?;
        let body = r.take(used)?;
        if level > 0 && body.len() != count * Self::SLOT_BYTES {
            return Err(FormatError::invalid("tree node: used bytes", used as u64));
        }
        Ok(View { level, count, body, form: PhantomData })
    }

    /// Height above the leaves.
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// Entries or children.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Child `index` and its lower bound.
    pub(crate) fn child(&self, index: usize) -> Result<(F::Key, BlockPointer), FormatError> {
        let mut r = self.slot(index);
        Ok((F::decode_key(&mut r)?, BlockPointer::decode(&mut r)?))
    }

    fn slot(&self, index: usize) -> Reader<'a> {
        let start = index.saturating_mul(Self::SLOT_BYTES);
        Reader::new(self.body.get(start..).unwrap_or_default(), WHAT)
    }

    /// The child whose range holds `key`: the last one whose lower bound is not above it, or the
    /// first child, whose own bound is never consulted.
    pub(crate) fn position(&self, key: F::Key) -> Result<usize, FormatError> {
        let (mut low, mut high) = (0, self.count.saturating_sub(1));
        while low < high {
            let middle = (low + high).div_ceil(2);
            if F::decode_key(&mut self.slot(middle))? <= key {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        Ok(low)
    }

    /// The child whose range holds `key`, checked to be one level below.
    pub(crate) fn child_for<E>(&self, key: F::Key) -> Result<BlockPointer, E>
    where
        E: From<FormatError> + From<TreeError>,
    {
        self.checked_child(self.position(key)?)
    }

    /// The last child, checked to be one level below.
    pub(crate) fn last_child<E>(&self) -> Result<BlockPointer, E>
    where
        E: From<FormatError> + From<TreeError>,
    {
        self.checked_child(self.count.saturating_sub(1))
    }

    fn checked_child<E>(&self, index: usize) -> Result<BlockPointer, E>
    where
        E: From<FormatError> + From<TreeError>,
    {
        if self.count == 0 {
            return Err(TreeError::MissingChild { level: self.level }.into());
        }
        let (_, pointer) = self.child(index)?;
        check_child(self.level, &pointer)?;
        Ok(pointer)
    }

    /// Of a leaf: the entry that covers `key`.
    pub(crate) fn find(&self, key: F::Key) -> Result<Option<F::Entry>, FormatError> {
        let mut r = Reader::new(self.body, WHAT);
        for _ in 0..self.count {
            let mut start = r.clone();
            let (first, last) = F::skip(&mut r)?;
            if first > key {
                return Ok(None);
            }
            if last >= key {
                return F::decode_entry(&mut start).map(Some);
            }
        }
        Ok(None)
    }

    /// Of a leaf: its last entry.
    pub(crate) fn last(&self) -> Result<Option<F::Entry>, FormatError> {
        let mut r = Reader::new(self.body, WHAT);
        let mut start = None;
        for _ in 0..self.count {
            start = Some(r.clone());
            F::skip(&mut r)?;
        }
        start.map(|mut r| F::decode_entry(&mut r)).transpose()
    }

    /// Of a leaf: the first entry at or after `place` that covers a key from `from` on, if it
    /// begins before `to`, and where the next entry begins.
    pub(crate) fn entry_from(
        &self,
        place: LeafPlace,
        from: F::Key,
        to: Option<F::Key>,
    ) -> Result<Option<(F::Entry, LeafPlace)>, FormatError> {
        let bytes = self.body.get(place.offset..).unwrap_or_default();
        let mut r = Reader::new(bytes, WHAT);
        for passed in place.entry..self.count {
            let mut start = r.clone();
            let (first, last) = F::skip(&mut r)?;
            if to.is_some_and(|to| first >= to) {
                return Ok(None);
            }
            if last >= from {
                let next =
                    LeafPlace { entry: passed + 1, offset: self.body.len() - r.rest().len() };
                return Ok(Some((F::decode_entry(&mut start)?, next)));
            }
        }
        Ok(None)
    }
}

/// Where in a leaf a scan stands.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeafPlace {
    entry: usize,
    offset: usize,
}
