//! Sending a snapshot as a stream ([`aquifer_stream`]).
//!
//! The stream comes in pages of some megabytes. Each is made from the roots alone, and its cursor
//! has all that the next one needs: the daemon keeps nothing in between, and a slow reader delays
//! no space. A snapshot that was destroyed and taken again under its name is another one.
//!
//! Of a file its pages travel as they read, found from its extents: what is a hole takes nothing.
//! Files without a name do not travel, nor do tails that are being freed.

use std::ops::Range;
use std::str::FromStr;

use aquifer_dataset::{Dataset, DatasetError, LookError};
use aquifer_object::Object;
use aquifer_object::btree::Scan;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, Extents, Objects};
use aquifer_pool::PoolError;
use aquifer_stream::{Begin, Chain, DATA_PAGES_MAX, ENTRIES_MAX, Encoder, Point, Record};

use crate::core::Files;
use crate::diff::paths::visible;
use crate::diff::{Looks, mark_of};
use crate::types::zero_page;

/// Bytes of a page after which it ends.
const PAGE_BYTES: usize = 4 << 20;

/// Where the next page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendCursor {
    /// Of the snapshot.
    mark: u64,
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
    snapshot: &'a str,
    looks: Looks<'a>,
    encoder: Encoder,
}

impl Files {
    /// A page of the stream of a snapshot, given as `dataset@name`.
    ///
    /// # Errors
    /// There is no such snapshot; damaged files; a cursor of another stream; a snapshot that was
    /// destroyed meanwhile.
    pub async fn send_page(
        &self,
        name: &str,
        cursor: Option<SendCursor>,
    ) -> Result<SendPage, SendError> {
        let _turn = self.comparing.lock().await;
        let (dataset, snapshot) = self.datasets.snapshot_by_name(name)?;
        let version = self.datasets.version(name)?;
        let mark = mark_of(&[version.guid().0]);
        let looks = Looks::new(vec![version.look(&self.pool)?]);
        let SendCursor { chain, place, .. } = match cursor {
            Some(cursor) if cursor.mark == mark => cursor,
            Some(_) => return Err(SendError::Others(name.into())),
            None => SendCursor { mark, chain: Chain::default(), place: Place::default() },
        };
        let encoder = Encoder::after(chain);
        let mut making = Making { files: self, dataset: &dataset, snapshot: name, looks, encoder };
        if cursor.is_none() {
            let record = &snapshot.record;
            making.encoder.put(&Record::Begin(Begin {
                fs_guid: dataset.fs_guid,
                next_object: dataset.free_id(),
                dataset: self.datasets.full_name(&dataset),
                from: None,
                to: Point { guid: record.guid, created: record.created, name: record.name.clone() },
                properties: dataset.local_values(),
            }));
        }
        let next = making.objects(place).await?;
        if next.is_none() {
            making.encoder.end();
        }
        let (bytes, chain) = making.encoder.into_parts();
        let next = next.map(|place| SendCursor { mark, chain, place });
        Ok(SendPage { bytes, next })
    }
}

