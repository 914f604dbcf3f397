//! The one place that translates errors of `files` and refusals of the exports into each protocol's
//! terms (RFC 1813 section 2.6).

use aquifer_files::FsError;
use aquifer_pool::PoolError;

use crate::export::Refusal;
use crate::proto::mount::MountStat3;
use crate::proto::nlm::Nlm4Stats;
use crate::proto::v3::Nfsstat3;

/// The status of a failed operation.
pub(crate) fn nfsstat3(error: &FsError) -> Nfsstat3 {
    match error {
        FsError::NotPermitted => Nfsstat3::Perm,
        FsError::NotFound => Nfsstat3::NoEnt,
        FsError::AccessDenied => Nfsstat3::Acces,
        FsError::Exists => Nfsstat3::Exist,
        FsError::NotDirectory => Nfsstat3::NotDir,
        FsError::IsDirectory => Nfsstat3::IsDir,
        FsError::Invalid => Nfsstat3::Inval,
        FsError::TooLarge => Nfsstat3::Fbig,
        FsError::NoSpace => Nfsstat3::NoSpc,
        FsError::Quota => Nfsstat3::Dquot,
        FsError::ReadOnly => Nfsstat3::Rofs,
        FsError::TooManyLinks => Nfsstat3::Mlink,
        FsError::NameTooLong => Nfsstat3::NameTooLong,
        FsError::NotEmpty => Nfsstat3::NotEmpty,
        FsError::Stale => Nfsstat3::Stale,
        FsError::NotSync => Nfsstat3::NotSync,
        FsError::CrossDevice => Nfsstat3::Xdev,
        FsError::NotSupported => Nfsstat3::NotSupp,
        FsError::TryLater => Nfsstat3::Jukebox,
        FsError::Pool(error) => pool(error),
    }
}

impl From<Refusal> for Nfsstat3 {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotExported => Nfsstat3::Stale,
            Refusal::NotYet => Nfsstat3::Jukebox,
            Refusal::NotAllowed => Nfsstat3::Acces,
        }
    }
}

/// NLM's status of a failed operation: NLM has fewer of them than NFS.
pub(crate) fn nlm4_stats(error: &FsError) -> Nlm4Stats {
    match nfsstat3(error) {
        Nfsstat3::Stale => Nlm4Stats::StaleFh,
        Nfsstat3::Rofs => Nlm4Stats::Rofs,
        // A client asks again after a "grace period".
        Nfsstat3::Jukebox => Nlm4Stats::DeniedGracePeriod,
        _ => Nlm4Stats::Failed,
    }
}

impl From<Refusal> for Nlm4Stats {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotExported => Nlm4Stats::StaleFh,
            Refusal::NotYet => Nlm4Stats::DeniedGracePeriod,
            Refusal::NotAllowed => Nlm4Stats::Failed,
        }
    }
}

/// MOUNT's status for an NFS status: MOUNT has fewer of them.
pub(crate) fn mountstat3(status: Nfsstat3) -> MountStat3 {
    match status {
        Nfsstat3::Perm => MountStat3::Perm,
        Nfsstat3::NoEnt | Nfsstat3::Stale => MountStat3::NoEnt,
        Nfsstat3::Io => MountStat3::Io,
        Nfsstat3::Acces => MountStat3::Acces,
        Nfsstat3::NotDir => MountStat3::NotDir,
        Nfsstat3::Inval => MountStat3::Inval,
        Nfsstat3::NameTooLong => MountStat3::NameTooLong,
        Nfsstat3::NotSupp => MountStat3::NotSupp,
        _ => MountStat3::ServerFault,
    }
}

/// A pool that stopped itself is not an I/O error: guests would give up their disks, or believe
/// that UNSTABLE writes are lost. JUKEBOX makes clients ask again until the pool is back, or the
/// service has restarted with another verifier.
fn pool(error: &PoolError) -> Nfsstat3 {
    match error {
        PoolError::NoSpace => Nfsstat3::NoSpc,
        PoolError::ReadOnly => Nfsstat3::Rofs,
        PoolError::Destroyed => Nfsstat3::Stale,
        PoolError::Suspended(_)
        | PoolError::TakenOver(_)
        | PoolError::Silent
        | PoolError::Exported
        | PoolError::Contradiction(_) => Nfsstat3::Jukebox,
        PoolError::Read(_)
        | PoolError::GivenUp(_)
        | PoolError::Format(_)
        | PoolError::Corrupt(_) => {
            tracing::warn!(%error, "answered NFS3ERR_IO");
            Nfsstat3::Io
        }
    }
}
