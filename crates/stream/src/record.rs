//! Records, and the bytes of each.

use aquifer_ondisk::dirent::{DIRENT_BYTES_MAX, Dirent};
use aquifer_ondisk::inode::{Inode, Time};
use aquifer_ondisk::resume::StreamPlace;
use aquifer_ondisk::types::SEQUENCE_LIMIT;
use aquifer_ondisk::{FormatError, Guid, ObjectId, Reader, Writer};
use bytes::Bytes;

/// The version that is written.
pub const STREAM_VERSION: u32 = 1;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// The kind of a [`Record::Data`].
pub(crate) const DATA_KIND: u8 = 4;
/// Bytes of its payload before the pages.
pub(crate) const DATA_HEAD_BYTES: usize = 16;
/// Pages of a [`Record::Data`] at most.
pub const DATA_PAGES_MAX: u64 = 256;
/// Pages of a [`Record::Hole`] at most.
pub const HOLE_PAGES_MAX: u64 = 4096;
/// Entries of a [`Record::Entries`] at most.
pub const ENTRIES_MAX: usize = 256;
/// Keys of a [`Record::Drops`] at most.
pub const KEYS_MAX: usize = 4096;
/// Properties at most.
pub const PROPERTIES_MAX: usize = 256;
/// Longest name of a dataset, a snapshot or a property, bytes.
const NAME_BYTES_MAX: usize = 4096;
/// Longest value of a property, bytes.
const VALUE_BYTES_MAX: usize = 8192;
/// Pages of a file at most.
const PAGE_LIMIT: u64 = aquifer_ondisk::extent::PAGE_LIMIT;
/// Bytes of a record's payload at most.
pub const RECORD_BYTES_MAX: usize = 20 + 256 * PAGE_BYTES;
const _: () = assert!(16 + DATA_PAGES_MAX * PAGE_BYTES as u64 <= RECORD_BYTES_MAX as u64, "fits");
const _: () = assert!(ENTRIES_MAX * DIRENT_BYTES_MAX + 10 <= RECORD_BYTES_MAX, "entries fit");
const _: () = assert!(KEYS_MAX * 8 + 10 <= RECORD_BYTES_MAX, "keys fit");

pub(crate) const MAGIC: [u8; 8] = *b"AQSTREAM";
const WHAT: &str = "stream";
/// Only what changed since another snapshot.
const FLAG_FROM: u32 = 1;
/// It goes on where another one broke off.
const FLAG_START: u32 = 2;

/// A snapshot in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// Its guid.
    pub guid: Guid,
    /// When it was taken.
    pub created: Time,
    /// Its name, behind the '@'.
    pub name: String,
}

/// Description of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// The file system guid of the dataset, which handles of files name.
    pub fs_guid: Guid,
    /// The first object id that is free in it.
    pub next_object: u64,
    /// The full name that it had.
    pub dataset: String,
    /// The snapshot that the receiver must have; `None`: all is in the stream.
    pub from: Option<Point>,
    /// The snapshot that the receiver has then.
    pub to: Point,
    /// The stream goes on there: what comes before was in an earlier one, which broke off. Of an
    /// object that came in part, the attributes come once more.
    pub start: Option<StreamPlace>,
    /// Properties that are set on the dataset itself, by their names.
    pub properties: Vec<(String, String)>,
}

/// Numbers of what came, by kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Objects that are new or changed.
    pub objects: u64,
    /// Objects that are gone.
    pub removed: u64,
    /// Pages of content.
    pub pages: u64,
    /// Pages that became holes.
    pub hole_pages: u64,
    /// Names that are new or changed.
    pub entries: u64,
    /// Names that are gone.
    pub drops: u64,
}

