//! Drills: a disk is taken away as if it had failed, and given back, while clients are measured.
//!
//! A task of the daemon does it all, in three steps: with all disks, without this one, and while it
//! is resilvered. Clients of the API only look on.
//!
//! # Invariants
//! - A drill begins, and takes its disk, only while every disk of the pool is in use and no disk
//!   that would be alone has had an error.
//! - The disk is away at most as long as [`Drilled`] lives, which the task holds for one step: a
//!   wanted number of seconds. The step ends early if somebody asks for that, or another disk errs.
//! - A drill holds no pool in service: it ends with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use aquifer_api::{
    ApiError, DrillInfo, DrillPhase, DrillRequest, DrillState, DrillStep, PoolDone, ScrubState,
    VdevClass,
};
use aquifer_blockio::ms;
use aquifer_nfs::traffic::{DiskKey, Flow};
use aquifer_ondisk::Guid;
use aquifer_pool::{Drilled, LeafStatus, PoolStatus, ResilverStatus};
use aquifer_vdev::LeafState;
use parking_lot::Mutex;

use super::counts::flow_of;
use super::serving::Serving;
use super::turns::name_of;
use super::vdevs::{Member, on_pool};
use super::{Control, scrub};

/// The newest drill of a pool in service.
#[derive(Debug, Default)]
pub(super) struct NewestDrill(Mutex<Option<Arc<Drill>>>);

/// A drill.
#[derive(Debug)]
struct Drill {
    disk: Guid,
    info: Mutex<DrillInfo>,
    /// Somebody wants its end.
    is_stopped: AtomicBool,
}

/// The clients' requests to files of a pool.
type Counts = HashMap<DiskKey, Flow>;

/// Why a drill ended before its disk was back.
#[derive(Debug)]
enum Ended {
    Stopped,
    Failed(String),
    /// The pool is not in service any more: nobody can ask about the drill.
    Left,
}

impl From<ApiError> for Ended {
    fn from(error: ApiError) -> Ended {
        Ended::Failed(error.message)
    }
}

impl NewestDrill {
    /// It, for the API.
    pub fn shown(&self) -> Option<DrillInfo> {
        self.0.lock().as_ref().map(|drill| drill.info.lock().clone())
    }

    fn running(&self) -> Option<Arc<Drill>> {
        let newest = self.0.lock().clone();
        newest.filter(|drill| drill.info.lock().state == DrillState::Running)
    }
}

impl Control {
    /// Begins a drill, or ends the one that goes on.
    ///
    /// # Errors
    /// There is no such disk, or the pool does not bear its loss now. A drill goes on already, or
    /// none does.
    pub async fn drill_pool(
        self: &Arc<Self>,
        name: &str,
        request: DrillRequest,
    ) -> Result<PoolDone, ApiError> {
        let (_act, serving) = match request {
            DrillRequest::Start { .. } => self.act(name, "pool drill").await?,
            DrillRequest::Stop => (self.turn(name, "pool drill").await?, self.serving(name)?),
        };
        let running = serving.drill.running();
        match (request, running) {
            (DrillRequest::Stop, None) => {
                Err(ApiError::conflict(format!("{name}: no drill goes on")))
            }
            (DrillRequest::Stop, Some(drill)) => {
                drill.is_stopped.store(true, Ordering::Release);
                Ok(PoolDone::new(name, Vec::new()))
            }
            (DrillRequest::Start { .. }, Some(drill)) => {
                let disk = &drill.info.lock().disk;
                Err(ApiError::conflict(format!("{name}: a drill goes on, with {disk}")))
            }
            (DrillRequest::Start { disk, seconds }, None) => {
                self.start_drill(&serving, &disk, seconds)?;
                Ok(PoolDone::new(name, Vec::new()))
            }
        }
    }

