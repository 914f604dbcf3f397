//! Data vdevs that are added, and vdevs that grow.
//!
//! Nothing of a vdev is used before an uberblock carries the config that lists it. The vdev is
//! empty then: a root that was written without it needs nothing of it. So a power cut anywhere
//! leaves either tree, and both are whole.
//!
//! A root says how many copies records and nodes have by the vdevs that its txg knew
//! ([`PoolConfig::record_copies`](aquifer_ondisk::config::PoolConfig::record_copies)). So no txg
//! may close between the choice of a vdev's birth and the moment from which a sync sees it.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::{VDEV_SEGMENTS_MAX, VdevClass, VdevConfig};
use aquifer_ondisk::layout::{Geometry, REWIND_TXGS, leaf_segments, metaslab_segments};
use aquifer_vdev::Vdev;

use crate::create::{VdevSpec, check_new_disks, new_vdev};
use crate::error::ActError;
use crate::pool::Pool;

impl Pool {
    /// Adds a data vdev, which is used from now on. Its size does not matter. `force` also accepts
    /// disks with labels of another pool.
    ///
    /// # Errors
    /// There are too many disks, or one cannot be used. Nothing was written then.
    pub async fn add_data(&self, spec: &VdevSpec, force: bool) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        check_new_disks(std::slice::from_ref(spec), force).await?;
        let tree = self.tree();
        self.check_count(spec.disks.len())?;
        let _sync = self.sync_turn.lock().await;
        self.txgs.check()?;
        // A number of its own: places of a vdev that was removed are never those of this one.
        let at = tree.config.vdevs.len();
        let (config, leaves) = new_vdev(&self.world, VdevClass::Data, self.open_txg(), spec);
        let tree = tree.with_vdev(at, config, leaves.clone(), &self.world);
        if left_out(Rule::NewVdevIsListedFirst) {
            *self.tree.write() = Arc::new(tree.clone());
            self.use_space_of(at);
        }
        self.change_tree(tree, &leaves).await?;
        self.use_space_of(at);
        Ok(())
    }

    /// Lets a data vdev use all of its disks, which may have become larger. Returns by how many
    /// sectors it has grown.
    ///
    /// # Errors
    /// `disk` is none of the pool's, or of the log; a disk of the vdev is not online.
    pub async fn expand(&self, disk: &str) -> Result<u64, ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.data_leaf_named(disk)?;
        let (vdev, before) = self.data_vdev(&found)?;
        let (config, all) = grown(&vdev, &before).await;
        if config == before {
            return all.map(|()| 0);
        }
        // The config tells of one metaslab that became longer. Slots tell of the one before, in
        // each root to which an import can go back.
        let roots = if before.grown_from_segments == 0 { 0 } else { 1 + REWIND_TXGS };
        for _ in 0..roots {
            self.sync().await?;
        }
        let _sync = self.sync_turn.lock().await;
        self.txgs.check()?;
        let (tree, leaves) = (self.tree(), vdev.leaves.clone());
        let tree = tree.with_vdev(found.vdev, config, leaves, &self.world);
        // Those that have grown get their end labels, also if another one could not.
        self.change_tree(tree, &[]).await?;
        all?;
        let total = self.space.lock().space_use().total;
        self.use_space_of(found.vdev);
        // The slot of the metaslab that has become longer tells so from the next txg on.
        self.request_txg();
        Ok(self.space.lock().space_use().total - total)
    }

    /// Lets the allocator use all of a data vdev, and the pool's limits follow. No txg may close
    /// meanwhile.
    fn use_space_of(&self, at: usize) {
        let tree = self.tree();
        let Some(vdev) = tree.vdevs.get(at) else { return };
        let geometries: Vec<Geometry> = tree.data().map(|vdev| vdev.geometry).collect();
        let metaslabs = geometries.iter().map(Geometry::metaslabs).sum();
        let mut space = self.space.lock();
        space.extend(vdev.geometry);
        self.grow_records(&mut space, vdev, metaslabs);
        self.spread_records(&mut space);
        drop(space);
        self.set_capacity();
    }
}

/// The config of a vdev that uses all of its disks, which are looked at. From here on the end
/// labels of those that have grown lie elsewhere, so they are in the config also if another one
/// cannot grow.
async fn grown(vdev: &Vdev, before: &VdevConfig) -> (VdevConfig, Result<(), ActError>) {
    let mut config = before.clone();
    let all = grow_all(vdev, &mut config).await;
    // The last segment of a leaf holds its end labels.
    let smallest = config.leaves.iter().map(|leaf| leaf_segments(leaf.sectors)).min();
    let segments = (smallest.unwrap_or(1) - 1).min(VDEV_SEGMENTS_MAX);
    if segments > before.segments {
        config.grown_from_segments = before.segments;
        config.segments = segments;
    }
    if left_out(Rule::MetaslabSizeStays) {
        config.metaslab_segments = metaslab_segments(config.segments);
    }
    (config, all)
}

/// Lets disks show how large they are by now. None does if one of them is not online.
async fn grow_all(vdev: &Vdev, config: &mut VdevConfig) -> Result<(), ActError> {
    let mut disks = Vec::new();
    for leaf in &vdev.leaves {
        let why = || format!("{} is not online: a vdev grows with all its disks", leaf.path);
        let disk = leaf.disk().filter(|_| leaf.is_online());
        disks.push(disk.ok_or_else(|| ActError::BadConfig(why()))?);
    }
    for (disk, of) in disks.into_iter().zip(&mut config.leaves) {
        of.sectors = disk.grow().await?;
    }
    Ok(())
}
