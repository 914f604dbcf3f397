//! Records become changes of a dataset that nobody sees.

use std::sync::Arc;

use aquifer_blockio::Page;
use aquifer_dataset::sync::orphan_entry;
use aquifer_dataset::{Dataset, DatasetError, ORPHANS, Refused};
use aquifer_object::{DirtyPage, Object};
use aquifer_ondisk::dirent::Dirent;
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::{Corruption, ObjectId};
use aquifer_pool::{Demand, Lane, PoolError, SpaceClass};

use super::{ReceiveError, Receiver};
use crate::change::Change;
use crate::core::{CHANGE_BYTES, Files, TREE_SECTORS};
use crate::ops::write::dirty_page;

/// The files of the pool, and the dataset that is received.
pub(super) type To<'a> = (&'a Files, &'a Arc<Dataset>);

/// Memory that an entry takes until it is on disk.
const ENTRY_BYTES: u64 = 512;
/// Memory that a page of a hole takes until it is on disk.
const HOLE_PAGE_BYTES: u64 = 64;
/// Entries of a directory that is removed, at a time.
pub(super) const BATCH_ENTRIES: usize = 256;

impl Receiver {
    /// Makes an object, or gives it new attributes. `old` is the object before, if it is there:
    /// what lies beyond a smaller size goes.
    pub(super) async fn make_object(
        &self,
        to: To<'_>,
        inode: Inode,
        old: Option<Arc<Object>>,
    ) -> Result<(), ReceiveError> {
        let (_, dataset) = to;
        dataset.keep_id(inode.object);
        let is_there = old.is_some();
        let made = old.unwrap_or_else(|| dataset.object_or_new(&inode));
        let before = made.inode();
        let is_cut = is_there && inode.kind == FileKind::Regular && inode.size < before.size;
        let cut = Change::Cut(inode.object, inode.size.div_ceil(4096));
        let Inode { root, refer_bytes, saved_bytes, .. } = before;
        let inode = Inode { root, refer_bytes, saved_bytes, ..inode };
        let mut changes = vec![Change::Inode(inode)];
        changes.extend(is_cut.then_some(cut));
        let demand = demand(CHANGE_BYTES, if is_there { 4 } else { 2 } * TREE_SECTORS);
        self.change(to, demand, &changes).await
    }

    pub(super) async fn data(
        &self,
        to: To<'_>,
        object: ObjectId,
        page: u64,
        content: &[u8],
    ) -> Result<(), ReceiveError> {
        let (files, dataset) = to;
        let pages = content.chunks(4096).map(|page| dirty_page(Page::with_prefix(page)));
        let pages: Vec<(u64, DirtyPage)> = (page..).zip(pages).collect();
        let (count, bytes) = (pages.len() as u64, pages.len() as u64 * 4096);
        let promise = match files.datasets.promise(dataset, bytes).await {
            Ok(promise) => promise,
            Err(Refused::Quota) => return Err(ReceiveError::Quota(self.name.clone())),
            Err(Refused::Reserved) => return Err(ReceiveError::NoSpace(self.name.clone())),
            Err(Refused::Pool(error)) => return Err(self.pool_error(error)),
        };
        // It may have left memory since its last record.
        let file = self.in_memory(to, object).await?;
        let sectors = count + 2 * TREE_SECTORS + dataset.death_sectors(count);
        let admission = files.pool.admit(demand(bytes + CHANGE_BYTES, sectors)).await;
        let admission = admission.map_err(|of| self.pool_error(of))?;
        let _writer = file.writer.lock().await;
        let hold = files.pool.hold(admission).map_err(|of| self.pool_error(of))?;
        self.check_alive(dataset)?;
        promise.spend(hold.txg());
        files.apply(dataset, &hold, &[Change::Pages(object, pages)], None);
        files.datasets.note_place(dataset, &hold, self.place);
        Ok(())
    }

