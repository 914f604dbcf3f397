//! The inode: everything about one file, directory or symlink except its content.
//!
//! ```text
//! version u16  kind u8  flags u8
//! object u64  generation u64
//! mode u32  nlink u32  uid u32  gid u32
//! rdev u64
//! size u64  refer_bytes u64  count u64
//! atime mtime ctime crtime, each: seconds i64  nanoseconds u32
//! change u64  parent u64  line u64  origin u64  verifier u64  hash_seed u64
//! root: block pointer or 64 zero bytes
//! ```
//! `flags`: 1, [`Inode::damaged`], 2, [`Inode::cloned`]; others are refused. `count`: of a
//! directory its entries, of others [`Inode::saved_bytes`]. Times are those of POSIX. `line`: the
//! line of history that owns births above its floor. `verifier`: of an exclusive CREATE.
//!
//! Four fields mean something else in two kinds of inode. Of a tail that was cut off a file:
//!
//! - `origin`: the file it was cut from.
//! - `hash_seed`: the txg in which that happened (0 by earlier releases).
//! - `rdev`: the txg up to which births are not its own: the file, or a snapshot, shows them (see
//!   [`Inode::floor`]).
//!
//! Of a clone of a file, and its tails:
//!
//! - `line`: the txg of the snapshot that it began as ([`Inode::clone_floor`]).
//! - `hash_seed`, but not of a tail: what it still has of that ([`Inode::inherited`]).
//! - `rdev`, but not of a tail: what compression saves of that.
//!
//! The engine counts on from object, generation, count and change. They are below 2^63: decoding
//! refuses larger ones, and [`Inode::touch`] stays below, whatever a hostile disk holds.

use crate::block_pointer::{BLOCK_POINTER_BYTES, BlockPointer};
use crate::codec::{FormatError, Reader, Writer};
use crate::extent::PAGE_LIMIT;
use crate::space::Space;
use crate::types::{ObjectId, SEQUENCE_LIMIT, Txg};

const WHAT: &str = "inode";
const VERSION: u16 = 1;
/// Bytes of a file's content at most: its pages are below 2^48.
pub const FILE_BYTES_MAX: u64 = PAGE_LIMIT * 4096;
const FLAG_DAMAGED: u8 = 1;
const FLAG_CLONED: u8 = 2;
const NANOSECONDS: u32 = 1_000_000_000;
/// Encoded bytes of an inode.
pub const INODE_BYTES: usize = 4 + 16 + 16 + 8 + 24 + 4 * 12 + 6 * 8 + BLOCK_POINTER_BYTES;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Symbolic link; the target is its content.
    Symlink = 3,
    /// Block device node.
    Block = 4,
    /// Character device node.
    Character = 5,
    /// Named pipe.
    Fifo = 6,
    /// Socket.
    Socket = 7,
}

impl FileKind {
    /// The kind of this number.
    pub fn from_u8(value: u8) -> Result<Self, FormatError> {
        Ok(match value {
            1 => FileKind::Regular,
            2 => FileKind::Directory,
            3 => FileKind::Symlink,
            4 => FileKind::Block,
            5 => FileKind::Character,
            6 => FileKind::Fifo,
            7 => FileKind::Socket,
            other => return Err(FormatError::invalid("file kind", other)),
        })
    }
}

/// A point in time: seconds since 1970 and nanoseconds below 10^9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    /// Seconds.
    pub seconds: i64,
    /// Nanoseconds.
    pub nanoseconds: u32,
}

impl Time {
    /// From nanoseconds since 1970.
    pub fn from_ns(ns: u64) -> Time {
        let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
        let nanoseconds = u32::try_from(ns % 1_000_000_000).unwrap_or(0);
        Time { seconds, nanoseconds }
    }

    /// Nanoseconds since 1970; 0 before.
    pub fn since_1970_ns(self) -> u64 {
        let seconds = u64::try_from(self.seconds).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::from(self.nanoseconds))
    }

    pub(crate) fn encode(self, w: &mut Writer) {
        assert!(self.nanoseconds < NANOSECONDS, "a time that could not be read back: {self:?}");
        w.i64(self.seconds);
        w.u32(self.nanoseconds);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Time, FormatError> {
        let (seconds, nanoseconds) = (r.i64()?, r.u32()?);
        if nanoseconds >= NANOSECONDS {
            return Err(FormatError::invalid("time: nanoseconds", nanoseconds));
        }
        Ok(Time { seconds, nanoseconds })
    }
}

