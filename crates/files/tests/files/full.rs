//! A full pool. Operations that take no more room than before always work: any number of them, one
//! after the other or at once.

use std::future::Future;

use aquifer_files::{CreateHow, FileHandle, FsError, Service, SetAttributes, SetTime, Stability};
use aquifer_sim::Rng;
use futures_util::StreamExt;
use futures_util::future::join;

use crate::bed::{Bed, make, noise, root, write};

/// Counts of refused operations and of all.
#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    of: usize,
}

impl Tally {
    fn note(&mut self, result: &Result<(), FsError>) {
        self.of += 1;
        match result {
            Ok(()) => {}
            Err(FsError::NoSpace) => self.refused += 1,
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn assert_none(&self, what: &str) {
        assert!(self.refused == 0, "{what}: {self:?}");
    }
}

/// Writes until the pool is full, at once and in smaller and smaller pieces. Returns the number of
/// pages that `file` has then.
async fn fill(service: &Service, file: FileHandle) -> u64 {
    let mut end = 0;
    for pages in [64, 16, 1] {
        for stability in [Stability::Unstable, Stability::FileSync] {
            while write(service, file, end, &noise(end, pages), stability).await.is_ok() {
                end += pages as u64;
            }
        }
    }
    end
}

async fn each_in_turn<F: Future<Output = Result<(), FsError>>>(
    calls: impl IntoIterator<Item = F>,
) -> Tally {
    let mut tally = Tally::default();
    for call in calls {
        tally.note(&call.await);
    }
    tally
}

/// Runs the calls, 32 at any time.
async fn at_once<F: Future<Output = Result<(), FsError>>>(
    calls: impl IntoIterator<Item = F>,
) -> Tally {
    let mut tally = Tally::default();
    let mut results = futures_util::stream::iter(calls).buffer_unordered(32);
    while let Some(result) = results.next().await {
        tally.note(&result);
    }
    tally
}

/// Overwrites of 1 to 4 pages each, anywhere below `pages`.
fn overwrites<'a>(
    service: &'a Service,
    (file, pages): (FileHandle, u64),
    (seed, count): (u64, u64),
) -> impl Iterator<Item = impl Future<Output = Result<(), FsError>> + 'a> {
    let mut rng = Rng::stream(seed, "overwrites");
    (0..count).map(move |at| {
        let page = rng.below(pages - 4);
        let stability = if rng.coin() { Stability::FileSync } else { Stability::Unstable };
        let data = noise(seed * 100_000 + at, 1 + rng.below(4) as usize);
        async move { write(service, file, page, &data, stability).await }
    })
}

fn set_attributes<'a>(
    service: &'a Service,
    files: &'a [FileHandle],
) -> impl Iterator<Item = impl Future<Output = Result<(), FsError>> + 'a> {
    (0..600u32).zip(files.iter().cycle()).map(move |(at, file)| {
        let none = SetAttributes::default();
        let set = match at % 3 {
            0 => SetAttributes { mode: Some(at % 512), ..none },
            1 => SetAttributes { uid: Some(at), gid: Some(at), ..none },
            _ => SetAttributes { atime: SetTime::Now, mtime: SetTime::Now, ..none },
        };
        async move { service.files.setattr(&root(), *file, &set, None).await.kept().await.0 }
    })
}

/// A full pool with a large file (and its number of pages) and 200 small ones.
pub async fn full(service: &Service) -> ((FileHandle, u64), Vec<FileHandle>) {
    let top = service.files.root("tank").unwrap();
    let large = make(service, top, "large").await;
    let mut small = Vec::new();
    for at in 0..200 {
        let file = make(service, top, &format!("small-{at}")).await;
        write(service, file, 0, &noise(at, 4), Stability::FileSync).await.unwrap();
        small.push(file);
    }
    let pages = fill(service, large).await;
    ((large, pages), small)
}

fn on_full_pools(work: impl AsyncFn(&Service, (FileHandle, u64), Vec<FileHandle>)) {
    for sides in [1, 2] {
        let mut bed = Bed::new(sides, 65536);
        bed.life(async |service| {
            let (large, small) = full(&service).await;
            work(&service, large, small).await;
        });
        bed.assert_clean();
    }
}

#[test]
fn what_is_allocated_is_overwritten() {
    on_full_pools(async |service, large, _| {
        let begun = service.pool.committed_txg().0;
        each_in_turn(overwrites(service, large, (1, 300))).await.assert_none("in turn");
        // Fewer than one commit for each overwrite: a guest would wait for all of them.
        let commits = service.pool.committed_txg().0 - begun;
        assert!(commits < 150, "{commits} commits");
        at_once(overwrites(service, large, (2, 3000))).await.assert_none("at once");
        // Overwrites of data that was written a moment ago.
        let few = (large.0, 40);
        at_once(overwrites(service, few, (3, 1000))).await.assert_none("the same at once");
    });
}

/// A write that begins in allocated pages and ends beyond them needs room.
#[test]
fn what_goes_beyond_is_refused() {
    on_full_pools(async |service, _, small| {
        let beyond = small.iter().map(|file| async move {
            let (offset, data) = (4 * 4096 - 2048, noise(7, 1));
            let how = Stability::Unstable;
            service.files.write(&root(), *file, offset, &data, how).await.0.map(drop)
        });
        let tally = at_once(beyond).await;
        assert_eq!(tally.refused, tally.of);
    });
}

