//! Changes: the effect of an operation on objects, once decided. The operation applies the list to
//! the overlays and puts it into the log record. Replay applies it again.
//! `aquifer_ondisk::log_change` describes its form in the record.

use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_dataset::sync::orphan_of;
use aquifer_dataset::{Dataset, ORPHANS};
use aquifer_object::overlay::Version;
use aquifer_object::{DirtyPage, Object, ObjectState};
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::extent::{Extent, Stored};
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::log_batch::LogRecord;
use aquifer_ondisk::log_change::{self, LogChange, PageSource};
use aquifer_ondisk::reply::ReplyEntry;
use aquifer_ondisk::{FormatError, ObjectId, Place, Txg};
use aquifer_pool::intent_log::Ticket;

pub use aquifer_ondisk::log_change::RECORD_KIND;

/// One change.
#[derive(Debug, Clone)]
pub enum Change {
    /// An object's new attributes; makes the object if there is none.
    Inode(Inode),
    /// Sets a name in a directory.
    Entry(ObjectId, Dirent),
    /// Removes a name, by its key.
    Drop(ObjectId, u64),
    /// Removes all pages from this one on.
    Cut(ObjectId, u64),
    /// Sets pages; the earlier content is replaced.
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

/// A record of these changes and of the call behind them, and its payload. `written` is the txg in
/// which early data went to its place.
pub fn record(
    dataset: &Dataset,
    txg: Txg,
    written: Txg,
    changes: &[Change],
    reply: Option<&ReplyEntry>,
) -> (LogRecord, Vec<Page>) {
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
    let mut logged = |change: &Change| match change {
        Change::Inode(inode) => LogChange::Inode(Inode { root: None, ..inode.clone() }),
        Change::Entry(directory, entry) => LogChange::Entry(*directory, entry.clone()),
        Change::Drop(directory, key) => LogChange::Drop(*directory, *key),
        Change::Cut(object, page) => LogChange::Cut(*object, *page),
        Change::Pages(object, pages) => {
            let source = |(page, dirty): &(u64, DirtyPage)| {
                (*page, log_page(&mut record, &mut payload, *page, dirty, written))
            };
            LogChange::Pages(*object, pages.iter().map(source).collect())
        }
    };
    let mut body: Vec<LogChange> = changes.iter().map(&mut logged).collect();
    body.extend(reply.filter(|_| !left_out(Rule::ReplyInRecord)).copied().map(LogChange::Reply));
    // An operation makes a handful of changes, to at most RECORD_PAGES_MAX pages below the end of
    // the largest file.
    record.body = log_change::encode(&body).expect("an operation's changes fit a record");
    (record, payload)
}

fn log_page(
    record: &mut LogRecord,
    payload: &mut Vec<Page>,
    page: u64,
    dirty: &DirtyPage,
    written: Txg,
) -> PageSource {
    match (&dirty.page, dirty.place) {
        (None, None) => PageSource::Zeros,
        (Some(content), None) => {
            record.page_sums.push(dirty.sum);
            payload.push(content.clone());
            PageSource::Payload
        }
        (_, Some(place)) => {
            record.extents.push(Extent {
                page,
                pages: 1,
                birth: written,
                written,
                place,
                counted: false,
                stored: Stored::Plain([dirty.sum].into_iter().collect()),
            });
            PageSource::Extent
        }
    }
}

/// Decodes a record for replay: the changes, and the call behind them. Early pages come without
/// their content.
pub fn decode(
    record: &LogRecord,
    payload: &[Page],
) -> Result<(Vec<Change>, Option<ReplyEntry>), FormatError> {
    let mut payload = record.page_sums.iter().zip(payload);
    let mut extents = record.extents.iter();
    let missing = FormatError::Truncated("log record");
    let mut page = |page: u64, source: PageSource| {
        let mut dirty = DirtyPage { page: None, sum: 0, logged: true, place: None };
        match source {
            PageSource::Zeros => {}
            PageSource::Payload => {
                let (sum, content) = payload.next().ok_or(missing.clone())?;
                (dirty.sum, dirty.page) = (*sum, Some(content.clone()));
            }
            PageSource::Extent => {
                let extent = extents.next().ok_or(missing.clone())?;
                let Stored::Plain(sums) = &extent.stored else {
                    return Err(FormatError::invalid("log record: extent", extent.place.0));
                };
                let &[sum] = sums.as_slice() else {
                    return Err(FormatError::invalid("log record: extent", extent.place.0));
                };
                (dirty.sum, dirty.place) = (sum, Some(extent.place));
            }
        }
        Ok((page, dirty))
    };
    let (mut changes, mut reply) = (Vec::new(), None);
    for change in log_change::decode(&record.body)? {
        changes.push(match change {
            LogChange::Inode(inode) => Change::Inode(inode),
            LogChange::Entry(directory, entry) => Change::Entry(directory, entry),
            LogChange::Drop(directory, key) => Change::Drop(directory, key),
            LogChange::Cut(object, page) => Change::Cut(object, page),
            LogChange::Pages(object, pages) => {
                let pages = pages.into_iter().map(|(at, source)| page(at, source));
                Change::Pages(object, pages.collect::<Result<_, _>>()?)
            }
            LogChange::Reply(entry) => {
                reply = Some(entry);
                continue;
            }
        });
    }
    Ok((changes, reply))
}

/// Applies changes to the overlays of objects that are in memory.
///
/// Each object gets all of its changes at once; the objects follow in the order of their first
/// changes. So a reader never finds a directory without a name that is only replaced. The caller
/// has the hold of `txg` and the writer locks of all changed objects. `ticket` is that of the
/// changes' record, which is in the log already. Returns the places of early data that nothing
/// needs any more.
pub fn apply(
    dataset: &Dataset,
    txg: Txg,
    changes: &[Change],
    ticket: Option<&Ticket>,
) -> Vec<Place> {
    let mut dropped = Vec::new();
    for (at, first) in changes.iter().enumerate() {
        let id = first.object();
        let is_of_one = |change: &&Change| change.object() == id;
        if changes.iter().take(at).any(|before| before.object() == id) {
            continue;
        }
        let of_one = || changes.iter().skip(at).filter(is_of_one);
        let Some(object) = changed_object(dataset, id, of_one()) else {
            debug_assert!(false, "changed objects are in memory");
            continue;
        };
        dataset.mark_dirty(txg, object.id);
        let mut state = object.state.lock();
        let ObjectState { inode: newest, overlay, last_ticket, .. } = &mut *state;
        // Set with the change itself: a reader that sees the change waits for its record.
        if ticket.is_some() {
            *last_ticket = ticket.cloned();
        }
        let version = overlay.version(txg, newest);
        for change in of_one() {
            if let Change::Inode(inode) = change {
                if inode.nlink == 0 && object.id != ORPHANS {
                    dataset.mark_orphan(object.id);
                }
                newest.clone_from(inode);
            }
            // It got a name: what an import found on the list stays.
            if let Change::Drop(ORPHANS, key) = change {
                dataset.unmark_orphan(orphan_of(*key));
            }
            dropped.extend(apply_to(version, change));
        }
    }
    dropped
}

/// The object that these changes belong to. Makes it if there is none and the changes hold its
/// attributes.
fn changed_object<'a>(
    dataset: &Dataset,
    id: ObjectId,
    mut changes: impl Iterator<Item = &'a Change>,
) -> Option<Arc<Object>> {
    let made = changes.find_map(|change| match change {
        Change::Inode(inode) => Some(dataset.object_or_new(inode)),
        _ => None,
    });
    made.or_else(|| dataset.cached(id))
}

/// Applies a change to an object's version. Returns the places of early data in it that nothing
/// needs any more.
fn apply_to(version: &mut Version, change: &Change) -> Vec<Place> {
    let mut dropped = Vec::new();
    match change {
        Change::Inode(inode) => version.inode = inode.clone(),
        Change::Entry(_, entry) => {
            version.entries.insert(entry.key, Some(entry.clone()));
        }
        Change::Drop(_, key) => {
            version.entries.insert(*key, None);
        }
        Change::Cut(_, page) => {
            let gone = version.pages.cut(*page);
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
    dropped
}
