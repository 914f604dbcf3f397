//! The procedures of MOUNT version 3 (RFC 1813 appendix I), and those of versions 1 and 2 that
//! clients still use (RFC 1094 appendix A): some unmount with version 1 what they mounted with 3.
//!
//! Invariants:
//! - A handle is given only to a client that the export admits, and mounting gives no right: every
//!   NFS call is admitted anew.
//! - DUMP and EXPORT tell the truth: what was mounted since the start and not unmounted, as far as
//!   the list reaches; what can be mounted and by whom. A client learns what admits it and what it
//!   has mounted itself, a stranger nothing, this machine everything.

mod mnt;
mod mounts;

use std::net::IpAddr;

use aquifer_rpc::message::Accepted;
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf};

use crate::export::{Exports, listed_bytes_max};
use crate::proto::mount::{DirPath, ExportNode, Name, Path, Procedure, VERSION};
use crate::server::Origin;

pub(crate) use mounts::Mounts;

/// The lowest version that is served. It and version 2 belong to NFSv2, which is not: they have no
/// MNT here.
pub(crate) const VERSION_LOW: u32 = 1;

/// Who asks, and what of.
pub(crate) struct MountRequest<'a> {
    pub exports: &'a Exports,
    pub mounts: &'a Mounts,
    pub origin: &'a Origin,
}

/// Carries out one call and appends its results.
///
/// # Errors
/// What RPC is to say instead of results.
pub(crate) async fn carry_out(
    request: &MountRequest<'_>,
    version: u32,
    procedure: u32,
    from: &mut Decoder<'_>,
    to: &mut EncodeBuf,
) -> Result<(), Accepted> {
    let path = |from: &mut Decoder<'_>| match DirPath::decode(from) {
        Ok(DirPath { path: Path(path) }) => Ok(path.to_vec()),
        Err(_) => Err(Accepted::GarbageArgs),
    };
    let host = request.origin.address();
    let only = (!host.is_loopback()).then_some(host);
    match Procedure::from_wire(procedure) {
        Some(Procedure::Null) => {}
        Some(Procedure::Mnt) if version == VERSION => {
            to.put(&mnt::mnt(request, &path(from)?).await);
        }
        Some(Procedure::Dump) => request.mounts.encode(only, to),
        Some(Procedure::Umnt) => request.mounts.remove(host, &path(from)?),
        Some(Procedure::Umntall) => request.mounts.remove_all(host),
        Some(Procedure::Export) => export(request.exports, only, to),
        Some(Procedure::Mnt) | None => return Err(Accepted::ProcUnavail),
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

/// EXPORT: what can be mounted, if given by this client, and by whom; no groups are everybody.
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
