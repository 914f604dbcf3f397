//! Readers without locks beside a writer of the same file, its txgs, and the frees of all that it
//! overwrote. The disk has little room, so that places are soon reused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aquifer_blockio::World;

use aquifer_checker::bed::Shape;
use aquifer_files::{CreateHow, Credentials, FileHandle, Service, SetAttributes, Stability};
use aquifer_sim::Rng;
use aquifer_threads::bed::{Base, Bed, DATASET, base};
use aquifer_threads::block_on;
use aquifer_threads::run::permute;
use aquifer_threads::schedule::seed;

/// Pages of the file: some nodes of extents.
const PAGES: u64 = 24;
/// How often all of it is overwritten.
const VERSIONS: u64 = 8;

/// Room for a few versions of it.
const ROOM: u64 = 4 << 20;

/// A file with a number on every page.
pub static BASE: Base = LazyLock::new(|| {
    base(Shape::FullMirror, async |service| {
        let root = service.files.root(DATASET).unwrap();
        let how = CreateHow::Guarded(SetAttributes::default());
        let cred = Credentials::root();
        let file =
            service.files.create(&cred, root, b"file", how).await.kept().await.0.unwrap().handle;
        write(service, file, 0, PAGES, 0).await;
        let filler =
            service.files.create(&cred, root, b"filler", how).await.kept().await.0.unwrap().handle;
        let mut first = 0;
        while service.pool.writable_bytes() > ROOM {
            write(service, filler, first, 128, first).await;
            service.pool.sync().await.unwrap();
            first += 128;
        }
    })
});

/// The number, and noise that does not compress.
fn page(at: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    Rng::stream(version << 16 | at, "page").fill(&mut bytes);
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    bytes
}

async fn write(service: &Service, file: FileHandle, first: u64, count: u64, version: u64) {
    let data: Vec<u8> = (first..first + count).flat_map(|at| page(at, version)).collect();
    let (cred, how) = (Credentials::root(), Stability::Unstable);
    service.files.write(&cred, file, first * 4096, &data, how).await.0.unwrap();
}

pub fn read_what_is_written_over() {
    block_on(async {
        let bed = Bed::open(&BASE).await;
        let root = bed.service.files.root(DATASET).unwrap();
        let found = bed.service.files.lookup(&Credentials::root(), root, b"file").await.0;
        let file = found.unwrap().handle;
        // Versions begun and done: a page shows one of these or one in between.
        let (begun, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let reader = |at: u64| {
            let (service, begun, done) = (bed.service.clone(), begun.clone(), done.clone());
            let world = bed.world.clone();
            bed.world.thread(async move || {
                let mut rng = Rng::stream(seed(), &format!("reader {at}"));
                while done.load(Ordering::SeqCst) < VERSIONS {
                    world.a_moment().await;
                    let first = rng.below(PAGES - 8);
                    let least = done.load(Ordering::SeqCst);
                    let cred = Credentials::root();
                    let read = service.files.read(&cred, file, first * 4096, 8 * 4096).await;
                    let most = begun.load(Ordering::SeqCst);
                    for (at, (seen, range)) in (first..).zip(read.unwrap().into_pieces()) {
                        let bytes = &seen[range];
                        let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                        assert!((least..=most).contains(&version), "{least}..={most}: {version}");
                        assert!(bytes == page(at, version), "page {at} of {version} is another");
                    }
                }
            })
        };
        let writer = || {
            let (service, begun, done) = (bed.service.clone(), begun.clone(), done.clone());
            bed.world.thread(async move || {
                for version in 1..=VERSIONS {
                    begun.store(version, Ordering::SeqCst);
                    for first in (0..PAGES).step_by(8) {
                        write(&service, file, first, 8, version).await;
                    }
                    done.store(version, Ordering::SeqCst);
                    service.pool.sync().await.unwrap();
                }
            })
        };
        let threads: Vec<_> = [writer()].into_iter().chain((0..2).map(reader)).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let status = bed.service.pool.status();
        let leaves = status.vdevs.iter().flat_map(|vdev| &vdev.leaves);
        let bad: u64 = leaves.map(|leaf| leaf.checksum_errors + leaf.repaired).sum();
        assert_eq!(bad, 0, "no reader came upon what it did not look for");
        bed.close_full().await;
    });
}

/// Readers that stay while a writer goes on: its frees meanwhile are held back for them.
pub fn stay_for_long() {
    /// More than a rewind needs.
    const PASS_BY: u64 = 12;
    block_on(async {
        let bed = Bed::open(&BASE).await;
        let root = bed.service.files.root(DATASET).unwrap();
        let found = bed.service.files.lookup(&Credentials::root(), root, b"file").await.0;
        let file = found.unwrap().handle;
        let (left, on_disk) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let reader = |_| {
            let (service, world) = (bed.service.clone(), bed.world.clone());
            let (left, on_disk) = (left.clone(), on_disk.clone());
            bed.world.thread(async move || {
                let pool = &service.pool;
                world.a_moment().await;
                let reading = pool.reading();
                let since = on_disk.load(Ordering::SeqCst);
                let passed = || on_disk.load(Ordering::SeqCst) - since;
                while passed() < PASS_BY {
                    world.sleep(Duration::from_micros(100)).await;
                }
                // The first of them may have been on disk before this one came.
                let (least, held) = (PAGES * (passed() - 1), pool.status().space.held);
                assert!(held >= least, "{held} sectors held back, and {least} may be read");
                drop(reading);
                left.fetch_add(1, Ordering::SeqCst);
            })
        };
        let readers: Vec<_> = (0..3).map(reader).collect();
        let mut version = 0;
        while left.load(Ordering::SeqCst) < 3 {
            version += 1;
            write(&bed.service, file, 0, PAGES, version).await;
            bed.service.pool.sync().await.unwrap();
            on_disk.store(version, Ordering::SeqCst);
        }
        readers.into_iter().for_each(|thread| thread.join().unwrap());
        bed.close_full().await;
    });
}

#[test]
fn what_may_be_read_is_held_back() {
    permute(&[&BASE], stay_for_long, 8);
}

#[test]
fn a_reader_sees_what_was_there() {
    permute(&[&BASE], read_what_is_written_over, 10);
}

/// Each within some ten times the schedules that it took.
#[test]
fn readers_unprotected_are_found() {
    use aquifer_blockio::sabotage::Rule;
    use aquifer_threads::run::must_be_found;
    must_be_found(&[&BASE], Rule::RootWithOverlay, read_what_is_written_over, 500);
    must_be_found(&[&BASE], Rule::ReadersHoldReuse, stay_for_long, 50);
}
