//! REMOVE (RFC 1813 section 3.3.12).

use crate::attributes::wcc_data;
use crate::proto::v3::{DirOpArgs3, WccData};

use super::names;
use super::request::{Promise, Request, changed};

pub(super) async fn remove(
    request: &Request<'_>,
    args: &DirOpArgs3<'_>,
) -> Promise<WccData, WccData> {
    let (dir, name) = request.change_in(args, names::to_remove).await?;
    changed(dir.files.remove(&dir.cred, dir.file, name).await, wcc_data, |(), wcc| wcc)
}
