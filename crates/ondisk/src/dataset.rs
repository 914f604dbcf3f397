//! The pool's namespace: datasets and their properties, as items of one tree.
//!
//! ```text
//! item key: dataset u64  item u64 = class << 56 | number; ordered by dataset, then item
//!   dataset 0, class 0   counters: next dataset id u64
//!   class 0   the dataset's record
//!   class 1   a property; number = property, value = text
//!   class 2   a snapshot; number = its txg
//!   class 3   a line of history; number = line id
//!   class 4   the record of a destroyed dataset that is being emptied, in the place of class 0
//!   dataset 0, class 5   what is damaged (see [`crate::damage`]); number = slot
//!   dataset 0, class 6   the newest scrub (see [`crate::scrub`]); number = 0
//!   class 7   a sweep: what a destroyed snapshot alone showed is freed; number = its txg
//!   class 8   the newest rollback; number = 0
//!   class 10  why a snapshot stays or goes (see [`crate::keeping`]); number = its txg
//!   dataset 0, class 11  the hold clock; number = 0
//!   class 12  which dataset lists a snapshot, if not this one; number = its txg
//!   class 13  the record of a hidden line, in the place of class 0
//!   class 14  what a clone has of its origin; number = txg of a snapshot of it, 0 for the head
//!   dataset 0, class 15  see [`crate::free_work`]; number = the low 56 bits of a disk's guid
//!   class 16  a snapshot of a file (see [`crate::file_snapshot`]); number = txg << 16 | index
//!   class 17  what such a one alone showed is freed; the same number
//!   dataset 0, class 19  see [`crate::open_work`]; number = the low 56 bits of a disk's guid
//!   class 20  a file was rolled back to such a one; the number of that one
//!   class 21  a clone of a file (see [`crate::file_clone`]); number = its object id
//!   class 22  what is being received into the head (see [`crate::receiving`]); number = 0
//!   class 23  how far a stream has come that may go on (see [`crate::resume`]); number = 0
//!   class 24  a bookmark (see [`crate::bookmark`]); number = the txg of its snapshot
//!   class 25  a piece of a property that a user made up (see [`crate::user_property`])
//!   class 26  a line of a file (see [`crate::file_clone`])
//!   class 27  a clone of a file of another dataset; number = its object id
//!   class 28  a line that the head began (see [`crate::head_line`]); number = the txg of that
//!   class 29  where what an old head had belongs (see [`crate::head_line`]); number = 0
//!   class 30  why a snapshot of a file stays, a keep record; the number of that one
//!   class 31  how much of the head snapshots show (see [`crate::covered`])
//! entry: key 16 bytes, value string (u16 length)
//!
//! dataset record:
//!   version u16  flags u16  fs_guid u64  parent u64  created i64+u32
//!   next_object u64  next_generation u64  next_snapshot u64  refer_bytes u64
//!   line u64  floor u64  origin u64
//!   objects: block pointer  dead: block pointer  name string
//!   saved_bytes u64, if flags has 1
//! line record: version u16  pad u16  fork u64  origin_dataset u64  origin_snapshot u64  floor u64
//! snapshot record:
//!   version u16  flags u16  guid u64  created i64+u32  refer_bytes u64  line u64
//!   objects: block pointer  name string
//!   saved_bytes u64, if flags has 1
//! sweep record: version u16  flags u16 (0)  left u64
//! rollback record:
//!   version u16  flags u16 (0)  txg u64  to u64  change u64  ctime i64+u32  pending u8 (0 or 1)
//! lister record: version u16  flags u16 (0)  dataset u64 (0: none, the snapshot is hidden)
//! inherited record: version u16  flags u16  bytes u64  saved_bytes u64, if flags has 1
//! ```
//! A hidden line is what a destroyed dataset leaves while others list or need its snapshots: its
//! snapshots, sweeps and dead tree, and a head that is its newest snapshot.
//! `next_object` never goes back: ids are never reused, not even after a rollback.

