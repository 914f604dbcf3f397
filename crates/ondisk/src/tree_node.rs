//! A node of a copy-on-write B+tree: one sector, in every tree.
//!
//! ```text
//!  0 magic "AQTN"   4 entry_form u16   6 kind u8   7 level u8
//!  8 count u16     10 used_bytes u16  12 pad u32
//! 16 dataset u64   24 object u64      whose tree it is: for inspection and rebuilding
//! 32 written u64   40 pad [24]
//! 64 entries, used_bytes of them
//! ```
//! A leaf (level 0) holds the entries of its [`Form`]; an inner node holds (key, block pointer)
//! pairs, a child's key being its lower bound. The pointer to the node holds its checksum.

use std::fmt::Debug;

use crate::block_pointer::{BLOCK_POINTER_BYTES, BlockKind, BlockPointer};
use crate::codec::{FormatError, Reader, SECTOR_BYTES, Writer};
use crate::types::{DatasetId, ObjectId, Txg};

const WHAT: &str = "tree node";
const MAGIC: [u8; 4] = *b"AQTN";
const ENTRY_FORM: u16 = 1;
/// Bytes before the entries.
pub const NODE_HEADER_BYTES: usize = 64;
/// Bytes that entries may take.
pub const NODE_CAPACITY_BYTES: usize = SECTOR_BYTES - NODE_HEADER_BYTES;
/// Longest entry: three fit in a node, so that a split always ends.
pub const ENTRY_BYTES_MAX: usize = NODE_CAPACITY_BYTES / 3;
const _: () = assert!(crate::inode::INODE_BYTES <= ENTRY_BYTES_MAX);
const _: () = assert!(crate::extent::EXTENT_BYTES_MAX <= ENTRY_BYTES_MAX);
const _: () = assert!(crate::dirent::DIRENT_BYTES_MAX <= ENTRY_BYTES_MAX);
/// Height of a tree at most.
pub const LEVELS_MAX: u8 = 16;

/// The content of a tree: key, leaf entries, and their bytes.
pub trait Form: Debug + Send + Sync + 'static {
    /// The kind that pointers to its nodes carry.
    const KIND: BlockKind;
    /// Orders the entries.
    type Key: Copy + Ord + Debug + Send + Sync;
    /// A leaf's entry.
    type Entry: Clone + Debug + PartialEq + Send + Sync;

    /// Encoded bytes of a key.
    const KEY_BYTES: usize;
    /// The smallest key.
    const KEY_MIN: Self::Key;
    /// The least bytes of an entry.
    const ENTRY_BYTES_MIN: usize;

    /// An entry's key.
    fn key(entry: &Self::Entry) -> Self::Key;
    /// Encoded bytes of an entry, at most [`ENTRY_BYTES_MAX`].
    fn entry_bytes(entry: &Self::Entry) -> usize;
    /// Appends a key.
    fn encode_key(key: Self::Key, w: &mut Writer);
    /// Reads a key.
    fn decode_key(r: &mut Reader<'_>) -> Result<Self::Key, FormatError>;
    /// Appends an entry.
    fn encode_entry(entry: &Self::Entry, w: &mut Writer);
    /// Reads an entry.
    fn decode_entry(r: &mut Reader<'_>) -> Result<Self::Entry, FormatError>;
    /// Whether these neighbours must stay in one leaf (a tenancy).
    fn inseparable(_left: &Self::Entry, _right: &Self::Entry) -> bool {
        false
    }
}

/// The tree to which a node belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeOwner {
    /// The dataset, 0 for pool-wide trees.
    pub dataset: DatasetId,
    /// The object, 0 for a dataset's or the pool's own trees.
    pub object: ObjectId,
}

/// The first 64 bytes of a node: only this code knows their layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeHeader {
    /// Height above the leaves.
    pub level: u8,
    /// Entries or children.
    pub count: u16,
    /// Bytes that they take.
    pub used_bytes: u16,
    /// The tree's owner.
    pub owner: NodeOwner,
    /// Txg of writing.
    pub written: Txg,
}

impl NodeHeader {
    /// Appends the header of a node of form `F`.
    pub fn encode<F: Form>(&self, w: &mut Writer) {
        w.put(&MAGIC);
        w.u16(ENTRY_FORM);
        w.u8(F::KIND as u8);
        w.u8(self.level);
        w.u16(self.count);
        w.u16(self.used_bytes);
        w.u32(0);
        w.u64(self.owner.dataset.0);
        w.u64(self.owner.object.0);
        w.u64(self.written.0);
        w.put(&[0; 24]);
    }

