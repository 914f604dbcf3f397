//! Why a stream cannot be used.

use aquifer_ondisk::FormatError;

/// A stream is not one, or is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It does not begin as one.
    #[error("this is no stream of `aquifer send`")]
    NotAStream,
    /// It was made by a newer release.
    #[error(
        "the stream is of version {0}, which this release does not know: use a newer release to \
         receive it"
    )]
    Newer(u32),
    /// It ends before its last record.
    #[error("the stream ends after {records} records, before its end: send it again")]
    Truncated {
        /// Whole records that came.
        records: u64,
    },
    /// A record is not as it was sent.
    #[error(
        "the stream was changed on its way: the checksum of record {number} is wrong; send it again"
    )]
    Checksum {
        /// Its number, from 0.
        number: u64,
    },
    /// A record says something that no sender says.
    #[error("the stream is invalid: record {number}: {why}")]
    Invalid {
        /// Its number, from 0.
        number: u64,
        /// Reason why it is invalid.
        why: String,
    },
    /// The head of a bundle is not as it was sent.
    #[error("the head of the streams of several datasets is invalid: {0}; send them again")]
    Bundle(String),
    /// The head of a bundle has no room for them.
    #[error(
        "too many datasets, or snapshots, for one bundle: send smaller trees, or fewer snapshots"
    )]
    TooMany,
    /// Something comes after the last record.
    #[error("the stream goes on after its end: receive one stream at a time")]
    Trailing,
}

impl StreamError {
    pub(crate) fn format(number: u64, error: &FormatError) -> StreamError {
        StreamError::Invalid { number, why: error.to_string() }
    }
}
