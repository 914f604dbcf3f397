//! A top-level vdev: a single leaf, or a mirror whose leaves all hold the same.

mod reads;
mod sides;

use std::sync::Arc;

use aquifer_blockio::{DiskError, Page, World};
use aquifer_ondisk::config::{VdevClass, VdevConfig};
use aquifer_ondisk::layout::Geometry;
use aquifer_sync::atomic::Ordering;

use crate::io::IoCounters;
use crate::leaf::{Act, Leaf};

/// A read that found no good copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Every copy that could be read has a wrong checksum.
    #[error("vdev {vdev}, sectors {sector}+{count}: no copy has the right checksum")]
    Corrupt {
        /// The vdev.
        vdev: u16,
        /// First sector.
        sector: u64,
        /// Sectors.
        count: usize,
    },
    /// No copy could be read, or the unreadable one might be the good one.
    #[error("vdev {vdev}, sectors {sector}+{count}: cannot be read: {error}")]
    Unreadable {
        /// The vdev.
        vdev: u16,
        /// First sector.
        sector: u64,
        /// Sectors.
        count: usize,
        /// The error of the last unreadable leaf.
        error: DiskError,
    },
}

/// No leaf of the vdev takes writes any more: the pool must suspend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("vdev {0}: no disk left that takes writes")]
pub struct VdevLost(pub u16);

/// The result of a read.
#[derive(Debug)]
pub struct Good {
    /// Verified content.
    pub pages: Vec<Page>,
    /// Leaves whose copy is bad or cannot be read.
    pub bad: Vec<Arc<Leaf>>,
}

/// One top-level vdev.
#[derive(Debug)]
pub struct Vdev {
    /// Its number in the pool: the high bits of a place.
    pub index: u16,
    /// Purpose that it serves.
    pub class: VdevClass,
    /// The layout of its space.
    pub geometry: Geometry,
    /// Its disks.
    pub leaves: Vec<Arc<Leaf>>,
    /// Its operations. Each counts once however many copies there are, and lasts until the last
    /// copy is done. Labels and the reads of an import are only in the leaves' counts.
    pub io: IoCounters,
    /// Bad copies stay as they are: the pool is imported read-only.
    keeps_bad: bool,
}

impl Vdev {
    /// A vdev of this config over `leaves`, in the config's order. `clock` times its operations.
    pub fn new(
        index: u16,
        config: &VdevConfig,
        leaves: Vec<Arc<Leaf>>,
        clock: Arc<dyn World>,
    ) -> Self {
        let geometry = Geometry::of(index, config);
        leaves.iter().for_each(|leaf| leaf.belongs_to(&leaves));
        let io = IoCounters::new(clock);
        Vdev { index, class: config.class, geometry, leaves, io, keeps_bad: false }
    }

    /// Makes a vdev of a pool that is imported read-only: reads rewrite no bad copy.
    pub fn read_only(self) -> Vdev {
        Vdev { keeps_bad: true, ..self }
    }

    /// Leaves that hold everything committed.
    pub fn online(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.leaves.iter().filter(|leaf| leaf.is_online())
    }

    /// Leaves that are written to: those, and those that are being resilvered.
    fn written(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.leaves.iter().filter(|leaf| leaf.takes_writes())
    }

    /// Reads `count` sectors that `verify` accepts, and rewrites bad copies from the good one. Only
    /// for places that cannot be reused meanwhile.
    pub async fn read(
        &self,
        sector: u64,
        count: usize,
        verify: &(dyn Fn(&[Page]) -> bool + Sync),
    ) -> Result<Vec<Page>, ReadError> {
        let good = self.read_good(sector, count, verify).await?;
        for leaf in &good.bad {
            self.repair(leaf, sector, &good.pages).await;
        }
        Ok(good.pages)
    }

    /// Rewrites a bad copy from a good one. The caller knows that the place has not been reused
    /// since the good copy was read.
    pub async fn repair(&self, leaf: &Arc<Leaf>, sector: u64, good: &[Page]) {
        if !self.keeps_bad && leaf.is_online() && leaf.write(sector, good.to_vec()).await.is_ok() {
            leaf.counters.repaired.fetch_add(1, Ordering::Relaxed);
            if let Some(left_out) = leaf.tells("disk.repaired") {
                tracing::info!(
                    class = "disk.repaired", leaf = %leaf.path, sector, left_out,
                    "bad copy rewritten from a good one"
                );
            }
        }
    }

    /// Writes to every leaf that is online or being resilvered. Leaves that fail are failed; it is
    /// an error only if no online one is left. Completed is not durable.
    pub async fn write(&self, sector: u64, pages: Vec<Page>) -> Result<(), VdevLost> {
        self.on_each(Act::Write(sector, pages)).await
    }

    /// Writes to every leaf that is online or being resilvered; durable on those that stay so when
    /// it completes. Leaves that fail are failed; it is an error only if no online one is left.
    pub async fn write_durable(&self, sector: u64, pages: Vec<Page>) -> Result<(), VdevLost> {
        self.on_each(Act::DurableWrite(sector, pages)).await
    }

    /// Flushes every leaf that is written to.
    pub async fn flush(&self) -> Result<(), VdevLost> {
        self.on_each(Act::Flush).await
    }

    /// If each of its leaves that hold everything owes an answer: how often they have answered so
    /// far. While that number stays, nobody who needs this vdev gets on.
    pub fn owes(&self) -> Option<u64> {
        let mut answers = None;
        for leaf in self.online() {
            if leaf.owed.load(Ordering::Relaxed) == 0 {
                return None;
            }
            answers = Some(answers.unwrap_or(0) + leaf.answers.load(Ordering::Relaxed));
        }
        answers
    }

    /// Whether any leaf is left.
    pub fn check(&self) -> Result<(), VdevLost> {
        if self.online().next().is_some() { Ok(()) } else { Err(VdevLost(self.index)) }
    }

    /// Whether any leaf is left whose disk is there, by reading this sector from each of them.
    pub async fn check_present(&self, sector: u64) -> Result<(), VdevLost> {
        for leaf in self.online() {
            if !matches!(leaf.read(sector, 1).await, Err(DiskError::Gone)) {
                return Ok(());
            }
        }
        Err(VdevLost(self.index))
    }
}
