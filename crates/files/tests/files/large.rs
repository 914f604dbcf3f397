//! Large directories and files. Limits are on work, counted in txgs, reads and writes of the disk,
//! and on the simulator's clock. They are never on the time that the test takes.

use std::collections::BTreeSet;
use std::time::Duration;

use aquifer_files::{FileHandle, FsError, Service, SetAttributes, Stability};
use futures_util::future::join_all;

use crate::bed::{Bed, find, make, noise, read, root, write};

fn size(bytes: u64) -> SetAttributes {
    SetAttributes { size: Some(bytes), ..SetAttributes::default() }
}

/// Many files are emptied at once, and again in the next txgs. Each frees little, but together they
/// free more than the ring of records holds.
#[test]
pub fn truncations_of_many_files_fit_the_records() {
    const FILES: u64 = 48;
    // A few fewer than one txg frees at once.
    const EXTENTS: u64 = 500;
    let mut bed = Bed::new(1, 65536);
    // A ring of 24 sectors: some 12,000 runs.
    bed.options.scale.record_segment_sectors = 12;
    let page = noise(1, 1);
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let mut files = Vec::new();
        for at in 0..2 * FILES {
            files.push(make(&service, top, &format!("f{at}")).await);
        }
        for extent in 0..EXTENTS {
            for file in &files {
                write(&service, *file, 2 * extent, &page, Stability::Unstable).await.unwrap();
            }
            service.pool.sync().await.unwrap();
        }
    });
    let empty = async |service: &Service, files: std::ops::Range<u64>| {
        // The pages between them stay: no two of the freed blocks are neighbours.
        for at in files.map(|at| 2 * at) {
            let file = find(service, "tank", &format!("f{at}")).await.unwrap();
            service.files.setattr(&root(), file, &size(0), None).await.kept().await.0.unwrap();
        }
    };
    bed.life(async |service| {
        for part in 0..3 {
            empty(&service, part * 12..(part + 1) * 12).await;
            service.pool.sync().await.unwrap();
        }
    });
    // A replay empties the rest.
    bed.short_life(async |service| empty(&service, 36..FILES).await);
    bed.life(async |service| {
        let mut txgs = 0;
        while service.datasets.has_background_work() || txgs < 4 {
            service.pool.sync().await.unwrap();
            txgs += 1;
        }
        let left = service.pool.used_sectors() - service.pool.own_sectors();
        assert!(left < FILES * (EXTENTS + 20), "{left} sectors are left");
    });
    bed.assert_clean();
}

async fn list(service: &Service, dir: FileHandle, page: usize) -> (BTreeSet<Vec<u8>>, u64) {
    let (mut names, mut cookie, mut calls) = (BTreeSet::new(), 2, 0);
    loop {
        let listed = service.files.readdir(&root(), dir, cookie, page, false).await.unwrap();
        calls += 1;
        for entry in listed.0 {
            cookie = entry.cookie;
            assert!(names.insert(entry.name), "a name comes once");
        }
        if listed.1 {
            return (names, calls);
        }
    }
}

