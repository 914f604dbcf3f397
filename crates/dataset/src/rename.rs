//! Renaming: datasets, to another place in the tree too, and snapshots of both kinds.
//!
//! A dataset keeps its id and its guid, so handles of clients stay valid. Only its record changes:
//! the last component of its name, and which dataset is above.
//!
//! Invariants:
//! - The room that quotas and reservations above it leave is looked at and taken in one step, under
//!   the lock of promises, as for a write.
//! - The dataset is shown by its new name when that is on disk, and nobody gets its old one before.
//! - What the disk still knows counts until the new record is on disk: reservations above the new
//!   place keep their space as if the dataset had not come yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_ondisk::config::FEATURE_MOVED;
use aquifer_ondisk::file_snapshot::FileSnapshotId;
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use aquifer_sync::atomic::Ordering;

use crate::dataset::Dataset;
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::full_name::check_snapshot;
use crate::property::{Property, SyncMode};
use crate::snapshots::Act;
use crate::tree::split_new;

impl Datasets {
    /// Gives a dataset another name, with all below it; on disk when this returns.
    ///
    /// # Errors
    /// Bad names, a name that exists, one below itself or in another pool. Quotas or reservations
    /// above the new place have no room. Then nothing changed.
    pub async fn rename(&self, name: &str, new: &str) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        let dataset = self.by_name(name).ok_or_else(|| DatasetError::NotFound(name.into()))?;
        let (parent, last) = self.new_place(&dataset, new)?;
        let is_moved = dataset.record.lock().parent != parent.id;
        if is_moved {
            self.check_sync(&dataset, &parent)?;
            self.use_feature(FEATURE_MOVED).await?;
        }
        let above = self.above_only(&parent, &dataset);
        let _place = self.reserve_name(&parent, &last).await?;
        {
            let hold = self.hold_act().await?;
            let _one = self.promises.lock();
            self.put(&dataset, parent.id, last, &above)?;
            self.state.lock().queue.rename(hold.txg(), dataset.id);
            self.refresh_properties();
        }
        self.act_on_disk().await?;
        above.iter().for_each(|above| above.kept_bytes.store(0, Ordering::SeqCst));
        self.refresh_properties();
        Ok(())
    }

    /// The dataset above a new name, and the name's last component.
    fn new_place(
        &self,
        dataset: &Dataset,
        new: &str,
    ) -> Result<(Arc<Dataset>, String), DatasetError> {
        let bad = |why: &str| DatasetError::BadName { name: new.into(), why: why.into() };
        if dataset.record.lock().parent.0 == 0 {
            return Err(bad("cannot be that of a pool's own dataset: a pool keeps its name"));
        }
        let (above, last) = split_new(new)?;
        if new.split('/').next() != Some(self.pool.name()) {
            return Err(bad("is in another pool: a dataset stays in its pool"));
        }
        let parent = self.by_name(above).ok_or_else(|| DatasetError::NotFound(above.into()))?;
        if self.line_of(&parent).contains(&dataset.id) {
            return Err(bad("lies below the dataset itself"));
        }
        if self.by_name(new).is_some() {
            return Err(DatasetError::Exists(new.into()));
        }
        Ok((parent, last.into()))
    }

    /// Whether a dataset is logged is changed by `set` alone, which commits what it must.
    fn check_sync(&self, dataset: &Dataset, parent: &Dataset) -> Result<(), DatasetError> {
        if dataset.local.lock().contains_key(&Property::Sync.into()) {
            return Ok(());
        }
        let is_off = |of| SyncMode::of(&self.value(of, Property::Sync).0) == SyncMode::Disabled;
        if is_off(dataset) == is_off(parent) {
            return Ok(());
        }
        let of = self.full_name(dataset);
        Err(DatasetError::BadProperty {
            property: Property::Sync.name().into(),
            why: format!("{of:?} would inherit another one there: set it on {of:?} itself first"),
        })
    }

    /// A dataset and those above it that are not above another one.
    fn above_only(&self, parent: &Arc<Dataset>, not: &Dataset) -> Vec<Arc<Dataset>> {
        let known = self.line_of(not);
        let line = self.above(parent).into_iter().chain([parent.clone()]);
        line.filter(|above| !known.contains(&above.id)).collect()
    }

    /// Puts a dataset below another one, which `above` are new to, if there is room. Under the lock
    /// of promises.
    fn put(
        &self,
        dataset: &Dataset,
        parent: DatasetId,
        name: String,
        above: &[Arc<Dataset>],
    ) -> Result<(), DatasetError> {
        let before = self.room(&BTreeSet::new(), None, None);
        let of = |id: DatasetId| before.claimed(id);
        let bytes = of(dataset.id);
        for above in above {
            let quota = above.properties().quota_bytes.unwrap_or(u64::MAX);
            if of(above.id).saturating_add(bytes) > quota {
                let property = Property::Quota.name().into();
                let why = format!("{bytes} bytes more are too many in {:?}", self.full_name(above));
                return Err(DatasetError::BadProperty { property, why });
            }
        }
        let exchange = |parent, name| {
            let mut record = dataset.record.lock();
            (
                std::mem::replace(&mut record.parent, parent),
                std::mem::replace(&mut record.name, name),
            )
        };
        let was = dataset.shown_place();
        *dataset.was.lock() = Some(was);
        let (old_parent, old_name) = exchange(parent, name);
        for above in above.iter().filter(|above| above.reserved_bytes() > 0) {
            let kept = above.reserved_bytes().saturating_add(bytes);
            above.kept_bytes.store(kept, Ordering::SeqCst);
        }
        let after = self.room(&BTreeSet::new(), None, None);
        let is_short = after.spoken_for() > self.pool.writable_bytes();
        if is_short && after.spoken_for() > before.spoken_for() {
            exchange(old_parent, old_name);
            *dataset.was.lock() = None;
            above.iter().for_each(|above| above.kept_bytes.store(0, Ordering::SeqCst));
            let property = Property::Reservation.name().into();
            let why = "those above its place would need more space than is free".into();
            return Err(DatasetError::BadProperty { property, why });
        }
        Ok(())
    }

    /// Gives snapshots of datasets, given by their txgs, this name, all in one txg; on disk when
    /// this returns.
    ///
    /// # Errors
    /// A bad name, or one that another snapshot of one of the datasets has. Then nothing changed.
    pub async fn rename_snapshots(
        &self,
        of: &[(Arc<Dataset>, Txg)],
        name: &str,
    ) -> Result<(), DatasetError> {
        let _act = self.acts.lock().await;
        let mut acts = Vec::new();
        for (dataset, snapshot) in of {
            check_snapshot(&format!("{}@{name}", self.full_name(dataset)), name)?;
            self.check_new(dataset, name)?;
            self.listed_name(dataset, *snapshot)?;
            let (dataset, snapshot, name) = (dataset.id, *snapshot, name.into());
            acts.push(Act::Rename { dataset, snapshot, name });
        }
        self.act(acts).await
    }

    /// Gives snapshots of files of a dataset this name, all in one txg; on disk when this returns.
    /// Returns their full names.
    ///
    /// # Errors
    /// One does not exist, a bad name, or one that another snapshot of the file, or under its path,
    /// has, or would have by this. Then nothing changed.
    pub async fn rename_file_snapshots(
        &self,
        dataset: &Dataset,
        ids: &BTreeSet<FileSnapshotId>,
        name: &str,
    ) -> Result<Vec<String>, DatasetError> {
        let _act = self.acts.lock().await;
        let committed = self.pool.committed_txg();
        let mut names = Vec::new();
        let (mut objects, mut paths) = (BTreeSet::<ObjectId>::new(), BTreeSet::new());
        for id in ids {
            let known = dataset.file_snapshot(*id, committed).filter(|_| !dataset.is_destroyed());
            let known = known.ok_or_else(|| DatasetError::NotFound(self.full_name(dataset)))?;
            let path = &known.record.path;
            let full = self.file_snapshot_name(dataset, path, name);
            check_snapshot(&full, name)?;
            let is_new = objects.insert(known.object()) && paths.insert(path.clone());
            if !is_new || dataset.snapshots.lock().files.has_name(known.object(), path, name) {
                return Err(DatasetError::Exists(full));
            }
            names.push(full);
        }
        let act = Act::RenameFiles { line: dataset.id, ids: ids.clone(), name: name.into() };
        self.act(vec![act]).await?;
        Ok(names)
    }
}
