//! Rollback of a file past later snapshots, which stay: it begins a line.

use std::collections::BTreeSet;

use aquifer_dataset::{DatasetError, RollbackOptions};
use aquifer_files::{FileHandle, Service};

use crate::bed::{Bed, find, root, settle};
use crate::file_rollback::{GENTLY, destroy, one, roll_back, snapshot, take, with_disk};
use crate::spread::{PAGES, cut, fill, is_filled};

async fn go_to(service: &Service, name: &str) {
    let to = one(service, name).await;
    assert_eq!(roll_back(service, &to, GENTLY).await.unwrap(), Vec::<String>::new());
}

async fn disk(service: &Service) -> FileHandle {
    find(service, "tank/d", "disk").await.unwrap()
}

async fn destroy_all_of_the_dataset(service: &Service) {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    let all = dataset.snapshots(service.pool.committed_txg());
    let all: BTreeSet<_> = all.iter().map(|of| of.txg).collect();
    service.datasets.destroy_snapshots(&[(dataset, all)], false).await.unwrap();
}

/// The file, with snapshots `a` (0), `b` (2000) and `c` (3000), and `x` of the dataset (1000)
/// after `a`.
async fn with_history(service: &Service) -> FileHandle {
    let (_, disk) = with_disk(service).await;
    take(service, "a").await;
    fill(service, disk, 1000).await;
    snapshot(service, "x").await;
    fill(service, disk, 2000).await;
    take(service, "b").await;
    fill(service, disk, 3000).await;
    take(service, "c").await;
    disk
}

/// The handle stays, and what is later too: so it goes forward again. In the end all is free.
#[test]
pub fn a_file_goes_back_and_forth() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let disk = with_history(&service).await;
        for (name, salt) in [("a", 0), ("b", 2000), ("c", 3000), ("a", 0)] {
            go_to(&service, name).await;
            is_filled(&service, disk, salt).await;
        }
    });
    bed.assert_clean();
    for life in 0..8 {
        // Old heads are half freed.
        bed.short_life(async |service| {
            is_filled(&service, disk(&service).await, 0).await;
            for _ in 0..life {
                service.pool.sync().await.unwrap();
            }
        });
        bed.assert_clean();
    }
    bed.life(async |service| {
        let disk = disk(&service).await;
        settle(&service, 200).await;
        is_filled(&service, disk, 0).await;
        // On its new line it is a file like any other, with cuts and rollbacks in line.
        fill(&service, disk, 4000).await;
        take(&service, "d").await;
        cut(&service, disk, 7).await;
        go_to(&service, "d").await;
        is_filled(&service, disk, 4000).await;
        fill(&service, disk, 5000).await;
        for (name, salt) in [("c", 3000), ("d", 4000), ("b", 2000)] {
            go_to(&service, name).await;
            is_filled(&service, disk, salt).await;
            settle(&service, 200).await;
        }
    });
    bed.assert_clean();
    bed.life(async |service| {
        let (disk, dataset) = (disk(&service).await, service.datasets.by_name("tank/d").unwrap());
        destroy_all_of_the_dataset(&service).await;
        for name in ["a", "b", "c", "d"] {
            destroy(&service, &dataset, &[&*one(&service, name).await]).await;
        }
        settle(&service, 200).await;
        is_filled(&service, disk, 2000).await;
        let used = service.datasets.used_bytes(&dataset);
        assert!(used < PAGES * 4096 + 400_000, "{used}: one version, and no other, is there");
        let top = service.files.root("tank/d").unwrap();
        service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
        settle(&service, 200).await;
        assert_eq!((dataset.dead_bytes(), dataset.refer_bytes()), (0, 0));
        assert_eq!(service.datasets.used_bytes(&dataset), 0);
    });
    bed.assert_clean();
}

/// The snapshot that it began again as stays as long as anything shows the file on that line.
#[test]
pub fn what_it_began_as_stays() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let disk = with_history(&service).await;
        go_to(&service, "a").await;
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let a = one(&service, "a").await;
        destroy(&service, &dataset, &[&a]).await;
        destroy_all_of_the_dataset(&service).await;
        settle(&service, 200).await;
        is_filled(&service, disk, 0).await;
        let gone = roll_back(&service, &a, GENTLY).await;
        assert!(matches!(gone, Err(DatasetError::NotFound(_))), "{gone:?}");
    });
    bed.assert_clean();
    bed.life(async |service| {
        let disk = disk(&service).await;
        is_filled(&service, disk, 0).await;
        // A snapshot of the dataset shows this line, after the file has left it.
        snapshot(&service, "y").await;
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        let to = one(&service, "b").await;
        assert_eq!(roll_back(&service, &to, options).await.unwrap(), ["tank/d:disk@c"]);
        settle(&service, 200).await;
        is_filled(&service, disk, 2000).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        service
            .datasets
            .rollback("tank/d@y", RollbackOptions { destroy_later: true, ..GENTLY })
            .await
            .unwrap();
        let disk = disk(&service).await;
        is_filled(&service, disk, 0).await;
        fill(&service, disk, 6000).await;
        settle(&service, 200).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        destroy_all_of_the_dataset(&service).await;
        destroy(&service, &dataset, &[&*one(&service, "b").await]).await;
        settle(&service, 200).await;
        is_filled(&service, disk(&service).await, 6000).await;
    });
    bed.assert_clean();
}

/// A dataset that goes back to before its file began a line has the file as it was, and all of it.
#[test]
fn a_dataset_goes_back_to_before_the_line() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let disk = with_history(&service).await;
        go_to(&service, "a").await;
        fill(&service, disk, 7000).await;
        take(&service, "z").await;
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        service.datasets.rollback("tank/d@x", options).await.unwrap();
        is_filled(&service, disk, 1000).await;
        settle(&service, 200).await;
        is_filled(&service, disk, 1000).await;
        // It is on its first line again: `a` is before it, and `x` between.
        go_to(&service, "a").await;
        is_filled(&service, disk, 0).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        settle(&service, 200).await;
        destroy_all_of_the_dataset(&service).await;
        destroy(&service, &dataset, &[&*one(&service, "a").await]).await;
        settle(&service, 200).await;
        is_filled(&service, disk(&service).await, 0).await;
        service.datasets.destroy("tank/d", true).await.unwrap();
        settle(&service, 200).await;
    });
    bed.assert_clean();
}

/// Although nothing later is left, a file that has left the line of a snapshot does not go back in
/// line.
#[test]
pub fn a_file_that_left_a_line_begins_another() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let disk = with_history(&service).await;
        go_to(&service, "a").await;
        fill(&service, disk, 8000).await;
        let dataset = service.datasets.by_name("tank/d").unwrap();
        destroy_all_of_the_dataset(&service).await;
        for name in ["b", "c"] {
            destroy(&service, &dataset, &[&*one(&service, name).await]).await;
        }
        settle(&service, 200).await;
        go_to(&service, "a").await;
        is_filled(&service, disk, 0).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        settle(&service, 200).await;
        is_filled(&service, disk(&service).await, 0).await;
    });
    bed.assert_clean();
}
