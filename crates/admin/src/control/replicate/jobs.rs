//! Runs: those that wait, those under way, and how the last ones ended.
//!
//! Invariants:
//! - At most one run of a copy waits or is under way.
//! - The list is bounded: of each copy the newest run stays, and ended ones for a minute, for those
//!   who asked for them; of more than [`JOBS_MAX`] the oldest ended one goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aquifer_api::{ApiError, CopyInfo, ReplicationInfo, ReplicationState, SendQuery, time};
use aquifer_dataset::FullName;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::super::Control;
use super::super::shares::is_in;
use super::own::{self, Member, Own};
use super::plan::Step;
use super::pulled::Pulls;
use super::pump::Gauge;
use super::rest::Start;
use super::source::{Has, Source};
use super::standing::{self, How, Unit};
use super::target::Target;

/// Request for a replication.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    /// The peer that has the dataset; `None`: it is here.
    pub source: Option<String>,
    /// Full name, where it is.
    pub dataset: String,
    pub target: Target,
    /// Those below as well; `None`: those that inherit the property `replicate` from it.
    pub recursive: Option<bool>,
    /// `None`: one is taken.
    pub snapshot: Option<String>,
    pub how: How,
    pub force: bool,
    /// By one of the properties `replicate` and `pull`.
    pub every_s: Option<u64>,
}

/// One run.
#[derive(Debug)]
pub(super) struct Job {
    pub id: u64,
    pub wish: Wish,
    pub gauge: Gauge,
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    state: Option<Ended>,
    begun_ns: Option<u64>,
    ended_ns: Option<u64>,
    sending: Option<String>,
    total_bytes: Option<u64>,
    /// The datasets that it is about, of a peer.
    members: Vec<Member>,
    /// Of each dataset that is done with, by its full name.
    each: BTreeMap<String, Ended>,
    /// Copies to which no dataset goes any more.
    left: Vec<String>,
}

/// How a run ended, or its part of one dataset.
#[derive(Debug, Clone)]
enum Ended {
    Well,
    Badly(String),
}

impl Job {
    /// Says which datasets it is about, of a peer.
    pub fn is_about(&self, members: &[Member]) {
        self.shown.lock().members = members.to_vec();
    }

    /// The datasets that it is about, as far as that is known without asking a peer.
    pub fn members_known(&self, control: &Control) -> Vec<Member> {
        if self.wish.source.is_none() {
            return self.members_here(control).unwrap_or_default();
        }
        let Wish { dataset, target, .. } = &self.wish;
        let first = || vec![Member { dataset: dataset.clone(), target: target.clone() }];
        self.members_said().unwrap_or_else(first)
    }

    /// The datasets that it is about, as the peer said that has them.
    pub fn members_said(&self) -> Option<Vec<Member>> {
        Some(self.shown.lock().members.clone()).filter(|members| !members.is_empty())
    }

    /// The datasets that it is about, which are here.
    pub fn members_here(&self, control: &Control) -> Result<Vec<Member>, ApiError> {
        let Wish { dataset, target, recursive, .. } = &self.wish;
        if let Some(recursive) = recursive {
            return own::members(control, dataset, target, *recursive);
        }
        let serving = control.pool_of(dataset)?;
        let is_it = |of: &Unit| of.wish.dataset == *dataset && of.wish.target == *target;
        let unit = standing::sent(&serving).into_iter().find(is_it);
        unit.map(|unit| unit.members).ok_or_else(|| {
            ApiError::conflict(format!("{dataset:?} is not replicated to {target} any more"))
        })
    }

    /// Whether another run sends this dataset to the same peer: what that one took must stay.
    pub fn is_shared(&self, control: &Control, dataset: &str) -> bool {
        let sends = |of: &Job| is_in(dataset, &of.wish.dataset);
        let peers = (&self.wish.source, &self.wish.target.peer);
        let all = control.replication.jobs.lock();
        all.iter().any(|of| {
            let of_same = (&of.wish.source, &of.wish.target.peer) == peers;
            of.id != self.id && of.is_running() && of_same && sends(of)
        })
    }

    /// Says that this snapshot is sent now.
    pub fn sends(&self, snapshot: String) {
        self.shown.lock().sending = Some(snapshot);
    }

    /// Says how it ended with one dataset.
    pub fn is_through(&self, dataset: &str, result: Result<(), &ApiError>) {
        let ended = Ended::of(result);
        self.shown.lock().each.insert(dataset.into(), ended);
    }

    /// Says to which copies no dataset goes any more.
    pub fn leaves(&self, left: Vec<String>) {
        self.shown.lock().left = left;
    }

