//! Calls as records, and replies as answers.

use aquifer_checker::content::{CELL_BYTES, bytes_of};
use aquifer_checker::op::{Listed, Node, Op, Place, Position, Reply};
use aquifer_checker::tree::MODE;
use aquifer_files::{Attributes, FileHandle, FileKind, FsError, Stability, Time};
use aquifer_nfs::proto::v3::{
    Args3, Commit3Args, Commit3Res, Create3Args, Create3Res, CreateHow3, DirOpArgs3, Fattr3,
    Ftype3, Getattr3Args, Getattr3Res, Link3Args, Link3Res, Lookup3Res, Mkdir3Args, NfsFh3,
    Nfsstat3, Nfstime3, PROGRAM, Read3Args, Read3Res, Readdir3Args, Readdir3Res, Readdirplus3Args,
    Readdirplus3Res, Readlink3Res, Rename3Args, Rename3Res, Res3, Sattr3, Setattr3Args,
    Setattr3Res, StableHow, Symlink3Args, SymlinkData3, VERSION, WccData, Write3Args, Write3Head,
    Write3Res,
};
use aquifer_pool::PoolError;
use aquifer_rpc::auth::{AuthSys, Credential, Gids, OpaqueAuth};
use aquifer_rpc::message::{Accepted, Call, Reply as RpcReply, ReplyBody};
use aquifer_rpc::xdr::{Decode, Decoder, EncodeBuf, Span};

/// Whether a call must not run twice (RFC 1813 section 4.5).
pub fn is_once(op: &Op) -> bool {
    op.changes() && !matches!(op, Op::Write { .. })
}

/// A record's transaction id.
pub fn xid(record: &[u8]) -> u32 {
    u32::from_be_bytes(*record.first_chunk().unwrap())
}

/// The record of a call, without its mark.
pub fn call(xid: u32, op: &Op) -> Vec<u8> {
    let (data, text);
    let args = match op {
        Op::Create(at, tag) => {
            let how = CreateHow3::Guarded(tagged(*tag));
            Args3::Create(Create3Args { place: place(at), how })
        }
        Op::Mkdir(at, tag) => {
            Args3::Mkdir(Mkdir3Args { place: place(at), attributes: tagged(*tag) })
        }
        Op::Symlink(at, tag) => {
            text = tag.to_string();
            let symlink_attributes = tagged(*tag);
            let symlink = SymlinkData3 { symlink_attributes, symlink_data: text.as_bytes() };
            Args3::Symlink(Symlink3Args { place: place(at), symlink })
        }
        Op::Remove(at) => Args3::Remove(place(at)),
        Op::Rmdir(at) => Args3::Rmdir(place(at)),
        Op::Rename(from, to) => Args3::Rename(Rename3Args { from: place(from), to: place(to) }),
        Op::Link(node, at) => Args3::Link(Link3Args { file: fh(node), link: place(at) }),
        Op::Set { file, size, mode } => {
            let new_attributes = Sattr3 { size: *size, mode: *mode, ..Sattr3::NONE };
            Args3::Setattr(Setattr3Args { object: fh(file), new_attributes, guard: None })
        }
        Op::Write { file, cells, stability } => {
            let [c] = cells[..] else { panic!("a WRITE has one piece") };
            data = bytes_of(c.first, c.count, c.cell);
            let (offset, count) = (c.first * CELL_BYTES, data.len() as u32);
            let stable = stable_how(*stability);
            let head = Write3Head { file: fh(file), offset, count, stable };
            Args3::Write(Write3Args { head, data: Span { offset: 0, bytes: &data } })
        }
        Op::Commit { file, offset, count } => {
            Args3::Commit(Commit3Args { file: fh(file), offset: *offset, count: *count })
        }
        Op::Read { file, first, count } => {
            let (offset, count) = (first * CELL_BYTES, (count * CELL_BYTES) as u32);
            Args3::Read(Read3Args { file: fh(file), offset, count })
        }
        Op::Getattr(node) => Args3::Getattr(Getattr3Args { object: fh(node) }),
        Op::Readlink(node) => Args3::Readlink(Getattr3Args { object: fh(node) }),
        Op::Lookup(at) => Args3::Lookup(place(at)),
        Op::List(..) => panic!("a listing is several calls"),
    };
    record(xid, &args)
}

