//! Receiving a stream ([`aquifer_stream`]) as a dataset.
//!
//! Bytes come in pieces of any size. Each record becomes changes of a dataset that nobody sees, as
//! those of a client but for the log: admission, quotas and the pace of the disks are the same. The
//! last record makes the dataset visible with its snapshot, in one txg
//! ([`aquifer_dataset::Receiving`]).
//!
//! Invariants:
//! - A stream is believed only as far as it was checked. Before the dataset becomes visible, its
//!   names, links and directories add up ([`Sums`]): else clients would find a tree that is none.
//! - The receiver alone changes the dataset, one record at a time.

mod sums;

use std::sync::{Arc, Weak};

use aquifer_blockio::Page;
use aquifer_dataset::{Dataset, DatasetError, ReceiveWanted, Receiving, Refused};
use aquifer_object::{DirtyPage, Object};
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::Inode;
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_pool::{Demand, Lane, PoolError, SpaceClass};
use aquifer_stream::{Begin, Counts, Decoder, End, Record, StreamError};

use crate::change::Change;
use crate::core::{CHANGE_BYTES, Files, TREE_SECTORS};
use crate::ops::write::dirty_page;
use sums::Sums;

/// How a stream is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiveOptions {
    /// Checks the whole stream, and changes nothing.
    pub dry: bool,
    /// The dataset gets file handles of its own, and comes into service at once.
    pub new_handles: bool,
}

/// A dataset was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The full name of the snapshot.
    pub snapshot: String,
    /// The full name that it had where it comes from.
    pub sent: String,
    /// What came.
    pub counts: Counts,
}

/// A stream cannot be received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// It is not one, or is damaged.
    #[error("{0}")]
    Stream(#[from] StreamError),
    /// Its records contradict each other.
    #[error("the stream is invalid: {0}")]
    Contradicts(String),
    /// A name, or an act on the pool's datasets.
    #[error("{0}")]
    Dataset(DatasetError),
    /// It has only what changed since another snapshot.
    #[error(
        "the stream has only what changed since {from:?}, and this release receives whole \
         snapshots: send without -i"
    )]
    Incremental {
        /// The full name of that snapshot.
        from: String,
    },
    /// A quota.
    #[error(
        "{0:?} would be larger than its quota, or one above it, allows: raise the quota, or \
         receive elsewhere"
    )]
    Quota(String),
    /// The pool is full, or the rest of it is reserved.
    #[error("the pool has no room for {0:?}: free some, or add disks")]
    NoSpace(String),
    /// The pool was exported.
    #[error("the pool went out of service: import it, and receive the whole stream again")]
    Left,
    /// The pool failed.
    #[error("{0}")]
    Pool(PoolError),
}

impl From<DatasetError> for ReceiveError {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::Pool(error) => ReceiveError::Pool(error),
            other => ReceiveError::Dataset(other),
        }
    }
}

/// Takes the bytes of a stream.
#[derive(Debug)]
pub struct Receiver {
    /// It keeps no pool in service.
    files: Weak<Files>,
    /// The full name of the dataset.
    name: String,
    options: ReceiveOptions,
    decoder: Decoder,
    sent: String,
    wanted: Option<ReceiveWanted>,
    receiving: Option<Receiving>,
    sums: Sums,
    counts: Counts,
}

impl Receiver {
    /// For a dataset of this full name.
    pub fn new(files: &Arc<Files>, name: String, options: ReceiveOptions) -> Receiver {
        let sums = Sums::new(files.pool.world().random());
        Receiver {
            files: Arc::downgrade(files),
            name,
            options,
            decoder: Decoder::default(),
            sent: String::new(),
            wanted: None,
            receiving: None,
            sums,
            counts: Counts::default(),
        }
    }

