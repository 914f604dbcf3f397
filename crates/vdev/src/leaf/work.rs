//! I/O on one leaf.
//!
//! A disk may hang. Its memory belongs to the kernel until it answers, and what it was given may
//! still happen. So I/O is never dropped: who gives up *leaves* it, and a task of its own goes on
//! with it. What comes of it then is no longer anybody's result.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use aquifer_blockio::{DiskError, Page};
use aquifer_sync::atomic::{AtomicU64, Ordering};

use super::{Leaf, bytes_of};
use crate::io::{Begun, IoKind};
use crate::ticks::Waiting;

/// I/O under way, which owns what it needs.
pub(crate) type Io<T> = Pin<Box<dyn Future<Output = Result<T, DiskError>> + Send>>;

/// The shortest and the longest patience with a write or flush, while other leaves answer.
pub(crate) const PATIENCE_MS: (u64, u64) = (500, 10_000);

/// A leaf is waited for this many times as long as it usually needs.
const TIMES_USUAL: u64 = 10;

/// How long a leaf that is not in use is waited for while nothing tells whether others answer.
const ALONE_MS: u64 = 10_000;

/// How long a leaf is waited for that is asked alone.
#[derive(Clone, Copy)]
pub(super) enum Longest {
    /// So long.
    Ms(u64),
    /// Until it answers, or [`ALONE_MS`] if it is not in use.
    Read,
    /// As [`Longest::Read`], for what changes it, but no longer than the patience lasts if others
    /// answer.
    Change(IoKind, Begun),
}

/// Write or flush that a leaf is to do.
pub(crate) enum Act {
    /// Write, to be made durable later.
    Write(u64, Vec<Page>),
    /// Write; durable when it completes.
    DurableWrite(u64, Vec<Page>),
    /// Make durable what was written.
    Flush,
}

impl Act {
    pub(crate) fn kind(&self) -> IoKind {
        match self {
            Act::Write(..) => IoKind::Write,
            Act::DurableWrite(..) => IoKind::DurableWrite,
            Act::Flush => IoKind::Flush,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Act::Write(_, pages) | Act::DurableWrite(_, pages) => bytes_of(pages.len()),
            Act::Flush => 0,
        }
    }

    /// The sectors that it writes.
    fn sectors(&self) -> Option<Range<u64>> {
        match self {
            Act::Write(first, pages) | Act::DurableWrite(first, pages) => {
                Some(*first..*first + pages.len() as u64)
            }
            Act::Flush => None,
        }
    }

    /// Copies the act for another leaf.
    pub(crate) fn again(&self) -> Act {
        match self {
            Act::Write(sector, pages) => Act::Write(*sector, pages.clone()),
            Act::DurableWrite(sector, pages) => Act::DurableWrite(*sector, pages.clone()),
            Act::Flush => Act::Flush,
        }
    }
}

/// Counts a read while the disk has not answered it. One that is dropped counts no more: it changes
/// nothing on the disk.
struct Reading<'a>(&'a AtomicU64);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// I/O that ends when this is dropped: answered, or waited for by nobody.
struct Owed<'a>(&'a Leaf);