/// The record of a call for about this many entries; with their attributes, or only their names.
pub fn list(xid: u32, node: &Node, from: Position, entries: usize, plus: bool) -> Vec<u8> {
    let (dir, cookie, cookieverf) = (fh(node), from.cookie, from.verifier);
    let entries = entries as u32;
    record(
        xid,
        &match plus {
            true => {
                let (dircount, maxcount) = (entries * 32, 104 + entries * 152);
                Args3::Readdirplus(Readdirplus3Args { dir, cookie, cookieverf, dircount, maxcount })
            }
            false => {
                let count = 104 + entries * 32;
                Args3::Readdir(Readdir3Args { dir, cookie, cookieverf, count })
            }
        },
    )
}

fn record(xid: u32, args: &Args3<'_>) -> Vec<u8> {
    let gids = Gids::new(&[]).unwrap();
    let sys = AuthSys { stamp: 1, machine_name: b"client", uid: 0, gid: 0, gids };
    let (credential, verifier) = (Credential::Sys(sys), OpaqueAuth::NONE);
    let (program, version, procedure) = (PROGRAM, VERSION, args.procedure().wire());
    let mut to = EncodeBuf::new();
    to.put(&Call { xid, program, version, procedure, credential, verifier });
    to.put(args);
    to.to_vec()
}

fn fh(node: &Node) -> NfsFh3 {
    NfsFh3::new(&node.handle.encode()).unwrap()
}

fn place(at: &Place) -> DirOpArgs3<'_> {
    DirOpArgs3 { dir: fh(&at.directory), name: at.name.as_bytes() }
}

fn tagged(tag: u32) -> Sattr3 {
    Sattr3 { uid: Some(tag), mode: Some(MODE), ..Sattr3::NONE }
}

fn stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    }
}

/// The answer that a reply, without its mark, gives to a call.
pub fn answer(op: &Op, reply: &[u8]) -> Result<Reply, FsError> {
    let mut from = results(reply);
    let from = &mut from;
    let answer = match op {
        Op::Create(..) | Op::Mkdir(..) | Op::Symlink(..) => {
            granted::<Create3Res, _, _>(from).map(|made| {
                let handle = made.obj.expect("what was made has a handle");
                let attributes = made.obj_attributes.map(|seen| attributes(&handle, &seen));
                changed(&made.dir_wcc, attributes)
            })
        }
        Op::Remove(_) | Op::Rmdir(_) => {
            granted::<Setattr3Res, _, _>(from).map(|wcc| changed(&wcc, None))
        }
        Op::Rename(..) => granted::<Rename3Res, _, _>(from).map(|wcc| {
            let (from, to) = (wcc.fromdir_wcc, wcc.todir_wcc);
            match (from.before, from.after) {
                (Some(before), Some(after)) if before.ctime == after.ctime => Reply::Nothing,
                (None, _) => {
                    let until_ns = until_ns(&from).min(until_ns(&to));
                    Reply::Done { until_ns, moments_ns: Vec::new(), attributes: None }
                }
                _ => changed(&from, None),
            }
        }),
        Op::Link(..) => granted::<Link3Res, _, _>(from).map(|wcc| changed(&wcc.linkdir_wcc, None)),
        Op::Set { file, .. } => granted::<Setattr3Res, _, _>(from)
            .map(|wcc| changed(&wcc, wcc.after.map(|seen| attributes(&fh(file), &seen)))),
        Op::Write { file, cells, stability } => granted::<Write3Res, _, _>(from).map(|done| {
            let bytes: u64 = cells.iter().map(|c| c.count * CELL_BYTES).sum();
            assert_eq!(u64::from(done.count), bytes, "a WRITE is made whole");
            let seen = done.file_wcc.after.expect("attributes after a WRITE");
            assert!(done.file_wcc.before.is_some(), "attributes before a WRITE");
            let reached = match done.committed {
                StableHow::Unstable => Stability::Unstable,
                StableHow::DataSync => Stability::DataSync,
                StableHow::FileSync => Stability::FileSync,
            };
            assert!(reached >= *stability, "a WRITE is as stable as was asked for");
            Reply::Changed {
                ctime_ns: nanoseconds(seen.ctime),
                attributes: Some(attributes(&fh(file), &seen)),
                stability: reached,
                verifier: u64::from_be_bytes(done.verf),
            }
        }),
        Op::Commit { .. } => granted::<Commit3Res, _, _>(from)
            .map(|done| Reply::Committed(u64::from_be_bytes(done.verf))),
        Op::Read { .. } => granted::<Read3Res<'_>, _, _>(from)
            .map(|read| Reply::Read(read.data.bytes.to_vec(), read.head.eof)),
        Op::Getattr(node) => granted::<Getattr3Res, _, _>(from)
            .map(|seen| Reply::Attributes(attributes(&fh(node), &seen))),
        Op::Readlink(_) => {
            granted::<Readlink3Res<'_>, _, _>(from).map(|link| Reply::Text(link.data.to_vec()))
        }
        Op::Lookup(_) => granted::<Lookup3Res, _, _>(from).map(|found| {
            let seen = found.obj_attributes.expect("attributes of what was found");
            Reply::Attributes(attributes(&found.object, &seen))
        }),
        Op::List(..) => panic!("a listing is several calls"),
    };
    assert!(from.remaining().is_empty(), "{op:?}: a reply of its size");
    answer
}

