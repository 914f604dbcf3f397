//! Replication: copies of datasets on other Aquifers, or in other pools, brought up to date by
//! snapshots that are sent over the API of the other side.
//!
//! A run is asked for, or one of the properties `replicate` and `pull` asks for it every so often
//! ([`standing`]). All are the same ([`run`]). Runs go on a thread that yields to clients.
//!
//! # Invariants
//! - The copy changes by whole snapshots alone: what `receive` guarantees. A run that ends early,
//!   on either side, leaves it as it was.
//! - Both sides keep the newest snapshot that both have ([`own`]).
//! - A copy in service is never sent to.

mod jobs;
mod line;
mod own;
mod plan;
mod pulled;
mod pump;
mod rest;
mod run;
mod side;
mod source;
mod standing;
mod target;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aquifer_api::{
    ApiError, DatasetDone, DatasetName, ReplicateRequest, ReplicationBegun, ReplicationInfo,
    ReplicationQuery, StopReplication, time,
};
use aquifer_dataset::Property;

use super::serving::Serving;
use super::{Control, Scope};
pub(super) use jobs::Replication;
use jobs::{Job, Wish};
pub use line::{Peer, Peers, check_peers};
use own::Member;
pub(super) use own::taken_of_copy_ns;
pub use pulled::{Puller, check_puller};
use side::Side;
use source::Source;
use standing::{How, Unit, Way};
pub(super) use target::TAG_OF_COPY;
use target::Target;
pub use target::is_of_replication;

/// The copies that replication makes by itself: of each its dataset, and the tag of its holds.
pub(super) fn standing_copies(serving: &Serving) -> BTreeSet<(String, String)> {
    let members = standing::sent(serving).into_iter().flat_map(|unit| unit.members);
    members.map(|member| (member.dataset, member.target.tag())).collect()
}

/// Whether a value of the properties `replicate` and `pull` makes sense, and names a peer that the
/// configuration has. Values of other properties always do.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(property: Property, value: &str, peers: &Peers) -> Result<(), ApiError> {
    let Some(way) = Way::of(property) else { return Ok(()) };
    let standing = way.parse(value);
    let standing = standing
        .map_err(|why| ApiError::invalid(format!("property {}: {why}", property.name())))?;
    let peer = standing.and_then(|standing| standing.other.peer);
    let unknown = peer.filter(|peer| !peers.contains_key(peer));
    unknown.map_or(Ok(()), |peer| Err(line::unknown_peer(&peer, peers)))
}

impl Control {
    /// Carries out runs, as long as the daemon runs: those that were asked for, and those that
    /// properties ask for.
    pub async fn replicate(self: Arc<Self>) {
        loop {
            self.begin_due();
            for job in self.replication.to_begin(|job| self.waits_for_disks(job)) {
                tokio::spawn(Arc::clone(&self).carry_out(job));
            }
            let news = self.replication.news.notified();
            let _ = tokio::time::timeout(LOOK_EVERY, news).await;
        }
    }

    /// Begins to bring a copy up to date.
    ///
    /// # Errors
    /// There is no such dataset or peer, or a run of that copy is under way.
    pub fn begin_replication(
        self: &Arc<Self>,
        request: ReplicateRequest,
    ) -> Result<ReplicationBegun, ApiError> {
        let ReplicateRequest { dataset, target, recursive, snapshot, .. } = request;
        let ReplicateRequest { all, keep, rate_bytes, force, pull, .. } = request;
        let target = Target::parse(&target).map_err(ApiError::invalid)?;
        let how = How::new(rate_bytes, keep, all).map_err(ApiError::invalid)?;
        let (source, dataset) = match pull {
            true => self.pulled(&dataset, &target)?,
            false => {
                own::snapshots(self, &dataset)?;
                (None, dataset)
            }
        };
        if source.is_none() && target.peer.is_none() && target.dataset == dataset {
            return Err(ApiError::invalid(format!("{dataset:?} cannot be a copy of itself")));
        }
        let (recursive, every_s) = (Some(recursive), None);
        let wish = Wish { source, dataset, target, recursive, snapshot, how, force, every_s };
        Side::of(self, &wish)?;
        Source::of(self, &wish)?;
        Ok(ReplicationBegun { id: self.replication.add(wish)? })
    }

    /// The peer and the dataset that `PEER:DATASET` means, which is to be fetched.
    fn pulled(&self, text: &str, target: &Target) -> Result<(Option<String>, String), ApiError> {
        let Target { peer, dataset } = Target::parse(text).map_err(ApiError::invalid)?;
        if peer.is_none() {
            return Err(ApiError::invalid(format!(
                "{text:?}: say from which peer the dataset is fetched, as PEER:POOL/NAME"
            )));
        }
        if let Some(peer) = &target.peer {
            return Err(ApiError::invalid(format!(
                "a copy is fetched into this daemon, and not to {peer}: say POOL/NAME"
            )));
        }
        let name: Result<DatasetName, _> = dataset.parse();
        name.map_err(|error| ApiError::invalid(error.to_string()))?;
        self.pool_of(&target.dataset)?;
        Ok((peer, dataset))
    }

