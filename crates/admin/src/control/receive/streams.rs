//! The streams that are being received, and whose they are.
//!
//! Invariants:
//! - A stream is its bringer's: nobody else puts anything into it, and only an administrator may
//!   give it up too.
//! - Nobody keeps all places: a token has [`STREAMS_OF_ONE_MAX`], and one place is for
//!   administrators alone.
//! - A place is not kept for nothing. A stream that brings nothing for [`IDLE_MAX`] ends; when
//!   places are wanted, after [`IDLE_WHEN_FULL`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aquifer_api::{ApiError, ReceiveRequest, time};
use aquifer_files::TreeReceiver;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::bringer::Bringer;
use super::told::unknown;
use super::{SILENCE_MAX, STREAMS_MAX};

/// Of one token: its daemon makes two runs at a time, and one may be left of a run that died.
const STREAMS_OF_ONE_MAX: usize = 3;
/// So long a stream may bring nothing while its client says that it is there: what it waits for is
/// slow.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// So long while another one wants its place.
const IDLE_WHEN_FULL: Duration = Duration::from_secs(60);
/// More datasets than anybody receives into.
const OWNERS_MAX: usize = 4096;

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    next: AtomicU64,
    all: Mutex<BTreeMap<u64, Arc<Session>>>,
    /// Bringers of parts that wait for their rest, by dataset. Of a copy that is there, its mark
    /// says it.
    owners: Mutex<BTreeMap<String, Bringer>>,
}

/// The answer to a stream that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A place, with this number.
    Taken(u64),
    /// None before this one has ended, which brings nothing.
    After(u64),
}

/// A stream.
#[derive(Debug)]
pub(super) struct Session {
    pub pool: String,
    /// The dataset into which it comes.
    pub into: String,
    /// The stream is only checked.
    pub is_dry: bool,
    /// The sender, if it has one stream at a time.
    pub sender: Option<String>,
    pub bringer: Bringer,
    pub begun_ns: u64,
    times: Mutex<Times>,
    /// `None`: it has failed.
    pub receiver: tokio::sync::Mutex<Option<TreeReceiver>>,
    /// The part that is taken in, while the next one comes.
    pub part: tokio::sync::Mutex<Option<JoinHandle<Result<(), ApiError>>>>,
    /// One body comes at a time.
    pub body: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Times {
    heard: Instant,
    /// When something came that was more than a sign of life.
    brought: Instant,
}

impl Session {
    pub fn new(
        pool: String,
        request: &ReceiveRequest,
        (bringer, receiver): (Bringer, TreeReceiver),
    ) -> Session {
        let now = Instant::now();
        Session {
            pool,
            into: request.name.clone(),
            is_dry: request.dry_run,
            sender: request.sender.clone(),
            bringer,
            begun_ns: time::now_ns(),
            times: Mutex::new(Times { heard: now, brought: now }),
            receiver: tokio::sync::Mutex::new(Some(receiver)),
            part: tokio::sync::Mutex::default(),
            body: Arc::default(),
        }
    }

    /// The dataset that is made; `None`: the stream is only checked.
    pub fn name(&self) -> Option<&String> {
        Some(&self.into).filter(|_| !self.is_dry)
    }

    /// Its client is there, or waits for the disks.
    pub fn hear(&self) {
        self.times.lock().heard = Instant::now();
    }

    /// Something came.
    pub fn brings(&self) {
        let now = Instant::now();
        *self.times.lock() = Times { heard: now, brought: now };
    }

    /// When it has been silent, or brought nothing, for too long.
    pub fn ends_at(&self) -> Instant {
        let times = self.times.lock();
        (times.heard + SILENCE_MAX).min(times.brought + IDLE_MAX)
    }