/// One inode. See the module's head for the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Its id.
    pub object: ObjectId,
    /// A random number, part of file handles. An id comes again only if a cut or a rewind took its
    /// file; the generation then tells the two files apart.
    pub generation: u64,
    /// The kind.
    pub kind: FileKind,
    /// A sync could not read a node of its tree to change it, and changes were lost. The object
    /// takes no writes, and shows no content, until a person clears this.
    pub damaged: bool,
    /// It began as a snapshot of another file, or is a tail of such a one.
    pub cloned: bool,
    /// Permission bits, 07777.
    pub mode: u32,
    /// Names; 0: to be freed.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a node: major << 32 | minor ([`Inode::device`]). Of a cut-off tail: see
    /// [`Inode::floor`]. Of a clone of a file: see [`Inode::inherited`].
    pub rdev: u64,
    /// Bytes of content.
    pub size: u64,
    /// Bytes of disk that its extents refer to.
    pub refer_bytes: u64,
    /// Bytes that compression saves of a file: the bytes of its extents before compression, less
    /// [`Inode::refer_bytes`]. 0 in a pool that does not count it.
    pub saved_bytes: u64,
    /// Entries of a directory.
    pub entries: u64,
    /// Last read (as far as kept).
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Birth.
    pub crtime: Time,
    /// Rises with every change, and never repeats for another content: see [`Inode::touch`].
    pub change: u64,
    /// The directory that holds a directory.
    pub parent: ObjectId,
    /// Line of history. Of a clone of a file: see [`Inode::clone_floor`].
    pub line: u64,
    /// Of a cut-off tail: the file it was cut from.
    pub origin: ObjectId,
    /// Verifier of the exclusive CREATE that made it.
    pub verifier: u64,
    /// Seed of a directory's name hash. Of a cut-off tail: the txg in which it was cut off. Of a
    /// clone of a file: see [`Inode::inherited`].
    pub hash_seed: u64,
    /// Root of extents or directory entries.
    pub root: Option<BlockPointer>,
}

impl Inode {
    /// Encoded bytes.
    pub fn encoded_bytes(&self) -> usize {
        INODE_BYTES
    }

    /// Notes a change: the change attribute rises, as far as its field goes. A client may have seen
    /// a change that a crash loses. So the attribute follows the clock: no number repeats for
    /// another content.
    pub fn touch(&mut self, now: Time) {
        self.ctime = now;
        self.change = next(self.change).max(now.since_1970_ns().min(SEQUENCE_LIMIT - 1));
    }

    /// Itself with these as the least change attribute and time of the last change.
    pub fn at_least(mut self, change: u64, ctime: Time) -> Inode {
        self.change = self.change.max(change);
        self.ctime = self.ctime.max(ctime);
        self
    }

    /// Itself as clients must see it who have seen `before`: changed since.
    pub fn shown_after(self, before: &Inode) -> Inode {
        self.at_least(next(before.change), before.ctime)
    }

    /// Whether it is what was cut off a file, or what its file was before a rollback: to be freed.
    pub fn is_tail(&self) -> bool {
        self.nlink == 0 && self.origin != ObjectId(0)
    }

    /// Of a tail: what was born up to there is not its own, and may be gone. It has one if its file
    /// was rolled back since it was cut off. Then its bytes count for nobody.
    pub fn floor(&self) -> Txg {
        Txg(if self.is_tail() { self.rdev } else { 0 })
    }

    /// Of a clone of a file, and its tails: what was born up to there belongs to the file that it
    /// was cloned from, whose snapshot of that txg shows it.
    pub fn clone_floor(&self) -> Txg {
        Txg(if self.cloned { self.line } else { 0 })
    }

    /// Returns the space that its extents take.
    pub fn refer(&self) -> Space {
        Space { bytes: self.refer_bytes, saved_bytes: self.saved_bytes }
    }

    /// Sets what [`Inode::refer`] says.
    pub fn set_refer(&mut self, refer: Space) {
        (self.refer_bytes, self.saved_bytes) = (refer.bytes, refer.saved_bytes);
    }

    /// Of a clone of a file: what those of its extents take, and those of its tails, that were born
    /// up to its [floor](Inode::clone_floor).
    pub fn inherited(&self) -> Space {
        match self.cloned && !self.is_tail() {
            true => Space { bytes: self.hash_seed, saved_bytes: self.rdev },
            false => Space::default(),
        }
    }

