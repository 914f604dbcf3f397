//! Snapshots that a host takes, destroys and renames by names in `.aquifer/snapshot`.
//!
//! The host is one that the property `snapcontrol` names, and the caller its superuser
//! ([`Credentials::snapcontrol`]). To all others the directory is read-only.
//!
//! Invariants:
//! - A call is answered when its act is on disk, and the act is made once ([`Called`]).
//! - The act is in the history and the log, with the host that asked for it, and so is the reason
//!   why it was refused.

use std::net::IpAddr;
use std::sync::Arc;

use aquifer_dataset::history::{Asked, HistoryChange, Outcome};
use aquifer_dataset::{Called, Dataset, DatasetError, Datasets, Snapshot};
use aquifer_ondisk::Guid;
use aquifer_ondisk::dataset::SNAPSHOT_NAME_BYTES_MAX;
use aquifer_ondisk::types::SNAPSHOT_DIRECTORY;
use aquifer_sync::{Notify, OnceLock};

use crate::core::{Files, Target};
use crate::error::FsError;
use crate::made::{Made, Promised};
use crate::types::{Around, Attributes, Credentials, FileHandle};

/// The mode of the directory of snapshots: it is written to only where a host may be allowed to.
pub(super) fn mode(dataset: &Dataset) -> u32 {
    if dataset.properties().has_snapcontrol { 0o755 } else { 0o555 }
}

/// Whether a caller may change names in a directory of snapshots.
pub(crate) fn may_control(cred: &Credentials, target: &Target) -> bool {
    target.object.id == SNAPSHOT_DIRECTORY && host_of(cred).is_ok()
}

/// The host that asks.
fn host_of(cred: &Credentials) -> Result<IpAddr, FsError> {
    let host = cred.snapcontrol.ok_or(FsError::ReadOnly)?;
    if cred.uid == 0 { Ok(host) } else { Err(FsError::AccessDenied) }
}

/// An act on a snapshot, by the names behind the '@'.
#[derive(Debug)]
enum Act {
    Take(String),
    Destroy(String),
    Rename(String, String),
}

impl Act {
    /// As the command line has it.
    fn words(&self, dataset: &str) -> String {
        let full = |name: &str| match name.contains(' ') {
            true => format!("'{dataset}@{name}'"),
            false => format!("{dataset}@{name}"),
        };
        match self {
            Act::Take(name) => format!("snapshot {}", full(name)),
            Act::Destroy(name) => format!("destroy {}", full(name)),
            Act::Rename(name, new) => format!("rename {} {}", full(name), full(new)),
        }
    }

    async fn carry_out(
        &self,
        datasets: &Datasets,
        called: &Called,
    ) -> Result<Arc<Snapshot>, DatasetError> {
        match self {
            Act::Take(name) => datasets.snapshot_for(called, name).await,
            Act::Destroy(name) => datasets.destroy_snapshot_for(called, name).await,
            Act::Rename(name, new) => datasets.rename_snapshot_for(called, name, new).await,
        }
    }

    /// What it has changed of this snapshot, for the history.
    fn changes(&self, dataset: &str, snapshot: &Snapshot) -> Vec<HistoryChange> {
        let is_there = format!("txg {}", snapshot.txg);
        let change = |name: &str, before: &str, after: &str| HistoryChange {
            what: format!("{dataset}@{name}"),
            before: before.into(),
            after: after.into(),
        };
        match self {
            Act::Take(name) => vec![change(name, "", &is_there)],
            Act::Destroy(name) => vec![change(name, &is_there, "")],
            Act::Rename(name, new) if name == new => Vec::new(),
            Act::Rename(name, new) => {
                vec![change(name, &is_there, ""), change(new, "", &is_there)]
            }
        }
    }

    fn tell(&self, pool: &str, dataset: &str, host: IpAddr) {
        let who = format!("host {host}");
        match self {
            Act::Take(name) => tracing::info!(
                class = "snapshot.taken",
                pool,
                snapshots = format!("{dataset}@{name}"),
                who,
                "snapshots taken"
            ),
            Act::Destroy(name) => tracing::info!(
                class = "snapshot.destroyed",
                pool,
                snapshots = format!("{dataset}@{name}"),
                who,
                "snapshots destroyed"
            ),
            Act::Rename(name, new) => tracing::info!(
                class = "snapshot.renamed",
                pool,
                snapshot = format!("{dataset}@{name}"),
                new = format!("{dataset}@{new}"),
                who,
                "snapshot renamed"
            ),
        }
    }
}