use crate::block_pointer::BlockPointer;
use crate::codec::{FormatError, Reader, Writer};
use crate::inode::Time;
use crate::space::Space;
use crate::tree_node::ENTRY_BYTES_MAX;
use crate::types::{DatasetId, Guid, Txg};

pub use crate::item_class::ItemClass;

const VERSION: u16 = 1;
/// Longest value of an item, bytes.
pub const ITEM_VALUE_BYTES_MAX: usize = 1200;
const _: () = assert!(18 + ITEM_VALUE_BYTES_MAX <= ENTRY_BYTES_MAX);
/// The number of the property `standby`: `on` if a dataset is not in service, and may have the guid
/// of another one.
pub const PROPERTY_STANDBY: u64 = 14;
/// Longest name of one dataset (one component), bytes.
pub const DATASET_NAME_BYTES_MAX: usize = 255;

/// Orders the items of the namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey {
    /// The dataset.
    pub dataset: DatasetId,
    /// Class and number.
    pub item: u64,
}

impl ItemKey {
    /// The key of item `number` (below 2^56) of a class.
    pub fn new(dataset: DatasetId, class: ItemClass, number: u64) -> ItemKey {
        debug_assert!(number < 1 << 56);
        ItemKey { dataset, item: u64::from(class as u8) << 56 | number }
    }

    /// The class number, as [`ItemClass`] or another tree of items defines it; and the number.
    pub fn class_and_number(self) -> (u8, u64) {
        let [class, ..] = self.item.to_be_bytes();
        (class, self.item & ((1 << 56) - 1))
    }

    pub(crate) fn encode(self, w: &mut Writer) {
        w.u64(self.dataset.0);
        w.u64(self.item);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(ItemKey { dataset: DatasetId(r.u64()?), item: r.u64()? })
    }
}

/// One item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its key.
    pub key: ItemKey,
    /// Its bytes, by class.
    pub value: Vec<u8>,
}

impl Item {
    /// Encoded bytes.
    pub fn encoded_bytes(&self) -> usize {
        18 + self.value.len()
    }
    /// Appends the item.
    pub fn encode(&self, w: &mut Writer) {
        let fits = self.value.len() <= ITEM_VALUE_BYTES_MAX;
        assert!(fits, "a value of {} bytes could not be read back", self.value.len());
        self.key.encode(w);
        w.string(&self.value);
    }
    /// Reads an item.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Item { key: ItemKey::decode(r)?, value: r.string(ITEM_VALUE_BYTES_MAX)? })
    }
}

/// Begins a record of the namespace: version, and no flags.
pub(crate) fn begin() -> Writer {
    begin_with(0)
}

/// Begins a record of the namespace: version, and these flags.
pub(crate) fn begin_with(flags: u16) -> Writer {
    let mut w = Writer::new();
    w.u16(VERSION);
    w.u16(flags);
    w
}

/// Opens a record of the namespace, behind version and flags.
pub(crate) fn open<'a>(value: &'a [u8], what: &'static str) -> Result<Reader<'a>, FormatError> {
    open_with_flags(value, what).map(|(r, _)| r)
}

/// Opens a record of the namespace, behind version and flags, and returns the flags too.
pub(crate) fn open_with_flags<'a>(
    value: &'a [u8],
    what: &'static str,
) -> Result<(Reader<'a>, u16), FormatError> {
    let mut r = Reader::new(value, what);
    let version = r.u16()?;
    if version != VERSION {
        return Err(FormatError::NewerVersion { what, version: version.into() });
    }
    let flags = r.u16()?;
    Ok((r, flags))
}

/// Flag of a record: it ends with what compression saves.
const FLAG_SAVED: u16 = 1;

/// A record that says 0 is as it was before anything was counted.
fn flags_of(saved_bytes: u64) -> u16 {
    if saved_bytes > 0 { FLAG_SAVED } else { 0 }
}

fn encode_saved(saved_bytes: u64, w: &mut Writer) {
    if saved_bytes > 0 {
        w.u64(saved_bytes);
    }
}

fn decode_saved(flags: u16, r: &mut Reader<'_>) -> Result<u64, FormatError> {
    if flags & FLAG_SAVED == 0 { Ok(0) } else { r.u64() }
}

