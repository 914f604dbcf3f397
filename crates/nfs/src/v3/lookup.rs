//! LOOKUP (RFC 1813 section 3.3.3).

use crate::attributes::nfs_fh3;
use crate::proto::v3::{DirOpArgs3, Lookup3ResOk, Nfsstat3, PostOpAttr};

use super::names;
use super::request::{Fail, Outcome, Request, post_op_attr};

pub(super) async fn lookup(
    request: &Request<'_>,
    args: &DirOpArgs3<'_>,
) -> Outcome<Lookup3ResOk, PostOpAttr> {
    let target = request.look(&args.dir)?;
    let name = match names::to_look_up(args.name) {
        Ok(name) => name,
        Err(status) => {
            return Err(Fail { status, resfail: request.attributes_now(&args.dir).await });
        }
    };
    let (found, dir) = target.files.lookup(&target.cred, target.file, name).await;
    let dir_attributes = dir.as_ref().and_then(post_op_attr);
    match found {
        Ok(object) if !request.sees(object.handle) => {
            Err(Fail { status: Nfsstat3::NoEnt, resfail: dir_attributes })
        }
        Ok(object) => Ok(Lookup3ResOk {
            object: nfs_fh3(object.handle),
            obj_attributes: post_op_attr(&object),
            dir_attributes,
        }),
        Err(error) => Err(Fail::new(&error, dir_attributes)),
    }
}
