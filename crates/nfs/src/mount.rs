//! The procedures of MOUNT version 3 (RFC 1813 appendix I), and those of versions 1 and 2 that
//! clients still use (RFC 1094 appendix A): some mount with version 3 and unmount with version 1.
//!
//! Invariants:
//! - Only a client that the export admits gets a handle, or one that a certificate may admit later.
//!   Mounting gives no right: every NFS call is admitted again.
//! - DUMP and EXPORT tell the truth. DUMP lists the mounts since the start that were not unmounted,
//!   as far as the list reaches. EXPORT lists the exports, and which clients may mount them. A
//!   client learns which exports admit it and what it has mounted itself. A stranger learns
//!   nothing, this machine everything.

mod mnt;
mod mounts;

use std::net::IpAddr;

use aquifer_rpc::message::Accepted;
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};

use crate::export::{Exports, listed_bytes_max};
use crate::proto::mount::{DirPath, ExportNode, Name, Path, Procedure, VERSION};
use crate::server::{Origin, Undone};

pub(crate) use mounts::Mounts;

/// The lowest version that is served. Versions 1 and 2 belong to NFSv2, which is not served: they
/// have no MNT here.
pub(crate) const VERSION_LOW: u32 = 1;

/// The caller, and the server's tables.
pub(crate) struct MountRequest<'a> {
    pub exports: &'a Exports,
    pub mounts: &'a Mounts,
    pub origin: &'a Origin,
}

/// Carries out one call and appends its results.
///
/// # Errors
/// The status that RPC returns instead of results; or the disks of the pool do not answer.
pub(crate) async fn carry_out(
    request: &MountRequest<'_>,
    version: u32,
    procedure: u32,
    from: &mut Decoder<'_>,
    to: &mut EncodeBuf,
) -> Result<(), Undone> {
    let path = |from: &mut Decoder<'_>| match DirPath::decode(from) {
        Ok(DirPath { path: Path(path) }) => Ok(path.to_vec()),
        Err(_) => Err(Accepted::GarbageArgs),
    };
    let host = request.origin.address();
    let only = (!host.is_loopback()).then_some(host);
    match Procedure::from_wire(procedure) {
        Some(Procedure::Null) => {}
        Some(Procedure::Mnt) if version == VERSION => {
            let path = path(from)?;
            // MOUNT has no word for "later": every status makes clients give up.
            to.put(&mnt::mnt(request, &path).await.ok_or(Undone::Unsettled)?);
        }
        Some(Procedure::Dump) => request.mounts.encode(only, to),
        Some(Procedure::Umnt) => request.mounts.remove(host, &path(from)?),
        Some(Procedure::Umntall) => request.mounts.remove_all(host),
        Some(Procedure::Export) => export(request.exports, only, to),
        Some(Procedure::Mnt) | None => return Err(Accepted::ProcUnavail.into()),
    }
    Ok(())
}

/// The longest reply that a call of `procedure` can have now, in bytes.
pub(crate) fn reply_bytes_max(exports: &Exports, mounts: &Mounts, procedure: u32) -> usize {
    match Procedure::from_wire(procedure) {
        Some(Procedure::Dump) => mounts.encoded_bytes_max(),
        Some(Procedure::Export) => exports.list_bytes_max(),
        _ => 0,
    }
}

/// EXPORT: the exports, only those for this client if one is given, and the clients that may mount
/// each. No groups means everybody.
fn export(exports: &Exports, client: Option<IpAddr>, to: &mut EncodeBuf) {
    let mut room_bytes = exports.list_bytes_max();
    for export in exports.list_for(client) {
        let Some(left) = room_bytes.checked_sub(listed_bytes_max(&export)) else { break };
        room_bytes = left;
        let clients = export.access.groups();
        let groups = clients.iter().map(|client| Name(client.as_bytes())).collect();
        to.bool(true);
        to.put(&ExportNode { dir: Path(export.path.as_bytes()), groups });
    }
    to.bool(false);
}
