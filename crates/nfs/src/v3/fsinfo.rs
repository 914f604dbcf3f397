//! FSINFO (RFC 1813 section 3.3.19).

use aquifer_blockio::SECTOR_BYTES;

use crate::limits::{FILE_BYTES_MAX, LISTING_BYTES_MAX, TRANSFER_BYTES_MAX};
use crate::proto::v3::{Fsinfo3ResOk, Getattr3Args, Nfstime3, PostOpAttr, fsf};

use super::request::{Fail, Outcome, Request, post_op_attr};

pub(super) async fn fsinfo(
    request: &Request<'_>,
    args: &Getattr3Args,
) -> Outcome<Fsinfo3ResOk, PostOpAttr> {
    let target = request.look(&args.object)?;
    let attributes = target.files.getattr(target.file).await;
    let attributes = attributes.map_err(|error| Fail::new(&error, None))?;
    Ok(Fsinfo3ResOk {
        obj_attributes: post_op_attr(&attributes),
        rtmax: TRANSFER_BYTES_MAX,
        rtpref: TRANSFER_BYTES_MAX,
        rtmult: PAGE_BYTES,
        wtmax: TRANSFER_BYTES_MAX,
        wtpref: TRANSFER_BYTES_MAX,
        wtmult: PAGE_BYTES,
        dtpref: LISTING_BYTES_MAX,
        maxfilesize: FILE_BYTES_MAX,
        time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
        properties: fsf::LINK | fsf::SYMLINK | fsf::HOMOGENEOUS | fsf::CANSETTIME,
    })
}

/// Content lies in whole pages: a WRITE that begins and ends at their bounds costs no read.
const PAGE_BYTES: u32 = 4096;
const _: () = assert!(PAGE_BYTES as usize == SECTOR_BYTES, "SECTOR_BYTES in 32 bits");