/// A dataset's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetRecord {
    /// Identity in file handles; travels with send.
    pub fs_guid: Guid,
    /// The dataset above, 0 for the pool's root dataset.
    pub parent: DatasetId,
    /// When it was made.
    pub created: Time,
    /// Next object id.
    pub next_object: u64,
    /// For earlier releases, which counted generations. It has no meaning now.
    pub next_generation: u64,
    /// Next snapshot id.
    pub next_snapshot: u64,
    /// Bytes its objects refer to.
    pub refer_bytes: u64,
    /// Bytes that compression saves of them: see [`crate::inode::Inode::saved_bytes`].
    pub saved_bytes: u64,
    /// Its line of history.
    pub line: u64,
    /// Births at or below belong to its origin.
    pub floor: Txg,
    /// For a clone: the snapshot it came from.
    pub origin: u64,
    /// Root of the object table.
    pub objects: Option<BlockPointer>,
    /// Root of the dead tree.
    pub dead: Option<BlockPointer>,
    /// Last component of its name.
    pub name: String,
}

impl DatasetRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let fits = self.name.len() <= DATASET_NAME_BYTES_MAX;
        assert!(fits, "a name of {} bytes could not be read back", self.name.len());
        let mut w = begin_with(flags_of(self.saved_bytes));
        w.u64(self.fs_guid.0);
        w.u64(self.parent.0);
        self.created.encode(&mut w);
        w.u64(self.next_object);
        w.u64(self.next_generation);
        w.u64(self.next_snapshot);
        w.u64(self.refer_bytes);
        w.u64(self.line);
        w.u64(self.floor.0);
        w.u64(self.origin);
        BlockPointer::encode_optional(self.objects.as_ref(), &mut w);
        BlockPointer::encode_optional(self.dead.as_ref(), &mut w);
        w.string(self.name.as_bytes());
        encode_saved(self.saved_bytes, &mut w);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let (mut r, flags) = open_with_flags(value, "dataset record")?;
        let record = DatasetRecord {
            fs_guid: Guid(r.u64()?),
            parent: DatasetId(r.u64()?),
            created: Time::decode(&mut r)?,
            next_object: r.sequence()?,
            next_generation: r.sequence()?,
            next_snapshot: r.sequence()?,
            refer_bytes: r.u64()?,
            saved_bytes: 0,
            line: r.u64()?,
            floor: r.txg()?,
            origin: r.u64()?,
            objects: BlockPointer::decode_optional(&mut r)?,
            dead: BlockPointer::decode_optional(&mut r)?,
            name: r.text(DATASET_NAME_BYTES_MAX)?,
        };
        Ok(DatasetRecord { saved_bytes: decode_saved(flags, &mut r)?, ..record })
    }
}

/// A line of history: owns births above its floor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRecord {
    /// Txg in which it began.
    pub fork: Txg,
    /// Dataset of the snapshot it began from, 0 for none.
    pub origin_dataset: DatasetId,
    /// That snapshot, pinned while the line lives.
    pub origin_snapshot: u64,
    /// The origin's txg.
    pub floor: Txg,
}

impl LineRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.fork.0);
        w.u64(self.origin_dataset.0);
        w.u64(self.origin_snapshot);
        w.u64(self.floor.0);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = open(value, "line record")?;
        Ok(LineRecord {
            fork: r.txg()?,
            origin_dataset: DatasetId(r.u64()?),
            origin_snapshot: r.u64()?,
            floor: r.txg()?,
        })
    }
}

/// Longest name of a snapshot (what stands behind the `@`), bytes.
pub const SNAPSHOT_NAME_BYTES_MAX: usize = 255;

/// A snapshot of a dataset, taken last in the txg that is its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Its identity: in file handles, and for send.
    pub guid: Guid,
    /// When it was taken.
    pub created: Time,
    /// Bytes that its objects refer to.
    pub refer_bytes: u64,
    /// Bytes that compression saves of them. A bookmark does not keep this number.
    pub saved_bytes: u64,
    /// The dataset's line of history then.
    pub line: u64,
    /// Root of the object table.
    pub objects: Option<BlockPointer>,
    /// Its name, without the dataset's.
    pub name: String,
}

