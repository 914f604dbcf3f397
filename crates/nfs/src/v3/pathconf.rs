//! PATHCONF (RFC 1813 section 3.3.20).

use crate::limits::{LINKS_MAX, NAME_BYTES_MAX};
use crate::proto::v3::{Getattr3Args, Pathconf3ResOk, PostOpAttr};

use super::request::{Fail, Outcome, Request, post_op_attr};

pub(super) async fn pathconf(
    request: &Request<'_>,
    args: &Getattr3Args,
) -> Outcome<Pathconf3ResOk, PostOpAttr> {
    let target = request.look(&args.object)?;
    let attributes = target.files.getattr(target.file).await;
    let attributes = attributes.map_err(|error| Fail::new(&error, None))?;
    Ok(Pathconf3ResOk {
        obj_attributes: post_op_attr(&attributes),
        linkmax: LINKS_MAX,
        name_max: u32::try_from(NAME_BYTES_MAX).unwrap_or(u32::MAX),
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    })
}
