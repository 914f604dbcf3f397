//! A node in its bytes: a lookup decodes one entry, not the node, and a merge copies unchanged
//! entries.
//!
//! `ondisk::tree_node` reads the header; the tests compare this code for the rest with
//! `Node::decode`. A view checks the bounds of all that it returns, and trusts nothing: a wrong
//! count or length gives an `Err`.

use std::marker::PhantomData;

use aquifer_blockio::{Page, PageMut};
use aquifer_ondisk::block_pointer::BLOCK_POINTER_BYTES;
use aquifer_ondisk::tree_node::{Form, LEVELS_MAX, NODE_HEADER_BYTES, NodeHeader, NodeOwner};
use aquifer_ondisk::{BlockPointer, FormatError, Reader, Txg, Writer};

use super::forms::Packed;
use super::store::{NodeError, TreeError};

const WHAT: &str = "tree node";

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

/// The page of a node that holds `count` entries of these bytes.
pub(crate) fn seal<F: Form>(
    level: u8,
    owner: NodeOwner,
    written: Txg,
    count: usize,
    body: &[u8],
) -> Result<Page, FormatError> {
    let (Ok(count), Ok(used)) = (u16::try_from(count), u16::try_from(body.len())) else {
        return Err(FormatError::TooLarge { what: WHAT, bytes: body.len() });
    };
    let mut w = Writer::with_capacity(NODE_HEADER_BYTES);
    NodeHeader { level, count, used_bytes: used, owner, written }.encode::<F>(&mut w);
    let mut page = PageMut::zeroed();
    let (header, room) = page.split_at_mut(NODE_HEADER_BYTES);
    header.copy_from_slice(w.as_bytes());
    match room.get_mut(..body.len()) {
        Some(room) => room.copy_from_slice(body),
        None => {
            return Err(FormatError::TooLarge { what: WHAT, bytes: body.len() });
        }
    }
    Ok(page.freeze())
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
        let (header, body) = NodeHeader::decode::<F>(sector, pointer)?;
        let (level, count) = (header.level, usize::from(header.count));
        if level > 0 && body.len() != count * Self::SLOT_BYTES {
            return Err(FormatError::invalid("tree node: used bytes", header.used_bytes));
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
    pub(crate) fn child_for<E: NodeError>(&self, key: F::Key) -> Result<BlockPointer, E> {
        self.checked_child(self.position(key)?)
    }

    /// The last child, checked to be one level below.
    pub(crate) fn last_child<E: NodeError>(&self) -> Result<BlockPointer, E> {
        self.checked_child(self.count.saturating_sub(1))
    }

    fn checked_child<E: NodeError>(&self, index: usize) -> Result<BlockPointer, E> {
        if self.count == 0 {
            return Err(TreeError::MissingChild { level: self.level }.into());
        }
        let (_, pointer) = self.child(index)?;
        check_child(self.level, &pointer)?;
        Ok(pointer)
    }

    /// Of a leaf: its entries, none decoded.
    pub(crate) fn entries(&self) -> Entries<'a, F> {
        Entries::new(self.body, self.count)
    }

    /// Of a leaf: the entry that covers `key`.
    pub(crate) fn find(&self, key: F::Key) -> Result<Option<F::Entry>, FormatError> {
        let mut entries = self.entries();
        while let Some(entry) = entries.next()? {
            if entry.first > key {
                break;
            }
            if entry.last >= key {
                return entry.decode().map(Some);
            }
        }
        Ok(None)
    }

    /// Of a leaf: its last entry.
    pub(crate) fn last(&self) -> Result<Option<F::Entry>, FormatError> {
        let (mut entries, mut last) = (self.entries(), None);
        while let Some(entry) = entries.next()? {
            last = Some(entry);
        }
        last.map(|entry| entry.decode()).transpose()
    }

    /// Of a leaf: the first entry at or after `place` that covers a key from `from` on, if it
    /// begins before `to`, and where the next entry begins.
    pub(crate) fn entry_from(
        &self,
        place: LeafPlace,
        from: F::Key,
        to: Option<F::Key>,
    ) -> Result<Option<(F::Entry, LeafPlace)>, FormatError> {
        let rest = self.body.get(place.offset..).unwrap_or_default();
        let mut entries = Entries::<F>::new(rest, self.count.saturating_sub(place.entry));
        while let Some(entry) = entries.next()? {
            if to.is_some_and(|to| entry.first >= to) {
                break;
            }
            if entry.last >= from {
                let next = LeafPlace {
                    entry: self.count - entries.count,
                    offset: self.body.len() - entries.r.rest().len(),
                };
                return Ok(Some((entry.decode()?, next)));
            }
        }
        Ok(None)
    }
}

/// The position of a scan in a leaf.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LeafPlace {
    entry: usize,
    offset: usize,
}

/// An entry in its bytes.
#[derive(Debug)]
pub(crate) struct RawEntry<'a, F: Form> {
    /// The first key it covers: its own.
    pub(crate) first: F::Key,
    /// The last key it covers.
    pub(crate) last: F::Key,
    /// Its encoding.
    pub(crate) bytes: &'a [u8],
}

impl<F: Form> Clone for RawEntry<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Form> Copy for RawEntry<'_, F> {}

impl<F: Form> RawEntry<'_, F> {
    /// The entry itself.
    pub(crate) fn decode(&self) -> Result<F::Entry, FormatError> {
        F::decode_entry(&mut Reader::new(self.bytes, WHAT))
    }
}

/// Iterates over packed entries in order, without decoding. Keys that do not ascend, or entries
/// that cover one key twice, are an error.
#[derive(Debug)]
pub(crate) struct Entries<'a, F: Form> {
    r: Reader<'a>,
    count: usize,
    last: Option<F::Key>,
}

impl<F: Form> Clone for Entries<'_, F> {
    fn clone(&self) -> Self {
        Entries { r: self.r.clone(), ..*self }
    }
}

impl<'a, F: Packed> Entries<'a, F> {
    /// `count` entries packed in `bytes`.
    pub(crate) fn new(bytes: &'a [u8], count: usize) -> Self {
        Entries { r: Reader::new(bytes, WHAT), count, last: None }
    }

    /// Bytes of the entries not passed yet.
    pub(crate) fn rest_bytes(&self) -> usize {
        self.r.rest().len()
    }

    /// The last key covered so far.
    pub(crate) fn last(&self) -> Option<F::Key> {
        self.last
    }

    /// The next entry, `None` after the last, which must end where the bytes do.
    pub(crate) fn next(&mut self) -> Result<Option<RawEntry<'a, F>>, FormatError> {
        let rest = self.r.rest();
        if self.count == 0 {
            return match rest {
                [] => Ok(None),
                _ => Err(FormatError::invalid("tree node: used bytes", rest.len() as u64)),
            };
        }
        let (first, last) = F::skip(&mut self.r)?;
        if self.last.is_some_and(|before| before >= first) {
            return Err(FormatError::invalid("tree node: order of keys", 0u64));
        }
        self.last = Some(last);
        self.count -= 1;
        let bytes = rest.get(..rest.len() - self.r.rest().len()).unwrap_or_default();
        Ok(Some(RawEntry { first, last, bytes }))
    }
}
