//! CREATE (RFC 1813 section 3.3.8).

use aquifer_files::{Attributes, CreateHow, Made};

use crate::attributes::{nfs_fh3, wcc_data};
use crate::proto::v3::{Create3Args, Create3ResOk, CreateHow3, Nfsstat3, WccData};

use super::names;
use super::request::{Promise, Request, Target, changed, post_op_attr};

pub(super) async fn create(
    request: &Request<'_>,
    args: &Create3Args<'_>,
) -> Promise<Create3ResOk, WccData> {
    let (dir, name) = request.change_in(&args.place, names::to_make).await?;
    let how = match how(&dir, &args.how) {
        Ok(how) => how,
        Err(status) => return Err(request.refuse(status, &args.place.dir).await),
    };
    made(dir.files.create(&dir.cred, dir.file, name, how).await)
}

/// The results of the four procedures that make an object.
pub(super) fn made(made: Made<Attributes>) -> Promise<Create3ResOk, WccData> {
    changed(made, wcc_data, |attributes, dir_wcc| Create3ResOk {
        obj: Some(nfs_fh3(attributes.handle)),
        obj_attributes: post_op_attr(&attributes),
        dir_wcc,
    })
}

fn how(dir: &Target, how: &CreateHow3) -> Result<CreateHow, Nfsstat3> {
    Ok(match how {
        CreateHow3::Unchecked(set) => CreateHow::Unchecked(dir.to_set(set)?),
        CreateHow3::Guarded(set) => CreateHow::Guarded(dir.to_set(set)?),
        // 0 is the verifier of files that were made in another way.
        CreateHow3::Exclusive(verf) => CreateHow::Exclusive(u64::from_be_bytes(*verf).max(1)),
    })
}