    pub(super) async fn hole(
        &self,
        to: To<'_>,
        object: ObjectId,
        page: u64,
        pages: u64,
    ) -> Result<(), ReceiveError> {
        let file = self.in_memory(to, object).await?;
        let _writer = file.writer.lock().await;
        let none = dirty_page(Page::zeroed());
        let holes = (page..page.saturating_add(pages)).map(|page| (page, none.clone())).collect();
        let sectors = pages / 8 + 2 * TREE_SECTORS + to.1.death_sectors(pages);
        let demand = demand(pages * HOLE_PAGE_BYTES + CHANGE_BYTES, sectors);
        self.change(to, demand, &[Change::Pages(object, holes)]).await
    }

    pub(super) async fn entries(
        &self,
        to: To<'_>,
        object: ObjectId,
        entries: Vec<Dirent>,
    ) -> Result<(), ReceiveError> {
        let changes = entries.into_iter().map(|entry| Change::Entry(object, entry));
        self.names(to, object, changes.collect()).await
    }

    pub(super) async fn drops(
        &self,
        to: To<'_>,
        object: ObjectId,
        keys: &[u64],
    ) -> Result<(), ReceiveError> {
        for keys in keys.chunks(BATCH_ENTRIES) {
            let changes = keys.iter().map(|key| Change::Drop(object, *key));
            self.names(to, object, changes.collect()).await?;
        }
        Ok(())
    }

    async fn names(
        &self,
        to: To<'_>,
        object: ObjectId,
        changes: Vec<Change>,
    ) -> Result<(), ReceiveError> {
        let directory = self.in_memory(to, object).await?;
        let count = changes.len() as u64;
        let demand = demand(count * ENTRY_BYTES + CHANGE_BYTES, count / 8 + 2 * TREE_SECTORS);
        let done = self.change(to, demand, &changes).await;
        drop(directory);
        done
    }

    /// An object goes on the list of those without a name: the background frees it.
    pub(super) async fn remove(&self, to: To<'_>, old: &Object) -> Result<(), ReceiveError> {
        let (_, dataset) = to;
        let list = self.found(to, ORPHANS).await?;
        let list = list.ok_or_else(|| self.pool_error(Corruption::NoOrphans(dataset.id).into()))?;
        let left = Inode { nlink: 0, entries: 0, ..old.inode() };
        let changes = [Change::Entry(ORPHANS, orphan_entry(&left)), Change::Inode(left)];
        let done = self.change(to, demand(2 * CHANGE_BYTES, 4 * TREE_SECTORS), &changes).await;
        drop(list);
        done
    }

    /// Makes changes of objects that are in memory.
    async fn change(
        &self,
        (files, dataset): To<'_>,
        demand: Demand,
        changes: &[Change],
    ) -> Result<(), ReceiveError> {
        let admission = files.pool.admit(demand).await.map_err(|of| self.pool_error(of))?;
        let hold = files.pool.hold(admission).map_err(|of| self.pool_error(of))?;
        self.check_alive(dataset)?;
        files.apply(dataset, &hold, changes, None);
        files.datasets.note_place(dataset, &hold, self.place);
        Ok(())
    }

    async fn in_memory(&self, to: To<'_>, id: ObjectId) -> Result<Arc<Object>, ReceiveError> {
        self.found(to, id).await?.ok_or_else(|| self.ended())
    }

    /// An object as the dataset has it now, if it does.
    pub(super) async fn found(
        &self,
        (files, dataset): To<'_>,
        id: ObjectId,
    ) -> Result<Option<Arc<Object>>, ReceiveError> {
        dataset.object(&files.pool, id).await.map_err(|error| self.pool_error(error))
    }

    /// Under a hold: fails if the dataset was destroyed, or one above it.
    fn check_alive(&self, dataset: &Dataset) -> Result<(), ReceiveError> {
        if dataset.is_destroyed() { Err(self.ended()) } else { Ok(()) }
    }

    fn ended(&self) -> ReceiveError {
        ReceiveError::Dataset(DatasetError::ReceiveEnded(self.name.clone()))
    }

    pub(super) fn pool_error(&self, error: PoolError) -> ReceiveError {
        match error {
            PoolError::NoSpace => ReceiveError::NoSpace(self.name.clone()),
            error => ReceiveError::Pool(error),
        }
    }
}

fn demand(dirty_bytes: u64, sectors: u64) -> Demand {
    let (class, lane) = (SpaceClass::Write, Lane::Behind);
    Demand { dirty_bytes, sectors, log_bytes: 0, class, lane }
}
