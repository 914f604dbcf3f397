//! Sending a snapshot as a stream ([`aquifer_stream`]), whole or what changed since an older one
//! ([`changed`]).
//!
//! The stream comes in pages of some megabytes. Each is made from the roots alone, and its cursor
//! has all that the next one needs: the daemon keeps nothing in between, and a slow reader delays
//! no space. A snapshot that was destroyed and taken again under its name is another one.
//!
//! Of a file its pages travel as they read, found from its extents: what is a hole takes nothing.
//! Files without a name do not travel, nor do tails that are being freed. A file alone travels as a
//! dataset of its own ([`file`]).

mod changed;
mod error;
mod file;
mod runs;

use std::str::FromStr;
use std::sync::Arc;

use aquifer_dataset::{Dataset, FullName, LookError, Snapshot, Version};
use aquifer_object::Object;
use aquifer_object::btree::Scan;
use aquifer_object::extent_tree::ChangedPages;
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::resume::StreamPlace;
use aquifer_ondisk::tree_node::{Directory, Extents, Objects};
use aquifer_stream::{Begin, Chain, ENTRIES_MAX, Encoder, Point, Record};

use crate::core::Files;
use crate::diff::paths::visible;
use crate::diff::{Looks, mark_of};
use crate::one_file::OneFile;
use crate::subject::Subject;
use runs::{Reads, Runs};

pub use error::SendError;

/// Bytes of a page after which it ends.
const PAGE_BYTES: usize = 8 << 20;
/// Steps after which a page ends of which only the size is asked for.
const SIZE_STEPS_MAX: u64 = 100_000;
/// Indices of the two snapshots that are looked at, if there are two.
const NEW: usize = 0;
const OLD: usize = 1;

/// Request for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendWanted<'a> {
    /// The snapshot, as `dataset@name`; or that of a file, as `dataset:path@name`.
    pub snapshot: &'a str,
    /// Only what changed since this older one of the same dataset or file, or a bookmark of the
    /// dataset: `@name`, `#name`, or its full name.
    pub from: Option<&'a str>,
    /// Only the size of the stream is wanted: content is not read.
    pub size_only: bool,
    /// Only what comes from there on: the rest of a stream that broke off.
    pub start: Option<StreamPlace>,
}

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
    /// The bytes; none if only the size is wanted.
    pub bytes: Vec<u8>,
    /// How many bytes of the stream this is.
    pub stream_bytes: u64,
    /// Where the next page begins; `None` after the last one.
    pub next: Option<SendCursor>,
}

/// Subject of a stream, and what the receiver has of it.
enum Sent {
    Dataset {
        dataset: Arc<Dataset>,
        snapshot: Arc<Snapshot>,
        version: Version,
        /// With its version.
        from: Option<(Arc<Snapshot>, Version)>,
    },
    File {
        new: Box<OneFile>,
        old: Option<Box<OneFile>>,
    },
}

impl Sent {
    /// The dataset of what is sent.
    fn dataset(&self) -> &Arc<Dataset> {
        match self {
            Sent::Dataset { dataset, .. } => dataset,
            Sent::File { new, .. } => &new.dataset,
        }
    }

    /// Returns the versions that are looked at: the new one first.
    fn versions(&self) -> Vec<&Version> {
        let (new, old) = match self {
            Sent::Dataset { version, from, .. } => (version, from.as_ref().map(|(_, old)| old)),
            Sent::File { new, old } => (&new.version, old.as_ref().map(|old| &old.version)),
        };
        [Some(new), old].into_iter().flatten().collect()
    }

    /// A number of what it is.
    fn mark(&self) -> u64 {
        let file = if let Sent::File { new, .. } = self { Some(new.object.0) } else { None };
        let guids = self.versions().into_iter().map(|of| of.guid().0);
        mark_of(&guids.chain(file).collect::<Vec<_>>())
    }
}

