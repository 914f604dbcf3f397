//! Streams that may go on where they broke off.
//!
//! With each txg a record says how far the stream has come whose changes are in it and in those
//! before. So an import finds what came, and up to where that is all. A stream that goes on there
//! brings some of it once more, which changes nothing.
//!
//! Invariants:
//! - The record is of no place behind the changes that its txg has: a place enters a txg under a
//!   hold of that one, after all changes before the place were made.
//! - It goes in the txg that ends the receive, well or not.
//! - What is parked is changed by nobody, and stays until somebody goes on with it or gives it up.
//!   It has a name, is listed ([`Datasets::partials`]), and counts to the datasets above.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::FEATURE_RESUMABLE_RECEIVE;
use aquifer_ondisk::dataset::{Item, ItemClass, ItemKey};
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::resume::{ResumeRecord, SENT_BYTES_MAX, StreamPlace};
use aquifer_ondisk::{DatasetId, Guid, ObjectId, Txg};
use aquifer_pool::TxHold;

use crate::dataset::Dataset;
use crate::datasets::{Datasets, State};
use crate::error::DatasetError;
use crate::feeder::Feeder;
use crate::increment::{Coming, Increment, IncrementError, Stage, Wanted as IncrementWanted};
use crate::property::SyncMode;
use crate::receive::{Receiving, Wanted as ReceiveWanted, local_values};
use crate::snapshots::Snapshot;

/// More than anybody has: each keeps space.
const PARTIALS_MAX: usize = 64;

/// A stream that may go on.
#[derive(Debug, Clone)]
pub struct Resumable {
    /// The guid of the snapshot that is sent.
    pub to: Guid,
    /// The full name of that snapshot where it comes from.
    pub sent: String,
}

/// How far a stream has come.
#[derive(Debug)]
pub(crate) struct Resume {
    record: ResumeRecord,
    /// Nobody sends it at the moment.
    is_parked: bool,
}

/// Part of a stream that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial {
    /// The full name of the dataset.
    pub name: String,
    /// How far it has come.
    pub record: ResumeRecord,
    /// Nobody sends it at the moment: its place is on disk, and a stream may go on there.
    pub is_parked: bool,
    /// Bytes that it keeps, of a new dataset.
    pub used_bytes: Option<u64>,
}

impl Dataset {
    /// As an import finds it.
    pub(crate) fn load_resume(&self, record: ResumeRecord) {
        *self.resume.lock() = Some(Resume { record, is_parked: true });
    }

    /// Whether part of a stream waits in it for the rest.
    pub(crate) fn is_parked(&self) -> bool {
        self.resume.lock().as_ref().is_some_and(|resume| resume.is_parked)
    }

    /// How far it has come, and how many pages that is.
    pub fn resumed_place(&self) -> Option<(StreamPlace, u64)> {
        self.resume.lock().as_ref().map(|Resume { record, .. }| (record.place, record.pages))
    }

    /// Whether what comes into it may go on after it broke off.
    pub fn is_resumable(&self) -> bool {
        self.resume.lock().is_some()
    }
}

fn key(id: DatasetId) -> ItemKey {
    ItemKey::new(id, ItemClass::Resume, 0)
}

/// The item of a stream that may go on, gone.
pub(crate) fn no_resume(id: DatasetId) -> (ItemKey, Option<Item>) {
    (key(id), None)
}

fn note(state: &mut State, id: DatasetId, txg: Txg, record: &ResumeRecord) {
    let key = key(id);
    let item = Item { key, value: record.encode() };
    state.queue.write(txg, [(key, Some(item))]);
}

impl Datasets {
    /// Before a stream that may go on begins.
    pub(crate) async fn admit_resumable(
        &self,
        resumable: Option<&Resumable>,
    ) -> Result<(), DatasetError> {
        if resumable.is_none() {
            return Ok(());
        }
        if self.partials().len() >= PARTIALS_MAX {
            return Err(IncrementError::ManyPartials(PARTIALS_MAX).into());
        }
        self.use_feature(FEATURE_RESUMABLE_RECEIVE).await
    }

    /// A stream that may go on begins, in this txg.
    pub(crate) fn begin_resumable(
        &self,
        (dataset, txg): (&Dataset, Txg),
        resumable: Option<&Resumable>,
        (from, own_handles): (Option<Guid>, bool),
    ) {
        let Some(Resumable { to, sent }) = resumable else { return };
        let is_short = sent.len() <= SENT_BYTES_MAX;
        let record = ResumeRecord {
            to: *to,
            from,
            own_handles,
            begun: txg,
            place: StreamPlace::default(),
            pages: 0,
            heard: Time::from_ns(self.pool.world().wall_ns()),
            sent: if is_short { sent.clone() } else { String::new() },
        };
        note(&mut self.state.lock(), dataset.id, txg, &record);
        *dataset.resume.lock() = Some(Resume { record, is_parked: false });
    }

