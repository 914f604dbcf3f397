//! Snapshots of a dataset, by names in `.aquifer/snapshot`: `mkdir`, `rmdir`, `mv`.

use std::net::IpAddr;
use std::sync::Arc;

use aquifer_dataset::history::HistoryChange;
use aquifer_dataset::{Called, Gives, Snapshot};
use aquifer_ondisk::Guid;
use aquifer_ondisk::types::SNAPSHOT_DIRECTORY;
use aquifer_pool::BoxFuture;

use super::{Act, change, host_of, quoted, tell_destroyed, tell_taken, text};
use crate::core::{Files, Target};
use crate::error::FsError;
use crate::file_snapshots::FileNameError;
use crate::made::{Made, Promised};
use crate::types::{Around, Attributes, Credentials, FileHandle};

/// An act on a snapshot, by the names behind the '@'.
#[derive(Debug)]
enum OnDataset {
    Take(String),
    Destroy(String),
    Rename(String, String),
}

impl Act for OnDataset {
    type Done = Arc<Snapshot>;

    fn words(&self, dataset: &str) -> String {
        let full = |name: &str| quoted(format!("{dataset}@{name}"));
        match self {
            OnDataset::Take(name) => format!("snapshot {}", full(name)),
            OnDataset::Destroy(name) => format!("destroy {}", full(name)),
            OnDataset::Rename(name, new) => format!("rename {} {}", full(name), full(new)),
        }
    }

    fn carry_out<'a>(
        &'a self,
        files: &'a Files,
        called: &'a Called,
    ) -> BoxFuture<'a, Result<Arc<Snapshot>, FileNameError>> {
        let datasets = &files.datasets;
        Box::pin(async move {
            Ok(match self {
                OnDataset::Take(name) => datasets.snapshot_for(called, name).await?,
                OnDataset::Destroy(name) => datasets.destroy_snapshot_for(called, name).await?,
                OnDataset::Rename(name, new) => {
                    datasets.rename_snapshot_for(called, name, new).await?
                }
            })
        })
    }

    fn changes(&self, dataset: &str, snapshot: &Arc<Snapshot>) -> Vec<HistoryChange> {
        let is_there = format!("txg {}", snapshot.txg);
        let change = |name: &str, before: &str, after: &str| {
            change(format!("{dataset}@{name}"), before, after)
        };
        match self {
            OnDataset::Take(name) => vec![change(name, "", &is_there)],
            OnDataset::Destroy(name) => vec![change(name, &is_there, "")],
            OnDataset::Rename(name, new) if name == new => Vec::new(),
            OnDataset::Rename(name, new) => {
                vec![change(name, &is_there, ""), change(new, "", &is_there)]
            }
        }
    }

    fn takes(&self) -> bool {
        matches!(self, OnDataset::Take(_))
    }

    fn tell(&self, pool: &str, dataset: &str, host: IpAddr) {
        let full = |name: &str| format!("{dataset}@{name}");
        match self {
            OnDataset::Take(name) => tell_taken(pool, full(name), host),
            OnDataset::Destroy(name) => tell_destroyed(pool, full(name), host),
            OnDataset::Rename(name, new) => tracing::info!(
                class = "snapshot.renamed",
                pool,
                snapshot = full(name),
                new = full(new),
                who = format!("host {host}"),
                "snapshot renamed"
            ),
        }
    }
}

impl Files {
    /// The directory of snapshots that this handle names.
    pub(crate) fn list_of_snapshots(&self, handle: FileHandle) -> Option<Target> {
        if handle.object != SNAPSHOT_DIRECTORY || handle.generation != 0 {
            return None;
        }
        let dataset = self.datasets.by_guid(handle.fs_guid)?;
        self.list_of(&dataset).ok()
    }

    /// MKDIR in a directory of snapshots.
    pub(crate) async fn take_snapshot(
        &self,
        cred: &Credentials,
        list: &Target,
        name: &[u8],
    ) -> Made<Attributes> {
        let act = || Ok(OnDataset::Take(text(name)?));
        let taken = match self.act_on_dataset(cred, list, act).await {
            Ok(snapshot) => self.snapshot_root(&list.dataset, &snapshot).await,
            Err(error) => Err(error),
        };
        self.answer(list, taken)
    }

    /// RMDIR in a directory of snapshots.
    pub(crate) async fn destroy_snapshot(
        &self,
        cred: &Credentials,
        list: &Target,
        name: &[u8],
    ) -> Made<()> {
        let act = || Ok(OnDataset::Destroy(text(name)?));
        let destroyed = self.act_on_dataset(cred, list, act).await;
        self.answer(list, destroyed.map(drop))
    }

    /// RENAME in a directory of snapshots.
    pub(crate) async fn rename_snapshot(
        &self,
        cred: &Credentials,
        list: &Target,
        name: &[u8],
        new: &[u8],
    ) -> Made<(), (Around, Around)> {
        let act = || Ok(OnDataset::Rename(text(name)?, text(new)?));
        let renamed = self.act_on_dataset(cred, list, act).await;
        let Made { result, around, promised } = self.answer(list, renamed.map(drop));
        Made { result, around: (around, around), promised }
    }

    async fn act_on_dataset(
        &self,
        cred: &Credentials,
        list: &Target,
        act: impl FnOnce() -> Result<OnDataset, FsError>,
    ) -> Result<Arc<Snapshot>, FsError> {
        let (host, act) = (host_of(cred)?, act()?);
        let gives = match act {
            OnDataset::Take(_) => Gives::Snapshot(Guid(self.pool.world().random().max(1))),
            _ => Gives::Nothing,
        };
        self.control(cred, (&list.dataset, gives), (host, act)).await
    }

    /// The answer to a call on a directory of snapshots. Others may have changed it too: what it
    /// was just before is not known.
    fn answer<T>(&self, list: &Target, result: Result<T, FsError>) -> Made<T> {
        let now = self.list_of(&list.dataset).ok();
        let after = now.map(|now| now.attributes());
        Made { result, around: Around { before: None, after }, promised: Promised::default() }
    }
}
