//! Acts on snapshots that a host asks for by names in `.aquifer`: on those of the dataset
//! ([`datasets`]), and on those of a file ([`files`]).
//!
//! The host is one that the property `snapcontrol` names, and the caller its superuser
//! ([`Credentials::snapcontrol`]). To all others the directories are read-only.
//!
//! Invariants:
//! - A call is answered when its act is on disk, and the act is made once ([`Called`]).
//! - Hosts take turns, after administrators, and have limits ([`turns`]).
//! - The act is in the history and an event, with the host that asked for it, and so is the reason
//!   why it was refused.

mod datasets;
mod files;
pub(crate) mod orders;
pub(crate) mod turns;

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

use aquifer_dataset::history::{Asked, HistoryChange, Outcome};
use aquifer_dataset::{Called, Dataset, DatasetError, Gives};
use aquifer_ondisk::dataset::SNAPSHOT_NAME_BYTES_MAX;
use aquifer_ondisk::types::SNAPSHOT_DIRECTORY;
use aquifer_ondisk::unstored::Unstored;
use aquifer_pool::BoxFuture;
use aquifer_sync::{Notify, OnceLock};

use crate::core::{Files, Target};
use crate::error::FsError;
use crate::file_snapshots::FileNameError;
use crate::types::{Credentials, SetAttributes, SetTime};

pub(crate) use files::is_versions;
use turns::{Entered, HostLimits};

/// The mode of a directory of snapshots: it is written to only where a host may be allowed to.
pub(super) fn mode(dataset: &Dataset) -> u32 {
    if dataset.properties().has_snapcontrol { 0o755 } else { 0o555 }
}

/// Whether a caller may change what is in a directory of snapshots.
pub(crate) fn may_control(cred: &Credentials, target: &Target) -> bool {
    let of = Unstored::of(target.object.id);
    let of_file = matches!(of, Some(Unstored::Versions(_) | Unstored::Control(_)));
    (target.object.id == SNAPSHOT_DIRECTORY || of_file) && host_of(cred).is_ok()
}

/// Whether a change of attributes is one that a client makes by the way, and of which nothing
/// comes: the times that `touch` sets behind a CREATE that took a snapshot, or the size 0 by which
/// a shell opens a file. A refusal would look as if the act had failed.
pub(crate) fn is_idle(cred: &Credentials, target: &Target, set: &SetAttributes) -> bool {
    let shown = target.shown.and_then(|shown| Unstored::of(shown.object));
    let is_taken = matches!(shown, Some(Unstored::FileSnapshot(_)));
    let is_control = matches!(Unstored::of(target.object.id), Some(Unstored::Control(_)));
    let size = set.size.filter(|size| !(is_control && *size == 0));
    let left = |time: SetTime| if time == SetTime::Now { SetTime::Keep } else { time };
    let rest = SetAttributes { size, atime: left(set.atime), mtime: left(set.mtime), ..*set };
    let sets_nothing = rest == SetAttributes::default();
    (is_taken || is_control) && sets_nothing && host_of(cred).is_ok()
}

/// Says in the log that a host took snapshots.
fn tell_taken(pool: &str, snapshots: String, host: IpAddr) {
    let who = format!("host {host}");
    tracing::info!(class = "snapshot.taken", pool, snapshots, who, "snapshots taken");
}

/// Says in the log that a host destroyed snapshots.
fn tell_destroyed(pool: &str, snapshots: String, host: IpAddr) {
    let who = format!("host {host}");
    tracing::info!(class = "snapshot.destroyed", pool, snapshots, who, "snapshots destroyed");
}

/// The host that asks.
fn host_of(cred: &Credentials) -> Result<IpAddr, FsError> {
    let host = cred.snapcontrol.ok_or(FsError::ReadOnly)?;
    if cred.uid == 0 { Ok(host) } else { Err(FsError::AccessDenied) }
}

/// An act on snapshots.
trait Act: Debug + Send + Sync + 'static {
    /// Subject of the act: a snapshot, if there is one.
    type Done: Clone + Debug + Send + Sync + 'static;

    /// As the command line has it.
    fn words(&self, dataset: &str) -> String;

    /// Carries it out: it is on disk when this returns.
    fn carry_out<'a>(
        &'a self,
        files: &'a Files,
        called: &'a Called,
    ) -> BoxFuture<'a, Result<Self::Done, FileNameError>>;

    /// Returns the changes that it has made, for the history.
    fn changes(&self, dataset: &str, done: &Self::Done) -> Vec<HistoryChange>;

    /// Whether it takes a snapshot.
    fn takes(&self) -> bool;

    /// Says in the log that it was done.
    fn tell(&self, pool: &str, dataset: &str, host: IpAddr);

    /// Notes that it has ended, well or not.
    fn ended(&self, _: &Files, _: &Called, _: IpAddr, _: Option<&FileNameError>) {}
}

/// An act that a task carries out, and that a call waits for.
#[derive(Debug)]
struct Task<A: Act> {
    files: Arc<Files>,
    called: Called,
    act: A,
    host: IpAddr,
    entered: Entered,
    done: OnceLock<Result<A::Done, FileNameError>>,
    ended: Notify,
}

