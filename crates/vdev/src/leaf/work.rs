//! I/O on one leaf.
//!
//! A disk may hang. Its memory belongs to the kernel until it answers, and what it was given may
//! still happen. So I/O is never dropped: who gives up *leaves* it, and a task of its own goes on
//! with it. What comes of it then is no longer anybody's result.

use std::future::poll_fn;
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

/// How long a leaf that is not in use is waited for: nothing tells whether others are slow, too.
const ALONE_MS: u64 = 10_000;

/// A leaf is patiently waited for this many times as long as it takes itself.
const TIMES_ITSELF: u64 = 10;

/// What a leaf is to do.
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

    /// The same for another leaf.
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

impl Leaf {
    /// Reads from this leaf alone.
    pub async fn read(self: &Arc<Self>, sector: u64, count: usize) -> Result<Vec<Page>, DiskError> {
        let begun = self.io.begin();
        let read = self.wait_for(self.begin_read(sector, count), None).await;
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
        let read = self.wait_for(self.begin_read(sector, count), Some(longest_ms)).await;
        self.has_read(count, begun, read)
    }

    /// Writes to this leaf alone. A failure fails the leaf.
    pub async fn write(self: &Arc<Self>, sector: u64, pages: Vec<Page>) -> Result<(), DiskError> {
        self.alone(Act::Write(sector, pages)).await
    }

    /// Flushes this leaf alone. A failure fails the leaf.
    pub async fn flush(self: &Arc<Self>) -> Result<(), DiskError> {
        self.alone(Act::Flush).await
    }

    /// Tells the disk that sectors are no longer needed; failures do not matter.
    pub async fn discard(&self, sector: u64, count: u64) {
        if let Some(disk) = self.disk.as_ref().filter(|_| self.takes_writes()) {
            let _ = self.answered(disk.discard(sector, count)).await;
        }
    }

    async fn alone(self: &Arc<Self>, act: Act) -> Result<(), DiskError> {
        let (kind, bytes, begun) = (act.kind(), act.bytes(), self.io.begin());
        let done = self.wait_for(self.begin(act), None).await;
        self.has_done(kind, bytes, begun, done)
    }

    /// Waits for I/O on this leaf alone. Gives up when the leaf hangs, as others have found, and
    /// after `longest_ms` or, if the leaf is not in use, after [`ALONE_MS`].
    async fn wait_for<T: 'static>(
        self: &Arc<Self>,
        mut io: Io<T>,
        longest_ms: Option<u64>,
    ) -> Result<T, DiskError> {
        if self.hangs() {
            return Err(DiskError::Late { waited_ms: 0 });
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
            let longest_ms = longest_ms.or((!self.is_online()).then_some(ALONE_MS));
            let is_over = longest_ms.is_some_and(|longest_ms| waited_ms >= longest_ms);
            if self.hangs() || is_over { Poll::Ready(Err(waited_ms)) } else { Poll::Pending }
        });
        match ended.await {
            Ok(result) => result,
            Err(waited_ms) => {
                if longest_ms.is_none() {
                    self.hangs_alone(waited_ms);
                }
                self.leave(io);
                Err(DiskError::Late { waited_ms })
            }
        }
    }

    /// Begins an act, which owns what it needs.
    pub(crate) fn begin(self: &Arc<Self>, act: Act) -> Io<()> {
        let leaf = self.clone();
        Box::pin(async move { leaf.carry_out(act).await })
    }

    /// The same for a read.
    pub(crate) fn begin_read(self: &Arc<Self>, sector: u64, count: usize) -> Io<Vec<Page>> {
        let leaf = self.clone();
        Box::pin(async move { leaf.get(sector, count).await })
    }

    /// Carries out an act, however long it takes.
    pub(crate) async fn carry_out(&self, act: Act) -> Result<(), DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        let io = match act {
            Act::Write(sector, pages) => disk.write(sector, pages),
            Act::DurableWrite(sector, pages) => disk.write_durable(sector, pages),
            Act::Flush => disk.flush(),
        };
        self.answered(io).await
    }

    /// Reads, however long it takes.
    pub(crate) async fn get(&self, sector: u64, count: usize) -> Result<Vec<Page>, DiskError> {
        let disk = self.disk.as_ref().ok_or(DiskError::Gone)?;
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let _reading = Reading(&self.unanswered);
        disk.read(sector, count).await
    }

    /// Counts I/O while the disk has not answered it.
    async fn answered<T>(&self, io: impl Future<Output = T>) -> T {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let result = io.await;
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
        match &result {
            Ok(_) | Err(DiskError::Late { .. }) => {}
            Err(error) => self.note(&self.counters.read_errors, error),
        }
        result
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
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed) > 0
    }

    /// How long an answer to something of these kinds is waited for.
    pub(crate) fn patience_ms(&self, kinds: &[IoKind], (least, most): (u64, u64)) -> u64 {
        let usual = kinds.iter().map(|kind| self.io.usual_ms(*kind)).max().unwrap_or(0);
        (usual * TIMES_ITSELF).clamp(least, most)
    }
}