    fn start_drill(
        self: &Arc<Self>,
        serving: &Arc<Serving>,
        disk: &str,
        seconds: u64,
    ) -> Result<(), ApiError> {
        if !(1..=SECONDS_MAX).contains(&seconds) {
            return Err(ApiError::invalid(format!("a drill takes 1 to {SECONDS_MAX} seconds")));
        }
        let member = self.drilled_disk(serving, disk)?;
        check(serving, &member)?;
        let info = DrillInfo {
            disk: member.path.clone(),
            state: DrillState::Running,
            reason: None,
            seconds,
            phases: Vec::new(),
            resilvered_bytes: 0,
            unread_blocks: 0,
            back_ms: None,
        };
        let (disk, info, is_stopped) = (member.guid, Mutex::new(info), AtomicBool::new(false));
        let drill = Arc::new(Drill { disk, info, is_stopped });
        *serving.drill.0.lock() = Some(Arc::clone(&drill));
        let (pool, disk) = (serving.name(), &member.path);
        tracing::info!(class = "drill.begun", pool, disk, seconds, "a drill has begun");
        let (control, serving) = (Arc::downgrade(self), Arc::downgrade(serving));
        tokio::spawn(async move {
            let place = Place { control, serving, member };
            let result = drill.carry_out(&place, Duration::from_secs(seconds)).await;
            drill.end(&place, result);
        });
        Ok(())
    }

    fn drilled_disk(&self, serving: &Serving, disk: &str) -> Result<Member, ApiError> {
        if super::vdevs::spare(serving, disk).is_some() {
            return Err(ApiError::invalid(format!(
                "{disk}: is a spare; only disks that hold data are taken away in a drill"
            )));
        }
        self.one_disk(serving, disk)
    }

    /// Returns the counts of what clients have done with files of a pool so far.
    fn counts_of(&self, serving: &Serving) -> Counts {
        let Some(counts) = self.frontend.counts() else { return Counts::new() };
        let datasets = &serving.service().datasets;
        let is_own = |key: &DiskKey| datasets.by_guid(Guid(key.fs_guid)).is_some();
        let own = counts.traffic.disks.into_iter().filter(|(key, _)| is_own(key));
        own.map(|(key, disk)| (key, disk.flow)).collect()
    }
}

/// Whether a pool bears the loss of a disk now.
fn check(serving: &Serving, member: &Member) -> Result<(), ApiError> {
    let (name, path, pool) = (serving.name(), &member.path, &serving.service().pool);
    if member.class == VdevClass::Log {
        return Err(ApiError::invalid(format!(
            "{path}: is a disk of the log, which is not resilvered; `aquifer pool offline {name} \
             {path}` and `online` try what a pool does without it"
        )));
    }
    bears(&pool.status(), member.guid)
        .map_err(|why| ApiError::conflict(format!("pool {name:?} bears no drill now: {why}")))?;
    let scrub = scrub::shown(&serving.service().files);
    if scrub.is_some_and(|scrub| scrub.state == ScrubState::Running) {
        return Err(ApiError::conflict(format!(
            "{name}: is being scrubbed, which would be measured too; `aquifer pool scrub -p \
             {name}` pauses it"
        )));
    }
    Ok(())
}

/// Whether a pool bears the loss of a disk that holds data.
fn bears(status: &PoolStatus, disk: Guid) -> Result<(), String> {
    if let Some(why) = &status.suspended {
        return Err(format!("it is suspended: {why}"));
    }
    let of = status.vdevs.iter().find(|vdev| vdev.leaves.iter().any(|leaf| leaf.guid == disk));
    let leaves = of.map(|vdev| vdev.leaves.as_slice()).unwrap_or_default();
    if let [only] = leaves {
        return Err(format!("{} is the only disk with its data", only.path));
    }
    let mut all = status.vdevs.iter().flat_map(|vdev| &vdev.leaves);
    if let Some(leaf) = all.find(|leaf| leaf.state != LeafState::Online) {
        let how = match leaf.state {
            LeafState::Resilvering => "is being resilvered",
            _ => "is not in use",
        };
        return Err(format!("{} {how}", leaf.path));
    }
    if let Some(resilver) = status.resilver.as_ref().filter(|last| last.succeeded.is_none()) {
        return Err(format!("{} is being resilvered", resilver.path));
    }
    let erred = |leaf: &&LeafStatus| errors(leaf) > 0 || leaf.trouble.is_degraded;
    match leaves.iter().filter(|leaf| leaf.guid != disk).find(erred) {
        None => Ok(()),
        Some(leaf) => Err(format!(
            "{} had errors; scrub the pool, and clear the errors once they do not come again",
            leaf.path
        )),
    }
}

