//! Sending a snapshot as a stream ([`aquifer_stream`]), or what changed since another one.
//!
//! The stream comes in pages of some megabytes. Each is made from the roots alone, and its cursor
//! has all that the next one needs: the daemon keeps nothing in between, and a slow reader delays
//! no space. A snapshot that was destroyed and taken again under its name is another one.
//!
//! What changed is what the two trees do not have alike, pointer by pointer, as for a diff
//! ([`crate::diff`]). Files without a name do not travel, nor do tails that are being freed.

use std::str::FromStr;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_dataset::{Dataset, DatasetError, LookError, Snapshot, Version};
use aquifer_object::Object;
use aquifer_object::btree::{self, Difference};
use aquifer_object::extent_tree::{ChangedPages, compare_extents};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_pool::PoolError;
use aquifer_stream::{
    Begin, Chain, DATA_PAGES_MAX, ENTRIES_MAX, Encoder, HOLE_PAGES_MAX, KEYS_MAX, Point, Record,
};

use crate::core::Files;
use crate::diff::paths::visible;
use crate::diff::{Looks, mark_of};
use crate::types::zero_page;

/// Bytes of a page after which it ends.
const PAGE_BYTES: usize = 4 << 20;

/// Where the next page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendCursor {
    /// Of the snapshots.
    versions: u64,
    chain: Chain,
    place: Place,
}

/// How far a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Place {
    /// The next object.
    object: u64,
    /// Its first page or key, if its attributes were sent.
    within: Option<u64>,
}

/// Some bytes of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendPage {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<SendCursor>,
}

/// A snapshot cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// A name of a dataset or snapshot.
    #[error("{0}")]
    Dataset(DatasetError),
    /// Both are not of one dataset, in this order.
    #[error(
        "{from:?} is no older snapshot of the dataset of {to:?}: name one of the same dataset, or \
         send all of {to:?} without -i"
    )]
    NotOlder {
        /// The older one.
        from: String,
        /// The one to send.
        to: String,
    },
    /// It lost changes, and its content is not certain.
    #[error(
        "object {object} in {snapshot:?} is damaged: `aquifer pool status -v` names it. Mend or \
         remove it, and send a later snapshot"
    )]
    Damaged {
        /// The object.
        object: u64,
        /// The snapshot.
        snapshot: String,
    },
    /// An id has two meanings.
    #[error(
        "object {object} is another file in {from:?}: a crash took that one. Send all, without -i"
    )]
    Reused {
        /// The object.
        object: u64,
        /// The older snapshot.
        from: String,
    },
    /// The cursor is none.
    #[error("{0:?} is no place to go on from: begin again without one")]
    BadCursor(String),
    /// The cursor is about others.
    #[error("{0:?} was destroyed and taken again while it was sent: begin again")]
    Others(String),
    /// A look could not go on.
    #[error("{0}: what was sent is of no use; send another snapshot")]
    Look(#[from] LookError),
    /// The pool failed.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

impl From<DatasetError> for SendError {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::Pool(error) => SendError::Pool(error),
            other => SendError::Dataset(other),
        }
    }
}

/// A page in the making.
struct Making<'a> {
    files: &'a Files,
    dataset: &'a Dataset,
    names: (&'a str, Option<&'a str>),
    looks: Looks<'a>,
    encoder: Encoder,
}

