//! Files that were removed, and come back with their own ids and handles.
//!
//! Such a file begins a line ([`crate::file_rollback`]) as a snapshot of itself, and is made as a
//! clone is ([`crate::file_clones`]): by the sync of an act, without a name, with its old id and
//! generation. Then it gets its name. All that judges lines judges it.
//!
//! # Two lives of one id
//! What the file was before must be gone from the head first: the file, what was cut off it, and
//! their places on the list of orphans. Then
//!
//! - all that it owned is free, or filed in the dead tree: nothing dies under that id but the new
//!   life's, and what dies of that was born later than anything before;
//! - the removal is on disk. So the log has no record of the old life that a replay would make:
//!   its records are of txgs up to the root's. A record that comes later is of the new life, which
//!   is on disk before it gets its name;
//! - no memory holds the old object as this id's: the commit that frees it drops it.
//!
//! The record of the line says from when on the id is the new life's. A dataset that goes back to
//! before has the old life again, or none.
//!
//! Clients may have seen the old life change after the snapshot. Its last change attribute is not
//! known any more. It followed the clock ([`Inode::touch`]), and so does that of the new life,
//! which is also past that of the directory from which it was removed.

use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::{TreeRoot, btree};
use aquifer_ondisk::ObjectId;
use aquifer_ondisk::inode::{Inode, Time};
use aquifer_ondisk::tree_node::Objects;
use aquifer_pool::{PoolError, SyncContext};

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::file_clones::{FileClones, NewClone};
use crate::file_rollback::begin_again;
use crate::file_snapshots::{FileSnapshot, FileVersion, Resolved};
use crate::sync::Gathered;

/// Txgs that the return of a file waits until what it was before is freed.
const FREEING_TXGS_MAX: usize = 1_000;
/// Txgs that the return of a file waits until what it was before is freed, while no other act can
/// begin.
const FREED_TXGS_MAX: usize = 8;

impl Datasets {
    /// Makes a file again that was removed, as a version of it, with its id and generation. It is
    /// on disk when this returns, and has no name.
    ///
    /// # Errors
    /// There is no such version, the file has a name or is still being freed, or it cannot begin
    /// as this version.
    pub async fn return_file(
        &self,
        dataset: &Arc<Dataset>,
        version: &FileVersion,
    ) -> Result<FileClones<'_>, DatasetError> {
        let object = match version {
            FileVersion::Own(id) => {
                dataset.snapshots.lock().files.get(*id).map(|known| known.object())
            }
            FileVersion::Whole { object, .. } => Some(*object),
        };
        if let Some(object) = object {
            // Other acts need not wait for a huge file.
            self.is_gone(dataset, object, FREEING_TXGS_MAX).await?;
        }
        let (act, ()) = self.turn_when_settled(|| Ok(((), dataset.clone()))).await?;
        let Resolved { snapshot, full, .. } = self.resolve(dataset, version, 0).await?;
        self.check_return_file(dataset, &snapshot, &full).await?;
        self.use_lines().await?;
        let id = (snapshot.object(), snapshot.record.inode.generation);
        let made =
            self.make_clones(act, vec![NewClone::new(dataset, (dataset, &snapshot), id)]).await?;
        made.ok_or(DatasetError::FileNotFreed(full))
    }

    async fn check_return_file(
        &self,
        dataset: &Dataset,
        snapshot: &FileSnapshot,
        full: &str,
    ) -> Result<(), DatasetError> {
        dataset.check_counted(full)?;
        if !snapshot.record.settled && !left_out(Rule::SettledSnapshotsOnly) {
            return Err(DatasetError::Unsettled(full.into()));
        }
        if snapshot.record.inode.damaged {
            return Err(DatasetError::DamagedOrigin(full.into()));
        }
        self.wait_for_returning(dataset).await?;
        let object = dataset.object(&self.pool, snapshot.object()).await?;
        if object.is_some_and(|object| object.inode().nlink > 0) {
            return Err(DatasetError::FileNotRemoved(full.into()));
        }
        self.find_all_tails(dataset).await?;
        match self.is_gone(dataset, snapshot.object(), FREED_TXGS_MAX).await? {
            true => Ok(()),
            false => Err(DatasetError::FileNotFreed(full.into())),
        }
    }

    /// Waits until an object without a name, and what was cut off it, are freed. Returns whether
    /// they are: not if that takes long, if some of it cannot be read, or if it has a name.
    async fn is_gone(
        &self,
        dataset: &Dataset,
        id: ObjectId,
        txgs: usize,
    ) -> Result<bool, DatasetError> {
        if left_out(Rule::IdsAreFreeFirst) {
            return Ok(true);
        }
        let object = dataset.object(&self.pool, id).await?;
        if object.is_some_and(|object| object.inode().nlink > 0)
            || !self.is_freed(dataset, id, txgs).await?
            || !self.find_tails(dataset, usize::MAX).await?
        {
            return Ok(false);
        }
        for tail in dataset.tails_of(id) {
            if !self.is_freed(dataset, tail, txgs).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a sync finds nothing of an object, so that a new life can have its id.
    pub(crate) async fn is_id_free(
        &self,
        sync: &SyncContext,
        dataset: &Dataset,
        id: ObjectId,
        gathered: &Gathered,
    ) -> Result<bool, PoolError> {
        if left_out(Rule::IdsAreFreeFirst) {
            return Ok(true);
        }
        let is_there = dataset.cached(id).is_some() || gathered.inodes.contains_key(&id.0);
        if is_there || dataset.orphans.lock().contains(&id) {
            return Ok(false);
        }
        // A rollback of the dataset may have taken tails that are still known.
        for id in dataset.tails_of(id).into_iter().chain([id]) {
            let found = btree::lookup::<Objects, _>(sync, dataset.synced_root(), id.0).await;
            let is_there = match found {
                Err(error) if error.cannot_be_read() => true,
                found => found?.is_some(),
            };
            if is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The inode of a file that was removed, as it was in a snapshot, without a name.
    pub(crate) fn come_back(&self, dataset: &Dataset, snapshot: &FileSnapshot) -> Inode {
        let (change, ctime) = dataset.table.lock().least;
        let then = Inode { nlink: 0, origin: ObjectId(0), ..snapshot.record.inode.clone() };
        let mut inode = then.at_least(change, ctime);
        begin_again(&mut inode, (snapshot, TreeRoot::default()));
        inode.touch(Time::from_ns(self.pool.world().wall_ns()).max(inode.ctime));
        inode
    }
}
