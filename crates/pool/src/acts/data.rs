//! Disks that hold data: taken out of use and back, attached, detached, replaced.
//!
//! Invariants:
//! - The last disk of a vdev that holds everything is never taken away.
//! - A new disk is named outdated before a config lists it. A disk that leaves is named, then
//!   struck from the config, then wiped. It stays named until it is wiped.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::config::{LeafConfig, Stands, VdevClass, VdevConfig};
use aquifer_ondisk::uberblock::{Outdated, Uberblock};
use aquifer_sync::Notify;
use aquifer_sync::atomic::{AtomicBool, Ordering};
use aquifer_vdev::{Leaf, Vdev, label_io};
use futures_util::future::select;

use super::{Found, spares};
use crate::create::NamedDisk;
use crate::error::{ActError, Contradiction, PoolError};
use crate::pool::Pool;
use crate::tree::put;

/// How long an act waits until a disk has answered all I/O that it was given.
pub(crate) const QUIET_WAIT: Duration = Duration::from_secs(10);

impl Pool {
    /// Adds `new` as another side of the vdev of a disk. It gets all data in the background.
    ///
    /// # Errors
    /// The disk is none of the pool's, or of the log; the new one is too small, or belongs to a
    /// pool (unless `force`).
    pub async fn attach_disk(
        &self,
        disk: &str,
        new: NamedDisk,
        force: bool,
    ) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.data_leaf_named(disk)?;
        self.check_new_leaf(&found, &new, force).await?;
        let at = self.data_vdev(&found)?.0.leaves.len();
        self.put_new_leaf(&found, at, self.new_leaf(&new), new).await
    }

    /// Takes a side of a mirror out of the pool, and wipes its labels.
    ///
    /// # Errors
    /// It is none of the pool's, or of the log, or the last one that holds everything.
    pub async fn detach_disk(&self, disk: &str) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.data_leaf_named(disk)?;
        self.take_leaf_out(&found).await
    }

    /// Takes a side out of its vdev. If another disk replaces it, that one is now what it was.
    /// Otherwise a spare is one again. Any other disk leaves the pool.
    pub(super) async fn take_leaf_out(&self, found: &Found) -> Result<(), ActError> {
        self.offline_data_disk(found).await?;
        let (vdev, config) = self.data_vdev(found)?;
        let (mut leaves, mut config) = (vdev.leaves.clone(), config);
        let gone = leaves.remove(found.leaf);
        let was = config.leaves.remove(found.leaf);
        let heir = config.leaves.iter().find(|leaf| leaf.stands == Stands::Replaces(gone.guid));
        let heir = heir.cloned();
        if let Some(heir) = &heir {
            spares::inherit(&mut config, &was, heir.guid);
        }
        let mut tree = self.tree().with_vdev(found.vdev, config, leaves, &self.world);
        if let Some(heir) = heir {
            tree.pass_on_spare(gone.guid, &heir);
        }
        let is_spare = tree.config.spares.iter().any(|spare| spare.guid == gone.guid);
        if is_spare {
            let (path, disk) = (gone.path.clone(), gone.disk().cloned());
            tree.spares.push(Leaf::out_of_use(gone.guid, path, disk, self.world.clone()));
        }
        self.change_tree(tree, &[]).await?;
        self.wipe(&gone).await;
        if is_spare && gone.is_quiet() {
            // Without a label it would not be used, and a restart would not find it.
            let _ = label_io::write_config(&gone, &self.tree().config).await;
        }
        Ok(())
    }

    pub(super) async fn online_data_disk(
        &self,
        found: &Found,
        again: NamedDisk,
    ) -> Result<(), ActError> {
        let (vdev, config) = self.data_vdev(found)?;
        let Some(old) = vdev.leaves.get(found.leaf).cloned() else { return Ok(()) };
        if old.is_online() {
            return Ok(());
        }
        old.take_offline();
        self.name_outdated().await?;
        self.is_quiet_or_refused(&old).await?;
        let clock = self.world.clone();
        let leaf = Leaf::out_of_use(old.guid, again.path, Some(again.disk), clock);
        leaf.ask_back();
        let mut leaves = vdev.leaves.clone();
        put(&mut leaves, found.leaf, leaf);
        let tree = self.tree().with_vdev(found.vdev, config, leaves, &self.world);
        self.change_tree(tree, &[]).await
    }

    /// Returns whether the old disk has left the pool: one that holds everything stays for as long
    /// as the new one does not.
    pub(super) async fn replace_data_disk(
        &self,
        found: &Found,
        new: NamedDisk,
    ) -> Result<bool, ActError> {
        let (vdev, _) = self.data_vdev(found)?;
        let old = vdev.leaves.get(found.leaf).cloned();
        let mut config = self.new_leaf(&new);
        let Some(old) = old.filter(|old| !old.is_online()) else {
            config.stands = Stands::Replaces(found.config.guid);
            self.check_room_beside(found, &vdev)?;
            self.put_new_leaf(found, vdev.leaves.len(), config, new).await?;
            return Ok(false);
        };
        old.take_offline();
        self.put_new_leaf(found, found.leaf, config, new).await?;
        self.wipe(&old).await;
        Ok(true)
    }

    /// Checks that a disk and the one that replaces it may be in the pool together.
    fn check_room_beside(&self, found: &Found, vdev: &Vdev) -> Result<(), ActError> {
        let Err(full) = self.check_count(1) else { return Ok(()) };
        let (pool, path, guid) = (self.name(), &found.config.path, found.config.guid);
        let is_spared = vdev.online().any(|other| other.guid != guid);
        let way = match is_spared {
            true => format!("take it out of use first: `aquifer pool offline {pool} {path}`"),
            false => format!("`aquifer pool remove {pool}` a spare, or `detach` a disk, first"),
        };
        Err(ActError::BadConfig(format!(
            "{full}, and {path} stays until the new one holds everything; {way}"
        )))
    }

    /// Takes a disk out of use, unless it is the last one that holds everything.
    pub(super) async fn offline_data_disk(&self, found: &Found) -> Result<(), ActError> {
        let (vdev, _) = self.data_vdev(found)?;
        let Some(leaf) = vdev.leaves.get(found.leaf) else { return Ok(()) };
        if vdev.online().all(|other| other.guid == leaf.guid) && leaf.is_online() {
            return Err(ActError::BadConfig(format!(
                "{} is the last disk that holds all data of its vdev",
                leaf.path
            )));
        }
        leaf.take_offline();
        Ok(self.name_outdated().await?)
    }

    /// Puts a new disk into place `at` of a vdev, outdated: it is resilvered in the background. In
    /// the place of another disk it is what that one was, and a spare that stood for that one
    /// stands for the new one.
    pub(super) async fn put_new_leaf(
        &self,
        found: &Found,
        at: usize,
        config: LeafConfig,
        new: NamedDisk,
    ) -> Result<(), ActError> {
        let tree = self.tree();
        let is_known = tree.config.disks().any(|disk| disk.guid == config.guid);
        if at == self.data_vdev(found)?.0.leaves.len() && !is_known {
            self.check_count(1)?;
        }
        self.write_uberblock(|uberblock| {
            // A spare may have been one before, and was not wiped since.
            uberblock.outdated.retain(|outdated| outdated.leaf != config.guid);
            uberblock.outdated.push(Outdated { leaf: config.guid, since: 0 });
        })
        .await?;
        let clock = self.world.clone();
        let leaf = Leaf::out_of_use(config.guid, new.path, Some(new.disk), clock);
        leaf.ask_back();
        let (vdev, mut of) = self.data_vdev(found)?;
        let mut leaves = vdev.leaves.clone();
        let before = of.leaves.get(at).cloned();
        put(&mut leaves, at, leaf.clone());
        put(&mut of.leaves, at, config.clone());
        if let Some(before) = &before {
            spares::inherit(&mut of, before, config.guid);
        }
        let mut tree = self.tree().with_vdev(found.vdev, of, leaves, &self.world);
        if let Some(before) = before {
            tree.pass_on_spare(before.guid, &config);
        }
        if !left_out(Rule::SpareStandsOnce) {
            tree.spares.retain(|spare| spare.guid != leaf.guid);
        }
        self.change_tree(tree, &[leaf]).await
    }

    /// Waits until a disk has answered all that it was given. Late writes would destroy newer ones.
    pub(super) async fn is_quiet_or_refused(&self, leaf: &Leaf) -> Result<(), ActError> {
        if self.is_quiet_within(leaf, QUIET_WAIT).await {
            return Ok(());
        }
        let reason = "has not answered all that it was given before".to_string();
        Err(ActError::BadDisk { path: leaf.path.clone(), reason })
    }

    /// Blanks the labels of a disk that has left the pool, if it still answers. Then no uberblock
    /// has to name it any more.
    pub(crate) async fn wipe(&self, leaf: &Leaf) {
        let quiet = self.is_quiet_within(leaf, QUIET_WAIT).await;
        let Some(disk) = leaf.disk().filter(|_| quiet).cloned() else { return };
        // In a task of its own: it goes on if it is not waited for any more.
        let erased = Arc::new((Notify::new(), AtomicBool::new(false)));
        let erases = erased.clone();
        let erase = async move {
            let is_blank = label_io::erase_labels(&disk).await.is_ok();
            erases.1.store(is_blank, Ordering::Release);
            erases.0.notify_one();
        };
        self.world.spawn("wipe", Box::pin(erase));
        let _ = select(pin!(erased.0.notified()), self.world.sleep(QUIET_WAIT)).await;
        if erased.1.load(Ordering::Acquire) && self.committer.known().named.contains(&leaf.guid) {
            // An error is met by whatever is to be acknowledged next.
            let forget = |uberblock: &mut Uberblock| {
                uberblock.outdated.retain(|outdated| outdated.leaf != leaf.guid);
            };
            let _ = self.write_uberblock(forget).await;
        }
    }

    pub(super) fn data_leaf_named(&self, disk: &str) -> Result<Found, ActError> {
        let found = self.leaf_named(disk)?;
        if found.class == VdevClass::Data {
            return Ok(found);
        }
        Err(ActError::BadConfig(format!("{disk} is a disk of the log; `pool replace` is for it")))
    }

    /// The leaf of this path or guid, if it holds data.
    pub(crate) fn data_leaf(&self, disk: &str) -> Option<Arc<Leaf>> {
        let found = self.data_leaf_named(disk).ok()?;
        self.tree().vdevs.get(found.vdev)?.leaves.get(found.leaf).cloned()
    }

    pub(super) fn data_vdev(&self, found: &Found) -> Result<(Arc<Vdev>, VdevConfig), ActError> {
        let tree = self.tree();
        let vdev = tree.vdevs.get(found.vdev).cloned();
        let both = vdev.zip(tree.config.vdevs.get(found.vdev).cloned());
        both.ok_or_else(|| PoolError::from(Contradiction::VdevGone).into())
    }
}
