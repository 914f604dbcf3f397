//! Duplicate request cache: calls that must not run twice, because they change names or attributes.
//!
//! A client that gets no answer sends its call again, maybe on another connection, maybe to a
//! restarted server. The pool that such calls change stores them (`aquifer_files::Replies`). This
//! module decides when two calls are the same, and answers a call that was carried out before. It
//! repeats the first answer byte for byte if that is in memory. Otherwise the answer has the same
//! status and handle, and the present attributes.
//!
//! Invariants:
//! - Two calls are the same if they come from the same address (any port), with the same
//!   transaction id, procedure, credential and arguments. The stamp in an AUTH_SYS credential does
//!   not count: Linux before 5.1 puts the seconds since its start there, a new value each time it
//!   sends.
//! - "Later" (NFS3ERR_JUKEBOX) says that nothing was changed: the client sends a new call, with a
//!   new transaction id, which nothing connects with the first. So a call that was carried out, or
//!   may have been, and whose fate is open, gets no answer ([`Unsettled`]). Its caller keeps it and
//!   carries it out again, which finds the outcome here: when the disks answer, when the pool is
//!   back, in this process or the next one.
//! - READ, WRITE, COMMIT and the procedures that change nothing are not involved; but a WRITE to
//!   `control` in `.aquifer` is, since it acts.

use std::net::{IpAddr, SocketAddr};

use aquifer_blockio::sabotage::{Rule, left_out};
use aquifer_files::{Begun, CallId, FileHandle, FsError, ReplyEntry};
use aquifer_rpc::auth::{AuthSys, Credential};
use aquifer_rpc::message::Call;
use aquifer_rpc::xdr::EncodeBuf;

use crate::attributes::nfs_fh3;
use crate::proto::v3::{
    Args3, Create3ResOk, DirOpArgs3, LinkWcc, Nfsstat3, Procedure3, RenameWcc, WccData,
};
use crate::status::nfsstat3;

use super::request::{Outcome, Request, Target};
use super::silence::{fail, object_of};
use super::{change, put, write};

/// Whether this procedure must not run twice.
pub(crate) fn is_once(procedure: Procedure3) -> bool {
    matches!(
        procedure,
        Procedure3::Setattr
            | Procedure3::Create
            | Procedure3::Mkdir
            | Procedure3::Symlink
            | Procedure3::Mknod
            | Procedure3::Remove
            | Procedure3::Rmdir
            | Procedure3::Rename
            | Procedure3::Link
    )
}

/// The id of a call from `peer` with these arguments.
pub(crate) fn call_id(peer: SocketAddr, call: &Call<'_>, arguments: &[u8]) -> CallId {
    let address = match peer.ip().to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let credential = match call.credential {
        Credential::Sys(sys) => Credential::Sys(AuthSys { stamp: 0, ..sys }),
        other => other,
    };
    let mut said = EncodeBuf::with_capacity(512 + arguments.len());
    said.u32(call.version);
    said.put(&credential);
    said.opaque_fixed(arguments);
    let said = said.contiguous().unwrap_or_default();
    CallId::new(address.octets(), call.xid, (call.program, call.procedure), said)
}

/// The fate of a call is open: only its pool can say whether it was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsettled;

/// Carries out such a call, or repeats its first answer. Returns the status, for the counters.
///
/// # Errors
/// [`Unsettled`]; nothing is appended then.
pub(crate) async fn carry_out_once(
    request: &Request<'_>,
    call: CallId,
    args: &Args3<'_>,
    to: &mut EncodeBuf,
) -> Result<Nfsstat3, Unsettled> {
    let target = match object_of(args).map(|handle| request.look(handle)) {
        Some(Ok(target)) => target,
        // Its pool is not in service: an earlier instance may have carried it out.
        Some(Err(Nfsstat3::Jukebox)) if !left_out(Rule::LaterChangedNothing) => {
            return Err(Unsettled);
        }
        // A handle that opens nothing changes nothing.
        _ => return Ok(change(request, args, to).await),
    };
    let answer = match target.files.datasets().replies().begin(call).await {
        Ok(Begun::New(running)) => {
            let mut body = EncodeBuf::new();
            let status = change(request, args, &mut body).await;
            let said = body.contiguous().unwrap_or_default();
            if status != Nfsstat3::Jukebox {
                running.answered(status.wire(), said);
            } else if !running.hears_later(status.wire(), said)
                && !left_out(Rule::LaterChangedNothing)
            {
                return Err(Unsettled);
            }
            to.append(body);
            return Ok(status);
        }
        Ok(Begun::Answered(answer)) => answer,
        Err(error) => {
            return match nfsstat3(&FsError::Pool(error)) {
                Nfsstat3::Jukebox if !left_out(Rule::LaterChangedNothing) => Err(Unsettled),
                status => Ok(fail(args, status, to)),
            };
        }
    };
    Ok(match answer.body {
        Some(body) => {
            to.opaque_fixed(&body);
            Nfsstat3::from_wire(answer.entry.status).unwrap_or(Nfsstat3::Ok)
        }
        None => succeeded(request, &target, &answer.entry, args, to).await,
    })
}