    /// Sets what [`Inode::inherited`] says of a clone of a file.
    pub fn set_inherited(&mut self, inherited: Space) {
        if self.cloned && !self.is_tail() {
            (self.hash_seed, self.rdev) = (inherited.bytes, inherited.saved_bytes);
        }
    }

    /// The device number of a node; 0 of others.
    pub fn device(&self) -> u64 {
        match self.kind {
            FileKind::Block | FileKind::Character => self.rdev,
            _ => 0,
        }
    }

    /// The seed of a directory's name hash; 0 of others.
    pub fn name_seed(&self) -> u64 {
        if self.kind == FileKind::Directory { self.hash_seed } else { 0 }
    }

    /// Counts one more entry in a directory.
    pub fn entry_added(&mut self) {
        self.entries = next(self.entries);
    }

    /// Counts one entry less in a directory.
    pub fn entry_removed(&mut self) {
        self.entries = self.entries.saturating_sub(1);
    }

    /// Appends the inode.
    pub fn encode(&self, w: &mut Writer) {
        let count = if self.kind == FileKind::Directory { self.entries } else { self.saved_bytes };
        let counters = [self.object.0, self.generation, count, self.change];
        let counts = counters.iter().all(|counter| *counter < SEQUENCE_LIMIT);
        let fits = counts && self.size <= FILE_BYTES_MAX;
        assert!(fits, "an inode that could not be read back: {self:?}");
        w.u16(VERSION);
        w.u8(self.kind as u8);
        let cloned = if self.cloned { FLAG_CLONED } else { 0 };
        w.u8(if self.damaged { FLAG_DAMAGED } else { 0 } | cloned);
        w.u64(self.object.0);
        w.u64(self.generation);
        w.u32(self.mode);
        w.u32(self.nlink);
        w.u32(self.uid);
        w.u32(self.gid);
        w.u64(self.rdev);
        w.u64(self.size);
        w.u64(self.refer_bytes);
        w.u64(count);
        self.atime.encode(w);
        self.mtime.encode(w);
        self.ctime.encode(w);
        self.crtime.encode(w);
        w.u64(self.change);
        w.u64(self.parent.0);
        w.u64(self.line);
        w.u64(self.origin.0);
        w.u64(self.verifier);
        w.u64(self.hash_seed);
        BlockPointer::encode_optional(self.root.as_ref(), w);
    }

    /// Reads an inode.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, FormatError> {
        let version = r.u16()?;
        if version != VERSION {
            return Err(FormatError::NewerVersion { what: WHAT, version: version.into() });
        }
        let kind = FileKind::from_u8(r.u8()?)?;
        let flags = r.u8()?;
        if flags & !(FLAG_DAMAGED | FLAG_CLONED) != 0 {
            return Err(FormatError::invalid("inode: flags", flags));
        }
        let mut inode = Inode {
            kind,
            damaged: flags & FLAG_DAMAGED != 0,
            cloned: flags & FLAG_CLONED != 0,
            object: ObjectId(r.sequence()?),
            generation: r.sequence()?,
            mode: r.u32()?,
            nlink: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            rdev: r.u64()?,
            size: r.u64()?,
            refer_bytes: r.u64()?,
            saved_bytes: 0,
            entries: r.sequence()?,
            atime: Time::decode(r)?,
            mtime: Time::decode(r)?,
            ctime: Time::decode(r)?,
            crtime: Time::decode(r)?,
            change: r.sequence()?,
            parent: ObjectId(r.u64()?),
            line: r.u64()?,
            origin: ObjectId(r.u64()?),
            verifier: r.u64()?,
            hash_seed: r.u64()?,
            root: BlockPointer::decode_optional(r)?,
        };
        if kind != FileKind::Directory {
            inode.saved_bytes = std::mem::take(&mut inode.entries);
        }
        if inode.size > FILE_BYTES_MAX {
            return Err(FormatError::invalid("inode: size", inode.size));
        }
        if inode.cloned && inode.kind != FileKind::Regular {
            return Err(FormatError::invalid("inode: kind of a clone", inode.kind as u8));
        }
        Ok(inode)
    }
}

/// A counter's next value; the largest one repeats.
fn next(counter: u64) -> u64 {
    counter.saturating_add(1).min(SEQUENCE_LIMIT - 1)
}
