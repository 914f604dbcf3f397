//! Scrub: examines every copy of everything that the pool holds, mends what it can, and notes which
//! files lost what.
//!
//! It goes in pieces ([`Pool::examine`](aquifer_pool::Pool::examine)), in the background. The pool
//! remembers how far it is, so a restart goes on where the last one ended. While a disk is
//! resilvered it waits.

mod lost;
mod repaired;

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::ms;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_dataset::Property;
use aquifer_ondisk::inode::Time;
use aquifer_ondisk::scrub::{ScrubRecord, ScrubState, WalkPosition};
use aquifer_pool::{Examined, PoolError, Span, Watch};
use aquifer_sync::atomic::Ordering;

use crate::core::Files;

use lost::Found;
pub use repaired::{RepairedFile, RepairedFiles};

/// The position reaches the disk about this often.
const NOTED: Duration = Duration::from_secs(30);

const DAY_SECONDS: i64 = 24 * 3600;

/// A scrub could not be started, paused or stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScrubError {
    /// It goes on already.
    #[error("a scrub goes on already")]
    Active,
    /// None goes on.
    #[error("no scrub goes on")]
    NotActive,
    /// The pool failed.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

impl Files {
    /// The newest scrub of the pool, with what was done since its record was written.
    pub fn scrub_status(&self) -> Option<ScrubRecord> {
        let scrubbing = self.scrubbing.lock();
        let mut record = self.datasets.scrubbed()?;
        if let Some((begun, watch)) = &scrubbing.piece
            && record.state == ScrubState::Active
        {
            record.examined_bytes += watch.examined_bytes.load(Ordering::Relaxed);
            record.repaired_bytes += watch.repaired_bytes.load(Ordering::Relaxed);
            record.unreadable_blocks += watch.lost_blocks.load(Ordering::Relaxed);
            record.active_ms += ms(self.pool.world().now().saturating_sub(*begun));
        }
        if matches!(record.state, ScrubState::Active | ScrubState::Paused) {
            // The pool has grown since, or its last part takes long: some is left until the end.
            let least = record.examined_bytes.saturating_add(record.examined_bytes / 128 + 4096);
            record.total_bytes = record.total_bytes.max(least);
        }
        Some(record)
    }

    /// Begins a scrub, or resumes one that is paused. On disk when this returns.
    ///
    /// # Errors
    /// It goes on already; errors of the pool.
    pub async fn start_scrub(self: &Arc<Self>) -> Result<(), ScrubError> {
        if self.pool.is_read_only() {
            return Err(PoolError::ReadOnly.into());
        }
        let new = ScrubRecord {
            state: ScrubState::Active,
            begun: self.now(),
            ended: Time { seconds: 0, nanoseconds: 0 },
            active_ms: 0,
            total_bytes: self.pool.used_sectors().saturating_sub(self.pool.own_sectors()) * 4096,
            examined_bytes: 0,
            repaired_bytes: 0,
            unreadable_blocks: 0,
            position: WalkPosition::default(),
        };
        let resumed = self.datasets.revise_scrub(|record| {
            match record.as_mut().map(|record| (record.state, record)) {
                Some((ScrubState::Active, _)) => return Err(ScrubError::Active),
                Some((ScrubState::Paused, record)) => {
                    record.state = ScrubState::Active;
                    return Ok(true);
                }
                _ => *record = Some(new),
            }
            Ok(false)
        })?;
        let (class, what) = match resumed {
            true => ("scrub.resumed", "scrub goes on"),
            false => ("scrub.begun", "scrub begins"),
        };
        tracing::info!(class, pool = self.pool.name(), "{what}");
        self.go_on_scrubbing();
        Ok(self.datasets.scrub_on_disk().await?)
    }

    /// Begins a scrub if the pool's property `scrub` says that it is time at `now`. A scrub that is
    /// paused stays so. Returns whether it began.
    ///
    /// # Errors
    /// Errors of the pool.
    pub async fn scrub_if_due(self: &Arc<Self>, now: Time) -> Result<bool, ScrubError> {
        let Some(own) = self.datasets.by_name(self.pool.name()) else { return Ok(false) };
        let days = match self.datasets.value(&own, Property::Scrub).0.as_str() {
            "weekly" => 7,
            "monthly" => 30,
            _ => return Ok(false),
        };
        let last = match self.datasets.scrubbed() {
            Some(record) if matches!(record.state, ScrubState::Active | ScrubState::Paused) => {
                return Ok(false);
            }
            Some(record) => record.begun,
            None => own.created(),
        };
        if now.seconds.saturating_sub(last.seconds) < days * DAY_SECONDS {
            return Ok(false);
        }
        self.start_scrub().await.map(|()| true)
    }

    /// Pauses the scrub, or stops it for good. On disk when this returns.
    ///
    /// # Errors
    /// None goes on; errors of the pool.
    pub async fn end_scrub(&self, pause: bool) -> Result<(), ScrubError> {
        let now = self.now();
        self.datasets.revise_scrub(|record| match record {
            Some(record) if record.state == ScrubState::Active && pause => {
                record.state = ScrubState::Paused;
                Ok(())
            }
            Some(record)
                if matches!(record.state, ScrubState::Active | ScrubState::Paused) && !pause =>
            {
                (record.state, record.ended) = (ScrubState::Canceled, now);
                Ok(())
            }
            _ => Err(ScrubError::NotActive),
        })?;
        if let Some((_, watch)) = &self.scrubbing.lock().piece {
            watch.stop();
        }
        let (class, what) = match pause {
            true => ("scrub.paused", "scrub is paused"),
            false => ("scrub.canceled", "scrub is canceled"),
        };
        tracing::info!(class, pool = self.pool.name(), "{what}");
        Ok(self.datasets.scrub_on_disk().await?)
    }

