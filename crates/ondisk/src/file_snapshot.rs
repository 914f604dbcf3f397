//! Snapshots of single files.
//!
//! ```text
//! item of a dataset, class 16, number = txg << 16 | index: a file snapshot
//!   version u16  flags u16  guid u64  created i64+u32  name string  path string
//!   inode (see [`crate::inode`])
//! item of a dataset, class 17, the same number: what a destroyed one alone showed is freed
//!   version u16  flags u16 (0)  object u64  left u64
//! item of a dataset, class 20, the same number: the file was rolled back to the snapshot
//!   version u16  flags u16  object u64  txg u64
//! ```
//!
//! `txg` is the one that took it, `index` tells the snapshots of several files in one txg apart.
//! `path` is that of the file in its dataset when it was asked for, as it is shown: the file may
//! have another one by now, or none. The inode is a copy of that in the object table of the txg.
//!
//! `flags` of a snapshot, by bytes: of the first one, 1 is [`FileSnapshotRecord::settled`], 2
//! [`FileSnapshotRecord::hidden`] and 4 [`FileSnapshotRecord::gathers`]; the low four bits of the
//! second one are the number of the cadence whose schedule took it ([`crate::keeping::Cadence`]),
//! 0 for none. `flags` of a rollback: 1, [`FileRollbackRecord::pending`]. Others mean nothing, nor
//! do other numbers of a cadence: nothing prunes what they mark.

use crate::codec::FormatError;
use crate::dataset::{SNAPSHOT_NAME_BYTES_MAX, begin, begin_with, open, open_with_flags};
use crate::inode::{FileKind, INODE_BYTES, Inode, Time};
use crate::keeping::{CADENCES, Cadence};
use crate::types::{Guid, ObjectId, Txg};

/// Longest path in a record, bytes: the record must fit an item.
pub const FILE_PATH_BYTES_MAX: usize = 640;
const _: () = assert!(
    24 + 2 + SNAPSHOT_NAME_BYTES_MAX + 2 + FILE_PATH_BYTES_MAX + INODE_BYTES
        <= crate::dataset::ITEM_VALUE_BYTES_MAX
);
/// Files of one dataset that one txg can take snapshots of.
pub const FILES_OF_A_TXG_MAX: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 16;
const FLAG_SETTLED: u16 = 1;
const FLAG_HIDDEN: u16 = 2;
const FLAG_GATHERS: u16 = 4;
/// Where the number of the cadence stands.
const SCHEDULE_BITS: u16 = 0x0f00;
const SCHEDULE_SHIFT: u32 = 8;
const FLAG_PENDING: u16 = 1;
const _: () = assert!((Cadence::Yearly as u16) << SCHEDULE_SHIFT <= SCHEDULE_BITS);
const _: () = assert!(Txg::LIMIT <= 1 << (56 - INDEX_BITS));

/// The number of a file snapshot: by the txg that took it, and its index in that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileSnapshotId(pub u64);

impl FileSnapshotId {
    /// That of the snapshot `index` of a txg.
    pub fn new(txg: Txg, index: u16) -> FileSnapshotId {
        FileSnapshotId(txg.0 << INDEX_BITS | u64::from(index))
    }

    /// Which of its txg it is.
    pub fn index(self) -> u16 {
        u16::try_from(self.0 & ((1 << INDEX_BITS) - 1)).unwrap_or(u16::MAX)
    }

    /// The txg that took it.
    pub fn txg(self) -> Txg {
        Txg(self.0 >> INDEX_BITS)
    }
}

