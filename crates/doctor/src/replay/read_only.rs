//! A client of an export that it may only read: nothing is written.

use aquifer_nfs::proto::v3::{Access3Args, Access3ResOk, Args3, PostOpAttr, access};

use super::{Failed, Walk, must};

pub(super) fn steps(walk: &mut Walk<'_>) -> Result<(), Failed> {
    let (mut session, root) = walk.mount()?;
    let session = &mut session;
    walk.step("ACCESS: reads, and no changes", || {
        let args = Access3Args { object: root, access: access::READ | access::MODIFY };
        let given = session.nfs::<Access3ResOk, PostOpAttr>(&Args3::Access(args))?.access;
        must(given == access::READ, || format!("ACCESS gave {given:#x}"))
    })?;
    walk.step("READDIR", || session.names(root))?;
    Ok(())
}
