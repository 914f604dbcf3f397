//! The promises of `Disk`, on image files and loop devices, through both engines.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::{Medium, below, expect, media, on_all, page, pages, random, runtime};
use aquifer_blockio::{Access, Disk, DiskError, Engine, FileDisk, OpenOptions};

/// 16 MiB.
const SECTORS: u64 = 4096;

#[test]
fn random_operations_agree_with_a_model() {
    for seed in 0..3 {
        on_all(SECTORS, |disk| runtime().block_on(against_model(&*disk, seed)));
    }
}

/// `None`: discarded, may hold anything.
type Model = HashMap<u64, Option<u64>>;

async fn against_model(disk: &dyn Disk, seed: u64) {
    println!("seed {seed}");
    let mut random = random(seed);
    let mut model = Model::new();
    for version in 1..300 {
        // Mostly small; now and then larger than one system call can move.
        let longest = [1, 4, 64, 1500][usize::try_from(below(&mut random, 4)).unwrap()];
        let count = 1 + below(&mut random, longest);
        let sector = below(&mut random, SECTORS - count + 1);
        let range = sector..sector + count;
        match below(&mut random, 8) {
            0..3 => {
                disk.write(sector, pages(sector, count, version)).await.unwrap();
                model.extend(range.map(|at| (at, Some(version))));
            }
            3 => {
                disk.write_durable(sector, pages(sector, count, version)).await.unwrap();
                model.extend(range.map(|at| (at, Some(version))));
            }
            4 => disk.flush().await.unwrap(),
            5 => {
                disk.discard(sector, count).await.unwrap();
                model.extend(range.map(|at| (at, None)));
            }
            _ => check(disk, &model, sector, count).await,
        }
    }
    check(disk, &model, 0, SECTORS).await;
}

async fn check(disk: &dyn Disk, model: &Model, sector: u64, count: u64) {
    let found = disk.read(sector, usize::try_from(count).unwrap()).await.unwrap();
    assert_eq!(found.len() as u64, count);
    for (at, found) in (sector..).zip(found) {
        if let Some(Some(version)) = model.get(&at) {
            assert!(*found == *page(at, *version), "sector {at}, version {version}");
        }
    }
}

#[test]
fn far_more_operations_than_the_ring_holds() {
    on_all(SECTORS, |disk| {
        runtime().block_on(async {
            // Each sector is one operation: 4096 at once, eight times the kernel's limit here.
            let writes: Vec<_> = (0..SECTORS)
                .map(|at| {
                    let disk = Arc::clone(&disk);
                    tokio::spawn(async move { disk.write(at, vec![page(at, 7)]).await })
                })
                .collect();
            for write in writes {
                write.await.unwrap().unwrap();
            }
            let reads: Vec<_> = (0..SECTORS)
                .map(|at| {
                    let disk = Arc::clone(&disk);
                    tokio::spawn(async move { expect(&*disk, at, 1, 7).await })
                })
                .collect();
            for read in reads {
                read.await.unwrap();
            }
        });
    });
}