impl<'a> Owed<'a> {
    fn new(leaf: &'a Leaf) -> Self {
        leaf.owed.fetch_add(1, Ordering::Relaxed);
        Owed(leaf)
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        self.0.answers.fetch_add(1, Ordering::Relaxed);
        self.0.owed.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Leaf {
    /// Reads from this leaf alone.
    pub async fn read(self: &Arc<Self>, sector: u64, count: usize) -> Result<Vec<Page>, DiskError> {
        let begun = self.io.begin();
        let read = self.wait_for(self.begin_read(sector, count), Longest::Read).await;
        self.has_read(count, begun, read)
    }

    /// As [`Leaf::read`]; a leaf that does not answer for so long is left.
    pub async fn read_within(
        self: &Arc<Self>,
        sector: u64,
        count: usize,
        longest_ms: u64,
    ) -> Result<Vec<Page>, DiskError> {
        let begun = self.io.begin();
        let read = self.wait_for(self.begin_read(sector, count), Longest::Ms(longest_ms)).await;
        self.has_read(count, begun, read)
    }

    /// Writes to this leaf alone. A failure fails the leaf.
    pub async fn write(self: &Arc<Self>, sector: u64, pages: Vec<Page>) -> Result<(), DiskError> {
        let act = Act::Write(sector, pages);
        self.alone(act.kind(), act.bytes(), self.begin(act)).await
    }

    /// Flushes this leaf alone. A failure fails the leaf.
    pub async fn flush(self: &Arc<Self>) -> Result<(), DiskError> {
        self.alone(IoKind::Flush, 0, self.begin(Act::Flush)).await
    }

    pub(super) async fn alone(
        self: &Arc<Self>,
        kind: IoKind,
        bytes: u64,
        io: Io<()>,
    ) -> Result<(), DiskError> {
        let begun = self.io.begin();
        let done = self.wait_for(io, Longest::Change(kind, begun)).await;
        self.has_done(kind, bytes, begun, done)
    }

    /// Waits for I/O on this leaf alone, for at most so long.
    pub(super) async fn wait_for<T: 'static>(
        self: &Arc<Self>,
        mut io: Io<T>,
        longest: Longest,
    ) -> Result<T, DiskError> {
        if self.hangs() {
            return Err(DiskError::Late { waited_ms: 0 });
        }
        if self.is_waited_for(longest) {
            return io.await;
        }
        let mut waiting: Option<Waiting> = None;
        let ended = poll_fn(|context| {
            if let Poll::Ready(result) = io.as_mut().poll(context) {
                return Poll::Ready(Ok(result));
            }
            match &waiting {
                Some(waiting) => waiting.renew(context),
                None => waiting = Some(Waiting::new(&self.ticks, context)),
            }
            let waited_ms = waiting.as_ref().map_or(0, Waiting::waited_ms);
            let gives_up = self.hangs() || self.has_run_out(waited_ms, longest);
            if gives_up { Poll::Ready(Err(waited_ms)) } else { Poll::Pending }
        });
        match ended.await {
            Ok(result) => result,
            Err(waited_ms) => {
                self.leave(io);
                Err(DiskError::Late { waited_ms })
            }
        }
    }

    /// Whether nothing can end the wait but its answer: it counts, and is the only one of its vdev.
    fn is_waited_for(&self, longest: Longest) -> bool {
        !matches!(longest, Longest::Ms(_)) && self.is_online() && self.is_alone()
    }

    /// Whether it is waited for no more. If it was to change something, it is out of use then.
    fn has_run_out(&self, waited_ms: u64, longest: Longest) -> bool {
        let (kind, begun) = match longest {
            Longest::Ms(longest_ms) => return waited_ms >= longest_ms,
            Longest::Read => return !self.is_online() && waited_ms >= ALONE_MS,
            Longest::Change(kind, begun) => (kind, begun),
        };
        if !self.is_too_long(waited_ms, &[kind], PATIENCE_MS) {
            return false;
        }
        // Others answered lately: not all are slow for one cause.
        let others_answer =
            |other: &Arc<Leaf>| other.is_settled() && other.io.has_changed(begun, waited_ms / 2);
        if self.others().iter().any(others_answer) && self.fail_by_hang(waited_ms) {
            return true;
        }
        !self.is_online() && waited_ms >= ALONE_MS && self.hangs_alone(waited_ms)
    }

    /// Begins an act, which owns what it needs.
    pub(crate) fn begin(self: &Arc<Self>, act: Act) -> Io<()> {
        let leaf = self.clone();
        Box::pin(async move { leaf.carry_out(act).await })
    }

    /// Begins a read, which owns what it needs.
    pub(crate) fn begin_read(self: &Arc<Self>, sector: u64, count: usize) -> Io<Vec<Page>> {
        let leaf = self.clone();
        Box::pin(async move { leaf.get(sector, count).await })
    }

    /// Carries out an act, however long it takes.
    pub(crate) async fn carry_out(&self, act: Act) -> Result<(), DiskError> {
        let io = async {
            if let Some(sectors) = act.sectors() {
                self.holds.let_pass(sectors).await;
            }
            self.put(act).await
        };
        self.answered(io).await
    }

    /// Gives an act to the disk.
    pub(super) async fn put(&self, act: Act) -> Result<(), DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        match act {
            Act::Write(sector, pages) => disk.write(sector, pages).await,
            Act::DurableWrite(sector, pages) => disk.write_durable(sector, pages).await,
            Act::Flush => disk.flush().await,
        }
    }

