//! Copies the blocks of a piece to a leaf that has missed them, in the order of the disk.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::Page;
use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_ondisk::{Place, Txg, types};
use aquifer_sync::atomic::Ordering;
use aquifer_vdev::{Held, Leaf, LeafState, Part, Vdev};
use futures_util::StreamExt;
use futures_util::stream;

use super::progress::Progress;
use crate::piece::{Block, Piece, RUNS_AT_ONCE, Run, runs};
use crate::pool::Pool;

/// How often a block is read that no copy gives at the moment, and the rest in between.
const READS_MAX: u32 = 10;
const READ_REST: Duration = Duration::from_secs(1);

/// A resilver's work on one leaf.
pub(super) struct Copier<'a> {
    pub pool: &'a Pool,
    pub vdev: &'a Arc<Vdev>,
    pub leaf: &'a Arc<Leaf>,
    /// The leaf has everything that was written up to this txg.
    pub kept: Txg,
    /// It gets everything that is written after this txg by itself.
    pub came: Txg,
    pub progress: &'a Progress,
}

/// Whether a leaf that is resilvered takes no more, or the pool has ended.
pub(super) fn is_over(pool: &Pool, leaf: &Leaf) -> bool {
    leaf.state() != LeafState::Resilvering || pool.txgs.failure().is_some()
}

impl Copier<'_> {
    /// Takes the blocks that the leaf misses up to a position, those at `first` and after it. As
    /// many as memory bears: the more there are, the closer they lie.
    pub fn piece(&self, to: WalkPosition, first: Place) -> Piece {
        let (index, kept, came) = (self.vdev.index, self.kept, self.came);
        let missed = move |written| written > kept && written <= came;
        let wanted =
            move |place: Place, written| place.vdev() == index && place >= first && missed(written);
        let blocks_max = self.pool.limits().piece_blocks_max;
        Piece::new((blocks_max, u64::MAX), to, Box::new(wanted))
    }

    fn is_over(&self) -> bool {
        is_over(self.pool, self.leaf)
    }

    /// Copies blocks in the order of the disk, for some time. All writes have ended when this
    /// returns. Returns the place of the first block that it has not come to.
    pub async fn copy(&self, blocks: &[Block]) -> Option<Place> {
        let longest = Duration::from_millis(self.pool.limits().scale.piece_copy_ms_max);
        let begun = self.pool.world().now();
        let is_in_time = || self.pool.world().now().saturating_sub(begun) < longest;
        // The first goes in any case.
        let mut rest = runs(blocks).into_iter().enumerate().peekable();
        let next = std::iter::from_fn(|| rest.next_if(|(at, _)| *at == 0 || is_in_time()));
        let copies = next.map(|(_, run)| self.pool.in_background(self.copy_run(run, blocks)));
        stream::iter(copies).buffer_unordered(RUNS_AT_ONCE).for_each(async |()| {}).await;
        rest.peek().map(|(_, run)| run.first)
    }

    async fn copy_run(&self, run: Run, blocks: &[Block]) {
        if self.is_over() {
            return;
        }
        let parts = run.parts(blocks);
        let verify = |pages: &[Page]| {
            parts.iter().all(|(block, number, (first, count))| {
                block.verifies(*number, pages.get(*first..first + count).unwrap_or_default())
            })
        };
        let first = run.first.sector();
        match self.vdev.read_good(first, run.sectors, &verify).await {
            Ok(good) if good.bad.is_empty() => {
                self.write_run(&run, &run.spans(blocks), good.pages).await;
            }
            // Each copy may be bad in another part.
            _ => self.copy_parts(parts, first).await,
        }
    }

    /// Writes spans of a run. What lies between two is written over with zeros if it is free: one
    /// write costs a disk less than two.
    async fn write_run(&self, run: &Run, spans: &[Part], pages: Vec<Page>) {
        let place = |skip: usize| run.first.plus(skip as u64);
        let zeros_share = self.pool.limits().scale.zeros_share;
        if spans.len() > 1 {
            self.pool.load_if_cheap(types::Run::new(run.first, 1)).await;
        }
        let mut spans = spans.iter().copied().peekable();
        while let Some((first, count)) = spans.next() {
            let (mut end, mut copied) = (first + count, count);
            let mut out = pages.get(first..end).unwrap_or_default().to_vec();
            let mut held = Vec::new();
            while let Some((next, count)) = spans.peek().copied() {
                let zeros = next - first - copied;
                if self.kept > Txg(0) && zeros * zeros_share > copied {
                    break;
                }
                let gap = types::Run::new(place(end), (next - end) as u64);
                // Held first: what is allocated from here on is written later.
                let hold = self.leaf.hold(gap.place.sector()..gap.end_sector());
                let is_free = self.pool.space.lock().is_free(gap);
                if !is_free && !left_out(Rule::BridgesOnlyWhatIsFree) {
                    break;
                }
                held.push(hold);
                out.resize(next - first, Page::zeroed());
                (end, copied) = (next + count, copied + count);
                out.extend_from_slice(pages.get(next..end).unwrap_or_default());
                spans.next();
            }
            self.write(place(first).sector(), out, (copied, held)).await;
        }
    }

    /// Copies parts of a run one by one. Those that no copy gives at the moment are read again
    /// together: a disk that errs for long costs a run some rests, and not each of its parts.
    async fn copy_parts(&self, mut parts: Vec<(&Block, usize, Part)>, first: u64) {
        for reads in 1..=READS_MAX {
            let mut missing = Vec::new();
            for part in parts {
                if self.may_pass(part, first).await {
                    missing.push(part);
                }
            }
            parts = missing;
            if parts.is_empty() || self.is_over() {
                return;
            }
            if reads < READS_MAX {
                self.pool.world().sleep(READ_REST).await;
            }
        }
        self.progress.unread_blocks.fetch_add(parts.len() as u64, Ordering::Relaxed);
    }

    /// Copies a part. Whether an error kept it from that which may pass.
    async fn may_pass(
        &self,
        (block, number, (skip, count)): (&Block, usize, Part),
        first: u64,
    ) -> bool {
        match self.pool.read_part(block, number).await {
            Ok(pages) => {
                debug_assert_eq!(pages.len(), count);
                self.write(first + skip as u64, pages, (count, Vec::new())).await;
                false
            }
            Err(error) if !error.is_damage() => true,
            // What no copy has is missing on the leaf as it is on the others.
            Err(_) => {
                self.progress.unread_blocks.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }

    /// Writes pages, of which so many are blocks; the others are held. A write that fails ends the
    /// resilver.
    async fn write(&self, sector: u64, pages: Vec<Page>, (copied, held): (usize, Vec<Held>)) {
        let bytes = (copied * 4096) as u64;
        if !self.is_over() && self.leaf.write_held(sector, pages, held).await.is_ok() {
            self.progress.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}
