//! Copies the blocks of a piece to a leaf that has missed them, in the order of the disk.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::Page;
use aquifer_ondisk::Txg;
use aquifer_ondisk::scrub::WalkPosition;
use aquifer_sync::atomic::Ordering;
use aquifer_vdev::{Leaf, LeafState, Part, Vdev};
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

impl Copier<'_> {
    /// Takes the blocks that the leaf misses.
    pub fn piece(&self) -> Piece {
        let (index, kept, came) = (self.vdev.index, self.kept, self.came);
        let missed = move |written| written > kept && written <= came;
        let blocks_max = self.pool.limits().piece_blocks_max;
        Piece::new(
            blocks_max,
            WalkPosition::END,
            Box::new(move |place, written| place.vdev() == index && missed(written)),
        )
    }

    /// Whether the leaf takes no more, or the pool has ended.
    pub fn is_over(&self) -> bool {
        self.leaf.state() != LeafState::Resilvering || self.pool.txgs.failure().is_some()
    }

    /// Copies blocks in the order of the disk. All writes have ended when this returns.
    pub async fn copy(&self, blocks: &[Block]) {
        let copies =
            runs(blocks).into_iter().map(|run| self.pool.in_background(self.copy_run(run, blocks)));
        stream::iter(copies).buffer_unordered(RUNS_AT_ONCE).for_each(async |()| {}).await;
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
                for (skip, sectors) in run.spans(blocks) {
                    let pages = good.pages.get(skip..skip + sectors).unwrap_or_default();
                    self.write(first + skip as u64, pages.to_vec()).await;
                }
            }
            // Each copy may be bad in another part.
            _ => {
                for part in parts {
                    self.copy_part(part, first).await;
                }
            }
        }
    }

    async fn copy_part(&self, (block, number, (skip, count)): (&Block, usize, Part), first: u64) {
        let mut read = self.pool.read_part(block, number).await;
        for _ in 1..READS_MAX {
            let may_pass = read.as_ref().is_err_and(|error| !error.is_damage());
            if self.is_over() || !may_pass {
                break;
            }
            self.pool.world().sleep(READ_REST).await;
            read = self.pool.read_part(block, number).await;
        }
        match read {
            Ok(pages) => {
                debug_assert_eq!(pages.len(), count);
                self.write(first + skip as u64, pages).await;
            }
            // What no copy has is missing on the leaf as it is on the others.
            Err(_) => {
                self.progress.unread_blocks.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A write that fails ends the resilver.
    async fn write(&self, sector: u64, pages: Vec<Page>) {
        let bytes = (pages.len() * 4096) as u64;
        if !self.is_over() && self.leaf.write(sector, pages).await.is_ok() {
            self.progress.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}
