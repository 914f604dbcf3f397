//! A file that was removed comes back with its own id and handle.

use std::collections::BTreeSet;

use aquifer_dataset::{DatasetError, RollbackOptions};
use aquifer_files::file_snapshots::FileNameError;
use aquifer_files::{FileHandle, FsError, Service, Stability};

use crate::bed::{Bed, find, make, noise, read, root, settle, write};
use crate::by_text::ByText;
use crate::file_rollback::{GENTLY, destroy, one, snapshot, take, with_disk};
use crate::spread::{PAGES, cut, fill, is_filled};

async fn destroy_whole(service: &Service, names: &[&str]) {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    let all = dataset.snapshots(service.pool.committed_txg());
    let is_one = |name: &str| names.contains(&name);
    let all: BTreeSet<_> =
        all.iter().filter(|of| is_one(&of.record.name)).map(|of| of.txg).collect();
    assert_eq!(all.len(), names.len());
    service.datasets.destroy_snapshots(&[(dataset, all)], false).await.unwrap();
}

async fn remove(service: &Service, name: &str) {
    let top = service.files.root("tank/d").unwrap();
    service.files.remove(&root(), top, name.as_bytes()).await.kept().await.0.unwrap();
}

/// As the command does it.
async fn roll_back(
    service: &Service,
    text: &str,
    options: RollbackOptions,
) -> Result<Vec<String>, FileNameError> {
    let text = format!("tank/d:{text}");
    let (dataset, found) = service.files.versions_named(&text).await?;
    let versions: Vec<_> = found.into_iter().map(|(_, version)| version).collect();
    service.files.roll_back_named(&text, (&dataset, &versions), options).await
}

async fn comes_back(service: &Service, text: &str) {
    assert_eq!(roll_back(service, text, GENTLY).await.unwrap(), Vec::<String>::new());
}

async fn is_stale(service: &Service, file: FileHandle) {
    assert_eq!(service.files.getattr(file).await.unwrap_err(), FsError::Stale);
}

/// The names that a snapshot of the dataset shows.
async fn shown_in(service: &Service, name: &str) -> Result<FileHandle, FsError> {
    find(service, &format!("tank/d@{name}"), "disk").await
}

/// The file, with snapshots `a` (0) and `b` (2000) of it, and `x` of the dataset (1000) between.
async fn with_history(service: &Service) -> FileHandle {
    let (_, disk) = with_disk(service).await;
    take(service, "a").await;
    fill(service, disk, 1000).await;
    snapshot(service, "x").await;
    fill(service, disk, 2000).await;
    take(service, "b").await;
    fill(service, disk, 3000).await;
    disk
}

/// All that shows anything goes, and then the file: nothing is left.
async fn nothing_is_left(service: &Service, whole: &[&str], own: &[&str]) {
    let dataset = service.datasets.by_name("tank/d").unwrap();
    destroy_whole(service, whole).await;
    for name in own {
        destroy(service, &dataset, &[&*one(service, name).await]).await;
    }
    settle(service, 300).await;
    if find(service, "tank/d", "disk").await.is_ok() {
        remove(service, "disk").await;
        settle(service, 300).await;
    }
    assert_eq!((dataset.dead_bytes(), dataset.refer_bytes()), (0, 0));
    assert_eq!(service.datasets.used_bytes(&dataset), 0);
}

/// The handle that heard "stale" works again, and goes on from what clients saw.
#[test]
pub fn a_removed_file_has_its_handle_again() {
    let mut bed = Bed::of_small_steps();
    let disk = bed.life(async |service| {
        let disk = with_history(&service).await;
        let before = service.files.getattr(disk).await.unwrap();
        remove(&service, "disk").await;
        is_stale(&service, disk).await;
        // It is still being freed: this waits.
        comes_back(&service, "disk@a").await;
        assert_eq!(find(&service, "tank/d", "disk").await, Ok(disk));
        is_filled(&service, disk, 0).await;
        let after = service.files.getattr(disk).await.unwrap();
        assert!(after.change > before.change && after.ctime >= before.ctime, "clients look again");
        assert_eq!((after.nlink, after.crtime), (1, before.crtime));
        disk
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, disk, 0).await;
        // A file like any other: it goes forward, is written and cut, and goes back in line.
        comes_back(&service, "disk@b").await;
        is_filled(&service, disk, 2000).await;
        settle(&service, 200).await;
        fill(&service, disk, 4000).await;
        take(&service, "c").await;
        cut(&service, disk, 7).await;
        comes_back(&service, "disk@c").await;
        is_filled(&service, disk, 4000).await;
        comes_back(&service, "disk@x").await;
        is_filled(&service, disk, 1000).await;
    });
    bed.assert_clean();
    bed.life(async |service| nothing_is_left(&service, &["x"], &["a", "b", "c"]).await);
    bed.assert_clean();
}

