//! A trim or an initialization of one disk: all space that is free, from its begin to its end.
//!
//! Its state is in memory, and on disk as far as the next import needs it: how what has ended did
//! ([`Pool::take_free_work`]), and how far the rest is ([`Pool::take_open_work`]).

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use aquifer_blockio::{DiskError, Page, PageMut};
use aquifer_ondisk::types::{Run, SEGMENT_SECTORS};
use aquifer_ondisk::{Guid, Place};
use aquifer_sync::Mutex;
use aquifer_vdev::{Leaf, Vdev};

use super::{Lending, TRIM_SECTORS_MIN};
use crate::pool::Pool;

/// Kind of work on free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FreeWork {
    /// It is discarded.
    Trim,
    /// It is written over.
    Initialize,
}

/// How the work on a disk stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeWorkState {
    /// It goes on.
    Running,
    /// It goes on once the disk is in use and answers.
    Waiting,
    /// It waits to be resumed.
    Suspended,
    /// It was canceled.
    Canceled,
    /// All that was free was worked on.
    Finished,
    /// The disk cannot discard.
    Unsupported,
    /// The disk gave too many errors, or left the pool.
    Failed,
}

/// The newest work of one kind on a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeWorkStatus {
    /// How it stands.
    pub state: FreeWorkState,
    /// Bytes of the disk that it has passed, in use or free.
    pub passed_bytes: u64,
    /// Bytes of the disk.
    pub total_bytes: u64,
    /// Bytes discarded or written over.
    pub done_bytes: u64,
    /// Bytes left alone because the pool needed them, or because what is free there is not known.
    pub skipped_bytes: u64,
    /// When it began, ns since 1970.
    pub begun_ns: u64,
    /// When it ended, ns since 1970.
    pub ended_ns: Option<u64>,
    /// The last error of the disk.
    pub last_error: Option<String>,
}

/// Why work is not begun, or not ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreeWorkError {
    /// No such disk.
    #[error("{0} is no disk of the pool's data")]
    NoDisk(String),
    /// It is under way already.
    #[error("{0}: goes on already")]
    Active(String),
    /// None is.
    #[error("{0}: there is none")]
    NotActive(String),
}

/// Errors in a row after which a disk is left alone.
const ERRORS_MAX: u32 = 8;
/// How often a disk is looked at that does not take part, or a pool that needs its space.
const WAIT: Duration = Duration::from_secs(1);
/// How soon a piece is tried again that is lent.
const BUSY: Duration = Duration::from_millis(10);
/// How often in a row a pool that needs its space is asked again.
const REFUSALS_MAX: u32 = 10;
/// Pieces without anything to do after which others have their turn.
const PIECES_AT_ONCE: u32 = 64;
/// Pattern with which free space is written over, as ZFS does it.
const PATTERN: u64 = 0xdead_beef_dead_beee;
/// Sectors of one write: 1 MiB.
const WRITE_SECTORS: u64 = 256;

type Key = (Guid, FreeWork);

#[derive(Debug, Default)]
pub(super) struct Jobs(pub(super) Mutex<HashMap<Key, Arc<Job>>>);

#[derive(Debug)]
pub(super) struct Job {
    leaf: Guid,
    pub(super) path: String,
    pub(super) work: FreeWork,
    pub(super) standing: Mutex<Standing>,
}

#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) status: FreeWorkStatus,
    /// Bytes a second at most.
    pub(super) rate: Option<u64>,
    /// Changes with each time that it begins or goes on: an older task ends.
    pub(super) turn: u64,
    /// The next sector of the vdev.
    pub(super) next: u64,
    /// When its place last went to disk, and which that was.
    pub(super) noted: Duration,
    pub(super) noted_next: u64,
    errors: u32,
    refusals: u32,
}

/// Next step of a task.
enum Next {
    /// Goes on after so long.
    After(Duration),
    Ends(FreeWorkState),
}

impl Job {
    /// One that begins.
    pub(super) fn new(leaf: &Leaf, work: FreeWork, begun_ns: u64) -> Job {
        let status = FreeWorkStatus {
            state: FreeWorkState::Running,
            passed_bytes: 0,
            total_bytes: 0,
            done_bytes: 0,
            skipped_bytes: 0,
            begun_ns,
            ended_ns: None,
            last_error: None,
        };
        let (noted, noted_next) = (Duration::ZERO, 0);
        let standing = Mutex::new(Standing {
            status,
            rate: None,
            turn: 0,
            next: 0,
            noted,
            noted_next,
            errors: 0,
            refusals: 0,
        });
        Job { leaf: leaf.guid, path: leaf.path.clone(), work, standing }
    }

