//! `refreservation`: whatever snapshots hold and others write, a dataset is written over.

use aquifer_dataset::{Dataset, DatasetError};
use aquifer_files::{FileHandle, FsError, Service, SetAttributes, Stability};
use aquifer_sim::{Rng, SimDisk};
use std::sync::Arc;

use crate::bed::{Bed, find, make, noise, root, settle, write};
use crate::by_text::ByText;

mod asked;
mod beside;
mod covered;

const OFF: (&str, &str) = ("compression", "off");
const SIZE_PAGES: u64 = 8192;
const SIZE: (&str, &str) = ("refreservation", "32M");

async fn create(service: &Service, name: &str, properties: &[(&str, &str)]) -> FileHandle {
    let text = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    let properties: Vec<_> = properties.iter().map(text).collect();
    service.datasets.create(name, &properties).await.unwrap();
    make(service, service.files.root(name).unwrap(), "disk").await
}

fn dataset(service: &Service, name: &str) -> Arc<Dataset> {
    service.datasets.by_name(name).unwrap()
}

/// In a new pool, which is whole afterwards.
fn in_a_pool(work: impl AsyncFnOnce(Service)) {
    in_a_pool_on(async |service, _disk| work(service).await);
}

/// Runs `work` in a new pool, which is whole afterwards; its only disk is at hand.
fn in_a_pool_on(work: impl AsyncFnOnce(Service, SimDisk)) {
    let mut bed = Bed::new(1, 65536);
    let disk = bed.disks[0].clone();
    bed.life(async |service| work(service, disk).await);
    bed.assert_clean();
}

/// All pages once, in order.
async fn write_all(service: &Service, file: FileHandle, seed: u64) {
    for first in (0..SIZE_PAGES).step_by(64) {
        let data = noise(seed << 32 | first, 64);
        write(service, file, first, &data, Stability::Unstable).await.unwrap();
    }
}

/// The first half of the pages; on disk.
async fn write_half(service: &Service, file: FileHandle, seed: u64) {
    for first in (0..SIZE_PAGES / 2).step_by(64) {
        let data = noise(seed << 32 | first, 64);
        write(service, file, first, &data, Stability::Unstable).await.unwrap();
    }
    settle(service, 1).await;
}

