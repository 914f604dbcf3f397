//! Receiving a stream ([`aquifer_stream`]) as a dataset.
//!
//! Bytes come in pieces of any size. Each record becomes changes of a dataset that nobody sees, as
//! those of a client but for the log: admission, quotas and the pace of the disks are the same. The
//! last record makes the dataset visible with its snapshot, in one txg
//! ([`aquifer_dataset::Receiving`]).
//!
//! A stream of what changed since a snapshot goes into a dataset that stands by and has that
//! snapshot ([`aquifer_dataset::Increment`]): all of it in one txg, or nothing.
//!
//! Invariants:
//! - A stream is believed only as far as it was checked. Before the dataset becomes visible, its
//!   names, links and directories add up ([`Sums`]): else clients would find a tree that is none.
//! - The receiver alone changes the dataset, one record at a time.

mod changed;
mod error;
mod judged;
mod make;
mod sums;
mod tree;

use std::sync::{Arc, Weak};

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_dataset::{
    Chosen, Dataset, Feeder, Increment, IncrementWanted, ReceiveWanted, Receiving, Resumable,
};
use aquifer_ondisk::resume::StreamPlace;
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_pool::Turns;
use aquifer_stream::{
    Begin, Counts, Decoder, End, Pieces, Point, RECORD_BYTES_MAX, Record, StreamError,
};

use crate::core::Files;
pub use error::ReceiveError;
use sums::Sums;
use tree::Member;
pub use tree::{BundleProgress, TreeReceiver};

/// Bytes of the first record of a stream, at most.
const BEGIN_BYTES_MAX: usize = 2 * RECORD_BYTES_MAX;

/// How a stream is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReceiveOptions {
    /// Checks the whole stream, and changes nothing.
    pub dry: bool,
    /// The dataset gets file handles of its own, and comes into service at once.
    pub new_handles: bool,
    /// Of what changed since a snapshot: drops what was changed here since then.
    pub force: bool,
    /// Keeps the part that came if the stream breaks off, so that the stream may go on
    /// ([`Receiver::leave`]).
    pub resumable: bool,
}

/// The copy that a stream makes or feeds: whose it is, and wishes for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copied {
    /// The one that brings it, if that feeds a copy.
    pub feeder: Option<Feeder>,
    /// The receiver's wishes for properties.
    pub chosen: Chosen,
    /// Any other stream is refused, and any bundle.
    pub expected: Option<Expected>,
}

/// The snapshots of which a stream is to be, by their guids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The one that it brings.
    pub to: Guid,
    /// The one since which it has what changed; `None`: it has all.
    pub from: Option<Guid>,
}

/// A dataset was received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Received {
    /// The full name of the snapshot.
    pub snapshot: String,
    /// The full name that it had where it comes from.
    pub sent: String,
    /// The full name of the snapshot there since which it has what changed.
    pub since: Option<String>,
    /// Counts of what came.
    pub counts: Counts,
    /// The dataset had the snapshot already, or a later one: the stream was passed over.
    pub was_there: bool,
    /// The full name of the later one, if the snapshot itself is not there.
    pub later: Option<String>,
}

/// Takes the bytes of a stream.
#[derive(Debug)]
pub struct Receiver {
    /// It keeps no pool in service.
    files: Weak<Files>,
    /// The full name of the dataset.
    name: String,
    options: ReceiveOptions,
    copied: Copied,
    /// Facts that a bundle states about the stream.
    member: Option<Member>,
    decoder: Decoder,
    /// Report on the stream for the caller.
    about: Received,
    /// The guid of the newest snapshot that came.
    newest: Option<Guid>,
    /// Bytes that came behind the end of a stream, if it is not known yet what they are.
    behind: Pieces,
    way: Way,
    sums: Sums,
    /// All before that was made, and so many pages.
    place: (StreamPlace, u64),
    /// The stream is the rest of one that broke off.
    goes_on: bool,
    /// Whether the one that brings it fed the copy before.
    fed_before: Option<bool>,
}

/// Where records go.
#[derive(Debug)]
enum Way {
    /// None came.
    Unknown,
    /// Nowhere: all of a new dataset is only checked.
    Nowhere,
    /// Into a new dataset.
    New(Receiving),
    /// They are compared with this dataset, and only checked.
    Compared(Arc<Dataset>),
    /// Into a dataset that was there.
    Into(Increment),
}

