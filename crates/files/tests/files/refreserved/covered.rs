//! How much of a head snapshots show, by what lacks: to the page.

use std::collections::BTreeSet;

use aquifer_dataset::RollbackOptions;
use aquifer_files::{FileHandle, Service, Stability};

use super::{
    OFF, SIZE, SIZE_PAGES, assert_kept, create, dataset, fill, in_a_pool, overwrite_all, snapshot,
    write_all, write_half,
};
use crate::bed::{Bed, find, noise, settle, write};
use crate::by_text::ByText;

const GENTLY: RollbackOptions = RollbackOptions { destroy_later: false, force: false };

/// Pages that `tank/vm` lacks.
fn lacking(service: &Service) -> u64 {
    dataset(service, "tank/vm").lacking_bytes() / 4096
}

async fn write_whole(service: &Service, file: FileHandle, seed: u64) {
    write_all(service, file, seed).await;
    settle(service, 1).await;
}

async fn take_file(service: &Service, name: &str) {
    service.files.take_named(&[format!("tank/vm:disk@{name}")]).await.unwrap();
}

async fn destroy_file(service: &Service, name: &str) {
    let (of, found) = service.files.listed_named(&format!("tank/vm:disk@{name}")).await.unwrap();
    let ids: BTreeSet<_> = found.iter().map(|of| of.id).collect();
    service.datasets.destroy_file_snapshots(&[(of, ids)]).await.unwrap();
    settle(service, 20).await;
}

async fn destroy(service: &Service, snapshot: &str) {
    let (of, found) = service.datasets.snapshot_by_name(snapshot).unwrap();
    let these = [(of, [found.txg].into())];
    service.datasets.destroy_snapshots(&these, false).await.unwrap();
    settle(service, 20).await;
}

async fn roll_file_back(service: &Service, name: &str) {
    let (of, found) = service.files.listed_named(&format!("tank/vm:disk@{name}")).await.unwrap();
    service.datasets.rollback_files(&of, &[found[0].id], GENTLY).await.unwrap();
    settle(service, 20).await;
}

/// Bytes that a dataset lacks are exact from one snapshot to the next. When the newest one goes,
/// they are at most what the one before it refers to.
#[test]
fn what_lacks_follows_the_newest_snapshot() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write_half(&service, vm, 0).await;
        assert_eq!(lacking(&service), SIZE_PAGES / 2);
        snapshot(&service, "tank/vm@half").await.unwrap();
        assert_eq!(lacking(&service), SIZE_PAGES);
        write_whole(&service, vm, 1).await;
        assert_eq!(lacking(&service), 0);
        // The pages that go to disk with the snapshot are shown by it.
        write(&service, vm, 0, &noise(7, 64), Stability::Unstable).await.unwrap();
        snapshot(&service, "tank/vm@whole").await.unwrap();
        assert_eq!(lacking(&service), SIZE_PAGES);

        destroy(&service, "tank/vm@whole").await;
        assert_eq!(lacking(&service), SIZE_PAGES / 2);
        snapshot(&service, "tank/vm@again").await.unwrap();
        assert_eq!(lacking(&service), SIZE_PAGES);
        overwrite_all(&service, vm, 2).await.unwrap();
        settle(&service, 1).await;
        assert_eq!(lacking(&service), 0);
    });
}

/// A clone of an older version of a file brings a snapshot of that file, which is not its newest.
#[test]
fn an_older_version_of_a_file_takes_nothing_from_what_lacks() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write(&service, vm, 0, &noise(7, 64), Stability::Unstable).await.unwrap();
        snapshot(&service, "tank/vm@early").await.unwrap();
        write_whole(&service, vm, 1).await;
        assert_eq!(lacking(&service), 0);
        take_file(&service, "late").await;
        assert_eq!(lacking(&service), SIZE_PAGES);
        let copy = ["tank/vm:copy".to_string()];
        service.files.clone_named("tank/vm:disk@early", &copy).await.unwrap();
        settle(&service, 4).await;
        assert_eq!(lacking(&service), SIZE_PAGES);
        overwrite_all(&service, vm, 2).await.unwrap();
        settle(&service, 1).await;
        assert_eq!(lacking(&service), 0);
    });
}

/// Blocks that were born after the newest snapshot of the dataset are in no sum of the dataset. So
/// their end takes nothing from what the dataset lacks.
#[test]
fn what_only_a_snapshot_of_a_file_shows_leaves_the_sum_of_the_dataset_alone() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write_whole(&service, vm, 1).await;
        snapshot(&service, "tank/vm@1").await.unwrap();
        write_half(&service, vm, 2).await;
        assert_eq!(lacking(&service), SIZE_PAGES / 2);
        take_file(&service, "f").await;
        assert_eq!(lacking(&service), SIZE_PAGES);
        write_half(&service, vm, 3).await;
        destroy_file(&service, "f").await;
        assert_eq!(lacking(&service), SIZE_PAGES / 2);
    });
}

