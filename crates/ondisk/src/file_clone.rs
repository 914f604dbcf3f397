//! Clones of single files, and lines of files.
//!
//! ```text
//! item of a dataset, class 21, number = object id of the clone
//!   version u16  flags u16 (0)  snapshot u64  forked u64  died u64
//! item of a dataset, class 26, number = forked << 16 | index: a file began again as a snapshot
//!   version u16  flags u16 (0)  object u64  snapshot u64  forked u64  died u64
//! item of a dataset, class 27, number = object id of the clone, whose origin is in another dataset
//!   version u16  flags u16 (0)  dataset u64  snapshot u64  forked u64  died u64
//! ```
//! The record pins the snapshot of a file with which the clone began (see
//! [`crate::file_snapshot`]; the clone's floor is its txg). It lives as long as anything shows the
//! clone: the head, or a snapshot from `forked` on and before `died`. So it may be there when the
//! clone is not. Its inode says how the clone's blocks are judged (see [`crate::inode`]).
//!
//! A file that was rolled back past later snapshots is on a line of its own from then on: it is a
//! clone of a snapshot of itself. It may have had other lines before, which snapshots show: hence
//! a number for each. `index` tells those of one txg apart.

use crate::codec::{FormatError, Reader, Writer};
use crate::dataset::{begin, open};
use crate::file_snapshot::FileSnapshotId;
use crate::types::{DatasetId, ObjectId, Txg};

/// Ids of clones are below this: they are numbers of items.
pub const CLONE_ID_LIMIT: u64 = 1 << 56;

/// Snapshot as which a clone of a file began, and the time in which the clone was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileCloneRecord {
    /// The snapshot.
    pub snapshot: FileSnapshotId,
    /// The txg that made the clone.
    pub forked: Txg,
    /// The txg in which the head had nothing of it any more; `None`: it has.
    pub died: Option<Txg>,
}

impl FileCloneRecord {
    /// Returns the clone's floor: blocks that were born up to there are not the clone's.
    pub fn floor(&self) -> Txg {
        self.snapshot.txg()
    }

    /// Whether a snapshot of that txg may show the clone.
    pub fn may_be_shown(&self, snapshot: Txg) -> bool {
        self.forked <= snapshot && self.died.is_none_or(|died| snapshot < died)
    }

    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        self.encode_fields(&mut w);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        FileCloneRecord::decode_fields(&mut open(value, "file clone record")?)
    }

    fn encode_fields(&self, w: &mut Writer) {
        w.u64(self.snapshot.0);
        w.u64(self.forked.0);
        w.u64(self.died.unwrap_or_default().0);
    }

    fn decode_fields(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let snapshot = FileSnapshotId(r.u64()?);
        let (forked, died) = (r.txg()?, r.txg()?);
        let record = FileCloneRecord { snapshot, forked, died: Some(died).filter(|of| of.0 > 0) };
        if forked <= snapshot.txg() {
            return Err(FormatError::invalid("file clone record: forked", forked.0));
        }
        if record.died.is_some_and(|died| died <= forked) {
            return Err(FormatError::invalid("file clone record: died", died.0));
        }
        Ok(record)
    }
}

/// Snapshot as which a file began again, when it was rolled back past later snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLineRecord {
    /// The file.
    pub object: ObjectId,
    /// As that of a clone.
    pub of: FileCloneRecord,
}

impl FileLineRecord {
    /// The number of the item of the line `index` of a txg.
    pub fn number(forked: Txg, index: u16) -> u64 {
        FileSnapshotId::new(forked, index).0
    }

    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.object.0);
        self.of.encode_fields(&mut w);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = open(value, "file line record")?;
        let object = ObjectId(r.sequence()?);
        if object == ObjectId(0) {
            return Err(FormatError::invalid("file line record: object", object.0));
        }
        Ok(FileLineRecord { object, of: FileCloneRecord::decode_fields(&mut r)? })
    }
}

/// Snapshot, in another dataset, as which a clone of a file began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileCloneAcrossRecord {
    /// The dataset of the snapshot.
    pub dataset: DatasetId,
    /// As that of any clone.
    pub of: FileCloneRecord,
}

impl FileCloneAcrossRecord {
    /// The item's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = begin();
        w.u64(self.dataset.0);
        self.of.encode_fields(&mut w);
        w.into_bytes()
    }

    /// Reads an item's value.
    pub fn decode(value: &[u8]) -> Result<Self, FormatError> {
        let mut r = open(value, "file clone record")?;
        let dataset = DatasetId(r.sequence()?);
        if dataset == DatasetId(0) {
            return Err(FormatError::invalid("file clone record: dataset", dataset.0));
        }
        Ok(FileCloneAcrossRecord { dataset, of: FileCloneRecord::decode_fields(&mut r)? })
    }
}
