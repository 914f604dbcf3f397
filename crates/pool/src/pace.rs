//! Disks that are much slower than their kind: which are compared, and when.
//!
//! Sides of a mirror have the same work. Single disks have only similar work, so they are compared
//! only where there are several others. Nothing wakes up for this: it
//! happens after a sync, and when the pool says that it is in use.

use std::sync::Arc;

use aquifer_ondisk::config::VdevClass;
use aquifer_vdev::{Leaf, pace};

use crate::Pool;

/// A single disk is compared with so many others of its class at least: one of two might just be of
/// a faster kind.
const OTHER_SINGLES_MIN: usize = 3;

impl Pool {
    /// Compares the disks' pace, if it is time.
    pub(crate) fn compare_paces(&self) {
        let now = self.world.now();
        {
            let mut compared = self.meters.paces_compared.lock();
            if now.saturating_sub(*compared) < pace::LOOK_EVERY {
                return;
            }
            *compared = now;
        }
        let tree = self.tree();
        for class in [VdevClass::Data, VdevClass::Log] {
            let of_class = tree.vdevs.iter().filter(|vdev| vdev.class == class);
            let (mirrors, singles): (Vec<_>, Vec<_>) =
                of_class.partition(|vdev| vdev.online().nth(1).is_some());
            mirrors.iter().for_each(|vdev| pace::compare(&vdev.leaves, 1));
            let singles: Vec<Arc<Leaf>> =
                singles.iter().flat_map(|vdev| vdev.online()).cloned().collect();
            pace::compare(&singles, OTHER_SINGLES_MIN);
        }
    }
}
