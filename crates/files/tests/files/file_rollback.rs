//! Rollback of a file to a snapshot of it: what clients see, what comes back, and what is refused.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use aquifer_dataset::{Dataset, DatasetError, FileSnapshot, RollbackOptions};
use aquifer_files::{FileHandle, FsError, Service, Stability};
use futures_util::future::{join, join4};

use crate::bed::{Bed, find, make, noise, read, root, settle, snapshots_named, write};
use crate::by_text::ByText;
use crate::spread::{PAGES, cut, fill, is_filled};

pub const GENTLY: RollbackOptions = RollbackOptions { destroy_later: false, force: false };
pub async fn with_disk(service: &Service) -> (Arc<Dataset>, FileHandle) {
    service.datasets.create("tank/d", &[]).await.unwrap();
    let disk = make(service, service.files.root("tank/d").unwrap(), "disk").await;
    fill(service, disk, 0).await;
    (service.datasets.by_name("tank/d").unwrap(), disk)
}

/// A snapshot of the dataset.
pub async fn snapshot(service: &Service, name: &str) {
    crate::receive::snapshot(service, &format!("tank/d@{name}")).await;
}

pub async fn take(service: &Service, name: &str) -> Arc<FileSnapshot> {
    let names = [format!("tank/d:disk@{name}")];
    service.files.take_named(&names).await.unwrap();
    one(service, name).await
}

pub async fn one(service: &Service, name: &str) -> Arc<FileSnapshot> {
    snapshots_named(&service.files, &format!("tank/d:disk@{name}")).await.unwrap().1[0].clone()
}

pub async fn roll_back(
    service: &Service,
    to: &FileSnapshot,
    options: RollbackOptions,
) -> Result<Vec<String>, DatasetError> {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    service.datasets.rollback_files(&dataset, &[to.id], options).await
}

pub async fn destroy(service: &Service, dataset: &Arc<Dataset>, these: &[&FileSnapshot]) {
    let ids: BTreeSet<_> = these.iter().map(|of| of.id).collect();
    service.datasets.destroy_file_snapshots(&[(dataset.clone(), ids)]).await.unwrap();
}

#[test]
fn the_same_handle_reads_the_old_content_and_other_files_stay() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        let top = service.files.root("tank/d").unwrap();
        let other = make(&service, top, "other").await;
        let to = take(&service, "a").await;
        let refer = dataset.refer_bytes();
        fill(&service, disk, 1000).await;
        write(&service, disk, 7, &noise(500, 1), Stability::FileSync).await.unwrap();
        let (from, new) = ((top, &b"disk"[..]), (top, &b"new"[..]));
        service.files.rename(&root(), from, new).await.kept().await.0.unwrap();
        let before = service.files.getattr(disk).await.unwrap();
        write(&service, other, 0, &noise(1, 1), Stability::FileSync).await.unwrap();
        assert_eq!(roll_back(&service, &to, GENTLY).await.unwrap(), Vec::<String>::new());
        is_filled(&service, disk, 0).await;
        let after = service.files.getattr(disk).await.unwrap();
        assert!(after.change > before.change && after.ctime > before.ctime, "{after:?}");
        assert_eq!(after.mode, before.mode);
        assert_eq!(find(&service, "tank/d", "new").await.unwrap(), disk, "its name stays");
        assert_eq!(read(&service, other, 0).await.unwrap(), noise(1, 1));
        assert_eq!(dataset.refer_bytes(), refer + 4096);
        let used = service.datasets.used_bytes(&dataset);
        assert_eq!(used, refer + 4096, "what came back counts once");
        settle(&service, 60).await;
        assert_eq!(dataset.dead_bytes(), 0, "the snapshot shows what the file does");
    });
    bed.assert_clean();
    bed.life(async |service| {
        let disk = find(&service, "tank/d", "new").await.unwrap();
        is_filled(&service, disk, 0).await;
        // All of it goes.
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let to = one(&service, "a").await;
        fill(&service, disk, 3000).await;
        roll_back(&service, &to, GENTLY).await.unwrap();
        destroy(&service, &dataset, &[&to]).await;
        let top = service.files.root("tank/d").unwrap();
        service.files.remove(&root(), top, b"new").await.kept().await.0.unwrap();
        settle(&service, 60).await;
        assert_eq!((dataset.dead_bytes(), dataset.refer_bytes()), (0, 4096));
    });
    bed.assert_clean();
}