/// An act that a task carries out, and that a call waits for.
#[derive(Debug)]
struct Task {
    datasets: Arc<Datasets>,
    called: Called,
    act: Act,
    host: IpAddr,
    done: OnceLock<Result<Arc<Snapshot>, DatasetError>>,
    ended: Notify,
}

impl Task {
    async fn run(self: Arc<Task>) {
        let Task { datasets, called, act, host, .. } = &*self;
        let pool = datasets.pool();
        let dataset = datasets.full_name(called.dataset());
        let asked = Asked {
            who: format!("host {host}"),
            host: pool.host_name().into(),
            act: act.words(&dataset),
        };
        let noted = datasets.history().begin(asked);
        let done = act.carry_out(datasets, called).await;
        let (outcome, result, changes) = match &done {
            Ok(snapshot) => {
                act.tell(pool.name(), &dataset, *host);
                (Outcome::Done, String::new(), act.changes(&dataset, snapshot))
            }
            Err(error) => {
                tracing::warn!(
                    class = "snapshot.refused", pool = pool.name(), who = format!("host {host}"),
                    act = act.words(&dataset), %error, "refused over NFS"
                );
                (Outcome::Failed, error.to_string(), Vec::new())
            }
        };
        datasets.history().finish(noted, outcome, result, changes);
        // Soon, but not at once: no rewind can go back behind each further txg.
        pool.background_waits();
        let _ = self.done.set(done);
        self.ended.notify_waiters();
    }

    async fn end(&self) -> Result<Arc<Snapshot>, DatasetError> {
        loop {
            let ended = self.ended.notified();
            if let Some(done) = self.done.get() {
                return done.clone();
            }
            ended.await;
        }
    }
}

/// Gives an act up when its call is dropped.
struct Waiting(Arc<Task>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.called.give_up();
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
        let act = || Ok(Act::Take(text(name)?));
        let taken = match self.control(cred, list, act).await {
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
        let act = || Ok(Act::Destroy(text(name)?));
        let destroyed = self.control(cred, list, act).await;
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
        let act = || Ok(Act::Rename(text(name)?, text(new)?));
        let renamed = self.control(cred, list, act).await;
        let Made { result, around, promised } = self.answer(list, renamed.map(drop));
        Made { result, around: (around, around), promised }
    }

    /// Carries out an act, and waits until it is on disk.
    async fn control(
        &self,
        cred: &Credentials,
        list: &Target,
        act: impl FnOnce() -> Result<Act, FsError>,
    ) -> Result<Arc<Snapshot>, FsError> {
        let (host, act) = (host_of(cred)?, act()?);
        let guid = matches!(act, Act::Take(_)).then(|| Guid(self.pool.world().random().max(1)));
        let task = Arc::new(Task {
            datasets: self.datasets.clone(),
            called: Called::new(list.dataset.clone(), cred.call, guid),
            act,
            host,
            done: OnceLock::new(),
            ended: Notify::new(),
        });
        let waiting = Waiting(task.clone());
        self.pool.world().spawn("act of a client", Box::pin(task.run()));
        waiting.0.end().await.map_err(FsError::from)
    }

    /// The answer to a call on a directory of snapshots. Others may have changed it too: what it
    /// was just before is not known.
    fn answer<T>(&self, list: &Target, result: Result<T, FsError>) -> Made<T> {
        let now = self.list_of(&list.dataset).ok();
        let after = now.map(|now| now.attributes());
        Made { result, around: Around { before: None, after }, promised: Promised::default() }
    }
}

/// A name as text. What else a name must be is the datasets' business.
fn text(name: &[u8]) -> Result<String, FsError> {
    if name.len() > SNAPSHOT_NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    String::from_utf8(name.to_vec()).map_err(|_| FsError::Invalid)
}

impl From<DatasetError> for FsError {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::BadName { .. } => FsError::Invalid,
            DatasetError::NotFound(_) => FsError::NotFound,
            DatasetError::Exists(_) => FsError::Exists,
            // NFSv3 has no "busy".
            DatasetError::Held { .. } | DatasetError::HasClones { .. } => FsError::NotPermitted,
            DatasetError::Pool(error) => error.into(),
            // Nothing was done, and may be later.
            DatasetError::Labels(_) | DatasetError::GaveUp => FsError::TryLater,
            _ => FsError::NotPermitted,
        }
    }
}
