//! Receiving streams: each has a session, to which its client gives part after part.
//!
//! Invariants:
//! - A stream is its bringer's ([`streams`]). That is looked at before a byte of a part is read.
//! - The memory of parts is bounded ([`room`]).
//! - A part is taken in to its end, also if its client hangs up: nothing is taken in by half.
//! - A session ends with its stream, its first error, or when its client is silent for
//!   [`SILENCE_MAX`]. What came is given up then, or waits for the rest if the stream may go on.
//! - A session keeps no pool in service: after an export its next part fails, and the next import
//!   frees what came, or keeps it for the rest.
//! - What a copy needs no more goes by exact names, one snapshot each ([`prune`]).

mod bringer;
mod handles;
mod list;
mod prune;
mod room;
mod streams;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aquifer_api::send::PART_BYTES_MAX;
use aquifer_api::{
    ApiError, DatasetDone, GiveUpReceive, ReceiveBegun, ReceiveEnd, ReceiveRequest, ReceiveSummary,
    ReceivedPart,
};
use aquifer_dataset::Chosen;
use aquifer_files::{Copied, Expected, Pieces, ReceiveOptions, TreeReceiver};
use aquifer_pool::Memory;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::datasets::act_on;
use super::{Control, Scope, errors, properties};
pub use bringer::Bringer;
pub(super) use handles::keep_handles_apart;
use room::{Lease, Room};
use streams::{Place, Session, Streams};
use told::{left, summary, unfinished, unknown};

/// A client that is silent for longer is gone. Clients that wait for data themselves say so.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// See [`Control::received_name`].
const NOTED_AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// More copies than anybody has.
const NOTED_MAX: usize = 4096;
/// Streams at a time: each takes some megabytes of memory.
const STREAMS_MAX: usize = 6;

/// The streams that are being received.
#[derive(Debug)]
pub(super) struct Sessions {
    streams: Streams,
    room: Room,
    /// When the history had what a sender sends to a dataset.
    noted: Mutex<BTreeMap<String, Instant>>,
}

impl Sessions {
    /// Nothing is received yet. Parts of streams are charged to this memory.
    pub fn new(memory: &Arc<Memory>) -> Sessions {
        Sessions { streams: Streams::default(), room: Room::new(memory), noted: Mutex::default() }
    }
}

/// Leave to bring one part: its memory, and the turn of its stream.
#[derive(Debug)]
pub struct PartLeave {
    id: u64,
    session: Arc<Session>,
    lease: Lease,
    _turn: OwnedMutexGuard<()>,
}

impl PartLeave {
    /// Some bytes of the part came.
    pub fn hear(&self) {
        self.session.hear();
    }
}

impl Control {
    /// Begins to receive a stream as a dataset.
    ///
    /// # Errors
    /// There is no such pool; too many streams at a time; what waits there is another one's.
    pub async fn begin_receive(
        self: &Arc<Self>,
        request: ReceiveRequest,
        bringer: &Bringer,
    ) -> Result<ReceiveBegun, ApiError> {
        self.begin_expected(request, bringer, None).await
    }

    /// As [`Control::begin_receive`], of a stream that has these snapshots and no others.
    pub(super) async fn begin_expected(
        self: &Arc<Self>,
        request: ReceiveRequest,
        bringer: &Bringer,
        expected: Option<Expected>,
    ) -> Result<ReceiveBegun, ApiError> {
        let serving = self.pool_of(&request.name)?;
        self.check_answers(serving.name())?;
        self.check_partial(&request.name, bringer)?;
        if request.sender.is_some() && !request.dry_run {
            self.give_up_earlier(&request, bringer).await;
        }
        properties::check_new(&request.name, &request.properties, &self.config.peers)?;
        let chosen = Chosen::parse(&request.properties, &request.exclude);
        let chosen = chosen.map_err(errors::api_error)?;
        let feeds = request.sender.is_some() || !bringer.is_admin();
        let options = ReceiveOptions {
            dry: request.dry_run,
            new_handles: request.new_handles,
            force: request.force,
            resumable: request.resumable,
        };
        let feeder = feeds.then(|| bringer.feeder());
        let copied = Copied { feeder, chosen, expected };
        let files = &serving.service().files;
        let receiver = TreeReceiver::new(files, request.name.clone(), options).of_copy(copied);
        let of = (bringer.clone(), receiver);
        let session = Arc::new(Session::new(serving.name().into(), &request, of));
        let id = loop {
            match self.receiving.streams.enter(&session)? {
                Place::Taken(id) => break id,
                Place::After(idle) => self.end_idle(idle),
            }
        };
        if request.resumable {
            let waits = |name: &str| self.partial(name).is_some();
            self.receiving.streams.owns(&request.name, bringer, waits);
        }
        tokio::spawn(Arc::clone(self).watch(id, session));
        Ok(ReceiveBegun { id, part_bytes: PART_BYTES_MAX as u64 })
    }

