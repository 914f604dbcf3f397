//! MKNOD (RFC 1813 section 3.3.11).

use aquifer_files::{NodeKind, SetAttributes};

use crate::proto::v3::{Create3ResOk, Mknod3Args, MknodData3, Nfsstat3, WccData};

use super::create::made;
use super::names;
use super::request::{Promise, Request, Target};

pub(super) async fn mknod(
    request: &Request<'_>,
    args: &Mknod3Args<'_>,
) -> Promise<Create3ResOk, WccData> {
    let (dir, name) = request.change_in(&args.place, names::to_make).await?;
    let (kind, set) = match node(&dir, &args.what) {
        Ok(node) => node,
        Err(status) => return Err(request.refuse(status, &args.place.dir).await),
    };
    made(dir.files.mknod(&dir.cred, dir.file, name, kind, &set).await)
}

fn node(dir: &Target, what: &MknodData3) -> Result<(NodeKind, SetAttributes), Nfsstat3> {
    Ok(match what {
        MknodData3::Chr(device) => (
            NodeKind::Character(device.spec.specdata1, device.spec.specdata2),
            dir.to_set(&device.dev_attributes)?,
        ),
        MknodData3::Blk(device) => (
            NodeKind::Block(device.spec.specdata1, device.spec.specdata2),
            dir.to_set(&device.dev_attributes)?,
        ),
        MknodData3::Sock(set) => (NodeKind::Socket, dir.to_set(set)?),
        MknodData3::Fifo(set) => (NodeKind::Fifo, dir.to_set(set)?),
        MknodData3::Reg | MknodData3::Dir | MknodData3::Lnk => return Err(Nfsstat3::BadType),
    })
}
