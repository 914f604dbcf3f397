//! FSSTAT (RFC 1813 section 3.3.18).

use crate::proto::v3::{Fsstat3ResOk, Getattr3Args, PostOpAttr};

use super::request::{Fail, Outcome, Request, post_op_attr};

pub(super) async fn fsstat(
    request: &Request<'_>,
    args: &Getattr3Args,
) -> Outcome<Fsstat3ResOk, PostOpAttr> {
    let target = request.look(&args.object)?;
    match target.files.fsstat(target.file).await {
        Ok((space, attributes)) => Ok(Fsstat3ResOk {
            obj_attributes: post_op_attr(&attributes),
            tbytes: space.total_bytes,
            fbytes: space.free_bytes,
            abytes: space.available_bytes,
            tfiles: space.total_files,
            ffiles: space.free_files,
            afiles: space.free_files,
            // Any client's write changes the space.
            invarsec: 0,
        }),
        Err(error) => Err(Fail::new(&error, request.attributes_now(&args.object).await)),
    }
}
