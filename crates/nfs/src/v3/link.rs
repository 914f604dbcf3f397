//! LINK (RFC 1813 section 3.3.15).

use aquifer_files::{Around, Attributes};

use crate::attributes::wcc_data;
use crate::proto::v3::{Link3Args, LinkWcc, Nfsstat3};

use super::names;
use super::request::{Fail, Promise, Request, Target, changed, post_op_attr};

pub(super) async fn link(request: &Request<'_>, args: &Link3Args<'_>) -> Promise<LinkWcc, LinkWcc> {
    let (file, dir, name) = match objects(request, args) {
        Ok(objects) => objects,
        Err(status) => {
            let file_attributes = request.attributes_now(&args.file).await;
            let linkdir_wcc = request.untouched(&args.link.dir).await;
            return Err(Fail { status, resfail: LinkWcc { file_attributes, linkdir_wcc } });
        }
    };
    let linked = dir.files.link(&dir.cred, file.file, dir.file, name).await;
    let wcc = |(file, dir): &(Option<Attributes>, Around)| LinkWcc {
        file_attributes: file.as_ref().and_then(post_op_attr),
        linkdir_wcc: wcc_data(dir),
    };
    changed(linked, wcc, |(), wcc| wcc)
}

fn objects<'n>(
    request: &Request<'_>,
    args: &Link3Args<'n>,
) -> Result<(Target, Target, &'n [u8]), Nfsstat3> {
    let file = request.change(&args.file)?;
    let dir = request.change(&args.link.dir)?;
    if file.file.fs_guid != dir.file.fs_guid {
        return Err(Nfsstat3::Xdev);
    }
    let name = names::to_make(args.link.name)?;
    Ok((file, dir, name))
}
