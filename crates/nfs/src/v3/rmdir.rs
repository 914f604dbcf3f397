//! RMDIR (RFC 1813 section 3.3.13).

use crate::proto::v3::{DirOpArgs3, WccData};

use super::names;
use super::request::{Outcome, Request, changed};

pub(super) async fn rmdir(
    request: &Request<'_>,
    args: &DirOpArgs3<'_>,
) -> Outcome<WccData, WccData> {
    let (dir, name) = request.change_in(args, names::to_rmdir).await?;
    changed(dir.files.rmdir(&dir.cred, dir.file, name).await, |(), wcc| wcc)
}
