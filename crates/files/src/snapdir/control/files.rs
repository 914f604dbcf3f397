//! Snapshots of a file, by names in `.aquifer/FILE`: `touch` and `rm`.

use std::net::IpAddr;
use std::sync::Arc;

use aquifer_dataset::history::HistoryChange;
use aquifer_dataset::{Called, FileSnapshot, Gives, NewFileSnapshot};
use aquifer_ondisk::unstored::Unstored;
use aquifer_ondisk::{Guid, ObjectId};
use aquifer_pool::BoxFuture;

use super::orders::CONTROL;
use super::{Act, change, host_of, quoted, tell_destroyed, tell_taken, text};
use crate::core::{Files, Target};
use crate::error::FsError;
use crate::file_snapshots::FileNameError;
use crate::made::{Made, Promised};
use crate::types::{Around, Attributes, CreateHow, Credentials, FileHandle};

/// An act on a snapshot of a file.
#[derive(Debug)]
struct OnFile {
    file: ObjectId,
    generation: u64,
    /// As it is shown.
    path: String,
    /// Behind the '@'.
    name: String,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Take,
    Destroy,
}

impl OnFile {
    fn full(&self, dataset: &str) -> String {
        format!("{dataset}:{}@{}", self.path, self.name)
    }
}

impl Act for OnFile {
    type Done = Arc<FileSnapshot>;

    fn words(&self, dataset: &str) -> String {
        let verb = if self.what == What::Take { "snapshot" } else { "destroy" };
        format!("{verb} {}", quoted(self.full(dataset)))
    }

    fn carry_out<'a>(
        &'a self,
        files: &'a Files,
        called: &'a Called,
    ) -> BoxFuture<'a, Result<Arc<FileSnapshot>, FileNameError>> {
        let (datasets, dataset) = (&files.datasets, called.dataset());
        Box::pin(async move {
            if self.what == What::Destroy {
                let gone = datasets.destroy_file_snapshot_for(called, self.file, &self.name).await;
                return Ok(gone?);
            }
            let (name, path) = (self.name.clone(), self.path.clone());
            let (object, generation) = (self.file, self.generation);
            let new = NewFileSnapshot { dataset: dataset.clone(), object, generation, path, name };
            Ok(datasets.snapshot_file_for(called, new).await?)
        })
    }

    fn changes(&self, dataset: &str, snapshot: &Arc<FileSnapshot>) -> Vec<HistoryChange> {
        let is_there = format!("txg {}", snapshot.txg());
        let (before, after) = match self.what {
            What::Take => ("", is_there.as_str()),
            What::Destroy => (is_there.as_str(), ""),
        };
        vec![change(self.full(dataset), before, after)]
    }

    fn takes(&self) -> bool {
        self.what == What::Take
    }

    fn tell(&self, pool: &str, dataset: &str, host: IpAddr) {
        match self.what {
            What::Take => tell_taken(pool, self.full(dataset), host),
            What::Destroy => tell_destroyed(pool, self.full(dataset), host),
        }
    }
}

/// Whether a handle is that of a directory of versions.
pub(crate) fn is_versions(directory: FileHandle) -> bool {
    matches!(Unstored::of(directory.object), Some(Unstored::Versions(_)))
}

impl Files {
    /// CREATE in a directory of versions: takes a snapshot of the file.
    pub(crate) async fn take_version(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        name: &[u8],
        how: CreateHow,
    ) -> Made<Attributes> {
        let versions = match self.directory(dir).await {
            Ok(versions) => versions,
            Err(error) => return Made::failed(error, Around::default()),
        };
        let taken = self.take_of(cred, &versions, name, how).await;
        self.answer_of(&versions, taken).await
    }

    async fn take_of(
        &self,
        cred: &Credentials,
        versions: &Target,
        name: &[u8],
        how: CreateHow,
    ) -> Result<Attributes, FsError> {
        let (host, name) = (host_of(cred)?, text(name)?);
        if name.as_bytes() == CONTROL {
            // To be written to, by a client that did not look it up before.
            return match how {
                CreateHow::Unchecked(_) => {
                    Ok(self.control_of(versions, file_of(versions)?.0)?.attributes())
                }
                _ => Err(FsError::Exists),
            };
        }
        if let CreateHow::Exclusive(_) = how {
            // Its second half, a SETATTR, could not be carried out. Clients know how to do without.
            return Err(FsError::NotSupported);
        }
        let (file, generation) = file_of(versions)?;
        let dataset = &versions.dataset;
        // It would not be found by its name, or another one not.
        if self.version(versions, file, name.as_bytes()).await?.is_some() {
            return Err(FsError::Exists);
        }
        let path = self.path_of_file(dataset, file).await.ok_or(FsError::NotFound)?;
        let act = OnFile { file, generation, path, name, what: What::Take };
        let gives = Gives::FileSnapshot(Guid(self.pool.world().random().max(1)));
        let taken = self.control(cred, (dataset, gives), (host, act)).await?;
        let version = self.file_version(dataset, taken.id, taken.record.guid);
        // It may have gone since.
        version.map(|version| version.attributes()).map_err(|_| FsError::NotFound)
    }

    /// REMOVE in a directory of versions: destroys a snapshot of the file.
    pub(crate) async fn destroy_version(
        &self,
        cred: &Credentials,
        dir: FileHandle,
        name: &[u8],
    ) -> Made<()> {
        let versions = match self.directory(dir).await {
            Ok(versions) => versions,
            Err(error) => return Made::failed(error, Around::default()),
        };
        let destroyed = self.destroy_of(cred, &versions, name).await;
        self.answer_of(&versions, destroyed).await
    }

    async fn destroy_of(
        &self,
        cred: &Credentials,
        versions: &Target,
        name: &[u8],
    ) -> Result<(), FsError> {
        let (host, name) = (host_of(cred)?, text(name)?);
        let (file, generation) = file_of(versions)?;
        let dataset = &versions.dataset;
        if name.as_bytes() == CONTROL {
            return Err(FsError::ReadOnly);
        }
        let own = self.own(dataset, file, generation);
        let Some(known) = own.iter().find(|of| of.record.name == name) else {
            return Err(match self.version(versions, file, name.as_bytes()).await? {
                // `rmdir` in `.aquifer/snapshot` destroys it, with all other files in it.
                Some(_) => FsError::ReadOnly,
                None => FsError::NotFound,
            });
        };
        let path = known.record.path.clone();
        let act = OnFile { file, generation, path, name, what: What::Destroy };
        self.control(cred, (dataset, Gives::Nothing), (host, act)).await.map(drop)
    }

    /// The answer to a call on a directory of versions. What it was just before is not known.
    async fn answer_of<T>(&self, versions: &Target, result: Result<T, FsError>) -> Made<T> {
        let inode = versions.inode();
        let now = match file_of(versions) {
            Ok((file, _)) => self.versions(&versions.dataset, file, inode.generation).await.ok(),
            Err(_) => None,
        };
        let after = now.map(|now| now.attributes());
        Made { result, around: Around { before: None, after }, promised: Promised::default() }
    }
}

/// The file of a directory of versions.
fn file_of(versions: &Target) -> Result<(ObjectId, u64), FsError> {
    match Unstored::of(versions.object.id) {
        Some(Unstored::Versions(file)) => Ok((file, versions.inode().generation)),
        _ => Err(FsError::Stale),
    }
}