    /// Gives up what a sender sent before into a dataset: it begins again.
    async fn give_up_earlier(&self, request: &ReceiveRequest, bringer: &Bringer) {
        let is_it = |of: &Session| {
            of.name() == Some(&request.name)
                && of.sender == request.sender
                && of.bringer == *bringer
        };
        for (id, _) in self.receiving.streams.those(is_it) {
            // It may have ended meanwhile.
            let _ = self.give_up(id).await;
        }
    }

    /// A stream that brings nothing loses its place. Its pool may be silent: nobody waits for it.
    fn end_idle(self: &Arc<Self>, id: u64) {
        let Some(session) = self.receiving.streams.get(id) else { return };
        tracing::warn!(
            class = "receive.idle",
            pool = session.pool,
            dataset = session.into,
            by = session.bringer.principal(),
            "a stream that brings nothing ends: what came is given up, or waits if it may go on"
        );
        // It may have ended meanwhile.
        if self.receiving.streams.leave(id) {
            let control = Arc::clone(self);
            tokio::spawn(async move { control.end_left(id, &session).await });
        }
    }

    /// The dataset that a stream makes, if it is being received, and the history is to have it:
    /// what the same sender sends again and again is noted once an hour, so that it does not push
    /// out what people did.
    pub fn received_name(&self, id: u64) -> Option<String> {
        let session = self.receiving.streams.get(id)?;
        let name = session.name()?.clone();
        let Some(sender) = &session.sender else { return Some(name) };
        let mut noted = self.receiving.noted.lock();
        noted.retain(|_, at| at.elapsed() < NOTED_AGAIN_AFTER);
        let what = format!("{name} {sender}");
        let is_known = noted.contains_key(&what) || noted.len() >= NOTED_MAX;
        (!is_known && noted.insert(what, Instant::now()).is_none()).then_some(name)
    }

    /// The pool that a stream goes into, if it is being received.
    pub fn received_into(&self, id: u64) -> Option<String> {
        self.receiving.streams.get(id).map(|session| session.pool.clone())
    }

    /// Fails if a stream goes into a dataset outside of a scope: there is none then.
    ///
    /// # Errors
    /// As of a stream that is over.
    pub fn check_stream(&self, id: u64, scope: &Scope) -> Result<(), ApiError> {
        let session = self.receiving.streams.get(id);
        let other = session.filter(|session| !scope.covers(&session.into));
        other.map_or(Ok(()), |_| Err(unknown()))
    }

    /// Before a part of so many bytes is read: whether its stream is there, and this one's, and
    /// memory for it.
    ///
    /// # Errors
    /// It is over, or another one's; another part of it comes just now.
    pub async fn admit_part(
        &self,
        id: u64,
        bringer: &Bringer,
        bytes: usize,
    ) -> Result<PartLeave, ApiError> {
        let session = self.receiving.streams.of(id, bringer)?;
        session.hear();
        // Without memory, which is for parts of pools that answer.
        self.until_it_answers(&session.pool, room::PATIENCE).await?;
        let Ok(turn) = session.body.clone().try_lock_owned() else {
            return Err(ApiError::conflict("another part of this stream comes just now"));
        };
        let lease = self.receiving.room.lease(bytes).await?;
        session.hear();
        Ok(PartLeave { id, session, lease, _turn: turn })
    }

    /// Takes in bytes of a stream, perhaps none: then the client only says that it is there. It
    /// returns when those of the call before were taken in: the next ones come while these are.
    ///
    /// # Errors
    /// The stream cannot be received, by this part or the one before. What came is given up.
    pub async fn receive_part(
        &self,
        leave: PartLeave,
        part: Pieces,
    ) -> Result<ReceivedPart, ApiError> {
        let PartLeave { id, session, lease, _turn } = leave;
        if self.receiving.streams.get(id).is_none() {
            return Err(unknown());
        }
        session.hear();
        let bytes = part.len() as u64;
        let mut before = session.part.lock().await;
        self.part_before(id, &mut before).await?;
        if bytes == 0 {
            return Ok(ReceivedPart { bytes });
        }
        session.brings();
        let (at, serving) = (session.clone(), self.serving(&session.pool)?);
        let take = async move {
            let mut receiver = at.receiver.lock().await;
            let taken = match receiver.as_mut() {
                None => return Err(unknown()),
                Some(receiver) => receiver.push(part).await,
            };
            drop(lease);
            let taken = match taken {
                Ok(()) => Ok(()),
                Err(error) => Err(left(&mut receiver, Some(error)).await),
            };
            at.brings();
            taken
        };
        let taken = async move { serving.run(take).await.map_err(unfinished)? };
        *before = Some(tokio::spawn(taken));
        Ok(ReceivedPart { bytes })
    }

