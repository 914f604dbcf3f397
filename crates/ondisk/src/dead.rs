//! Dead entries: blocks that no head refers to but a snapshot still shows.
//!
//! ```text
//! key:  group u64  hi u64  lo u64  object u64  txg u64  index u32
//! sums: key (object, txg and index 0)  count u16 (0)  sectors u64  blocks u64
//!   or, where compression saved any: count u16 (65535)  sectors u64  blocks u64  saved_sectors u64
//! list: key  count u16 (1 to 80), each block: place u64  birth u40  sectors u16  kind u8
//! ```
//! `hi` is the newest snapshot of the group's list when the blocks died (or the txg of a rollback
//! that was bringing blocks back then), `lo` the newest one before their birth, 0 for none. `group`
//! is the object if a snapshot of that file lies in the life of a block, else 0. Nodes that no
//! snapshot shows, but bookmarks need, are in group 2^63 - 2: there, `hi` is the newest bookmark
//! when they died, and `lo` is 0. All blocks with one group, hi and lo are a *bucket*. Its first
//! entry holds its sums; those of the whole tree stand at (0, 0, 0). A list names the blocks of one
//! object that died in one txg. The object of what was cut off a file is the file, and the index is
//! 2^31 at least. (Earlier releases have the id of what was cut off there, which does not say of
//! which file it was. A pool that never did names the feature `tails-by-file`.)
//!
//! Kinds: 1 an extent's sectors, 2 a tree node (one place of it). The upper four bits of an
//! extent's say how many sectors compression saved of it.

use crate::codec::{FormatError, Reader, Writer, check_run};
use crate::extent::COMPRESSED_PAGES_MAX;
use crate::space::Space;
use crate::types::{ObjectId, Place, Run, SEGMENT_SECTORS, Txg};

/// Blocks in a list at most.
pub const DEAD_BLOCKS_MAX: usize = 80;

/// Indices of lists of what was cut off a file begin here.
const TAIL_INDEX: u32 = 1 << 31;

/// Sectors that compression saves of an extent at most: of eight pages it leaves one.
const SAVED_MAX: u8 = 7;
const _: () = assert!(SAVED_MAX as u64 + 1 == COMPRESSED_PAGES_MAX);

/// The kind of a dead block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum DeadKind {
    /// An extent's sectors.
    Extent = 1,
    /// A tree node.
    Node = 2,
}

/// The blocks that the same snapshots show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Bucket {
    /// Object, or 0.
    pub group: u64,
    /// The newest snapshot when they died.
    pub hi: Txg,
    /// The newest snapshot before they were born, 0 for none.
    pub lo: Txg,
}

impl Bucket {
    /// That of the whole tree, which holds sums only.
    pub const ALL: Bucket = Bucket { group: 0, hi: Txg(0), lo: Txg(0) };
    /// The group of nodes that bookmarks alone need: behind those of all objects.
    pub const OF_BOOKMARKS: u64 = (1 << 63) - 2;

    /// That of nodes whose newest bookmark is this one. Which older ones need a node too, its birth
    /// says: a bookmark may come to a list as an older one.
    pub fn of_bookmark(newest: Txg) -> Bucket {
        Bucket { group: Bucket::OF_BOOKMARKS, hi: newest, lo: Txg(0) }
    }

    /// The key of its sums: its first.
    pub fn sums(self) -> DeadKey {
        DeadKey { bucket: self, ..DeadKey::MIN }
    }

    /// The first key behind it.
    pub fn end(self) -> DeadKey {
        Bucket { lo: self.lo.next(), ..self }.sums()
    }
}

/// Orders dead entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct DeadKey {
    /// The bucket.
    pub bucket: Bucket,
    /// The object whose blocks they were, or the file that they were cut off; 0 for those of the
    /// object table.
    pub object: ObjectId,
    /// When they died, 0 for sums.
    pub txg: Txg,
    /// Number of the list in its txg.
    pub index: u32,
}

impl DeadKey {
    /// Encoded bytes.
    pub const BYTES: usize = 44;
    /// The least key: that of the tree's sums.
    pub const MIN: DeadKey =
        DeadKey { bucket: Bucket::ALL, object: ObjectId(0), txg: Txg(0), index: 0 };

    /// The first key of lists of an object, or of what was cut off it, that died in one txg.
    pub fn first(bucket: Bucket, (object, cut_off): (ObjectId, bool), txg: Txg) -> DeadKey {
        DeadKey { bucket, object, txg, index: if cut_off { TAIL_INDEX } else { 0 } }
    }

