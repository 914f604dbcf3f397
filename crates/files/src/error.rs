//! Errors of file operations, in POSIX terms. Protocols map them at their edge.

use aquifer_dataset::Refused;
use aquifer_pool::PoolError;

/// An operation failed; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FsError {
    /// Not the owner (EPERM).
    #[error("operation not permitted")]
    NotPermitted,
    /// No such file or directory (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// Permission denied (EACCES).
    #[error("permission denied")]
    AccessDenied,
    /// The name exists (EEXIST).
    #[error("file exists")]
    Exists,
    /// Not a directory (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// Is a directory (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// An argument makes no sense (EINVAL).
    #[error("invalid argument")]
    Invalid,
    /// Beyond the largest file (EFBIG).
    #[error("file too large")]
    TooLarge,
    /// The pool or the quota is full (ENOSPC).
    #[error("no space left")]
    NoSpace,
    /// The dataset's quota is used up (EDQUOT).
    #[error("quota exceeded")]
    Quota,
    /// The dataset is read-only (EROFS).
    #[error("read-only dataset")]
    ReadOnly,
    /// Too many links (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// The name is too long (ENAMETOOLONG).
    #[error("name too long")]
    NameTooLong,
    /// The directory is not empty (ENOTEMPTY).
    #[error("directory not empty")]
    NotEmpty,
    /// The file is gone: its handle is stale (ESTALE).
    #[error("stale file handle")]
    Stale,
    /// A guarded change found another ctime (NFS3ERR_NOT_SYNC).
    #[error("the file has changed since")]
    NotSync,
    /// Link or rename across datasets (EXDEV).
    #[error("crosses a dataset")]
    CrossDevice,
    /// This kind of object does not support the operation (ENOTSUP).
    #[error("not supported")]
    NotSupported,
    /// Not now; ask again (NFS3ERR_JUKEBOX).
    #[error("try again later")]
    TryLater,
    /// The pool failed.
    #[error("{0}")]
    Pool(PoolError),
}

impl From<PoolError> for FsError {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::NoSpace => FsError::NoSpace,
            PoolError::Destroyed => FsError::Stale,
            other => FsError::Pool(other),
        }
    }
}

impl From<Refused> for FsError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Quota => FsError::Quota,
            Refused::Reserved => FsError::NoSpace,
            Refused::Pool(error) => error.into(),
        }
    }
}