#[test]
pub fn attributes_are_set() {
    on_full_pools(async |service, large, small| {
        each_in_turn(set_attributes(service, &small)).await.assert_none("in turn");
        at_once(set_attributes(service, &small)).await.assert_none("at once");
        let both = async || {
            let sets = at_once(set_attributes(service, &small));
            let overwrites = at_once(overwrites(service, large, (1, 1000)));
            let (sets, overwrites) = join(sets, overwrites).await;
            sets.assert_none("SETATTR beside overwrites");
            overwrites.assert_none("overwrites beside SETATTR");
        };
        both().await;
    });
}

#[test]
fn files_are_cut_and_removed() {
    on_full_pools(async |service, large, small| {
        let cut = |size: u64| {
            small.iter().map(move |file| async move {
                let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                service.files.setattr(&root(), *file, &set, None).await.kept().await.0
            })
        };
        at_once(cut(10_000)).await.assert_none("cut at once");
        each_in_turn(cut(5_000)).await.assert_none("cut in turn");
        let top = service.files.root("tank").unwrap();
        let remove = |at: usize| async move {
            service
                .files
                .remove(&root(), top, format!("small-{at}").as_bytes())
                .await
                .kept()
                .await
                .0
        };
        each_in_turn((0..100).map(remove)).await.assert_none("removed in turn");
        let overwritten = at_once(overwrites(service, large, (1, 1000)));
        let removed = at_once((100..200).map(remove));
        let (removed, overwritten) = join(removed, overwritten).await;
        removed.assert_none("removed at once");
        overwritten.assert_none("overwrites beside removals");
    });
}

/// Refused writers that need new room take nothing away from those that need none.
#[test]
fn what_needs_no_room_goes_on_beside_what_does() {
    on_full_pools(async |service, large, small| {
        let top = service.files.root("tank").unwrap();
        let greedy = async |end: u64| {
            let mut refused = 0;
            for at in 0..50 {
                let data = noise(at, 16);
                let more = write(service, large.0, end + at * 16, &data, Stability::Unstable).await;
                let how = CreateHow::Guarded(SetAttributes::default());
                let name = format!("new-{end}-{at}");
                let made =
                    service.files.create(&root(), top, name.as_bytes(), how).await.kept().await.0;
                refused += usize::from(more == Err(FsError::NoSpace));
                refused += usize::from(made == Err(FsError::NoSpace));
            }
            refused
        };
        let begun = service.pool.committed_txg().0;
        let modest = async {
            at_once(overwrites(service, large, (1, 2000))).await.assert_none("overwrites");
            at_once(set_attributes(service, &small)).await.assert_none("SETATTR");
        };
        let greedy = join(greedy(large.1), greedy(large.1 + 10_000));
        let ((), refused) = join(modest, greedy).await;
        assert!(refused.0 > 50 && refused.1 > 50, "{refused:?}");
        let commits = service.pool.committed_txg().0 - begun;
        assert!(commits < 3000, "{commits} commits");
    });
}

/// Data that was written when there was room is overwritten when there is none, before and after it
/// is on disk.
#[test]
fn what_was_just_written_is_overwritten() {
    on_full_pools(async |service, large, _| {
        let top = service.files.root("tank").unwrap();
        for round in 0..10u64 {
            let name = format!("small-{round}");
            service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
            // Into the room that is left, and beyond.
            let first = large.1 + round * 100;
            let calls = (0..40u64).map(|at| {
                let (data, page) = (noise(round * 100 + at, 1), first + at);
                async move {
                    write(service, large.0, page, &data, Stability::Unstable).await?;
                    let again = noise(round * 1000 + at, 1);
                    let again = write(service, large.0, page, &again, Stability::FileSync).await;
                    assert_eq!(again, Ok(()), "page {page} was there");
                    Ok(())
                }
            });
            at_once(calls).await;
        }
    });
}

/// Overwriting compressed data frees less than the new data takes.
#[test]
fn what_was_compressed_needs_room() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "file").await;
        let half = |seed: u64| {
            let mut data = noise(seed, 64);
            data.chunks_mut(4096).for_each(|page| page[2000..].fill(7));
            data
        };
        let mut end = 0;
        while write(&service, file, end, &half(end), Stability::Unstable).await.is_ok() {
            end += 64;
        }
        let refused = at_once(overwrites(&service, (file, end), (1, 300))).await.refused;
        assert!(refused > 200, "{refused}");
        let files = [file];
        at_once(set_attributes(&service, &files)).await.assert_none("SETATTR");
        service.files.remove(&root(), top, b"file").await.kept().await.0.unwrap();
        let again = make(&service, top, "again").await;
        write(&service, again, 0, &noise(1, 1000), Stability::Unstable).await.unwrap();
    });
    bed.assert_clean();
}

/// Trees grow while long extents are overwritten page by page, but not into the reserve for
/// removals.
#[test]
fn overwrites_without_end_leave_room_for_removals() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let ((file, pages), small) = full(&service).await;
        let mut rng = Rng::stream(1, "pages");
        let calls = (0..40_000u64).map(|at| {
            let (page, data) = (rng.below(pages), noise(at, 1));
            let service = &service;
            async move { write(service, file, page, &data, Stability::Unstable).await }
        });
        at_once(calls).await.assert_none("overwrites");
        at_once(set_attributes(&service, &small)).await.assert_none("SETATTR");
        let top = service.files.root("tank").unwrap();
        service.files.remove(&root(), top, b"large").await.kept().await.0.unwrap();
        make(&service, top, "new").await;
    });
    bed.assert_clean();
}