    /// Takes more bytes. After an error the caller gives it up ([`Receiver::abort`]).
    ///
    /// # Errors
    /// The stream is damaged, or cannot be received here; no room.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), ReceiveError> {
        let files = self.files()?;
        self.decoder.push(bytes);
        while let Some(record) = self.decoder.next_record()? {
            self.sums.take(&record).map_err(ReceiveError::Contradicts)?;
            match record {
                Record::Begin(begin) => self.begin(&files, begin).await?,
                Record::End(End { counts, .. }) => self.counts = counts,
                record if self.options.dry => drop(record),
                record => self.make(&files, record).await?,
            }
        }
        Ok(())
    }

    /// No more bytes come: the dataset becomes visible, and is on disk when this returns. After an
    /// error the caller gives it up.
    ///
    /// # Errors
    /// The stream has not ended, or contradicts itself.
    pub async fn finish(&mut self) -> Result<Received, ReceiveError> {
        self.decoder.finish()?;
        self.sums.check().map_err(ReceiveError::Contradicts)?;
        if let Some(receiving) = &self.receiving {
            self.files()?.datasets.finish_receive(receiving).await?;
            self.receiving = None;
        }
        let wanted = self.wanted.as_ref();
        let snapshot = wanted.map_or_else(String::new, |wanted| wanted.snapshot.clone());
        Ok(Received {
            snapshot: format!("{}@{snapshot}", self.name),
            sent: self.sent.clone(),
            counts: self.counts,
        })
    }

    /// Gives up: what came is freed in the background.
    ///
    /// # Errors
    /// Errors of the pool: then the next import frees it.
    pub async fn abort(&mut self) -> Result<(), ReceiveError> {
        let Some(receiving) = self.receiving.take() else { return Ok(()) };
        Ok(self.files()?.datasets.abort_receive(&receiving).await?)
    }

    fn files(&self) -> Result<Arc<Files>, ReceiveError> {
        self.files.upgrade().ok_or(ReceiveError::Left)
    }

    async fn begin(&mut self, files: &Files, begin: Begin) -> Result<(), ReceiveError> {
        let Begin { fs_guid, next_object, dataset, from, to, properties } = begin;
        self.sent = format!("{dataset}@{}", to.name);
        if let Some(from) = from {
            return Err(ReceiveError::Incremental { from: format!("{dataset}@{}", from.name) });
        }
        let wanted = ReceiveWanted {
            name: self.name.clone(),
            fs_guid: (!self.options.new_handles).then_some(fs_guid),
            next_object,
            snapshot: to.name,
            snapshot_guid: if self.options.new_handles { random_guid(files) } else { to.guid },
            snapshot_created: to.created,
            properties,
        };
        let datasets = &files.datasets;
        match self.options.dry {
            true => datasets.check_receive(&wanted)?,
            false => self.receiving = Some(datasets.begin_receive(wanted.clone()).await?),
        }
        self.wanted = Some(wanted);
        Ok(())
    }

    /// Carries out a record.
    async fn make(&self, files: &Files, record: Record) -> Result<(), ReceiveError> {
        let Some(receiving) = &self.receiving else { return Ok(()) };
        let to = (files, receiving.dataset());
        match record {
            Record::Object(inode) => self.object(to, *inode).await,
            Record::Data { object, page, content } => {
                let pages = content.chunks(4096).map(|page| dirty_page(Page::with_prefix(page)));
                let pages = (page..).zip(pages).collect();
                self.pages(to, object, pages).await
            }
            Record::Entries { object, entries } => self.entries(to, object, entries).await,
            // An incremental stream alone has others.
            _ => Ok(()),
        }
    }

    async fn object(&self, to: To<'_>, inode: Inode) -> Result<(), ReceiveError> {
        let (_, dataset) = to;
        dataset.keep_id(inode.object);
        let made = dataset.object_or_new(&inode);
        let tree = made.inode();
        let inode = Inode { root: tree.root, refer_bytes: tree.refer_bytes, ..inode };
        let demand = demand(CHANGE_BYTES, 2 * TREE_SECTORS);
        self.change(to, demand, &[Change::Inode(inode)]).await
    }

    async fn pages(
        &self,
        (files, dataset): To<'_>,
        object: ObjectId,
        pages: Vec<(u64, DirtyPage)>,
    ) -> Result<(), ReceiveError> {
        let (count, bytes) = (pages.len() as u64, pages.len() as u64 * 4096);
        let promise = match files.datasets.promise(dataset, bytes).await {
            Ok(promise) => promise,
            Err(Refused::Quota) => return Err(ReceiveError::Quota(self.name.clone())),
            Err(Refused::Reserved) => return Err(ReceiveError::NoSpace(self.name.clone())),
            Err(Refused::Pool(error)) => return Err(self.pool_error(error)),
        };
        // It may have left memory since its last record.
        let file = self.in_memory((files, dataset), object).await?;
        let demand = demand(bytes + CHANGE_BYTES, count + 2 * TREE_SECTORS);
        let admission = files.pool.admit(demand).await.map_err(|of| self.pool_error(of))?;
        let _writer = file.writer.lock().await;
        let hold = files.pool.hold(admission).map_err(|of| self.pool_error(of))?;
        self.check_alive(dataset)?;
        promise.spend(hold.txg());
        files.apply(dataset, &hold, &[Change::Pages(object, pages)], None);
        Ok(())
    }

    async fn entries(
        &self,
        to: To<'_>,
        object: ObjectId,
        entries: Vec<Dirent>,
    ) -> Result<(), ReceiveError> {
        let directory = self.in_memory(to, object).await?;
        let bytes = entries.len() as u64 * ENTRY_BYTES + CHANGE_BYTES;
        let demand = demand(bytes, entries.len() as u64 / 8 + 2 * TREE_SECTORS);
        let changes: Vec<Change> =
            entries.into_iter().map(|entry| Change::Entry(object, entry)).collect();
        let done = self.change(to, demand, &changes).await;
        drop(directory);
        done
    }

    /// Makes changes of one object, which is in memory.
    async fn change(
        &self,
        (files, dataset): To<'_>,
        demand: Demand,
        changes: &[Change],
    ) -> Result<(), ReceiveError> {
        let admission = files.pool.admit(demand).await.map_err(|of| self.pool_error(of))?;
        let hold = files.pool.hold(admission).map_err(|of| self.pool_error(of))?;
        self.check_alive(dataset)?;
        files.apply(dataset, &hold, changes, None);
        Ok(())
    }

    async fn in_memory(
        &self,
        (files, dataset): To<'_>,
        id: ObjectId,
    ) -> Result<Arc<Object>, ReceiveError> {
        let found = dataset.object(&files.pool, id).await;
        let found = found.map_err(|error| self.pool_error(error))?;
        found.ok_or_else(|| self.ended())
    }

    /// Under a hold: fails if the dataset was destroyed, with one above it.
    fn check_alive(&self, dataset: &Dataset) -> Result<(), ReceiveError> {
        if dataset.is_destroyed() { Err(self.ended()) } else { Ok(()) }
    }

    fn ended(&self) -> ReceiveError {
        ReceiveError::Dataset(DatasetError::ReceiveEnded(self.name.clone()))
    }

    fn pool_error(&self, error: PoolError) -> ReceiveError {
        match error {
            PoolError::NoSpace => ReceiveError::NoSpace(self.name.clone()),
            error => ReceiveError::Pool(error),
        }
    }
}

/// The files of the pool, and the dataset that is received.
type To<'a> = (&'a Files, &'a Arc<Dataset>);

fn random_guid(files: &Files) -> Guid {
    Guid(files.pool.world().random().max(1))
}

/// Memory that an entry takes until it is on disk.
const ENTRY_BYTES: u64 = 512;

fn demand(dirty_bytes: u64, sectors: u64) -> Demand {
    let (class, lane) = (SpaceClass::Write, Lane::Bulk);
    Demand { dirty_bytes, sectors, log_bytes: 0, class, lane }
}