#[test]
fn a_directory_of_100_000_entries() {
    const ENTRIES: u64 = 100_000;
    let mut bed = Bed::new(1, 262_144);
    let disk = bed.disks[0].clone();
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let set = SetAttributes::default();
        let dir =
            service.files.mkdir(&root(), top, b"dir", &set).await.kept().await.0.unwrap().handle;
        let before = service.pool.committed_txg().0;
        // Many clients at once, so that the log works in batches.
        for chunk in 0..ENTRIES / 500 {
            let names = (0..500).map(|at| format!("entry number {}", chunk * 500 + at));
            let make = async |name: String| {
                let (name, kind) = (name.as_bytes(), aquifer_files::NodeKind::Fifo);
                service.files.mknod(&root(), dir, name, kind, &set).await.kept().await.0.unwrap();
            };
            join_all(names.map(make)).await;
        }
        service.pool.sync().await.unwrap();
        let txgs = service.pool.committed_txg().0 - before;
        assert!(txgs < 200, "{txgs} txgs");
    });
    bed.life(async |service| {
        let dir = find(&service, "tank", "dir").await.unwrap();
        let cold = disk.counters().reads;
        let (names, calls) = list(&service, dir, 1000).await;
        let reads = disk.counters().reads - cold;
        assert_eq!((names.len() as u64, calls), (ENTRIES, ENTRIES / 1000));
        // About 60 entries a leaf; a call reads its leaves and the path to the first.
        assert!(reads < 6_000, "{reads} reads for a listing");
        // A lookup reads one path down.
        let cold = disk.counters().reads;
        for at in (0..ENTRIES).step_by(1009) {
            let name = format!("entry number {at}");
            service.files.lookup(&root(), dir, name.as_bytes()).await.0.unwrap();
        }
        let reads = disk.counters().reads - cold;
        assert!(reads < 100 * 8, "{reads} reads for 100 lookups");
        let removed = service.pool.committed_txg().0;
        for chunk in 0..ENTRIES / 500 {
            let names = (0..500).map(|at| format!("entry number {}", chunk * 500 + at));
            let remove = async |name: String| {
                service.files.remove(&root(), dir, name.as_bytes()).await.kept().await.0.unwrap();
            };
            join_all(names.map(remove)).await;
        }
        assert_eq!(list(&service, dir, 1000).await.0.len(), 0);
        let top = service.files.root("tank").unwrap();
        service.files.rmdir(&root(), top, b"dir").await.kept().await.0.unwrap();
        let mut more = 0;
        while service.datasets.has_background_work() {
            service.pool.sync().await.unwrap();
            more += 1;
        }
        let txgs = service.pool.committed_txg().0 - removed;
        assert!(txgs < 200, "{txgs} txgs, {more} of them after the last removal");
    });
    bed.assert_clean();
    bed.life(async |service| {
        let left = service.pool.used_sectors() - service.pool.own_sectors();
        assert!(left < 32, "{left} sectors are left");
    });
    bed.assert_clean();
}

#[test]
fn a_sparse_file_of_many_terabytes() {
    let mut bed = Bed::new(1, 65536);
    let ends = [1 << 32, 1 << 40, (1 << 48) - 9];
    bed.life(async |service| {
        let top = service.files.root("tank").unwrap();
        let file = make(&service, top, "sparse").await;
        let set = |bytes| size(bytes);
        for (at, end) in (0..).zip(ends) {
            write(&service, file, end, &noise(at, 8), Stability::FileSync).await.unwrap();
            let attributes = service.files.getattr(file).await.unwrap();
            assert_eq!(attributes.size, (end + 8) * 4096);
        }
        let largest = aquifer_ondisk::inode::FILE_BYTES_MAX;
        for (offset, count) in [(largest - 10, 11), (u64::MAX, 1), (u64::MAX - 5, 100)] {
            let (cred, data) = (root(), vec![1; count]);
            let beyond = service.files.write(&cred, file, offset, &data, Stability::Unstable).await;
            assert_eq!(beyond.0, Err(FsError::TooLarge));
        }
        let set_beyond =
            service.files.setattr(&root(), file, &set(largest + 1), None).await.kept().await;
        assert_eq!(set_beyond.0, Err(FsError::TooLarge));
        service.files.setattr(&root(), file, &set(largest), None).await.kept().await.0.unwrap();
        service.files.commit(&root(), file, u64::MAX, u32::MAX).await.kept().await.0.unwrap();
    });
    bed.life(async |service| {
        let file = find(&service, "tank", "sparse").await.unwrap();
        for (at, end) in (0..).zip(ends) {
            assert_eq!(read(&service, file, end).await.unwrap(), noise(at, 8)[..4096]);
            assert_eq!(read(&service, file, end - 1).await.unwrap(), [0; 4096]);
        }
        let used = service.files.getattr(file).await.unwrap().used;
        assert_eq!(used, 3 * 8 * 4096);
        service
            .files
            .setattr(&root(), file, &size((1 << 40) * 4096), None)
            .await
            .kept()
            .await
            .0
            .unwrap();
        service.pool.sync().await.unwrap();
        assert_eq!(service.files.getattr(file).await.unwrap().used, 8 * 4096);
    });
    bed.assert_clean();
}

