//! The end of a pool that cannot go on: it is suspended.
//!
//! A suspended pool changes nothing and acknowledges nothing; what can be read is read. It never
//! goes on: an import of its disks takes its place, as after `kill -9`. [`Pool::whole`] says which
//! disks that needs.

use std::sync::Arc;

use aquifer_ondisk::Guid;
use aquifer_vdev::Leaf;

use crate::error::PoolError;
use crate::pool::Pool;

/// The leaves that hold everything that was acknowledged: an import without order needs one of each
/// vdev.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// Those of each vdev. None of a vdev that the pool did without.
    pub vdevs: Vec<Vec<Guid>>,
    /// The sequence of the newest uberblock that each of them surely has.
    pub sequence: u64,
}

impl Pool {
    /// The reason why the pool changes nothing any more, if so.
    pub fn suspended(&self) -> Option<String> {
        match self.txgs.failure() {
            Some(PoolError::Suspended(why) | PoolError::TakenOver(why)) => Some(why),
            Some(PoolError::Contradiction(what)) => Some(what.to_string()),
            _ => None,
        }
    }

    /// Whether a suspended pool may be imported again without order: its disks failed it. Not so if
    /// another host has it now, or after a broken rule of the engine.
    pub fn may_come_back(&self) -> bool {
        matches!(self.txgs.failure(), Some(PoolError::Suspended(_)))
    }

    /// Suspends the pool: it acknowledges nothing any more, and its disks stay as they are.
    pub(crate) fn suspend(&self, error: PoolError) {
        let error = match error {
            PoolError::Suspended(_)
            | PoolError::TakenOver(_)
            | PoolError::Contradiction(_)
            | PoolError::Exported => error,
            // To clients every error is a suspension: they wait for the pool to come back.
            other => PoolError::Suspended(other.to_string()),
        };
        if self.is_read_only() {
            return;
        }
        if self.txgs.failure().is_none() {
            tracing::error!(
                class = "pool.suspended", pool = %self.name(), %error, "pool suspended"
            );
        }
        self.end_with(error);
    }

    /// Ends the pool without waiting for its disks. Everything acknowledged is on them: the next
    /// import replays the log.
    pub fn abandon(&self) {
        self.end_with(PoolError::Exported);
    }

    fn end_with(&self, error: PoolError) {
        self.txgs.end(error.clone());
        self.acts.tell_change();
        self.stop_caches();
        self.log.fail(error);
    }

    /// The leaves that hold everything that was acknowledged, as far as the disks may say so: a
    /// leaf that an uberblock names, or may name, is none of them.
    pub fn whole(&self) -> Whole {
        let known = self.committer.known();
        let tree = self.tree();
        let whole = |leaf: &&Arc<Leaf>| !known.named.contains(&leaf.guid);
        let of_vdev = |leaves: &[Arc<Leaf>]| {
            leaves.iter().filter(whole).map(|leaf| leaf.guid).collect::<Vec<_>>()
        };
        Whole {
            vdevs: tree.vdevs.iter().map(|vdev| of_vdev(&vdev.leaves)).collect(),
            sequence: known.sequence,
        }
    }

    /// Its leaves, those included that are not in use, its spares, and its cache disks.
    pub fn leaves(&self) -> Vec<Arc<Leaf>> {
        let tree = self.tree();
        let leaves = tree.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        let caches = tree.caches.iter().map(|cache| cache.leaf());
        leaves.chain(&tree.spares).chain(caches).cloned().collect()
    }
}
