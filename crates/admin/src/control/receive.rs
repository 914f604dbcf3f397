//! Receiving streams: each has a session, to which its client gives part after part.
//!
//! Invariants:
//! - A part is taken in to its end, also if its client hangs up: nothing is taken in by half.
//! - A session ends with its stream, its first error, or when its client is silent for
//!   [`SILENCE_MAX`]. What came is given up then, or waits for the rest if the stream may go on.
//! - A session keeps no pool in service: after an export its next part fails, and the next import
//!   frees what came, or keeps it for the rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aquifer_api::send::PART_BYTES_MAX;
use aquifer_api::{
    ApiError, DatasetDone, DestroySnapshots, GiveUpReceive, ReceiveBegun, ReceiveEnd, ReceiveInfo,
    ReceiveRequest, ReceiveSummary, ReceivedPart, ReceivesQuery, guid_text,
};
use aquifer_dataset::Partial;
use aquifer_files::{
    BundleProgress, Pieces, ReceiveError, ReceiveOptions, Received, Token, TreeReceiver,
};
use aquifer_ondisk::resume::ResumeRecord;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::datasets::act_on;
use super::serving::Serving;
use super::shares::is_in;
use super::{Control, properties};

/// A client that is silent for longer is gone. Clients that wait for data themselves say so.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// See [`Control::received_name`].
const NOTED_AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// More copies than anybody has.
const NOTED_MAX: usize = 4096;
/// Streams at a time: each takes some megabytes of memory.
const SESSIONS_MAX: usize = 4;

/// The streams that are being received.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    next: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Session>>>,
    /// When the history had what a sender sends to a dataset.
    noted: Mutex<BTreeMap<String, Instant>>,
}

#[derive(Debug)]
struct Session {
    pool: String,
    /// The dataset that is made; `None`: the stream is only checked.
    name: Option<String>,
    /// Whose stream it is, if there is one at a time of it.
    sender: Option<String>,
    heard: Mutex<Instant>,
    /// `None`: it has failed.
    receiver: tokio::sync::Mutex<Option<TreeReceiver>>,
    /// The part that is taken in, while the next one comes.
    part: tokio::sync::Mutex<Option<JoinHandle<Result<(), ApiError>>>>,
}

impl Session {
    /// Its client is there, or waits for the disks.
    fn hear(&self) {
        *self.heard.lock() = Instant::now();
    }
}

impl Control {
    /// Begins to receive a stream as a dataset.
    ///
    /// # Errors
    /// There is no such pool; too many streams at a time.
    pub async fn begin_receive(
        self: &Arc<Self>,
        request: ReceiveRequest,
    ) -> Result<ReceiveBegun, ApiError> {
        let ReceiveRequest { name, dry_run, new_handles, force, sender, resumable } = request;
        let serving = self.pool_of(&name)?;
        let made = (!dry_run).then(|| name.clone());
        if sender.is_some() && !dry_run {
            self.give_up_earlier(&name, sender.as_ref()).await;
        }
        let options = ReceiveOptions { dry: dry_run, new_handles, force, resumable };
        let receiver = TreeReceiver::new(&serving.service().files, name, options);
        let session = Arc::new(Session {
            pool: serving.name().into(),
            name: made,
            sender,
            heard: Mutex::new(Instant::now()),
            receiver: tokio::sync::Mutex::new(Some(receiver)),
            part: tokio::sync::Mutex::default(),
        });
        let id = {
            let mut all = self.receiving.all.lock();
            if all.len() >= SESSIONS_MAX {
                return Err(ApiError::conflict(format!(
                    "{SESSIONS_MAX} streams are being received already: wait until one ends"
                )));
            }
            let id = self.receiving.next.fetch_add(1, Ordering::Relaxed);
            all.insert(id, session.clone());
            id
        };
        tokio::spawn(Arc::clone(self).watch(id, session));
        Ok(ReceiveBegun { id, part_bytes: PART_BYTES_MAX as u64 })
    }