impl Way {
    /// The dataset with which records are compared.
    fn old(&self) -> Option<&Arc<Dataset>> {
        match self {
            Way::Unknown | Way::Nowhere | Way::New(_) => None,
            Way::Compared(dataset) => Some(dataset),
            Way::Into(increment) => Some(increment.dataset()),
        }
    }

    /// The dataset that is changed.
    fn changes(&self) -> Option<&Arc<Dataset>> {
        match self {
            Way::Unknown | Way::Nowhere | Way::Compared(_) => None,
            Way::New(receiving) => Some(receiving.dataset()),
            Way::Into(increment) => Some(increment.dataset()),
        }
    }
}

/// Where a stream goes on behind a record; `None`: where it did before.
fn place_behind(record: &Record) -> Option<(StreamPlace, u64)> {
    let within = |object, within| StreamPlace { object, within: Some(within) };
    let after = |object: ObjectId| StreamPlace {
        object: ObjectId(object.0.saturating_add(1)),
        within: None,
    };
    Some(match record {
        Record::Object(inode) if left_out(Rule::PlaceFollowsChanges) => (after(inode.object), 0),
        Record::Object(inode) => (within(inode.object, 0), 0),
        Record::Remove { object, .. } => (after(*object), 0),
        Record::Data { object, page, content } => {
            let pages = (content.len() / 4096) as u64;
            (within(*object, page.saturating_add(pages)), pages)
        }
        Record::Hole { object, page, pages } => (within(*object, page.saturating_add(*pages)), 0),
        // Those that are gone came before, up to the same key.
        Record::Entries { object, entries } => {
            (within(*object, entries.last()?.key.saturating_add(1)), 0)
        }
        Record::Drops { .. } | Record::Begin(_) | Record::End(_) => return None,
    })
}

impl Receiver {
    /// For a dataset of this full name.
    pub fn new(files: &Arc<Files>, name: String, options: ReceiveOptions) -> Receiver {
        let sums = Sums::new(files.pool.world().random());
        Receiver {
            files: Arc::downgrade(files),
            name,
            options,
            copied: Copied::default(),
            member: None,
            decoder: Decoder::default(),
            about: Received::default(),
            newest: None,
            behind: Pieces::default(),
            way: Way::Unknown,
            sums,
            place: (StreamPlace::default(), 0),
            goes_on: false,
            fed_before: None,
        }
    }

    /// For a copy of this one.
    pub(crate) fn of_copy(self, copied: Copied) -> Receiver {
        Receiver { copied, ..self }
    }

    /// Whether the one that brings it fed the copy before it came: it may say what of that the copy
    /// needs no more.
    pub(crate) fn has_fed_before(&self) -> bool {
        self.fed_before == Some(true)
    }

    /// Takes more bytes. After an error the caller gives it up ([`Receiver::abort`]).
    ///
    /// # Errors
    /// The stream is damaged, or cannot be received here; no room.
    pub async fn push(&mut self, bytes: impl Into<Pieces>) -> Result<(), ReceiveError> {
        let files = self.files()?;
        let mut turns = Turns::new(&files.pool);
        match self.decoder.has_ended() {
            true => self.behind.append(bytes.into()),
            false => self.decoder.push(bytes),
        }
        while let Some(record) = self.next_record().await? {
            match record {
                Record::Begin(begin) => self.begin(&files, begin).await?,
                Record::End(End { counts, .. }) => self.about.counts.add(&counts),
                record => {
                    let behind = place_behind(&record);
                    self.take(&files, record).await?;
                    self.passes(behind);
                }
            }
            turns.step(&files.pool).await;
        }
        Ok(())
    }

    /// The next record. Behind the end of a stream another one may come, of what changed since.
    /// What the first one brought is on disk before anything of the next one is taken.
    async fn next_record(&mut self) -> Result<Option<Record>, ReceiveError> {
        if !self.decoder.has_ended() {
            return Ok(self.decoder.next_record()?);
        }
        self.behind.append(self.decoder.take_rest());
        if self.member.is_some() {
            return Ok(None);
        }
        let mut next = Decoder::default();
        next.push(self.behind.clone());
        let trailing = || Err(StreamError::Trailing.into());
        let begin = match next.next_record() {
            Ok(None) if self.behind.len() <= BEGIN_BYTES_MAX => return Ok(None),
            Ok(Some(Record::Begin(begin))) => begin,
            _ => return trailing(),
        };
        if self.newest.is_none() || begin.from.as_ref().map(|from| from.guid) != self.newest {
            return trailing();
        }
        if self.options.dry {
            return Err(ReceiveError::DryRow);
        }
        self.end().await?;
        (self.decoder, self.behind) = (next, Pieces::default());
        self.sums = Sums::new(self.files()?.pool.world().random());
        Ok(Some(Record::Begin(begin)))
    }

