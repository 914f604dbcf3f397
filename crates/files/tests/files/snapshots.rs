//! Snapshots of datasets: what they take, and a dead tree that cannot be read.

use std::collections::BTreeSet;

use aquifer_dataset::{DatasetError, RollbackOptions};
use aquifer_files::{Service, Stability};
use aquifer_inspect::Kind;
use aquifer_ondisk::ObjectId;

use crate::bed::{Bed, make, noise, write};

const PAGES: u64 = 1000;

/// Writes pages of a file, each an extent of its own: from one of them on, every `step`th.
async fn write_pages(service: &Service, salt: u64, (from, step): (u64, usize)) {
    let root = service.files.root("tank/d").unwrap();
    let file = match crate::bed::find(service, "tank/d", "disk").await {
        Ok(file) => file,
        Err(_) => make(service, root, "disk").await,
    };
    for at in (from..2 * PAGES).step_by(step) {
        let data = noise(salt + at, 1);
        write(service, file, at * 2, &data, Stability::Unstable).await.unwrap();
    }
    service.pool.sync().await.unwrap();
}

async fn write_all(service: &Service, salt: u64) {
    write_pages(service, salt, (0, 1)).await;
}

async fn destroy_all(service: &Service) {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    let all = dataset.snapshots(service.pool.committed_txg());
    let all: BTreeSet<_> = all.iter().map(|snapshot| snapshot.txg).collect();
    service.datasets.destroy_snapshots(&[(dataset, all)], false).await.unwrap();
}

async fn settle(service: &Service) {
    for _ in 0..20 {
        service.pool.sync().await.unwrap();
    }
}

/// A pool with two snapshots, after each of which a thousand blocks died. They lie apart on the
/// disk: the dead tree names each of them.
fn with_dead_blocks() -> Bed {
    let mut bed = Bed::new(2, 65536);
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        write_all(&service, 0).await;
        for round in 1..3 {
            service.datasets.snapshot(&[format!("tank/d@{round}")], false).await.unwrap();
            write_pages(&service, round * 10_000, (round - 1, 2)).await;
        }
    });
    bed.assert_clean();
    bed
}

#[test]
fn what_a_snapshot_keeps_comes_back_with_it() {
    let mut bed = with_dead_blocks();
    bed.life(async |service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let kept = dataset.dead_bytes();
        assert!(kept >= 2 * PAGES * 4096, "{kept} bytes");
        assert_eq!(service.datasets.used_bytes(&dataset), dataset.refer_bytes() + kept);
        destroy_all(&service).await;
        settle(&service).await;
        assert_eq!(dataset.dead_bytes(), 0);
        assert!(!service.datasets.has_background_work());
    });
    bed.assert_clean();
}

/// The first bucket can be read, the second cannot. All blocks stay allocated: none is freed twice,
/// now or after another import.
#[test]
fn a_damaged_dead_tree_frees_nothing_twice() {
    let mut bed = with_dead_blocks();
    let leaf = bed.find_dead_leaf();
    bed.rot(leaf);
    bed.life(async |service| {
        assert!(service.datasets.damages().is_empty(), "the root of the tree can be read");
        destroy_all(&service).await;
        settle(&service).await;
        let damages = service.datasets.damages();
        assert!(damages.iter().any(|damage| damage.object == ObjectId(0)), "{damages:?}");
        // What a rollback brings back, or leaves, would have to be filed.
        for name in ["old", "new"] {
            let full = format!("tank/d@{name}");
            service.datasets.snapshot(&[full], false).await.unwrap();
            write_pages(&service, 90_000, (0, 2)).await;
        }
        for name in ["old", "new"] {
            let full = format!("tank/d@{name}");
            let refused = service.datasets.rollback(&full, RollbackOptions::default()).await;
            assert_eq!(refused, Err(DatasetError::DeadUnreadable("tank/d".into())), "{name}");
        }
    });
    for life in 0..2 {
        bed.life(async |service| {
            write_all(&service, 50_000 * (life + 1)).await;
            settle(&service).await;
        });
        bed.assert_only(&[Kind::NodeUnreadable, Kind::LeakUnknown, Kind::CopyBad]);
    }
}