    pub(super) fn is_active(&self) -> bool {
        matches!(self.standing.lock().status.state, FreeWorkState::Running | FreeWorkState::Waiting)
    }

    fn ends(&self, state: FreeWorkState, now_ns: u64) {
        let mut standing = self.standing.lock();
        standing.turn += 1;
        standing.status.state = state;
        let is_over = state != FreeWorkState::Suspended;
        standing.status.ended_ns = is_over.then_some(now_ns);
    }

    /// Whether the disk takes part now.
    fn takes_part(&self, does: bool) {
        let (was, is) = match does {
            true => (FreeWorkState::Waiting, FreeWorkState::Running),
            false => (FreeWorkState::Running, FreeWorkState::Waiting),
        };
        let mut standing = self.standing.lock();
        if standing.status.state == was {
            standing.status.state = is;
        }
    }

    /// A piece is behind it. (A task that was suspended in it may come to that piece again.)
    fn passes(&self, piece: Run, done_sectors: u64) {
        let mut standing = self.standing.lock();
        standing.next = standing.next.max(piece.end_sector());
        standing.status.passed_bytes = standing.next * 4096;
        standing.status.done_bytes += done_sectors * 4096;
    }

    fn fails(&self, error: &DiskError) -> u32 {
        let mut standing = self.standing.lock();
        standing.status.last_error = Some(error.to_string());
        standing.errors += 1;
        standing.errors
    }
}

/// Refuses disks on which this work goes on.
fn none_active(
    jobs: &HashMap<Key, Arc<Job>>,
    leaves: &[Arc<Leaf>],
    work: FreeWork,
) -> Result<(), FreeWorkError> {
    let active =
        |leaf: &&Arc<Leaf>| jobs.get(&(leaf.guid, work)).is_some_and(|job| job.is_active());
    match leaves.iter().find(active) {
        Some(leaf) => Err(FreeWorkError::Active(leaf.path.clone())),
        None => Ok(()),
    }
}

impl Pool {
    /// Begins work on the free space of these disks (all that hold data, if none is named), or
    /// resumes it where it was suspended; at most `rate` bytes a second on each. Once the open txg
    /// is on disk a restart goes on with it.
    ///
    /// # Errors
    /// It goes on already; one is no disk of the pool's data. Then nothing is begun.
    pub fn start_free_work(
        self: &Arc<Self>,
        work: FreeWork,
        disks: &[String],
        rate: Option<u64>,
    ) -> Result<(), FreeWorkError> {
        let found = self.data_leaves(disks)?;
        let mut jobs = self.acts.trims.jobs.0.lock();
        none_active(&jobs, &found, work)?;
        for leaf in found {
            let old = jobs.get(&(leaf.guid, work));
            let suspended =
                old.filter(|job| job.standing.lock().status.state == FreeWorkState::Suspended);
            let job = suspended
                .cloned()
                .unwrap_or_else(|| Arc::new(Job::new(&leaf, work, self.world.wall_ns())));
            let turn = {
                let mut standing = job.standing.lock();
                standing.turn += 1;
                standing.rate = rate;
                standing.status.state = FreeWorkState::Running;
                standing.turn
            };
            tracing::info!(
                class = "disk.free_work_begun", pool = self.name(), leaf = %leaf.path, ?work,
                "work on the free space of a disk begins"
            );
            jobs.insert((leaf.guid, work), job.clone());
            self.note_open_work(leaf.guid);
            self.world.spawn("free space", Box::pin(carry_on(self.this.clone(), job, turn)));
        }
        Ok(())
    }