/// A snapshot of the dataset that shows the file is enough, and later ones show that the file was
/// gone.
#[test]
pub fn a_snapshot_of_the_dataset_is_enough() {
    let mut bed = Bed::of_small_steps();
    let disk = bed.life(async |service| {
        let disk = with_history(&service).await;
        remove(&service, "disk").await;
        snapshot(&service, "gone").await;
        settle(&service, 100).await;
        comes_back(&service, "disk@x").await;
        is_filled(&service, disk, 1000).await;
        snapshot(&service, "back").await;
        assert_eq!(shown_in(&service, "gone").await, Err(FsError::NotFound));
        assert!(shown_in(&service, "back").await.is_ok());
        fill(&service, disk, 5000).await;
        disk
    });
    bed.assert_clean();
    // What is gathered, in pieces.
    for life in 0..6 {
        bed.short_life(async |service| {
            is_filled(&service, disk, 5000).await;
            for _ in 0..life {
                service.pool.sync().await.unwrap();
            }
        });
        bed.assert_clean();
    }
    bed.life(async |service| {
        destroy_whole(&service, &["x"]).await;
        settle(&service, 200).await;
        is_filled(&service, disk, 5000).await;
        // Once more, from the time after its return, and from before its removal.
        remove(&service, "disk").await;
        settle(&service, 100).await;
        comes_back(&service, "disk@back").await;
        is_filled(&service, disk, 1000).await;
        remove(&service, "disk").await;
        comes_back(&service, "disk@b").await;
        is_filled(&service, disk, 2000).await;
        assert_eq!(shown_in(&service, "gone").await, Err(FsError::NotFound));
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, disk, 2000).await;
        nothing_is_left(&service, &["gone", "back"], &["a", "b"]).await;
    });
    bed.assert_clean();
}

/// The snapshot may be destroyed once the file is back: it stays as long as the file does.
#[test]
pub fn what_it_came_back_as_stays() {
    let mut bed = Bed::of_small_steps();
    let disk = bed.life(async |service| {
        let disk = with_history(&service).await;
        remove(&service, "disk").await;
        comes_back(&service, "disk@b").await;
        let dataset = service.datasets.by_name("tank/d").unwrap();
        for name in ["a", "b"] {
            destroy(&service, &dataset, &[&*one(&service, name).await]).await;
        }
        destroy_whole(&service, &["x"]).await;
        settle(&service, 200).await;
        is_filled(&service, disk, 2000).await;
        snapshot(&service, "y").await;
        disk
    });
    bed.assert_clean();
    bed.life(async |service| {
        remove(&service, "disk").await;
        settle(&service, 200).await;
        // The dataset goes back to when it was there.
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        service.datasets.rollback("tank/d@y", options).await.unwrap();
        is_filled(&service, disk, 2000).await;
        remove(&service, "disk").await;
        comes_back(&service, "disk@y").await;
        is_filled(&service, disk, 2000).await;
    });
    bed.assert_clean();
    bed.life(async |service| nothing_is_left(&service, &["y"], &[]).await);
    bed.assert_clean();
}

/// A dataset that goes back to before the return has the file as it was then, or none.
#[test]
pub fn a_dataset_goes_back_past_a_return() {
    let mut bed = Bed::of_small_steps();
    let disk = bed.life(async |service| {
        let disk = with_history(&service).await;
        remove(&service, "disk").await;
        snapshot(&service, "gone").await;
        comes_back(&service, "disk@a").await;
        fill(&service, disk, 6000).await;
        take(&service, "c").await;
        let options = RollbackOptions { destroy_later: true, ..GENTLY };
        service.datasets.rollback("tank/d@gone", options).await.unwrap();
        is_stale(&service, disk).await;
        settle(&service, 200).await;
        comes_back(&service, "disk@b").await;
        is_filled(&service, disk, 2000).await;
        service.datasets.rollback("tank/d@x", options).await.unwrap();
        is_filled(&service, disk, 1000).await;
        fill(&service, disk, 7000).await;
        disk
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_filled(&service, disk, 7000).await;
        nothing_is_left(&service, &["x"], &["a"]).await;
    });
    bed.assert_clean();
}

/// The power fails while it comes back, in any txg: it is there whole, or not at all. What the log
/// has of both lives is made again in its order.
#[test]
pub fn a_power_cut_leaves_it_whole_or_not_at_all() {
    let mut bed = Bed::of_small_steps();
    let disk = bed.life(async |service| with_history(&service).await);
    let mut came = 0;
    for round in 0..8u64 {
        let back = bed.cut_life(async |service| {
            // The first rounds find it as it was; then the removal waits in the log.
            if find(&service, "tank/d", "disk").await.is_ok() {
                remove(&service, "disk").await;
            }
            if round % 2 == 0 {
                return false;
            }
            comes_back(&service, "disk@a").await;
            let page = noise(round, 1);
            write(&service, disk, 1, &page, Stability::FileSync).await.unwrap();
            true
        });
        bed.assert_clean();
        came += u64::from(back);
        bed.cut_life(async |service| match back {
            true => {
                assert_eq!(find(&service, "tank/d", "disk").await, Ok(disk));
                assert_eq!(read(&service, disk, 0).await.unwrap(), noise(0, 1));
                assert_eq!(read(&service, disk, 1).await.unwrap(), noise(round, 1));
            }
            false => {
                assert_eq!(find(&service, "tank/d", "disk").await, Err(FsError::NotFound));
                is_stale(&service, disk).await;
            }
        });
        bed.assert_clean();
    }
    assert_eq!(came, 4);
    // Nobody gives it a name: it is freed, and may come back later.
    bed.cut_life(async |service| {
        remove(&service, "disk").await;
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let version = one(&service, "a").await.id.into();
        drop(service.datasets.return_file(&dataset, &version).await.unwrap());
    });
    bed.assert_clean();
    bed.cut_life(async |service| {
        let dataset = service.datasets.by_name("tank/d").unwrap();
        let version = one(&service, "a").await.id.into();
        let made = service.datasets.return_file(&dataset, &version).await.unwrap();
        is_stale(&service, disk).await;
        // The power fails here.
        std::mem::forget(made);
    });
    bed.assert_clean();
    bed.life(async |service| {
        is_stale(&service, disk).await;
        comes_back(&service, "disk@b").await;
        is_filled(&service, disk, 2000).await;
        nothing_is_left(&service, &["x"], &["a", "b"]).await;
    });
    bed.assert_clean();
}