/// The entries in a reply; `None` if not even one has room.
pub fn listed(reply: &[u8], plus: bool) -> Result<Option<Listed>, FsError> {
    let mut from = results(reply);
    if from.remaining().starts_with(&Nfsstat3::TooSmall.wire().to_be_bytes()) {
        return Ok(None);
    }
    let name = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut entries = Vec::new();
    let (cookie, verifier, eof) = match plus {
        true => {
            let listed = granted::<Readdirplus3Res<'_>, _, _>(&mut from)?;
            for entry in &listed.entries {
                // An entry that is gone meanwhile has only a name.
                let seen = entry.name_handle.zip(entry.name_attributes);
                let seen = seen.map(|(handle, seen)| attributes(&handle, &seen));
                entries.push((name(entry.name), seen));
            }
            (listed.entries.last().map(|last| last.cookie), listed.cookieverf, listed.eof)
        }
        false => {
            let listed = granted::<Readdir3Res<'_>, _, _>(&mut from)?;
            entries.extend(listed.entries.iter().map(|entry| (name(entry.name), None)));
            (listed.entries.last().map(|last| last.cookie), listed.cookieverf, listed.eof)
        }
    };
    assert!(eof || cookie.is_some(), "a listing goes on");
    entries.retain(|(name, _)| name != "." && name != "..");
    let next = Position { cookie: cookie.unwrap_or(0), verifier };
    Ok(Some(Listed { entries, next, eof }))
}

/// Whether to make a call again later.
pub fn is_later(answer: &Result<Reply, FsError>) -> bool {
    matches!(answer, Err(FsError::Pool(PoolError::Suspended(_))))
}

/// Whether two replies to a call sent twice are one answer. Success may be reported by the first
/// answer, or by one made from the stored entry.
pub fn agree(op: &Op, one: &[u8], other: &[u8]) -> bool {
    if one[4..] == other[4..] {
        return true;
    }
    // The new object, if the reply names it, and whether the reply comes from the stored entry.
    let made = |reply: &Result<Reply, FsError>| match reply {
        Ok(Reply::Changed { attributes, .. }) => Some((*attributes, false)),
        Ok(Reply::Done { attributes, .. }) => Some((*attributes, true)),
        _ => None,
    };
    let (one, other) = (answer(op, one), answer(op, other));
    match (made(&one), made(&other)) {
        (Some((one, is_kept)), Some((other, is_other_kept))) => {
            let (one, other) = (one.map(|seen| seen.handle), other.map(|seen| seen.handle));
            (is_kept || is_other_kept) && (one.is_none() || other.is_none() || one == other)
        }
        _ => is_later(&one) || is_later(&other),
    }
}

