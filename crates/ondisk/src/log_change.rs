//! The body of a log record of kind 1: the changes of an operation to objects.
//!
//! ```text
//! changes u16, each: what u8, then
//!   1 inode    inode (its root means nothing)
//!   2 entry    directory u64, directory entry
//!   3 drop     directory u64, key u64
//!   4 cut      object u64, page u64
//!   5 pages    object u64, count u16, each: page u48, source u8
//!              (0 zeros, 1 the record's next payload page, 2 the record's next extent)
//!   6 reply    entry of the reply table: the call that this record carries out
//! ```
//! The numbers never get another meaning. Nothing follows the last change.

use crate::codec::{FormatError, Reader, Writer};
use crate::dirent::Dirent;
use crate::inode::Inode;
use crate::reply::ReplyEntry;
use crate::types::ObjectId;

const WHAT: &str = "log record";
/// The kind of the records whose bodies these are.
pub const RECORD_KIND: u16 = 1;

/// Where a page's content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PageSource {
    /// Nowhere: it is zeros.
    Zeros = 0,
    /// The record's next payload page.
    Payload = 1,
    /// The record's next extent.
    Extent = 2,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogChange {
    /// An object's attributes from now on; makes the object if there is none.
    Inode(Inode),
    /// A name in a directory.
    Entry(ObjectId, Dirent),
    /// A removed name.
    Drop(ObjectId, u64),
    /// Pages from here on are gone.
    Cut(ObjectId, u64),
    /// Pages written.
    Pages(ObjectId, Vec<(u64, PageSource)>),
    /// The call that made these changes, and its answer.
    Reply(ReplyEntry),
}

/// The body of these changes. There may be at most 65,535 changes, and as many pages in each.
///
/// # Errors
/// More of them, or a page beyond the largest file.
pub fn encode(changes: &[LogChange]) -> Result<Vec<u8>, FormatError> {
    let mut w = Writer::with_capacity(512);
    count(&mut w, changes.len())?;
    for change in changes {
        match change {
            LogChange::Inode(inode) => {
                w.u8(1);
                inode.encode(&mut w);
            }
            LogChange::Entry(directory, entry) => {
                w.u8(2);
                w.u64(directory.0);
                entry.encode(&mut w);
            }
            LogChange::Drop(directory, key) => {
                w.u8(3);
                w.u64(directory.0);
                w.u64(*key);
            }
            LogChange::Cut(object, page) => {
                w.u8(4);
                w.u64(object.0);
                w.u64(*page);
            }
            LogChange::Pages(object, pages) => {
                w.u8(5);
                w.u64(object.0);
                count(&mut w, pages.len())?;
                for (page, source) in pages {
                    if *page >= crate::extent::PAGE_LIMIT {
                        return Err(FormatError::invalid("log record: page", *page));
                    }
                    w.u48(*page);
                    w.u8(*source as u8);
                }
            }
            LogChange::Reply(entry) => {
                w.u8(6);
                entry.encode(&mut w);
            }
        }
    }
    Ok(w.into_bytes())
}

fn count(w: &mut Writer, count: usize) -> Result<(), FormatError> {
    let fits = u16::try_from(count);
    w.u16(fits.map_err(|_| FormatError::TooLarge { what: WHAT, bytes: count })?);
    Ok(())
}

/// The changes of a body.
///
/// # Errors
/// Bytes that are not exactly one list of changes.
pub fn decode(body: &[u8]) -> Result<Vec<LogChange>, FormatError> {
    let mut r = Reader::new(body, WHAT);
    let mut changes = Vec::new();
    for _ in 0..r.u16()? {
        changes.push(match r.u8()? {
            1 => LogChange::Inode(Inode::decode(&mut r)?),
            2 => LogChange::Entry(object(&mut r)?, Dirent::decode(&mut r)?),
            3 => LogChange::Drop(object(&mut r)?, r.u64()?),
            4 => LogChange::Cut(object(&mut r)?, r.u64()?),
            5 => LogChange::Pages(object(&mut r)?, pages(&mut r)?),
            6 => LogChange::Reply(ReplyEntry::decode(&mut r)?),
            other => return Err(FormatError::invalid("log record: change", other)),
        });
    }
    match r.rest() {
        [] => Ok(changes),
        rest => Err(FormatError::invalid("log record: bytes after it", rest.len() as u64)),
    }
}

fn object(r: &mut Reader<'_>) -> Result<ObjectId, FormatError> {
    Ok(ObjectId(r.sequence()?))
}

fn pages(r: &mut Reader<'_>) -> Result<Vec<(u64, PageSource)>, FormatError> {
    let mut pages = Vec::new();
    for _ in 0..r.u16()? {
        let page = r.u48()?;
        let source = match r.u8()? {
            0 => PageSource::Zeros,
            1 => PageSource::Payload,
            2 => PageSource::Extent,
            other => return Err(FormatError::invalid("log record: source of a page", other)),
        };
        pages.push((page, source));
    }
    Ok(pages)
}
