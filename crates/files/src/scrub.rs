//! Scrub: examines every copy of everything that the pool holds, mends what it can, and notes which
//! files lost what.
//!
//! It goes in pieces ([`Pool::examine`](aquifer_pool::Pool::examine)), in the background. The pool
//! remembers how far it is, so a restart goes on where the last one ended. While a disk is
//! resilvered it waits.

mod repaired;

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::ms;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_dataset::{DamageKind, DamageRecord, Dataset, Property};
use aquifer_ondisk::inode::{FileKind, Time};
use aquifer_ondisk::pool_root::TreeSlot;
use aquifer_ondisk::scrub::{ScrubRecord, ScrubState, WalkPosition};
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use aquifer_pool::{Examined, Lost, PoolError, Span, Watch};
use aquifer_sync::atomic::Ordering;

use crate::core::Files;

pub use repaired::{RepairedFile, RepairedFiles};

/// The position reaches the disk about this often.
const NOTED: Duration = Duration::from_secs(30);

const DAY_SECONDS: i64 = 24 * 3600;
/// Pages of a damaged file that are tried one by one.
const PAGES_TRIED_MAX: usize = 4096;

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
            record.active_ms += ms(self.pool.world().now().saturating_sub(*begun));
        }
        Some(record)
    }

    /// Begins a scrub, or resumes one that is paused. On disk when this returns.
    ///
    /// # Errors
    /// It goes on already; errors of the pool.
    pub async fn start_scrub(self: &Arc<Self>) -> Result<(), ScrubError> {
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
            for lost in &examined.lost {
                self.note_lost(lost).await;
            }
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
        let piece = record.map(|record| (record, Arc::new(Watch::default())));
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
            record.unreadable_blocks += examined.lost.len() as u64;
            record.position = examined.next.unwrap_or(WalkPosition::END);
        });
    }

    async fn finish_scrub(&self, of: &ScrubRecord) {
        for damage in self.datasets.damages() {
            if self.is_whole_again(&damage).await {
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

    /// Notes what is lost, by file and pages, if the newest root has lost it too.
    async fn note_lost(&self, lost: &Lost) {
        let again = self.pool.examine(lost.span, &Watch::default()).await;
        let Ok(again) = again else { return };
        for Lost { span, error } in again.lost {
            if let Some(snapshot) = self.snapshot_of(&span) {
                tracing::error!(
                    class = "snapshot.unreadable", pool = self.pool.name(), snapshot,
                    object = span.from.object, ?span, %error,
                    "a part of a snapshot cannot be read"
                );
                self.note_shared(&span, &error).await;
                continue;
            }
            let Some((dataset, id)) = self.object_of(&span) else {
                tracing::error!(
                    class = "pool.unreadable", pool = self.pool.name(), ?span, %error,
                    "a part of the pool's own records cannot be read"
                );
                continue;
            };
            let ranges = self.pages_of(&dataset, id, &span).await;
            if !self.datasets.knows_unreadable(&dataset, id, &ranges) {
                self.note_unreadable((&dataset, id), ranges, &error).await;
            }
        }
    }

    /// Notes what a file has lost with a snapshot: a walk meets what both show with the snapshot.
    async fn note_shared(&self, span: &Span, error: &PoolError) {
        let Some(dataset) = self.datasets.by_id(DatasetId(span.from.key.0)) else { return };
        let id = ObjectId(span.from.object);
        if dataset.is_destroyed() {
            return;
        }
        let ranges = self.pages_of(&dataset, id, span).await;
        let lost = self.pages_lost(&dataset, id, &ranges).await;
        if !lost.is_empty() && !self.datasets.knows_unreadable(&dataset, id, &lost) {
            self.note_unreadable((&dataset, id), lost, error).await;
        }
    }

    /// Which of a file's pages cannot be read. Of many, the first ones are tried.
    async fn pages_lost(
        &self,
        dataset: &Dataset,
        id: ObjectId,
        ranges: &[(u64, u64)],
    ) -> Vec<(u64, u64)> {
        let Ok(Some(object)) = dataset.object(&self.pool, id).await else { return Vec::new() };
        let pages = ranges.iter().flat_map(|(from, to)| *from..*to).take(PAGES_TRIED_MAX);
        let mut lost: Vec<(u64, u64)> = Vec::new();
        for page in pages {
            let read = object.read_pages(&self.pool, page, page + 1).await;
            if !read.is_err_and(|error| error.cannot_be_read()) {
                continue;
            }
            match lost.last_mut() {
                Some((_, to)) if *to == page => *to = page + 1,
                _ => lost.push((page, page + 1)),
            }
        }
        lost
    }

    /// The snapshot in which a span lies.
    fn snapshot_of(&self, span: &Span) -> Option<String> {
        let WalkPosition { tree, key, .. } = span.from;
        if let Some(name) = self.datasets.file_snapshot_at(key) {
            return Some(name);
        }
        let txg = WalkPosition::snapshot_of(key).filter(|_| tree == TreeSlot::Namespace as u8)?;
        Some(self.datasets.name_on_line(DatasetId(key.0), txg))
    }

    /// The object in which a span lies. Of a part of an object table it is the first.
    fn object_of(&self, span: &Span) -> Option<(Arc<Dataset>, ObjectId)> {
        let WalkPosition { tree, key: (dataset, _), object, .. } = span.from;
        let is_namespace = tree == TreeSlot::Namespace as u8;
        let dataset = self.datasets.by_id(DatasetId(dataset)).filter(|_| is_namespace)?;
        // All groups of a dead tree are one.
        let object = if object >= WalkPosition::dead_group(0) { u64::MAX } else { object.max(1) };
        (!dataset.is_destroyed()).then_some((dataset, ObjectId(object)))
    }

    /// The pages of a file in a span; none for any other object.
    async fn pages_of(&self, dataset: &Dataset, id: ObjectId, span: &Span) -> Vec<(u64, u64)> {
        let within_one = span.from.object == span.to.object && span.from.object == id.0;
        let object = dataset.object(&self.pool, id).await.ok().flatten();
        let file = object.filter(|object| within_one && object.kind() == FileKind::Regular);
        let Some(file) = file else { return Vec::new() };
        let end = span.to.within.min(file.inode().size.div_ceil(4096));
        if span.from.within < end { vec![(span.from.within, end)] } else { Vec::new() }
    }

    /// Whether all that a record says to be unreadable is on disk again: another disk came back.
    async fn is_whole_again(&self, damage: &DamageRecord) -> bool {
        if damage.kind != DamageKind::Unreadable || damage.more {
            return false;
        }
        let at = |within| WalkPosition {
            tree: TreeSlot::Namespace as u8,
            key: WalkPosition::head(damage.dataset, Txg(0)),
            object: damage.object.0,
            within,
        };
        let whole = [(0, u64::MAX)];
        let ranges = if damage.ranges.is_empty() { &whole[..] } else { &damage.ranges };
        for (from, to) in ranges {
            let mut next = Some(at(*from));
            while let Some(from) = next {
                let span = Span { from, to: at(*to) };
                match self.pool.examine(span, &Watch::default()).await {
                    Ok(examined) if examined.lost.is_empty() => next = examined.next,
                    _ => return false,
                }
            }
        }
        // What a snapshot shows too was examined with that, not here.
        let Some(dataset) = self.datasets.by_id(damage.dataset) else { return true };
        self.pages_lost(&dataset, damage.object, &damage.ranges).await.is_empty()
    }
}

/// The task that scrubs.
#[derive(Debug, Default)]
pub(crate) struct Scrubbing {
    /// There is one, or it ends only after a last look at whether to go on.
    has_task: bool,
    /// When its present piece began, by the world's clock.
    piece: Option<(Duration, Arc<Watch>)>,
    /// What the newest scrub has repaired.
    repaired: RepairedFiles,
}