/// Adds pages until not one fits, and commits: then nothing is left to find by a commit.
async fn fill(service: &Service, file: FileHandle, from: u64) -> u64 {
    let mut page = from;
    for pages in [64, 1] {
        loop {
            let data = noise(page, pages);
            match write(service, file, page, &data, Stability::Unstable).await {
                Ok(()) => page += pages as u64,
                Err(FsError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        settle(service, 4).await;
    }
    page
}

/// Writes over every page, in random order, with content that does not compress.
async fn overwrite_all(service: &Service, file: FileHandle, seed: u64) -> Result<(), String> {
    let mut rng = Rng::stream(seed, "overwrites");
    let mut order: Vec<u64> = (0..SIZE_PAGES).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.index(at + 1));
    }
    for (at, page) in order.into_iter().enumerate() {
        let stability = if rng.below(8) == 0 { Stability::FileSync } else { Stability::Unstable };
        let data = noise(seed << 32 | page, 1);
        let done = write(service, file, page, &data, stability).await;
        done.map_err(|error| format!("overwrite {at} of {seed}: {error}"))?;
    }
    Ok(())
}

async fn snapshot(service: &Service, name: &str) -> Result<(), DatasetError> {
    service.datasets.snapshot(&[name.to_string()], false).await.map(drop)
}

async fn remove(service: &Service, name: &str) {
    let top = service.files.root(name).unwrap();
    service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
    settle(service, 20).await;
}

/// Cuts a file to so many pages, and waits until what it gave up can be written.
async fn cut(service: &Service, file: FileHandle, pages: u64) {
    let size = SetAttributes { size: Some(pages * 4096), ..Default::default() };
    service.files.setattr(&root(), file, &size, None).await.kept().await.0.unwrap();
    settle(service, 8).await;
}

/// Fills the pool with `tank/rest`, but for so many pages. Returns that file, and where it ends.
async fn fill_but(service: &Service, free_pages: u64) -> (FileHandle, u64) {
    let rest = create(service, "tank/rest", &[OFF]).await;
    let end = fill(service, rest, 0).await - free_pages;
    cut(service, rest, end).await;
    (rest, end)
}

/// Asserts that the bytes that are kept for all, and promised, are there.
fn assert_kept(service: &Service, names: &[&str]) {
    let lacking: u64 = names.iter().map(|name| dataset(service, name).lacking_bytes()).sum();
    let writable = service.pool.writable_bytes();
    assert!(lacking <= writable, "{lacking} bytes are kept, and {writable} are free");
}

#[test]
pub fn all_is_written_over_after_snapshots() {
    let mut bed = Bed::new(1, 65536);
    bed.short_life(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write_all(&service, vm, 1).await;
        // As a whole, the file's tree is small.
        let rest = create(&service, "tank/rest", &[OFF]).await;
        snapshot(&service, "tank/vm@1").await.unwrap();
        assert!(dataset(&service, "tank/vm").lacking_bytes() >= SIZE_PAGES * 4096);
        fill(&service, rest, 0).await;
        for seed in [2, 3] {
            overwrite_all(&service, vm, seed).await.unwrap();
            assert_kept(&service, &["tank/vm"]);
        }
        // There is no room for another one, and nothing changed.
        let refused = snapshot(&service, "tank/vm@2").await.unwrap_err();
        assert!(matches!(refused, DatasetError::NoRoomForSnapshot { .. }), "{refused}");
        overwrite_all(&service, vm, 4).await.unwrap();

        remove(&service, "tank/rest").await;
        snapshot(&service, "tank/vm@2").await.unwrap();
        let rest = make(&service, service.files.root("tank/rest").unwrap(), "disk").await;
        fill(&service, rest, 0).await;
        for seed in [5, 6] {
            overwrite_all(&service, vm, seed).await.unwrap();
        }

        remove(&service, "tank/rest").await;
        let all = ["tank/vm:disk@file".to_string()];
        service.files.take_named(&all).await.unwrap();
        assert!(dataset(&service, "tank/vm").lacking_bytes() >= SIZE_PAGES * 4096);
        let rest = make(&service, service.files.root("tank/rest").unwrap(), "disk").await;
        fill(&service, rest, 0).await;
        overwrite_all(&service, vm, 7).await.unwrap();
        assert_kept(&service, &["tank/vm"]);
        service.pool.sync().await.unwrap();
    });
    bed.life(async |service| {
        let vm = find(&service, "tank/vm", "disk").await.unwrap();
        let rest = find(&service, "tank/rest", "disk").await.unwrap();
        fill(&service, rest, 1 << 30).await;
        for seed in [8, 9] {
            overwrite_all(&service, vm, seed).await.unwrap();
        }
        assert_kept(&service, &["tank/vm"]);
    });
    bed.assert_clean();
}

/// Half is written over when the process dies: the other half still has its room, and no more.
#[test]
pub fn two_disks_are_written_over_after_a_restart() {
    let mut bed = Bed::new(1, 65536);
    let names = ["tank/a", "tank/b"];
    bed.short_life(async |service| {
        for name in names {
            let file = create(&service, name, &[OFF, SIZE]).await;
            write_all(&service, file, 1).await;
        }
        let rest = create(&service, "tank/rest", &[OFF]).await;
        let both = names.map(|name| format!("{name}@1"));
        service.datasets.snapshot(&both, false).await.unwrap();
        fill(&service, rest, 0).await;
        let [a, b] = [find(&service, "tank/a", "disk"), find(&service, "tank/b", "disk")];
        let (a, b) = (a.await.unwrap(), b.await.unwrap());
        let both = (overwrite_all(&service, a, 2), overwrite_all(&service, b, 3));
        let (a, b) = futures_util::future::join(both.0, both.1).await;
        a.and(b).unwrap();
        settle(&service, 4).await;
        assert_kept(&service, &names);
    });
    bed.life(async |service| {
        for name in names {
            let lacking = dataset(&service, name).lacking_bytes();
            assert!(lacking < 1 << 20, "{name}: {lacking} bytes after all was written over");
        }
        let [a, b] = [find(&service, "tank/a", "disk"), find(&service, "tank/b", "disk")];
        let (a, b) = (a.await.unwrap(), b.await.unwrap());
        let both = (overwrite_all(&service, a, 4), overwrite_all(&service, b, 5));
        let (a, b) = futures_util::future::join(both.0, both.1).await;
        a.and(b).unwrap();
        assert_kept(&service, &names);
    });
    bed.assert_clean();
}

