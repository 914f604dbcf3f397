//! RMDIR (RFC 1813 section 3.3.13).

use crate::attributes::wcc_data;
use crate::proto::v3::{DirOpArgs3, WccData};

use super::names;
use super::request::{Promise, Request, changed};

pub(super) async fn rmdir(
    request: &Request<'_>,
    args: &DirOpArgs3<'_>,
) -> Promise<WccData, WccData> {
    let (dir, name) = request.change_in(args, names::to_rmdir).await?;
    changed(dir.files.rmdir(&dir.cred, dir.file, name).await, wcc_data, |(), wcc| wcc)
}
