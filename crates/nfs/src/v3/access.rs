//! ACCESS (RFC 1813 section 3.3.4).

use crate::proto::v3::{Access3Args, Access3ResOk, PostOpAttr, access as bits};

use super::request::{Fail, Outcome, Request, post_op_attr};

pub(super) async fn access(
    request: &Request<'_>,
    args: &Access3Args,
) -> Outcome<Access3ResOk, PostOpAttr> {
    let (target, rights) = request.admit(&args.object)?;
    // A right that a read-only export refuses is not granted either: clients decide by this alone.
    let known = if rights.read_only { ALL & !CHANGES } else { ALL };
    match target.files.access(&target.cred, target.file, args.access & known).await {
        Ok((granted, attributes)) => Ok(Access3ResOk {
            obj_attributes: post_op_attr(&attributes),
            access: granted & args.access & known,
        }),
        Err(error) => Err(Fail::new(&error, request.attributes_now(&args.object).await)),
    }
}

const CHANGES: u32 = bits::MODIFY | bits::EXTEND | bits::DELETE;
const ALL: u32 = bits::READ | bits::LOOKUP | bits::EXECUTE | CHANGES;

const _: () = {
    use aquifer_files::access as theirs;
    assert!(bits::READ == theirs::READ && bits::LOOKUP == theirs::LOOKUP);
    assert!(bits::MODIFY == theirs::MODIFY && bits::EXTEND == theirs::EXTEND);
    assert!(bits::DELETE == theirs::DELETE && bits::EXECUTE == theirs::EXECUTE);
};
