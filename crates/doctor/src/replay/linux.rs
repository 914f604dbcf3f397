//! Linux's client, for libvirt and Proxmox: rights, cached writes with COMMIT, and the locks of
//! QEMU over NLM.

use aquifer_nfs::proto::nlm::{
    Limited, Lock4, LockArgs4, Nlm4Stats, Procedure, TestArgs4, UnlockArgs4,
};
use aquifer_nfs::proto::v3::{
    Access3Args, Access3ResOk, Args3, Getattr3Args, NfsFh3, Pathconf3ResOk, PostOpAttr,
    Rename3Args, Sattr3, Setattr3Args, StableHow, access,
};
use aquifer_rpc::xdr::{Decode, Decoder, XdrError};

use super::{Failed, Walk, commit, create, data, must, place, read_back, remove, write};
use crate::codes;
use crate::report::Finding;
use crate::session::{Session, Wrong};

pub(super) fn steps(walk: &mut Walk<'_>) -> Result<(), Failed> {
    let dir = walk.scratch()?.handle;
    let (mut session, root) = walk.mount()?;
    let session = &mut session;
    walk.step("PATHCONF: names of 255 bytes, in their case", || {
        let args = Args3::Pathconf(Getattr3Args { object: root });
        let found = session.nfs::<Pathconf3ResOk, PostOpAttr>(&args)?;
        must(found.name_max >= 255 && !found.case_insensitive, || format!("{found:?}"))
    })?;
    walk.step("ACCESS: all rights of root", || {
        let wanted = access::READ | access::LOOKUP | access::MODIFY | access::EXTEND;
        let wanted = wanted | access::DELETE;
        let args = Access3Args { object: dir, access: wanted };
        let given = session.nfs::<Access3ResOk, PostOpAttr>(&Args3::Access(args))?.access;
        must(given == wanted, || format!("ACCESS gave {given:#x} of {wanted:#x}"))
    })?;
    let file = walk.step("CREATE", || create(session, dir, "linux-disk"))?;
    walk.step("WRITE unstable, COMMIT with the same verifier, READ", || {
        let verifier = write(session, file, 0, &data(), StableHow::Unstable)?;
        commit(session, file, verifier)?;
        read_back(session, file, 0, &data())
    })?;
    locks(walk, session, file)?;
    walk.step("SETATTR: cut to a length", || {
        let new_attributes = Sattr3 { size: Some(4096), ..Sattr3::NONE };
        let args = Setattr3Args { object: file, new_attributes, guard: None };
        session.do_nfs(&Args3::Setattr(args))?;
        let size = session.attributes(file)?.size;
        must(size == 4096, || format!("it is {size} bytes long"))
    })?;
    walk.step("READDIR lists the file", || {
        let names = session.names(dir)?;
        must(names.iter().any(|name| name == b"linux-disk"), || "it does not".into())
    })?;
    walk.step("RENAME and REMOVE", || {
        let to = place(dir, "linux-renamed");
        session.do_nfs(&Args3::Rename(Rename3Args { from: place(dir, "linux-disk"), to }))?;
        remove(session, dir, "linux-renamed")
    })
}

/// The bytes that QEMU locks of an image. The lock is of the kind for hosts without a status
/// monitor: nobody is to be notified of this one after a restart.
fn locks(walk: &mut Walk<'_>, session: &mut Session, file: NfsFh3) -> Result<(), Failed> {
    if walk.ground.grace {
        let what = "locks are not replayed: after its restart the server waits for hosts to claim \
                    theirs";
        walk.note(Finding::new(codes::LOCK_GRACE, what).mend("aquifer locks"));
        return Ok(());
    }
    let owned = |owner: &'static [u8]| Lock4 {
        caller_name: Limited(b"aquifer-doctor"),
        fh: Limited(file.bytes()),
        oh: Limited(owner),
        svid: 1,
        l_offset: 100,
        l_len: 104,
    };
    let cookie = Limited(b"doctor");
    let taken = walk.step("NLM: LOCK of bytes 100-203", || {
        let alock = owned(b"one");
        let (block, exclusive, reclaim, state) = (false, true, false, 0);
        let args = LockArgs4 { cookie, block, exclusive, alock, reclaim, state };
        expect(session, Procedure::NmLock, &args, Nlm4Stats::Granted)
    });
    let tested = taken.and_then(|()| {
        walk.step("NLM: TEST by another owner is denied", || {
            let args = TestArgs4 { cookie, exclusive: true, alock: owned(b"two") };
            expect(session, Procedure::Test, &args, Nlm4Stats::Denied)
        })
    });
    // Also after a failure: nothing stays locked.
    let args = UnlockArgs4 { cookie, alock: owned(b"one") };
    let ended =
        walk.step("NLM: UNLOCK", || expect(session, Procedure::Unlock, &args, Nlm4Stats::Granted));
    tested.and(ended)
}

fn expect(
    session: &mut Session,
    procedure: Procedure,
    args: &impl aquifer_rpc::xdr::Encode,
    expected: Nlm4Stats,
) -> Result<(), Wrong> {
    let Status(found) = session.lock(procedure, args)?;
    if found == expected { Ok(()) } else { Err(Wrong::Lock(found)) }
}

/// Beginning of all results of NLM: the cookie, which is ours, and the status.
struct Status(Nlm4Stats);

impl<'a> Decode<'a> for Status {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, XdrError> {
        let _: aquifer_nfs::proto::nlm::Netobj<'_> = Decode::decode(from)?;
        Nlm4Stats::decode(from).map(Status)
    }
}
