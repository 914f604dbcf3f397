//! Bookmarks: what they keep, what they let go, and that scrub and restarts know of them.

use std::sync::Arc;
use std::time::Duration;

use aquifer_blockio::Disk;
use aquifer_dataset::{Dataset, DatasetError, RollbackOptions};
use aquifer_files::{FileHandle, Service, Stability};
use aquifer_inspect::{Options, inspect};
use aquifer_ondisk::scrub::ScrubState;
use aquifer_sim::Corruption;

use crate::bed::{Bed, find, make, noise, settle, write};
use crate::spread::{PAGES, fill};

async fn with_disk(service: &Service) -> (Arc<Dataset>, FileHandle) {
    service.datasets.create("tank/d", &[]).await.unwrap();
    let disk = make(service, service.files.root("tank/d").unwrap(), "disk").await;
    fill(service, disk, 0).await;
    (service.datasets.by_name("tank/d").unwrap(), disk)
}

async fn take(service: &Service, name: &str) {
    service.datasets.snapshot(&[format!("tank/d@{name}")], false).await.unwrap();
}

async fn destroy(service: &Service, name: &str) {
    let (dataset, of) = service.datasets.snapshot_by_name(&format!("tank/d@{name}")).unwrap();
    service.datasets.destroy_snapshots(&[(dataset, [of.txg].into())], false).await.unwrap();
}

/// A snapshot becomes a bookmark.
async fn mark(service: &Service, name: &str) {
    service.datasets.bookmark(&format!("tank/d@{name}"), &format!("#{name}")).await.unwrap();
    destroy(service, name).await;
}

async fn unmark(service: &Service, name: &str) {
    service.datasets.destroy_bookmarks(&[format!("tank/d#{name}")]).await.unwrap();
}

/// Pages of the file that changed since a bookmark.
async fn changed_pages(service: &Service, since: &str) -> u64 {
    let both = (format!("tank/d#{since}:disk"), "tank/d:disk".to_string());
    let found = service.files.changed_ranges((&both.0, &both.1), None, 10_000).await.unwrap();
    found.ranges.iter().map(|range| range.length / 4096).sum()
}

#[test]
fn nodes_stay_and_data_goes() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        take(&service, "a").await;
        fill(&service, disk, 1000).await;
        let with_data = dataset.dead_bytes();
        assert!(with_data >= PAGES * 4096, "{with_data}");
        mark(&service, "a").await;
        settle(&service, 100).await;
        // Nodes of 400 bytes here: many more of them than there are.
        let nodes = dataset.dead_bytes();
        assert!(nodes > 0 && nodes + PAGES * 4096 <= with_data, "{nodes} of {with_data}");
        assert_eq!(changed_pages(&service, "a").await, PAGES);
        // What dies without any snapshot is filed too.
        take(&service, "b").await;
        mark(&service, "b").await;
        settle(&service, 100).await;
        write(&service, disk, 4, &noise(7, 1), Stability::FileSync).await.unwrap();
        settle(&service, 5).await;
        assert_eq!(changed_pages(&service, "b").await, 1);
    });
    bed.assert_clean();
    bed.life(async |service| {
        assert_eq!(changed_pages(&service, "b").await, 1);
        assert_eq!(changed_pages(&service, "a").await, PAGES);
        unmark(&service, "a").await;
        settle(&service, 100).await;
        assert_eq!(changed_pages(&service, "b").await, 1, "the younger one has its own");
        unmark(&service, "b").await;
        settle(&service, 100).await;
        let dataset = service.datasets.by_name("tank/d").unwrap();
        assert_eq!(dataset.dead_bytes(), 0);
    });
    bed.assert_clean();
}