impl Counts {
    /// Adds those of another stream.
    pub fn add(&mut self, other: &Counts) {
        let Counts { objects, removed, pages, hole_pages, entries, drops } = self;
        let mine = [objects, removed, pages, hole_pages, entries, drops];
        let Counts { objects, removed, pages, hole_pages, entries, drops } = *other;
        let theirs = [objects, removed, pages, hole_pages, entries, drops];
        for (mine, theirs) in mine.into_iter().zip(theirs) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

/// The end of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// Numbers of what came.
    pub counts: Counts,
    /// The checksum of the record before, and so of all.
    pub digest: u128,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The first.
    Begin(Begin),
    /// An object that is new or changed: its attributes.
    Object(Box<Inode>),
    /// An object that is gone.
    Remove {
        /// Its id.
        object: ObjectId,
        /// Its generation.
        generation: u64,
    },
    /// Pages of the newest object.
    Data {
        /// The object.
        object: ObjectId,
        /// The first page.
        page: u64,
        /// Whole pages.
        content: Bytes,
    },
    /// Pages of the newest object that became a hole.
    Hole {
        /// The object.
        object: ObjectId,
        /// The first page.
        page: u64,
        /// How many.
        pages: u64,
    },
    /// Names in the newest object that are new or changed.
    Entries {
        /// The directory.
        object: ObjectId,
        /// The entries.
        entries: Vec<Dirent>,
    },
    /// Names in the newest object that are gone, by their keys.
    Drops {
        /// The directory.
        object: ObjectId,
        /// The keys.
        keys: Vec<u64>,
    },
    /// The last.
    End(End),
}

impl Record {
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Record::Begin(_) => 1,
            Record::Object(_) => 2,
            Record::Remove { .. } => 3,
            Record::Data { .. } => DATA_KIND,
            Record::Hole { .. } => 5,
            Record::Entries { .. } => 6,
            Record::Drops { .. } => 7,
            Record::End(_) => 8,
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        match self {
            Record::Begin(begin) => begin.encode(w),
            Record::Object(inode) => travelling(inode).encode(w),
            Record::Remove { object, generation } => {
                w.u64(object.0);
                w.u64(*generation);
            }
            Record::Data { object, page, content } => {
                w.u64(object.0);
                w.u64(*page);
                w.put(content);
            }
            Record::Hole { object, page, pages } => {
                w.u64(object.0);
                w.u64(*page);
                w.u64(*pages);
            }
            Record::Entries { object, entries } => {
                w.u64(object.0);
                w.count(entries.len());
                entries.iter().for_each(|entry| entry.encode(w));
            }
            Record::Drops { object, keys } => {
                w.u64(object.0);
                w.count(keys.len());
                keys.iter().for_each(|key| w.u64(*key));
            }
            Record::End(End { counts, digest }) => {
                let Counts { objects, removed, pages, hole_pages, entries, drops } = *counts;
                [objects, removed, pages, hole_pages, entries, drops]
                    .into_iter()
                    .for_each(|count| w.u64(count));
                w.u128(*digest);
            }
        }
    }

    pub(crate) fn decode(kind: u8, payload: &Bytes) -> Result<Record, FormatError> {
        let mut r = Reader::new(payload, WHAT);
        let record = match kind {
            1 => Record::Begin(Begin::decode(&mut r)?),
            2 => Record::Object(Box::new(travelled(Inode::decode(&mut r)?)?)),
            3 => Record::Remove { object: object(&mut r)?, generation: r.sequence()? },
            DATA_KIND => {
                let (object, page) = (object(&mut r)?, r.u64()?);
                let content = payload.slice_ref(r.take(r.rest().len())?);
                let pages = (content.len() / PAGE_BYTES) as u64;
                if !content.len().is_multiple_of(PAGE_BYTES) || pages == 0 {
                    return Err(FormatError::invalid("data: bytes", content.len() as u64));
                }
                check_pages(page, pages, DATA_PAGES_MAX)?;
                Record::Data { object, page, content }
            }
            5 => {
                let (object, page, pages) = (object(&mut r)?, r.u64()?, r.u64()?);
                check_pages(page, pages, HOLE_PAGES_MAX)?;
                Record::Hole { object, page, pages }
            }
            6 => {
                let object = object(&mut r)?;
                let count = count(&mut r, ENTRIES_MAX)?;
                let entries = (0..count).map(|_| Dirent::decode(&mut r));
                Record::Entries { object, entries: entries.collect::<Result<_, _>>()? }
            }
            7 => {
                let object = object(&mut r)?;
                let count = count(&mut r, KEYS_MAX)?;
                let keys = (0..count).map(|_| r.u64());
                Record::Drops { object, keys: keys.collect::<Result<_, _>>()? }
            }
            8 => {
                let counts = Counts {
                    objects: r.u64()?,
                    removed: r.u64()?,
                    pages: r.u64()?,
                    hole_pages: r.u64()?,
                    entries: r.u64()?,
                    drops: r.u64()?,
                };
                Record::End(End { counts, digest: r.u128()? })
            }
            other => return Err(FormatError::invalid("kind of record", other)),
        };
        match r.rest() {
            [] => Ok(record),
            rest => Err(FormatError::invalid("bytes behind a record", rest.len() as u64)),
        }
    }
}

