//! Why a stream cannot be received.

use aquifer_dataset::{DatasetError, IncrementError};
use aquifer_pool::PoolError;
use aquifer_stream::StreamError;

/// A stream cannot be received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// It is not one, or is damaged.
    #[error("{0}")]
    Stream(#[from] StreamError),
    /// Its records contradict each other.
    #[error("the stream is invalid: {0}")]
    Contradicts(String),
    /// A name, or an act on the pool's datasets.
    #[error("{0}")]
    Dataset(DatasetError),
    /// New handles are asked for, but changes go into a copy that has the sender's handles.
    #[error(
        "the stream has what changed since {0:?}, for a copy with the file handles of that: leave \
         out --new-handles"
    )]
    NewHandles(String),
    /// Only the first of several can be compared with the dataset.
    #[error("one stream comes behind the other, and -n checks one at a time: send -i, not -I")]
    DryRow,
    /// The part before is not in it.
    #[error("a stream that goes on cannot be checked by itself: receive it without -n")]
    DryRest,
    /// A quota.
    #[error(
        "{0:?} would be larger than its quota, or one above it, allows: raise the quota, or \
         receive elsewhere"
    )]
    Quota(String),
    /// The pool is full, or the rest of it is reserved.
    #[error("the pool has no room for {0:?}: free some, or add disks")]
    NoSpace(String),
    /// Of a bundle, not all streams came.
    #[error("the streams end before that of {0:?}: send them again")]
    Cut(String),
    /// The pool was exported.
    #[error("the pool went out of service: import it, and receive the whole stream again")]
    Left,
    /// The pool failed.
    #[error("{0}")]
    Pool(PoolError),
}

impl From<DatasetError> for ReceiveError {
    fn from(error: DatasetError) -> Self {
        match error {
            DatasetError::Pool(error) => ReceiveError::Pool(error),
            other => ReceiveError::Dataset(other),
        }
    }
}

impl ReceiveError {
    /// Whether the same stream may do better when it goes on.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            ReceiveError::Stream(error) => {
                matches!(error, StreamError::Checksum { .. } | StreamError::Truncated { .. })
            }
            ReceiveError::Dataset(error) => {
                matches!(error, DatasetError::Increment(IncrementError::NotFreed { .. }))
            }
            ReceiveError::Quota(_)
            | ReceiveError::NoSpace(_)
            | ReceiveError::Left
            | ReceiveError::Pool(_) => true,
            _ => false,
        }
    }
}