    /// Under a hold: all that comes before a place, with so many pages of content, is in txgs up to
    /// the held one.
    pub fn note_place(&self, dataset: &Dataset, hold: &TxHold, (place, pages): (StreamPlace, u64)) {
        let noted = {
            let mut resume = dataset.resume.lock();
            let record = resume.as_mut().map(|resume| &mut resume.record);
            let Some(record) = record.filter(|record| place > record.place) else { return };
            (record.place, record.pages) = (place, pages);
            record.heard = Time::from_ns(self.pool.world().wall_ns());
            record.clone()
        };
        note(&mut self.state.lock(), dataset.id, hold.txg(), &noted);
    }

    /// A stream broke off: what came waits for the rest. Its place is on disk when this returns.
    ///
    /// # Errors
    /// Errors of the pool. What came waits all the same, up to an earlier place.
    pub async fn park(
        &self,
        dataset: &Dataset,
        place: (StreamPlace, u64),
    ) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        if dataset.is_destroyed() {
            return Ok(());
        }
        let noted = match self.hold_act().await {
            Ok(hold) => {
                self.note_place(dataset, &hold, place);
                Ok(())
            }
            Err(error) => Err(error),
        };
        let noted = match noted {
            Ok(()) => self.act_on_disk().await,
            failed => failed,
        };
        if let Some(resume) = dataset.resume.lock().as_mut() {
            resume.is_parked = true;
        }
        Ok(noted?)
    }

    /// Lists what came of streams that may go on, by names.
    pub fn partials(&self) -> Vec<Partial> {
        let partial = |dataset: &Arc<Dataset>| {
            let name = self.full_name(dataset);
            let resume = dataset.resume.lock();
            let Resume { record, is_parked } = resume.as_ref()?;
            Some(Partial {
                name,
                record: record.clone(),
                is_parked: *is_parked,
                used_bytes: dataset.is_received().then(|| dataset.refer_bytes()),
            })
        };
        let mut partials: Vec<Partial> = self.living().iter().filter_map(partial).collect();
        partials.sort_by(|a, b| a.name.cmp(&b.name));
        partials
    }

    /// The names of a snapshot and of an older one of its dataset, if there are any of these guids:
    /// the one of that name, if it is one of several.
    pub fn named_by_guids(
        &self,
        to: Guid,
        from: Option<Guid>,
        name: &str,
    ) -> Option<(String, Option<String>)> {
        let named = |dataset: Arc<Dataset>| {
            let listed = dataset.snapshots(self.pool.committed_txg());
            let in_list = |list: &[Arc<Snapshot>], sign: char, guid: Guid| {
                let found = list.iter().find(|of| of.record.guid == guid)?;
                Some(format!("{}{sign}{}", self.full_name(&dataset), found.record.name))
            };
            let full = |guid: Guid| in_list(&listed, '@', guid);
            let marked = |guid| in_list(&dataset.bookmarks(self.pool.committed_txg()), '#', guid);
            let from = match from {
                Some(from) => Some(full(from).or_else(|| marked(from))?),
                None => None,
            };
            Some((full(to)?, from))
        };
        self.all().into_iter().filter_map(named).min_by_key(|(to, _)| to != name)
    }

    fn partial(&self, name: &str) -> Option<Arc<Dataset>> {
        let living = self.living();
        living.into_iter().find(|of| of.is_resumable() && self.full_name(of) == name)
    }

    /// Goes on with a new dataset.
    ///
    /// # Errors
    /// Nothing of this stream waits there, or not so much; errors of the pool.
    pub async fn resume_receive(
        &self,
        mut wanted: ReceiveWanted,
        start: StreamPlace,
    ) -> Result<Receiving, DatasetError> {
        let _act = self.acts.lock().await;
        let of = (wanted.name.as_str(), wanted.resumable.as_ref(), None);
        let (dataset, record) = self.parked(of, start)?;
        if record.own_handles {
            wanted.fs_guid = None;
            wanted.snapshot_guid = self.new_guid();
        }
        if !dataset.is_received() || wanted.fs_guid.is_some_and(|guid| guid != dataset.fs_guid) {
            return Err(IncrementError::OtherStream { name: wanted.name, has: record.sent }.into());
        }
        *dataset.local.lock() = local_values(&wanted);
        self.refresh_properties();
        if dataset.properties().sync == SyncMode::Disabled {
            dataset.unlogged.is_from_the_start();
        } else {
            drop(self.log_again(std::slice::from_ref(&dataset)).await?);
        }
        dataset.keep_id(ObjectId(wanted.next_object.saturating_sub(1)));
        self.goes_on(&dataset);
        Ok(Receiving::new(dataset, wanted, record.begun))
    }

    /// Goes on with what changed.
    ///
    /// # Errors
    /// As [`Datasets::resume_receive`].
    pub async fn resume_increment(
        &self,
        wanted: IncrementWanted,
        start: StreamPlace,
    ) -> Result<Increment, DatasetError> {
        let _act = self.acts.lock().await;
        let of = (wanted.name.as_str(), wanted.resumable.as_ref(), Some(wanted.from.1));
        let (dataset, record) = self.parked(of, start)?;
        self.check_feeder_of_partial(wanted.feeder.as_ref(), &dataset)?;
        let comes = dataset.increment.get().is_some_and(|of| of.stage == Stage::Comes);
        if !comes || dataset.fs_guid != wanted.fs_guid {
            return Err(IncrementError::OtherStream { name: wanted.name, has: record.sent }.into());
        }
        dataset.keep_id(ObjectId(wanted.next_object.saturating_sub(1)));
        self.goes_on(&dataset);
        Ok(Increment::new(dataset, wanted))
    }

    /// Fails if what waits belongs to a copy with another feeder.
    fn check_feeder_of_partial(
        &self,
        feeder: Option<&Feeder>,
        dataset: &Dataset,
    ) -> Result<(), DatasetError> {
        let Some(coming) = dataset.increment.get() else { return Ok(()) };
        let from = dataset.snapshots.lock().get(coming.from);
        from.map_or(Ok(()), |from| self.check_feeder(feeder, dataset, &from))
    }

    fn goes_on(&self, dataset: &Dataset) {
        if let Some(resume) = dataset.resume.lock().as_mut() {
            resume.is_parked = false;
        }
    }

    /// Finds the dataset and its record that wait for a stream which begins there.
    fn parked(
        &self,
        (name, stream, from): (&str, Option<&Resumable>, Option<Guid>),
        start: StreamPlace,
    ) -> Result<(Arc<Dataset>, ResumeRecord), DatasetError> {
        let none = || IncrementError::NoPartial(name.into());
        let dataset = self.partial(name).ok_or_else(none)?;
        let resume = dataset.resume.lock();
        let Resume { record, is_parked } = resume.as_ref().ok_or_else(none)?;
        if !is_parked {
            return Err(IncrementError::Busy(name.into()).into());
        }
        if stream.map(|stream| stream.to) != Some(record.to) || record.from != from {
            let (name, has) = (name.into(), record.sent.clone());
            return Err(IncrementError::OtherStream { name, has }.into());
        }
        if start > record.place {
            return Err(IncrementError::BehindPlace(name.into()).into());
        }
        let record = record.clone();
        drop(resume);
        Ok((dataset, record))
    }

    /// Gives up what came of a stream: a new dataset is freed in the background, and a head goes
    /// back to its snapshot. On disk when this returns.
    ///
    /// # Errors
    /// Nothing waits there, or it is being sent just now; errors of the pool.
    pub async fn give_up_partial(&self, name: &str) -> Result<(), DatasetError> {
        self.give_up_partial_by(name, None).await
    }

    /// Gives up what came of a stream, as [`Datasets::give_up_partial`], for a caller that may feed
    /// its own copies alone.
    ///
    /// # Errors
    /// As there; it is of a copy with another feeder.
    pub async fn give_up_partial_by(
        &self,
        name: &str,
        feeder: Option<&Feeder>,
    ) -> Result<(), DatasetError> {
        let look = || {
            let partial = self.partial(name).ok_or_else(|| IncrementError::NoPartial(name.into()));
            partial.map(|of| (of.clone(), vec![of])).map_err(DatasetError::from)
        };
        let (_act, dataset) = self.turn_when_filed(look).await?;
        self.check_feeder_of_partial(feeder, &dataset)?;
        if !dataset.is_parked() {
            return Err(IncrementError::Busy(name.into()).into());
        }
        match dataset.increment.get() {
            Some(coming) => {
                dataset.increment.set(Some(Coming { stage: Stage::Left, ..coming }));
                self.settle(&dataset).await
            }
            None => self.drop_received(&dataset).await,
        }
    }

    /// Takes the record away in the txg that ends a receive.
    pub(crate) fn end_resumable(&self, state: &mut State, dataset: &Dataset, txg: Txg) {
        if dataset.is_resumable() && !left_out(Rule::ResumeEndsWithItsTxg) {
            state.queue.write(txg, [no_resume(dataset.id)]);
        }
    }
}
