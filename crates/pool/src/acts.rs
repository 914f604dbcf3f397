//! Acts of the administrator on the vdevs of a pool in service: log vdevs are added, removed and
//! repaired.
//!
//! A change of the tree is on disk before it counts. The new config goes to the labels of new
//! disks, then to those in use, and an uberblock carries its sequence. A power cut in between
//! leaves both configs. An import then uses the newer one and levels the labels. An act touches a
//! vdev only while the log does not lie on it, so no side of it ever has to be resilvered.

use std::sync::Arc;

use aquifer_ondisk::config::{LeafConfig, PoolConfig, Redundancy, VdevClass, VdevConfig};
use aquifer_ondisk::layout::{LEAVES_MAX, leaf_segments};
use aquifer_ondisk::{Guid, Txg};
use aquifer_vdev::label_io;
use aquifer_vdev::{Leaf, Vdev};

use crate::create::{NamedDisk, VdevSpec, check_labels, check_new_disks, new_vdev};
use crate::error::{Contradiction, ImportError, PoolError};
use crate::pool::Pool;
use crate::tree::{VdevTree, put};

/// A disk of the log: its place in the tree, and its config.
struct Found {
    vdev: usize,
    leaf: usize,
    config: LeafConfig,
}

impl Pool {
    /// Adds a log vdev, and lets the log move there. `force` also accepts disks with labels of
    /// another pool.
    pub async fn add_log(&self, spec: &VdevSpec, force: bool) -> Result<(), ImportError> {
        let _act = self.acts.turn.lock().await;
        let tree = self.tree();
        check_new_disks(std::slice::from_ref(spec), force).await?;
        if tree.config.leaves().count() + spec.disks.len() > LEAVES_MAX {
            let why = format!("a pool has at most {LEAVES_MAX} disks");
            return Err(ImportError::BadConfig(why));
        }
        let hole = tree.config.vdevs.iter().position(|vdev| vdev.class == VdevClass::Hole);
        let at = hole.unwrap_or(tree.config.vdevs.len());
        let (vdev, leaves) = new_vdev(&self.world, VdevClass::Log, self.open_txg(), spec);
        let (config, vdevs) = tree.with_vdev(at, vdev, leaves.clone(), &self.world);
        self.change_tree(config, vdevs, &leaves).await?;
        Ok(self.move_log().await?)
    }

    /// Removes the log vdev with this disk (a path or guid) from the pool.
    pub async fn remove_log(&self, disk: &str) -> Result<(), ImportError> {
        let _act = self.acts.turn.lock().await;
        let found = self.log_leaf(disk)?;
        let _shunned = self.leave_log_vdev(found.vdev).await?;
        let tree = self.tree();
        let gone = tree.vdevs.get(found.vdev).cloned();
        let hole = VdevConfig {
            guid: Guid(self.world.random().max(1)),
            class: VdevClass::Hole,
            redundancy: Redundancy::Single,
            segments: 0,
            birth: Txg(0),
            leaves: Vec::new(),
        };
        let (config, vdevs) = tree.with_vdev(found.vdev, hole, Vec::new(), &self.world);
        self.change_tree(config, vdevs, &[]).await?;
        // Their labels are erased last, when no config names them any more.
        for leaf in gone.iter().flat_map(|vdev| &vdev.leaves) {
            if let Some(disk) = leaf.disk() {
                let _ = label_io::erase_labels(disk).await;
            }
        }
        Ok(())
    }

    /// Replaces a disk (a path or guid) of a log vdev with `new`.
    pub async fn replace_log_disk(
        &self,
        disk: &str,
        new: NamedDisk,
        force: bool,
    ) -> Result<(), ImportError> {
        let _act = self.acts.turn.lock().await;
        let found = self.log_leaf(disk)?;
        let spec = VdevSpec { redundancy: Redundancy::Single, disks: vec![new.clone()] };
        check_new_disks(&[spec], force).await?;
        let tree = self.tree();
        let needs = tree.config.vdevs.get(found.vdev).map_or(0, |vdev| vdev.segments);
        let has = leaf_segments(new.disk.sectors());
        if has <= needs {
            let reason = format!("is too small: {} MiB, {} needed", has * 4, (needs + 1) * 4);
            return Err(ImportError::BadDisk { path: new.path, reason });
        }
        let _shunned = self.leave_log_vdev(found.vdev).await?;
        let guid = Guid(self.world.random().max(1));
        let config = LeafConfig { guid, sectors: new.disk.sectors(), path: new.path.clone() };
        self.put_leaf(&Found { config, ..found }, new, true).await
    }

    /// Takes a disk of a log vdev (a path or guid) out of use until [`Pool::online_log_disk`].
    pub async fn offline_log_disk(&self, disk: &str) -> Result<(), ImportError> {
        let _act = self.acts.turn.lock().await;
        let found = self.log_leaf(disk)?;
        let tree = self.tree();
        let vdev = tree.vdevs.get(found.vdev);
        let Some((vdev, leaf)) = vdev.and_then(|vdev| Some((vdev, vdev.leaves.get(found.leaf)?)))
        else {
            return Ok(());
        };
        let last = vdev.online().all(|other| other.guid == leaf.guid);
        let _shunned = if last { Some(self.leave_log_vdev(found.vdev).await?) } else { None };
        leaf.take_offline();
        self.name_outdated().await?;
        Ok(())
    }