impl SnapshotRecord {
    /// Returns the space that its objects refer to.
    pub fn refer(&self) -> Space {
        Space { bytes: self.refer_bytes, saved_bytes: self.saved_bytes }
    }

    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin_with(flags_of(self.saved_bytes));
        self.encode_fields(&mut w);
        encode_saved(self.saved_bytes, &mut w);
        w.into_bytes()
    }

    /// Writes the fields that follow the version.
    pub(crate) fn encode_fields(&self, w: &mut Writer) {
        let fits = self.name.len() <= SNAPSHOT_NAME_BYTES_MAX;
        assert!(fits, "a name of {} bytes could not be read back", self.name.len());
        w.u64(self.guid.0);
        self.created.encode(w);
        w.u64(self.refer_bytes);
        w.u64(self.line);
        BlockPointer::encode_optional(self.objects.as_ref(), w);
        w.string(self.name.as_bytes());
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let (mut r, flags) = open_with_flags(value, "snapshot record")?;
        let record = SnapshotRecord::decode_fields(&mut r)?;
        Ok(SnapshotRecord { saved_bytes: decode_saved(flags, &mut r)?, ..record })
    }

    /// Reads what follows the version.
    pub(crate) fn decode_fields(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(SnapshotRecord {
            guid: Guid(r.u64()?),
            created: Time::decode(r)?,
            refer_bytes: r.u64()?,
            saved_bytes: 0,
            line: r.u64()?,
            objects: BlockPointer::decode_optional(r)?,
            name: r.text(SNAPSHOT_NAME_BYTES_MAX)?,
        })
    }
}

/// Record of a sweep: blocks that a destroyed snapshot alone showed, to be freed in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepRecord {
    /// The txg in which the snapshot left the list.
    pub left: Txg,
}

impl SweepRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.left.0);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = open(value, "sweep record")?;
        Ok(SweepRecord { left: r.txg()? })
    }
}

/// Which dataset lists a snapshot, if not the one on whose line it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListerRecord {
    /// The dataset; `None`: it was destroyed, and stays while a line begins with it.
    pub dataset: Option<DatasetId>,
}

impl ListerRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.dataset.map_or(0, |dataset| dataset.0));
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = open(value, "lister record")?;
        let dataset = DatasetId(r.u64()?);
        Ok(ListerRecord { dataset: (dataset.0 != 0).then_some(dataset) })
    }
}

/// How much a clone, or a snapshot of it, refers to that its origin owns. It is part of
/// `refer_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InheritedRecord(pub Space);

impl InheritedRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let Space { bytes, saved_bytes } = self.0;
        let mut w = begin_with(flags_of(saved_bytes));
        w.u64(bytes);
        encode_saved(saved_bytes, &mut w);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let (mut r, flags) = open_with_flags(value, "inherited record")?;
        let bytes = r.u64()?;
        Ok(InheritedRecord(Space { bytes, saved_bytes: decode_saved(flags, &mut r)? }))
    }
}

/// The newest rollback of a dataset to one of its snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollbackRecord {
    /// The txg whose act it was.
    pub txg: Txg,
    /// The txg of the snapshot.
    pub to: Txg,
    /// Objects show this change attribute at least: clients must see that they changed.
    pub change: u64,
    /// And this time of the last change.
    pub ctime: Time,
    /// The dead tree still names blocks that the head refers to again.
    pub pending: bool,
}

impl RollbackRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.txg.0);
        w.u64(self.to.0);
        w.u64(self.change);
        self.ctime.encode(&mut w);
        w.u8(self.pending.into());
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = open(value, "rollback record")?;
        Ok(RollbackRecord {
            txg: r.txg()?,
            to: r.txg()?,
            change: r.sequence()?,
            ctime: Time::decode(&mut r)?,
            pending: match r.u8()? {
                0 => false,
                1 => true,
                other => return Err(FormatError::invalid("rollback record: pending", other)),
            },
        })
    }
}
