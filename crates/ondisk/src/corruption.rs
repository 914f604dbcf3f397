//! Blocks that verify and do not fit together: rot that no checksum sees (a bug wrote it), or what
//! was found damaged before and is not read again.

use crate::types::{DatasetId, ObjectId};

/// Kind of data on disk that do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Corruption {
    /// Nodes that do not make a tree.
    #[error("{0}")]
    Tree(#[from] TreeError),
    /// An object that was found damaged.
    #[error("object {object} of dataset {dataset} is damaged")]
    Object {
        /// Its dataset.
        dataset: DatasetId,
        /// Its number.
        object: ObjectId,
    },
    /// A dataset whose object table was found damaged.
    #[error("the object table of dataset {0} is damaged")]
    ObjectTable(DatasetId),
    /// A dataset without a list of the objects that have no name.
    #[error("dataset {0} has no list of orphans")]
    NoOrphans(DatasetId),
    /// A page that a sync could not keep.
    #[error("object {object}: page {page} was lost")]
    PageLost {
        /// The object.
        object: ObjectId,
        /// Its page of 4 KiB.
        page: u64,
    },
    /// Extents of an object overlap or are not in order.
    #[error("extents overlap or are not in order at page {0}")]
    ExtentOrder(u64),
    /// An extent shows pages that it does not hold.
    #[error("an extent shows pages that it lacks")]
    ExtentPages,
    /// A tree of a kind that this version does not write.
    #[error("a tree of kind {0}, which this version does not know")]
    UnknownTree(u8),
    /// A symbolic link that says more than any may.
    #[error("symlink {object}: a target of {bytes} bytes")]
    SymlinkTarget {
        /// The link.
        object: ObjectId,
        /// Bytes of its target.
        bytes: u64,
    },
    /// A record of the intent log that is none of the files'.
    #[error("a record of the intent log has kind {0}")]
    RecordKind(u16),
    /// A record of the intent log names a dataset that is not there.
    #[error("a record of the intent log names dataset {0}, which is not there")]
    RecordDataset(DatasetId),
    /// A record of the intent log names an object that is not there.
    #[error("a record of the intent log names object {0}, which is not there")]
    RecordObject(ObjectId),
    /// A slot of space bitmaps lies nowhere.
    #[error("a slot of space bitmaps has no place")]
    BitmapPlace,
    /// A history of the pool that does not say where it goes on.
    #[error("the history has no counters")]
    HistoryCounters,
    /// A table of answered calls with more entries than it may have.
    #[error("the table of answered calls has too many entries")]
    RepliesTooMany,
}

/// Nodes that each decode, but do not make a tree together; or entries that no tree can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// A root higher than any tree may be, or a tree about to grow beyond that.
    #[error("tree: a root of level {level} is too high")]
    TooDeep {
        /// The level found or needed.
        level: u8,
    },
    /// A child is not exactly one level below its parent.
    #[error("tree: a node of level {parent} points at one of level {child}")]
    ChildLevel {
        /// Level of the node that points.
        parent: u8,
        /// Level that its pointer claims.
        child: u8,
    },
    /// An inner node without children.
    #[error("tree: a node of level {level} has no child")]
    MissingChild {
        /// Its level.
        level: u8,
    },
    /// A node holds keys outside the range that its parent gives it.
    #[error("tree: a node of level {level} holds keys outside its range")]
    KeyRange {
        /// Its level.
        level: u8,
    },
    /// Entries that must stay together do not fit one node.
    #[error("tree: {bytes} bytes of inseparable entries")]
    Inseparable {
        /// Bytes that they take.
        bytes: usize,
    },
}