#[test]
fn a_bookmark_may_come_behind_younger_ones() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        for name in ["a", "b", "c"] {
            take(&service, name).await;
            fill(&service, disk, 100 + u64::from(name.as_bytes()[0])).await;
        }
        mark(&service, "c").await;
        fill(&service, disk, 2000).await;
        // Now the older ones, in the wrong order, and what only they needed goes with them.
        mark(&service, "a").await;
        mark(&service, "b").await;
        fill(&service, disk, 3000).await;
        settle(&service, 200).await;
        for name in ["a", "b", "c"] {
            assert_eq!(changed_pages(&service, name).await, PAGES, "{name}");
        }
        unmark(&service, "b").await;
        settle(&service, 200).await;
        for name in ["a", "c"] {
            assert_eq!(changed_pages(&service, name).await, PAGES, "{name}");
        }
        let before = dataset.dead_bytes();
        unmark(&service, "a").await;
        settle(&service, 200).await;
        assert!(dataset.dead_bytes() < before, "what b and a shared goes with the last of them");
        assert_eq!(changed_pages(&service, "c").await, PAGES);
        unmark(&service, "c").await;
        settle(&service, 200).await;
        assert_eq!(dataset.dead_bytes(), 0);
    });
    bed.assert_clean();
}

#[test]
pub fn a_rollback_takes_later_bookmarks_away_and_leaves_others() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        take(&service, "a").await;
        service.datasets.bookmark("tank/d@a", "#a").await.unwrap();
        fill(&service, disk, 1000).await;
        take(&service, "b").await;
        mark(&service, "b").await;
        let options = RollbackOptions { destroy_later: false, force: true };
        service.datasets.rollback("tank/d@a", options).await.unwrap();
        let gone = service.datasets.bookmark_by_name("tank/d#b").map(drop);
        assert!(matches!(gone, Err(DatasetError::NotFound(_))), "{gone:?}");
        settle(&service, 200).await;
        assert_eq!(changed_pages(&service, "a").await, 0);
        write(&service, disk, 0, &noise(9, 1), Stability::FileSync).await.unwrap();
        destroy(&service, "a").await;
        settle(&service, 200).await;
        assert_eq!(changed_pages(&service, "a").await, 1);
        unmark(&service, "a").await;
        settle(&service, 200).await;
        assert_eq!(dataset.dead_bytes(), 0);
    });
    bed.assert_clean();
}

#[test]
fn a_comparison_ends_when_its_bookmark_is_destroyed() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (_, disk) = with_disk(&service).await;
        take(&service, "a").await;
        mark(&service, "a").await;
        fill(&service, disk, 1000).await;
        let version = service.datasets.version("tank/d#a").unwrap();
        assert!(version.look(&service.pool).is_ok() && !version.is_head());
        unmark(&service, "a").await;
        assert!(version.look(&service.pool).is_err());
        let gone = service.datasets.version("tank/d#a").map(drop);
        assert!(matches!(gone, Err(DatasetError::NotFound(_))), "{gone:?}");
        // The same name again, of another snapshot.
        take(&service, "a").await;
        mark(&service, "a").await;
        assert_eq!(changed_pages(&service, "a").await, 0);
        // A dataset goes with its bookmarks, and what they keep.
        service.datasets.destroy("tank/d", true).await.unwrap();
        settle(&service, 300).await;
    });
    bed.assert_clean();
}

#[test]
fn a_scrub_mends_nodes_that_a_bookmark_alone_needs() {
    let mut bed = Bed::new(2, 65536);
    bed.options.scale.piece_blocks_max = 64;
    bed.options.scale.node_bytes = 400;
    bed.life(async |service| {
        let (_, disk) = with_disk(&service).await;
        take(&service, "a").await;
        mark(&service, "a").await;
        fill(&service, disk, 1000).await;
        settle(&service, 20).await;
    });
    let mut nodes = Vec::new();
    bed.disks[1].durable_image().for_each(|sector, page| {
        if page.as_slice().starts_with(b"AQTN") {
            nodes.push(sector);
        }
    });
    for sector in nodes {
        bed.disks[1].corrupt(sector, Corruption::Garbage);
    }
    bed.life(async |service| {
        service.files.start_scrub().await.unwrap();
        while service.files.scrub_status().unwrap().state != ScrubState::Finished {
            service.pool.world().sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(service.files.scrub_status().unwrap().unreadable_blocks, 0);
        find(&service, "tank/d", "disk").await.unwrap();
        assert_eq!(changed_pages(&service, "a").await, PAGES);
    });
    let disks = bed.disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    let options = Options { data: true, deep: true, ..Options::default() };
    let report = bed.sim.run_until(inspect(disks, &options)).unwrap();
    assert!(report.is_clean(), "{report}");
}