impl<A: Act> Task<A> {
    async fn run(self: Arc<Self>) {
        let Task { files, called, act, host, entered, .. } = &*self;
        let turn = files.turns.turn(entered).await;
        let (datasets, pool) = (&files.datasets, &files.pool);
        let dataset = datasets.full_name(called.dataset());
        let asked = Asked {
            who: format!("host {host}"),
            host: pool.host_name().into(),
            act: act.words(&dataset),
        };
        let noted = datasets.history().begin_of_host(asked);
        let done = match files.has_room(called, act.takes()) {
            Ok(()) => act.carry_out(files, called).await,
            Err(full) => Err(full),
        };
        drop(turn);
        let (outcome, result, changes) = match &done {
            Ok(done) => {
                act.tell(pool.name(), &dataset, *host);
                (Outcome::Done, String::new(), act.changes(&dataset, done))
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
        act.ended(files, called, *host, done.as_ref().err());
        // Soon, but not at once: no rewind can go back behind each further txg.
        pool.background_waits();
        let _ = self.done.set(done);
        self.ended.notify_waiters();
    }

    async fn end(&self) -> Result<A::Done, FileNameError> {
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
struct Waiting<A: Act>(Arc<Task<A>>);

impl<A: Act> Drop for Waiting<A> {
    fn drop(&mut self) {
        self.0.called.give_up();
    }
}

impl Files {
    /// Sets what hosts may ask for.
    pub fn set_host_limits(&self, limits: HostLimits) {
        self.turns.set(limits);
    }

    /// Whether a host may take one more snapshot, if it asks for that.
    fn has_room(&self, called: &Called, takes: bool) -> Result<(), FileNameError> {
        let (dataset, most) = (called.dataset(), self.turns.limits().snapshots);
        let are = dataset.snapshot_count() + dataset.file_snapshot_count();
        if !takes || most == 0 || are < usize::try_from(most).unwrap_or(usize::MAX) {
            return Ok(());
        }
        let dataset = self.datasets.full_name(dataset);
        Err(FileNameError::Enough { dataset, are, most })
    }

    /// Carries out an act for a host, and waits until it is on disk.
    async fn control<A: Act>(
        &self,
        cred: &Credentials,
        (dataset, gives): (&Arc<Dataset>, Gives),
        (host, act): (IpAddr, A),
    ) -> Result<A::Done, FsError> {
        let task = Arc::new(Task {
            files: self.this.upgrade().ok_or(FsError::Stale)?,
            called: Called::new(dataset.clone(), cred.call, gives),
            act,
            host,
            entered: self.turns.enter(host, self.pool.world().now())?,
            done: OnceLock::new(),
            ended: Notify::new(),
        });
        let waiting = Waiting(task.clone());
        self.pool.world().spawn("act of a client", Box::pin(task.run()));
        waiting.0.end().await.map_err(FsError::from)
    }
}

/// A name as text. What else a name must be is the datasets' business.
fn text(name: &[u8]) -> Result<String, FsError> {
    if name.len() > SNAPSHOT_NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    String::from_utf8(name.to_vec()).map_err(|_| FsError::Invalid)
}

/// A name as a shell would have it.
fn quoted(full: String) -> String {
    if full.contains(' ') { format!("'{full}'") } else { full }
}

/// A snapshot that came or went, for the history.
fn change(what: String, before: &str, after: &str) -> HistoryChange {
    HistoryChange { what, before: before.into(), after: after.into() }
}

impl From<DatasetError> for FsError {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::BadName { .. } => FsError::Invalid,
            DatasetError::NotFound(_) | DatasetError::FilesGone { .. } => FsError::NotFound,
            DatasetError::Exists(_) => FsError::Exists,
            // NFSv3 has no "busy".
            DatasetError::Held { .. }
            | DatasetError::HasClones { .. }
            | DatasetError::NeededByFiles { .. } => FsError::NotPermitted,
            DatasetError::NoRoomForSnapshot { .. } => FsError::NoSpace,
            DatasetError::Pool(error) => error.into(),
            // Nothing was done, and may be later.
            DatasetError::Labels(_) | DatasetError::GaveUp => FsError::TryLater,
            _ => FsError::NotPermitted,
        }
    }
}

impl From<FileNameError> for FsError {
    fn from(error: FileNameError) -> Self {
        match error {
            FileNameError::Dataset(error) => error.into(),
            FileNameError::NotThere(_)
            | FileNameError::NoSnapshot(_)
            | FileNameError::NoDirectory(_) => FsError::NotFound,
            FileNameError::Clone { error, .. } | FileNameError::NotNamed { error, .. } => error,
            FileNameError::Look(_) => FsError::TryLater,
            FileNameError::Pool(error) => error.into(),
            FileNameError::ReadOnly(_) => FsError::ReadOnly,
            FileNameError::Locked { .. } => FsError::NotPermitted,
            FileNameError::Enough { .. } => FsError::Quota,
            _ => FsError::Invalid,
        }
    }
}
