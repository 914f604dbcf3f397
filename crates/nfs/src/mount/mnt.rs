//! MNT: from a path to a directory's handle (RFC 1813 section 5.2.1).
//!
//! Any directory below an export can be mounted: XCP-ng makes `<export>/<uuid>` and mounts that.
//!
//! The root of an export is mounted without a look at the disks. What is below it needs them,
//! unless it is in memory. If they are silent, there is no answer until they speak. Nor is there
//! one while the pool that a path names is still awaited: MOUNT has no word for "later".

use std::sync::Arc;

use aquifer_files::{Credentials, FileHandle, FileKind, dataset_below};
use aquifer_rpc::auth::{AUTH_NONE, AUTH_SYS};

use crate::attributes::nfs_fh3;
use crate::export::{components, path_of};
use crate::proto::mount::{MountRes3, MountStat3};
use crate::refusals::Why;
use crate::status::{mountstat3, nfsstat3};
use crate::v3::to_look_up;
use crate::volume::Root;

use super::MountRequest;

/// The results; `None` while the disks do not answer, or the pool is not there yet.
pub(super) async fn mnt(request: &MountRequest<'_>, path: &[u8]) -> Option<MountRes3> {
    let found = match enter(request, path) {
        Err(MountStat3::NoEnt)
            if request.exports.may_cover(&components(path).collect::<Vec<_>>()) =>
        {
            return None;
        }
        Ok((root, beyond)) => {
            let volume = Arc::clone(&root.volume);
            volume.unless_silent(directory(root, beyond)).await?
        }
        Err(status) => Err(status),
    };
    Some(match found {
        Ok(directory) => {
            let host = request.origin.address();
            let path = path_of(components(path));
            request.exports.tell(host, &String::from_utf8_lossy(&path), Why::Mounted);
            request.mounts.add(host, path);
            MountRes3::Ok { fhandle: nfs_fh3(directory), auth_flavors: vec![AUTH_SYS, AUTH_NONE] }
        }
        Err(status) => {
            let path = String::from_utf8_lossy(path);
            // The export table logs a client that may not mount, at a limited rate.
            if status != MountStat3::Acces {
                tracing::debug!(client = %request.origin.peer, ?path, ?status, "mount refused");
            }
            MountRes3::Fail(status)
        }
    })
}

/// The directory at these names below a root.
async fn directory(root: Root, beyond: Vec<&[u8]>) -> Result<FileHandle, MountStat3> {
    let Root { volume: files, handle: mut at } = root;
    // As root, as every server resolves mounts: NFS itself checks the client's rights there.
    let cred = Credentials::root();
    for name in beyond {
        let name = to_look_up(name).map_err(mountstat3)?;
        let (found, _) = files.lookup(&cred, at, name).await;
        let found = found.map_err(|error| mountstat3(nfsstat3(&error)))?;
        // An export of the dataset would have been found by the path.
        if dataset_below(found.handle).is_some() {
            return Err(MountStat3::NoEnt);
        }
        if found.kind != FileKind::Directory {
            return Err(MountStat3::NotDir);
        }
        at = found.handle;
    }
    Ok(at)
}

/// The root directory of the export that covers a path, if the client may mount it, and the
/// components beyond it.
fn enter<'p>(
    request: &MountRequest<'_>,
    path: &'p [u8],
) -> Result<(Root, Vec<&'p [u8]>), MountStat3> {
    if !path.starts_with(b"/") {
        return Err(MountStat3::NoEnt);
    }
    let path: Vec<&[u8]> = components(path).collect();
    if path.contains(&&b".."[..]) {
        return Err(MountStat3::Inval);
    }
    let found = request.exports.covering(&path);
    let (export, rules, beyond) = found.ok_or(MountStat3::NoEnt)?;
    if !request.exports.may_mount(&export, &rules, request.origin) {
        return Err(MountStat3::Acces);
    }
    let root = request.exports.root_of(&export).ok_or(MountStat3::NoEnt)?;
    Ok((root, beyond))
}
