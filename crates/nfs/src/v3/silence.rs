//! Calls to a pool whose disks do not answer ([`aquifer_pool::Pool::is_silent`]).
//!
//! What is in memory is read. A change does not begin, and a call that waits for the disks waits no
//! more: the client hears "later". A change that was made by then, and waits for its record, is the
//! business of [`super::keep`] and [`super::once`].

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use crate::proto::v3::{Args3, LinkWcc, NfsFh3, Nfsstat3, PostOpAttr, RenameWcc, WccData};

use super::put;
use super::request::{Fail, Request};
use aquifer_rpc::xdr::EncodeBuf;

/// Carries out a part of a call on `object`, unless the disks of its pool are silent while it waits
/// for something. The part may be dropped halfway, as with a lost connection.
///
/// # Errors
/// [`Nfsstat3::Jukebox`]; what was begun may have been done.
pub(super) async fn unless_silent<T>(
    request: &Request<'_>,
    object: Option<&NfsFh3>,
    mut part: Pin<&mut (impl Future<Output = T> + Send)>,
) -> Result<T, Nfsstat3> {
    let mut silence: Option<Pin<Box<dyn Future<Output = ()> + Send>>> = None;
    poll_fn(|context| {
        if let Poll::Ready(done) = part.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        // Most calls end at once, and never ask.
        let silence = silence.get_or_insert_with(|| {
            match object.and_then(|object| request.look(object).ok()) {
                Some(target) => Box::pin(async move { target.files.silence().await }),
                None => Box::pin(pending()),
            }
        });
        silence.as_mut().poll(context).map(|()| Err(Nfsstat3::Jukebox))
    })
    .await
}

/// The object that a call is about. Of two directories it is the first: both are in one pool, or
/// the call fails.
pub(super) fn object_of<'a>(args: &'a Args3<'_>) -> Option<&'a NfsFh3> {
    Some(match args {
        Args3::Null => return None,
        Args3::Getattr(args) | Args3::Readlink(args) => &args.object,
        Args3::Fsstat(args) | Args3::Fsinfo(args) | Args3::Pathconf(args) => &args.object,
        Args3::Setattr(args) => &args.object,
        Args3::Access(args) => &args.object,
        Args3::Lookup(args) | Args3::Remove(args) | Args3::Rmdir(args) => &args.dir,
        Args3::Read(args) => &args.file,
        Args3::Write(args) => &args.head.file,
        Args3::Create(args) => &args.place.dir,
        Args3::Mkdir(args) => &args.place.dir,
        Args3::Symlink(args) => &args.place.dir,
        Args3::Mknod(args) => &args.place.dir,
        Args3::Rename(args) => &args.from.dir,
        Args3::Link(args) => &args.file,
        Args3::Readdir(args) => &args.dir,
        Args3::Readdirplus(args) => &args.dir,
        Args3::Commit(args) => &args.file,
    })
}

/// Answers a call with an error, without any attributes.
pub(super) fn fail(args: &Args3<'_>, status: Nfsstat3, to: &mut EncodeBuf) -> Nfsstat3 {
    match args {
        Args3::Null | Args3::Getattr(_) => put::<(), ()>(to, Err(Fail::from(status))),
        Args3::Rename(_) => put::<(), RenameWcc>(to, Err(Fail::from(status))),
        Args3::Link(_) => put::<(), LinkWcc>(to, Err(Fail::from(status))),
        Args3::Setattr(_)
        | Args3::Write(_)
        | Args3::Create(_)
        | Args3::Mkdir(_)
        | Args3::Symlink(_)
        | Args3::Mknod(_)
        | Args3::Remove(_)
        | Args3::Rmdir(_)
        | Args3::Commit(_) => put::<(), WccData>(to, Err(Fail::from(status))),
        Args3::Lookup(_)
        | Args3::Access(_)
        | Args3::Readlink(_)
        | Args3::Read(_)
        | Args3::Readdir(_)
        | Args3::Readdirplus(_)
        | Args3::Fsstat(_)
        | Args3::Fsinfo(_)
        | Args3::Pathconf(_) => put::<(), PostOpAttr>(to, Err(Fail::from(status))),
    }
}