fn errors(leaf: &LeafStatus) -> u64 {
    leaf.read_errors + leaf.write_errors + leaf.checksum_errors
}

/// Where a drill takes place.
struct Place {
    control: Weak<Control>,
    serving: Weak<Serving>,
    member: Member,
}

impl Place {
    /// Both, for a moment.
    fn now(&self) -> Result<(Arc<Control>, Arc<Serving>), Ended> {
        self.control.upgrade().zip(self.serving.upgrade()).ok_or(Ended::Left)
    }

    fn status(&self) -> Result<PoolStatus, Ended> {
        let status = self.now()?.1.service().pool.status();
        match &status.suspended {
            Some(why) => Err(Ended::Failed(format!("the pool is suspended: {why}"))),
            None => Ok(status),
        }
    }

    fn counts(&self) -> Result<Counts, Ended> {
        let (control, serving) = self.now()?;
        Ok(control.counts_of(&serving))
    }

    /// Takes the disk away, if the pool still bears it.
    async fn take_away(&self) -> Result<Drilled, Ended> {
        let (control, serving) = self.now()?;
        let pool = name_of(serving);
        let (_act, serving) = control.act(&pool, "pool drill").await?;
        check(&serving, &self.member)?;
        let guid = self.member.guid.to_string();
        Ok(on_pool(&serving, async move |pool| pool.take_away(&guid).await).await?)
    }
}

impl Drill {
    async fn carry_out(&self, place: &Place, length: Duration) -> Result<(), Ended> {
        let whole = self.begin(place, DrillStep::Whole)?;
        self.wait(place, &whole, length, |_| Ok(false)).await?;
        let away = place.take_away().await?;
        let begun = self.begin(place, DrillStep::Away)?;
        let (pool, disk) = (self.pool(place)?, self.path());
        tracing::warn!(class = "drill.away", pool, disk, "a drill has taken a disk away");
        let others_err = |status: &PoolStatus| match self.another_with_errors(status) {
            None => Ok(false),
            Some(path) => Err(Ended::Failed(format!("{path} had errors meanwhile"))),
        };
        let waited = self.wait(place, &begun, length, others_err).await;
        drop(away);
        waited?;
        let begun = self.begin(place, DrillStep::Resilver)?;
        self.wait(place, &begun, Duration::MAX, |status| self.is_back(status)).await?;
        self.info.lock().back_ms = Some(ms(begun.at.elapsed()));
        Ok(())
    }

    /// Begins a step, from which on is measured.
    fn begin(&self, place: &Place, phase: DrillStep) -> Result<Begun, Ended> {
        let begun = Begun { at: Instant::now(), counts: place.counts()? };
        let clients = flow_of(&Flow::default());
        self.info.lock().phases.push(DrillPhase { phase, took_ms: 0, clients });
        Ok(begun)
    }

    /// Waits until a step is over: after so long, or as soon as `is_over` says so. Measures it.
    async fn wait(
        &self,
        place: &Place,
        begun: &Begun,
        longest: Duration,
        is_over: impl Fn(&PoolStatus) -> Result<bool, Ended>,
    ) -> Result<(), Ended> {
        let mut measured = begun.at;
        loop {
            let rest = longest.saturating_sub(begun.at.elapsed());
            tokio::time::sleep(TICK.min(rest)).await;
            let over = match self.is_stopped.load(Ordering::Acquire) {
                true => Err(Ended::Stopped),
                false => is_over(&place.status()?).map(|over| over || rest <= TICK),
            };
            if measured.elapsed() > MEASURED_EVERY || !matches!(over, Ok(false)) {
                measured = Instant::now();
                let mut info = self.info.lock();
                let phase = info.phases.last_mut();
                let now = place.counts()?;
                if let Some(phase) = phase {
                    phase.took_ms = ms(begun.at.elapsed());
                    phase.clients = flow_of(&since(&now, &begun.counts));
                }
            }
            if over? {
                return Ok(());
            }
        }
    }