/// A rollback of the dataset brings back blocks that had left the sum of their file.
#[test]
fn a_rollback_of_the_dataset_covers_what_snapshots_of_its_files_show() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write_whole(&service, vm, 1).await;
        take_file(&service, "f").await;
        snapshot(&service, "tank/vm@d").await.unwrap();
        write_half(&service, vm, 2).await;
        drop(service.datasets.rollback("tank/vm@d", GENTLY).await.unwrap());
        settle(&service, 20).await;
        assert_eq!(lacking(&service), SIZE_PAGES);
        destroy(&service, "tank/vm@d").await;
        assert_eq!(lacking(&service), SIZE_PAGES, "the snapshot of the file shows all of it");
    });
}

#[test]
fn what_one_snapshot_of_a_file_shows_is_covered_when_another_goes() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write_whole(&service, vm, 1).await;
        take_file(&service, "1").await;
        take_file(&service, "2").await;
        destroy_file(&service, "2").await;
        assert_eq!(lacking(&service), SIZE_PAGES);
        write_half(&service, vm, 2).await;
        assert_eq!(lacking(&service), SIZE_PAGES / 2);
        take_file(&service, "3").await;
        write_half(&service, vm, 3).await;
        // The newest one stays: the sum is as exact as before.
        destroy_file(&service, "1").await;
        assert_eq!(lacking(&service), SIZE_PAGES / 2);
        destroy_file(&service, "3").await;
        assert_eq!(lacking(&service), 0);
    });
}

/// Content that a file goes back to is what its snapshot shows, and maybe one of the dataset too.
#[test]
fn what_a_file_goes_back_to_is_covered() {
    for of_dataset in [false, true] {
        in_a_pool(async |service| {
            let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
            write_whole(&service, vm, 1).await;
            if of_dataset {
                snapshot(&service, "tank/vm@1").await.unwrap();
            }
            take_file(&service, "f").await;
            write_whole(&service, vm, 2).await;
            assert_eq!(lacking(&service), 0);
            roll_file_back(&service, "f").await;
            assert_eq!(lacking(&service), SIZE_PAGES);
            destroy_file(&service, "f").await;
            assert_eq!(lacking(&service), if of_dataset { SIZE_PAGES } else { 0 });
        });
    }
}

/// Without the property nothing is on disk: what was there before it must not come back.
#[test]
fn what_is_covered_without_the_property_is_known_after_a_restart() {
    let mut bed = Bed::new(1, 65536);
    bed.life(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write_whole(&service, vm, 1).await;
        snapshot(&service, "tank/vm@1").await.unwrap();
        write_whole(&service, vm, 2).await;
        assert_eq!(lacking(&service), 0);
        service.datasets.set("tank/vm", SIZE.0, None).await.unwrap();
        snapshot(&service, "tank/vm@2").await.unwrap();
    });
    bed.life(async |service| {
        service.datasets.set("tank/vm", SIZE.0, Some(SIZE.1)).await.unwrap();
        assert_eq!(lacking(&service), SIZE_PAGES);
    });
    bed.assert_clean();
}

/// After a rollback too, what is written over makes room for what is written over it later.
#[test]
fn what_lacks_after_a_rollback_is_exact() {
    in_a_pool(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write_whole(&service, vm, 1).await;
        snapshot(&service, "tank/vm@1").await.unwrap();
        write_half(&service, vm, 2).await;
        service.datasets.rollback("tank/vm@1", GENTLY).await.unwrap();
        settle(&service, 20).await;
        assert_eq!(lacking(&service), SIZE_PAGES);
        let rest = create(&service, "tank/rest", &[OFF]).await;
        fill(&service, rest, 0).await;
        write_half(&service, vm, 3).await;
        assert_eq!(lacking(&service), SIZE_PAGES / 2);
        assert_kept(&service, &["tank/vm"]);
        assert!(snapshot(&service, "tank/vm@2").await.is_err(), "its room is gone");
        overwrite_all(&service, vm, 4).await.unwrap();
        assert_eq!(lacking(&service), 0);
    });
}

/// The process dies behind the rollback: the disk must not have the sum from before it.
#[test]
fn what_a_dataset_goes_back_to_is_covered_after_a_restart() {
    let mut bed = Bed::new(1, 65536);
    bed.short_life(async |service| {
        let vm = create(&service, "tank/vm", &[OFF, SIZE]).await;
        write_whole(&service, vm, 1).await;
        snapshot(&service, "tank/vm@1").await.unwrap();
        write_whole(&service, vm, 2).await;
        assert_eq!(lacking(&service), 0);
        service.datasets.rollback("tank/vm@1", GENTLY).await.unwrap();
        assert_eq!(lacking(&service), SIZE_PAGES);
    });
    bed.life(async |service| {
        assert_eq!(lacking(&service), SIZE_PAGES, "as imported");
        settle(&service, 20).await;
        assert_eq!(lacking(&service), SIZE_PAGES);
        let vm = find(&service, "tank/vm", "disk").await.unwrap();
        write_half(&service, vm, 3).await;
        assert_eq!(lacking(&service), SIZE_PAGES / 2);
    });
    bed.assert_clean();
}