#[test]
pub fn a_snapshot_without_room_is_refused() {
    in_a_pool(async |service| {
        let below = [("quota", "100M"), OFF];
        let up = create(&service, "tank/up", &below).await;
        let vm = create(&service, "tank/up/vm", &[OFF, SIZE]).await;
        let lacking = || dataset(&service, "tank/up/vm").lacking_bytes();
        assert_eq!(lacking(), SIZE_PAGES * 4096);
        write_all(&service, vm, 1).await;
        settle(&service, 1).await;
        assert_eq!(lacking(), 0);
        // 32 of 100 MiB are used: with one snapshot, 64 are, with two none is left for a third.
        snapshot(&service, "tank/up/vm@1").await.unwrap();
        assert_eq!(lacking(), SIZE_PAGES * 4096);
        let used = service.datasets.used_bytes(&dataset(&service, "tank/up"));
        assert!((64 << 20..66 << 20).contains(&used), "{used}");
        // Another one shows nothing more.
        snapshot(&service, "tank/up/vm@2").await.unwrap();
        overwrite_all(&service, vm, 2).await.unwrap();
        let refused = snapshot(&service, "tank/up/vm@3").await;
        assert!(refused.is_ok(), "{refused:?}");
        overwrite_all(&service, vm, 3).await.unwrap();
        let all = service.datasets.snapshot(&["tank/up@4".to_string()], true).await;
        let refused = all.unwrap_err().to_string();
        assert!(refused.contains("the quota of tank/up"), "{refused}");
        assert_eq!(dataset(&service, "tank/up").snapshots(service.pool.committed_txg()).len(), 0);
        // The quota leaves no room for others either.
        let (first, error) = loop_until_refused(&service, up).await;
        assert_eq!(error, FsError::Quota);
        assert!(first * 4096 < 8 << 20, "{first} pages");
        overwrite_all(&service, vm, 4).await.unwrap();
        // A file that is new since the last snapshot asks for its own size.
        service.datasets.set("tank/up", "quota", None).await.unwrap();
        let beyond = service.datasets.set("tank/up/vm", "refreservation", Some("10G")).await;
        assert!(beyond.is_err());
        service.datasets.set("tank/up/vm", "refreservation", None).await.unwrap();
        assert_eq!(lacking(), 0);
    });
}

async fn loop_until_refused(service: &Service, file: FileHandle) -> (u64, FsError) {
    for page in 0.. {
        let done = write(service, file, page, &noise(page, 1), Stability::Unstable).await;
        if let Err(error) = done {
            return (page, error);
        }
    }
    unreachable!()
}

/// A file asks for what was written to it since its last snapshot, and not for all again.
#[test]
fn a_snapshot_of_a_file_asks_for_what_is_new() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, ("refreservation", "64M")]).await;
        write_all(&service, vm, 1).await;
        settle(&service, 1).await;
        let lacking = || dataset(&service, "tank/vm").lacking_bytes();
        assert_eq!(lacking(), SIZE_PAGES * 4096);
        let take = async |name: &str| {
            service.files.take_named(&[format!("tank/vm:disk@{name}")]).await.map(drop)
        };
        take("1").await.unwrap();
        assert_eq!(lacking(), 2 * SIZE_PAGES * 4096);
        let rest = create(&service, "tank/rest", &[OFF]).await;
        let pages = fill(&service, rest, 0).await;
        for page in 0..64 {
            write(&service, vm, page, &noise(page, 1), Stability::Unstable).await.unwrap();
        }
        settle(&service, 4).await;
        assert_eq!(lacking(), (2 * SIZE_PAGES - 64) * 4096);
        let refused = take("2").await.unwrap_err().to_string();
        assert!(refused.contains("refreservation=64M"), "{refused}");
        // Room for more than these pages, and for far less than the file.
        cut(&service, rest, pages - 256).await;
        take("2").await.unwrap();
        assert_eq!(lacking(), 2 * SIZE_PAGES * 4096);
        overwrite_all(&service, vm, 3).await.unwrap();
    });
}

/// Growth of a file goes beyond the property, so it leaves the room for trees alone.
#[test]
fn growth_leaves_the_room_for_trees() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        let pages = fill(&service, vm, 0).await;
        assert!(pages > 3 * SIZE_PAGES, "{pages}");
        let for_trees = SIZE_PAGES * 4096 / 16;
        let free = service.pool.writable_bytes();
        assert!((for_trees..for_trees + (1 << 20)).contains(&free), "{free} bytes are free");
        overwrite_all(&service, vm, 2).await.unwrap();
    });
}