    /// Destroys an older snapshot of what was received, which its sender needs no more.
    async fn prune_received(&self, session: &Session, name: &str) {
        let Some(dataset) = &session.name else { return };
        let name = format!("{dataset}@{name}");
        let request =
            DestroySnapshots { confirm: name.clone(), name, ..DestroySnapshots::default() };
        if let Err(error) = self.destroy_snapshots(request).await {
            tracing::debug!(%dataset, %error, "an older snapshot of a copy stays");
        }
    }

    /// Gives up what a sender sent before into a dataset: it begins again.
    async fn give_up_earlier(&self, name: &str, sender: Option<&String>) {
        let is_it = |of: &Session| of.name.as_deref() == Some(name) && of.sender.as_ref() == sender;
        let earlier: Vec<u64> = {
            let all = self.receiving.all.lock();
            all.iter().filter(|(_, of)| is_it(of)).map(|(id, _)| *id).collect()
        };
        for id in earlier {
            // It may have ended meanwhile.
            let _ =
                self.end_receive(id, ReceiveEnd { give_up: true, ..ReceiveEnd::default() }).await;
        }
    }

    /// The dataset that a stream makes, if it is being received, and the history is to have it:
    /// what the same sender sends again and again is noted once an hour, so that it does not push
    /// out what people did.
    pub fn received_name(&self, id: u64) -> Option<String> {
        let session = self.session(id).ok()?;
        let name = session.name.clone()?;
        let Some(sender) = &session.sender else { return Some(name) };
        let mut noted = self.receiving.noted.lock();
        noted.retain(|_, at| at.elapsed() < NOTED_AGAIN_AFTER);
        let what = format!("{name} {sender}");
        let is_known = noted.contains_key(&what) || noted.len() >= NOTED_MAX;
        (!is_known && noted.insert(what, Instant::now()).is_none()).then_some(name)
    }

    /// The client of a stream is there: some bytes of a part came.
    pub fn hear(&self, id: u64) {
        if let Ok(session) = self.session(id) {
            session.hear();
        }
    }

    /// Takes in bytes of a stream, perhaps none: then the client only says that it is there. It
    /// returns when those of the call before were taken in: the next ones come while these are.
    ///
    /// # Errors
    /// The stream cannot be received, by this part or the one before. What came is given up.
    pub async fn receive_part(&self, id: u64, part: Pieces) -> Result<ReceivedPart, ApiError> {
        let session = self.session(id)?;
        session.hear();
        let bytes = part.len() as u64;
        let mut before = session.part.lock().await;
        self.part_before(id, &mut before).await?;
        if bytes == 0 {
            return Ok(ReceivedPart { bytes });
        }
        let (at, serving) = (session.clone(), self.serving(&session.pool)?);
        let take = async move {
            let mut receiver = at.receiver.lock().await;
            let taken = match receiver.as_mut() {
                None => return Err(unknown()),
                Some(receiver) => receiver.push(part).await,
            };
            let taken = match taken {
                Ok(()) => Ok(()),
                Err(error) => Err(left(&mut receiver, Some(error)).await),
            };
            at.hear();
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
            self.receiving.all.lock().remove(&id);
            // Of a bundle, what came before stays.
            self.refresh_exports().await;
        }
        taken
    }

    /// Ends a stream: the dataset is there, on disk, when this returns; or, if the client gives up,
    /// nothing of it.
    ///
    /// # Errors
    /// The stream has not ended, or contradicts itself. What came is given up.
    pub async fn end_receive(
        &self,
        id: u64,
        request: ReceiveEnd,
    ) -> Result<ReceiveSummary, ApiError> {
        let session = self.session(id)?;
        self.receiving.all.lock().remove(&id);
        self.part_before(id, &mut *session.part.lock().await).await?;
        let at = session.clone();
        let received = self.in_session(&session, async move {
            let mut receiver = at.receiver.lock().await;
            let done = match receiver.as_mut() {
                None => return Err(unknown()),
                Some(_) if request.give_up => return Err(left(&mut receiver, None).await),
                Some(receiver) => receiver.finish().await,
            };
            match done {
                Ok(done) => {
                    *receiver = None;
                    Ok(done)
                }
                Err(error) => Err(left(&mut receiver, Some(error)).await),
            }
        });
        let received = received.await?;
        let notes = self.refresh_exports().await;
        for name in request.prune {
            self.prune_received(&session, &name).await;
        }
        let mut all = received.into_iter().map(summary);
        let first = all.next().ok_or_else(unknown)?;
        let notes = first.notes.iter().cloned().chain(notes).collect();
        Ok(ReceiveSummary { below: all.collect(), notes, ..first })
    }