impl Begin {
    fn encode(&self, w: &mut Writer) {
        w.put(&MAGIC);
        w.u32(STREAM_VERSION);
        let from = if self.from.is_some() { FLAG_FROM } else { 0 };
        w.u32(from | if self.start.is_some() { FLAG_START } else { 0 });
        w.u64(self.fs_guid.0);
        w.u64(self.next_object);
        w.string(self.dataset.as_bytes());
        if let Some(from) = &self.from {
            from.encode(w);
        }
        self.to.encode(w);
        if let Some(start) = self.start {
            w.u64(start.object.0);
            w.u8(start.within.is_some().into());
            w.u64(start.within.unwrap_or(0));
        }
        w.count(self.properties.len());
        for (name, value) in &self.properties {
            w.string(name.as_bytes());
            w.string(value.as_bytes());
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Begin, FormatError> {
        r.magic(MAGIC)?;
        r.version(STREAM_VERSION)?;
        let flags = r.u32()?;
        if flags & !(FLAG_FROM | FLAG_START) != 0 {
            return Err(FormatError::invalid("flags of a stream", flags));
        }
        let (fs_guid, next_object) = (Guid(r.u64()?), r.sequence()?);
        let dataset = r.text(NAME_BYTES_MAX)?;
        let from = (flags & FLAG_FROM != 0).then(|| Point::decode(r)).transpose()?;
        let to = Point::decode(r)?;
        let start = (flags & FLAG_START != 0).then(|| start(r)).transpose()?;
        let count = match r.u32()? {
            count if usize::try_from(count).is_ok_and(|count| count <= PROPERTIES_MAX) => count,
            count => return Err(FormatError::invalid("properties of a stream", count)),
        };
        let property = |_| Ok((r.text(NAME_BYTES_MAX)?, r.text(VALUE_BYTES_MAX)?));
        let properties = (0..count).map(property).collect::<Result<_, FormatError>>()?;
        if fs_guid.0 == 0 {
            return Err(FormatError::invalid("guid of a file system", 0u64));
        }
        Ok(Begin { fs_guid, next_object, dataset, from, to, start, properties })
    }
}

impl Point {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.guid.0);
        w.i64(self.created.seconds);
        w.u32(self.created.nanoseconds);
        w.string(self.name.as_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Point, FormatError> {
        let guid = Guid(r.u64()?);
        let created = Time { seconds: r.i64()?, nanoseconds: r.u32()? };
        if guid.0 == 0 || created.nanoseconds >= 1_000_000_000 {
            return Err(FormatError::invalid("snapshot of a stream", guid.0));
        }
        Ok(Point { guid, created, name: r.text(NAME_BYTES_MAX)? })
    }
}

/// An inode without what means something in its own pool only.
fn travelling(inode: &Inode) -> Inode {
    Inode {
        damaged: false,
        cloned: false,
        refer_bytes: 0,
        saved_bytes: 0,
        line: 1,
        hash_seed: inode.name_seed(),
        rdev: inode.device(),
        origin: ObjectId(0),
        root: None,
        ..inode.clone()
    }
}

fn travelled(inode: Inode) -> Result<Inode, FormatError> {
    match inode == travelling(&inode) {
        true => Ok(inode),
        false => Err(FormatError::invalid("inode that names blocks", inode.object.0)),
    }
}

fn start(r: &mut Reader<'_>) -> Result<StreamPlace, FormatError> {
    let (object, is_within, within) = (object(r)?, r.u8()?, r.u64()?);
    match (is_within, within) {
        (0, 0) => Ok(StreamPlace { object, within: None }),
        (1, _) => Ok(StreamPlace { object, within: Some(within) }),
        _ => Err(FormatError::invalid("place at which a stream goes on", within)),
    }
}

fn object(r: &mut Reader<'_>) -> Result<ObjectId, FormatError> {
    Ok(ObjectId(r.sequence()?))
}

fn count(r: &mut Reader<'_>, most: usize) -> Result<usize, FormatError> {
    let count = r.u32()?;
    match usize::try_from(count) {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(FormatError::invalid("count in a record", count)),
    }
}

fn check_pages(page: u64, pages: u64, most: u64) -> Result<(), FormatError> {
    let fits = (1..=most).contains(&pages);
    match fits && page.checked_add(pages).is_some_and(|end| end <= PAGE_LIMIT) {
        true => Ok(()),
        false => Err(FormatError::invalid("pages of a record", page)),
    }
}

/// Whether an object id may stand in a stream: the root directory, and what clients make.
pub(crate) fn may_travel(object: ObjectId) -> bool {
    let (root, first) =
        (aquifer_ondisk::types::ROOT_DIRECTORY, aquifer_ondisk::types::FIRST_OBJECT);
    object == root || (object >= first && object.0 < SEQUENCE_LIMIT - 1)
}
