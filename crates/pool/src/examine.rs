//! Examines every copy of a piece of the pool, and mends bad copies: the engine's part of a scrub.

pub(crate) mod in_place;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Txg;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use aquifer_vdev::{Copies, Part};
use futures_util::{StreamExt, stream};

use crate::error::PoolError;
use crate::patience::Patience;
use crate::piece::{Block, Piece, RUNS_AT_ONCE, Run, Sums, runs};
use crate::pool::{BoxFuture, Pool};
use crate::walk::Span;

/// Blocks and bytes of a piece of a scrub: its root is held until they are read. (A resilver ends
/// by the clock.)
const PIECE_BLOCKS_MAX: usize = 1 << 16;
const PIECE_BYTES_MAX: u64 = 512 << 20;

/// Something of which no copy verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Everything that is lost with it.
    pub span: Span,
    /// Why.
    pub error: PoolError,
}

/// Content of a file of which bad copies were rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Its pages.
    pub span: Span,
    /// Bytes of bad copies.
    pub bytes: u64,
}

/// What was found in a piece.
#[derive(Debug, Default)]
pub struct Examined {
    /// Where the next piece begins; `None` if this was the last.
    pub next: Option<WalkPosition>,
    /// Bytes of blocks, each counted once however many copies of it there are.
    pub examined_bytes: u64,
    /// Bytes of bad copies that were rewritten.
    pub repaired_bytes: u64,
    /// Which of them are content of files, by position; neighbours are one.
    pub repaired: Vec<Repaired>,
    /// What could not be repaired.
    pub lost: Vec<Lost>,
}

/// Watches a piece while it is examined.
#[derive(Debug, Default)]
pub struct Watch {
    /// Bytes of blocks so far.
    pub examined_bytes: AtomicU64,
    stop: AtomicBool,
}

impl Watch {
    /// The piece is to end early. It counts as not begun.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

impl Examined {
    fn add(&mut self, other: Examined) {
        self.examined_bytes += other.examined_bytes;
        self.repaired_bytes += other.repaired_bytes;
        self.repaired.extend(other.repaired);
        self.lost.extend(other.lost);
    }

    /// Sorts what was found in the order of the disk.
    fn sort(&mut self) {
        // The loss of a node is met by the walk, and at each of its places.
        self.lost.sort_by_key(|lost| (lost.span.from, lost.span.to));
        self.lost.dedup_by_key(|lost| lost.span);
        self.repaired.sort_by_key(|repaired| repaired.span.from);
        self.repaired.dedup_by(|next, before| {
            let touch = before.span.to == next.span.from;
            if touch {
                before.span.to = next.span.to;
                before.bytes += next.bytes;
            }
            touch
        });
    }
}

impl Pool {
    /// Reads every copy of a piece of what the newest root reaches in `span`, from its begin. Bad
    /// copies are rewritten from good ones.
    ///
    /// # Errors
    /// The pool answers nothing any more.
    pub fn examine<'a>(
        &'a self,
        span: Span,
        watch: &'a Watch,
    ) -> BoxFuture<'a, Result<Examined, PoolError>> {
        Box::pin(async move {
            let _turn = self.acts.background.lock().await;
            // Nothing is reused while it is read and mended.
            let reading = self.reading();
            let blocks_max = self.limits().piece_blocks_max.min(PIECE_BLOCKS_MAX);
            let full = (blocks_max, PIECE_BYTES_MAX);
            let mut piece = Piece::new(full, span.to, Box::new(|_, _| true));
            let next = self.trees()?.walk(self.roots(), Txg(0), span.from, &mut piece).await?;
            let _reading = (!left_out(Rule::PieceHoldsItsRoot)).then_some(reading);
            let next = next.filter(|next| *next < span.to);
            let mut examined = Examined { next, ..Examined::default() };
            let unread = std::mem::take(&mut piece.unread);
            examined.lost.extend(unread.into_iter().map(|(span, error)| Lost { span, error }));
            let blocks = piece.into_blocks();
            let of_runs =
                runs(&blocks).into_iter().map(|run| self.examine_run(run, &blocks, watch));
            let mut of_runs = stream::iter(of_runs).buffer_unordered(RUNS_AT_ONCE);
            while let Some(found) = of_runs.next().await {
                let found = found?;
                watch.examined_bytes.fetch_add(found.examined_bytes, Ordering::Relaxed);
                examined.add(found);
            }
            examined.sort();
            if watch.is_stopped() && !left_out(Rule::ScrubNotesWhatIsDone) {
                examined.next = Some(span.from);
            }
            Ok(examined)
        })
    }

    async fn examine_run(
        &self,
        run: Run,
        blocks: &[Block],
        watch: &Watch,
    ) -> Result<Examined, PoolError> {
        if watch.is_stopped() {
            return Ok(Examined::default());
        }
        self.txgs.check()?;
        let vdev = self.vdev(run.first)?;
        vdev.check()?;
        let parts = run.parts(blocks);
        let places: Vec<Part> = parts.iter().map(|(_, _, place)| *place).collect();
        let verify = |at: usize, pages: &[Page]| {
            parts.get(at).is_some_and(|(block, number, _)| block.verifies(*number, pages))
        };
        let first = run.first.sector();
        let examine = vdev.examine(first, run.sectors, &places, &verify);
        let found = self.in_background(examine).await;
        let examined_bytes = run.spans(blocks).iter().map(|(_, count)| *count as u64 * 4096).sum();
        let mut examined = Examined { examined_bytes, ..Examined::default() };
        for (copies, (block, number, (skip, _))) in found.into_iter().zip(parts) {
            let Copies { good, bad } = copies;
            if bad.is_empty() && good.is_some() {
                continue;
            }
            let good = match good {
                Some(good) => Ok(good),
                None => self.read_part(block, number).await,
            };
            match good {
                Ok(good) => {
                    for leaf in &bad {
                        vdev.repair(leaf, first + skip as u64, &good).await;
                    }
                    let bytes = (bad.len() * good.len() * 4096) as u64;
                    examined.repaired_bytes += bytes;
                    if bytes > 0 && !matches!(block.sums, Sums::Node(..)) {
                        examined.repaired.push(Repaired { span: block.lost_with(number), bytes });
                    }
                }
                Err(error) if error.cannot_be_read() => {
                    examined.lost.push(Lost { span: block.lost_with(number), error });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(examined)
    }

    /// Does something in the background: beside clients one thing at a time, with a rest after
    /// each.
    pub(crate) async fn in_background<T>(&self, work: impl Future<Output = T>) -> T {
        if !self.flow.clients_are_busy(self.world.now()) {
            return work.await;
        }
        let _alone = self.acts.alone.lock().await;
        let begun = self.world.now();
        let done = work.await;
        let took = self.world.now().saturating_sub(begun);
        self.world.sleep(self.flow.background_rest(took)).await;
        done
    }

    /// Reads a part of a block from any copy that verifies.
    pub(crate) async fn read_part(
        &self,
        block: &Block,
        number: usize,
    ) -> Result<Vec<Page>, PoolError> {
        let verify = |pages: &[Page]| block.verifies(number, pages);
        let (place, count) = match &block.sums {
            Sums::Compressed(_, sectors) => (block.place, usize::from(*sectors)),
            Sums::Node(..) | Sums::Pages(_) => (block.place.plus(number as u64), 1),
        };
        match (self.read_verified(place, count, &verify, Patience::Short).await, &block.sums) {
            (Err(error), Sums::Node(_, other)) if !other.is_null() && error.cannot_be_read() => {
                self.read_verified(*other, 1, &verify, Patience::Short).await
            }
            (read, _) => read,
        }
    }
}