/// A file with this many single-page extents, on a pool that it fills.
async fn scattered(service: &Service, extents: u64) -> FileHandle {
    let off = [("compression".to_string(), "off".to_string())];
    service.datasets.create("tank/raw", &off).await.unwrap();
    let file = make(service, service.files.root("tank/raw").unwrap(), "huge").await;
    let page = noise(1, 1);
    for at in 0..extents {
        match write(service, file, at * 2, &page, Stability::Unstable).await {
            Ok(()) => {}
            Err(FsError::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    service.pool.sync().await.unwrap();
    file
}

/// While a huge file is truncated or removed, another client's operations go on and none waits
/// long. The freeing takes a bounded number of txgs, with records of bounded size.
async fn freed_beside_a_client(service: &Service, extents: u64) {
    let world = service.pool.world().clone();
    let name = format!("other{}", world.random());
    let other = make(service, service.files.root("tank").unwrap(), &name).await;
    let before = service.pool.committed_txg().0;
    let (mut slowest, mut ops) = (Duration::ZERO, 0u64);
    while service.datasets.has_background_work() || ops < 50 {
        let began = world.now();
        let data = noise(ops, 1);
        match write(service, other, ops % 64, &data, Stability::FileSync).await {
            Ok(()) | Err(FsError::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
        slowest = slowest.max(world.now() - began);
        world.sleep(Duration::from_millis(2)).await;
        ops += 1;
        assert!(ops < 100_000, "the freeing ends");
    }
    let txgs = service.pool.committed_txg().0 - before;
    assert!(txgs <= extents / 4_000 + 60, "{txgs} txgs for {extents} extents");
    assert!(slowest < Duration::from_secs(1), "an operation took {slowest:?}");
}

/// A million extents take 4 GiB: run them with `cargo test -- --ignored`. CI runs a quarter of
/// that.
fn cut_and_removed(extents: u64) {
    let mut bed = Bed::new(1, extents * 5 / 4 + 32768);
    bed.life(async |service| {
        let file = scattered(&service, extents).await;
        let full = service.files.getattr(file).await.unwrap().used;
        assert!(full >= extents * 4096 * 9 / 10, "{full} bytes");
        // Truncated in the middle. The background frees the tail, which counts as used until then.
        service
            .files
            .setattr(&root(), file, &size(extents * 4096), None)
            .await
            .kept()
            .await
            .0
            .unwrap();
        // This sync cuts off the tail; the next ones free it.
        service.pool.sync().await.unwrap();
        assert!(service.datasets.has_background_work());
        freed_beside_a_client(&service, extents / 2).await;
        let left = service.files.getattr(file).await.unwrap().used;
        assert_eq!(left, extents / 2 * 4096);
    });
    bed.assert_clean();
    bed.life(async |service| {
        let top = service.files.root("tank/raw").unwrap();
        service.files.remove(&root(), top, b"huge").await.kept().await.0.unwrap();
        freed_beside_a_client(&service, extents / 2).await;
    });
    bed.assert_clean();
}

#[test]
fn a_huge_file_is_cut_and_removed_beside_a_client() {
    cut_and_removed(60_000);
}

#[test]
#[ignore = "takes a minute and 5 GiB of memory"]
fn a_file_of_a_million_extents_is_cut_and_removed() {
    cut_and_removed(1_000_000);
}

/// Killed while a tail is being freed: the sums are right at every moment.
#[test]
fn a_tail_counts_until_it_is_freed() {
    let mut bed = Bed::new(1, 131_072);
    let extents = 50_000;
    bed.life(async |service| {
        scattered(&service, extents).await;
    });
    for cut in 1..12 {
        bed.sim.plan_cut(aquifer_sim::CutPlan::AtEvent(40 + cut * 45));
        let (world, disks) = (bed.world(), bed.disks.clone());
        let _ = bed.sim.run_until(async {
            let service = crate::bed::open(world, &disks).await;
            let file = find(&service, "tank/raw", "huge").await.unwrap();
            let bytes = (extents - cut * 4000) * 2 * 4096;
            service.files.setattr(&root(), file, &size(bytes), None).await.kept().await.0.unwrap();
            for _ in 0..20 {
                service.pool.sync().await.unwrap();
            }
        });
        bed.sim.power_cut_any();
        bed.assert_clean();
    }
}
