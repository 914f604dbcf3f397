//! Errors of acts on datasets.

use aquifer_pool::PoolError;

use crate::full_name::{FullName, FullNameError};
use crate::increment::IncrementError;

/// An act on datasets failed, and nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatasetError {
    /// The name is not allowed.
    #[error("{what} name {name:?}: {why}", what = what(name))]
    BadName {
        /// The name.
        name: String,
        /// Why.
        why: String,
    },
    /// There is no such dataset or snapshot.
    #[error("{what} {0:?} does not exist", what = what(.0))]
    NotFound(String),
    /// There is one already.
    #[error("{what} {0:?} exists already", what = what(.0))]
    Exists(String),
    /// It has children.
    #[error("dataset {0:?} has others below it: destroy them first, or all at once with -r")]
    HasChildren(String),
    /// It has snapshots.
    #[error("dataset {0:?} has snapshots: destroy them first, or all at once with -r")]
    HasSnapshots(String),
    /// Holds keep a snapshot.
    #[error("snapshot {snapshot:?} is held by {holds}; nothing was destroyed")]
    Held {
        /// Full name of the first such snapshot.
        snapshot: String,
        /// The tags, with the times at which they end.
        holds: String,
    },
    /// A hold cannot be placed or released.
    #[error("hold {tag:?} on {snapshot:?}: {why}")]
    BadHold {
        /// Its tag.
        tag: String,
        /// Full name of the snapshot.
        snapshot: String,
        /// Why.
        why: String,
    },
    /// There are clones.
    #[error(
        "{name:?} has clones: {}. Destroy them first, or all at once with -R",
        clones.join(", ")
    )]
    HasClones {
        /// The dataset or snapshot.
        name: String,
        /// The clones.
        clones: Vec<String>,
    },
    /// Files of other datasets began as snapshots of its files.
    #[error(
        "{name:?} is the origin of files cloned into {}. Destroy those clones, and the snapshots \
         that show them, first",
        by.join(", ")
    )]
    NeededByFiles {
        /// The dataset.
        name: String,
        /// The datasets with the clones.
        by: Vec<String>,
    },
    /// It is no clone.
    #[error("{0:?} is no clone: only a clone can be promoted")]
    NoClone(String),
    /// Two datasets have snapshots of the same names.
    #[error(
        "{name:?} and {from:?} both have snapshots called {}: rename or destroy one of each pair, \
         and promote again",
        snapshots.join(", ")
    )]
    SameNames {
        /// The clone.
        name: String,
        /// Its origin.
        from: String,
        /// The names, without the datasets'.
        snapshots: Vec<String>,
    },
    /// A rollback would have to begin a new line.
    #[error(
        "{0:?} is older than what the dataset was cloned from before it was promoted: a rollback \
         cannot go there. Make a clone of it instead"
    )]
    OnAnotherLine(String),
    /// Files of which snapshots were to be taken are gone.
    #[error(
        "not taken, since the files were removed or cannot be read: {}. {taken} others were taken",
        missing.join(", ")
    )]
    FilesGone {
        /// The snapshots.
        missing: Vec<String>,
        /// How many others were taken.
        taken: usize,
    },
    /// Dead trees of the pool do not say of which file each block was.
    #[error(
        "{0:?}: this pool was made by an earlier release, which did not note of which file each \
         block was: a file can go back to, and be cloned from, snapshots of the file itself, or be \
         copied from `.aquifer/snapshot`"
    )]
    OlderPool(String),
    /// There is no file any more.
    #[error(
        "{0:?} is a snapshot of a file that was removed: `aquifer rollback` brings it back by its \
         own path, one file at a time"
    )]
    FileRemoved(String),
    /// A file that is to come back has a name.
    #[error("the file of {0:?} was not removed: roll it back")]
    FileNotRemoved(String),
    /// Old content of a removed file is in the way: it is still being freed.
    #[error(
        "the file of {0:?} was removed, and what it had is still being freed: try again in a moment"
    )]
    FileNotFreed(String),
    /// The file lost changes.
    #[error(
        "the file of {0:?} is damaged: `aquifer pool status` shows how. Use -f to roll it back all \
         the same"
    )]
    FileDamaged(String),
    /// It is not known what a snapshot of a file shows of its tails.
    #[error(
        "{0:?} was taken while a part that was cut off the file was still being freed, or by an \
         earlier release: a file cannot be rolled back to it"
    )]
    Unsettled(String),
    /// It is not known what a snapshot of a file shows of its tails.
    #[error(
        "{0:?} was taken while a part that was cut off the file was still being freed, or by an \
         earlier release: a file cannot be cloned from it. Take another snapshot, and clone that"
    )]
    UnsettledOrigin(String),
    /// The file had lost changes.
    #[error(
        "the file of {0:?} was damaged when the snapshot was taken: nothing can begin as that. \
         `aquifer pool status` shows how it is damaged"
    )]
    DamagedOrigin(String),
    /// An earlier release made the clone, without a sum of what it inherited.
    #[error(
        "{0:?}: the clone of a dataset was made by an earlier release, which did not count what it \
         shares with its origin: a file there begins as nothing else. Clone the dataset once more, \
         or copy the file"
    )]
    UncountedClone(String),
    /// Its head was rolled back past later snapshots.
    #[error(
        "{0:?} was rolled back past later snapshots, and stays as it is listed: it neither gives \
         nor takes a promotion. Destroy what is later than the snapshot that it went back to, or \
         send it to a dataset of its own"
    )]
    HasLines(String),
    /// A clone of a dataset that stands by is not promoted.
    #[error(
        "{from:?} stands by as a copy, and increments go into it by the snapshots that {name:?} \
         would take away: set standby=off on {from:?} first, if no more are to come; or send \
         {name:?} to a dataset of its own"
    )]
    Copy {
        /// The clone.
        name: String,
        /// Its origin.
        from: String,
    },
    /// A rollback would drop it.
    #[error(
        "clients have data in {0:?} that waits for their COMMIT, and would be lost: stop them, or \
         use -f"
    )]
    WaitsForCommit(String),
    /// Clients hold locks there.
    #[error(
        "clients hold {locks} locks in {name:?}, and would find other content under them: \
         `aquifer locks` shows whose they are. Stop them, or use -f"
    )]
    Locked {
        /// The dataset, or the snapshot of a file.
        name: String,
        /// How many.
        locks: usize,
    },
    /// Blocks that snapshots keep cannot be read.
    #[error(
        "blocks that snapshots of {0:?} keep cannot be read: bring the missing disks back and \
         import the pool again"
    )]
    DeadUnreadable(String),
    /// The labels of the disks could not name what snapshots need.
    #[error("the labels of the pool's disks cannot be written: {0}")]
    Labels(String),
    /// Another dataset with the same file handles is in service.
    #[error(
        "{name:?} has the file handles of {other:?}, which is in service: destroy that, or set \
         standby=on on it first"
    )]
    SameHandles {
        /// The dataset that is to come into service.
        name: String,
        /// The one that is.
        other: String,
    },
    /// A dataset that was being received was destroyed.
    #[error("what was received of {0:?} was destroyed meanwhile, with a dataset above it")]
    ReceiveEnded(String),
    /// Changes since a snapshot cannot be received.
    #[error("{0}")]
    Increment(#[from] IncrementError),
    /// Too little room for a snapshot: all that it shows would have to stay free once more.
    #[error(
        "{name:?} has refreservation={reserved}: after a snapshot all of that must be free to be \
         written once more, and {lacking_bytes} bytes lack for it in {within}. No snapshot was \
         taken. Destroy older snapshots or free other space, or set a smaller refreservation"
    )]
    NoRoomForSnapshot {
        /// The dataset, or the first of them.
        name: String,
        /// Its `refreservation`, for people.
        reserved: String,
        /// Bytes that are not free.
        lacking_bytes: u64,
        /// The pool, or the quota.
        within: String,
    },
    /// The client that asked for it waits no more.
    #[error("the client that asked for it waits no more: nothing was done")]
    GaveUp,
    /// A property cannot have this value.
    #[error("property {property}: {why}")]
    BadProperty {
        /// The property as given.
        property: String,
        /// Why.
        why: String,
    },
    /// The pool failed.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

impl From<FullNameError> for DatasetError {
    fn from(FullNameError { name, why }: FullNameError) -> Self {
        DatasetError::BadName { name, why: why.into() }
    }
}

impl DatasetError {
    /// Words the error so that the text stays as long as the reason does: without numbers that
    /// change.
    pub fn lasting(&self) -> String {
        match self {
            DatasetError::NoRoomForSnapshot { name, reserved, within, .. } => format!(
                "after a snapshot of {name:?}, less would be free in {within} than its \
                 refreservation={reserved} keeps"
            ),
            error => error.to_string(),
        }
    }
}

fn what(name: &str) -> &'static str {
    if FullName::of(name).snapshot().is_some() { "snapshot" } else { "dataset" }
}
