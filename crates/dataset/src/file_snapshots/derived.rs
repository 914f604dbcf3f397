//! Snapshots of single files that are derived from one of the dataset.
//!
//! A file can begin as what a snapshot of its dataset shows of it. That must stay while the file
//! does, and the rest of the dataset's snapshot must not: so a snapshot of the file is derived from
//! it, of the same txg, which nobody sees and a clone or a line pins. The sync that begins the
//! clone or line puts it into the list.
//!
//! It joins the list as an older one. In the file's group of the dead tree nothing changes by that:
//! there the dataset's snapshot of the same txg stands in the list already, and what dies from now
//! on goes there. What died before, while no snapshot of the file lay in its life, is in group 0:
//! it is *gathered* from there ([`crate::dead`]), before any sweep, so before the dataset's
//! snapshot lets go of it.
//!
//! What was cut off the file since is known as the file's in the dead tree. Pools that began before
//! that was so derive none.

use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_object::btree;
use aquifer_ondisk::dataset::{Item, ItemKey};
use aquifer_ondisk::dead::DeadKey;
use aquifer_ondisk::file_snapshot::{FILE_PATH_BYTES_MAX, FileSnapshotId, FileSnapshotRecord};
use aquifer_ondisk::inode::{FileKind, Inode};
use aquifer_ondisk::tree_node::{Directory, Objects};
use aquifer_ondisk::{DatasetId, ObjectId, Txg};
use aquifer_pool::{Pool, PoolError};

use super::{FileSnapshot, FileSnapshots};
use crate::dataset::{Dataset, ORPHANS};
use crate::datasets::Datasets;
use crate::error::DatasetError;
use crate::snapshots::Snapshot;
use crate::sync::Gathered;
use crate::tails::LOOKED_UP_MAX;

/// A file as it was, to begin again as that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileVersion {
    /// As of a snapshot of the file.
    Own(FileSnapshotId),
    /// As of a snapshot of its dataset.
    Whole {
        /// The txg of the snapshot.
        snapshot: Txg,
        /// The file.
        object: ObjectId,
        /// Its path, as it was asked for.
        path: String,
    },
}

impl From<FileSnapshotId> for FileVersion {
    fn from(id: FileSnapshotId) -> FileVersion {
        FileVersion::Own(id)
    }
}

/// A derived snapshot that gathers.
#[derive(Debug, Clone)]
pub(crate) struct Gathering {
    pub id: FileSnapshotId,
    pub file: ObjectId,
    pub list: Vec<Txg>,
    pub from: Option<DeadKey>,
}

/// The snapshot of a file that a version is.
#[derive(Debug, Clone)]
pub(crate) struct Resolved {
    pub snapshot: Arc<FileSnapshot>,
    /// Its full name, as it was asked for: a derived one has none that anybody sees.
    pub full: String,
    /// It was named by a snapshot of the dataset.
    pub is_whole: bool,
}

impl Datasets {
    /// The snapshot of the file that a version is. A derived one is in no list before the sync of
    /// the act that needs it; `beside`: how many others the act may derive. The caller holds the
    /// lock of acts.
    pub(crate) async fn resolve(
        &self,
        dataset: &Dataset,
        version: &FileVersion,
        beside: usize,
    ) -> Result<Resolved, DatasetError> {
        let gone = || DatasetError::NotFound(self.full_name(dataset));
        if dataset.is_destroyed() {
            return Err(gone());
        }
        let (snapshot, full, is_whole) = match version {
            FileVersion::Own(id) => {
                let known = dataset.snapshots.lock().files.get(*id);
                let known = known.filter(|of| !of.record.hidden).ok_or_else(gone)?;
                let full = self.name_of_file(dataset, &known);
                (known, full, false)
            }
            FileVersion::Whole { snapshot, object, path } => {
                let known = dataset.listing.lock().list.get(snapshot).cloned();
                let known = known.ok_or_else(gone)?;
                let full = self.file_snapshot_name(dataset, path, &known.record.name);
                (self.derive(dataset, &known, (*object, path), beside).await?, full, true)
            }
        };
        Ok(Resolved { snapshot, full, is_whole })
    }

    async fn derive(
        &self,
        dataset: &Dataset,
        of: &Snapshot,
        (object, path): (ObjectId, &str),
        beside: usize,
    ) -> Result<Arc<FileSnapshot>, DatasetError> {
        let full = self.file_snapshot_name(dataset, path, &of.record.name);
        if of.line != dataset.id {
            return Err(DatasetError::OnAnotherLine(full));
        }
        let bad = |why: &str| DatasetError::BadName { name: full.clone(), why: why.into() };
        if path.len() > FILE_PATH_BYTES_MAX {
            return Err(bad("has a path of more than 640 bytes: copy the file"));
        }
        {
            let snapshots = dataset.snapshots.lock();
            let known = snapshots.files.of_file(object).find(|known| known.txg() == of.txg);
            if let Some(known) = known {
                return Ok(known.clone());
            }
        }
        if !self.pool.knows_tails_by_file() {
            return Err(DatasetError::OlderPool(full));
        }
        let (inode, settled) = self.file_in(of, object).await?;
        let is_it = |inode: &Inode| inode.kind == FileKind::Regular && inode.nlink > 0;
        let inode = inode.filter(is_it).ok_or_else(|| DatasetError::NotFound(full.clone()))?;
        let id = dataset.snapshots.lock().files.free_number(of.txg, beside);
        let id = id.ok_or_else(|| bad("has too many snapshots of files beside it"))?;
        let record = FileSnapshotRecord {
            guid: self.new_guid(),
            created: of.record.created,
            name: of.record.name.clone(),
            path: path.into(),
            inode,
            settled,
            hidden: true,
            gathers: true,
            schedule: None,
        };
        Ok(Arc::new(FileSnapshot { id, record }))
    }