impl Files {
    /// A page of the stream of a snapshot, given as `dataset@name`, or of what changed in it since
    /// another one of the same dataset.
    ///
    /// # Errors
    /// Names that do not exist, or of other datasets; damaged files; a cursor of another stream; a
    /// snapshot that was destroyed meanwhile.
    pub async fn send_page(
        &self,
        to: &str,
        from: Option<&str>,
        cursor: Option<SendCursor>,
    ) -> Result<SendPage, SendError> {
        let _turn = self.comparing.lock().await;
        let (dataset, snapshot) = self.datasets.snapshot_by_name(to)?;
        let since = from.map(|from| self.older((&dataset, &snapshot, to), from)).transpose()?;
        let versions = [from, Some(to)].into_iter().flatten();
        let versions = versions.map(|name| self.datasets.version(name));
        let versions: Vec<Version> = versions.collect::<Result<_, _>>()?;
        let mark = mark_of(&versions.iter().map(|of| of.guid().0).collect::<Vec<u64>>());
        let looks = versions.iter().map(|version| version.look(&self.pool));
        let looks = Looks::new(looks.collect::<Result<_, _>>()?);
        let SendCursor { chain, place, .. } = match cursor {
            Some(cursor) if cursor.versions == mark => cursor,
            Some(_) => return Err(SendError::Others(to.into())),
            None => SendCursor { versions: mark, chain: Chain::default(), place: Place::default() },
        };
        let encoder = Encoder::after(chain);
        let mut making =
            Making { files: self, dataset: &dataset, names: (to, from), looks, encoder };
        if cursor.is_none() {
            making.encoder.put(&Record::Begin(Begin {
                fs_guid: dataset.fs_guid,
                next_object: dataset.free_id(),
                dataset: self.datasets.full_name(&dataset),
                from: since.as_ref().map(|since| point(since)),
                to: point(&snapshot),
                properties: dataset.local_values(),
            }));
        }
        let next = making.objects(place).await?;
        if next.is_none() {
            making.encoder.end();
        }
        let (bytes, chain) = making.encoder.into_parts();
        let next = next.map(|place| SendCursor { versions: mark, chain, place });
        Ok(SendPage { bytes, next })
    }

    /// An older snapshot of the same dataset.
    fn older(
        &self,
        (dataset, snapshot, to): (&Dataset, &Snapshot, &str),
        from: &str,
    ) -> Result<std::sync::Arc<Snapshot>, SendError> {
        let (of, since) = self.datasets.snapshot_by_name(from)?;
        match of.id == dataset.id && since.txg < snapshot.txg {
            true => Ok(since),
            false => Err(SendError::NotOlder { from: from.into(), to: to.into() }),
        }
    }
}

