//! Copies the blocks that a leaf has missed, several at a time.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::Page;
use aquifer_ondisk::extent::Extent;
use aquifer_ondisk::{BlockPointer, Place, Txg};
use aquifer_sync::Notify;
use aquifer_sync::atomic::{AtomicUsize, Ordering};
use aquifer_vdev::{Leaf, LeafState, Vdev};

use super::progress::Progress;
use crate::error::PoolError;
use crate::patience::Patience;
use crate::pool::{BoxFuture, Pool};
use crate::walk::Visitor;

/// Blocks that are copied at a time.
const COPIES_MAX: usize = 32;
/// How often a block is read that no copy gives at the moment, and the rest in between.
const READS_MAX: u32 = 10;
const READ_REST: Duration = Duration::from_secs(1);

/// A resilver's work on one leaf.
pub(super) struct Copier {
    pub pool: Arc<Pool>,
    pub vdev: Arc<Vdev>,
    pub leaf: Arc<Leaf>,
    /// The leaf has everything that was written up to this txg.
    pub kept: Txg,
    /// It gets everything that is written after this txg by itself.
    pub came: Txg,
    pub progress: Arc<Progress>,
    under_way: AtomicUsize,
    ended: Notify,
}

/// A block that the leaf misses.
enum Block {
    Node(BlockPointer),
    Extent(Extent),
}

/// Sectors, or why no copy gives them.
type Part = (Place, Result<Vec<Page>, PoolError>);

impl Copier {
    pub fn new(
        (pool, vdev, leaf): (Arc<Pool>, Arc<Vdev>, Arc<Leaf>),
        (kept, came): (Txg, Txg),
        progress: Arc<Progress>,
    ) -> Arc<Copier> {
        let (under_way, ended) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Copier { pool, vdev, leaf, kept, came, progress, under_way, ended })
    }

    /// Whether the leaf takes no more, or the pool has ended.
    pub fn is_over(&self) -> bool {
        self.leaf.state() != LeafState::Resilvering || self.pool.txgs.failure().is_some()
    }

    /// Waits until fewer than so many copies are under way.
    pub async fn fewer_than(&self, count: usize) {
        loop {
            let ended = self.ended.notified();
            if self.under_way.load(Ordering::Acquire) < count {
                return;
            }
            ended.await;
        }
    }

    fn misses(&self, written: Txg) -> bool {
        written > self.kept && written <= self.came
    }

    /// Begins to copy a block. Ends the walk if the leaf takes no more.
    async fn begin(self: &Arc<Self>, block: Block) -> ControlFlow<()> {
        self.fewer_than(COPIES_MAX).await;
        if self.is_over() {
            return ControlFlow::Break(());
        }
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let copier = Arc::clone(self);
        let copy = async move {
            copier.copy(&block).await;
            copier.under_way.fetch_sub(1, Ordering::AcqRel);
            copier.ended.notify_one();
        };
        self.pool.world().spawn("resilver copy", Box::pin(copy));
        ControlFlow::Continue(())
    }

    async fn copy(&self, block: &Block) {
        let mut parts = self.read(block).await;
        for _ in 1..READS_MAX {
            let may_pass = |(_, read): &Part| read.as_ref().is_err_and(|error| !error.is_damage());
            if self.is_over() || !parts.iter().any(may_pass) {
                break;
            }
            self.pool.world().sleep(READ_REST).await;
            parts = self.read(block).await;
        }
        for (place, read) in parts {
            match read {
                // A write that fails ends the resilver.
                Ok(pages) if !self.is_over() => {
                    let bytes = (pages.len() * 4096) as u64;
                    if self.leaf.write(place.sector(), pages).await.is_ok() {
                        self.progress.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
                    }
                }
                Ok(_) => {}
                // What no copy has is missing on the leaf as it is on the others.
                Err(_) => {
                    self.progress.unread_blocks.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    async fn read(&self, block: &Block) -> Vec<Part> {
        match block {
            Block::Extent(extent) => self.pool.read_stored_in_parts(extent).await,
            Block::Node(pointer) => {
                let page = self.pool.read_node(pointer, Patience::Short).await;
                let own = |place: &Place| place.vdev() == self.vdev.index;
                let pages = |place| (place, page.clone().map(|page| vec![page]));
                pointer.copies().filter(own).map(pages).collect()
            }
        }
    }
}

/// Shows a walk's blocks to a copier.
pub(super) struct Missed(pub Arc<Copier>);

impl Visitor for Missed {
    fn node<'a>(&'a self, pointer: &'a BlockPointer) -> BoxFuture<'a, ControlFlow<()>> {
        Box::pin(async move {
            let Missed(copier) = self;
            let is_here = pointer.copies().any(|place| place.vdev() == copier.vdev.index);
            if is_here && copier.misses(pointer.written) {
                return copier.begin(Block::Node(*pointer)).await;
            }
            ControlFlow::Continue(())
        })
    }

    fn extent<'a>(&'a self, extent: &'a Extent) -> BoxFuture<'a, ControlFlow<()>> {
        Box::pin(async move {
            let Missed(copier) = self;
            if extent.place.vdev() == copier.vdev.index && copier.misses(extent.written) {
                return copier.begin(Block::Extent(extent.clone())).await;
            }
            ControlFlow::Continue(())
        })
    }
}