/// A snapshot of a file, taken last in its txg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSnapshotRecord {
    /// Its identity.
    pub guid: Guid,
    /// When it was taken.
    pub created: Time,
    /// Its name, behind the `@`.
    pub name: String,
    /// The path of the file then, in its dataset.
    pub path: String,
    /// The file as it was.
    pub inode: Inode,
    /// No tail of the file waited to be freed. So all that dies in the file's group of buckets and
    /// that a snapshot of this txg shows, this one shows; and the inode's sum of bytes is that of
    /// the tree. Earlier releases do not say so.
    pub settled: bool,
    /// Nobody may see it: it was destroyed, or derived from a snapshot of the dataset. It stays
    /// for a clone, or while a walk is under way since its file was rolled back to it.
    pub hidden: bool,
    /// It was derived from a snapshot of the dataset, and the file's dead blocks that it shows may
    /// stand in group 0 of the dead tree still.
    pub gathers: bool,
    /// The schedule that took it, and prunes it.
    pub schedule: Option<Cadence>,
}

impl FileSnapshotRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let fits =
            self.name.len() <= SNAPSHOT_NAME_BYTES_MAX && self.path.len() <= FILE_PATH_BYTES_MAX;
        assert!(fits, "a file snapshot that could not be read back: {self:?}");
        let settled = if self.settled { FLAG_SETTLED } else { 0 };
        let hidden = if self.hidden { FLAG_HIDDEN } else { 0 };
        let gathers = if self.gathers { FLAG_GATHERS } else { 0 };
        let schedule = self.schedule.map_or(0, |cadence| u16::from(cadence as u8));
        let mut w = begin_with(settled | hidden | gathers | schedule << SCHEDULE_SHIFT);
        w.u64(self.guid.0);
        self.created.encode(&mut w);
        w.string(self.name.as_bytes());
        w.string(self.path.as_bytes());
        self.inode.encode(&mut w);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let (mut r, flags) = open_with_flags(value, "file snapshot record")?;
        let schedule = (flags & SCHEDULE_BITS) >> SCHEDULE_SHIFT;
        let is_it = |cadence: &Cadence| u16::from(*cadence as u8) == schedule;
        let record = FileSnapshotRecord {
            guid: Guid(r.u64()?),
            created: Time::decode(&mut r)?,
            name: r.text(SNAPSHOT_NAME_BYTES_MAX)?,
            path: r.text(FILE_PATH_BYTES_MAX)?,
            inode: Inode::decode(&mut r)?,
            settled: flags & FLAG_SETTLED != 0,
            hidden: flags & FLAG_HIDDEN != 0,
            gathers: flags & FLAG_GATHERS != 0,
            schedule: CADENCES.into_iter().find(is_it),
        };
        if record.inode.kind != FileKind::Regular {
            let kind = record.inode.kind as u8;
            return Err(FormatError::invalid("file snapshot record: kind of file", kind));
        }
        check_object(record.inode.object)?;
        Ok(record)
    }
}

/// Record of a sweep: blocks that a destroyed snapshot of a file alone showed, to be freed in the
/// background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSweepRecord {
    /// The file.
    pub object: ObjectId,
    /// The txg in which the snapshot left the list.
    pub left: Txg,
}

impl FileSweepRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.object.0);
        w.u64(self.left.0);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = open(value, "file sweep record")?;
        let record = FileSweepRecord { object: ObjectId(r.u64()?), left: r.txg()? };
        check_object(record.object)?;
        Ok(record)
    }
}

/// A file was rolled back to a snapshot of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRollbackRecord {
    /// The file.
    pub object: ObjectId,
    /// The txg whose act it was.
    pub txg: Txg,
    /// The dead tree still names blocks that the file refers to again. Else a walk is under way
    /// that may have passed the file before.
    pub pending: bool,
}

impl FileRollbackRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin_with(if self.pending { FLAG_PENDING } else { 0 });
        w.u64(self.object.0);
        w.u64(self.txg.0);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let (mut r, flags) = open_with_flags(value, "file rollback record")?;
        let pending = flags & FLAG_PENDING != 0;
        let record = FileRollbackRecord { object: ObjectId(r.u64()?), txg: r.txg()?, pending };
        check_object(record.object)?;
        Ok(record)
    }
}

/// Group 0 of a dead tree is that of dataset snapshots.
fn check_object(object: ObjectId) -> Result<(), FormatError> {
    match object.0 {
        0 => Err(FormatError::invalid("file snapshot: object", 0u64)),
        _ => Ok(()),
    }
}
