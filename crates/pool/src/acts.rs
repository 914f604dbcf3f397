//! Acts of the administrator on the disks of a pool in service.
//!
//! A change of the tree is on disk before it counts. The new config goes to the labels of new
//! disks, then to those in use, and an uberblock carries its sequence. A power cut in between
//! leaves both configs. An import then uses the newer one and levels the labels.
//!
//! One act at a time. Each says which disk it means by path or guid.

mod data;
mod drill;
mod features;
mod grow;
mod log;
mod past;
mod records;
mod spares;

pub(crate) use data::QUIET_WAIT;
pub use drill::Drilled;

use std::collections::HashSet;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_ondisk::Guid;
use aquifer_ondisk::config::{LeafConfig, Stands, VdevClass};
use aquifer_ondisk::layout::{LEAVES_MAX, leaf_segments};
use aquifer_vdev::Leaf;
use aquifer_vdev::label_io;

use crate::create::{NamedDisk, check_labels, check_new_disk};
use crate::error::{ActError, PoolError};
use crate::pool::Pool;
use crate::tree::VdevTree;

/// A disk of the pool: its place in the tree, and its config.
struct Found {
    vdev: usize,
    leaf: usize,
    class: VdevClass,
    config: LeafConfig,
}

impl Pool {
    /// Takes a disk out of use until [`Pool::online_disk`]; if `temporary`, until the next import
    /// at most.
    ///
    /// # Errors
    /// It is none of the pool's, or the last one that holds everything.
    pub async fn offline_disk(&self, disk: &str, temporary: bool) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.leaf_named(disk)?;
        match found.class {
            VdevClass::Log => self.offline_log_disk(&found).await?,
            _ => self.offline_data_disk(&found).await?,
        }
        self.note_offline(&found, !temporary).await?;
        self.tell_offline(&found).await;
        Ok(())
    }

    /// Notes in a disk's own labels that it was taken offline by order: an import with it alone
    /// asks. No other label says so of a disk that is away until the next import at most; its own
    /// counts for nothing while another disk is there. A disk that does not answer is left.
    async fn tell_offline(&self, found: &Found) {
        let tree = self.tree();
        let Some(leaf) = tree.leaf(found.config.guid).cloned() else { return };
        if !leaf.is_quiet() {
            return;
        }
        let mut config = tree.config.clone();
        let leaves = config.vdevs.iter_mut().flat_map(|vdev| &mut vdev.leaves);
        leaves.filter(|own| own.guid == leaf.guid).for_each(|own| own.offline = true);
        // One that hangs gives an error soon, and its I/O counts as owed.
        let _ = label_io::write_config(&leaf, &config).await;
    }

    /// Notes in the labels whether a disk stays out of use.
    async fn note_offline(&self, found: &Found, offline: bool) -> Result<(), ActError> {
        let mut tree = VdevTree::clone(&self.tree());
        let leaves = tree.config.vdevs.iter_mut().flat_map(|vdev| &mut vdev.leaves);
        let changed: Vec<_> = leaves
            .filter(|leaf| leaf.guid == found.config.guid && leaf.offline != offline)
            .map(|leaf| leaf.offline = offline)
            .collect();
        if changed.is_empty() {
            return Ok(());
        }
        self.change_tree(tree, &[]).await
    }

    /// Takes a disk into use again. `again` is the same disk, opened again. A disk that holds data
    /// gets what it missed first, in the background.
    ///
    /// # Errors
    /// The disk is none of the pool's; `again` is another disk, or has a past of its own (unless
    /// `force`, which drops that).
    pub async fn online_disk(
        &self,
        disk: &str,
        again: NamedDisk,
        force: bool,
    ) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.leaf_named(disk)?;
        // As a leaf that is not in use: the act must end if it hangs.
        let disk = Some(again.disk.clone());
        let (guid, clock) = (found.config.guid, self.world.clone());
        let leaf = Leaf::out_of_use(guid, again.path.clone(), disk, clock);
        let labels = label_io::read_labels_of(&leaf)
            .await
            .map_err(|error| ActError::Label { path: again.path.clone(), error })?;
        if !labels.are_of(self.guid(), guid) {
            let reason = "is another disk; `pool replace` takes it in its place".to_string();
            return Err(ActError::BadDisk { path: again.path, reason });
        }
        if found.class == VdevClass::Data && !force && !left_out(Rule::OwnPastIsKept) {
            let checked = self.check_past(&again.path, &labels).await;
            if let (Err(error), Some(leaf)) = (&checked, self.tree().leaf(guid)) {
                leaf.note_own_past(error.to_string());
            }
            checked?;
        }
        self.note_offline(&found, false).await?;
        let found = self.leaf_named(&found.config.guid.to_string())?;
        match found.class {
            VdevClass::Log => self.online_log_disk(&found, again).await,
            _ => self.online_data_disk(&found, again).await,
        }
    }

    /// Puts `new` into the place of a disk. If that holds data, the new one is resilvered in the
    /// background; an old one that holds everything leaves after that. Returns whether the old disk
    /// has left the pool.
    ///
    /// A disk in the place of a spare that stands in is that spare from then on.
    ///
    /// # Errors
    /// It is none of the pool's, or is being replaced; the new disk is too small, or belongs to a
    /// pool (unless `force`).
    pub async fn replace_disk(
        &self,
        disk: &str,
        new: NamedDisk,
        force: bool,
    ) -> Result<bool, ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.leaf_named(disk)?;
        self.check_not_replaced(&found)?;
        self.check_new_leaf(&found, &new, force).await?;
        match found.class {
            VdevClass::Log => self.replace_log_disk(found, new).await.map(|()| true),
            _ => self.replace_data_disk(&found, new).await,
        }
    }

    async fn check_new_leaf(
        &self,
        found: &Found,
        new: &NamedDisk,
        force: bool,
    ) -> Result<(), ActError> {
        check_new_disk(new, force).await?;
        self.check_size(found, new)
    }

    /// Checks that a new disk is large enough for the vdev of another one.
    fn check_size(&self, found: &Found, new: &NamedDisk) -> Result<(), ActError> {
        let tree = self.tree();
        let needs = tree.config.vdevs.get(found.vdev).map_or(0, |vdev| vdev.segments);
        let has = leaf_segments(new.disk.sectors());
        if has > needs {
            return Ok(());
        }
        let reason = format!("is too small: {} MiB, {} needed", has * 4, (needs + 1) * 4);
        Err(ActError::BadDisk { path: new.path.clone(), reason })
    }

    fn check_not_replaced(&self, found: &Found) -> Result<(), ActError> {
        let replaces = |leaf: &&LeafConfig| leaf.stands == Stands::Replaces(found.config.guid);
        let tree = self.tree();
        let Some(new) = tree.config.leaves().map(|(_, leaf)| leaf).find(replaces) else {
            return Ok(());
        };
        let (old, new) = (&found.config.path, &new.path);
        Err(ActError::BadConfig(format!(
            "{old} is being replaced by {new} already; wait until that is done, or end it with \
             `pool detach` of {new}"
        )))
    }

    pub(crate) fn new_leaf(&self, new: &NamedDisk) -> LeafConfig {
        let guid = Guid(self.world.random().max(1));
        LeafConfig::new(guid, new.disk.sectors(), new.path.clone())
    }

    /// Checks that so many more disks are not too many.
    pub(crate) fn check_count(&self, more: usize) -> Result<(), ActError> {
        if self.tree().config.disks().count() + more <= LEAVES_MAX {
            return Ok(());
        }
        Err(ActError::BadConfig(format!("a pool has at most {LEAVES_MAX} disks")))
    }

    /// Makes a tree the pool's own. `fresh` are disks that were not part of it.
    pub(crate) async fn change_tree(
        &self,
        mut tree: VdevTree,
        fresh: &[Arc<Leaf>],
    ) -> Result<(), ActError> {
        if self.is_read_only() {
            return Err(PoolError::ReadOnly.into());
        }
        tree.config.config_sequence += 1;
        check_labels(&tree.config)?;
        let leaves = || tree.config.leaves().map(|(_, leaf)| leaf.guid);
        assert!(leaves().collect::<HashSet<_>>().len() == leaves().count(), "a disk has one place");
        assert!(tree.has_all_spares(), "a spare has a place");
        for leaf in fresh {
            if let Some(disk) = leaf.disk() {
                label_io::erase_labels(disk).await?;
            }
            label_io::write_config(leaf, &tree.config).await?;
        }
        let sequence = tree.config.config_sequence;
        let tree = Arc::new(tree);
        let is_fresh = |leaf: &&Arc<Leaf>| fresh.iter().any(|new| new.guid == leaf.guid);
        for leaf in tree.online().filter(|leaf| !is_fresh(leaf)) {
            // The uberblock marks a disk that fails here as outdated.
            let _ = label_io::write_config(leaf, &tree.config).await;
        }
        *self.tree.write() = tree.clone();
        let known: Vec<Guid> = tree.config.leaves().map(|(_, leaf)| leaf.guid).collect();
        self.write_uberblock(|uberblock| {
            uberblock.config_sequence = sequence;
            // Removes disks that are up to date again. A disk may have failed by now, and been
            // named by another uberblock: looked at here. One that leaves the pool stays named
            // until it is wiped: it may come up alone, and must be known then.
            let in_use: Vec<Guid> = tree.online().map(|leaf| leaf.guid).collect();
            uberblock.outdated.retain(|entry| !in_use.contains(&entry.leaf));
            if left_out(Rule::GoneStaysNamed) {
                uberblock.outdated.retain(|entry| known.contains(&entry.leaf));
            }
        })
        .await?;
        self.acts.tell_change();
        Ok(())
    }

    /// Counts errors of disks from 0 again: of one, or of all. One that failed is tried again now,
    /// if it may come back by itself.
    pub fn clear_errors(self: &Arc<Self>, disk: Option<Guid>) {
        let tree = self.tree();
        let leaves = tree.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        let wanted = |leaf: &&Arc<Leaf>| disk.is_none_or(|guid| leaf.guid == guid);
        for leaf in leaves.filter(wanted) {
            leaf.clear_errors();
            if !leaf.takes_writes() && leaf.may_come_back() {
                leaf.ask_back();
            }
        }
        // It cannot come back before it is named. Nobody waits for that: the others may hang.
        let pool = self.clone();
        let names = async move {
            // Whatever is to be acknowledged meets the error, too.
            let _ = pool.name_outdated().await;
            pool.acts.disks_changed.notify_one();
            // Behind it: an act that is under way may take long.
            pool.try_caches_again(disk).await;
        };
        self.world.spawn("cleared", Box::pin(names));
    }

    /// The disk of this path or guid.
    fn leaf_named(&self, name: &str) -> Result<Found, ActError> {
        let tree = self.tree();
        for (vdev, config) in tree.config.vdevs.iter().enumerate() {
            for (leaf, of) in config.leaves.iter().enumerate() {
                let path = tree.vdevs.get(vdev).and_then(|vdev| vdev.leaves.get(leaf));
                let path = path.map_or(&of.path, |leaf| &leaf.path);
                if path == name || of.guid.to_string() == name {
                    return Ok(Found { vdev, leaf, class: config.class, config: of.clone() });
                }
            }
        }
        Err(ActError::BadConfig(format!("{name} is no disk of pool {:?}", self.name())))
    }
}