impl Making<'_> {
    fn is_full(&self) -> bool {
        self.encoder.len() >= PAGE_BYTES
    }

    /// The objects from a place on, until the page is full. Returns the next place.
    async fn objects(&mut self, place: Place) -> Result<Option<Place>, SendError> {
        let pool = &*self.files.pool;
        let (old, new) = match self.names.1 {
            Some(_) => (self.looks.objects(0), self.looks.objects(1)),
            None => (None, self.looks.objects(0)),
        };
        let mut compare = btree::compare_from::<Objects, _>(pool, old, new, place.object)?;
        let mut within = place.within;
        while let Some(Difference { key, old, new }) = compare.next().await? {
            self.looks.step().await?;
            if key < place.object {
                continue;
            }
            if self.is_full() {
                return Ok(Some(Place { object: key, within: None }));
            }
            let within = if key == place.object { within.take() } else { None };
            match (visible(old), visible(new)) {
                (None, None) => {}
                (Some(Inode { object, generation, .. }), None) => {
                    self.encoder.put(&Record::Remove { object, generation });
                }
                (old, Some(new)) => {
                    if let Some(within) = self.object((old, new), within).await? {
                        return Ok(Some(Place { object: key, within: Some(within) }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// An object, from a page or key on. Returns the page or key that comes next, if the page is
    /// full.
    async fn object(
        &mut self,
        (old, new): (Option<Inode>, Inode),
        within: Option<u64>,
    ) -> Result<Option<u64>, SendError> {
        let object = new.object.0;
        if new.damaged {
            return Err(SendError::Damaged { object, snapshot: self.names.0.into() });
        }
        if let Some(old) = &old
            && (old.generation, old.kind) != (new.generation, new.kind)
        {
            let from = self.names.1.unwrap_or_default().into();
            return Err(SendError::Reused { object, from });
        }
        if within.is_none() {
            self.encoder.put(&Record::Object(Box::new(new.clone())));
        }
        let from = within.unwrap_or(0);
        match new.kind {
            FileKind::Regular | FileKind::Symlink => self.content((old, new), from).await,
            FileKind::Directory => self.names_in((old, new), from).await,
            _ => Ok(None),
        }
    }

    async fn content(
        &mut self,
        (old, new): (Option<Inode>, Inode),
        from: u64,
    ) -> Result<Option<u64>, SendError> {
        let pool = &*self.files.pool;
        let end_page = new.size.div_ceil(4096);
        let (old_root, new_root) = (old.and_then(|old| old.root), new.root);
        let file = Object::new(self.dataset.id, new);
        let mut compare = compare_extents(pool, old_root, new_root, from)?;
        let mut changed = Vec::new();
        loop {
            self.looks.step().await?;
            let goes_on = compare.next(&mut changed).await?;
            // Ranges before the last one are complete.
            let keep = usize::from(goes_on);
            while changed.len() > keep {
                let range = changed.remove(0);
                self.range(&file, range, end_page).await?;
                if self.is_full() && range.to_page < end_page {
                    return Ok(Some(range.to_page));
                }
            }
            if !goes_on || compare.known_to() >= end_page && changed.is_empty() {
                return Ok(None);
            }
        }
    }

    async fn range(
        &mut self,
        file: &Object,
        range: ChangedPages,
        end_page: u64,
    ) -> Result<(), SendError> {
        let (mut page, end) = (range.from_page, range.to_page.min(end_page));
        // Births say what is new, and nothing of what is gone.
        if !range.is_data && left_out(Rule::SendComparesPointers) {
            return Ok(());
        }
        while page < end {
            let most = if range.is_data { DATA_PAGES_MAX } else { HOLE_PAGES_MAX };
            let to = end.min(page.saturating_add(most));
            self.looks.step().await?;
            let record = match range.is_data {
                false => Record::Hole { object: file.id, page, pages: to - page },
                true => {
                    let pages = file.read_pages(&self.files.pool, page, to).await?;
                    let mut content = Vec::with_capacity(pages.len() * 4096);
                    for page in pages {
                        let page = page.unwrap_or_else(zero_page);
                        content.extend_from_slice(page.as_slice());
                    }
                    Record::Data { object: file.id, page, content }
                }
            };
            self.encoder.put(&record);
            page = to;
        }
        Ok(())
    }

    async fn names_in(
        &mut self,
        (old, new): (Option<Inode>, Inode),
        from: u64,
    ) -> Result<Option<u64>, SendError> {
        let pool = &*self.files.pool;
        let old_root = old.and_then(|old| old.root);
        let mut compare = btree::compare_from::<Directory, _>(pool, old_root, new.root, from)?;
        let mut names = Names { object: new.object, entries: Vec::new(), keys: Vec::new() };
        while let Some(Difference { key, old: _, new }) = compare.next().await? {
            self.looks.step().await?;
            if key < from {
                continue;
            }
            if self.is_full() {
                names.put(&mut self.encoder);
                return Ok(Some(key));
            }
            match new {
                Some(entry) => names.entries.push(entry),
                None => names.keys.push(key),
            }
            if names.entries.len() >= ENTRIES_MAX || names.keys.len() >= KEYS_MAX {
                names.put(&mut self.encoder);
            }
        }
        names.put(&mut self.encoder);
        Ok(None)
    }
}

/// Names that wait for their record.
struct Names {
    object: ObjectId,
    entries: Vec<Dirent>,
    keys: Vec<u64>,
}

impl Names {
    fn put(&mut self, encoder: &mut Encoder) {
        let object = self.object;
        let (entries, keys) = (std::mem::take(&mut self.entries), std::mem::take(&mut self.keys));
        if !keys.is_empty() {
            encoder.put(&Record::Drops { object, keys });
        }
        if !entries.is_empty() {
            encoder.put(&Record::Entries { object, entries });
        }
    }
}

fn point(snapshot: &Snapshot) -> Point {
    let record = &snapshot.record;
    Point { guid: record.guid, created: record.created, name: record.name.clone() }
}

impl std::fmt::Display for SendCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SendCursor { versions, chain, place: Place { object, within } } = self;
        write!(f, "{versions:x}-{object:x}-")?;
        match within {
            Some(within) => write!(f, "{within:x}-{chain}"),
            None => write!(f, "n-{chain}"),
        }
    }
}

impl FromStr for SendCursor {
    type Err = SendError;

    fn from_str(text: &str) -> Result<SendCursor, SendError> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let parse = || {
            let mut parts = text.split('-');
            let (versions, object) = (number(parts.next()?)?, number(parts.next()?)?);
            let within = match parts.next()? {
                "n" => None,
                within => Some(number(within)?),
            };
            let (chain, place) = (parts.next()?.parse().ok()?, Place { object, within });
            parts.next().is_none().then_some(SendCursor { versions, chain, place })
        };
        parse().ok_or_else(|| SendError::BadCursor(text.into()))
    }
}