    /// Takes a disk of a log vdev (a path or guid) into use again. `again` is the same disk, opened
    /// again.
    pub async fn online_log_disk(&self, disk: &str, again: NamedDisk) -> Result<(), ImportError> {
        let _act = self.acts.turn.lock().await;
        let found = self.log_leaf(disk)?;
        let labels = label_io::read_labels(&again.disk)
            .await
            .map_err(|error| ImportError::Label { path: again.path.clone(), error })?;
        if labels.label.leaf_guid != found.config.guid
            || labels.label.config.pool_guid != self.guid()
        {
            let reason = "is another disk; `pool replace` takes it in its place".to_string();
            return Err(ImportError::BadDisk { path: again.path, reason });
        }
        let _shunned = self.leave_log_vdev(found.vdev).await?;
        self.put_leaf(&found, again, false).await
    }

    /// Puts a new leaf into its place in a log vdev that the log has left, and lets the log come
    /// back.
    async fn put_leaf(&self, found: &Found, disk: NamedDisk, new: bool) -> Result<(), ImportError> {
        let (tree, guid) = (self.tree(), found.config.guid);
        let leaf = Arc::new(Leaf::new(guid, disk.path, Some(disk.disk), self.world.clone()));
        let (vdev, config) = (tree.vdevs.get(found.vdev), tree.config.vdevs.get(found.vdev));
        let Some((mut leaves, mut config)) =
            vdev.map(|vdev| vdev.leaves.clone()).zip(config.cloned())
        else {
            return Err(PoolError::from(Contradiction::LogVdevGone).into());
        };
        put(&mut leaves, found.leaf, leaf.clone());
        put(&mut config.leaves, found.leaf, found.config.clone());
        let (config, vdevs) = tree.with_vdev(found.vdev, config, leaves, &self.world);
        let fresh = if new { vec![leaf] } else { Vec::new() };
        self.change_tree(config, vdevs, &fresh).await?;
        *self.acts.shunned_log.lock() = None;
        Ok(self.move_log().await?)
    }

    /// Makes a tree the pool's own. `fresh` are disks that were not part of it.
    async fn change_tree(
        &self,
        mut config: PoolConfig,
        vdevs: Vec<Arc<Vdev>>,
        fresh: &[Arc<Leaf>],
    ) -> Result<(), ImportError> {
        config.config_sequence += 1;
        check_labels(&config)?;
        for leaf in fresh {
            if let Some(disk) = leaf.disk() {
                label_io::erase_labels(disk).await?;
            }
            label_io::write_config(leaf, &config).await?;
        }
        let sequence = config.config_sequence;
        let tree = Arc::new(VdevTree { config, vdevs });
        let is_fresh = |leaf: &&Arc<Leaf>| fresh.iter().any(|new| new.guid == leaf.guid);
        for leaf in tree.online().filter(|leaf| !is_fresh(leaf)) {
            // The uberblock marks a disk that fails here as outdated.
            let _ = label_io::write_config(leaf, &tree.config).await;
        }
        *self.tree.write() = tree.clone();
        let in_use: Vec<Guid> = tree.online().map(|leaf| leaf.guid).collect();
        let known: Vec<Guid> = tree.config.leaves().map(|(_, leaf)| leaf.guid).collect();
        self.write_uberblock(|uberblock| {
            uberblock.config_sequence = sequence;
            // Removes disks that are up to date again, and disks that are no longer the pool's.
            uberblock
                .outdated
                .retain(|entry| known.contains(&entry.leaf) && !in_use.contains(&entry.leaf));
        })
        .await?;
        Ok(())
    }

    /// Moves the log off a vdev, and keeps it away until the returned value is dropped.
    async fn leave_log_vdev(&self, vdev: usize) -> Result<Shunned<'_>, PoolError> {
        *self.acts.shunned_log.lock() = u16::try_from(vdev).ok();
        let shunned = Shunned(self);
        self.move_log().await?;
        Ok(shunned)
    }

    fn log_leaf(&self, name: &str) -> Result<Found, ImportError> {
        let tree = self.tree();
        for (vdev, config) in tree.config.vdevs.iter().enumerate() {
            for (leaf, of) in config.leaves.iter().enumerate() {
                let path = tree.vdevs.get(vdev).and_then(|vdev| vdev.leaves.get(leaf));
                let path = path.map_or(&of.path, |leaf| &leaf.path);
                if path != name && of.guid.to_string() != name {
                    continue;
                }
                if config.class != VdevClass::Log {
                    return Err(ImportError::BadConfig(format!(
                        "{name} is not a disk of the log: this works for log devices only, so far"
                    )));
                }
                return Ok(Found { vdev, leaf, config: of.clone() });
            }
        }
        Err(ImportError::BadConfig(format!("{name} is no disk of pool {:?}", self.name())))
    }
}

/// Keeps the log away from a vdev until it is dropped.
struct Shunned<'a>(&'a Pool);

impl Drop for Shunned<'_> {
    fn drop(&mut self) {
        *self.0.acts.shunned_log.lock() = None;
        self.0.place_log();
    }
}