    /// Fails if a dataset of another pool that is in service has the file handles of this one.
    pub(super) fn check_service(&self, serving: &Serving, name: &str) -> Result<(), ApiError> {
        let Some(dataset) = serving.service().datasets.by_name(name) else { return Ok(()) };
        for other in self.all_serving().into_iter().filter(|of| of.name() != serving.name()) {
            let datasets = &other.service().datasets;
            if let Some(other) = datasets.by_guid(dataset.fs_guid) {
                let (name, other) = (name.into(), datasets.full_name(&other));
                let error = aquifer_dataset::DatasetError::SameHandles { name, other };
                return Err(properties::api_error(error));
            }
        }
        Ok(())
    }

    /// What came of streams that may go on.
    ///
    /// # Errors
    /// There is no such pool.
    pub fn receives(&self, query: &ReceivesQuery) -> Result<Vec<ReceiveInfo>, ApiError> {
        let serving = match &query.name {
            Some(name) => vec![self.pool_of(name)?],
            None => self.all_serving(),
        };
        let partials = serving.iter().flat_map(|of| of.service().datasets.partials());
        let wanted = |of: &Partial| {
            let is_it =
                |name: &String| of.name == *name || query.recursive && is_in(&of.name, name);
            query.name.as_ref().is_none_or(is_it)
        };
        Ok(partials.filter(wanted).map(info).collect())
    }

    /// Drops what came of a stream that broke off.
    ///
    /// # Errors
    /// Nothing waits there, or it is being sent.
    pub async fn give_up_receive(&self, request: GiveUpReceive) -> Result<DatasetDone, ApiError> {
        let _act = self.act().await?;
        let name = request.name;
        let serving = self.pool_of(&name)?;
        let (datasets, dataset) = (serving.service().datasets.clone(), name.clone());
        act_on(&serving, async move { datasets.give_up_partial(&dataset).await }).await?;
        Ok(DatasetDone { name, notes: Vec::new() })
    }