    /// Whether the blocks were cut off the object before they died.
    pub fn is_cut_off(&self) -> bool {
        self.index >= TAIL_INDEX
    }

    /// The first key behind all lists of that kind.
    pub fn end_of_kind(self) -> DeadKey {
        match self.is_cut_off() {
            true => DeadKey { txg: self.txg.next(), index: 0, ..self },
            false => DeadKey { index: TAIL_INDEX, ..self },
        }
    }

    pub(crate) fn encode(self, w: &mut Writer) {
        let Bucket { group, hi, lo } = self.bucket;
        [group, hi.0, lo.0, self.object.0, self.txg.0].into_iter().for_each(|word| w.u64(word));
        w.u32(self.index);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let bucket = Bucket { group: r.u64()?, hi: r.txg()?, lo: r.txg()? };
        Ok(DeadKey { bucket, object: ObjectId(r.u64()?), txg: r.txg()?, index: r.u32()? })
    }
}

/// One dead block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadBlock {
    /// Its kind.
    pub kind: DeadKind,
    /// Where it lies: at most a segment.
    pub run: Run,
    /// Its birth.
    pub birth: Txg,
    /// Sectors that compression saved of an extent.
    pub saved_sectors: u8,
}

/// Sums over blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeadSums {
    /// Their sectors.
    pub sectors: u64,
    /// Sectors that compression saved of them.
    pub saved_sectors: u64,
    /// Their number.
    pub blocks: u64,
}

impl DeadSums {
    /// Returns the space that they take.
    pub fn space(&self) -> Space {
        Space::of_sectors(self.sectors, self.saved_sectors)
    }

    /// One block more.
    pub fn add(&mut self, block: &DeadBlock) {
        let saved_sectors = block.saved_sectors.into();
        self.plus(&DeadSums { sectors: block.run.sectors, saved_sectors, blocks: 1 });
    }

    /// One block less.
    pub fn remove(&mut self, block: &DeadBlock) {
        let saved_sectors = block.saved_sectors.into();
        self.minus(&DeadSums { sectors: block.run.sectors, saved_sectors, blocks: 1 });
    }

    /// More blocks.
    pub fn plus(&mut self, more: &DeadSums) {
        self.sectors = self.sectors.saturating_add(more.sectors);
        self.saved_sectors = self.saved_sectors.saturating_add(more.saved_sectors);
        self.blocks = self.blocks.saturating_add(more.blocks);
    }

    /// Less blocks.
    pub fn minus(&mut self, less: &DeadSums) {
        self.sectors = self.sectors.saturating_sub(less.sectors);
        self.saved_sectors = self.saved_sectors.saturating_sub(less.saved_sectors);
        self.blocks = self.blocks.saturating_sub(less.blocks);
    }
}

/// Value at a key of the dead tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadBody {
    /// Sums of a bucket or of the tree.
    Sums(DeadSums),
    /// Blocks, at most [`DEAD_BLOCKS_MAX`].
    Blocks(Vec<DeadBlock>),
}

/// An entry of a dead tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadEntry {
    /// Its key.
    pub key: DeadKey,
    /// Its content.
    pub body: DeadBody,
}

impl DeadEntry {
    /// Encoded bytes of the shortest entry: one with a single block or with sums.
    pub const BYTES_MIN: usize = DeadKey::BYTES + 2 + Self::BLOCK_BYTES;
    /// Encoded bytes of the longest entry.
    pub const BYTES_MAX: usize = DeadKey::BYTES + 2 + DEAD_BLOCKS_MAX * Self::BLOCK_BYTES;
    /// Encoded bytes of a block, or of sums.
    const BLOCK_BYTES: usize = 16;
    /// Encoded bytes of sums over blocks of which compression saved any.
    const SAVING_SUMS_BYTES: usize = 24;
    /// The count that says so.
    const SAVING_SUMS: u16 = u16::MAX;

    /// Encoded bytes.
    pub fn encoded_bytes(&self) -> usize {
        let bytes = match &self.body {
            DeadBody::Sums(DeadSums { saved_sectors: 0, .. }) => Self::BLOCK_BYTES,
            DeadBody::Sums(_) => Self::SAVING_SUMS_BYTES,
            DeadBody::Blocks(blocks) => blocks.len() * Self::BLOCK_BYTES,
        };
        DeadKey::BYTES + 2 + bytes
    }