/// Cut short, rolled back, grown, rolled back, killed at any time: tails and old heads own what is
/// theirs.
#[test]
pub fn what_was_cut_off_comes_back() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (_, disk) = with_disk(&service).await;
        take(&service, "a").await;
        for (pages, salt) in [(0, 1000), (3, 2000), (100, 3000)] {
            cut(&service, disk, pages).await;
            // The cut is in a tail now, which is not freed.
            service.pool.sync().await.unwrap();
            let to = one(&service, "a").await;
            roll_back(&service, &to, GENTLY).await.unwrap();
            is_filled(&service, disk, 0).await;
            fill(&service, disk, salt).await;
            // One that is not on disk either.
            cut(&service, disk, pages).await;
            roll_back(&service, &to, GENTLY).await.unwrap();
            is_filled(&service, disk, 0).await;
        }
        fill(&service, disk, 5000).await;
        let to = one(&service, "a").await;
        roll_back(&service, &to, GENTLY).await.unwrap();
    });
    bed.assert_clean();
    for life in 0..12 {
        bed.short_life(async |service| {
            for _ in 0..life {
                service.pool.sync().await.unwrap();
            }
        });
        bed.assert_clean();
    }
    bed.life(async |service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let disk = find(&service, "tank/d", "disk").await.unwrap();
        is_filled(&service, disk, 0).await;
        let to = one(&service, "a").await;
        destroy(&service, &dataset, &[&to]).await;
        settle(&service, 60).await;
        is_filled(&service, disk, 0).await;
        assert_eq!((dataset.dead_bytes(), dataset.refer_bytes()), (0, PAGES * 4096));
    });
    bed.assert_clean();
}

/// An old head is an object that snapshots of the dataset show: they, their clones, a rollback of
/// the dataset and its end take no more of it than it owns.
#[test]
fn an_old_head_is_shown_by_what_comes_later() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        let to = take(&service, "a").await;
        fill(&service, disk, 1000).await;
        roll_back(&service, &to, GENTLY).await.unwrap();
        // Most of the old head is still there.
        service.datasets.snapshot(&["tank/d@all".into()], false).await.unwrap();
        service.datasets.clone_snapshot("tank/d@all", "tank/c", &[]).await.unwrap();
        destroy(&service, &dataset, &[&to]).await;
        fill(&service, disk, 2000).await;
        settle(&service, 60).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        let disk = find(&service, "tank/c", "disk").await.unwrap();
        is_filled(&service, disk, 0).await;
        let disk = find(&service, "tank/d", "disk").await.unwrap();
        is_filled(&service, disk, 2000).await;
        service.datasets.destroy("tank/c", true).await.unwrap();
        service.datasets.rollback("tank/d@all", GENTLY).await.unwrap();
        is_filled(&service, disk, 0).await;
    });
    bed.assert_clean();
    bed.life(async |service| {
        settle(&service, 60).await;
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let disk = find(&service, "tank/d", "disk").await.unwrap();
        is_filled(&service, disk, 0).await;
        let all = dataset.snapshots(service.pool.committed_txg())[0].txg;
        let all = [(dataset, BTreeSet::from([all]))];
        service.datasets.destroy_snapshots(&all, false).await.unwrap();
        let to = take(&service, "b").await;
        fill(&service, disk, 4000).await;
        roll_back(&service, &to, GENTLY).await.unwrap();
        service.datasets.destroy("tank/d", true).await.unwrap();
        settle(&service, 60).await;
    });
    bed.assert_clean();
}

#[test]
fn later_snapshots_of_the_file_go_if_that_is_asked_for() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        let mut all = Vec::new();
        for (name, salt) in [("a", 1000), ("b", 2000), ("c", 3000), ("d", 4000)] {
            all.push(take(&service, name).await);
            fill(&service, disk, salt).await;
        }
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        // The newest, an older one, and one that was taken since.
        for (to, salt) in [(&all[3], 3000), (&all[1], 1000)] {
            roll_back(&service, to, options).await.unwrap();
            is_filled(&service, disk, salt).await;
        }
        assert_eq!(dataset.file_snapshot_count(), 2);
        let newer = take(&service, "e").await;
        fill(&service, disk, 5000).await;
        roll_back(&service, &newer, options).await.unwrap();
        is_filled(&service, disk, 1000).await;
        assert_eq!(roll_back(&service, &all[0], options).await.unwrap().len(), 2);
        is_filled(&service, disk, 0).await;
        let gone = roll_back(&service, &newer, options).await;
        assert!(matches!(gone, Err(DatasetError::NotFound(_))), "{gone:?}");
        settle(&service, 60).await;
        assert_eq!(dataset.dead_bytes(), 0);
    });
    bed.assert_clean();
}

#[test]
pub fn what_cannot_be_done_is_refused() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        let to = take(&service, "a").await;
        // What waits for COMMIT.
        write(&service, disk, 0, &noise(900, 1), Stability::Unstable).await.unwrap();
        let refused = roll_back(&service, &to, GENTLY).await;
        assert_eq!(refused, Err(DatasetError::WaitsForCommit("tank/d:disk@a".into())));
        let force = RollbackOptions { force: true, ..GENTLY };
        write(&service, disk, 2, &noise(901, 1), Stability::Unstable).await.unwrap();
        roll_back(&service, &to, force).await.unwrap();
        is_filled(&service, disk, 0).await;
        // A snapshot that was taken while a tail was freed, and the one before it.
        cut(&service, disk, 0).await;
        service.pool.sync().await.unwrap();
        let unsettled = take(&service, "b").await;
        let refused = roll_back(&service, &unsettled, force).await;
        assert_eq!(refused, Err(DatasetError::Unsettled("tank/d:disk@b".into())));
        assert_eq!(service.files.getattr(disk).await.unwrap().size, 0);
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        roll_back(&service, &to, options).await.unwrap();
        is_filled(&service, disk, 0).await;
        service.datasets.snapshot(&["tank/d@all".into()], false).await.unwrap();
        // A file that is gone.
        let all = BTreeSet::from([dataset.snapshots(service.pool.committed_txg())[0].txg]);
        service.datasets.destroy_snapshots(&[(dataset, all)], false).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        service.files.remove(&root(), top, b"disk").await.kept().await.0.unwrap();
        for _ in 0..2 {
            let refused = roll_back(&service, &to, options).await;
            assert_eq!(refused, Err(DatasetError::FileRemoved("tank/d:disk@a".into())));
            settle(&service, 60).await;
        }
        assert_eq!(service.files.getattr(disk).await, Err(FsError::Stale));
    });
    bed.assert_clean();
}

