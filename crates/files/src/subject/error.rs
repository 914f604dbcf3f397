//! Why a text names nothing, or not what is wanted.

use aquifer_dataset::{DatasetError, FullName};

/// A text names nothing, or not what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// There is no such dataset, or no snapshot can have the name.
    #[error("{0}")]
    Dataset(DatasetError),
    /// It names something else.
    #[error("{text:?} is {is}, and no {wanted}")]
    Another {
        /// As it was given.
        text: String,
        /// The kind of thing that it is.
        is: &'static str,
        /// The kind that is wanted, without its article, and how it is written.
        wanted: &'static str,
    },
    /// It names no snapshot of a file.
    #[error(
        "{0:?} names no snapshot of a file: write DATASET:PATH@NAME, such as \
         tank/vms:web01/disk0.vhd@before"
    )]
    NoFileSnapshot(String),
    /// It names no file of a dataset.
    #[error(
        "{0:?} names no file of a dataset of this pool: a clone of a file is one, so write \
         DATASET:PATH, such as tank/vms:web07/disk.vhd"
    )]
    NoPlace(String),
    /// A list or range of snapshots makes no sense.
    #[error("snapshots {text:?}: {why}")]
    Choice {
        /// As it was given.
        text: String,
        /// Why.
        why: String,
    },
    /// A range ends before it begins.
    #[error("range {0}: its first snapshot is newer than its last: the older one comes first")]
    Backwards(String),
}

impl SubjectError {
    /// There is no dataset of the name that a text begins with.
    pub(super) fn no_dataset(text: &str) -> SubjectError {
        SubjectError::Dataset(DatasetError::NotFound(FullName::of(text).dataset().into()))
    }
}