    /// Appends the entry.
    pub fn encode(&self, w: &mut Writer) {
        self.key.encode(w);
        match &self.body {
            DeadBody::Sums(DeadSums { sectors, saved_sectors, blocks }) => {
                let saves = *saved_sectors > 0;
                w.u16(if saves { Self::SAVING_SUMS } else { 0 });
                w.u64(*sectors);
                w.u64(*blocks);
                if saves {
                    w.u64(*saved_sectors);
                }
            }
            DeadBody::Blocks(blocks) => {
                let count = u16::try_from(blocks.len()).unwrap_or(u16::MAX);
                let fits = (1..=DEAD_BLOCKS_MAX).contains(&blocks.len());
                assert!(fits, "a list of {count} blocks could not be read back");
                w.u16(count);
                blocks.iter().for_each(|block| block.encode(w));
            }
        }
    }

    /// Reads an entry.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let key = DeadKey::decode(r)?;
        let count = r.u16()?;
        let Bucket { hi, lo, .. } = key.bucket;
        let is_sums = matches!(count, 0 | Self::SAVING_SUMS);
        if is_sums != (key == key.bucket.sums()) || !is_sums && usize::from(count) > DEAD_BLOCKS_MAX
        {
            return Err(FormatError::invalid("dead entry: count", count));
        }
        if lo >= hi && key.bucket != Bucket::ALL {
            return Err(FormatError::invalid("dead entry: newest snapshot before birth", lo.0));
        }
        if is_sums {
            let mut sums = DeadSums { sectors: r.u64()?, saved_sectors: 0, blocks: r.u64()? };
            if count == Self::SAVING_SUMS {
                sums.saved_sectors = r.u64()?;
            }
            return Ok(DeadEntry { key, body: DeadBody::Sums(sums) });
        }
        if key.txg < hi {
            return Err(FormatError::invalid("dead entry: txg of death", key.txg.0));
        }
        let mut blocks = Vec::with_capacity(count.into());
        for _ in 0..count {
            let block = DeadBlock::decode(r)?;
            if block.birth <= lo || block.birth > hi {
                return Err(FormatError::invalid("dead entry: birth", block.birth.0));
            }
            blocks.push(block);
        }
        Ok(DeadEntry { key, body: DeadBody::Blocks(blocks) })
    }

    /// Skips an entry and returns its key. Its blocks are not looked at.
    pub fn skip(r: &mut Reader<'_>) -> Result<DeadKey, FormatError> {
        let key = DeadKey::decode(r)?;
        let bytes = match r.u16()? {
            Self::SAVING_SUMS => Self::SAVING_SUMS_BYTES,
            blocks => usize::from(blocks).max(1) * Self::BLOCK_BYTES,
        };
        r.take(bytes)?;
        Ok(key)
    }
}

impl DeadBlock {
    fn encode(&self, w: &mut Writer) {
        assert!(self.birth.0 < Txg::LIMIT, "born in {}, which could not be read back", self.birth);
        let sectors = u16::try_from(self.run.sectors).unwrap_or(u16::MAX);
        assert_eq!(u64::from(sectors), self.run.sectors, "a block lies in one segment");
        w.u64(self.run.place.0);
        w.u40(self.birth.0);
        w.u16(sectors);
        assert!(self.saved_sectors <= SAVED_MAX, "more than an extent has");
        w.u8(self.kind as u8 | self.saved_sectors << 4);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let place = Place(r.u64()?);
        let birth = Txg(r.u40()?);
        let sectors = u64::from(r.u16()?);
        let kind = r.u8()?;
        let saved_sectors = kind >> 4;
        let kind = match (kind & 15, saved_sectors) {
            (1, ..=SAVED_MAX) => DeadKind::Extent,
            (2, 0) => DeadKind::Node,
            (other, _) => return Err(FormatError::invalid("dead entry: kind", other)),
        };
        if sectors == 0 || sectors > SEGMENT_SECTORS {
            return Err(FormatError::invalid("dead entry: sectors", sectors));
        }
        check_run(place, sectors)?;
        Ok(DeadBlock { kind, run: Run::new(place, sectors), birth, saved_sectors })
    }
}

const _: () = assert!(DeadEntry::BYTES_MAX <= crate::tree_node::ENTRY_BYTES_MAX);