    /// All of a record was made.
    fn passes(&mut self, behind: Option<(StreamPlace, u64)>) {
        // Of a stream that goes on, what was there already comes once more.
        if let Some((place, pages)) = behind.filter(|(place, _)| *place > self.place.0) {
            self.place = (place, self.place.1.saturating_add(pages));
        }
    }

    async fn take(&mut self, files: &Files, record: Record) -> Result<(), ReceiveError> {
        if self.about.was_there {
            return Ok(());
        }
        if let Some(dataset) = self.way.old().cloned() {
            return self.take_changed((files, &dataset), record).await;
        }
        if !self.goes_on {
            self.sums.take(&record).map_err(ReceiveError::Contradicts)?;
        }
        let Way::New(receiving) = &self.way else { return Ok(()) };
        let dataset = receiving.dataset().clone();
        let to = (files, &dataset);
        match record {
            Record::Object(inode) => {
                let old = if self.goes_on { self.found(to, inode.object).await? } else { None };
                self.make_object(to, *inode, old).await
            }
            Record::Data { object, page, content } => self.data(to, object, page, &content).await,
            Record::Entries { object, entries } => self.entries(to, object, entries).await,
            // Only what changed has others.
            _ => Ok(()),
        }
    }

    /// No more bytes come: what was sent becomes visible, and is on disk when this returns. After
    /// an error the caller gives it up.
    ///
    /// # Errors
    /// The stream has not ended, or contradicts itself.
    pub async fn finish(&mut self) -> Result<Received, ReceiveError> {
        self.decoder.finish()?;
        if !self.behind.is_empty() {
            return Err(StreamError::Trailing.into());
        }
        self.end().await?;
        Ok(self.about.clone())
    }

    /// All of a stream has come.
    async fn end(&mut self) -> Result<(), ReceiveError> {
        if self.goes_on
            && let Some(dataset) = self.way.changes().cloned()
        {
            let old = match &self.way {
                Way::Into(increment) => increment.old_objects(),
                _ => None,
            };
            let files = self.files()?;
            self.judge((&files, &dataset), old).await?;
        }
        if !self.about.was_there {
            self.sums.check().map_err(ReceiveError::Contradicts)?;
            self.check_ways(self.way.old()).await?;
        }
        match &self.way {
            Way::New(receiving) => self.files()?.datasets.finish_receive(receiving).await?,
            Way::Into(increment) => {
                let datasets = &self.files()?.datasets;
                // Of a row, what was so before its first stream.
                let fed_before = || datasets.has_fed_before(increment);
                self.fed_before.get_or_insert_with(fed_before);
                datasets.finish_increment(increment).await?;
            }
            _ => {}
        }
        self.way = Way::Unknown;
        (self.goes_on, self.place) = (false, (StreamPlace::default(), 0));
        Ok(())
    }

    /// The stream breaks off, perhaps by an error. If it may go on, what came stays, and is on disk
    /// when this returns; else it is given up. Returns whether it stays.
    ///
    /// # Errors
    /// Errors of the pool: then the next import does the same.
    pub async fn leave(&mut self, why: Option<&ReceiveError>) -> Result<bool, ReceiveError> {
        let dataset = self.way.changes().filter(|of| of.is_resumable()).cloned();
        let stays = why.is_none_or(ReceiveError::may_pass);
        let Some(dataset) = dataset.filter(|_| stays) else {
            return self.abort().await.map(|()| false);
        };
        self.way = Way::Unknown;
        self.files()?.datasets.park(&dataset, self.place).await?;
        Ok(true)
    }

    /// Gives up: what came is freed in the background, and what it was received into is as before.
    ///
    /// # Errors
    /// Errors of the pool: then the next import does that.
    pub async fn abort(&mut self) -> Result<(), ReceiveError> {
        match std::mem::replace(&mut self.way, Way::Unknown) {
            Way::New(receiving) => self.files()?.datasets.abort_receive(&receiving).await?,
            Way::Into(increment) => self.files()?.datasets.abort_increment(&increment).await?,
            _ => {}
        }
        Ok(())
    }