impl Making<'_> {
    fn is_full(&self) -> bool {
        self.encoder.len() >= PAGE_BYTES
    }

    /// The objects from a place on, until the page is full. Returns the next place.
    async fn objects(&mut self, place: Place) -> Result<Option<Place>, SendError> {
        let pool = &*self.files.pool;
        let mut within = place.within;
        let mut scan = Scan::<Objects, _>::new(pool, self.looks.objects(0), place.object, None)?;
        while let Some(inode) = scan.next().await? {
            self.looks.step().await?;
            let id = inode.object.0;
            let Some(inode) = visible(Some(inode)) else { continue };
            if self.is_full() {
                return Ok(Some(Place { object: id, within: None }));
            }
            let within = if id == place.object { within.take() } else { None };
            if let Some(within) = self.object(inode, within).await? {
                return Ok(Some(Place { object: id, within: Some(within) }));
            }
        }
        Ok(None)
    }

    /// An object, from a page or key on. Returns the page or key that comes next, if the page is
    /// full.
    async fn object(
        &mut self,
        inode: Inode,
        within: Option<u64>,
    ) -> Result<Option<u64>, SendError> {
        if inode.damaged {
            let (object, snapshot) = (inode.object.0, self.snapshot.into());
            return Err(SendError::Damaged { object, snapshot });
        }
        if within.is_none() {
            self.encoder.put(&Record::Object(Box::new(inode.clone())));
        }
        let from = within.unwrap_or(0);
        match inode.kind {
            FileKind::Regular | FileKind::Symlink => self.content(inode, from).await,
            FileKind::Directory => self.names_in(inode, from).await,
            _ => Ok(None),
        }
    }

    async fn content(&mut self, inode: Inode, from: u64) -> Result<Option<u64>, SendError> {
        let pool = &*self.files.pool;
        let end_page = inode.size.div_ceil(4096);
        if from >= end_page {
            return Ok(None);
        }
        let mut scan = Scan::<Extents, _>::new(pool, inode.root, from, Some(end_page))?;
        let file = Object::new(self.dataset.id, inode);
        // Pages that follow each other are one record, whatever extents they are in.
        let mut run = from..from;
        loop {
            self.looks.step().await?;
            let extent = scan.next().await?;
            let pages = extent.map(|extent| {
                let end = extent.page.saturating_add(extent.pages.into());
                extent.page.max(from)..end.min(end_page)
            });
            match pages {
                Some(pages) if pages.start == run.end && !run.is_empty() => run.end = pages.end,
                pages => {
                    self.data(&file, run.clone()).await?;
                    let Some(pages) = pages else { return Ok(None) };
                    run = pages;
                }
            }
            while run.end - run.start >= DATA_PAGES_MAX {
                let to = run.start + DATA_PAGES_MAX;
                self.data(&file, run.start..to).await?;
                run.start = to;
            }
            if self.is_full() {
                return Ok(Some(run.start));
            }
        }
    }

    /// Pages of a file, at most [`DATA_PAGES_MAX`].
    async fn data(&mut self, file: &Object, pages: Range<u64>) -> Result<(), SendError> {
        if pages.is_empty() {
            return Ok(());
        }
        self.looks.step().await?;
        let read = file.read_pages(&self.files.pool, pages.start, pages.end).await?;
        let mut content = Vec::with_capacity(read.len() * 4096);
        for page in read {
            content.extend_from_slice(page.unwrap_or_else(zero_page).as_slice());
        }
        self.encoder.put(&Record::Data { object: file.id, page: pages.start, content });
        Ok(())
    }

    async fn names_in(&mut self, inode: Inode, from: u64) -> Result<Option<u64>, SendError> {
        let (pool, object) = (&*self.files.pool, inode.object);
        let mut scan = Scan::<Directory, _>::new(pool, inode.root, from, None)?;
        let mut entries: Vec<Dirent> = Vec::new();
        while let Some(entry) = scan.next().await? {
            self.looks.step().await?;
            if entries.len() >= ENTRIES_MAX {
                self.entries(object, &mut entries);
            }
            if self.is_full() {
                self.entries(object, &mut entries);
                return Ok(Some(entry.key));
            }
            entries.push(entry);
        }
        self.entries(object, &mut entries);
        Ok(None)
    }

    fn entries(&mut self, object: ObjectId, entries: &mut Vec<Dirent>) {
        if !entries.is_empty() {
            let entries = std::mem::take(entries);
            self.encoder.put(&Record::Entries { object, entries });
        }
    }
}

impl std::fmt::Display for SendCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SendCursor { mark, chain, place: Place { object, within } } = self;
        write!(f, "{mark:x}-{object:x}-")?;
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
            let (mark, object) = (number(parts.next()?)?, number(parts.next()?)?);
            let within = match parts.next()? {
                "n" => None,
                within => Some(number(within)?),
            };
            let (chain, place) = (parts.next()?.parse().ok()?, Place { object, within });
            parts.next().is_none().then_some(SendCursor { mark, chain, place })
        };
        parse().ok_or_else(|| SendError::BadCursor(text.into()))
    }
}
