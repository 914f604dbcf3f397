//! The vdev tree: config and vdevs, as one value that an administrator's act replaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_blockio::World;
use aquifer_ondisk::config::{PoolConfig, VdevClass, VdevConfig};
use aquifer_ondisk::{Guid, Place};
use aquifer_space::Allocator;
use aquifer_vdev::{Leaf, Vdev};

use crate::caches::Caches;
use crate::error::{Contradiction, PoolError};
use crate::intent_log::Ring;
use crate::limits::LOG_SEGMENTS_MAX;
use crate::pool::Pool;

/// The vdevs that hold blocks.
pub(crate) fn data(vdevs: &[Arc<Vdev>]) -> impl Iterator<Item = &Arc<Vdev>> {
    vdevs.iter().filter(|vdev| vdev.class == VdevClass::Data)
}

/// The space of vdevs whose bitmaps are not known yet.
pub(crate) fn allocator(vdevs: &[Arc<Vdev>]) -> Allocator {
    let of = |vdev: &Arc<Vdev>| (vdev.class == VdevClass::Data).then_some(vdev.geometry);
    Allocator::new(&vdevs.iter().map(of).collect::<Vec<_>>())
}

/// The parts of the pool. Vdevs and the config's entries have the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct VdevTree {
    pub config: PoolConfig,
    pub vdevs: Vec<Arc<Vdev>>,
    /// Spares that are no leaf of a vdev now, whether they are there or not.
    pub spares: Vec<Arc<Leaf>>,
    /// The cache disks, in the order of the config, whether they are there or not.
    pub caches: Caches,
}

impl VdevTree {
    /// Vdevs that hold blocks: the pool needs every one of them.
    pub fn data(&self) -> impl Iterator<Item = &Arc<Vdev>> {
        data(&self.vdevs)
    }

    /// Vdevs for the intent log.
    pub fn logs(&self) -> impl Iterator<Item = &Arc<Vdev>> {
        self.vdevs.iter().filter(|vdev| vdev.class == VdevClass::Log)
    }

    /// Disks in use.
    pub fn online(&self) -> impl Iterator<Item = &Arc<Leaf>> {
        self.vdevs.iter().flat_map(|vdev| vdev.online())
    }

    /// Returns a copy of the tree with the vdev at `at` replaced, or with one vdev more.
    pub fn with_vdev(
        &self,
        at: usize,
        vdev: VdevConfig,
        leaves: Vec<Arc<Leaf>>,
        clock: &Arc<dyn World>,
    ) -> VdevTree {
        let mut tree = self.clone();
        let index = u16::try_from(at).unwrap_or(u16::MAX);
        let built = Arc::new(Vdev::new(index, &vdev, leaves, clock.clone()));
        put(&mut tree.config.vdevs, at, vdev);
        put(&mut tree.vdevs, at, built);
        tree
    }

    /// The leaf of a guid.
    pub fn leaf(&self, guid: Guid) -> Option<&Arc<Leaf>> {
        self.vdevs.iter().flat_map(|vdev| &vdev.leaves).find(|leaf| leaf.guid == guid)
    }

    /// Log vdevs that have a disk left.
    pub fn usable_logs(&self) -> BTreeSet<u16> {
        self.logs().filter(|vdev| vdev.check().is_ok()).map(|vdev| vdev.index).collect()
    }

    /// The log's segments on these log vdevs, in turn; the first segment of each holds labels.
    pub fn log_ring(&self, on: &BTreeSet<u16>) -> Ring {
        let vdevs: Vec<&Arc<Vdev>> = self.logs().filter(|vdev| on.contains(&vdev.index)).collect();
        Ring::over(vdevs.iter().map(|vdev| (vdev.index, vdev.geometry.segments)), LOG_SEGMENTS_MAX)
    }
}

/// Sets item `at`, or appends it.
pub(crate) fn put<T>(items: &mut Vec<T>, at: usize, item: T) {
    match items.get_mut(at) {
        Some(slot) => *slot = item,
        None => items.push(item),
    }
}

impl Pool {
    /// The present vdev tree.
    pub(crate) fn tree(&self) -> Arc<VdevTree> {
        self.tree.read().clone()
    }

    /// The vdev of a place.
    pub(crate) fn vdev(&self, place: Place) -> Result<Arc<Vdev>, PoolError> {
        let tree = self.tree.read();
        let vdev = tree.vdevs.get(usize::from(place.vdev())).cloned();
        vdev.ok_or_else(|| Contradiction::NoVdev(place).into())
    }

    /// Checks that every vdev that holds blocks has a disk left. Log vdevs without one are given
    /// up: the log moves elsewhere.
    pub(crate) fn check_vdevs(&self) -> Result<(), PoolError> {
        let tree = self.tree();
        for vdev in tree.data() {
            vdev.check()?;
        }
        for vdev in tree.logs().filter(|vdev| vdev.check().is_err()) {
            self.log_vdev_lost(vdev.index);
        }
        Ok(())
    }
}