/// A page in the making.
struct Making<'a> {
    files: &'a Files,
    dataset: &'a Dataset,
    snapshot: &'a str,
    looks: Looks<'a>,
    encoder: Encoder,
    size_only: bool,
    /// The object of which the attributes come once more.
    again: Option<u64>,
    /// Bytes of records of which only the size is wanted.
    unread_bytes: u64,
    /// Pages that are being read.
    pages_to_come: u64,
    steps: u64,
}

impl Files {
    /// A page of the stream of a snapshot.
    ///
    /// # Errors
    /// There is no such snapshot, or the older one is not older; damaged files; a cursor of another
    /// stream; a snapshot that was destroyed meanwhile.
    pub async fn send_page(
        &self,
        wanted: SendWanted<'_>,
        cursor: Option<SendCursor>,
    ) -> Result<SendPage, SendError> {
        let SendWanted { snapshot: name, size_only, .. } = wanted;
        let _turn = self.comparing.lock().await;
        let sent = self.sent(&wanted).await?;
        let mark = sent.mark();
        let looks: Result<Vec<_>, _> =
            sent.versions().into_iter().map(|of| of.look(&self.pool)).collect();
        let looks = Looks::new(&self.pool, looks?);
        let SendCursor { chain, place, .. } = match cursor {
            Some(cursor) if cursor.mark == mark => cursor,
            Some(_) => return Err(SendError::Others(name.into())),
            None => SendCursor { mark, chain: Chain::default(), place: first_place(wanted.start) },
        };
        // Of a page that is full: it ends behind the record that fills it.
        let room = if size_only { 0 } else { PAGE_BYTES + (PAGE_BYTES >> 3) };
        let mut making = Making {
            files: self,
            dataset: sent.dataset(),
            snapshot: name,
            looks,
            encoder: Encoder::after(chain).with_room(room),
            size_only,
            again: cursor.is_none().then_some(place.object).filter(|_| place.within.is_some()),
            unread_bytes: 0,
            pages_to_come: 0,
            steps: 0,
        };
        if cursor.is_none() {
            making.encoder.put(&Record::Begin(self.begin(&wanted, &sent)));
        }
        let next = match &sent {
            Sent::Dataset { from: Some(_), .. } => making.changed_objects(place).await?,
            Sent::Dataset { from: None, .. } => making.objects(place).await?,
            Sent::File { new, old } => making.one_file((old.as_deref(), new), place).await?,
        };
        if next.is_none() {
            making.encoder.end();
        }
        let stream_bytes = making.encoder.len() as u64 + making.unread_bytes;
        let (mut bytes, chain) = making.encoder.into_parts();
        if size_only {
            bytes.clear();
        }
        let next = next.map(|place| SendCursor { mark, chain, place });
        Ok(SendPage { bytes, stream_bytes, next })
    }

    async fn sent(&self, wanted: &SendWanted<'_>) -> Result<Sent, SendError> {
        let name = wanted.snapshot;
        let subject = Subject::parse(&self.datasets, name)?;
        if let Subject::FileSnapshots(of) = subject {
            let new = Box::new(self.one_file(&of).await?);
            let old = self.older_file(wanted, (&of, &new)).await?.map(Box::new);
            return Ok(Sent::File { new, old });
        }
        let one = subject.one_snapshot(name)?;
        let (dataset, snapshot) = self.datasets.snapshot_by_name(&one.full)?;
        let from = self.older(wanted, &dataset, &snapshot)?;
        let version = self.datasets.version(&one.full)?;
        Ok(Sent::Dataset { dataset, snapshot, version, from })
    }

    fn begin(&self, wanted: &SendWanted<'_>, sent: &Sent) -> Begin {
        match sent {
            Sent::Dataset { dataset, snapshot, from, .. } => Begin {
                fs_guid: dataset.fs_guid,
                next_object: dataset.free_id(),
                dataset: self.datasets.full_name(dataset),
                from: from.as_ref().map(|(from, _)| point(from)),
                to: point(snapshot),
                start: wanted.start,
                properties: dataset.local_values(),
            },
            Sent::File { new, old } => self.begin_file(wanted, (old.as_deref(), new)),
        }
    }