/// Writes while a file goes back come before that, or after it: what is read then is there after a
/// power cut, too.
#[test]
pub fn writes_meanwhile_come_before_or_after() {
    writes_beside(async |service| {
        let force = RollbackOptions { force: true, ..GENTLY };
        let to = one(service, "a").await;
        roll_back(service, &to, force).await.unwrap();
    });
}

/// Writes while the whole dataset goes back come before that, or after it, too.
#[test]
pub fn writes_beside_a_rollback_of_the_dataset_do_too() {
    writes_beside(async |service| {
        let force = RollbackOptions { force: true, ..GENTLY };
        service.datasets.rollback("tank/d@whole", force).await.unwrap();
    });
}

fn writes_beside(rolls_back: impl AsyncFn(&Service)) {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        with_disk(&service).await;
        take(&service, "a").await;
        snapshot(&service, "whole").await;
    });
    let all = async |service: &Service| {
        let disk = find(service, "tank/d", "disk").await.unwrap();
        let mut pages = Vec::new();
        for at in 0..2 * PAGES {
            pages.push(read(service, disk, at).await.unwrap_or_default());
        }
        pages
    };
    for round in 0..12 {
        let seen = bed.cut_life(async |service| {
            let disk = find(&service, "tank/d", "disk").await.unwrap();
            write(&service, disk, 0, &noise(700 + round, 1), Stability::FileSync).await.unwrap();
            // Each page once, so that none hides what became of an earlier write. No later txg
            // takes them to disk: a power cut has them replayed.
            let is_back = Cell::new(false);
            let writes = async |first: u64| {
                for at in (first..2 * PAGES).step_by(4) {
                    if is_back.get() {
                        break;
                    }
                    let data = noise(10_000 * round + at, 1);
                    write(&service, disk, at, &data, Stability::FileSync).await.unwrap();
                }
            };
            let rolls = async {
                rolls_back(&service).await;
                is_back.set(true);
            };
            join(rolls, join4(writes(0), writes(1), writes(2), writes(3))).await;
            all(&service).await
        });
        bed.assert_clean();
        let after = bed.life(async |service| all(&service).await);
        let differs = (0..).zip(seen.iter().zip(&after)).find(|(_, (one, other))| one != other);
        assert_eq!(differs.map(|(at, _): (u64, _)| at), None, "round {round}");
    }
    bed.assert_clean();
}

/// Two disks of a VM go back at one moment, or neither does.
#[test]
fn several_files_go_back_together() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let (dataset, disk) = with_disk(&service).await;
        let top = service.files.root("tank/d").unwrap();
        let second = make(&service, top, "disk2").await;
        fill(&service, second, 100).await;
        service.files.take_named(&["tank/d:disk*@a".into()]).await.unwrap();
        let ids: Vec<_> = {
            let (_, set) = snapshots_named(&service.files, "tank/d:disk*@a").await.unwrap();
            set.iter().map(|of| of.id).collect()
        };
        let newer = take(&service, "b").await;
        for (file, salt) in [(disk, 1000), (second, 2000)] {
            fill(&service, file, salt).await;
        }
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        write(&service, second, 0, &noise(2000, 1), Stability::Unstable).await.unwrap();
        let refused = service.datasets.rollback_files(&dataset, &ids, options).await;
        assert_eq!(refused, Err(DatasetError::WaitsForCommit("tank/d:disk2@a".into())));
        is_filled(&service, disk, 1000).await;
        // No door stays shut.
        write(&service, disk, 0, &noise(1000, 1), Stability::FileSync).await.unwrap();
        service.pool.sync().await.unwrap();
        let twice = [one(&service, "a").await.id, newer.id];
        let refused = service.datasets.rollback_files(&dataset, &twice, options).await;
        assert!(refused.unwrap_err().to_string().contains("the second of one file"));
        let gone = service.datasets.rollback_files(&dataset, &ids, options).await.unwrap();
        assert_eq!(gone, ["tank/d:disk@b"]);
        is_filled(&service, disk, 0).await;
        is_filled(&service, second, 100).await;
        settle(&service, 60).await;
        assert_eq!(dataset.dead_bytes(), 0);
    });
    bed.assert_clean();
}
