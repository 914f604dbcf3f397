//! COMMIT (RFC 1813 section 3.3.21).

use crate::attributes::wcc_data;
use crate::proto::v3::{Commit3Args, Commit3ResOk, Nfsstat3, WccData};

use super::request::{Promise, Request, changed};
use super::write::verifier;

pub(super) async fn commit(
    request: &Request<'_>,
    args: &Commit3Args,
) -> Promise<Commit3ResOk, WccData> {
    // COMMIT is no change: the data was written when writes were allowed.
    let target = request.look(&args.file)?;
    if target.files.is_silent() {
        return Err(Nfsstat3::Jukebox.into());
    }
    let committed = target.files.commit(&target.cred, target.file, args.offset, args.count).await;
    changed(committed, wcc_data, |(), file_wcc| Commit3ResOk { file_wcc, verf: verifier(&target) })
}
