//! WRITE (RFC 1813 section 3.3.7).
//!
//! Invariant: `committed` is never less than was asked for, and nothing stable is answered before
//! `files` has said that it is.

use aquifer_blockio::Page;
use aquifer_files::{Around, FsError, Stability};

use crate::attributes::wcc_data;
use crate::limits::{FILE_BYTES_MAX, TRANSFER_BYTES_MAX};
use crate::proto::v3::{Nfsstat3, StableHow, WccData, Write3Args, Write3Head, Write3ResOk};

use super::request::{Fail, Outcome, Request, Target, changed};

pub(super) async fn write(
    request: &Request<'_>,
    args: &Write3Args<'_>,
) -> Outcome<Write3ResOk, WccData> {
    let head = &args.head;
    // More than FSINFO offers is legal to send; what is written of it is legal to choose.
    let count = head.count.min(TRANSFER_BYTES_MAX);
    let target = match request.change(&head.file).and_then(|target| {
        let fits =
            head.offset.checked_add(u64::from(count)).is_some_and(|end| end <= FILE_BYTES_MAX);
        if fits { Ok(target) } else { Err(Nfsstat3::Fbig) }
    }) {
        Ok(target) => target,
        Err(status) => return Err(request.refuse(status, &head.file).await),
    };
    let bytes = usize::try_from(count).unwrap_or(usize::MAX);
    let data = args.data.bytes.get(..bytes).unwrap_or(args.data.bytes);
    let asked = stability(head.stable);
    let (files, cred, offset) = (&target.files, &target.cred, head.offset);
    let written = match request.pages {
        Some(pages) => files.write_pages(cred, target.file, offset, pages, asked).await,
        None => files.write(cred, target.file, offset, data, asked).await,
    };
    answer(&target, count, asked, written)
}

/// Several WRITEs that were made as one change.
pub(crate) struct Together {
    target: Target,
    asked: Stability,
    made: aquifer_files::Together,
}

/// Makes several WRITEs of whole pages to one file, equally stable, as one change. `None` if they
/// must be made one by one: nothing was changed.
pub(crate) async fn write_together(
    request: &Request<'_>,
    writes: &[(Write3Head, &[Page])],
) -> Option<Together> {
    let (first, _) = writes.first()?;
    let target = request.change(&first.file).ok()?;
    let asked = stability(first.stable);
    let pieces: Vec<(u64, &[Page])> =
        writes.iter().map(|(head, pages)| (head.offset, *pages)).collect();
    let (files, cred) = (&target.files, &target.cred);
    let made = files.write_together(cred, target.file, &pieces, asked).await?;
    Some(Together { target, asked, made })
}

impl Together {
    /// What each, of so many bytes, is answered once all of them are [kept](Together::kept).
    pub fn answers(
        &self,
        counts: impl IntoIterator<Item = u32>,
    ) -> impl Iterator<Item = Outcome<Write3ResOk, WccData>> {
        let reached = self.made.stability();
        counts.into_iter().zip(&self.made.arounds).map(move |(count, around)| {
            answer(&self.target, count, self.asked, (Ok(reached), *around))
        })
    }

    /// Waits until they may be answered; if they never may, what is answered to each.
    pub async fn kept(&self) -> Result<(), Fail<WccData>> {
        let kept = self.target.files.keep_together(&self.made).await;
        kept.map_err(|(error, around)| Fail::new(&error, wcc_data(&around)))
    }
}

/// What a WRITE of `count` bytes is answered.
fn answer(
    target: &Target,
    count: u32,
    asked: Stability,
    written: (Result<Stability, FsError>, Around),
) -> Outcome<Write3ResOk, WccData> {
    changed(written, |reached, file_wcc| {
        assert!(reached >= asked, "a write is at least as durable as was asked for");
        Write3ResOk { file_wcc, count, committed: stable_how(reached), verf: verifier(target) }
    })
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
