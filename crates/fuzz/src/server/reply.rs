//! Checks of replies, and the knowledge that they give.

use aquifer_nfs::limits::TRANSFER_BYTES_MAX;
use aquifer_nfs::proto::v3::{
    Access3Res, Args3, Commit3Res, Create3Res, Fsinfo3Res, Fsstat3Res, Getattr3Res, Link3Res,
    Lookup3Res, PROGRAM, Pathconf3Res, Procedure3, Read3Res, Readdir3Res, Readdirplus3Res,
    Readlink3Res, Rename3Res, Res3, Setattr3Res, Write3Res,
};
use aquifer_rpc::message::{Accepted, Call, Reply, ReplyBody};
use aquifer_rpc::xdr::{Decode, Decoder};

use super::call::Known;

/// Checks that a reply begins with a valid header, whatever it contains.
pub fn header(reply: &[u8]) {
    Reply::decode(&mut Decoder::new(reply)).unwrap();
}

/// The results of a call that was carried out.
pub fn results(reply: &[u8]) -> Option<Decoder<'_>> {
    let mut from = Decoder::new(reply);
    match Reply::decode(&mut from).unwrap().body {
        ReplyBody::Accepted { status: Accepted::Success, .. } => Some(from),
        _ => None,
    }
}

/// Checks the reply to the NFSv3 call in `record`, and remembers its handles and cookies. Returns
/// whether the call changed a name or an attribute.
pub fn check(record: &[u8], reply: &[u8], known: &mut Known) -> bool {
    let mut asked = Decoder::new(record);
    let Ok(call) = Call::decode(&mut asked) else { return false };
    let Some(mut from) = results(reply) else { return false };
    if call.program != PROGRAM {
        return false;
    }
    let succeeded = from.remaining().starts_with(&[0; STATUS_BYTES]);
    let procedure = Procedure3::from_wire(call.procedure).unwrap();
    let args = Args3::decode(procedure, &mut asked).unwrap();
    let results = from.remaining().len();
    match args {
        Args3::Read(args) => read(args.count, &mut from),
        Args3::Write(args) => write(args.head.count, &mut from),
        Args3::Readdir(args) => {
            if let Res3::Ok(listed) = of::<Readdir3Res<'_>>(&mut from) {
                assert!(results - STATUS_BYTES <= usize::try_from(args.count).unwrap());
                assert!(listed.eof || !listed.entries.is_empty(), "a listing goes on");
                listed.entries.iter().for_each(|entry| known.cookie(entry.cookie));
            }
        }
        Args3::Readdirplus(args) => {
            if let Res3::Ok(listed) = of::<Readdirplus3Res<'_>>(&mut from) {
                assert!(results - STATUS_BYTES <= usize::try_from(args.maxcount).unwrap());
                assert!(listed.eof || !listed.entries.is_empty(), "a listing goes on");
                for entry in &listed.entries {
                    known.cookie(entry.cookie);
                    entry.name_handle.into_iter().for_each(|handle| known.handle(handle));
                }
            }
        }
        Args3::Lookup(_) => {
            if let Res3::Ok(found) = of::<Lookup3Res>(&mut from) {
                known.handle(found.object);
            }
        }
        Args3::Create(_) | Args3::Mkdir(_) | Args3::Symlink(_) | Args3::Mknod(_) => {
            if let Res3::Ok(made) = of::<Create3Res>(&mut from) {
                made.obj.into_iter().for_each(|handle| known.handle(handle));
            }
        }
        other => form(&other, &mut from),
    }
    assert!(from.remaining().is_empty(), "{procedure:?}: {} bytes more", from.remaining().len());
    succeeded && changes(procedure)
}

/// RFC 1813 section 4.5: procedures that must not run twice.
fn changes(procedure: Procedure3) -> bool {
    use Procedure3::{Create, Link, Mkdir, Mknod, Remove, Rename, Rmdir, Setattr, Symlink};
    let once = [Setattr, Create, Mkdir, Symlink, Mknod, Remove, Rmdir, Rename, Link];
    once.contains(&procedure)
}

fn read(count: u32, from: &mut Decoder<'_>) {
    if let Res3::Ok(read) = of::<Read3Res<'_>>(from) {
        let most = usize::try_from(count.min(TRANSFER_BYTES_MAX)).unwrap();
        assert!(read.data.len() <= most, "{} bytes read, {count} asked for", read.data.len());
        assert!(read.head.eof || count == 0 || !read.data.is_empty(), "a READ goes on");
    }
}

fn write(count: u32, from: &mut Decoder<'_>) {
    if let Res3::Ok(written) = of::<Write3Res>(from) {
        assert!(written.count == count.min(TRANSFER_BYTES_MAX), "{} of {count}", written.count);
    }
}

/// Checks results that only need to be well formed.
fn form(args: &Args3<'_>, from: &mut Decoder<'_>) {
    match args {
        Args3::Getattr(_) => drop(of::<Getattr3Res>(from)),
        Args3::Access(_) => drop(of::<Access3Res>(from)),
        Args3::Readlink(_) => drop(of::<Readlink3Res<'_>>(from)),
        Args3::Setattr(_) | Args3::Remove(_) | Args3::Rmdir(_) => drop(of::<Setattr3Res>(from)),
        Args3::Rename(_) => drop(of::<Rename3Res>(from)),
        Args3::Link(_) => drop(of::<Link3Res>(from)),
        Args3::Fsstat(_) => drop(of::<Fsstat3Res>(from)),
        Args3::Fsinfo(_) => drop(of::<Fsinfo3Res>(from)),
        Args3::Pathconf(_) => drop(of::<Pathconf3Res>(from)),
        Args3::Commit(_) => drop(of::<Commit3Res>(from)),
        _ => {}
    }
}

fn of<'a, T: Decode<'a>>(from: &mut Decoder<'a>) -> T {
    T::decode(from).unwrap()
}

const STATUS_BYTES: usize = 4;