    /// The path of a disk beside this one that had errors.
    fn another_with_errors(&self, status: &PoolStatus) -> Option<String> {
        let mut leaves = status.vdevs.iter().filter_map(|vdev| {
            let of = vdev.leaves.iter();
            of.clone().any(|leaf| leaf.guid == self.disk).then_some(of)
        });
        let mut others = leaves.next()?.filter(|leaf| leaf.guid != self.disk);
        others.find(|leaf| errors(leaf) > 0).map(|leaf| leaf.path.clone())
    }

    /// Whether the disk holds everything again. Notes how far that is.
    fn is_back(&self, status: &PoolStatus) -> Result<bool, Ended> {
        let mut leaves = status.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        let failed = |why: &str| Err(Ended::Failed(format!("{} {why}", self.path())));
        let Some(leaf) = leaves.find(|leaf| leaf.guid == self.disk) else {
            return failed("has left the pool");
        };
        if leaf.offline {
            return failed("was taken offline by the administrator");
        }
        let is_back = leaf.state == LeafState::Online;
        let newest = status.resilver.as_ref().filter(|newest| newest.leaf == self.disk);
        match newest {
            // Before its own begins, an earlier one may be shown, which succeeded.
            Some(ResilverStatus { succeeded: Some(true), .. }) if !is_back => {}
            Some(ResilverStatus { succeeded: Some(false), .. }) => {
                return failed("could not be resilvered, and is tried again by itself");
            }
            Some(ResilverStatus { copied_bytes, unread_blocks, .. }) => {
                let mut info = self.info.lock();
                info.resilvered_bytes = *copied_bytes;
                info.unread_blocks = *unread_blocks;
            }
            None => {}
        }
        Ok(is_back)
    }

    fn end(&self, place: &Place, result: Result<(), Ended>) {
        let (state, reason) = match result {
            Ok(()) => (DrillState::Done, None),
            Err(Ended::Stopped) => {
                (DrillState::Stopped, Some("it was ended early, on request".to_string()))
            }
            Err(Ended::Failed(why)) => (DrillState::Failed, Some(why)),
            Err(Ended::Left) => return,
        };
        {
            let mut info = self.info.lock();
            (info.state, info.reason) = (state, reason.clone());
        }
        let (pool, disk) = (self.pool(place).unwrap_or_default(), self.path());
        match reason {
            None => tracing::info!(
                class = "drill.ended",
                pool,
                disk,
                "a drill has ended: its disk is back"
            ),
            Some(reason) => tracing::warn!(
                class = "drill.ended",
                pool,
                disk,
                reason,
                "a drill has ended early: its disk comes back by itself"
            ),
        }
    }

    fn pool(&self, place: &Place) -> Result<String, Ended> {
        Ok(place.now()?.1.name().to_string())
    }

    fn path(&self) -> String {
        self.info.lock().disk.clone()
    }
}

/// The begin of a step.
struct Begun {
    at: Instant,
    counts: Counts,
}

/// The counts since `then`, added up.
fn since(now: &Counts, then: &Counts) -> Flow {
    let mut sum = Flow::default();
    for (file, flow) in now {
        sum.add(&then.get(file).map_or_else(|| flow.clone(), |then| flow.since(then)));
    }
    sum
}

/// Longest time that a disk is taken away.
const SECONDS_MAX: u64 = 3600;
/// How often a drill looks whether it goes on.
const TICK: Duration = Duration::from_millis(50);
/// How often the counts are taken while a step goes on, for those that look on.
const MEASURED_EVERY: Duration = Duration::from_millis(500);
