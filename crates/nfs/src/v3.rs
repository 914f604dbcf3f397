//! The procedures of NFSv3 (RFC 1813 section 3.3), one per file, in their order.
//!
//! Each takes the same path. [`Request::look`] or [`Request::change`] turns the handle into a file
//! and the caller's credentials under its export. Names are checked, and one function of `files`
//! does the work. The procedure then puts the result into the protocol's terms. NULL has no file:
//! it does nothing.
//!
//! Invariants:
//! - Every change of names or attributes goes through [`once`], and so does a WRITE that is an
//!   order.
//! - Nothing is done for a handle that was not admitted, and nothing is changed through a read-only
//!   export.
//! - A status other than OK comes from the table in [`crate::status`], from the rules of names in
//!   [`names`], or from the limits that FSINFO and PATHCONF report.

mod access;
mod commit;
mod create;
mod fsinfo;
mod fsstat;
mod getattr;
mod link;
mod lookup;
mod mkdir;
mod mknod;
mod names;
mod once;
mod pathconf;
mod read;
mod readdir;
mod readdirplus;
mod readlink;
mod remove;
mod rename;
mod request;
mod rmdir;
mod setattr;
mod silence;
mod symlink;
mod write;

use std::future::Future;
use std::pin::{Pin, pin};

use aquifer_files::Promised;
use aquifer_rpc::xdr::{Encode, EncodeBuf, Mark};

use crate::proto::v3::{Args3, Nfsstat3, Procedure3, Res3, Write3ResOk};
use crate::status::nfsstat3;

pub(crate) use names::to_look_up;
pub(crate) use once::{Unsettled, call_id, carry_out_once, is_once};
use request::{Fail, Promise, Unknown};
pub(crate) use request::{Outcome, Request};
use silence::{fail, object_of, unless_silent};
pub(crate) use write::{Paged, carry_out_writes, is_order};

/// Carries out one call and appends its results. Returns the status and the number of content bytes
/// that were moved, for the counters.
///
/// Futures of procedures that are rare beside reads and writes are boxed: every call pays for the
/// size of this future, which is moved when it begins.
pub(crate) async fn carry_out(
    request: &Request<'_>,
    args: &Args3<'_>,
    to: &mut EncodeBuf,
) -> (Nfsstat3, u32) {
    match args {
        Args3::Null => (Nfsstat3::Ok, 0),
        Args3::Write(args) => {
            let writes = [(*args, request.pages)];
            match write::carry_out_writes(request, &writes, &mut [&mut *to]).await {
                Ok(Nfsstat3::Ok) => (Nfsstat3::Ok, write::count(&args.head)),
                Ok(status) => (status, 0),
                Err(fail) => (put::<Write3ResOk, _>(to, Err(fail)), 0),
            }
        }
        args if args.procedure() == Procedure3::Commit || is_once(args.procedure()) => {
            (change(request, args, to).await, 0)
        }
        _ => {
            let begun = to.mark();
            let shown = {
                let shown = pin!(show(request, args, to));
                unless_silent(request, object_of(args), shown).await
            };
            match shown {
                Ok(shown) => shown,
                Err(status) => {
                    to.truncate(begun);
                    (fail(args, status, to), 0)
                }
            }
        }
    }
}

/// Carries out a call that changes something, other than a WRITE of data.
async fn change(request: &Request<'_>, args: &Args3<'_>, to: &mut EncodeBuf) -> Nfsstat3 {
    let whole = (request, args);
    match args {
        Args3::Setattr(args) => {
            put_kept(whole, to, Box::pin(setattr::setattr(request, args))).await
        }
        Args3::Create(args) => put_kept(whole, to, Box::pin(create::create(request, args))).await,
        Args3::Mkdir(args) => put_kept(whole, to, Box::pin(mkdir::mkdir(request, args))).await,
        Args3::Symlink(args) => {
            put_kept(whole, to, Box::pin(symlink::symlink(request, args))).await
        }
        Args3::Mknod(args) => put_kept(whole, to, Box::pin(mknod::mknod(request, args))).await,
        Args3::Remove(args) => put_kept(whole, to, Box::pin(remove::remove(request, args))).await,
        Args3::Rmdir(args) => put_kept(whole, to, Box::pin(rmdir::rmdir(request, args))).await,
        Args3::Rename(args) => put_kept(whole, to, Box::pin(rename::rename(request, args))).await,
        Args3::Link(args) => put_kept(whole, to, Box::pin(link::link(request, args))).await,
        Args3::Commit(args) => put_kept(whole, to, Box::pin(commit::commit(request, args))).await,
        Args3::Write(args) => put_kept(whole, to, Box::pin(write::order(request, args))).await,
        _ => fail(args, Nfsstat3::ServerFault, to),
    }
}

