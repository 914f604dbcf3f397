//! A drill: a disk of a mirror is taken away as if it had failed, and given back.
//!
//! From its failure on, everything goes as with a disk that fails by itself. An uberblock names it
//! before anything more is acknowledged, and it comes back after a resilver. Nothing says on disk
//! that it was a drill. So a daemon that dies in the midst imports the pool with a disk that is
//! resilvered at once.
//!
//! Invariant: a disk is away at most as long as its [`Drilled`] lives.

use std::sync::Weak;

use aquifer_ondisk::Guid;
use aquifer_vdev::LeafState;

use crate::error::ActError;
use crate::pool::Pool;

/// A disk that a drill has taken away. Dropping this gives it back.
#[derive(Debug)]
pub struct Drilled {
    pool: Weak<Pool>,
    guid: Guid,
}

impl Drop for Drilled {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let tree = pool.tree();
        let Some(leaf) = tree.leaf(self.guid) else { return };
        leaf.give_back();
        pool.acts.tell_change();
    }
}

impl Pool {
    /// Takes a disk (a path or guid) away as if it had failed, until the result is dropped.
    ///
    /// # Errors
    /// It holds no data, is none of the pool's, or the last that holds everything; another disk of
    /// the pool is not in use. Nothing was done then. The pool's own errors.
    pub async fn take_away(&self, disk: &str) -> Result<Drilled, ActError> {
        let _act = self.acts.turn.lock().await;
        let found = self.data_leaf_named(disk)?;
        let tree = self.tree();
        let mut leaves = tree.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        if let Some(other) = leaves.find(|leaf| leaf.shown_state() != LeafState::Online) {
            let reason = format!("{} is not in use: a drill needs all disks", other.path);
            return Err(ActError::BadConfig(reason));
        }
        let (vdev, _) = self.data_vdev(&found)?;
        let leaf = vdev.leaves.get(found.leaf);
        let Some(leaf) = leaf.filter(|leaf| leaf.take_away()) else {
            return Err(ActError::BadConfig(format!(
                "{} is the last disk that holds all data of its vdev",
                found.config.path
            )));
        };
        let drilled = Drilled { pool: self.this.clone(), guid: leaf.guid };
        self.name_outdated().await?;
        Ok(drilled)
    }
}
