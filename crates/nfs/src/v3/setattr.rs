//! SETATTR (RFC 1813 section 3.3.2).

use crate::attributes::{time, wcc_data};
use crate::proto::v3::{Setattr3Args, WccData};

use super::request::{Promise, Request, changed};

pub(super) async fn setattr(
    request: &Request<'_>,
    args: &Setattr3Args,
) -> Promise<WccData, WccData> {
    let checked = request.change(&args.object).and_then(|target| {
        let guard = args.guard.map(time).transpose()?;
        let set = target.to_set(&args.new_attributes)?;
        Ok((target, set, guard))
    });
    let (target, set, guard) = match checked {
        Ok(checked) => checked,
        Err(status) => return Err(request.refuse(status, &args.object).await),
    };
    let done = target.files.setattr(&target.cred, target.file, &set, guard).await;
    changed(done, wcc_data, |(), wcc| wcc)
}
