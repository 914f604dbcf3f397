//! Examines every copy of a piece of the pool, and mends bad copies: the engine's part of a scrub.
//!
//! Invariant: a scrub takes one look at each copy of a block. What no copy gives, it remembers
//! ([`LostBlocks`]): whatever asks later whether a root or a file shows it, reads nothing.

mod again;
pub(crate) mod in_place;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::{Place, Txg};
use aquifer_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use aquifer_vdev::Part;
use futures_util::{StreamExt, stream};

use crate::error::PoolError;
use crate::lost::LostBlocks;
use crate::patience::Patience;
use crate::piece::{Block, Piece, RUNS_AT_ONCE, Run, Sums, runs};
use crate::pool::{BoxFuture, Pool};
use crate::walk::Span;

use again::{Wanted, each_once};

/// Blocks and bytes of a piece of a scrub: its root is held until they are read. (A resilver ends
/// by the clock.)
const PIECE_BLOCKS_MAX: usize = 1 << 16;
const PIECE_BYTES_MAX: u64 = 512 << 20;

/// Something of which no copy verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Everything that is lost with it. Of content of a file, neighbours are one.
    pub span: Span,
    /// Why.
    pub error: PoolError,
    /// The node that is lost, by its first place and its txg; `None`: content of a file.
    pub node: Option<(Place, Txg)>,
}

/// Content of a file of which bad copies were rewritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Its pages.
    pub span: Span,
    /// Bytes of bad copies.
    pub bytes: u64,
}

/// Findings in a piece.
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
    /// Nodes, and content of files, that could not be repaired.
    pub lost: Vec<Lost>,
    /// Blocks of it that this scrub has not met before. A page is one; so is a compressed extent,
    /// and a node at all its places.
    pub lost_blocks: u64,
}

/// Watches a piece while it is examined.
#[derive(Debug, Default)]
pub struct Watch {
    /// Bytes of blocks so far.
    pub examined_bytes: AtomicU64,
    /// Bytes of bad copies that were rewritten so far.
    pub repaired_bytes: AtomicU64,
    /// Blocks so far that no copy gives.
    pub lost_blocks: AtomicU64,
    /// Blocks that are lost: by this piece, and by those before it that it goes on from.
    pub lost: LostBlocks,
    stop: AtomicBool,
}

impl Watch {
    /// Watches a piece that goes on from others, which have lost these blocks.
    pub fn over(lost: LostBlocks) -> Watch {
        Watch { lost, ..Watch::default() }
    }

    fn add(&self, found: &Examined) {
        self.examined_bytes.fetch_add(found.examined_bytes, Ordering::Relaxed);
        self.repaired_bytes.fetch_add(found.repaired_bytes, Ordering::Relaxed);
        self.lost_blocks.fetch_add(found.lost_blocks, Ordering::Relaxed);
    }

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
        self.lost_blocks += other.lost_blocks;
    }

    fn lose(&mut self, lost: Lost, is_new: bool) {
        self.lost_blocks += u64::from(is_new);
        if !self.lost.last_mut().is_some_and(|last| last.takes(&lost)) {
            self.lost.push(lost);
        }
    }

    /// Sorts what was found in the order of the disk.
    fn sort(&mut self) {
        // The loss of a node may be met at each of its places.
        self.lost.sort_by_key(|lost| (lost.node.is_some(), lost.span.from, lost.span.to));
        self.lost.dedup_by(|next, before| before.takes(next));
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
            watch.lost.stay_bounded();
            let mut piece = Piece::of_scrub(full, span.to, watch.lost.clone());
            let roots = self.roots();
            let next = self.trees()?.walk(roots, Txg(0), span.from, &mut piece).await?;
            let _reading = (!left_out(Rule::PieceHoldsItsRoot)).then_some(reading);
            let next = next.filter(|next| *next < span.to);
            let mut examined = Examined { next, ..Examined::default() };
            for (pointer, span, error) in std::mem::take(&mut piece.unread) {
                let node = (pointer.places, pointer.written);
                let is_new = watch.lost.insert_node(node.0, node.1);
                let [first, _] = node.0;
                examined.lose(Lost { span, error, node: Some((first, node.1)) }, is_new);
            }
            watch.add(&examined);
            let blocks = piece.into_blocks();
            let of_runs =
                runs(&blocks).into_iter().map(|run| self.examine_run(run, &blocks, watch));
            let mut of_runs = stream::iter(of_runs).buffer_unordered(RUNS_AT_ONCE);
            while let Some(found) = of_runs.next().await {
                let found = found?;
                watch.add(&found);
                examined.add(found);
            }
            examined.sort();
            self.forget_replaced(&mut examined, roots, &watch.lost).await?;
            if watch.is_stopped() && !left_out(Rule::ScrubNotesWhatIsDone) {
                examined.next = Some(span.from);
                // It comes once more, and counts then.
                watch.lost.clear();
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
        let first = run.first.sector();
        let examined_bytes = run.spans(blocks).iter().map(|(_, count)| *count as u64 * 4096).sum();
        let mut examined = Examined { examined_bytes, ..Examined::default() };
        let parts = each_once(run.parts(blocks), watch, &mut examined);
        let places: Vec<Part> = parts.iter().map(|wanted| wanted.part).collect();
        if places.is_empty() {
            return Ok(examined);
        }
        let verify = |at: usize, pages: &[Page]| {
            parts.get(at).is_some_and(|wanted| wanted.block.verifies(wanted.number, pages))
        };
        let examine = vdev.examine(first, run.sectors, &places, &verify);
        let mut found = self.in_background(examine).await;
        self.look_again(&vdev, first, &parts, &mut found).await?;
        for (copies, Wanted { block, number, part: (skip, count), shown }) in
            found.into_iter().zip(parts)
        {
            if copies.bad.is_empty() && copies.good.is_some() {
                continue;
            }
            let sector = first + skip as u64;
            let Some(good) = &copies.good else {
                let error: PoolError = copies.error(vdev.index, sector, count).into();
                for (block, number) in shown {
                    examined.lose(block.lost(number, error.clone()), block.note(number, watch));
                }
                continue;
            };
            for leaf in &copies.bad {
                vdev.repair(leaf, sector, good).await;
            }
            let bytes = (copies.bad.len() * good.len() * 4096) as u64;
            examined.repaired_bytes += bytes;
            if bytes > 0 && !matches!(block.sums, Sums::Node(..)) {
                examined.repaired.push(Repaired { span: block.lost_with(number), bytes });
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