    /// A file as a snapshot of the dataset shows it, and whether that shows no tail of it.
    async fn file_in(
        &self,
        of: &Snapshot,
        object: ObjectId,
    ) -> Result<(Option<Inode>, bool), PoolError> {
        // The snapshot stays meanwhile: acts come one at a time.
        let root = of.record.objects;
        let find =
            async |id: ObjectId| btree::lookup::<Objects, Pool>(&self.pool, root, id.0).await;
        let inode = find(object).await?;
        let list = find(ORPHANS).await?.and_then(|list| list.root);
        let all = btree::collect_range::<Directory, Pool>(&self.pool, list, 0, None, LOOKED_UP_MAX);
        let all = all.await?;
        if all.len() == LOOKED_UP_MAX {
            return Ok((inode, false));
        }
        for orphan in all {
            let orphan = find(orphan.object).await?;
            if orphan.is_some_and(|orphan| orphan.is_tail() && orphan.origin == object) {
                return Ok((inode, false));
            }
        }
        Ok((inode, true))
    }
}

impl Gathered {
    /// The snapshot that a file can begin as in this sync; `None`: it is gone. A derived one may
    /// have gone since it was looked for, with the last file that needed it, and an act that was
    /// cut off may have taken its number. Then it is derived once more: the dataset's is still
    /// there.
    pub(crate) fn begin_as(
        &self,
        dataset: &Dataset,
        snapshot: &Arc<FileSnapshot>,
    ) -> Option<Arc<FileSnapshot>> {
        let (object, txg) = (snapshot.object(), snapshot.txg());
        let is_it = |of: &&Arc<FileSnapshot>| of.object() == object && of.txg() == txg;
        let files = &dataset.snapshots.lock().files;
        let began = || self.began.iter().map(|of| &of.snapshot);
        let known = files.of_file(object).find(is_it).or_else(|| began().find(is_it));
        if known.is_some() || !snapshot.record.hidden {
            return known.cloned();
        }
        let beside = began().filter(|of| of.txg() == txg && files.get(of.id).is_none());
        let beside: BTreeSet<FileSnapshotId> = beside.map(|of| of.id).collect();
        let id = files.free_number(txg, beside.len())?;
        let record = FileSnapshotRecord { gathers: true, ..snapshot.record.clone() };
        Some(Arc::new(FileSnapshot { id, record }))
    }
}

impl FileSnapshots {
    /// A number of its own for a snapshot of a file of this txg.
    fn free_number(&self, txg: Txg, beside: usize) -> Option<FileSnapshotId> {
        let next = self.last_number(txg).map_or(0, |last| usize::from(last.index()) + 1);
        let index = u16::try_from(next.checked_add(beside)?).ok()?;
        Some(FileSnapshotId::new(txg, index))
    }

    /// A derived one comes to the list, if it is not there yet. Returns its item.
    pub fn put_derived(
        &mut self,
        line: DatasetId,
        snapshot: &Arc<FileSnapshot>,
    ) -> Option<(ItemKey, Option<Item>)> {
        if !snapshot.record.gathers || self.get(snapshot.id).is_some() {
            return None;
        }
        let mut snapshot = FileSnapshot::clone(snapshot);
        snapshot.record.gathers &= !left_out(Rule::DerivedGather);
        let item = snapshot.item(line);
        self.put(Arc::new(snapshot));
        Some(item)
    }

    /// A derived one whose file's dead blocks are to be gathered: its file, the txgs of that
    /// file's snapshots, and the key from which to go on.
    pub fn gathering(&self) -> Option<Gathering> {
        let (id, from) = self.gathers.first_key_value()?;
        let file = self.get(*id)?.object();
        Some(Gathering { id: *id, file, list: self.txgs_of(file).to_vec(), from: *from })
    }

    /// So far; `None`: all is gathered. Returns the item that changed.
    pub fn gathered(
        &mut self,
        line: DatasetId,
        (id, upto): (FileSnapshotId, Option<DeadKey>),
    ) -> Option<(ItemKey, Option<Item>)> {
        if upto.is_some() {
            self.gathers.insert(id, upto);
            return None;
        }
        self.gathers.remove(&id);
        let known = self.list.get_mut(&id)?;
        let record = FileSnapshotRecord { gathers: false, ..known.record.clone() };
        *known = Arc::new(FileSnapshot { id, record });
        Some(known.item(line))
    }
}