    /// Suspends or cancels it.
    ///
    /// # Errors
    /// There is none, on none of them or on one that was named.
    pub fn end_free_work(
        &self,
        work: FreeWork,
        disks: &[String],
        suspends: bool,
    ) -> Result<(), FreeWorkError> {
        let jobs = self.acts.trims.jobs.0.lock();
        let found = self.data_leaves(disks)?;
        let is_open = |job: &&Arc<Job>| {
            let is_suspended = job.standing.lock().status.state == FreeWorkState::Suspended;
            job.is_active() || is_suspended && !suspends
        };
        let open = |leaf: &Arc<Leaf>| jobs.get(&(leaf.guid, work)).filter(is_open);
        let none = |leaf: &&Arc<Leaf>| open(leaf).is_none();
        let missing = found.iter().find(none).filter(|_| !disks.is_empty());
        let nothing = found.iter().all(|leaf| none(&leaf)).then(|| self.name().to_string());
        if let Some(what) = missing.map(|leaf| leaf.path.clone()).or(nothing) {
            return Err(FreeWorkError::NotActive(what));
        }
        let state = if suspends { FreeWorkState::Suspended } else { FreeWorkState::Canceled };
        for job in found.iter().filter_map(open) {
            job.ends(state, self.world.wall_ns());
            self.keep_ended_work(job.leaf, work, &job.standing.lock().status);
            self.note_open_work(job.leaf);
        }
        Ok(())
    }

    /// Forgets work that has ended: the disks count as never worked on.
    ///
    /// # Errors
    /// It goes on.
    pub fn forget_free_work(&self, work: FreeWork, disks: &[String]) -> Result<(), FreeWorkError> {
        let mut jobs = self.acts.trims.jobs.0.lock();
        let found = self.data_leaves(disks)?;
        none_active(&jobs, &found, work)?;
        for leaf in found {
            jobs.remove(&(leaf.guid, work));
            self.forget_ended_work(leaf.guid, work);
            self.note_open_work(leaf.guid);
        }
        Ok(())
    }

    /// How it stands on a disk, or how it last ended.
    pub(crate) fn free_work(&self, leaf: Guid, work: FreeWork) -> Option<FreeWorkStatus> {
        let job = self.acts.trims.jobs.0.lock().get(&(leaf, work)).cloned();
        let status = job.map(|job| job.standing.lock().status.clone());
        status.or_else(|| self.ended_work(leaf, work))
    }

    /// The disks of these paths or guids that hold data; all, if none is named.
    fn data_leaves(&self, disks: &[String]) -> Result<Vec<Arc<Leaf>>, FreeWorkError> {
        if disks.is_empty() {
            return Ok(self.tree().data().flat_map(|vdev| &vdev.leaves).cloned().collect());
        }
        let named =
            |disk: &String| self.data_leaf(disk).ok_or_else(|| FreeWorkError::NoDisk(disk.clone()));
        disks.iter().map(named).collect()
    }

    /// The vdev and the leaf of a job, if it is still the pool's.
    fn leaf_of(&self, job: &Job) -> Option<(Arc<Vdev>, Arc<Leaf>)> {
        self.tree().data().find_map(|vdev| {
            let leaf = vdev.leaves.iter().find(|leaf| leaf.guid == job.leaf)?;
            Some((vdev.clone(), leaf.clone()))
        })
    }

    /// Works on the next pieces, until something was done.
    async fn work_on(&self, job: &Job) -> Next {
        for _ in 0..PIECES_AT_ONCE {
            let Some((vdev, leaf)) = self.leaf_of(job) else {
                return Next::Ends(FreeWorkState::Failed);
            };
            if !leaf.is_online() || leaf.is_late() {
                job.takes_part(false);
                return Next::After(WAIT);
            }
            job.takes_part(true);
            if job.work == FreeWork::Trim && !leaf.can_discard() {
                return Next::Ends(FreeWorkState::Unsupported);
            }
            // The vdev may have grown.
            let (at, sectors) = (job.standing.lock().next, vdev.geometry.sectors());
            job.standing.lock().status.total_bytes = sectors * 4096;
            if at >= sectors {
                return Next::Ends(FreeWorkState::Finished);
            }
            let within = Run::new(Place::new(vdev.index, at), self.loan_sectors());
            if let Some(next) = self.work_within(job, &leaf, within).await {
                return next;
            }
        }
        Next::After(Duration::ZERO)
    }

