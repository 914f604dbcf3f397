//! Why a snapshot cannot be sent.

use aquifer_dataset::{DatasetError, LookError};
use aquifer_pool::PoolError;

use crate::diff::DiffError;
use crate::file_snapshots::FileNameError;
use crate::subject::SubjectError;

/// A snapshot cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// A name of a dataset or snapshot.
    #[error("{0}")]
    Dataset(DatasetError),
    /// A name of a file, or of a snapshot of one.
    #[error("{0}")]
    Name(#[from] FileNameError),
    /// It is of a file.
    #[error(
        "{0:?} is a snapshot of a file, which has no bookmarks: send -i @NAME, of an older snapshot"
    )]
    NoBookmarks(String),
    /// They are of two files.
    #[error("{from:?} is no snapshot of the file of {snapshot:?}: send -i @NAME {snapshot}")]
    NotOfFile {
        /// The older one.
        from: String,
        /// The snapshot that is sent.
        snapshot: String,
    },
    /// It lost changes, and its content is not certain.
    #[error(
        "object {object} in {snapshot:?} is damaged: `aquifer pool status -v` names it. Mend or \
         remove it, and send a later snapshot"
    )]
    Damaged {
        /// The object.
        object: u64,
        /// The snapshot.
        snapshot: String,
    },
    /// It is not older.
    #[error(
        "{from:?} is not older than {snapshot:?}: send the newer one with -i and the older one"
    )]
    NotOlder {
        /// The one that should be.
        from: String,
        /// The snapshot that is sent.
        snapshot: String,
    },
    /// They are of two datasets.
    #[error("{from:?} is no snapshot of the dataset of {snapshot:?}: send -i @NAME {snapshot}")]
    AnotherDataset {
        /// The older one.
        from: String,
        /// The snapshot that is sent.
        snapshot: String,
    },
    /// An id means two files.
    #[error(
        "object {object} in {snapshot:?} is another file than it was: send the whole snapshot, \
         without -i"
    )]
    AnotherFile {
        /// The object.
        object: u64,
        /// The snapshot.
        snapshot: String,
    },
    /// The cursor is none.
    #[error("{0:?} is no place to go on from: begin again without one")]
    BadCursor(String),
    /// The cursor is about others.
    #[error("{0:?} was destroyed and taken again while it was sent: begin again")]
    Others(String),
    /// It is not known under which of its names a file was sent.
    #[error(
        "the file had another path in {0:?}, and several: send -i with the full name of the \
         snapshot, and the path that it had then"
    )]
    SeveralNames(String),
    /// The name that a file had cannot be found.
    #[error("{0}")]
    Diff(#[from] DiffError),
    /// A look could not go on.
    #[error("{0}: what was sent is of no use; send another snapshot")]
    Look(#[from] LookError),
    /// The pool failed.
    #[error("{0}")]
    Pool(#[from] PoolError),
}

impl From<SubjectError> for SendError {
    fn from(error: SubjectError) -> Self {
        match error {
            SubjectError::Dataset(error) => error.into(),
            other => SendError::Name(other.into()),
        }
    }
}

impl From<DatasetError> for SendError {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::Pool(error) => SendError::Pool(error),
            other => SendError::Dataset(other),
        }
    }
}
