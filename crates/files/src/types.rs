//! The types of this layer: handles, attributes, credentials, and the results of changes.

use std::net::IpAddr;
use std::ops::Range;

use aquifer_blockio::{Page, SECTOR_BYTES};
use aquifer_dataset::ROOT_DIRECTORY;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::codec::checksum64;
use aquifer_ondisk::types::SNAPSHOT_DIRECTORY;
use aquifer_ondisk::unstored::Unstored;
use aquifer_sync::OnceLock;

use crate::snapdir;

pub use aquifer_dataset::history;
pub use aquifer_dataset::replies::{Answer, Begun, REPLY_AGE_MAX, Replies, Running};
pub use aquifer_ondisk::Guid;
pub use aquifer_ondisk::inode::{FileKind, Time};
pub use aquifer_ondisk::reply::{CallId, ReplyEntry};

/// Names a file for its life, across restart, rollback and replication: 24 bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// The dataset's file system guid; it travels with send.
    pub fs_guid: Guid,
    /// The object in that file system; also the fileid.
    pub object: ObjectId,
    /// The object's generation.
    pub generation: u64,
}

impl FileHandle {
    /// The file system that it shows to clients: each snapshot is one, of a dataset or of a file.
    pub fn fsid(&self) -> u64 {
        match Unstored::of(self.object) {
            Some(Unstored::FileSnapshot(_)) => self.generation,
            _ => self.fs_guid.0,
        }
    }

    /// The file that is acted on, if this is its `control` in `.aquifer`.
    pub fn controlled(&self) -> Option<FileHandle> {
        match Unstored::of(self.object)? {
            Unstored::Control(object) => Some(FileHandle { object, ..*self }),
            _ => None,
        }
    }

    /// The file's number there. A client may have several file systems in one mount, as Linux has
    /// for all but directories: no number there is that of another file.
    pub fn fileid(&self) -> u64 {
        match Unstored::of(self.object) {
            Some(Unstored::AsOf(_)) => checksum64(&self.encode()) | 1 << 63,
            _ => self.object.0,
        }
    }

    /// Bytes of an encoded handle.
    pub const BYTES: usize = 24;

    /// The wire form: three little-endian u64.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let words = [self.fs_guid.0, self.object.0, self.generation];
        for (to, from) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&from.to_le_bytes());
        }
        bytes
    }

    /// Reads a wire form; `None` if it cannot be one of our handles.
    pub fn decode(bytes: &[u8]) -> Option<FileHandle> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        let [guid, object, generation] = words else {
            return None;
        };
        let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        Some(FileHandle {
            fs_guid: Guid(word(guid)),
            object: ObjectId(word(object)),
            generation: word(generation),
        })
    }

    /// The handle that the answer to a call in the file system `fs_guid` gave out. A snapshot that
    /// the call took is a file system of its own.
    pub fn given(fs_guid: Guid, entry: &ReplyEntry) -> FileHandle {
        match entry.object {
            SNAPSHOT_DIRECTORY => snapdir::handle(Guid(entry.generation), ROOT_DIRECTORY),
            object => FileHandle { fs_guid, object, generation: entry.generation },
        }
    }
}

/// The caller's identity, and the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// The call, if it must not run twice: its effect is recorded under this name. See [`Replies`].
    pub call: Option<CallId>,
    /// The caller's address, if it may take and destroy snapshots as the superuser.
    pub snapcontrol: Option<IpAddr>,
}

impl Credentials {
    /// The superuser.
    pub fn root() -> Self {
        Credentials { uid: 0, gid: 0, groups: Vec::new(), call: None, snapcontrol: None }
    }

    /// Whether a file of group `gid` counts this caller as a member.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Attributes of a file, as POSIX has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The file.
    pub handle: FileHandle,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits, 07777.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Bytes on disk, including data that is not synced yet.
    pub used: u64,
    /// Device number: (major, minor).
    pub rdev: (u32, u32),
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Birth.
    pub crtime: Time,
    /// Rises with every change. No other content ever has the same number, not even after a crash.
    pub change: u64,
}

/// The attributes that weak cache consistency needs from before a change: size, mtime, ctime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// Bytes of content.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