    /// Goes on with a scrub that the pool remembers as active, if no task does so already.
    pub(crate) fn go_on_scrubbing(self: &Arc<Self>) {
        let already = std::mem::replace(&mut self.scrubbing.lock().has_task, true);
        if !already {
            self.pool.world().spawn("scrub", Box::pin(Arc::clone(self).scrub()));
        }
    }

    async fn scrub(self: Arc<Self>) {
        let mut noted = self.pool.world().now();
        while let Some((record, watch)) = self.begin_piece() {
            let span = Span { from: record.position, to: WalkPosition::END };
            if left_out(Rule::ScrubNotesWhatIsDone) {
                self.note_ahead(&record, span).await;
            }
            let examined = match self.examine(&record, span, &watch).await {
                Ok(examined) => examined,
                // The pool ended. The next import goes on.
                Err(_) => return,
            };
            self.note_lost(&examined.lost, &watch.lost).await;
            for repaired in &examined.repaired {
                self.note_repaired(record.begun, repaired).await;
            }
            self.end_piece(&record, &examined);
            if examined.next.is_none() {
                self.finish_scrub(&record).await;
            }
            let now = self.pool.world().now();
            if now.saturating_sub(noted) > NOTED || examined.next.is_none() {
                noted = now;
                self.pool.background_waits();
            }
        }
    }

    /// Only where the simulator leaves out a rule: notes where a piece will end before it begins.
    async fn note_ahead(&self, of: &ScrubRecord, span: Span) {
        let walked = Watch::default();
        walked.stop();
        let Ok(walked) = self.pool.examine(span, &walked).await else { return };
        self.datasets.revise_scrub(|record| {
            if let Some(record) = record.as_mut().filter(|record| record.begun == of.begun) {
                record.position = walked.next.unwrap_or(WalkPosition::END);
            }
        });
    }

    /// A piece. The first one begins with what is written in place.
    async fn examine(
        &self,
        record: &ScrubRecord,
        span: Span,
        watch: &Watch,
    ) -> Result<Examined, PoolError> {
        let mut repaired_bytes = 0;
        if record.position == WalkPosition::default() {
            repaired_bytes = self.pool.examine_in_place().await?.repaired_bytes;
        }
        let mut examined = self.pool.examine(span, watch).await?;
        examined.repaired_bytes += repaired_bytes;
        Ok(examined)
    }

    /// The record of a scrub that goes on. If none does, this task ends: both are decided under one
    /// lock, so that a scrub that starts meanwhile has a task.
    fn begin_piece(&self) -> Option<(ScrubRecord, Arc<Watch>)> {
        let mut scrubbing = self.scrubbing.lock();
        let record = self.datasets.scrubbed();
        let record = record.filter(|record| record.state == ScrubState::Active);
        let now = self.pool.world().now();
        let piece = record.map(|record| {
            let lost = scrubbing.found.of(record.begun).lost.clone();
            (record, Arc::new(Watch::over(lost)))
        });
        scrubbing.has_task = piece.is_some();
        scrubbing.piece = piece.as_ref().map(|(_, watch)| (now, watch.clone()));
        piece
    }

    /// Adds what was found to the record, if it is still the same scrub's.
    fn end_piece(&self, of: &ScrubRecord, examined: &Examined) {
        let mut scrubbing = self.scrubbing.lock();
        let begun = scrubbing.piece.take().map(|(begun, _)| begun);
        let took = begun.map(|begun| self.pool.world().now().saturating_sub(begun));
        self.datasets.revise_scrub(|record| {
            let Some(record) = record.as_mut().filter(|record| record.begun == of.begun) else {
                return;
            };
            record.active_ms += took.map_or(0, ms);
            record.repaired_bytes += examined.repaired_bytes;
            if examined.next == Some(of.position) {
                return;
            }
            record.examined_bytes += examined.examined_bytes;
            record.unreadable_blocks += examined.lost_blocks;
            record.position = examined.next.unwrap_or(WalkPosition::END);
        });
    }

    async fn finish_scrub(&self, of: &ScrubRecord) {
        for damage in self.datasets.damages_remembered() {
            if !self.has_lost(&damage) && self.is_whole_again(&damage).await {
                self.datasets.found_whole(&damage);
            }
        }
        let now = self.now();
        let finished = self.datasets.revise_scrub(|record| {
            let record = record.as_mut().filter(|record| record.begun == of.begun)?;
            (record.state, record.ended) = (ScrubState::Finished, now);
            Some(*record)
        });
        let Some(record) = finished else { return };
        let ScrubRecord { examined_bytes, repaired_bytes, unreadable_blocks, .. } = record;
        let pool = self.pool.name();
        match unreadable_blocks {
            0 => tracing::info!(
                class = "scrub.finished",
                pool,
                examined_bytes,
                repaired_bytes,
                unreadable_blocks,
                "scrub has examined everything"
            ),
            _ => tracing::error!(
                class = "scrub.finished",
                pool,
                examined_bytes,
                repaired_bytes,
                unreadable_blocks,
                "scrub has met content that no disk holds: see `aquifer pool status`"
            ),
        }
    }
}

/// The task that scrubs.
#[derive(Debug, Default)]
pub(crate) struct Scrubbing {
    /// There is one, or it ends only after a last look at whether to go on.
    has_task: bool,
    /// When its present piece began, by the world's clock.
    piece: Option<(Duration, Arc<Watch>)>,
    /// Files that the newest scrub has repaired.
    repaired: RepairedFiles,
    /// Losses that the newest scrub has found.
    found: Found,
}