    /// Whether it gives its place up for one of this bringer.
    fn gives_way_to(&self, other: &Bringer) -> bool {
        let is_idle = self.times.lock().brought.elapsed() >= IDLE_WHEN_FULL;
        is_idle && (!self.bringer.is_admin() || other.is_admin())
    }
}

impl Streams {
    /// A stream gets a place, or learns which one has to end first.
    ///
    /// # Errors
    /// All places are taken.
    pub fn enter(&self, session: &Arc<Session>) -> Result<Place, ApiError> {
        let mut all = self.all.lock();
        let bringer = &session.bringer;
        let of = |wanted: &dyn Fn(&Bringer) -> bool| {
            all.values().filter(|of| wanted(&of.bringer)).count()
        };
        let (own, others) = (of(&|of| of == bringer), of(&|of| !of.is_admin()));
        let (is_full, why) = match bringer.is_admin() {
            true => (all.len() >= STREAMS_MAX, String::new()),
            false if own >= STREAMS_OF_ONE_MAX => {
                (true, format!("{STREAMS_OF_ONE_MAX} of them by {}: ", bringer.principal()))
            }
            false => (all.len() >= STREAMS_MAX || others + 1 >= STREAMS_MAX, String::new()),
        };
        if !is_full {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            all.insert(id, session.clone());
            return Ok(Place::Taken(id));
        }
        let is_own_place = own >= STREAMS_OF_ONE_MAX && !bringer.is_admin();
        let may_go =
            |of: &Session| of.gives_way_to(bringer) && (!is_own_place || of.bringer == *bringer);
        let idle = all.iter().find(|(_, of)| may_go(of)).map(|(id, _)| *id);
        idle.map(Place::After).ok_or_else(|| {
            ApiError::conflict(format!(
                "{} streams are being received already ({why}`aquifer receives` lists them): wait \
                 until one ends",
                all.len()
            ))
        })
    }

    /// A stream, if it is still received.
    pub fn get(&self, id: u64) -> Option<Arc<Session>> {
        self.all.lock().get(&id).cloned()
    }

    /// A stream of this bringer.
    ///
    /// # Errors
    /// It is over, or another one's.
    pub fn of(&self, id: u64, bringer: &Bringer) -> Result<Arc<Session>, ApiError> {
        let session = self.get(id).ok_or_else(unknown)?;
        match session.bringer == *bringer {
            true => Ok(session),
            false => Err(another(&session)),
        }
    }

    /// A stream that this one may end.
    ///
    /// # Errors
    /// It is over, or another one's.
    pub fn to_end(
        &self,
        id: u64,
        bringer: &Bringer,
        gives_up: bool,
    ) -> Result<Arc<Session>, ApiError> {
        match self.get(id) {
            Some(session) if bringer.is_admin() && gives_up => Ok(session),
            _ => self.of(id, bringer),
        }
    }

    /// A stream has ended. Returns whether it had not before.
    pub fn leave(&self, id: u64) -> bool {
        self.all.lock().remove(&id).is_some()
    }

    /// The streams of which this is so, by their numbers.
    pub fn those(&self, wanted: impl Fn(&Session) -> bool) -> Vec<(u64, Arc<Session>)> {
        let all = self.all.lock();
        all.iter().filter(|(_, of)| wanted(of)).map(|(id, of)| (*id, of.clone())).collect()
    }

    /// A part in a dataset may wait for its rest: it is this bringer's. `waits` says what does.
    pub fn owns(&self, name: &str, bringer: &Bringer, waits: impl Fn(&str) -> bool) {
        let mut owners = self.owners.lock();
        if owners.len() >= OWNERS_MAX {
            owners.retain(|name, _| waits(name));
        }
        if owners.len() < OWNERS_MAX {
            owners.insert(name.into(), bringer.clone());
        }
    }

    /// The bringer of the part that waits in a dataset, as far as this run of the daemon knows.
    pub fn owner(&self, name: &str) -> Option<Bringer> {
        self.owners.lock().get(name).cloned()
    }
}

fn another(session: &Session) -> ApiError {
    ApiError::forbidden(format!(
        "this stream into {:?} is that of {}: only it puts something into it",
        session.into,
        session.bringer.principal()
    ))
}
