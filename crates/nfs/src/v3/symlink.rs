//! SYMLINK (RFC 1813 section 3.3.10).

use crate::attributes::set_attributes;
use crate::limits::TARGET_BYTES_MAX;
use crate::proto::v3::{Create3ResOk, Nfsstat3, Symlink3Args, WccData};

use super::create::made;
use super::names;
use super::request::{Promise, Request};

pub(super) async fn symlink(
    request: &Request<'_>,
    args: &Symlink3Args<'_>,
) -> Promise<Create3ResOk, WccData> {
    let (dir, name) = request.change_in(&args.place, names::to_make).await?;
    let set = set_attributes(&args.symlink.symlink_attributes);
    let checked = set.and_then(|set| Ok((set, target(args.symlink.symlink_data)?)));
    let (set, target) = match checked {
        Ok(checked) => checked,
        Err(status) => return Err(request.refuse(status, &args.place.dir).await),
    };
    made(dir.files.symlink(&dir.cred, dir.file, name, target, &set).await)
}

/// The target of a link: any valid path (POSIX symlink(2)).
fn target(data: &[u8]) -> Result<&[u8], Nfsstat3> {
    if data.is_empty() || data.contains(&0) {
        return Err(Nfsstat3::Inval);
    }
    if data.len() > TARGET_BYTES_MAX {
        return Err(Nfsstat3::NameTooLong);
    }
    Ok(data)
}
