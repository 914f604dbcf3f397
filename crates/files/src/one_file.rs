//! A file as a snapshot shows it, to be compared or sent: one of the file, or of its dataset.
//!
//! A snapshot of the file has its inode. In one of the dataset that is looked up, by the path then,
//! or by the file that has the path now.

use std::sync::Arc;

use aquifer_dataset::{Dataset, FileVersion, Look, Version};
use aquifer_ondisk::inode::{Inode, Time};
use aquifer_ondisk::{Guid, ObjectId, Txg};
use aquifer_pool::PoolError;

use crate::core::Files;
use crate::diff::mark_of;
use crate::diff::paths::inode_of;
use crate::file_snapshots::FileNameError;
use crate::subject::FileSnapshotNames;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct OneFile {
    pub dataset: Arc<Dataset>,
    /// Under a look at it, the file can be read.
    pub version: Version,
    pub object: ObjectId,
    /// Its path then, as it is shown; in a snapshot of the dataset perhaps the one it has now.
    pub path: String,
    /// The txg of the snapshot.
    pub txg: Txg,
    pub created: Time,
    /// Name of the snapshot, behind the '@'.
    pub name: String,
    /// Of a snapshot of the file.
    own: Option<Inode>,
}

impl OneFile {
    /// The identity of what it shows. A snapshot of a dataset has another one for each file.
    pub fn guid(&self) -> Guid {
        match self.own {
            Some(_) => self.version.guid(),
            None => guid_in(self.version.guid(), self.object),
        }
    }

    /// Whether it is of a snapshot of its dataset.
    pub fn is_whole(&self) -> bool {
        self.own.is_none()
    }

    /// The file, under a look at its version; `None`: it is not there.
    pub async fn inode(&self, files: &Files, look: &Look<'_>) -> Result<Option<Inode>, PoolError> {
        match &self.own {
            Some(inode) => Ok(Some(inode.clone())),
            None => inode_of(&files.pool, look.objects(), self.object).await,
        }
    }
}

/// The identity of one file of what has this one: a snapshot of a dataset, or a file system.
pub(crate) fn guid_in(all: Guid, object: ObjectId) -> Guid {
    Guid(mark_of(&[all.0, object.0]).max(1))
}

impl Files {
    /// The one version of a file that these names mean.
    ///
    /// # Errors
    /// They mean none, or several.
    pub(crate) async fn one_file(&self, of: &FileSnapshotNames) -> Result<OneFile, FileNameError> {
        let (dataset, versions) = self.file_versions(of).await?;
        let text = of.text();
        let [(object, version)] = &versions[..] else {
            return Err(FileNameError::ManySnapshots(text.into()));
        };
        let (object, committed) = (*object, self.pool.committed_txg());
        let gone = || FileNameError::NoSnapshot(text.into());
        match version {
            FileVersion::Own(id) => {
                let of = dataset.file_snapshot(*id, committed).ok_or_else(gone)?;
                Ok(OneFile {
                    object,
                    path: of.record.path.clone(),
                    txg: of.txg(),
                    created: of.record.created,
                    name: of.record.name.clone(),
                    own: Some(of.record.inode.clone()),
                    version: self.datasets.file_version(&dataset, of),
                    dataset,
                })
            }
            FileVersion::Whole { snapshot, path, .. } => {
                let all = dataset.snapshots(committed);
                let of = all.iter().find(|of| of.txg == *snapshot).ok_or_else(gone)?;
                let name = of.record.name.clone();
                let full = format!("{}@{name}", self.datasets.full_name(&dataset));
                Ok(OneFile {
                    object,
                    path: path.clone(),
                    txg: of.txg,
                    created: of.record.created,
                    name,
                    own: None,
                    version: self.datasets.version(&full)?,
                    dataset,
                })
            }
        }
    }

    /// The full names of what shows a file and of what showed it before, by their guids. `text`:
    /// the name that the first had.
    pub async fn files_by_guids(
        &self,
        (to, from): (Guid, Option<Guid>),
        text: &str,
    ) -> Option<(String, Option<String>)> {
        let own = |guid| self.datasets.file_snapshot_by_guid(guid);
        let full = own(to).unwrap_or_else(|| text.into());
        let of = FileSnapshotNames::parse(&self.datasets, &full).ok()?;
        let found = self.one_file(&of).await.ok().filter(|found| found.guid() == to)?;
        let Some(from) = from else { return Some((full, None)) };
        if let Some(own) = own(from) {
            return Some((full, Some(own)));
        }
        let all = found.dataset.snapshots(self.pool.committed_txg());
        let older = all.iter().find(|of| guid_in(of.record.guid, found.object) == from)?;
        let older = of.at(&older.record.name).text().to_string();
        Some((full, Some(older)))
    }
}
