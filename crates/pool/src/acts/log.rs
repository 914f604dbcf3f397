//! Log vdevs are added, removed and repaired. An act touches one only while the log does not lie on
//! it, so no side of it ever has to be rebuilt.

use std::sync::Arc;

use aquifer_ondisk::config::{Redundancy, VdevClass, VdevConfig};
use aquifer_ondisk::{Guid, Txg};
use aquifer_vdev::Leaf;

use super::Found;
use crate::create::{NamedDisk, VdevSpec, check_new_disks, new_vdev};
use crate::error::{ActError, Contradiction, PoolError};
use crate::pool::Pool;
use crate::tree::put;

impl Pool {
    /// Adds a log vdev, and lets the log move there. `force` also accepts disks with labels of
    /// another pool.
    pub async fn add_log(&self, spec: &VdevSpec, force: bool) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        let tree = self.tree();
        check_new_disks(std::slice::from_ref(spec), force).await?;
        self.check_count(spec.disks.len())?;
        let hole = tree.config.vdevs.iter().position(|vdev| vdev.class == VdevClass::Hole);
        let at = hole.unwrap_or(tree.config.vdevs.len());
        let (vdev, leaves) = new_vdev(&self.world, VdevClass::Log, self.open_txg(), spec);
        let tree = tree.with_vdev(at, vdev, leaves.clone(), &self.world);
        self.change_tree(tree, &leaves).await?;
        Ok(self.move_log().await?)
    }

    /// Removes the log vdev with this disk (a path or guid) from the pool.
    pub async fn remove_log(&self, disk: &str) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.log_leaf_named(disk)?;
        let _shunned = self.leave_log_vdev(found.vdev).await?;
        let tree = self.tree();
        let gone = tree.vdevs.get(found.vdev).cloned();
        let guid = Guid(self.world.random().max(1));
        let hole = VdevConfig::new(guid, VdevClass::Hole, Redundancy::Single, 0, Txg(0));
        let tree = tree.with_vdev(found.vdev, hole, Vec::new(), &self.world);
        self.change_tree(tree, &[]).await?;
        // Their labels are erased last, when no config names them any more.
        for leaf in gone.iter().flat_map(|vdev| &vdev.leaves) {
            self.wipe(leaf).await;
        }
        Ok(())
    }

    /// Replaces a disk of a log vdev with `new`, which was checked, and wipes the old one's labels.
    pub(super) async fn replace_log_disk(
        &self,
        found: Found,
        new: NamedDisk,
    ) -> Result<(), ActError> {
        let _shunned = self.leave_log_vdev(found.vdev).await?;
        let vdev = self.tree().vdevs.get(found.vdev).cloned();
        let old = vdev.and_then(|vdev| vdev.leaves.get(found.leaf).cloned());
        let config = self.new_leaf(&new);
        self.put_leaf(&Found { config, ..found }, new, true).await?;
        if let Some(old) = old {
            old.take_offline();
            self.wipe(&old).await;
        }
        Ok(())
    }

    /// Takes a disk of a log vdev out of use.
    pub(super) async fn offline_log_disk(&self, found: &Found) -> Result<(), ActError> {
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

    /// Takes a disk of a log vdev into use again. `again` is the same disk, opened again.
    pub(super) async fn online_log_disk(
        &self,
        found: &Found,
        again: NamedDisk,
    ) -> Result<(), ActError> {
        let _shunned = self.leave_log_vdev(found.vdev).await?;
        let tree = self.tree();
        let old = tree.vdevs.get(found.vdev).and_then(|vdev| vdev.leaves.get(found.leaf));
        if let Some(old) = old.filter(|old| !old.is_online()) {
            self.is_quiet_or_refused(old).await?;
        }
        self.put_leaf(found, again, false).await
    }

    /// Puts a new leaf into its place in a log vdev that the log has left, and lets the log come
    /// back.
    async fn put_leaf(&self, found: &Found, disk: NamedDisk, new: bool) -> Result<(), ActError> {
        let (tree, guid) = (self.tree(), found.config.guid);
        let leaf = Arc::new(Leaf::new(guid, disk.path, Some(disk.disk), self.world.clone()));
        let (vdev, config) = (tree.vdevs.get(found.vdev), tree.config.vdevs.get(found.vdev));
        let Some((mut leaves, mut config)) =
            vdev.map(|vdev| vdev.leaves.clone()).zip(config.cloned())
        else {
            return Err(PoolError::from(Contradiction::VdevGone).into());
        };
        put(&mut leaves, found.leaf, leaf.clone());
        put(&mut config.leaves, found.leaf, found.config.clone());
        let tree = tree.with_vdev(found.vdev, config, leaves, &self.world);
        let fresh = if new { vec![leaf] } else { Vec::new() };
        self.change_tree(tree, &fresh).await?;
        *self.acts.shunned_log.lock() = None;
        Ok(self.move_log().await?)
    }

    fn log_leaf_named(&self, disk: &str) -> Result<Found, ActError> {
        let found = self.leaf_named(disk)?;
        if found.class == VdevClass::Log {
            return Ok(found);
        }
        Err(ActError::BadConfig(format!("{disk} holds data: it is no disk of the log")))
    }

    /// Moves the log off a vdev, and keeps it away until the returned value is dropped.
    async fn leave_log_vdev(&self, vdev: usize) -> Result<Shunned<'_>, PoolError> {
        *self.acts.shunned_log.lock() = u16::try_from(vdev).ok();
        let shunned = Shunned(self);
        self.move_log().await?;
        Ok(shunned)
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
