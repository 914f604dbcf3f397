//! The order of records, and what they add up to.

use aquifer_ondisk::ObjectId;
use aquifer_ondisk::dirent::{COLLISIONS_MAX, hash_key};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::resume::StreamPlace;

use crate::record::{Counts, PAGE_BYTES, Record, may_travel};

/// Order of records: which may come next.
#[derive(Debug, Default)]
pub(crate) struct Order {
    is_incremental: bool,
    /// It goes on there, if its first object did not come yet.
    start: Option<StreamPlace>,
    began: bool,
    ended: bool,
    /// The newest object.
    newest: ObjectId,
    /// Its attributes, unless it is gone.
    inode: Option<Inode>,
    /// The first page, or key of a name that is new, that may come.
    next_data: u64,
    /// First key of a name that is gone, that may come.
    next_drop: u64,
    counts: Counts,
}

/// Adds a record to what came.
pub(crate) fn count(counts: &mut Counts, record: &Record) {
    let (to, by) = match record {
        Record::Begin(_) | Record::End(_) => return,
        Record::Object(_) => (&mut counts.objects, 1),
        Record::Remove { .. } => (&mut counts.removed, 1),
        Record::Data { content, .. } => (&mut counts.pages, content.len() / PAGE_BYTES),
        Record::Hole { pages, .. } => {
            counts.hole_pages = counts.hole_pages.saturating_add(*pages);
            return;
        }
        Record::Entries { entries, .. } => (&mut counts.entries, entries.len()),
        Record::Drops { keys, .. } => (&mut counts.drops, keys.len()),
    };
    *to = to.saturating_add(by as u64);
}

impl Order {
    /// Whether the last record came.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Takes the next record, if it may come here. `before` is the checksum of the one before it.
    pub fn take(&mut self, record: &Record, before: u128) -> Result<(), String> {
        if self.began == matches!(record, Record::Begin(_)) {
            return Err("the order of records".into());
        }
        match record {
            Record::Begin(begin) => {
                (self.began, self.is_incremental) = (true, begin.from.is_some());
                self.start = begin.start;
            }
            Record::Object(inode) => {
                self.next_object(inode.object)?;
                check(inode)?;
                self.inode = Some(Inode::clone(inode));
            }
            Record::Remove { object, .. } => {
                self.next_object(*object)?;
                if !self.is_incremental || *object == aquifer_ondisk::types::ROOT_DIRECTORY {
                    return Err(format!("object {} cannot be removed", object.0));
                }
                self.inode = None;
            }
            Record::Data { object, page, content } => {
                self.pages(*object, *page, (content.len() / PAGE_BYTES) as u64)?;
            }
            Record::Hole { object, page, pages } => {
                self.pages(*object, *page, *pages)?;
                if !self.is_incremental {
                    return Err("a hole in what is new".into());
                }
            }
            Record::Entries { object, entries } => {
                let seed = self.directory(*object)?.hash_seed;
                for entry in entries {
                    let base = hash_key(seed, &entry.name);
                    let fits = entry.key.checked_sub(base).is_some_and(|at| at < COLLISIONS_MAX);
                    if !fits || entry.key < self.next_data {
                        return Err(format!("key {} of a name", entry.key));
                    }
                    if !may_travel(entry.object) || entry.name == b"." || entry.name == b".." {
                        return Err(format!("the name of object {}", entry.object.0));
                    }
                    self.next_data = entry.key.saturating_add(1);
                }
            }
            Record::Drops { object, keys } => {
                self.directory(*object)?;
                if !self.is_incremental {
                    return Err("a name that goes from what is new".into());
                }
                for key in keys {
                    if *key < self.next_drop.max(self.next_data) {
                        return Err(format!("key {key} of a name that goes"));
                    }
                    self.next_drop = key.saturating_add(1);
                }
            }
            Record::End(end) => {
                if end.counts != self.counts {
                    return Err("the counts at the end are not those of what came".into());
                }
                if end.digest != before {
                    return Err("the digest at the end".into());
                }
                self.ended = true;
            }
        }
        count(&mut self.counts, record);
        Ok(())
    }

    fn next_object(&mut self, object: ObjectId) -> Result<(), String> {
        if !may_travel(object) || object <= self.newest {
            return Err(format!("object {} comes after {}", object.0, self.newest.0));
        }
        let within = match self.start.take() {
            None => 0,
            Some(StreamPlace { object: at, within: None }) if at <= object => 0,
            Some(StreamPlace { object: at, within: Some(within) }) if at == object => within,
            Some(_) => return Err(format!("object {} is not where it goes on", object.0)),
        };
        (self.newest, self.next_data, self.next_drop) = (object, within, within);
        Ok(())
    }

    fn pages(&mut self, object: ObjectId, page: u64, pages: u64) -> Result<(), String> {
        let newest = self.inode.as_ref().filter(|inode| inode.object == object);
        let file = newest.filter(|of| matches!(of.kind, FileKind::Regular | FileKind::Symlink));
        let file = file.ok_or_else(|| format!("content of object {}", object.0))?;
        let end = page.saturating_add(pages);
        if page < self.next_data || end > file.size.div_ceil(PAGE_BYTES as u64) {
            return Err(format!("pages {page} to {end} of object {}", object.0));
        }
        self.next_data = end;
        Ok(())
    }

    fn directory(&self, object: ObjectId) -> Result<&Inode, String> {
        let newest = self.inode.as_ref().filter(|inode| inode.object == object);
        newest
            .filter(|inode| inode.kind == FileKind::Directory)
            .ok_or_else(|| format!("names in object {}", object.0))
    }
}

/// Whether an inode may stand in a stream.
fn check(inode: &Inode) -> Result<(), String> {
    let id = inode.object.0;
    let is_root = inode.object == aquifer_ondisk::types::ROOT_DIRECTORY;
    let is_directory = inode.kind == FileKind::Directory;
    let bad = |what: &str| Err(format!("{what} of object {id}"));
    if inode.nlink == 0 || (is_directory && inode.nlink < 2) {
        return bad("number of links");
    }
    if inode.mode & !0o7777 != 0 {
        return bad("mode");
    }
    if is_root && (!is_directory || inode.parent != inode.object || inode.generation != 0) {
        return bad("kind");
    }
    if !is_root && (inode.generation == 0 || is_directory && !may_travel(inode.parent)) {
        return bad("generation or parent");
    }
    if inode.kind == FileKind::Symlink && inode.size >= PAGE_BYTES as u64 {
        return bad("size");
    }
    match is_directory || inode.entries == 0 {
        true => Ok(()),
        false => bad("entries"),
    }
}
