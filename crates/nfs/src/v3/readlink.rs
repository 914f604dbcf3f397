//! READLINK (RFC 1813 section 3.3.5).

use aquifer_rpc::xdr::EncodeBuf;

use crate::proto::v3::{Getattr3Args, Nfsstat3, PostOpAttr, Readlink3Res, Readlink3ResOk, Res3};

use super::request::{Fail, Outcome, Request, post_op_attr};

pub(super) async fn readlink(
    request: &Request<'_>,
    args: &Getattr3Args,
    to: &mut EncodeBuf,
) -> Nfsstat3 {
    let found = target_of(request, args).await;
    let res: Readlink3Res<'_> = match &found {
        Ok((data, symlink_attributes)) => {
            Res3::Ok(Readlink3ResOk { symlink_attributes: *symlink_attributes, data })
        }
        Err(fail) => Res3::Fail { status: fail.status, resfail: fail.resfail },
    };
    to.put(&res);
    res.status()
}

async fn target_of(
    request: &Request<'_>,
    args: &Getattr3Args,
) -> Outcome<(Vec<u8>, PostOpAttr), PostOpAttr> {
    let target = request.look(&args.object)?;
    match target.files.readlink(&target.cred, target.file).await {
        Ok((data, attributes)) => Ok((data, post_op_attr(&attributes))),
        Err(error) => Err(Fail::new(&error, request.attributes_now(&args.object).await)),
    }
}