/// Requests that cannot be carried out are refused, and change nothing.
#[test]
pub fn what_cannot_be_done_is_refused() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        let disk = with_history(&service).await;
        let top = service.files.root("tank/d").unwrap();
        let refused = async |text: &str| roll_back(&service, text, GENTLY).await.unwrap_err();
        // A second name keeps the file alive: it is rolled back in place, as ever.
        service.files.link(&root(), disk, top, b"link").await.kept().await.0.unwrap();
        remove(&service, "disk").await;
        comes_back(&service, "disk@a").await;
        is_filled(&service, disk, 0).await;
        assert_eq!(find(&service, "tank/d", "disk").await, Err(FsError::NotFound));
        let alive = service.files.return_named("tank/d:disk@a").await.unwrap_err();
        assert!(
            matches!(alive, FileNameError::Dataset(DatasetError::FileNotRemoved(_))),
            "{alive}"
        );
        remove(&service, "link").await;
        // Something else has its name.
        let other = make(&service, top, "disk").await;
        assert!(matches!(refused("disk@a").await, FileNameError::NameTaken(_)));
        remove(&service, "disk").await;
        is_stale(&service, other).await;
        // No such snapshot; not shown; a pattern.
        assert!(matches!(refused("disk@none").await, FileNameError::NoSnapshot(_)));
        assert!(matches!(refused("never@x").await, FileNameError::NotThere(_)));
        let of_pattern = refused("d*k@a").await;
        assert!(
            matches!(of_pattern, FileNameError::Dataset(DatasetError::FileRemoved(_))),
            "{of_pattern}"
        );
        let later = RollbackOptions { destroy_later: true, ..GENTLY };
        let later = roll_back(&service, "disk@a", later).await.unwrap_err();
        assert!(matches!(later, FileNameError::ReturnKeepsLater(_)), "{later}");
        let set = async |name, value| service.datasets.set("tank/d", name, value).await.unwrap();
        set("readonly", Some("on")).await;
        let error = FsError::ReadOnly;
        let read_only = FileNameError::Return { name: "tank/d:disk".into(), error };
        assert_eq!(refused("disk@a").await, read_only);
        set("readonly", Some("off")).await;
        comes_back(&service, "disk@a").await;
        assert_eq!(find(&service, "tank/d", "disk").await, Ok(disk));
        is_filled(&service, disk, 0).await;
    });
    bed.assert_clean();
}

/// Its directory must be there. A path of several parts is found in a snapshot of the dataset.
#[test]
fn it_comes_back_into_its_directory() {
    let mut bed = Bed::of_small_steps();
    bed.life(async |service| {
        service.datasets.create("tank/d", &[]).await.unwrap();
        let top = service.files.root("tank/d").unwrap();
        let attributes = aquifer_files::SetAttributes::default();
        let mkdir = async || {
            let made = service.files.mkdir(&root(), top, b"web01", &attributes).await;
            made.kept().await.0.unwrap().handle
        };
        let directory = mkdir().await;
        let disk = make(&service, directory, "disk").await;
        fill(&service, disk, 0).await;
        snapshot(&service, "x").await;
        service.files.remove(&root(), directory, b"disk").await.kept().await.0.unwrap();
        service.files.rmdir(&root(), top, b"web01").await.kept().await.0.unwrap();
        let no_place = roll_back(&service, "web01/disk@x", GENTLY).await.unwrap_err();
        assert_eq!(no_place, FileNameError::NoDirectory("tank/d:web01/disk".into()));
        let directory = mkdir().await;
        comes_back(&service, "web01/disk@x").await;
        is_filled(&service, disk, 0).await;
        let found = service.files.lookup(&root(), directory, b"disk").await.0.unwrap();
        assert_eq!(found.handle, disk);
        let used = service.datasets.by_name("tank/d").unwrap().refer_bytes();
        assert!(used < PAGES * 4096 + 400_000, "{used}: it is there once");
    });
    bed.assert_clean();
}
