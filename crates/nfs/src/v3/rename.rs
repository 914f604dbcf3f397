//! RENAME (RFC 1813 section 3.3.14).

use aquifer_files::Around;

use crate::attributes::wcc_data;
use crate::proto::v3::{Nfsstat3, Rename3Args, RenameWcc};

use super::names;
use super::request::{Fail, Promise, Request, Target, changed};

pub(super) async fn rename(
    request: &Request<'_>,
    args: &Rename3Args<'_>,
) -> Promise<RenameWcc, RenameWcc> {
    let places = match places(request, args) {
        Ok(places) => places,
        Err(status) => {
            let fromdir_wcc = request.untouched(&args.from.dir).await;
            let todir_wcc = request.untouched(&args.to.dir).await;
            return Err(Fail { status, resfail: RenameWcc { fromdir_wcc, todir_wcc } });
        }
    };
    let ((from, from_name), (to, to_name)) = places;
    let renamed = from.files.rename(&from.cred, (from.file, from_name), (to.file, to_name)).await;
    let wcc = |(from, to): &(Around, Around)| RenameWcc {
        fromdir_wcc: wcc_data(from),
        todir_wcc: wcc_data(to),
    };
    changed(renamed, wcc, |(), wcc| wcc)
}

type Place<'n> = (Target, &'n [u8]);

fn places<'n>(
    request: &Request<'_>,
    args: &Rename3Args<'n>,
) -> Result<(Place<'n>, Place<'n>), Nfsstat3> {
    let from = request.change(&args.from.dir)?;
    let to = request.change(&args.to.dir)?;
    if from.file.fs_guid != to.file.fs_guid {
        return Err(Nfsstat3::Xdev);
    }
    let from_name = names::to_rename(args.from.name)?;
    let to_name = names::to_rename(args.to.name)?;
    Ok(((from, from_name), (to, to_name)))
}