    /// Adds up how many bytes will be sent, if somebody waits for the end.
    pub async fn measure(
        &self,
        source: &Source,
        (dataset, has): (&str, &Has),
        steps: &[Step],
    ) -> Result<(), ApiError> {
        if self.wish.every_s.is_some() {
            return Ok(());
        }
        for step in steps {
            let bytes = match &step.from {
                None => has.refer_bytes.get(&step.to).copied().unwrap_or(0),
                Some(from) => {
                    let (snapshot, from) = (format!("{dataset}@{}", step.to), from.clone());
                    let query = SendQuery { snapshot, from: Some(from), ..SendQuery::default() };
                    stream_bytes(source, &self.gauge, (query, None)).await?
                }
            };
            self.adds(bytes);
        }
        Ok(())
    }

    /// Adds up how many bytes will be sent of one stream, if somebody waits for the end.
    pub async fn measure_stream(
        &self,
        source: &Source,
        query: SendQuery,
        start: &Start,
    ) -> Result<(), ApiError> {
        if self.wish.every_s.is_none() {
            self.adds(stream_bytes(source, &self.gauge, (query, Some(start))).await?);
        }
        Ok(())
    }

    fn adds(&self, bytes: u64) {
        let mut shown = self.shown.lock();
        shown.total_bytes = Some(shown.total_bytes.unwrap_or(0).saturating_add(bytes));
    }

    pub fn begins(&self) {
        self.shown.lock().begun_ns = Some(time::now_ns());
    }

    pub fn ends(&self, result: Result<(), ApiError>) {
        let mut shown = self.shown.lock();
        shown.ended_ns = Some(time::now_ns());
        shown.sending = None;
        shown.state = Some(Ended::of(result.as_ref().copied()));
    }

    /// When it ended, and whether well.
    pub fn ended(&self) -> Option<(u64, bool)> {
        let shown = self.shown.lock();
        Some((shown.ended_ns?, matches!(shown.state, Some(Ended::Well))))
    }

    pub fn begun_ns(&self) -> Option<u64> {
        self.shown.lock().begun_ns
    }

    fn is_running(&self) -> bool {
        let shown = self.shown.lock();
        shown.begun_ns.is_some() && shown.state.is_none()
    }

    fn is_waiting(&self) -> bool {
        self.shown.lock().begun_ns.is_none()
    }

    /// How it stands, with the copies of these datasets.
    pub fn info(&self, control: &Control, members: &[Member]) -> ReplicationInfo {
        let info = info(control, &self.wish, members);
        let shown = self.shown.lock();
        let (state, error) = match &shown.state {
            Some(ended) => ended.shown(),
            None if shown.begun_ns.is_some() => (ReplicationState::Running, None),
            None => (ReplicationState::Waiting, None),
        };
        let copies = info.copies.into_iter().map(|copy| shown.of_one(copy)).collect();
        ReplicationInfo {
            id: Some(self.id),
            state,
            error,
            begun_ns: shown.begun_ns,
            ended_ns: shown.ended_ns,
            sending: shown.sending.clone(),
            sent_bytes: self.gauge.sent_bytes.load(Ordering::Relaxed),
            total_bytes: shown.total_bytes,
            copies,
            left: shown.left.clone(),
            ..info
        }
    }
}

impl Ended {
    fn of(result: Result<(), &ApiError>) -> Ended {
        match result {
            Ok(()) => Ended::Well,
            Err(error) => Ended::Badly(error.message.clone()),
        }
    }

    fn shown(&self) -> (ReplicationState, Option<String>) {
        match self {
            Ended::Well => (ReplicationState::Done, None),
            Ended::Badly(why) => (ReplicationState::Failed, Some(why.clone())),
        }
    }
}

impl Shown {
    /// How the run stands with one dataset.
    fn of_one(&self, copy: CopyInfo) -> CopyInfo {
        let is_sent = || {
            let sending = self.sending.as_deref().map(FullName::of);
            sending.is_some_and(|full| full.dataset() == copy.dataset)
        };
        let (state, error) = match (self.each.get(&copy.dataset), &self.state) {
            (Some(ended), _) => ended.shown(),
            // Why stands at the run.
            (None, Some(Ended::Badly(_))) => (ReplicationState::Failed, None),
            (None, None) if is_sent() => (ReplicationState::Running, None),
            // Perhaps it was created since.
            (None, _) => (ReplicationState::Waiting, None),
        };
        CopyInfo { state, error, ..copy }
    }
}

impl Wish {
    /// The dataset as it is written here.
    pub fn full(&self) -> String {
        match &self.source {
            Some(peer) => format!("{peer}:{}", self.dataset),
            None => self.dataset.clone(),
        }
    }

    /// Returns the full name of the side that is here: the dataset, or the copy of one of a peer.
    pub fn here(&self) -> &str {
        if self.source.is_some() { &self.target.dataset } else { &self.dataset }
    }
}

/// The newest snapshots that copies are known to have.
pub(super) fn newest(control: &Control, wish: &Wish, members: &[Member]) -> Vec<Option<Own>> {
    match &wish.source {
        None => own::newest(control, members),
        Some(_) => own::newest_of_copies(control, members),
    }
}

