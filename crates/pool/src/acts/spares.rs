//! Disks that stand for others: spares, and disks that replace one that still holds everything.
//!
//! The label of each says for which disk it stands, so that all this goes on after a restart.
//!
//! Invariants:
//! - A spare is a leaf of at most one vdev. Nothing that it held before counts: its labels are
//!   erased when it comes to a vdev, and when it leaves.
//! - It leaves only while another disk of the vdev holds everything.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use aquifer_ondisk::Guid;
use aquifer_ondisk::config::{LeafConfig, Stands, VdevClass, VdevConfig};
use aquifer_ondisk::layout::leaf_segments;
use aquifer_vdev::{Leaf, LeafState, label_io};
use futures_util::future::select;

use super::Found;
use crate::create::{NamedDisk, check_new_disk};
use crate::error::ActError;
use crate::pool::Pool;
use crate::tree::VdevTree;

/// Whether a leaf is there because of that one.
fn stands_beside(leaf: &LeafConfig, whom: Guid) -> bool {
    matches!(leaf.stands, Stands::Replaces(of) | Stands::SpareFor(of) if of == whom)
}

/// The leaf `heir` is now what `was` was, for itself and for the spares that stood for that one.
pub(super) fn inherit(vdev: &mut VdevConfig, was: &LeafConfig, heir: Guid) {
    for leaf in &mut vdev.leaves {
        if leaf.guid == heir {
            leaf.stands = was.stands;
        } else if leaf.stands == Stands::SpareFor(was.guid) {
            leaf.stands = Stands::SpareFor(heir);
        }
    }
}

impl VdevTree {
    /// If `was` is a spare, `heir` is one in its place.
    pub(super) fn pass_on_spare(&mut self, was: Guid, heir: &LeafConfig) {
        if let Some(spare) = self.config.spares.iter_mut().find(|spare| spare.guid == was) {
            *spare = LeafConfig::new(heir.guid, heir.sectors, heir.path.clone());
        }
    }

    /// Whether each spare has a place: beside the vdevs, or in one of them.
    pub(super) fn has_all_spares(&self) -> bool {
        let waits = |guid| self.spares.iter().any(|leaf| leaf.guid == guid);
        let stands = |guid| self.config.leaves().any(|(_, leaf)| leaf.guid == guid);
        self.config.spares.iter().all(|spare| waits(spare.guid) || stands(spare.guid))
    }
}