fn results(reply: &[u8]) -> Decoder<'_> {
    let mut from = Decoder::new(reply);
    let header = RpcReply::decode(&mut from).unwrap();
    match header.body {
        ReplyBody::Accepted { status: Accepted::Success, .. } => from,
        other => panic!("a call was refused: {other:?}"),
    }
}

trait Granted<T, F> {
    fn granted(self) -> Result<T, Nfsstat3>;
}

impl<T, F> Granted<T, F> for Res3<T, F> {
    fn granted(self) -> Result<T, Nfsstat3> {
        match self {
            Res3::Ok(done) => Ok(done),
            Res3::Fail { status, .. } => Err(status),
        }
    }
}

fn granted<'a, R: Decode<'a> + Granted<T, F>, T, F>(from: &mut Decoder<'a>) -> Result<T, FsError> {
    R::decode(from).unwrap().granted().map_err(error)
}

/// The result of a change, from the attributes around it.
fn changed(wcc: &WccData, attributes: Option<Attributes>) -> Reply {
    let until_ns = until_ns(wcc);
    match wcc.before {
        Some(_) => {
            assert!(wcc.after.is_some(), "attributes after a change");
            let (stability, verifier) = (Stability::FileSync, 0);
            Reply::Changed { ctime_ns: until_ns, attributes, stability, verifier }
        }
        // The earlier attributes are not known any more.
        None => {
            let made_ns = attributes.as_ref().map_or(u64::MAX, |made| {
                u64::try_from(made.ctime.seconds).unwrap() * 1_000_000_000
                    + u64::from(made.ctime.nanoseconds)
            });
            Reply::Done { until_ns: until_ns.min(made_ns), moments_ns: Vec::new(), attributes }
        }
    }
}

fn until_ns(wcc: &WccData) -> u64 {
    wcc.after.map_or(u64::MAX, |after| nanoseconds(after.ctime))
}

fn nanoseconds(time: Nfstime3) -> u64 {
    u64::from(time.seconds) * 1_000_000_000 + u64::from(time.nseconds)
}

fn attributes(handle: &NfsFh3, seen: &Fattr3) -> Attributes {
    let handle = FileHandle::decode(handle.bytes()).expect("a handle of ours");
    assert_eq!(seen.fileid, handle.object.0, "attributes of the object that the handle names");
    assert_eq!(seen.fsid, handle.fs_guid.0, "attributes of its file system");
    let time =
        |time: Nfstime3| Time { seconds: i64::from(time.seconds), nanoseconds: time.nseconds };
    Attributes {
        handle,
        kind: kind(seen.ftype),
        mode: seen.mode,
        nlink: seen.nlink,
        uid: seen.uid,
        gid: seen.gid,
        size: seen.size,
        used: seen.used,
        rdev: (seen.rdev.specdata1, seen.rdev.specdata2),
        atime: time(seen.atime),
        mtime: time(seen.mtime),
        ctime: time(seen.ctime),
        crtime: time(seen.ctime),
        change: 0,
    }
}

fn kind(ftype: Ftype3) -> FileKind {
    match ftype {
        Ftype3::Reg => FileKind::Regular,
        Ftype3::Dir => FileKind::Directory,
        Ftype3::Lnk => FileKind::Symlink,
        other => panic!("nobody made a {other:?}"),
    }
}

fn error(status: Nfsstat3) -> FsError {
    match status {
        Nfsstat3::NoEnt => FsError::NotFound,
        Nfsstat3::Exist => FsError::Exists,
        Nfsstat3::NotDir => FsError::NotDirectory,
        Nfsstat3::IsDir => FsError::IsDirectory,
        Nfsstat3::Inval => FsError::Invalid,
        Nfsstat3::NoSpc => FsError::NoSpace,
        Nfsstat3::Dquot => FsError::Quota,
        Nfsstat3::NotEmpty => FsError::NotEmpty,
        Nfsstat3::Stale => FsError::Stale,
        // A WRITE may have been carried out.
        Nfsstat3::Jukebox => FsError::Pool(PoolError::Suspended("JUKEBOX".into())),
        other => panic!("no call here is answered {other:?}"),
    }
}