/// How copies stand of which no run is known.
pub(super) fn info(control: &Control, wish: &Wish, members: &[Member]) -> ReplicationInfo {
    let newest = newest(control, wish, members);
    let copy = |(member, newest): (&Member, Option<Own>)| CopyInfo {
        dataset: member.dataset.clone(),
        copy: member.target.dataset.clone(),
        taken_ns: newest.as_ref().map(|own| own.taken_ns),
        behind_s: newest.as_ref().map(|own| own::seconds_since(own.taken_ns)),
        snapshot: newest.map(|own| format!("{}@{}", member.dataset, own.known.name)),
        state: ReplicationState::Waiting,
        error: None,
    };
    ReplicationInfo {
        id: None,
        dataset: wish.full(),
        target: wish.target.to_string(),
        every_s: wish.every_s,
        state: ReplicationState::Waiting,
        begun_ns: None,
        ended_ns: None,
        sending: None,
        sent_bytes: 0,
        total_bytes: None,
        error: None,
        copies: members.iter().zip(newest).map(copy).collect(),
        left: Vec::new(),
    }
}

async fn stream_bytes(
    source: &Source,
    gauge: &Gauge,
    (query, start): (SendQuery, Option<&Start>),
) -> Result<u64, ApiError> {
    let mut query = SendQuery { size_only: true, ..query };
    let mut bytes = 0u64;
    loop {
        gauge.check()?;
        let part = source.part(&query, start).await?;
        bytes = bytes.saturating_add(part.stream_bytes);
        query.after = part.next;
        if query.after.is_none() {
            return Ok(bytes);
        }
    }
}

/// All runs.
#[derive(Debug, Default)]
pub(in super::super) struct Replication {
    next: AtomicU64,
    pub(super) jobs: Mutex<Vec<Arc<Job>>>,
    /// Something waits, or a run has ended.
    pub(super) news: Notify,
    /// The failures that the log has, of copies by the property, until a run of them ends well.
    pub(super) told: Mutex<std::collections::BTreeMap<String, String>>,
    /// Fetches that others make from here.
    pub(super) pulls: Pulls,
}

impl Replication {
    /// Adds a run.
    ///
    /// # Errors
    /// One of this copy waits, or is under way; there are too many.
    pub(super) fn add(&self, wish: Wish) -> Result<u64, ApiError> {
        let mut jobs = self.jobs.lock();
        let target = wish.target.to_string();
        let same = |job: &&Arc<Job>| job.wish.target == wish.target && job.ended().is_none();
        if let Some(job) = jobs.iter().find(same) {
            return Err(ApiError::conflict(format!(
                "{:?} is being replicated to {target} already; `aquifer replicate` shows how far \
                 it is, and `aquifer replicate --stop {:?} {target}` ends it",
                job.wish.full(),
                job.wish.full()
            )));
        }
        let now_ns = time::now_ns();
        let is_superseded = |job: &Arc<Job>| {
            let ended = job.ended().map(|(at, _)| now_ns.saturating_sub(at) > ASKED_NS);
            ended == Some(true) && job.wish.target == wish.target
        };
        jobs.retain(|job| !is_superseded(job));
        if jobs.len() >= JOBS_MAX {
            let Some(oldest) = jobs.iter().position(|job| job.ended().is_some()) else {
                return Err(ApiError::conflict("too many replications wait: begin it later"));
            };
            jobs.remove(oldest);
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (gauge, shown) = (Gauge::default(), Mutex::default());
        jobs.push(Arc::new(Job { id, wish, gauge, shown }));
        self.news.notify_one();
        Ok(id)
    }

    /// Those that may begin now. One that waits for silent disks takes no place from others, and
    /// none begins that would.
    pub(super) fn to_begin(&self, is_stuck: impl Fn(&Job) -> bool) -> Vec<Arc<Job>> {
        let jobs = self.jobs.lock();
        let of = |wanted: fn(&Job) -> bool| {
            jobs.iter().filter(|job| wanted(job) && !is_stuck(job)).collect::<Vec<_>>()
        };
        let running = of(Job::is_running).len();
        let waiting = of(Job::is_waiting).into_iter();
        let begun = waiting.take(RUNS_MAX.saturating_sub(running)).cloned().collect::<Vec<_>>();
        begun.iter().for_each(|job| job.begins());
        begun
    }

    /// The newest run of each copy, and all that ended just now.
    pub(super) fn all(&self) -> Vec<Arc<Job>> {
        self.jobs.lock().clone()
    }

    /// The newest run of a copy.
    pub(super) fn newest(&self, dataset: &str, target: &Target) -> Option<Arc<Job>> {
        let jobs = self.jobs.lock();
        let is_it = |job: &&Arc<Job>| job.wish.full() == dataset && job.wish.target == *target;
        jobs.iter().rev().find(is_it).cloned()
    }
}

/// A side receives four streams at a time, of all who send.
const RUNS_MAX: usize = 2;
/// More copies than anybody has.
const JOBS_MAX: usize = 1024;
/// As long can those who asked for a run ask how it ended.
const ASKED_NS: u64 = 60 * 1_000_000_000;