    /// Reads the header of a node that `pointer` verified. Its kind and level must be those of the
    /// pointer. Returns the bytes of the entries, unread.
    pub fn decode<'a, F: Form>(
        sector: &'a [u8],
        pointer: &BlockPointer,
    ) -> Result<(NodeHeader, &'a [u8]), FormatError> {
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
        let (count, used_bytes) = (r.u16()?, r.u16()?);
        r.u32()?;
        let owner = NodeOwner { dataset: DatasetId(r.u64()?), object: ObjectId(r.u64()?) };
        let written = r.txg()?;
        r.array::<24>()?;
        let entries = r.take(usize::from(used_bytes))?;
        Ok((NodeHeader { level, count, used_bytes, owner, written }, entries))
    }

    /// The most entries that `count` may truly mean, if each takes at least `bytes_min`. A decoder
    /// may reserve memory for that many, whatever a hostile header says.
    fn plausible(&self, bytes_min: usize) -> usize {
        usize::from(self.count).min(usize::from(self.used_bytes) / bytes_min.max(1))
    }
}

/// The content of a node.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeBody<F: Form> {
    /// Entries in key order.
    Leaf(Vec<F::Entry>),
    /// Children in key order with their lower bounds.
    Inner(Vec<(F::Key, BlockPointer)>),
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node<F: Form> {
    /// Height above the leaves.
    pub level: u8,
    /// Its owner.
    pub owner: NodeOwner,
    /// Txg of writing.
    pub written: Txg,
    /// The entries.
    pub body: NodeBody<F>,
}

impl<F: Form> Node<F> {
    /// Bytes an inner entry takes.
    pub const INNER_ENTRY_BYTES: usize = F::KEY_BYTES + BLOCK_POINTER_BYTES;

    /// The node's sector.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut body = Writer::with_capacity(NODE_CAPACITY_BYTES);
        let count = match &self.body {
            NodeBody::Leaf(entries) => {
                entries.iter().for_each(|entry| F::encode_entry(entry, &mut body));
                entries.len()
            }
            NodeBody::Inner(children) => {
                for (key, pointer) in children {
                    F::encode_key(*key, &mut body);
                    pointer.encode(&mut body);
                }
                children.len()
            }
        };
        let (Ok(count), Ok(used)) = (u16::try_from(count), u16::try_from(body.len())) else {
            return Err(FormatError::TooLarge { what: WHAT, bytes: body.len() });
        };
        if body.len() > NODE_CAPACITY_BYTES {
            return Err(FormatError::TooLarge { what: WHAT, bytes: body.len() });
        }
        let (level, owner, written) = (self.level, self.owner, self.written);
        let header = NodeHeader { level, count, used_bytes: used, owner, written };
        let mut w = Writer::with_capacity(SECTOR_BYTES);
        header.encode::<F>(&mut w);
        w.put(body.as_bytes());
        let mut bytes = w.into_bytes();
        bytes.resize(SECTOR_BYTES, 0);
        Ok(bytes)
    }

    /// Reads a node that `pointer` verified: kind and level must be those of the pointer.
    pub fn decode(sector: &[u8], pointer: &BlockPointer) -> Result<Self, FormatError> {
        let (header, bytes) = NodeHeader::decode::<F>(sector, pointer)?;
        let NodeHeader { level, owner, written, .. } = header;
        let mut entries = Reader::new(bytes, WHAT);
        let body = if level == 0 {
            let mut list = Vec::with_capacity(header.plausible(F::ENTRY_BYTES_MIN));
            for _ in 0..header.count {
                list.push(F::decode_entry(&mut entries)?);
            }
            check_order(list.iter().map(F::key))?;
            NodeBody::Leaf(list)
        } else {
            let mut list = Vec::with_capacity(header.plausible(Self::INNER_ENTRY_BYTES));
            for _ in 0..header.count {
                list.push((F::decode_key(&mut entries)?, BlockPointer::decode(&mut entries)?));
            }
            check_order(list.iter().map(|(key, _)| *key))?;
            NodeBody::Inner(list)
        };
        if !entries.rest().is_empty() {
            return Err(FormatError::invalid("tree node: used bytes", header.used_bytes));
        }
        Ok(Node { level, owner, written, body })
    }
}

fn check_order<K: Ord>(keys: impl Iterator<Item = K>) -> Result<(), FormatError> {
    let mut last = None;
    for key in keys {
        if last.is_some_and(|last| last >= key) {
            return Err(FormatError::invalid("tree node: order of keys", 0u64));
        }
        last = Some(key);
    }
    Ok(())
}

/// A form whose key is one u64.
macro_rules! u64_key {
    () => {
        type Key = u64;
        const KEY_BYTES: usize = 8;
        const KEY_MIN: u64 = 0;
        fn encode_key(key: u64, w: &mut Writer) {
            w.u64(key);
        }
        fn decode_key(r: &mut Reader<'_>) -> Result<u64, FormatError> {
            r.u64()
        }
    };
}

/// A file's extents by first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents;

impl Form for Extents {
    const KIND: BlockKind = BlockKind::Extents;
    type Entry = crate::extent::Extent;
    u64_key!();
    const ENTRY_BYTES_MIN: usize = crate::extent::EXTENT_BYTES_MIN;