/// Carries out a call that changes nothing.
async fn show(request: &Request<'_>, args: &Args3<'_>, to: &mut EncodeBuf) -> (Nfsstat3, u32) {
    let status = match args {
        Args3::Getattr(args) => put(to, getattr::getattr(request, args).await),
        Args3::Lookup(args) => put(to, lookup::lookup(request, args).await),
        Args3::Access(args) => put(to, access::access(request, args).await),
        Args3::Readlink(args) => Box::pin(readlink::readlink(request, args, to)).await,
        Args3::Read(args) => return read::read(request, args, to).await,
        Args3::Readdir(args) => Box::pin(readdir::readdir(request, args, to)).await,
        Args3::Readdirplus(args) => Box::pin(readdirplus::readdirplus(request, args, to)).await,
        Args3::Fsstat(args) => put(to, fsstat::fsstat(request, args).await),
        Args3::Fsinfo(args) => put(to, fsinfo::fsinfo(request, args).await),
        Args3::Pathconf(args) => put(to, pathconf::pathconf(request, args).await),
        _ => fail(args, Nfsstat3::ServerFault, to),
    };
    (status, 0)
}

pub(crate) fn put<T: Encode, F: Encode>(to: &mut EncodeBuf, outcome: Outcome<T, F>) -> Nfsstat3 {
    let res = match outcome {
        Ok(resok) => Res3::Ok(resok),
        Err(fail) => Res3::Fail { status: fail.status, resfail: fail.resfail },
    };
    to.put(&res);
    res.status()
}

/// Makes a change, appends its answer, and waits until that may be sent.
async fn put_kept<T: Encode, F: Encode + Unknown>(
    (request, args): (&Request<'_>, &Args3<'_>),
    to: &mut EncodeBuf,
    mut change: Pin<Box<impl Future<Output = Promise<T, F>> + Send>>,
) -> Nfsstat3 {
    let begun = to.mark();
    let made = match unless_silent(request, object_of(args), change.as_mut()).await {
        Ok(made) => made,
        Err(status) => return fail(args, status, to),
    };
    match made {
        Ok((resok, promised)) => {
            put::<T, F>(to, Ok(resok));
            keep::<T, F>(promised, &mut [to], &[begun]).await
        }
        Err(fail) => put::<T, F>(to, Err(fail)),
    }
}

/// The one place where answers wait for the intent log. Each is already in its buffer, from `begun`
/// on: it was encoded while the disks write. If the answers may not be given, an error replaces
/// each. Returns the status of all.
async fn keep<T: Encode, F: Encode + Unknown>(
    promised: Promised,
    to: &mut [&mut EncodeBuf],
    begun: &[Mark],
) -> Nfsstat3 {
    let Err(error) = promised.kept_or_silent().await else { return Nfsstat3::Ok };
    let status = nfsstat3(&error);
    for (to, begun) in to.iter_mut().zip(begun) {
        to.truncate(*begun);
        put::<T, F>(to, Err(Fail::from(status)));
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BOXED_BYTES_MAX;

    fn bytes_of<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    fn bytes_of_listing<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// The caller charges this much for each call.
    #[test]
    fn boxed_futures_are_no_larger_than_is_said() {
        let sizes = [
            bytes_of(setattr::setattr),
            bytes_of(create::create),
            bytes_of(mkdir::mkdir),
            bytes_of(symlink::symlink),
            bytes_of(mknod::mknod),
            bytes_of(remove::remove),
            bytes_of(rmdir::rmdir),
            bytes_of(rename::rename),
            bytes_of(link::link),
            bytes_of(commit::commit),
            bytes_of(write::order),
            bytes_of_listing(readlink::readlink),
            bytes_of_listing(readdir::readdir),
            bytes_of_listing(readdirplus::readdirplus),
        ];
        assert!(sizes.iter().all(|bytes| *bytes <= BOXED_BYTES_MAX), "{sizes:?}");
    }
}