impl Pool {
    /// Adds a spare. `force` also accepts a disk with labels of another pool.
    ///
    /// # Errors
    /// The disk cannot be used, or there are too many. Nothing was written then.
    pub async fn add_spare(&self, disk: NamedDisk, force: bool) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        check_new_disk(&disk, force).await?;
        self.check_count(1)?;
        let (config, clock) = (self.new_leaf(&disk), self.world.clone());
        let leaf = Leaf::out_of_use(config.guid, disk.path, Some(disk.disk), clock);
        let mut tree = VdevTree::clone(&self.tree());
        tree.config.spares.push(config);
        tree.spares.push(leaf.clone());
        self.change_tree(tree, &[leaf]).await
    }

    /// Removes a spare (a path or guid) that is not in use, and wipes its labels.
    ///
    /// # Errors
    /// There is none of this name, or it is in use.
    pub async fn remove_spare(&self, disk: &str) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        let mut tree = VdevTree::clone(&self.tree());
        let is_it = |guid: Guid, path: &str| path == disk || guid.to_string() == disk;
        if let Some(at) = tree.spares.iter().position(|leaf| is_it(leaf.guid, &leaf.path)) {
            let leaf = tree.spares.remove(at);
            tree.config.spares.retain(|spare| spare.guid != leaf.guid);
            self.change_tree(tree, &[]).await?;
            self.wipe(&leaf).await;
            return Ok(());
        }
        let in_use = tree.config.spares.iter().any(|spare| is_it(spare.guid, &spare.path));
        Err(ActError::BadConfig(match in_use {
            true => {
                format!("{disk} stands for another disk now: `pool detach` makes it a spare again")
            }
            false => format!("{disk} is no spare of pool {:?}", self.name()),
        }))
    }

    /// Lets spares take the place of disks that are away, and give it back; lets disks go that were
    /// replaced. As long as the pool is in service.
    pub(crate) async fn let_spares_stand_in(self: Arc<Pool>) {
        let mut away_since: HashMap<Guid, Duration> = HashMap::new();
        loop {
            let changed = self.acts.stands_changed.notified();
            if self.txgs.failure().is_some() {
                return;
            }
            if let Err(error) = self.settle_stands().await {
                tracing::warn!(pool = self.name(), %error, "a disk stays beside another one");
            }
            let now = self.world.now();
            let away = self.away();
            away_since.retain(|guid, _| away.contains(guid));
            away.iter().for_each(|guid| {
                away_since.entry(*guid).or_insert(now);
            });
            let due = |since: &Duration| *since + self.limits.scale.spare_after;
            for guid in away.iter().filter(|guid| away_since.get(guid).map_or(now, due) <= now) {
                if let Err(error) = self.put_spare_for(*guid).await {
                    tracing::warn!(pool = self.name(), %error, "a spare cannot be used");
                }
            }
            // Without a spare that could be used, there is nothing to wait for.
            let waits = !self.tree().spares.is_empty();
            let next = away_since.values().map(due).filter(|due| *due > now).min();
            match next.filter(|_| waits) {
                Some(next) => {
                    let _ = select(pin!(changed), self.world.sleep(next - now)).await;
                }
                None => changed.await,
            }
        }
    }

    /// Disks of mirrors that hold data, are not in use, and were not taken offline or away by a
    /// drill; without those for which a spare stands already.
    fn away(&self) -> Vec<Guid> {
        let tree = self.tree();
        let config = &tree.config;
        let stood_for = |guid| config.leaves().any(|(_, l)| l.stands == Stands::SpareFor(guid));
        let is_spare = |guid| config.spares.iter().any(|spare| spare.guid == guid);
        let is_by_will = |leaf: &Leaf| leaf.was_taken_offline() || leaf.is_in_drill();
        let out =
            |leaf: &&Arc<Leaf>| !leaf.takes_writes() && !is_by_will(leaf) && !is_spare(leaf.guid);
        let leaves = tree.data().flat_map(|vdev| &vdev.leaves).filter(out);
        leaves.map(|leaf| leaf.guid).filter(|guid| !stood_for(*guid)).collect()
    }

    /// Puts the smallest spare that is large enough beside a disk.
    async fn put_spare_for(&self, away: Guid) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.data_leaf_named(&away.to_string())?;
        let (vdev, config) = self.data_vdev(&found)?;
        let still = vdev.leaves.get(found.leaf).is_some_and(|leaf| !leaf.takes_writes());
        if !still || vdev.online().next().is_none() {
            return Ok(());
        }
        let tree = self.tree();
        let mut fitting: Vec<_> = tree
            .spares
            .iter()
            .filter_map(|leaf| Some((leaf.disk()?.sectors(), leaf)))
            .filter(|(sectors, _)| leaf_segments(*sectors) > config.segments)
            .collect();
        fitting.sort_by_key(|(sectors, _)| *sectors);
        for (_, leaf) in fitting {
            if let Some(new) = self.usable_spare(leaf).await {
                return self.put_spare(&found, leaf.guid, new, false).await;
            }
        }
        Ok(())
    }

    /// Lets a spare stand in for a disk that is out of use, by order. It may be one that was taken
    /// offline.
    ///
    /// # Errors
    /// There is no such disk or spare, the disk is in use or has a spare already, or the spare
    /// cannot be used for it.
    pub async fn use_spare(&self, disk: &str, spare: Guid) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.data_leaf_named(disk)?;
        let refused = |why: String| Err(ActError::BadConfig(why));
        let tree = self.tree();
        let (vdev, config) = self.data_vdev(&found)?;
        let standing = config.leaves.iter().find(|leaf| stands_beside(leaf, found.config.guid));
        if let Some(standing) = standing {
            let other = &standing.path;
            return refused(format!(
                "{other} stands beside {disk} already: `pool detach` of {other} ends that"
            ));
        }
        if found.config.stands != Stands::ForItself {
            return refused(format!(
                "{disk} stands for another disk itself; `pool detach` of it, or of the other one, \
                 ends that"
            ));
        }
        if vdev.leaves.get(found.leaf).is_some_and(|leaf| leaf.takes_writes()) {
            return refused(format!(
                "{disk} is in use, and a spare stands only for a disk that is not: `pool offline` \
                 of {disk} comes first; or `pool remove` the spare, and replace the disk by it"
            ));
        }
        let Some(leaf) = tree.spares.iter().find(|leaf| leaf.guid == spare) else {
            return refused(format!("the spare for {disk} stands for another disk now"));
        };
        let path = &leaf.path;
        let Some(new) = self.usable_spare(leaf).await else {
            return refused(format!(
                "the spare {path} is missing, or does not answer as it should"
            ));
        };
        self.check_size(&found, &new)?;
        self.put_spare(&found, leaf.guid, new, true).await
    }

    /// The disk of a spare, if it answers, and is still the same.
    async fn usable_spare(&self, leaf: &Arc<Leaf>) -> Option<NamedDisk> {
        let labels = label_io::read_labels_of(leaf).await;
        let own = labels.is_ok_and(|labels| labels.are_of(self.guid(), leaf.guid));
        let disk = leaf.disk().filter(|_| own && leaf.is_quiet())?.clone();
        Some(NamedDisk { path: leaf.path.clone(), disk })
    }

    async fn put_spare(
        &self,
        found: &Found,
        spare: Guid,
        new: NamedDisk,
        by_order: bool,
    ) -> Result<(), ActError> {
        let mut config = LeafConfig::new(spare, new.disk.sectors(), new.path.clone());
        config.stands = Stands::SpareFor(found.config.guid);
        let (path, leaf) = (&new.path, &found.config.path);
        tracing::warn!(
            class = "spare.taken", pool = self.name(), spare = %path, leaf = %leaf,
            by_order, "a spare takes the place of a disk"
        );
        let at = self.data_vdev(found)?.0.leaves.len();
        self.put_new_leaf(found, at, config, new).await
    }

    /// Ends what has come to its end: a disk that was replaced leaves; a spare leaves once the disk
    /// for which it stands is whole again, and is a disk like others once that one is gone.
    async fn settle_stands(&self) -> Result<(), ActError> {
        let _act = self.acts.turn.lock().await;
        loop {
            let tree = self.tree();
            let whole =
                |guid| tree.leaf(guid).is_some_and(|leaf| leaf.shown_state() == LeafState::Online);
            let there = |guid| tree.leaf(guid).is_some();
            let ended = tree.config.leaves().find_map(|(_, leaf)| match leaf.stands {
                Stands::ForItself => None,
                Stands::Replaces(old) if !there(old) => Some((leaf.guid, None)),
                Stands::Replaces(old) => whole(leaf.guid).then_some((leaf.guid, Some(old))),
                Stands::SpareFor(old) if !there(old) => Some((leaf.guid, None)),
                Stands::SpareFor(old) => whole(old).then_some((leaf.guid, Some(leaf.guid))),
            });
            match ended {
                None => return Ok(()),
                Some((_, Some(leaves))) => {
                    let found = self.data_leaf_named(&leaves.to_string())?;
                    self.take_leaf_out(&found).await?;
                    tracing::info!(
                        class = "disk.left", pool = self.name(), leaf = %found.config.path,
                        "a disk has left its vdev: the one that it stood for, or that replaced it, \
                         holds everything"
                    );
                }
                Some((stays, None)) => self.stands_for_itself(stays).await?,
            }
        }
    }

    async fn stands_for_itself(&self, guid: Guid) -> Result<(), ActError> {
        let mut tree = VdevTree::clone(&self.tree());
        tree.config.spares.retain(|spare| spare.guid != guid);
        let vdevs = tree.config.vdevs.iter_mut().filter(|vdev| vdev.class == VdevClass::Data);
        let own = vdevs.flat_map(|vdev| &mut vdev.leaves).filter(|leaf| leaf.guid == guid);
        own.for_each(|leaf| leaf.stands = Stands::ForItself);
        self.change_tree(tree, &[]).await
    }
}