    /// The full name of the dataset.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn files(&self) -> Result<Arc<Files>, ReceiveError> {
        self.files.upgrade().ok_or(ReceiveError::Left)
    }

    async fn begin(&mut self, files: &Files, begin: Begin) -> Result<(), ReceiveError> {
        let full = |point: &Point| format!("{}@{}", begin.dataset, point.name);
        let is_first = self.about.sent.is_empty();
        self.newest = Some(begin.to.guid).filter(|_| !self.options.new_handles);
        self.about.snapshot = format!("{}@{}", self.name, begin.to.name);
        self.about.sent = full(&begin.to);
        if is_first {
            self.about.since = begin.from.as_ref().map(full);
        }
        self.check_expected(&begin)?;
        if self.is_passed_over(files, &begin)? {
            return Ok(());
        }
        if begin.start.is_some() && self.options.dry {
            return Err(ReceiveError::DryRest);
        }
        self.goes_on = begin.start.is_some();
        match begin.from.clone() {
            Some(from) => self.begin_changed(files, begin, from).await,
            None => self.begin_new(files, begin).await,
        }
    }

    /// Fails if another stream was asked for.
    fn check_expected(&self, begin: &Begin) -> Result<(), ReceiveError> {
        let is = Expected { to: begin.to.guid, from: begin.from.as_ref().map(|from| from.guid) };
        match self.copied.expected.filter(|expected| *expected != is) {
            None => Ok(()),
            Some(_) => Err(ReceiveError::Contradicts(format!(
                "it is of {:?}, and other snapshots were asked for",
                self.about.sent
            ))),
        }
    }

    async fn begin_new(&mut self, files: &Files, begin: Begin) -> Result<(), ReceiveError> {
        let resumable = self.resumable(&begin);
        let Begin { fs_guid, next_object, to, start, properties, .. } = begin;
        let has_own = self.options.new_handles && start.is_none();
        let wanted = ReceiveWanted {
            name: self.name.clone(),
            fs_guid: (!has_own).then_some(fs_guid),
            next_object,
            snapshot: to.name,
            snapshot_guid: if has_own { random_guid(files) } else { to.guid },
            snapshot_created: to.created,
            properties,
            resumable,
            feeder: self.copied.feeder.clone(),
            chosen: self.copied.chosen.clone(),
        };
        let datasets = &files.datasets;
        self.way = match (self.options.dry, start) {
            (true, _) if self.waits_for_above(files) => Way::Nowhere,
            (true, _) => datasets.check_receive(&wanted).map(|()| Way::Nowhere)?,
            (false, None) => Way::New(datasets.begin_receive(wanted).await?),
            (false, Some(start)) => {
                let receiving = datasets.resume_receive(wanted, start).await?;
                self.newest = self.newest.filter(|_| !receiving.has_own_handles());
                Way::New(receiving)
            }
        };
        self.begins_at();
        Ok(())
    }

    async fn begin_changed(
        &mut self,
        files: &Files,
        begin: Begin,
        from: Point,
    ) -> Result<(), ReceiveError> {
        let resumable = self.resumable(&begin);
        let Begin { fs_guid, next_object, dataset, to, start, properties, .. } = begin;
        if self.options.new_handles {
            return Err(ReceiveError::NewHandles(format!("{dataset}@{}", from.name)));
        }
        let wanted = IncrementWanted {
            name: self.name.clone(),
            fs_guid,
            next_object,
            sent: dataset,
            from: (from.name, from.guid),
            snapshot: to.name,
            snapshot_guid: to.guid,
            snapshot_created: to.created,
            properties,
            force: self.options.force,
            resumable,
            feeder: self.copied.feeder.clone(),
            chosen: self.copied.chosen.clone(),
        };
        self.sums.of_changes();
        let datasets = &files.datasets;
        self.way = match (self.options.dry, start) {
            (true, _) => Way::Compared(datasets.check_increment(&wanted).await?),
            (false, None) => Way::Into(datasets.begin_increment(wanted).await?),
            (false, Some(start)) => Way::Into(datasets.resume_increment(wanted, start).await?),
        };
        self.begins_at();
        Ok(())
    }

    /// How it may go on, if it may.
    fn resumable(&self, begin: &Begin) -> Option<Resumable> {
        let sent = format!("{}@{}", begin.dataset, begin.to.name);
        let may = self.options.resumable || begin.start.is_some();
        may.then_some(Resumable { to: begin.to.guid, sent })
    }

    /// How far it came before.
    fn begins_at(&mut self) {
        let place = self.way.changes().and_then(|dataset| dataset.resumed_place());
        self.place = place.unwrap_or_default();
    }
}

fn random_guid(files: &Files) -> Guid {
    Guid(files.pool.world().random().max(1))
}