    /// Reads, however long it takes.
    pub(crate) async fn get(&self, sector: u64, count: usize) -> Result<Vec<Page>, DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let _reading = Reading(&self.unanswered);
        let _owed = Owed::new(self);
        disk.read(sector, count).await
    }

    /// Counts I/O while the disk has not answered it.
    pub(super) async fn answered<T>(&self, io: impl Future<Output = T>) -> T {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let owed = Owed::new(self);
        let result = io.await;
        drop(owed);
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        result
    }

    /// Takes the result of an act that was waited for. A failure fails the leaf.
    pub(crate) fn has_done(
        &self,
        kind: IoKind,
        bytes: u64,
        begun: Begun,
        result: Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let result = self.io.end(kind, bytes, begun, result);
        match &result {
            // Who gave up has seen to that.
            Ok(()) | Err(DiskError::Late { .. }) => {}
            Err(error) => self.fail_with(error),
        }
        result
    }

    /// Takes the result of a read that was waited for. A late one is no error of the disk.
    pub(crate) fn has_read(
        &self,
        count: usize,
        begun: Begun,
        result: Result<Vec<Page>, DiskError>,
    ) -> Result<Vec<Page>, DiskError> {
        let result = self.io.end(IoKind::Read, bytes_of(count), begun, result);
        if let Err(error) = &result {
            self.count_failed_read(error);
        }
        result
    }

    /// Counts a read that failed. A late one is no error of the disk.
    pub(crate) fn count_failed_read(&self, error: &DiskError) {
        if !matches!(error, DiskError::Late { .. }) {
            self.note(&self.counters.read_errors, error);
        }
    }

    /// As [`Leaf::read`], but counts no error: what it reads was counted, or is part by part.
    pub(crate) async fn look(
        self: &Arc<Self>,
        sector: u64,
        count: usize,
    ) -> Result<Vec<Page>, DiskError> {
        let begun = self.io.begin();
        let read = self.wait_for(self.begin_read(sector, count), Longest::Read).await;
        self.io.end(IoKind::Read, bytes_of(count), begun, read)
    }

    /// Counts a read whose content is not what was written.
    pub(crate) fn note_mismatch(&self, sector: u64, count: usize) {
        self.counters.checksum_errors.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.tells("disk.checksum") {
            tracing::warn!(
                class = "disk.checksum", leaf = %self.path, sector, count, left_out,
                "checksum mismatch"
            );
        }
        self.had_a_bad_copy();
    }

    /// Waits no more for this read. Its time shows how slow the leaf is.
    pub(crate) fn leave_read(self: &Arc<Self>, begun: Begun, io: Io<Vec<Page>>) {
        let leaf = self.clone();
        self.leave(Box::pin(async move {
            let read = io.await;
            if read.is_ok() {
                leaf.pace.late_reads.record(leaf.io.ns_since(begun));
            }
            read
        }));
    }

    /// Waits no more for this I/O. It goes on in a task of its own until the disk has answered.
    pub(crate) fn leave<T: 'static>(self: &Arc<Self>, io: Io<T>) {
        let leaf = self.clone();
        self.late.fetch_add(1, Ordering::AcqRel);
        let late = async move {
            let _ = io.await;
            if leaf.late.fetch_sub(1, Ordering::AcqRel) == 1 && leaf.hangs() {
                tracing::info!(
                    class = "disk.answered", leaf = %leaf.path,
                    "disk has answered all that it was late with"
                );
            }
        };
        self.ticks.world.spawn("late i/o", Box::pin(late));
    }

    /// Whether it owes answers that nobody waits for any more.
    pub fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed) > 0
    }

    /// Whether an answer to something of these kinds has taken too long.
    pub(crate) fn is_too_long(
        &self,
        waited_ms: u64,
        kinds: &[IoKind],
        (least_ms, most_ms): (u64, u64),
    ) -> bool {
        // What the leaf usually needs is looked up only where it matters.
        let usual_ms = || kinds.iter().map(|kind| self.io.usual_ms(*kind)).max().unwrap_or(0);
        waited_ms >= least_ms && waited_ms >= (usual_ms() * TIMES_USUAL).min(most_ms)
    }
}
