//! MKDIR (RFC 1813 section 3.3.9).

use crate::proto::v3::{Create3ResOk, Mkdir3Args, WccData};

use super::create::made;
use super::names;
use super::request::{Promise, Request};

pub(super) async fn mkdir(
    request: &Request<'_>,
    args: &Mkdir3Args<'_>,
) -> Promise<Create3ResOk, WccData> {
    let (dir, name) = request.change_in(&args.place, names::to_make).await?;
    let set = match dir.to_set(&args.attributes) {
        Ok(set) => set,
        Err(status) => return Err(request.refuse(status, &args.place.dir).await),
    };
    made(dir.files.mkdir(&dir.cred, dir.file, name, &set).await)
}