    fn key(entry: &Self::Entry) -> u64 {
        entry.page
    }
    fn entry_bytes(entry: &Self::Entry) -> usize {
        entry.encoded_bytes()
    }
    fn encode_entry(entry: &Self::Entry, w: &mut Writer) {
        entry.encode(w);
    }
    fn decode_entry(r: &mut Reader<'_>) -> Result<Self::Entry, FormatError> {
        crate::extent::Extent::decode(r)
    }
    fn inseparable(left: &Self::Entry, right: &Self::Entry) -> bool {
        left.same_tenancy(right)
    }
}

/// A dataset's inodes by object id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Objects;

impl Form for Objects {
    const KIND: BlockKind = BlockKind::Objects;
    type Entry = crate::inode::Inode;
    u64_key!();
    const ENTRY_BYTES_MIN: usize = crate::inode::INODE_BYTES;

    fn key(entry: &Self::Entry) -> u64 {
        entry.object.0
    }
    fn entry_bytes(entry: &Self::Entry) -> usize {
        entry.encoded_bytes()
    }
    fn encode_entry(entry: &Self::Entry, w: &mut Writer) {
        entry.encode(w);
    }
    fn decode_entry(r: &mut Reader<'_>) -> Result<Self::Entry, FormatError> {
        crate::inode::Inode::decode(r)
    }
}

/// A directory's entries by stored key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory;

impl Form for Directory {
    const KIND: BlockKind = BlockKind::Directory;
    type Entry = crate::dirent::Dirent;
    u64_key!();
    const ENTRY_BYTES_MIN: usize = crate::dirent::DIRENT_BYTES_MIN;

    fn key(entry: &Self::Entry) -> u64 {
        entry.key
    }
    fn entry_bytes(entry: &Self::Entry) -> usize {
        entry.encoded_bytes()
    }
    fn encode_entry(entry: &Self::Entry, w: &mut Writer) {
        entry.encode(w);
    }
    fn decode_entry(r: &mut Reader<'_>) -> Result<Self::Entry, FormatError> {
        crate::dirent::Dirent::decode(r)
    }
}

/// The pool's datasets, their properties, snapshots and lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace;

impl Form for Namespace {
    const KIND: BlockKind = BlockKind::Namespace;
    type Key = crate::dataset::ItemKey;
    type Entry = crate::dataset::Item;
    const KEY_BYTES: usize = 16;
    const KEY_MIN: Self::Key = crate::dataset::ItemKey { dataset: DatasetId(0), item: 0 };
    const ENTRY_BYTES_MIN: usize = 18;

    fn key(entry: &Self::Entry) -> Self::Key {
        entry.key
    }
    fn entry_bytes(entry: &Self::Entry) -> usize {
        entry.encoded_bytes()
    }
    fn encode_key(key: Self::Key, w: &mut Writer) {
        key.encode(w);
    }
    fn decode_key(r: &mut Reader<'_>) -> Result<Self::Key, FormatError> {
        crate::dataset::ItemKey::decode(r)
    }
    fn encode_entry(entry: &Self::Entry, w: &mut Writer) {
        entry.encode(w);
    }
    fn decode_entry(r: &mut Reader<'_>) -> Result<Self::Entry, FormatError> {
        crate::dataset::Item::decode(r)
    }
}

/// The pool's answered calls by order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replies;

impl Form for Replies {
    const KIND: BlockKind = BlockKind::Replies;
    type Entry = crate::reply::ReplyEntry;
    u64_key!();
    const ENTRY_BYTES_MIN: usize = crate::reply::ReplyEntry::BYTES;

    fn key(entry: &Self::Entry) -> u64 {
        entry.order
    }
    fn entry_bytes(_: &Self::Entry) -> usize {
        crate::reply::ReplyEntry::BYTES
    }
    fn encode_entry(entry: &Self::Entry, w: &mut Writer) {
        entry.encode(w);
    }
    fn decode_entry(r: &mut Reader<'_>) -> Result<Self::Entry, FormatError> {
        crate::reply::ReplyEntry::decode(r)
    }
}

/// A dataset's dead blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dead;

impl Form for Dead {
    const KIND: BlockKind = BlockKind::Dead;
    type Key = crate::dead::DeadKey;
    type Entry = crate::dead::DeadEntry;
    const KEY_BYTES: usize = crate::dead::DeadKey::BYTES;
    const KEY_MIN: Self::Key = crate::dead::DeadKey::MIN;
    const ENTRY_BYTES_MIN: usize = crate::dead::DeadEntry::BYTES_MIN;

    fn key(entry: &Self::Entry) -> Self::Key {
        entry.key
    }
    fn entry_bytes(entry: &Self::Entry) -> usize {
        entry.encoded_bytes()
    }
    fn encode_key(key: Self::Key, w: &mut Writer) {
        key.encode(w);
    }
    fn decode_key(r: &mut Reader<'_>) -> Result<Self::Key, FormatError> {
        crate::dead::DeadKey::decode(r)
    }
    fn encode_entry(entry: &Self::Entry, w: &mut Writer) {
        entry.encode(w);
    }
    fn decode_entry(r: &mut Reader<'_>) -> Result<Self::Entry, FormatError> {
        crate::dead::DeadEntry::decode(r)
    }
}