    /// Waits until the part before was taken in.
    async fn part_before(
        &self,
        id: u64,
        part: &mut Option<JoinHandle<Result<(), ApiError>>>,
    ) -> Result<(), ApiError> {
        let Some(before) = part.take() else { return Ok(()) };
        let taken = before.await.map_err(unfinished).flatten();
        if taken.is_err() {
            self.receiving.streams.leave(id);
            // Of a bundle, what came before stays.
            self.refresh_exports().await;
        }
        taken
    }

    /// Ends a stream: the dataset is there, on disk, when this returns; or, if the client gives up,
    /// nothing of it.
    ///
    /// # Errors
    /// It is another one's; the stream has not ended, or contradicts itself: then what came is
    /// given up.
    pub async fn end_receive(
        &self,
        id: u64,
        request: ReceiveEnd,
        bringer: &Bringer,
    ) -> Result<ReceiveSummary, ApiError> {
        let ReceiveEnd { give_up, prune } = request;
        let session = self.receiving.streams.to_end(id, bringer, give_up)?;
        if give_up {
            return self.give_up(id).await;
        }
        self.receiving.streams.leave(id);
        self.part_before(id, &mut *session.part.lock().await).await?;
        let at = session.clone();
        let received = self.in_session(&session, async move {
            let mut receiver = at.receiver.lock().await;
            let done = match receiver.as_mut() {
                None => return Err(unknown()),
                Some(receiver) => receiver.finish().await,
            };
            match done {
                Ok(done) => {
                    let left = receiver.take();
                    Ok((done, left.is_some_and(|of| of.has_fed_before())))
                }
                Err(error) => Err(left(&mut receiver, Some(error)).await),
            }
        });
        let (received, fed_before) = received.await?;
        let notes = self.refresh_exports().await;
        self.prune_received(&session, (&received, fed_before), &prune).await;
        let mut all = received.into_iter().map(summary);
        let first = all.next().ok_or_else(unknown)?;
        let notes = first.notes.iter().cloned().chain(notes).collect();
        Ok(ReceiveSummary { below: all.collect(), notes, ..first })
    }

    /// Gives a stream up, or leaves what came for the rest. There is no good end of that.
    async fn give_up(&self, id: u64) -> Result<ReceiveSummary, ApiError> {
        let session = self.receiving.streams.get(id).ok_or_else(unknown)?;
        if !self.receiving.streams.leave(id) {
            return Err(unknown());
        }
        self.end_left(id, &session).await
    }

    /// Ends a stream that has left its place.
    async fn end_left(&self, id: u64, session: &Arc<Session>) -> Result<ReceiveSummary, ApiError> {
        self.part_before(id, &mut *session.part.lock().await).await?;
        let at = session.clone();
        let leave = async move {
            let mut receiver = at.receiver.lock().await;
            match receiver.is_some() {
                true => Err(left(&mut receiver, None).await),
                false => Err(unknown()),
            }
        };
        self.in_session(session, leave).await
    }

    /// Drops what came of a stream that broke off.
    ///
    /// # Errors
    /// Nothing waits there, or it is being sent, or another one's.
    pub async fn give_up_receive(
        &self,
        request: GiveUpReceive,
        bringer: &Bringer,
    ) -> Result<DatasetDone, ApiError> {
        let name = request.name;
        let (_act, serving) = self.act_of(&name, "receive -A").await?;
        self.check_partial(&name, bringer)?;
        let (datasets, dataset) = (serving.service().datasets.clone(), name.clone());
        let feeder = bringer.feeder();
        let give_up = async move { datasets.give_up_partial_by(&dataset, Some(&feeder)).await };
        act_on(&serving, give_up).await?;
        Ok(DatasetDone { name, notes: Vec::new() })
    }

    /// Works for a session on its pool's thread, to the end.
    async fn in_session<T: Send + 'static>(
        &self,
        session: &Session,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let serving = self.serving(&session.pool)?;
        serving.run(work).await.map_err(unfinished)?
    }

    /// Gives a session up if its client is silent, or brings nothing.
    async fn watch(self: Arc<Self>, id: u64, session: Arc<Session>) {
        loop {
            tokio::time::sleep_until(session.ends_at()).await;
            if self.receiving.streams.get(id).is_none() {
                return;
            }
            // While a part is taken in, the client waits for the disks.
            let is_over = session.ends_at() <= Instant::now();
            if is_over && let Ok(receiver) = session.receiver.try_lock() {
                drop(receiver);
                tracing::warn!(
                    class = "receive.silent",
                    pool = session.pool,
                    "a client that sends a snapshot is silent, or brings nothing: what came is \
                     given up, or waits if the stream may go on"
                );
                // It may have ended meanwhile.
                let _ = self.give_up(id).await;
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}
