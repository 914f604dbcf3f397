//! Calls and answers, and the door through which they go.

use std::future::Future;

use aquifer_files::{Attributes, FileHandle, FsError, Stability};

use crate::content::Cell;

/// Names an object for ever: its owner.
pub type Tag = u32;
/// The root directory's.
pub const ROOT: Tag = 0;

/// An object that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Its tag.
    pub tag: Tag,
    /// Its handle at the server.
    pub handle: FileHandle,
}

/// A place for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub directory: Node,
    /// The name.
    pub name: String,
}

/// Cells to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cells {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The number to write.
    pub cell: Cell,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A regular file; guarded.
    Create(Place, Tag),
    /// A directory.
    Mkdir(Place, Tag),
    /// A symlink whose text is its tag.
    Symlink(Place, Tag),
    /// REMOVE.
    Remove(Place),
    /// RMDIR.
    Rmdir(Place),
    /// RENAME.
    Rename(Place, Place),
    /// LINK.
    Link(Node, Place),
    /// SETATTR of size or mode.
    Set {
        /// The file.
        file: Node,
        /// The new size.
        size: Option<u64>,
        /// The new mode.
        mode: Option<u32>,
    },
    /// WRITE; several are received together and coalesced into one change.
    Write {
        /// The file.
        file: Node,
        /// Cells that are written, in this order.
        cells: Vec<Cells>,
        /// How stable.
        stability: Stability,
    },
    /// COMMIT of a range of bytes (0: to the end).
    Commit {
        /// The file.
        file: Node,
        /// First byte.
        offset: u64,
        /// Bytes.
        count: u32,
    },
    /// READ.
    Read {
        /// The file.
        file: Node,
        /// First cell.
        first: u64,
        /// Cells.
        count: u64,
    },
    /// GETATTR.
    Getattr(Node),
    /// READLINK.
    Readlink(Node),
    /// LOOKUP.
    Lookup(Place),
    /// READDIRPLUS, from the first entry to the last, this many entries in each call.
    List(Node, usize),
}

impl Op {
    /// The objects that it names by their handles.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        let (one, other) = match self {
            Op::Create(at, _)
            | Op::Mkdir(at, _)
            | Op::Symlink(at, _)
            | Op::Remove(at)
            | Op::Rmdir(at)
            | Op::Lookup(at) => (&at.directory, None),
            Op::Rename(from, to) => (&from.directory, Some(&to.directory)),
            Op::Link(node, at) => (node, Some(&at.directory)),
            Op::Set { file, .. }
            | Op::Write { file, .. }
            | Op::Commit { file, .. }
            | Op::Read { file, .. } => (file, None),
            Op::Getattr(node) | Op::Readlink(node) | Op::List(node, _) => (node, None),
        };
        [one].into_iter().chain(other)
    }

    /// Whether it changes something when it succeeds.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Op::Commit { .. }
                | Op::Read { .. }
                | Op::Getattr(_)
                | Op::Readlink(_)
                | Op::Lookup(_)
                | Op::List(..)
        )
    }
}

/// The answer to a success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A change: attributes of what was made or changed, and ctime of all whose ctime it set.
    Changed {
        /// Nanoseconds.
        ctime_ns: u64,
        /// Of the object that was made, written or set.
        attributes: Option<Attributes>,
        /// How stable a write is.
        stability: Stability,
        /// A write's verifier.
        verifier: u64,
    },
    /// A change that was made. This answer came to a repeated call after the first answer was lost,
    /// so the time of the change is unknown.
    Done {
        /// Not later than this, in nanoseconds.
        until_ns: u64,
        /// It was made at one of these, if they are known.
        moments_ns: Vec<u64>,
        /// Of the object that was made, as it is now.
        attributes: Option<Attributes>,
    },
    /// COMMIT, with its verifier: it covers the writes that have the same.
    Committed(u64),
    /// A change that had nothing to do: RENAME of one name of a file over another.
    Nothing,
    /// READ: bytes, and whether they reach the end.
    Read(Vec<u8>, bool),
    /// GETATTR and LOOKUP.
    Attributes(Attributes),
    /// READLINK.
    Text(Vec<u8>),
    /// Names with attributes; `.` and `..` left out.
    Listed(Vec<Named>),
}

/// A name in a listing, with attributes if they were told.
pub type Named = (String, Option<Attributes>);

/// Where a listing goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Position {
    /// Of the last entry; 0 at the beginning.
    pub cookie: u64,
    /// The directory's verifier, from the server.
    pub verifier: [u8; 8],
}

/// A part of a listing.
#[derive(Debug)]
pub struct Listed {
    /// Names with attributes; `.` and `..` left out.
    pub entries: Vec<Named>,
    /// Where it goes on.
    pub next: Position,
    /// Whether that is the end.
    pub eof: bool,
}

/// The way to the server.
pub trait Door {
    /// Carries out a call. `number` is the witness's number, if the call was noted there. Sends it
    /// before it waits for anything.
    fn call(&self, op: &Op, number: Option<usize>) -> impl Future<Output = Result<Reply, FsError>>;

    /// About this many entries of a directory.
    fn list_from(
        &self,
        directory: &Node,
        from: Position,
        limit: usize,
    ) -> impl Future<Output = Result<Listed, FsError>>;

    /// Makes a txg close soon, or does whatever else should happen now and then.
    fn nudge(&self);

    /// Lets time pass.
    fn pause(&self, microseconds: u64) -> impl Future<Output = ()>;
}
