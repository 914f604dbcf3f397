//! WRITE (RFC 1813 section 3.3.7).
//!
//! Invariant: `committed` is at least as durable as requested, and a stable write is answered only
//! after `files` has reported it durable.

use std::pin::pin;

use aquifer_blockio::Page;
use aquifer_files::{Data, FileHandle, Piece, Stability, Written};
use aquifer_rpc::xdr::{EncodeBuf, Mark};

use crate::attributes::wcc_data;
use crate::limits::{FILE_BYTES_MAX, TRANSFER_BYTES_MAX};
use crate::proto::v3::{Args3, Nfsstat3, StableHow, WccData, Write3Args, Write3Head, Write3ResOk};

use super::request::{Fail, Promise, Request, Target, changed};
use super::silence::unless_silent;
use super::{keep, put};

/// A WRITE; its data may have been received into separate pages.
pub(crate) type Paged<'a> = (Write3Args<'a>, Option<&'a [Page]>);

/// Makes WRITEs to one file, equally stable, as one change, and waits until they may be answered: a
/// single one, or a write batch for `Files::write_batch`. Appends the results of each to its
/// buffer. Returns the status of all.
///
/// # Errors
/// The answer to a single one. With several, nothing was changed: the caller makes each by itself.
pub(crate) async fn carry_out_writes(
    request: &Request<'_>,
    writes: &[Paged<'_>],
    to: &mut [&mut EncodeBuf],
) -> Result<Nfsstat3, Fail<WccData>> {
    let object = writes.first().map(|(args, _)| &args.head.file);
    let made = pin!(write(request, writes));
    let (target, written) = unless_silent(request, object, made).await??;
    let committed = stable_how(written.stability);
    let begun: Vec<Mark> = to.iter().map(|to| to.mark()).collect();
    let verf = verifier(&target);
    let each = to.iter_mut().zip(writes).zip(&written.arounds);
    for ((to, (args, _)), around) in each {
        let (file_wcc, count) = (wcc_data(around), count(&args.head));
        put::<_, WccData>(to, Ok(Write3ResOk { file_wcc, count, committed, verf }));
    }
    Ok(keep::<Write3ResOk, WccData>(written.promised, to, &begun).await)
}

async fn write(
    request: &Request<'_>,
    writes: &[Paged<'_>],
) -> Result<(Target, Written), Fail<WccData>> {
    let Some((Write3Args { head: first, .. }, _)) = writes.first() else {
        return Err(Fail::from(Nfsstat3::Inval));
    };
    let asked = stability(first.stable);
    let pieces: Option<Vec<Piece<'_>>> = writes.iter().map(piece).collect();
    let found = request.change(&first.file);
    let found = found.and_then(|target| Ok((target, pieces.ok_or(Nfsstat3::Fbig)?)));
    let (target, pieces) = match found {
        Ok(found) => found,
        Err(status) => return Err(request.refuse(status, &first.file).await),
    };
    match target.files.write_batch(&target.cred, target.file, &pieces, asked).await {
        Ok(written) => {
            assert!(written.stability >= asked, "at least as durable as was asked for");
            Ok((target, written))
        }
        Err((error, around)) => Err(Fail::new(&error, wcc_data(&around))),
    }
}

/// Whether a call is a WRITE to `control` in `.aquifer`, whose data is not stored, but acted on.
pub(crate) fn is_order(args: &Args3<'_>) -> bool {
    let Args3::Write(Write3Args { head, .. }) = args else { return false };
    let file = FileHandle::decode(head.file.bytes());
    file.is_some_and(|file| file.controlled().is_some())
}

/// Carries out such a WRITE. What it asks for is on disk when it is answered.
pub(super) async fn order(
    request: &Request<'_>,
    args: &Write3Args<'_>,
) -> Promise<Write3ResOk, WccData> {
    let target = request.change(&args.head.file)?;
    let count = count(&args.head);
    let bytes = usize::try_from(count).unwrap_or(usize::MAX);
    // Whole pages are longer than any line.
    let data = args.data.bytes.get(..bytes).filter(|_| request.pages.is_none());
    let Some(data) = data else { return Err(Nfsstat3::Fbig.into()) };
    let file = target.file.controlled();
    let locks = file.map_or(0, |file| request.locks.count_on(file));
    let made = target.files.write_control(&target.cred, target.file, data, locks).await;
    changed(made, wcc_data, |(), file_wcc| done(&target, file_wcc, count))
}

/// The answer to such a WRITE.
pub(super) fn done(target: &Target, file_wcc: WccData, count: u32) -> Write3ResOk {
    Write3ResOk { file_wcc, count, committed: StableHow::FileSync, verf: verifier(target) }
}

/// The part of a WRITE that is written. `None` beyond the end of the largest file.
fn piece<'a>((args, pages): &Paged<'a>) -> Option<Piece<'a>> {
    let offset = args.head.offset;
    let count = count(&args.head);
    offset.checked_add(u64::from(count)).filter(|end| *end <= FILE_BYTES_MAX)?;
    let bytes = usize::try_from(count).unwrap_or(usize::MAX);
    let data = match pages {
        Some(pages) => Data::Pages(pages),
        None => Data::Bytes(args.data.bytes.get(..bytes).unwrap_or(args.data.bytes)),
    };
    Some(Piece { offset, data })
}

/// The number of bytes that a WRITE writes. A client may send more than FSINFO offers, and the
/// server may choose how many of these bytes it writes.
pub(super) fn count(head: &Write3Head) -> u32 {
    head.count.min(TRANSFER_BYTES_MAX)
}

/// `writeverf3`: the same number as COMMIT's.
pub(super) fn verifier(target: &Target) -> [u8; 8] {
    target.files.verifier().to_be_bytes()
}

fn stability(stable: StableHow) -> Stability {
    match stable {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    }
}

fn stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    }
}