/// A success again, from the present state on disk: `wcc_data` without the earlier attributes,
/// which are not known any more.
async fn succeeded(
    request: &Request<'_>,
    target: &Target,
    entry: &ReplyEntry,
    args: &Args3<'_>,
    to: &mut EncodeBuf,
) -> Nfsstat3 {
    match args {
        Args3::Create(args) => put(to, made(request, target, entry, &args.place).await),
        Args3::Mkdir(args) => put(to, made(request, target, entry, &args.place).await),
        Args3::Symlink(args) => put(to, made(request, target, entry, &args.place).await),
        Args3::Mknod(args) => put(to, made(request, target, entry, &args.place).await),
        Args3::Rename(args) => {
            let fromdir_wcc = request.untouched(&args.from.dir).await;
            let todir_wcc = request.untouched(&args.to.dir).await;
            let outcome: Outcome<_, RenameWcc> = Ok(RenameWcc { fromdir_wcc, todir_wcc });
            put(to, outcome)
        }
        Args3::Link(args) => {
            let file_attributes = request.attributes_now(&args.file).await;
            let linkdir_wcc = request.untouched(&args.link.dir).await;
            let outcome: Outcome<_, LinkWcc> = Ok(LinkWcc { file_attributes, linkdir_wcc });
            put(to, outcome)
        }
        Args3::Write(args) => {
            let done = write::done(target, WccData::NONE, write::count(&args.head));
            let outcome: Outcome<_, WccData> = Ok(done);
            put(to, outcome)
        }
        _ => {
            let wcc = match object_of(args) {
                Some(handle) => request.untouched(handle).await,
                None => WccData::NONE,
            };
            let outcome: Outcome<_, WccData> = Ok(wcc);
            put(to, outcome)
        }
    }
}

async fn made(
    request: &Request<'_>,
    target: &Target,
    entry: &ReplyEntry,
    place: &DirOpArgs3<'_>,
) -> Outcome<Create3ResOk, WccData> {
    let obj = nfs_fh3(FileHandle::given(target.file.fs_guid, entry));
    // The object may be gone again, but the call did make it.
    let obj_attributes = request.attributes_now(&obj).await;
    let dir_wcc = request.untouched(&place.dir).await;
    Ok(Create3ResOk { obj: Some(obj), obj_attributes, dir_wcc })
}

#[cfg(test)]
mod tests {
    use super::*;
    use aquifer_rpc::auth::{Gids, OpaqueAuth};

    fn sys(stamp: u32, machine_name: &'static [u8], gids: &[u32]) -> Credential<'static> {
        let gids = Gids::new(gids).unwrap();
        Credential::Sys(AuthSys { stamp, machine_name, uid: 0, gid: 0, gids })
    }

    fn id(peer: &str, call: Call<'_>, arguments: &[u8]) -> CallId {
        call_id(peer.parse().unwrap(), &call, arguments)
    }

    #[test]
    fn port_stamp_and_the_way_an_address_is_written_do_not_count_and_all_else_does() {
        let (xid, program, version, procedure) = (7, 100_003, 3, 8);
        let (credential, verifier) = (sys(1, b"a", &[5]), OpaqueAuth::NONE);
        let call = Call { xid, program, version, procedure, credential, verifier };
        let first = id("10.0.0.1:700", call, b"args");
        let stamped = Call { credential: sys(2, b"a", &[5]), ..call };
        assert_eq!(id("10.0.0.1:9", stamped, b"args"), first);
        assert_eq!(id("[::ffff:10.0.0.1]:700", call, b"args"), first);
        let others = [
            id("10.0.0.2:700", call, b"args"),
            id("[::10.0.0.1]:700", call, b"args"),
            id("10.0.0.1:700", Call { xid: 8, ..call }, b"args"),
            id("10.0.0.1:700", Call { program: 100_004, ..call }, b"args"),
            id("10.0.0.1:700", Call { version: 4, ..call }, b"args"),
            id("10.0.0.1:700", Call { procedure: 9, ..call }, b"args"),
            id("10.0.0.1:700", Call { credential: Credential::None, ..call }, b"args"),
            id("10.0.0.1:700", Call { credential: sys(1, b"b", &[5]), ..call }, b"args"),
            id("10.0.0.1:700", Call { credential: sys(1, b"a", &[6]), ..call }, b"args"),
            id("10.0.0.1:700", call, b"argt"),
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(*other, first, "{at}");
        }
    }
}
