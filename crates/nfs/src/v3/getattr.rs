//! GETATTR (RFC 1813 section 3.3.1).

use crate::attributes::fattr3;
use crate::proto::v3::{Fattr3, Getattr3Args};

use super::request::{Fail, Outcome, Request};

pub(super) async fn getattr(request: &Request<'_>, args: &Getattr3Args) -> Outcome<Fattr3, ()> {
    let target = request.look(&args.object)?;
    let attributes = target.files.getattr(target.file).await;
    attributes.map(|attributes| fattr3(&attributes)).map_err(|error| Fail::new(&error, ()))
}