/// Attributes of an object around a change, read together with the change. Either may be unknown
/// when the change failed early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Around {
    /// Just before.
    pub before: Option<Before>,
    /// Just after (or the present ones, if nothing changed).
    pub after: Option<Attributes>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// The server's time.
    Now,
    /// This one.
    To(Time),
}

/// Attributes to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends with a hole.
    pub size: Option<u64>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

impl SetAttributes {
    /// Whether the times are valid: nanoseconds below 10^9. No other time can be stored.
    pub fn is_valid(&self) -> bool {
        let valid = |time: SetTime| match time {
            SetTime::To(time) => time.nanoseconds < 1_000_000_000,
            SetTime::Keep | SetTime::Now => true,
        };
        valid(self.atime) && valid(self.mtime)
    }
}

/// How a CREATE treats an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateHow {
    /// An existing regular file is opened, and its attributes (size) set.
    Unchecked(SetAttributes),
    /// It must not exist.
    Guarded(SetAttributes),
    /// It must not exist, unless this very call made it (same verifier): a retransmission.
    Exclusive(u64),
}

/// The kinds of node that MKNOD makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// Block device (major, minor).
    Block(u32, u32),
    /// Character device (major, minor).
    Character(u32, u32),
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// How durable a WRITE must be when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// In memory: the client sends a COMMIT later.
    Unstable,
    /// The data is durable, with the metadata needed to read it.
    DataSync,
    /// Data and all metadata are durable.
    FileSync,
}

/// An entry that a directory listing shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Listing continues after this. 1 is `.`, 2 is `..`; others are stored with the entry and
    /// survive changes and restarts.
    pub cookie: u64,
    /// The name.
    pub name: Vec<u8>,
    /// The object, with its generation.
    pub handle: FileHandle,
    /// Its kind.
    pub kind: FileKind,
    /// Its attributes, if the caller asked for them, may see them, and they can be read.
    pub attributes: Option<Attributes>,
}

/// Space of a file system, for FSSTAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsSpace {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes that can be written now.
    pub available_bytes: u64,
    /// Objects that could exist.
    pub total_files: u64,
    /// Objects that can still be made.
    pub free_files: u64,
}

impl FsSpace {
    /// No space at all.
    pub(crate) const NONE: FsSpace = FsSpace {
        total_bytes: 0,
        free_bytes: 0,
        available_bytes: 0,
        total_files: 0,
        free_files: 0,
    };
}

/// Access that a caller asks about or is granted (ACCESS), in NFSv3's bits.
pub mod access {
    /// Read data or list a directory.
    pub const READ: u32 = 1;
    /// Look up a name.
    pub const LOOKUP: u32 = 2;
    /// Rewrite existing data.
    pub const MODIFY: u32 = 4;
    /// Add data or entries.
    pub const EXTEND: u32 = 8;
    /// Remove entries.
    pub const DELETE: u32 = 16;
    /// Execute a file.
    pub const EXECUTE: u32 = 32;
}

/// Content that a READ returns.
#[derive(Debug, Clone)]
pub struct ReadData {
    /// The pages with the content, in order; `None` means zeros.
    pub(crate) pages: Vec<Option<Page>>,
    /// The offset of the content in the first page.
    pub(crate) skip: usize,
    /// Bytes in all.
    pub count: usize,
    /// Whether the content reaches the end of the file.
    pub eof: bool,
    /// The file.
    pub attributes: Attributes,
}

impl ReadData {
    /// Pieces in order: a page, and the range of its bytes that belongs to the content.
    pub fn into_pieces(self) -> impl ExactSizeIterator<Item = (Page, Range<usize>)> {
        let (skip, end) = (self.skip, self.skip + self.count);
        self.pages.into_iter().enumerate().map(move |(at, page)| {
            let begin = at * SECTOR_BYTES;
            let range = skip.saturating_sub(begin)..end.saturating_sub(begin).min(SECTOR_BYTES);
            (page.unwrap_or_else(zero_page), range)
        })
    }
}

/// The page that stands for a hole.
pub(crate) fn zero_page() -> Page {
    static ZERO: OnceLock<Page> = OnceLock::new();
    ZERO.get_or_init(Page::zeroed).clone()
}
