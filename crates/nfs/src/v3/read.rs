//! READ (RFC 1813 section 3.3.6).
//!
//! Invariant: the data is not copied: the pages from `files` go to the socket as they are.

use aquifer_files::ReadData;
use aquifer_rpc::xdr::{EncodeBuf, PagePiece};

use crate::limits::TRANSFER_BYTES_MAX;
use crate::proto::v3::{Nfsstat3, PostOpAttr, Read3Args, Read3Head, Read3Res};

use super::request::{Fail, Outcome, Request, post_op_attr};

/// Returns the status, and the number of bytes read.
pub(super) async fn read(
    request: &Request<'_>,
    args: &Read3Args,
    to: &mut EncodeBuf,
) -> (Nfsstat3, u32) {
    match data_of(request, args).await {
        Ok(data) => {
            let head = Read3Head { file_attributes: post_op_attr(&data.attributes), eof: data.eof };
            let bytes = u32::try_from(data.count).unwrap_or(u32::MAX);
            head.encode_with(to, data.into_pieces().map(piece));
            (Nfsstat3::Ok, bytes)
        }
        Err(Fail { status, resfail }) => {
            to.put(&Read3Res::Fail { status, resfail });
            (status, 0)
        }
    }
}

async fn data_of(request: &Request<'_>, args: &Read3Args) -> Outcome<ReadData, PostOpAttr> {
    let target = request.look(&args.file)?;
    let count = args.count.min(TRANSFER_BYTES_MAX);
    match target.files.read(&target.cred, target.file, args.offset, count).await {
        Ok(data) => Ok(data),
        Err(error) => Err(Fail::new(&error, request.attributes_now(&args.file).await)),
    }
}

fn piece((page, range): (aquifer_blockio::Page, std::ops::Range<usize>)) -> PagePiece {
    PagePiece::new(page, range).expect("`files` gives ranges inside their pages")
}