    /// The older snapshot, if only what changed since is wanted.
    fn older(
        &self,
        wanted: &SendWanted<'_>,
        dataset: &Dataset,
        snapshot: &Snapshot,
    ) -> Result<Option<(Arc<Snapshot>, Version)>, SendError> {
        let Some(from) = wanted.from else { return Ok(None) };
        let full = FullName::completed(&self.datasets.full_name(dataset), from);
        // A bookmark has all that is compared with; content comes from the newer one.
        let (of, old) = match FullName::of(&full) {
            FullName::Bookmark(..) => self.datasets.bookmark_by_name(&full)?,
            FullName::Dataset(_) | FullName::Snapshot(..) => {
                self.datasets.snapshot_by_name(&full)?
            }
        };
        let both = || (full.clone(), wanted.snapshot.to_string());
        if of.id != dataset.id {
            let (from, snapshot) = both();
            return Err(SendError::AnotherDataset { from, snapshot });
        }
        if old.txg >= snapshot.txg {
            let (from, snapshot) = both();
            return Err(SendError::NotOlder { from, snapshot });
        }
        Ok(Some((old, self.datasets.version(&full)?)))
    }
}

fn first_place(start: Option<StreamPlace>) -> Place {
    let start = start.unwrap_or_default();
    Place { object: start.object.0, within: start.within }
}

fn point(snapshot: &Snapshot) -> Point {
    let record = &snapshot.record;
    Point { guid: record.guid, created: record.created, name: record.name.clone() }
}

impl Making<'_> {
    fn is_full(&self) -> bool {
        let is_long = self.size_only && self.steps >= SIZE_STEPS_MAX;
        let to_come = usize::try_from(self.pages_to_come).unwrap_or(usize::MAX);
        self.encoder.len().saturating_add(to_come.saturating_mul(4096)) >= PAGE_BYTES || is_long
    }

    /// One more step: see [`Looks::step`].
    async fn step(&mut self) -> Result<(), LookError> {
        self.steps += 1;
        self.looks.step().await
    }

    /// Fails if an object lost changes.
    fn check(&self, inode: &Inode) -> Result<(), SendError> {
        match inode.damaged {
            true => {
                let (object, snapshot) = (inode.object.0, self.snapshot.into());
                Err(SendError::Damaged { object, snapshot })
            }
            false => Ok(()),
        }
    }

    /// The objects from a place on, until the page is full. Returns the next place.
    async fn objects(&mut self, place: Place) -> Result<Option<Place>, SendError> {
        let pool = &*self.files.pool;
        let mut within = place.within;
        let mut scan = Scan::<Objects, _>::new(pool, self.looks.objects(NEW), place.object, None)?;
        while let Some(inode) = scan.next().await? {
            self.step().await?;
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
        self.check(&inode)?;
        if within.is_none() || self.again.take() == Some(inode.object.0) {
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
        let (mut found, mut known_to) = (Runs::default(), from);
        let mut reads = Reads::new(pool, &file);
        loop {
            self.step().await?;
            let extent = scan.next().await?;
            match &extent {
                Some(extent) => {
                    let (from_page, to_page) = (known_to.max(extent.page), extent.end());
                    found.add(ChangedPages { from_page, to_page, is_data: true }, end_page);
                    known_to = to_page;
                }
                None => found.close(),
            }
            if extent.is_none() || self.is_full() || found.are_many() {
                self.put_runs(&mut reads, found.take()).await?;
            }
            if extent.is_none() {
                self.put_rest(&mut reads).await?;
                return Ok(None);
            }
            if self.is_full() {
                self.put_rest(&mut reads).await?;
                return Ok(Some(found.open.map_or(known_to, |run| run.from_page)));
            }
        }
    }

    async fn names_in(&mut self, inode: Inode, from: u64) -> Result<Option<u64>, SendError> {
        let (pool, object) = (&*self.files.pool, inode.object);
        let mut scan = Scan::<Directory, _>::new(pool, inode.root, from, None)?;
        let mut entries: Vec<Dirent> = Vec::new();
        while let Some(entry) = scan.next().await? {
            self.step().await?;
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
