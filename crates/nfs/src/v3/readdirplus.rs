//! READDIRPLUS (RFC 1813 section 3.3.17).

use aquifer_rpc::xdr::EncodeBuf;

use crate::attributes::nfs_fh3;
use crate::limits::LISTING_BYTES_MAX;
use crate::proto::v3::{
    EntryPlus3, Fit, Nfsstat3, PostOpAttr, Readdirplus3Args, Readdirplus3Encoder, Readdirplus3Res,
    TooSmall,
};

use super::readdir::{Listing, NO_VERIFIER, batch};
use super::request::{Fail, Outcome, Request, post_op_attr};

pub(super) async fn readdirplus(
    request: &Request<'_>,
    args: &Readdirplus3Args,
    to: &mut EncodeBuf,
) -> Nfsstat3 {
    match list(request, args, to).await {
        Ok(()) => Nfsstat3::Ok,
        Err(Fail { status, resfail }) => {
            to.put(&Readdirplus3Res::Fail { status, resfail });
            status
        }
    }
}

async fn list(
    request: &Request<'_>,
    args: &Readdirplus3Args,
    to: &mut EncodeBuf,
) -> Outcome<(), PostOpAttr> {
    let maxcount = args.maxcount.min(LISTING_BYTES_MAX);
    let batch = batch(maxcount, ENTRY_BYTES).min(batch(args.dircount, NAME_ENTRY_BYTES));
    let mut listing = Listing::open(request, &args.dir, args.cookie, batch, true).await?;
    let attributes = post_op_attr(&listing.directory);
    let too_small = |TooSmall| Fail { status: Nfsstat3::TooSmall, resfail: attributes };
    let mut reply =
        Readdirplus3Encoder::begin(to, args.dircount, maxcount, &attributes, NO_VERIFIER)
            .map_err(too_small)?;
    let eof = loop {
        let Some(entry) = listing.next().await? else { break true };
        if !request.sees(entry.handle) {
            continue;
        }
        let fit = reply.entry(&EntryPlus3 {
            fileid: entry.handle.fileid(),
            name: &entry.name,
            cookie: entry.cookie,
            name_attributes: entry.attributes.as_ref().and_then(post_op_attr),
            // A caller that may not look up names gets no handles from a listing.
            name_handle: entry.attributes.as_ref().map(|_| nfs_fh3(entry.handle)),
        });
        if fit == Fit::Full {
            break false;
        }
    };
    reply.finish(eof).map(|_| ()).map_err(too_small)
}

/// An entry with a name of 16 bytes, attributes and handle.
const ENTRY_BYTES: u32 = 40 + 4 + 84 + 4 + 28;

/// The part of it that counts for `dircount`.
const NAME_ENTRY_BYTES: u32 = 40;