#[test]
fn concurrent_tasks_of_a_multi_thread_runtime_do_not_disturb_each_other() {
    const TASKS: u64 = 16;
    on_all(SECTORS, |disk| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(3).enable_all().build().unwrap().block_on(async {
            let share = SECTORS / TASKS;
            let tasks: Vec<_> = (0..TASKS)
                .map(|task| {
                    let disk = Arc::clone(&disk);
                    tokio::spawn(async move {
                        for round in 0..20 {
                            let (start, version) = (task * share, task * 100 + round);
                            disk.write(start, pages(start, share / 2, version)).await.unwrap();
                            if round % 5 == 0 {
                                disk.flush().await.unwrap();
                            }
                            tokio::task::yield_now().await;
                            expect(&*disk, start, share / 2, version).await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

#[test]
fn the_edges_of_the_disk() {
    on_all(SECTORS, |disk| {
        runtime().block_on(async {
            assert_eq!(disk.sectors(), SECTORS);
            for sector in [0, SECTORS - 1] {
                disk.write(sector, vec![page(sector, 1)]).await.unwrap();
                expect(&*disk, sector, 1, 1).await;
            }
            disk.write(0, pages(0, SECTORS, 2)).await.unwrap();
            expect(&*disk, 0, SECTORS, 2).await;
            for (sector, count) in [(SECTORS, 1), (SECTORS - 1, 2), (u64::MAX, 1), (u64::MAX, 0)] {
                let outside = DiskError::OutOfRange { sector, count, sectors: SECTORS };
                let length = usize::try_from(count).unwrap();
                assert_eq!(disk.read(sector, length).await.unwrap_err(), outside);
                let content = || vec![page(0, 0); length];
                assert_eq!(disk.write(sector, content()).await.unwrap_err(), outside);
                assert_eq!(disk.write_durable(sector, content()).await.unwrap_err(), outside);
                assert_eq!(disk.discard(sector, count).await.unwrap_err(), outside);
            }
            // Refused before it takes memory.
            assert!(disk.read(1, usize::MAX).await.is_err());
            // An empty range at the end is within the disk.
            assert!(disk.read(SECTORS, 0).await.unwrap().is_empty());
            disk.write(SECTORS, Vec::new()).await.unwrap();
            disk.write_durable(SECTORS, Vec::new()).await.unwrap();
            disk.discard(SECTORS, 0).await.unwrap();
            expect(&*disk, 0, SECTORS, 2).await;
        });
    });
}

/// Polls `future` once, outside of its usual task.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn dropped_operations_are_carried_out_and_unpolled_ones_are_not() {
    on_all(SECTORS, |disk| {
        runtime().block_on(async {
            disk.write(0, pages(0, SECTORS, 1)).await.unwrap();
            for sector in 0..64 {
                let mut write = disk.write(sector, vec![page(sector, 2)]);
                // Blocking calls may be done by now; a ring answers later.
                let _ = poll_once(&mut write);
                drop(write);
                let mut read = disk.read(64, 32);
                let _ = poll_once(&mut read);
                drop(disk.write(sector + 100, vec![page(0, 3)]));
            }
            // Their memory is reused at once.
            let reused: Vec<_> = (0..256).map(|at| page(at, 4)).collect();
            for sector in 0..64 {
                let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
                while *disk.read(sector, 1).await.unwrap()[0] != *page(sector, 2) {
                    assert!(tokio::time::Instant::now() < deadline, "sector {sector} never came");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            expect(&*disk, 64, SECTORS - 64, 1).await;
            drop(reused);
        });
    });
}

#[test]
fn a_runtime_that_ends_leaves_nothing_undone_on_the_ring() {
    for medium in media(SECTORS) {
        let disk = medium.open(Engine::Uring);
        for version in 1..20 {
            runtime().block_on(async {
                for at in 0..64 {
                    let mut write = disk.write(at * 8, pages(at * 8, 8, version));
                    assert!(poll_once(&mut write).is_pending());
                }
            });
            // The runtime is gone, and with it the ring; another one reads.
            runtime().block_on(expect(&*disk, 0, 512, version));
        }
    }
}

#[test]
fn a_future_may_be_polled_to_its_end_elsewhere() {
    for medium in media(SECTORS) {
        let here = runtime();
        let disk = medium.open(Engine::Uring);
        let write_disk = Arc::clone(&disk);
        let mut write = Box::pin(async move { write_disk.write(9, vec![page(9, 9)]).await });
        here.block_on(poll_fn(|cx| {
            assert!(write.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        }));
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| runtime().block_on(write).unwrap());
            // The ring where it started must still be served.
            here.block_on(async {
                while !elsewhere.is_finished() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        });
        here.block_on(expect(&*disk, 9, 1, 9));
    }
}

#[test]
fn two_runtimes_on_one_thread_in_turn() {
    on_all(SECTORS, |disk| {
        let (one, two) = (runtime(), runtime());
        for version in 0..20 {
            one.block_on(disk.write(0, pages(0, 4, version))).unwrap();
            two.block_on(expect(&*disk, 0, 4, version));
        }
    });
}

#[test]
fn threads_that_come_and_go() {
    on_all(SECTORS, |disk| {
        let runtime = runtime();
        let handle = runtime.handle();
        std::thread::scope(|scope| {
            for at in 0..8 {
                let disk = &disk;
                scope.spawn(move || {
                    // A blocking thread's own call into the runtime: a ring for this thread, whose
                    // driver outlives it if necessary.
                    let mut write = disk.write(at, vec![page(at, 5)]);
                    let _entered = handle.enter();
                    let _ = poll_once(&mut write);
                });
            }
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(50)).await });
        });
        runtime.block_on(async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            expect(&*disk, 0, 8, 5).await;
        });
    });
}

#[test]
fn without_a_runtime_calls_block() {
    on_all(SECTORS, |disk| {
        let now = |poll: Poll<Result<(), DiskError>>| match poll {
            Poll::Ready(result) => result.unwrap(),
            Poll::Pending => panic!("pending with nobody to wake it"),
        };
        now(poll_once(&mut disk.write(3, pages(3, 2000, 1))));
        now(poll_once(&mut disk.write_durable(3, pages(3, 1, 1))));
        now(poll_once(&mut disk.flush()));
        now(poll_once(&mut disk.discard(2500, 10)));
        let Poll::Ready(read) = poll_once(&mut disk.read(3, 2000)) else {
            panic!("pending with nobody to wake it");
        };
        for (at, found) in (3..).zip(read.unwrap()) {
            assert!(*found == *page(at, 1));
        }
    });
}

#[test]
fn discards_give_space_back_and_spare_their_neighbours() {
    for engine in [Engine::Uring, Engine::Pread] {
        let medium = Medium::image(SECTORS);
        let disk = medium.open(engine);
        let blocks = || std::fs::metadata(&medium.path).unwrap().blocks() * 512;
        runtime().block_on(async {
            disk.write(0, pages(0, SECTORS, 1)).await.unwrap();
            disk.flush().await.unwrap();
            let before = blocks();
            // Every second of 512 ranges of four sectors, all at once, and some twice.
            let tasks: Vec<_> = (0..512)
                .map(|index| {
                    let disk = Arc::clone(&disk);
                    let start = index % 256 * 16;
                    tokio::spawn(async move { disk.discard(start, 8).await })
                })
                .collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
            for start in (0..SECTORS).step_by(16) {
                assert_eq!(disk.read(start, 8).await.unwrap().len(), 8);
                expect(&*disk, start + 8, 8, 1).await;
            }
            assert!(blocks() <= before * 3 / 4, "{} of {before} bytes are left", blocks());
            assert_eq!(disk.sectors(), SECTORS);
            // A dropped discard is carried out too.
            let half = blocks();
            assert!(poll_once(&mut disk.discard(0, SECTORS)).is_pending());
            while blocks() > half / 4 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
}

#[test]
fn a_disk_opened_for_inspection_cannot_be_written() {
    for medium in media(64) {
        for engine in [Engine::Uring, Engine::Pread] {
            let disk = medium.open(engine);
            runtime().block_on(disk.write(0, pages(0, 64, 1))).unwrap();
            let options = OpenOptions { access: Access::Inspect, engine: Some(engine) };
            let look = FileDisk::open(&medium.path, options).unwrap();
            runtime().block_on(async {
                expect(&look, 0, 64, 1).await;
                for refused in [
                    look.write(0, pages(0, 1, 2)).await,
                    look.write_durable(0, pages(0, 1, 2)).await,
                    look.discard(0, 1).await,
                ] {
                    let kind = ErrorKind::ReadOnlyFilesystem;
                    assert!(matches!(refused, Err(DiskError::Io { kind: it, .. }) if it == kind));
                }
                expect(&look, 0, 64, 1).await;
            });
        }
    }
}

#[test]
fn an_image_cut_short_behind_our_back_is_an_error() {
    for engine in [Engine::Uring, Engine::Pread] {
        let medium = Medium::image(64);
        let disk = medium.open(engine);
        let file = std::fs::OpenOptions::new().write(true).open(&medium.path).unwrap();
        file.set_len(10 * 4096).unwrap();
        let read = runtime().block_on(disk.read(5, 20));
        let kind = ErrorKind::UnexpectedEof;
        assert!(matches!(read, Err(DiskError::Io { kind: it, .. }) if it == kind), "{read:?}");
        assert_eq!(runtime().block_on(disk.read(5, 5)).unwrap().len(), 5);
    }
}

#[test]
fn what_was_flushed_is_there_after_opening_anew() {
    for medium in media(SECTORS) {
        for (engine, version) in [(Engine::Uring, 1), (Engine::Pread, 2)] {
            runtime().block_on(async {
                let disk = medium.open(engine);
                disk.write(0, pages(0, 100, version)).await.unwrap();
                disk.flush().await.unwrap();
                disk.write_durable(200, pages(200, 5, version)).await.unwrap();
            });
            runtime().block_on(async {
                let disk = medium.open(Engine::Pread);
                expect(&*disk, 0, 100, version).await;
                expect(&*disk, 200, 5, version).await;
            });
        }
    }
}