    /// Works on a piece. `None`: there was nothing to do.
    async fn work_within(&self, job: &Job, leaf: &Arc<Leaf>, within: Run) -> Option<Next> {
        self.load_to_look(within).await;
        let min = if job.work == FreeWork::Trim { TRIM_SECTORS_MIN } else { 1 };
        let loan = match self.lend(within, min) {
            Lending::Lent(loan) => loan,
            Lending::Busy => return Some(Next::After(BUSY)),
            Lending::Refused if self.may_ask_again(job) => return Some(Next::After(WAIT)),
            Lending::Refused | Lending::Unknown => {
                job.passes(within, 0);
                job.standing.lock().status.skipped_bytes += within.sectors * 4096;
                return None;
            }
        };
        let (begun, mut done) = (self.world.now(), 0);
        for run in loan.runs() {
            let (sector, count) = (run.place.sector(), run.sectors);
            let worked = match job.work {
                FreeWork::Trim => {
                    self.in_background(leaf.discard(sector, count, loan.clone())).await
                }
                FreeWork::Initialize => self.write_over(leaf, *run, &loan).await,
            };
            match worked {
                Ok(()) => {
                    job.standing.lock().errors = 0;
                    done += count;
                }
                Err(DiskError::Late { .. }) => break,
                Err(error) if job.fails(&error) >= ERRORS_MAX => {
                    return Some(Next::Ends(FreeWorkState::Failed));
                }
                Err(_) => {}
            }
        }
        let is_empty = loan.runs().next().is_none();
        job.passes(within, done);
        job.standing.lock().refusals = 0;
        let rate = job.standing.lock().rate.filter(|_| done > 0);
        let least = rate.map_or(0, |rate| (done * 4096).saturating_mul(1_000_000) / rate.max(1));
        let took = self.world.now().saturating_sub(begun);
        let rest = Duration::from_micros(least).saturating_sub(took);
        (!is_empty).then_some(Next::After(rest))
    }

    /// Whether the pool was not asked too often already while it needs its space.
    fn may_ask_again(&self, job: &Job) -> bool {
        let mut standing = job.standing.lock();
        standing.refusals += 1;
        standing.refusals <= REFUSALS_MAX && self.txgs.failure().is_none()
    }

    async fn write_over(
        &self,
        leaf: &Arc<Leaf>,
        run: Run,
        loan: &Arc<super::Loan>,
    ) -> Result<(), DiskError> {
        let page = pattern();
        for skip in (0..run.sectors).step_by(usize::try_from(WRITE_SECTORS).unwrap_or(1)) {
            let count = usize::try_from(WRITE_SECTORS.min(run.sectors - skip)).unwrap_or(0);
            let pages = vec![page.clone(); count];
            let write = leaf.write_over(run.place.sector() + skip, pages, loan.clone());
            self.in_background(write).await?;
        }
        Ok(())
    }
}

fn pattern() -> Page {
    let mut page = PageMut::zeroed();
    page.as_mut_slice().chunks_exact_mut(8).for_each(|to| {
        to.copy_from_slice(&PATTERN.to_le_bytes());
    });
    page.freeze()
}

/// Goes on with a job until it ends, or another task has it.
pub(super) async fn carry_on(pool: Weak<Pool>, job: Arc<Job>, turn: u64) {
    while let Some(pool) = pool.upgrade() {
        if job.standing.lock().turn != turn || pool.txgs.failure().is_some() {
            return;
        }
        let next = pool.work_on(&job).await;
        if job.standing.lock().turn != turn {
            return;
        }
        let rest = match next {
            Next::After(rest) => {
                if job.is_to_be_noted(pool.world.now()) {
                    pool.note_open_work(job.leaf);
                }
                rest
            }
            Next::Ends(state) => {
                job.ends(state, pool.world.wall_ns());
                pool.keep_ended_work(job.leaf, job.work, &job.standing.lock().status);
                pool.note_open_work(job.leaf);
                tell_end(&pool, &job);
                return;
            }
        };
        let world = pool.world.clone();
        drop(pool);
        world.sleep(rest).await;
    }
}

fn tell_end(pool: &Pool, job: &Job) {
    let status = job.standing.lock().status.clone();
    let (name, leaf, work) = (pool.name(), &job.path, job.work);
    let FreeWorkStatus { state, done_bytes, last_error, .. } = status;
    match state {
        FreeWorkState::Failed => tracing::error!(
            class = "disk.free_work_failed", pool = name, leaf = %leaf, ?work, done_bytes,
            error = last_error.unwrap_or_default(),
            "work on the free space of a disk ended too early"
        ),
        state => tracing::info!(
            class = "disk.free_work_ended", pool = name, leaf = %leaf, ?work, ?state, done_bytes,
            "work on the free space of a disk has ended"
        ),
    }
}

const _: () = assert!(SEGMENT_SECTORS.is_multiple_of(WRITE_SECTORS));