    /// Ends the run of a copy. It ends soon after this returns.
    ///
    /// # Errors
    /// None is under way.
    pub fn stop_replication(&self, request: StopReplication) -> Result<DatasetDone, ApiError> {
        let StopReplication { dataset, target, .. } = request;
        let parsed = Target::parse(&target).map_err(ApiError::invalid)?;
        let job = self.replication.newest(&dataset, &parsed);
        let Some(job) = job.filter(|job| job.ended().is_none()) else {
            return Err(ApiError::not_found(format!(
                "{dataset:?} is not being replicated to {target}; `aquifer replicate` shows what is"
            )));
        };
        job.gauge.stop.store(true, Ordering::Relaxed);
        Ok(DatasetDone { name: dataset, notes: Vec::new() })
    }

    /// How copies stand: all, or one run.
    ///
    /// # Errors
    /// There is no such run any more.
    pub fn replications(
        &self,
        query: &ReplicationQuery,
        scope: &Scope,
    ) -> Result<Vec<ReplicationInfo>, ApiError> {
        let mut jobs = self.replication.all();
        jobs.retain(|job| scope.covers(job.wish.here()));
        if let Some(id) = query.id {
            let job = jobs.iter().find(|job| job.id == id);
            let gone = || ApiError::not_found("this replication is over, or was of another start");
            let job = job.ok_or_else(gone)?;
            return Ok(vec![job.info(self, &job.members_known(self))]);
        }
        let mut shown: Vec<ReplicationInfo> =
            self.all_serving().iter().flat_map(|serving| self.standing(serving)).collect();
        shown.retain(|of| scope.covers(&of.dataset));
        for job in jobs.iter().rev() {
            let (dataset, target) = (job.wish.full(), job.wish.target.to_string());
            if !shown.iter().any(|of| of.dataset == dataset && of.target == target) {
                shown.push(job.info(self, &job.members_known(self)));
            }
        }
        shown.sort_by(|a, b| (&a.dataset, &a.target).cmp(&(&b.dataset, &b.target)));
        Ok(shown)
    }

    /// The copies that are kept up to date by themselves, and have a side in a pool.
    pub(super) fn standing(&self, serving: &Serving) -> Vec<ReplicationInfo> {
        let unit = |Unit { wish, members }: Unit| match self
            .replication
            .newest(&wish.full(), &wish.target)
        {
            Some(job) => {
                let members = job.members_said().unwrap_or(members);
                ReplicationInfo { every_s: wish.every_s, ..job.info(self, &members) }
            }
            None => jobs::info(self, &wish, &members),
        };
        standing::all(serving).into_iter().map(unit).collect()
    }

    /// Whether a run waits, or would wait, for the disks of a pool that do not answer.
    fn waits_for_disks(&self, job: &Job) -> bool {
        let Wish { source, dataset, target, .. } = &job.wish;
        let copy = target.peer.is_none().then_some(&target.dataset);
        [Some(dataset).filter(|_| source.is_none()), copy]
            .into_iter()
            .flatten()
            .any(|dataset| self.pool_of(dataset).is_ok_and(|serving| serving.silent().is_some()))
    }

    /// Adds the runs that are due.
    fn begin_due(&self) {
        let now_ns = time::now_ns();
        for serving in self.all_serving() {
            for Unit { wish, members } in standing::all(&serving) {
                if self.is_due(&wish, &members, now_ns) {
                    // Another run of this copy, or too many: the next look tries again.
                    let _ = self.replication.add(wish);
                }
            }
        }
    }

    fn is_due(&self, wish: &Wish, members: &[Member], now_ns: u64) -> bool {
        let every_ns = wish.every_s.unwrap_or(u64::MAX).saturating_mul(1_000_000_000);
        // A clock that was set back does not keep a copy waiting for ever.
        let is_over = |since: u64, span: u64| now_ns < since || now_ns - since >= span;
        match self.replication.newest(&wish.full(), &wish.target) {
            None => {
                let is_old = |own: &Option<own::Own>| {
                    own.as_ref().is_none_or(|own| is_over(own.taken_ns, every_ns))
                };
                jobs::newest(self, wish, members).iter().any(is_old)
            }
            Some(job) => match (job.ended(), job.begun_ns()) {
                (None, _) | (_, None) => false,
                (Some((_, true)), Some(begun)) => is_over(begun, every_ns),
                (Some((ended, false)), _) => is_over(ended, every_ns.min(AGAIN_NS)),
            },
        }
    }

    async fn carry_out(self: Arc<Self>, job: Arc<Job>) {
        let result = run::run(&self, &job).await;
        self.tell(&job, &result);
        job.ends(result);
        self.replication.news.notify_one();
    }

    /// Logs how a run ended: the same failure of a standing one once.
    fn tell(&self, job: &Job, result: &Result<(), ApiError>) {
        let Wish { target, every_s, .. } = &job.wish;
        let dataset = job.wish.full();
        let what = format!("{dataset} {target}");
        let mut told = self.replication.told.lock();
        let Err(error) = result else {
            told.remove(&what);
            return;
        };
        let is_told = every_s.is_some()
            && told.insert(what, error.message.clone()).as_ref() == Some(&error.message);
        if !is_told {
            tracing::warn!(
                class = "replication.failed", %dataset, %target, %error,
                "a copy cannot be brought up to date"
            );
        }
    }
}

/// How often it is looked whether a run is due.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After a failure, at the latest; a standing replication that runs more often does not wait.
const AGAIN_NS: u64 = 60 * 1_000_000_000;
