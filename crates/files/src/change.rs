//! Changes: what an operation does to objects, once decided. The same list is applied to the
//! overlays, goes into the log record, and is applied again by replay.
//!
//! ```text
//! record body: changes u16, each:
//!   1 inode    inode bytes (its root is ignored)
//!   2 entry    directory u64, entry bytes
//!   3 drop     directory u64, key u64
//!   4 cut      object u64, page u64
//!   5 pages    object u64, count u16, each: page u48, what u8
//!              (0 zeros, 1 the record's next payload page, 2 the record's next extent)
//! ```

use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_dataset::{Dataset, ORPHANS};
use aquifer_object::{DirtyPage, Object};
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::log_batch::LogRecord;
use aquifer_ondisk::{FormatError, ObjectId, Reader, Txg, Writer};

const WHAT: &str = "log record";
/// The kind of the log records of this layer.
pub const RECORD_KIND: u16 = 1;

/// One change.
#[derive(Debug, Clone)]
pub enum Change {
    /// These are an object's attributes from now on; makes the object if there is none.
    Inode(Inode),
    /// A name in a directory.
    Entry(ObjectId, Dirent),
    /// A name less.
    Drop(ObjectId, u64),
    /// Pages from here on are gone.
    Cut(ObjectId, u64),
    /// Pages written.
    Pages(ObjectId, Vec<(u64, DirtyPage)>),
}

impl Change {
    /// The object whose overlay it changes.
    pub fn object(&self) -> ObjectId {
        match self {
            Change::Inode(inode) => inode.object,
            Change::Entry(object, _)
            | Change::Drop(object, _)
            | Change::Cut(object, _)
            | Change::Pages(object, _) => *object,
        }
    }
}

/// A record of these changes and its payload. `written` is when early data went to its place.
pub fn record(
    dataset: &Dataset,
    txg: Txg,
    written: Txg,
    changes: &[Change],
) -> (LogRecord, Vec<Page>) {
    let mut w = Writer::new();
    let mut record = LogRecord {
        kind: RECORD_KIND,
        txg,
        dataset: dataset.id,
        object: changes.first().map_or(ObjectId(0), Change::object),
        page_sums: Vec::new(),
        extents: Vec::new(),
        body: Vec::new(),
    };
    let mut payload = Vec::new();
    w.u16(u16::try_from(changes.len()).unwrap_or(u16::MAX));
    for change in changes {
        match change {
            Change::Inode(inode) => {
                w.u8(1);
                Inode { root: None, ..inode.clone() }.encode(&mut w);
            }
            Change::Entry(directory, entry) => {
                w.u8(2);
                w.u64(directory.0);
                entry.encode(&mut w);
            }
            Change::Drop(directory, key) => {
                w.u8(3);
                w.u64(directory.0);
                w.u64(*key);
            }
            Change::Cut(object, page) => {
                w.u8(4);
                w.u64(object.0);
                w.u64(*page);
            }
            Change::Pages(object, pages) => {
                w.u8(5);
                w.u64(object.0);
                encode_pages(&mut w, &mut record, &mut payload, pages, written);
            }
        }
    }
    record.body = w.into_bytes();
    (record, payload)
}

fn encode_pages(
    w: &mut Writer,
    record: &mut LogRecord,
    payload: &mut Vec<Page>,
    pages: &[(u64, DirtyPage)],
    written: Txg,
) {
    w.u16(u16::try_from(pages.len()).unwrap_or(u16::MAX));
    for (page, dirty) in pages {
        w.u48(*page);
        match (&dirty.page, dirty.place) {
            (None, _) => w.u8(0),
            (Some(content), None) => {
                w.u8(1);
                record.page_sums.push(dirty.sum);
                payload.push(content.clone());
            }
            (Some(_), Some(place)) => {
                w.u8(2);
                record.extents.push(Extent {
                    page: *page,
                    pages: 1,
                    birth: written,
                    written,
                    place,
                    counted: false,
                    stored: Stored::Plain([dirty.sum].into_iter().collect()),
                });
            }
        }
    }
}

/// What a record says, for replay. Early pages come without their content.
pub fn decode(record: &LogRecord, payload: &[Page]) -> Result<Vec<Change>, FormatError> {
    let mut r = Reader::new(&record.body, WHAT);
    let mut payload = record.page_sums.iter().zip(payload);
    let mut extents = record.extents.iter();
    let mut changes = Vec::new();
    for _ in 0..r.u16()? {
        changes.push(match r.u8()? {
            1 => Change::Inode(Inode::decode(&mut r)?),
            2 => Change::Entry(ObjectId(r.u64()?), Dirent::decode(&mut r)?),
            3 => Change::Drop(ObjectId(r.u64()?), r.u64()?),
            4 => Change::Cut(ObjectId(r.u64()?), r.u64()?),
            5 => {
                let object = ObjectId(r.u64()?);
                let count = r.u16()?;
                let mut pages = Vec::new();
                for _ in 0..count {
                    let page = r.u48()?;
                    let dirty = match r.u8()? {
                        0 => DirtyPage { page: None, sum: 0, logged: true, place: None },
                        1 => {
                            let (sum, page) = payload.next().ok_or(FormatError::Truncated(WHAT))?;
                            let page = Some(page.clone());
                            DirtyPage { page, sum: *sum, logged: true, place: None }
                        }
                        _ => {
                            let extent = extents.next().ok_or(FormatError::Truncated(WHAT))?;
                            let sum = match &extent.stored {
                                Stored::Plain(sums) => sums.first().copied().unwrap_or(0),
                                Stored::Compressed { .. } => 0,
                            };
                            let place = Some(extent.place);
                            DirtyPage { page: None, sum, logged: true, place }
                        }
                    };
                    pages.push((page, dirty));
                }
                Change::Pages(object, pages)
            }
            other => return Err(FormatError::invalid("log record: change", other)),
        });
    }
    Ok(changes)
}

/// Applies changes to the overlays of objects that are in memory. Under the hold of `txg` and the
/// writer locks of all objects changed. Returns the places of early data that nothing needs any
/// more.
pub fn apply(dataset: &Dataset, txg: Txg, changes: &[Change]) -> Vec<aquifer_ondisk::Place> {
    let mut dropped = Vec::new();
    for change in changes {
        let object: Arc<Object> = match change {
            Change::Inode(inode) => dataset.object_or_new(inode),
            other => match dataset.cached(other.object()) {
                Some(object) => object,
                None => {
                    debug_assert!(false, "changed objects are in memory");
                    continue;
                }
            },
        };
        dataset.mark_dirty(txg, object.id);
        let mut state = object.state.lock();
        let current = state.inode.clone();
        let version = state.overlay.version(txg, &current);
        match change {
            Change::Inode(inode) => {
                version.inode = inode.clone();
                if inode.nlink == 0 && object.id != ORPHANS {
                    dataset.mark_orphan(object.id);
                }
                state.inode = inode.clone();
            }
            Change::Entry(_, entry) => {
                version.entries.insert(entry.key, Some(entry.clone()));
            }
            Change::Drop(_, key) => {
                version.entries.insert(*key, None);
            }
            Change::Cut(_, page) => {
                let gone = version.pages.split_off(page);
                dropped.extend(gone.into_values().filter_map(|dirty| dirty.place));
                version.cut = Some(version.cut.map_or(*page, |cut| cut.min(*page)));
            }
            Change::Pages(_, pages) => {
                for (page, dirty) in pages {
                    let before = version.pages.insert(*page, dirty.clone());
                    dropped.extend(before.and_then(|dirty| dirty.place));
                }
            }
        }
    }
    dropped
}