    fn session(&self, id: u64) -> Result<Arc<Session>, ApiError> {
        self.receiving.all.lock().get(&id).cloned().ok_or_else(unknown)
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

    /// Gives a session up if its client is silent.
    async fn watch(self: Arc<Self>, id: u64, session: Arc<Session>) {
        loop {
            let until = *session.heard.lock() + SILENCE_MAX;
            tokio::time::sleep_until(until).await;
            if !self.receiving.all.lock().contains_key(&id) {
                return;
            }
            // While a part is taken in, the client waits for the disks.
            let is_silent = *session.heard.lock() + SILENCE_MAX <= Instant::now();
            if is_silent && let Ok(receiver) = session.receiver.try_lock() {
                drop(receiver);
                tracing::warn!(
                    class = "receive.silent",
                    pool = session.pool,
                    "a client that sends a snapshot is silent: what came is given up, or waits if \
                     the stream may go on"
                );
                // It may have ended meanwhile.
                let given_up = ReceiveEnd { give_up: true, ..ReceiveEnd::default() };
                let _ = self.end_receive(id, given_up).await;
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

fn info(partial: Partial) -> ReceiveInfo {
    let Partial { name, record, is_parked, used_bytes } = partial;
    let ResumeRecord { to, from, place, pages, heard, sent, .. } = record;
    let token = Token { to, from, place, snapshot: sent.clone() };
    ReceiveInfo {
        dataset: name,
        sent,
        to_guid: guid_text(to.0),
        from_guid: from.map(|from| guid_text(from.0)),
        receiving: !is_parked,
        received_bytes: pages.saturating_mul(4096),
        used_bytes,
        heard_ns: heard.since_1970_ns(),
        receive_resume_token: token.to_string(),
    }
}

/// Pools come into service: of their datasets, those step back whose file handles another pool
/// serves already.
pub(super) fn keep_handles_apart(serving: &[Arc<Serving>]) {
    let is_offered = |of: &&Arc<Serving>| of.is_offered.load(Ordering::SeqCst);
    let mut served: Vec<&Arc<Serving>> = serving.iter().filter(is_offered).collect();
    for new in serving.iter().filter(|of| !is_offered(of)) {
        let back = new.service().datasets.step_back(|guid| {
            served.iter().find_map(|of| {
                let datasets = &of.service().datasets;
                datasets.by_guid(guid).map(|other| datasets.full_name(&other))
            })
        });
        for (dataset, other) in back {
            tracing::warn!(
                class = "dataset.standby",
                %dataset,
                %other,
                "a dataset is not in service: another one has its file handles. Set standby=on on \
                 one of them, and standby=off on the other"
            );
        }
        new.is_offered.store(true, Ordering::SeqCst);
        served.push(new);
    }
}

/// A stream ends early, by an error or since its client leaves. Returns what to say: what came is
/// given up, or waits for the rest.
async fn left(receiver: &mut Option<TreeReceiver>, error: Option<ReceiveError>) -> ApiError {
    let progress = receiver.as_ref().and_then(TreeReceiver::progress);
    let said = |error: Option<ReceiveError>| {
        let error = error.map_or_else(|| ApiError::conflict("it was given up"), api_error);
        match &progress {
            Some(progress) => in_bundle(progress, error),
            None => error,
        }
    };
    let Some(mut receiver) = receiver.take() else { return said(error) };
    match receiver.leave(error.as_ref()).await {
        Ok(false) => said(error),
        Ok(true) => {
            let ApiError { kind, message } = said(error);
            let name = receiver.name();
            ApiError::new(
                kind,
                format!(
                    "{message}. What came waits for the rest: `aquifer get receive_resume_token \
                     {name}` says the token for `aquifer send -t`, and `aquifer receive -A {name}` \
                     gives it up"
                ),
            )
        }
        Err(failed) => {
            tracing::warn!(
                class = "receive.left",
                error = %failed,
                "what came of a stream cannot be settled now: the next import of the pool does"
            );
            said(error)
        }
    }
}

/// An error in a bundle says of which dataset, and what stays.
fn in_bundle(progress: &BundleProgress, error: ApiError) -> ApiError {
    let BundleProgress { name, came, of, has_rows } = progress;
    let what = if *has_rows { "streams" } else { "datasets" };
    let ApiError { kind, message } = error;
    let stays = match came {
        0 => String::new(),
        came => format!(
            ". {came} of {of} {what} came before it, and stay: send all again, and what is there \
             is passed over"
        ),
    };
    ApiError::new(kind, format!("{name}: {message}{stays}"))
}

fn summary(received: Received) -> ReceiveSummary {
    let Received { snapshot, sent, since, counts, was_there, later } = received;
    let notes = match later {
        Some(later) => vec![format!("{snapshot} is passed over, since {later} is there already")],
        None if was_there => vec![format!("{snapshot} was there already, and stays as it is")],
        None => Vec::new(),
    };
    if !was_there {
        tracing::info!(class = "dataset.received", %snapshot, %sent, "snapshot received");
    }
    ReceiveSummary {
        snapshot,
        sent,
        since,
        objects: counts.objects,
        removed: counts.removed,
        bytes: counts.pages.saturating_mul(4096),
        notes,
        below: Vec::new(),
    }
}

fn unfinished(error: impl std::fmt::Display) -> ApiError {
    ApiError::failed(error.to_string())
}

fn unknown() -> ApiError {
    ApiError::not_found(
        "the stream is not being received any more: it failed, or its client was silent for too \
         long; send it again",
    )
}

fn api_error(error: ReceiveError) -> ApiError {
    let message = error.to_string();
    match error {
        ReceiveError::Dataset(error) => properties::api_error(error),
        ReceiveError::Stream(_)
        | ReceiveError::Contradicts(_)
        | ReceiveError::NewHandles(_)
        | ReceiveError::DryRow
        | ReceiveError::DryRest
        | ReceiveError::Cut(_) => ApiError::invalid(message),
        ReceiveError::Quota(_) | ReceiveError::NoSpace(_) | ReceiveError::Left => {
            ApiError::conflict(message)
        }
        ReceiveError::Pool(_) => ApiError::failed(message),
    }
}
